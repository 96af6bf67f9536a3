//! What was due: the instants at which a job's versions, each by its own timetable, called for a run.
//!
//! Versions of one generation go by one decision; they are one *term*. A term decides from its boundary on, the newest
//! that may decide an instant does, and each instant comes once. Nothing is collected: a term holds the one instant
//! that it comes to next.

use super::{Open, Standing, Version};
use crate::job::{Job, JobState, decides_from};
use crate::schedule::{Firing, whole_second};
use crate::zone::Zones;
use chrono::{DateTime, TimeDelta, Utc};

/// An instant that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// The nominal instant.
    pub(super) at: DateTime<Utc>,
    /// When its run should start.
    pub(super) due_at: DateTime<Utc>,
    /// The generation that decides it.
    pub(super) generation: u64,
    /// What explains that it has no row; none = the job has passed it.
    pub(super) not_passed: Option<Standing>,
}

/// The instants of all terms, in ascending order.
#[derive(Debug)]
pub(super) struct Calendar<'a> {
    terms: Vec<Term<'a>>,
    zones: &'a Zones,
}

impl<'a> Calendar<'a> {
    /// Those from the first instant to before the second.
    pub(super) fn new(versions: &[Version<'a>], span: (DateTime<Utc>, DateTime<Utc>), zones: &'a Zones) -> Self {
        let mut terms = terms(versions, zones);
        end_terms(&mut terms);
        for term in &mut terms {
            term.begin(span, zones);
        }
        terms.retain(|term| term.next.is_some());
        Calendar { terms, zones }
    }
}

impl Iterator for Calendar<'_> {
    type Item = Due;

    fn next(&mut self) -> Option<Due> {
        let at = self.terms.iter().filter_map(|term| term.next).map(|next| next.at).min()?;
        let comes = |term: &Term<'_>| term.next.is_some_and(|next| next.at == at);
        // A later life may begin with an instant of a former one: it is the later one's.
        let due = self.terms.iter().rfind(|term| comes(term)).map(|term| term.due(at));
        for term in self.terms.iter_mut().filter(|term| comes(term)) {
            term.proceed(self.zones);
        }
        self.terms.retain(|term| term.next.is_some());
        due
    }
}

/// From which instant on these versions say all that was due; none = none of them says anything.
pub(super) fn known_from(versions: &[Version<'_>]) -> Option<DateTime<Utc>> {
    let first = versions.first()?;
    if first.job.version == 1 {
        return Some(DateTime::<Utc>::MIN_UTC);
    }
    let Decided { how, at, from } = Decided::of(None, first);
    let from = if how == How::Ended { decides_from(at) } else { from };
    // Before that may have been another life.
    Some(from.max(decides_from(first.job.created_at)))
}

/// The versions of one generation.
#[derive(Debug)]
struct Term<'a> {
    /// The last of them, as it stood when the term ended.
    job: &'a Job,
    how: How,
    /// From which instant on it decides; a new life also an earlier one that it begins with.
    from: DateTime<Utc>,
    /// An instant that it begins with whatever its timetable says, and when that is due.
    head: Option<(Firing, DateTime<Utc>)>,
    /// From this instant on a later term decides.
    end: DateTime<Utc>,
    /// From which instant on the job did not come to any, and what became of those.
    stands_at: Option<(DateTime<Utc>, Standing)>,
    /// The last instant that is due.
    last: DateTime<Utc>,
    next: Option<Firing>,
}

/// How a term came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// The job was made, or made again.
    Made,
    /// An edit while an instant was owed: that stays owed.
    Kept,
    /// An edit that decides about what lies ahead.
    Anew,
    /// A cancel.
    Ended,
}

/// A term's beginning.
struct Decided {
    how: How,
    /// When.
    at: DateTime<Utc>,
    /// From which instant on.
    from: DateTime<Utc>,
}

impl Decided {
    /// How the term that `first` begins came about, `prior` being the job that it replaced, if that is known.
    fn of(prior: Option<&Job>, first: &Version<'_>) -> Self {
        let job = first.job;
        let life = |job: &Job| job.created_at.timestamp_millis();
        let made_ms = i64::try_from(job.generation).unwrap_or(i64::MAX);
        let from_s = job.voids.latest().map_or(0, |void| void.from);
        // The version that began the term may be forgotten; its generation still says when that was.
        let made_at = DateTime::from_timestamp_millis(made_ms).filter(|_| prior.is_none());
        let at = made_at.map_or(first.since, |made_at| first.since.min(made_at));
        let from = DateTime::from_timestamp(from_s, 0).unwrap_or(DateTime::UNIX_EPOCH);
        let is_new_life = match prior {
            Some(prior) => life(prior) != life(job),
            None => from_s == 0 || made_ms == life(job),
        };
        let how = match job.state {
            JobState::Cancelled => How::Ended,
            _ if is_new_life => How::Made,
            _ if from <= at => How::Kept,
            _ => How::Anew,
        };
        Decided { how, at, from }
    }
}

