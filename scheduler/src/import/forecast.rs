//! What jobs come to in the next 24 hours, before they are made: how many runs fall due in each minute, and where a target's
//! limit lets through less.
//!
//! Decides which minutes are too full, how long they take, and whether a spread window would help. Jobs come one after the
//! other and none is kept: a forecast grows with the targets that have a limit, not with jobs. Never reads a clock or asks a
//! store; jobs that are there already are in it if they are told to it.

mod show;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::job::JobSpec;
use punctual_core::payload::Handler;
use punctual_core::priority::Priority;
use punctual_core::schedule::{Schedule, Timing};
use punctual_core::spread::Spread;
use punctual_core::target::Target;
use punctual_core::zone::Zones;
use std::collections::{BTreeMap, HashMap};

/// How many minutes a forecast has.
pub const MINUTES: usize = 1_440;
/// Spread windows that are suggested, in minutes.
pub const WINDOWS_MIN: [u32; 5] = [5, 10, 15, 30, 60];
/// Firings that are kept for schedules that come again, 8 bytes each; above that the memo starts anew.
const MOST_KEPT: usize = 1_000_000;
/// What a schedule takes besides its firings.
const BESIDE_FIRINGS: usize = 16;

/// How many calls a second a target takes; none = any number.
type LimitOf<'a> = dyn Fn(&Target) -> Option<u32> + 'a;

/// Runs that fall due, by minute.
pub struct Forecast<'a> {
    now: DateTime<Utc>,
    /// The first minute.
    from: DateTime<Utc>,
    limit_of: Box<LimitOf<'a>>,
    jobs: u64,
    /// Jobs that are there already.
    there: u64,
    all: Vec<u64>,
    limited: BTreeMap<Target, Series>,
    /// By handler.
    unlimited: BTreeMap<&'static str, u64>,
    memo: Memo,
}

/// What is counted of a job.
#[derive(Clone, Debug)]
pub struct Counted<'a> {
    /// When it fires.
    pub schedule: &'a Schedule,
    /// Over which window.
    pub spread: Option<&'a Spread>,
    /// How soon its runs must start.
    pub priority: Priority,
    /// Whom they call.
    pub target: Target,
    /// By which handler.
    pub handler: Handler,
    /// Where it stands; none = it begins with what comes first from now on.
    pub next: Option<DateTime<Utc>>,
}

impl<'a> From<&'a JobSpec> for Counted<'a> {
    fn from(spec: &'a JobSpec) -> Self {
        Counted {
            schedule: &spec.schedule,
            spread: spec.spread.as_ref(),
            priority: spec.priority,
            target: spec.payload.target(),
            handler: spec.payload.handler(),
            next: None,
        }
    }
}

/// What falls due for one target.
struct Series {
    limit_per_s: u32,
    due: Vec<u64>,
    /// What of it could be spread over each of [`WINDOWS_MIN`].
    movable: [Vec<u64>; WINDOWS_MIN.len()],
}

/// Minutes in which more falls due than a target's limit lets through, up to the one in which all of it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peak {
    /// The target.
    pub target: Target,
    /// Its limit.
    pub limit_per_s: u32,
    /// The minute in which most falls due.
    pub at: DateTime<Utc>,
    /// How many fall due in that minute.
    pub due: u64,
    /// The first minute that holds too many.
    pub begins_at: DateTime<Utc>,
    /// How many fall due from then until all are sent.
    pub total: u64,
    /// How many seconds that takes, from the first minute on.
    pub takes_s: u64,
    /// What would help.
    pub advice: Advice,
}

/// What would help against a peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// To spread its jobs over so many minutes: the smallest window at whose end nothing waits any more.
    Spread(u32),
    /// To move jobs to other times: no window that fits between their firings is enough.
    Move,
    /// Neither: most of its jobs are urgent, are spread already, or fire too often.
    Nothing,
}

