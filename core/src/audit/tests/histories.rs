//! Random histories of a job, held against a reference that knows only seconds and lists.

use super::*;
use crate::dispatch::{Coalesce, Decision, after_skip, decide};
use crate::missed::Many;
use crate::schedule::Timing;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::collections::btree_map::Entry;

const GRACE_S: i64 = 300;

/// A schedule that can be told from the second alone.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Every {
    /// Seconds, counted from the anchor.
    Interval(i64, i64),
    /// Minutes that the number divides.
    Minutes(i64),
    Once(i64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Plan {
    every: Every,
    max_runs: Option<u32>,
}

impl Plan {
    fn fires(&self, second: i64) -> bool {
        match self.every {
            Every::Interval(interval, anchor) => second >= anchor && (second - anchor) % interval == 0,
            Every::Minutes(minutes) => second % 60 == 0 && (second / 60 % 60) % minutes == 0,
            Every::Once(at) => second == at,
        }
    }

    fn schedule(&self) -> Schedule {
        let timing = match self.every {
            Every::Interval(interval_s, anchor) => Timing::Every { interval_s, anchor: from_s(anchor) },
            Every::Minutes(minutes) => schedule(&format!("cron */{minutes} * * * *")).timing,
            Every::Once(second) => Timing::At(from_s(second)),
        };
        Schedule { max_runs: self.max_runs, ..Schedule::utc(timing) }
    }
}

/// Seconds since the beginning of the history.
fn from_s(second: i64) -> DateTime<Utc> {
    at("00:00") + TimeDelta::seconds(second)
}

fn second(instant: DateTime<Utc>) -> i64 {
    (instant - at("00:00")).num_seconds()
}

/// What happens, each after a wait.
#[derive(Clone, Debug)]
enum Act {
    /// Dispatch performs so many runs of its decision, early if it can, and dies before the advance if told so.
    Dispatch {
        runs: usize,
        ahead: bool,
        dies: bool,
    },
    Reschedule(Plan),
    Reprioritise,
    Reword,
    Pause,
    Resume,
    Quarantine,
    Release,
    Cancel,
    Recreate(Plan),
}

/// The reference: what is due, second by second.
struct Lists {
    plan: Plan,
    /// Firings that are left behind those below; none = no bound.
    left: Option<u32>,
    /// Up to where firings were looked for.
    seen: i64,
    /// From where on the timetable decides behind an instant that was owed.
    decided_at: i64,
    /// Nothing more comes.
    is_over: bool,
    /// Due and not dispatched, in order.
    owed: Vec<i64>,
    /// Dispatched.
    passed: BTreeSet<i64>,
    /// Ended by a cancel before dispatch.
    cancelled: BTreeSet<i64>,
    /// Cancelled after dispatch, by which generation, and whether that still counts.
    void: BTreeMap<i64, (u64, bool)>,
    /// Skipped, behind the first of a range, by the timetable in force.
    covered: BTreeSet<i64>,
    /// Due later than nominally.
    late: BTreeMap<i64, i64>,
}

impl Lists {
    fn begin(plan: Plan, now: DateTime<Utc>) -> Self {
        let mut lists = Lists {
            plan,
            left: None,
            seen: i64::MIN,
            decided_at: i64::MIN,
            is_over: true,
            owed: Vec::new(),
            passed: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            void: BTreeMap::new(),
            covered: BTreeSet::new(),
            late: BTreeMap::new(),
        };
        lists.begin_life(plan, now);
        lists
    }

    fn begin_life(&mut self, plan: Plan, now: DateTime<Utc>) {
        let s = second(now);
        self.passed.retain(|passed| *passed <= s);
        (self.plan, self.left, self.is_over) = (plan, plan.max_runs, false);
        (self.seen, self.decided_at) = (s, i64::MIN);
        let first = match plan.every {
            Every::Once(at) => Some(at).filter(|at| *at <= s),
            Every::Interval(_, anchor) => Some(anchor).filter(|anchor| from_s(*anchor) == now),
            Every::Minutes(_) => None,
        };
        if let Some(first) = first {
            self.passed.remove(&first);
            self.cancelled.remove(&first);
            self.covered.remove(&first);
            self.void.entry(first).and_modify(|(_, counts)| *counts = false);
            self.late.insert(first, s);
            self.owe(first);
        }
    }

    /// Finds what fell due up to `now`.
    fn tick(&mut self, now: DateTime<Utc>) {
        for s in self.seen + 1..=second(now) {
            if !self.is_over && self.left != Some(0) && self.plan.fires(s) && !self.passed.contains(&s) {
                self.owe(s);
            }
        }
        self.seen = second(now);
    }

    fn owe(&mut self, s: i64) {
        self.owed.push(s);
        self.left = self.left.map(|left| left - 1);
    }

    /// Dispatch is done with this instant.
    fn pass(&mut self, s: i64) {
        if self.owed.first() == Some(&s) {
            self.owed.remove(0);
        } else {
            assert!(self.owed.is_empty() && s > self.seen && self.plan.fires(s) && !self.is_over, "{s} is not next");
            self.left = self.left.map(|left| left - 1);
        }
        self.passed.insert(s);
        let none_comes = self.left == Some(0) || matches!(self.plan.every, Every::Once(at) if at <= self.seen.max(s));
        self.is_over |= none_comes && self.owed.is_empty();
    }

    /// A change that decides anew.
    fn decide_anew(&mut self, plan: Plan, now: DateTime<Utc>) {
        let (s, old) = (second(now), std::mem::replace(&mut self.plan, plan));
        self.covered.retain(|covered| !self.owed.contains(covered));
        let ahead = self.passed.split_off(&(s + 1)).len() as u32;
        let is_new_series = plan.max_runs != old.max_runs || (self.is_over && ahead == 0);
        let (owed, kept) = (self.owed.len() as u32, self.owed.len().min(1) as u32);
        self.left = match self.left {
            _ if is_new_series => plan.max_runs.map(|left| left - kept),
            left if plan != old => left.map(|left| left + ahead + owed - kept),
            left => left.map(|left| left + ahead),
        };
        self.is_over = false;
        if plan != old && owed > 0 {
            self.owed.truncate(1);
            if owed == 1 {
                self.decided_at = s;
            }
            self.seen = self.owed[0].max(self.decided_at);
            self.tick(now);
        }
    }

    fn cancel(&mut self, now: DateTime<Utc>, generation: u64) {
        self.passed.retain(|passed| *passed <= second(now));
        self.cancelled.extend(self.owed.drain(..));
        let counts = |void: &BTreeMap<i64, (u64, bool)>, s: &i64| void.get(s).is_some_and(|(_, counts)| *counts);
        for s in &self.passed {
            if !counts(&self.void, s) {
                self.void.insert(*s, (generation, true));
            }
        }
        self.is_over = true;
    }

    fn due(&self) -> BTreeSet<i64> {
        self.passed.iter().chain(&self.owed).chain(&self.cancelled).copied().filter(|s| *s <= self.seen).collect()
    }
}

/// A history that goes on in the lists and in the rules at once.
struct History {
    log: Log,
    lists: Lists,
    now: DateTime<Utc>,
    /// Rows that dispatch wrote.
    rows: BTreeMap<RunKey, RunRow>,
    /// What was sent, whether or not the job was advanced.
    sent: BTreeSet<i64>,
    resumed_at: Option<DateTime<Utc>>,
}

impl History {
    fn begin(plan: Plan, many: Many) -> Self {
        let now = from_s(0) + TimeDelta::milliseconds(500);
        let missed = MissedRule { many, ..MissedRule::default() };
        let log = Log::begin(JobSpec { missed, ..spec(plan.schedule()) }, now);
        let (lists, rows, sent) = (Lists::begin(plan, now), BTreeMap::new(), BTreeSet::new());
        History { log, lists, now, rows, sent, resumed_at: None }
    }

    fn act(&mut self, wait_ms: i64, act: &Act) {
        self.now += TimeDelta::milliseconds(wait_ms);
        self.lists.tick(self.now);
        let (now, spec) = (self.now, self.log.job.spec.clone());
        match act {
            Act::Dispatch { runs, ahead, dies } => self.dispatch(*runs, *ahead, *dies),
            Act::Reschedule(plan) => self.edit(JobSpec { schedule: plan.schedule(), ..spec }, *plan),
            Act::Reprioritise => {
                let other = if spec.priority == Priority::Bulk { Priority::Normal } else { Priority::Bulk };
                self.edit(JobSpec { priority: other, ..spec }, self.lists.plan);
            }
            Act::Reword => {
                let payload = spec.payload.with_text(format!("Your bill of {}", now.timestamp()));
                self.edit(JobSpec { payload, ..spec }, self.lists.plan);
            }
            Act::Pause => drop(self.log.change(&Change::Pause, now)),
            Act::Resume => self.end_pause(&Change::Resume),
            Act::Release => drop(self.log.change(&Change::Release, now)),
            Act::Quarantine if self.log.job.state == JobState::Active => {
                (self.log.job.state, self.log.job.due_bucket) = (JobState::Quarantined, None);
            }
            Act::Quarantine => {}
            Act::Cancel => {
                if self.log.job.state != JobState::Cancelled {
                    self.end_pause(&Change::Cancel);
                    self.lists.cancel(now, self.log.job.generation);
                }
            }
            Act::Recreate(plan) => {
                let again = JobSpec { schedule: plan.schedule(), ..spec };
                if self.log.change(&Change::Recreate(Box::new(again)), now) {
                    self.lists.begin_life(*plan, now);
                }
            }
        }
        let comes = self.log.job.next_scheduled_at.map(second).filter(|next| *next <= self.lists.seen);
        assert_eq!(comes, self.lists.owed.first().copied(), "the lists know what the job comes to");
    }

    fn edit(&mut self, spec: JobSpec, plan: Plan) {
        let before = self.log.job.generation;
        let is_changed = self.log.change(&Change::Edit(Box::new(spec)), self.now);
        if is_changed && self.log.job.generation != before {
            self.lists.decide_anew(plan, self.now);
        }
    }

    fn end_pause(&mut self, change: &Change) {
        let was_paused = self.log.job.state == JobState::Paused;
        if self.log.change(change, self.now) && was_paused {
            self.resumed_at = Some(self.now);
        }
    }

    fn dispatch(&mut self, most: usize, ahead: bool, dies: bool) {
        let job = self.log.job.clone();
        let (JobState::Active, Some(bucket), Some(next)) = (job.state, job.due_bucket, job.next_scheduled_at) else {
            return;
        };
        let is_soon = ahead && next > self.now && next - self.now <= TimeDelta::seconds(50);
        let when = if is_soon { next } else { self.now };
        let (to, until) = match decide(&job, bucket, when, &self.log.world(), "s1") {
            Decision::Fire { runs, .. } => {
                let runs = &runs[..runs.len().min(most)];
                self.sent.extend(runs.iter().map(|run| second(run.message.scheduled_at)));
                let last = &runs[runs.len() - 1];
                (last.to.clone(), last.message.scheduled_at)
            }
            Decision::Skip { reason, runs, .. } => {
                assert_eq!(runs.len(), 1, "none is too late to start");
                let at = runs[0].message.scheduled_at;
                self.skip(at, reason, None);
                (runs[0].to.clone(), at)
            }
            Decision::Coalesce(skip) => self.coalesce(&job, *skip),
            Decision::Stale => return,
            other => panic!("{other:?}"),
        };
        if dies {
            return;
        }
        self.log.job.advance(&to);
        let until = second(until);
        let owed: Vec<i64> = self.lists.owed.iter().copied().take_while(|owed| *owed <= until).collect();
        match owed.last() {
            Some(last) => assert_eq!(*last, until, "dispatch passes what is owed"),
            None => self.lists.pass(until),
        }
        owed.into_iter().for_each(|owed| self.lists.pass(owed));
    }

    /// Writes the row of a range, or goes by the one that is there.
    fn coalesce(&mut self, job: &Job, skip: Coalesce) -> (crate::job::Advanced, DateTime<Utc>) {
        let at = skip.first.message.scheduled_at;
        match self.rows.get(&RunKey::scheduled(at)) {
            None => {
                self.skip(at, skip.reason, Some(skip.range));
                let covered = self.lists.owed.iter().copied().filter(|owed| *owed <= second(skip.range.to)).skip(1);
                self.lists.covered.extend(covered);
                (skip.to, skip.range.to)
            }
            Some(RunRow { range: Some(range), generation, .. }) if *generation == job.generation => {
                (after_skip(job, *range, self.now, &self.log.world()), range.to)
            }
            Some(_) => (skip.first.to, at),
        }
    }

    fn skip(&mut self, at: DateTime<Utc>, reason: SkipReason, range: Option<SkippedRange>) {
        let key = RunKey::scheduled(at);
        let row =
            RunRow { range, reason: Some(reason), ..row(key.clone(), RunStatus::Skipped, self.log.job.generation) };
        self.rows.entry(key).or_insert(row);
    }

    /// Lets workers write rows of what was sent, as `choices` say; returns how many stand beside what was due.
    fn work(&mut self, choices: &[u8]) -> u64 {
        let (due, mut beside) = (self.lists.due(), 0);
        let present = self.log.job.generation;
        for (s, choice) in self.sent.iter().filter(|s| **s <= self.lists.seen).zip(choices.iter().cycle()) {
            let key = RunKey::scheduled(from_s(*s));
            let ended = |status| row(key.clone(), status, present);
            let void = |reason, void_gen| RunRow {
                reason: Some(reason),
                void_gen: Some(void_gen),
                ..ended(RunStatus::Skipped)
            };
            let row = match (choice % 4, self.lists.void.get(s)) {
                (0, _) => continue,
                (1, _) => ended(RunStatus::Succeeded),
                (2, _) => ended(RunStatus::Dead),
                (_, Some((void_gen, _))) => void(SkipReason::Cancelled, *void_gen),
                (_, None) => void(SkipReason::Superseded, present),
            };
            if let Entry::Vacant(place) = self.rows.entry(key.clone()) {
                beside += u64::from(!due.contains(s) && row.status != RunStatus::Skipped);
                place.insert(row);
            }
        }
        beside
    }

    fn expected(&self, s: i64) -> String {
        let (lists, state) = (&self.lists, self.log.job.state);
        let own = self.rows.get(&RunKey::scheduled(from_s(s)));
        let has_ended = |row: &&RunRow| match row.reason {
            Some(SkipReason::Superseded) => false,
            Some(SkipReason::Cancelled) => lists.void[&s].1,
            _ => true,
        };
        if let Some(row) = own.filter(has_ended) {
            let reason = row.reason.map_or(String::new(), |reason| format!(" {}", reason.as_str()));
            return format!("{}{reason}", row.status.as_str());
        }
        let due_at = from_s(lists.late.get(&s).copied().unwrap_or(s));
        let waits_since = self.resumed_at.map_or(due_at, |resumed_at| due_at.max(resumed_at));
        let word = match state {
            _ if lists.covered.contains(&s) => "skipped missed",
            _ if lists.cancelled.contains(&s) => "cancelled",
            JobState::Paused => "paused",
            JobState::Active if lists.owed.contains(&s) => "not_dispatched",
            JobState::Quarantined if lists.owed.contains(&s) => "quarantined",
            _ if self.now - waits_since <= TimeDelta::seconds(GRACE_S) => "queued",
            _ => "missing",
        };
        word.to_owned()
    }

    fn asked<'a>(&'a self, versions: &'a [Version<'a>], from: i64, to: i64) -> Inquiry<'a> {
        let grace = Duration::from_secs(GRACE_S as u64);
        Inquiry { from: from_s(from), to: from_s(to), grace, ..self.log.inquiry(versions, self.now) }
    }
}