fn terms<'a>(versions: &[Version<'a>], zones: &Zones) -> Vec<Term<'a>> {
    let same = |one: &Version<'_>, other: &Version<'_>| one.job.generation == other.job.generation;
    let mut prior: Option<&Job> = None;
    let groups = versions.chunk_by(same).filter_map(|group| {
        let (first, last) = (group.first()?, group.last()?);
        let term = Term::of(prior, first, last.job, zones);
        prior = Some(last.job);
        Some(term)
    });
    groups.collect()
}

/// Says of each term where the later ones take over, and what became of what its job did not come to.
fn end_terms(terms: &mut [Term<'_>]) {
    let mut end = DateTime::<Utc>::MAX_UTC;
    let mut after = None;
    for term in terms.iter_mut().rev() {
        term.end = end;
        // What a former life did is no edit's of a later one, whatever instant that one begins with.
        end = if term.how == How::Made { term.from } else { end.min(term.from) };
        let standing = match (after, term.job.state) {
            (None, JobState::Active) => Some(Standing::Open(Open::NotDispatched)),
            (None, JobState::Paused) => Some(Standing::Open(Open::Paused)),
            (None, JobState::Quarantined) => Some(Standing::Open(Open::Quarantined)),
            (Some(How::Ended), _) => Some(Standing::Cancelled),
            _ => None,
        };
        term.stands_at = position(term.job).zip(standing);
        after = Some(term.how);
    }
}

/// The first instant that a job has not passed; none when nothing is to come.
fn position(job: &Job) -> Option<DateTime<Utc>> {
    let behind_passed = || match &job.passed {
        Some(passed) => passed.firing.at + TimeDelta::seconds(1),
        None => DateTime::<Utc>::MIN_UTC,
    };
    match job.state {
        JobState::Active | JobState::Quarantined => Some(job.next_scheduled_at.unwrap_or_else(behind_passed)),
        JobState::Paused => job.next_scheduled_at,
        JobState::Done | JobState::Cancelled => None,
    }
}

impl<'a> Term<'a> {
    fn of(prior: Option<&Job>, first: &Version<'_>, job: &'a Job, zones: &Zones) -> Self {
        let Decided { how, at, from } = Decided::of(prior, first);
        let due_anew = |firing: &Firing| job.spec.due_at(firing).max(whole_second(at));
        let (from, head) = match how {
            How::Made => {
                let first = job.spec.schedule.first(job.created_at, zones);
                (decides_from(job.created_at), first.map(|first| (first, due_anew(&first))))
            }
            How::Kept => {
                let owed = Firing { at: from, wall: None };
                // A run that was late already keeps its time.
                let kept = prior.and_then(|prior| prior.next_due_at).filter(|due_at| *due_at <= at);
                (from, Some((owed, kept.unwrap_or_else(|| due_anew(&owed)))))
            }
            How::Anew => (from, None),
            How::Ended => (decides_from(at), None),
        };
        let max = DateTime::<Utc>::MAX_UTC;
        Term { job, how, from, head, end: max, stands_at: None, last: max, next: None }
    }

    /// Goes to the first instant of the span that is due.
    fn begin(&mut self, (from, to): (DateTime<Utc>, DateTime<Utc>), zones: &Zones) {
        if self.how == How::Ended {
            return;
        }
        let second = TimeDelta::seconds(1);
        let latest = self.end.min(to);
        self.last = self.over_at(latest, zones).map_or(latest - second, |over_at| over_at.min(latest - second));
        let before = from - second;
        let first = match self.head {
            Some((head, _)) if head.at > before => Some(head),
            Some(_) => self.job.following(&Firing { at: before, wall: None }, None, zones),
            None => {
                let after = before.max(self.from - second);
                self.job.following(&Firing { at: after, wall: None }, None, zones)
            }
        };
        self.next = first.filter(|first| first.at <= self.last);
    }

    fn proceed(&mut self, zones: &Zones) {
        let following = self.next.and_then(|next| self.job.following(&next, None, zones));
        self.next = following.filter(|next| next.at <= self.last);
    }

    /// The last instant that the job's number of runs allows, or that it passed when its schedule was over; none = there
    /// is no such bound before `latest`.
    fn over_at(&self, latest: DateTime<Utc>, zones: &Zones) -> Option<DateTime<Utc>> {
        let job = self.job;
        match (job.next(), job.runs_left) {
            (Some(next), Some(left)) => {
                let firings = std::iter::successors(Some(next), |firing| job.following(firing, None, zones));
                firings.take_while(|firing| firing.at < latest).take(left as usize).last().map(|last| last.at)
            }
            (Some(_), None) => None,
            (None, _) if matches!(job.state, JobState::Done | JobState::Paused) => {
                job.passed.as_ref().map(|passed| passed.firing.at)
            }
            (None, _) => None,
        }
    }

    fn due(&self, at: DateTime<Utc>) -> Due {
        let job = self.job;
        let own = || job.next_due_at.filter(|_| job.next_scheduled_at == Some(at));
        let of_head = || self.head.filter(|(head, _)| head.at == at).map(|(_, due_at)| due_at);
        let due_at = own().or_else(of_head).unwrap_or_else(|| job.spec.due_at(&Firing { at, wall: None }));
        let not_passed = self.stands_at.filter(|(stands_at, _)| at >= *stands_at).map(|(_, standing)| standing);
        Due { at, due_at, generation: job.generation, not_passed }
    }
}