impl<'a> Forecast<'a> {
    /// The 24 hours from the next full minute on. `limit_of` says how many calls a second a target takes; none = any number.
    pub fn new(now: DateTime<Utc>, limit_of: impl Fn(&Target) -> Option<u32> + 'a) -> Self {
        let minutes = (now.timestamp() + i64::from(now.timestamp_subsec_nanos() > 0) + 59).div_euclid(60);
        Forecast {
            now,
            from: DateTime::from_timestamp(minutes * 60, 0).expect("a minute later is a time as well"),
            limit_of: Box::new(limit_of),
            jobs: 0,
            there: 0,
            all: vec![0; MINUTES],
            limited: BTreeMap::new(),
            unlimited: BTreeMap::new(),
            memo: Memo::default(),
        }
    }

    /// Counts a job that is made now. What is due before the first minute counts in it.
    pub fn add(&mut self, spec: &JobSpec, zones: &Zones) {
        self.jobs += 1;
        self.count(spec.into(), zones);
    }

    /// Counts a job that is there already, from now on.
    pub fn add_there(&mut self, job: Counted<'_>, zones: &Zones) {
        self.there += 1;
        self.count(job, zones);
    }

    fn count(&mut self, job: Counted<'_>, zones: &Zones) {
        let Counted { schedule, spread, priority, target, handler, next } = job;
        let series = match self.limited.get_mut(&target) {
            Some(series) => Some(series),
            None => (self.limit_of)(&target)
                .map(|limit_per_s| self.limited.entry(target).or_insert_with(|| Series::new(limit_per_s))),
        };
        let offset_s = spread.map_or(0, |spread| spread.offset().num_seconds());
        let is_movable = spread.is_none() && priority != Priority::Urgent;
        let until = self.from + TimeDelta::minutes(MINUTES as i64);
        let firings = match next.filter(|next| *next < self.now) {
            // What it owes, or what its window moves beyond now.
            Some(next) => &Firings::of(schedule, next - TimeDelta::seconds(1), until, zones),
            None => self.memo.firings(schedule, self.now, until, zones),
        };
        let minute = |at: &i64| usize::try_from((at + offset_s - self.from.timestamp()).div_euclid(60)).unwrap_or(0);
        let minutes = firings.at.iter().map(minute).filter(|minute| *minute < MINUTES);
        let Some(series) = series else {
            let due = self.unlimited.entry(handler.as_str()).or_default();
            minutes.for_each(|minute| {
                self.all[minute] += 1;
                *due += 1;
            });
            return;
        };
        let fits =
            |window_min: u32| firings.shortest_s.is_none_or(|shortest_s| i64::from(window_min) * 60 <= shortest_s);
        let windows = if is_movable { WINDOWS_MIN.iter().take_while(|window| fits(**window)).count() } else { 0 };
        for minute in minutes {
            self.all[minute] += 1;
            series.due[minute] += 1;
            series.movable[..windows].iter_mut().for_each(|movable| movable[minute] += 1);
        }
    }

    /// The peaks of all targets, those that take longest first.
    pub fn peaks(&self) -> Vec<Peak> {
        let peaks = self.limited.iter().flat_map(|(target, series)| {
            series.jams().into_iter().map(|jam| Peak {
                target: target.clone(),
                limit_per_s: series.limit_per_s,
                at: self.minute(jam.worst),
                due: series.due[jam.worst],
                begins_at: self.minute(jam.first),
                total: jam.total,
                takes_s: jam.takes_s,
                advice: series.advice(&jam),
            })
        });
        let mut peaks: Vec<Peak> = peaks.collect();
        peaks.sort_by_key(|peak| std::cmp::Reverse(peak.takes_s));
        peaks
    }

    fn minute(&self, minute: usize) -> DateTime<Utc> {
        self.from + TimeDelta::minutes(minute as i64)
    }
}

/// Consecutive minutes, by number, in which something waits.
struct Jam {
    first: usize,
    last: usize,
    worst: usize,
    total: u64,
    takes_s: u64,
}

impl Series {
    fn new(limit_per_s: u32) -> Self {
        let none = || vec![0; MINUTES];
        // A target that takes nothing would take for ever.
        Series { limit_per_s: limit_per_s.max(1), due: none(), movable: std::array::from_fn(|_| none()) }
    }