fn plans() -> impl Strategy<Value = Plan> {
    let every = prop_oneof![
        3 => (prop::sample::select(vec![60, 90, 150, 400]), -500i64..2_500).prop_map(|(n, at)| Every::Interval(n, at)),
        3 => prop::sample::select(vec![1, 2, 5, 7]).prop_map(Every::Minutes),
        1 => (-300i64..3_000).prop_map(Every::Once),
    ];
    let max_runs = prop_oneof![2 => Just(None), 1 => (1u32..6).prop_map(Some)];
    (every, max_runs).prop_map(|(every, max_runs)| {
        // An `at` fires once, bounded or not.
        let max_runs = max_runs.filter(|_| !matches!(every, Every::Once(_)));
        Plan { every, max_runs }
    })
}

fn acts() -> impl Strategy<Value = Act> {
    let dispatch = (1usize..4, any::<bool>(), prop::bool::weighted(0.15));
    prop_oneof![
        10 => dispatch.prop_map(|(runs, ahead, dies)| Act::Dispatch { runs, ahead, dies }),
        3 => plans().prop_map(Act::Reschedule),
        2 => Just(Act::Reprioritise),
        1 => Just(Act::Reword),
        1 => Just(Act::Pause),
        2 => Just(Act::Resume),
        1 => Just(Act::Quarantine),
        1 => Just(Act::Release),
        1 => Just(Act::Cancel),
        3 => plans().prop_map(Act::Recreate),
    ]
}

proptest! {
    #[test]
    fn whatever_people_and_dispatch_do_each_due_instant_is_told_as_lists_of_seconds_tell_it(
        plan in plans(),
        many in prop::sample::select(vec![Many::All, Many::Latest, Many::None]),
        acts in prop::collection::vec((prop_oneof![0i64..5_000, 0i64..250_000], acts()), 1..30),
        choices in prop::collection::vec(any::<u8>(), 1..40),
        part in (-400i64..4_000, 0i64..4_000),
        known in 0usize..30,
    ) {
        let mut history = History::begin(plan, many);
        for (wait_ms, act) in &acts {
            history.act(*wait_ms, act);
        }
        let beside = history.work(&choices);
        let rows: Vec<RunRow> = history.rows.values().cloned().collect();
        let expected: Vec<(i64, String)> = history.lists.due().iter().map(|s| (*s, history.expected(*s))).collect();
        let told = |instants: &[Instant]| -> Vec<(i64, String)> {
            instants.iter().map(|one| (second(one.scheduled_at), word(&one.standing))).collect()
        };
        let versions = history.log.versions();
        let (instants, summary) = audit(history.asked(&versions, -1_000, 100_000), &rows);
        prop_assert_eq!(told(&instants), expected.clone());
        prop_assert_eq!(summary.beside, beside);
        // A part of the time.
        let within = |s: i64| part.0 <= s && s < part.0 + part.1;
        let (instants, _) = audit(history.asked(&versions, part.0, part.0 + part.1), &rows);
        let of_part: Vec<_> = expected.iter().filter(|(s, _)| within(*s)).cloned().collect();
        prop_assert_eq!(told(&instants), of_part);
        // Two parts, one after the other, are the whole.
        let (mut told_in_parts, mut sum, mut covers) = (Vec::new(), Summary::default(), Covers::default());
        for (from, to) in [(-1_000, part.0), (part.0, part.0 + part.1), (part.0 + part.1, 100_000)] {
            let mut auditor = Auditor::after(covers, history.asked(&versions, from, to));
            let mut tell = |instant: &Instant| told_in_parts.push(*instant);
            let at = |row: &&RunRow| row.id.run_key.instant().map_or(0, second);
            rows.iter().filter(|row| from <= at(row) && at(row) <= to).for_each(|row| auditor.row(row, &mut tell));
            let (of_part, left) = auditor.finish_part(&mut tell);
            sum.add(&of_part);
            covers = left;
        }
        prop_assert_eq!(told(&told_in_parts), expected.clone());
        prop_assert_eq!(&sum, &summary);
        // The first versions are forgotten.
        let known = &versions[known.min(versions.len() - 1)..];
        let asked = history.asked(known, -1_000, 100_000);
        let from = second(Auditor::new(asked).from());
        let of_known: Vec<i64> = expected.iter().map(|(s, _)| *s).filter(|s| *s >= from).collect();
        let instants: Vec<i64> = audit(asked, &rows).0.iter().map(|one| second(one.scheduled_at)).collect();
        prop_assert_eq!(instants, of_known);
    }
}