    fn a_minute(&self) -> u64 {
        u64::from(self.limit_per_s) * 60
    }

    fn jams(&self) -> Vec<Jam> {
        let (mut jams, mut backlog) = (Vec::new(), 0);
        let mut open: Option<Jam> = None;
        for (minute, due) in self.due.iter().enumerate() {
            let waiting = backlog + due;
            backlog = waiting.saturating_sub(self.a_minute());
            if open.is_none() && backlog == 0 {
                continue;
            }
            let jam = open.get_or_insert(Jam { first: minute, last: minute, worst: minute, total: 0, takes_s: 0 });
            jam.last = minute;
            jam.total += due;
            if *due > self.due[jam.worst] {
                jam.worst = minute;
            }
            jam.takes_s = (minute - jam.first) as u64 * 60 + waiting.div_ceil(u64::from(self.limit_per_s));
            if backlog == 0 {
                jams.extend(open.take());
            }
        }
        jams.extend(open);
        jams
    }

    /// A window is worth a word where most of what falls due in the worst minute can be spread over it.
    fn advice(&self, jam: &Jam) -> Advice {
        let is_most = |movable: &Vec<u64>| movable[jam.worst] * 2 >= self.due[jam.worst];
        let mut windows = WINDOWS_MIN.iter().zip(&self.movable).filter(|(_, movable)| is_most(movable)).peekable();
        if windows.peek().is_none() {
            return Advice::Nothing;
        }
        let enough = windows.find(|(window_min, movable)| self.is_sent_within(jam, **window_min as usize, movable));
        enough.map_or(Advice::Move, |(window_min, _)| Advice::Spread(*window_min))
    }

    /// Whether nothing waits when the window behind the worst minute ends, if all of the jam that can be is spread evenly
    /// over windows of that length.
    fn is_sent_within(&self, jam: &Jam, window_min: usize, movable: &[u64]) -> bool {
        let end = (jam.worst + window_min).min(MINUTES);
        let mut backlog = 0.0_f64;
        for minute in jam.first..end {
            let from = (minute + 1).saturating_sub(window_min).max(jam.first);
            let spread: u64 = movable[from..=minute.min(jam.last)].iter().sum();
            let stays = self.due[minute] - if minute <= jam.last { movable[minute] } else { 0 };
            let waiting = backlog + stays as f64 + spread as f64 / window_min as f64;
            backlog = (waiting - self.a_minute() as f64).max(0.0);
        }
        backlog < 1.0
    }
}

/// The firings of a schedule within the forecast.
#[derive(Default)]
struct Firings {
    at: Vec<i64>,
    shortest_s: Option<i64>,
}

impl Firings {
    fn of(schedule: &Schedule, now: DateTime<Utc>, until: DateTime<Utc>, zones: &Zones) -> Self {
        let first = schedule.first(now, zones);
        let all = std::iter::successors(first, |firing| schedule.next_firing(firing, zones));
        let most = schedule.max_runs.map_or(usize::MAX, |most| most as usize);
        let at = all.take(most).take_while(|firing| firing.at < until).map(|firing| firing.at.timestamp()).collect();
        Firings { at, shortest_s: schedule.shortest_interval_s() }
    }
}

/// The firings of cron schedules that were seen: a million jobs have a few thousand. Those of others are quickly worked out.
#[derive(Default)]
struct Memo {
    known: HashMap<String, Firings>,
    kept: usize,
    last: Firings,
}

impl Memo {
    fn firings(&mut self, schedule: &Schedule, now: DateTime<Utc>, until: DateTime<Utc>, zones: &Zones) -> &Firings {
        if !matches!(schedule.timing, Timing::Cron(_)) {
            self.last = Firings::of(schedule, now, until, zones);
            return &self.last;
        }
        if self.kept > MOST_KEPT {
            self.known.clear();
            self.kept = 0;
        }
        let kept = &mut self.kept;
        self.known.entry(schedule.to_string()).or_insert_with(|| {
            let firings = Firings::of(schedule, now, until, zones);
            *kept += firings.at.len() + BESIDE_FIRINGS;
            firings
        })
    }
}

#[cfg(test)]
mod tests;
