//! Lives of a job in which anything may happen.

use super::*;
use crate::dispatch::{Decision, decide};
use proptest::prelude::*;

/// What may happen to a job, one after the other.
#[derive(Clone, Debug)]
enum Happening {
    Wait(i64),
    Dispatch,
    /// The next firing is sent so many seconds before it is due.
    Ahead(i64),
    Timing(usize),
    Rule(Many),
    Window(Option<u32>),
    Text(u8),
    Pause,
    Resume,
}

const TIMINGS: [&str; 5] =
    ["cron 0 * * * *", "cron 30 9,17 * * *", "every 20m from 2026-12-05T00:05", "cron */7 * * * *", "cron 0 9 * * *"];

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (0i64..20_000).prop_map(Happening::Wait),
        4 => Just(Happening::Dispatch),
        2 => (1i64..50).prop_map(Happening::Ahead),
        3 => (0..TIMINGS.len()).prop_map(Happening::Timing),
        1 => prop::sample::select(vec![Many::Latest, Many::All, Many::None]).prop_map(Happening::Rule),
        1 => prop::option::of(1u32..400).prop_map(Happening::Window),
        1 => any::<u8>().prop_map(Happening::Text),
        1 => Just(Happening::Pause),
        1 => Just(Happening::Resume),
    ]
}

/// A job in its time, and the first instant of each step by which dispatch accounted for firings.
struct Life {
    job: Job,
    now: DateTime<Utc>,
    accounted: Vec<DateTime<Utc>>,
}

impl Life {
    fn change(&mut self, change: &Change) {
        if let Ok(Changed::To(job)) = tried(&self.job, change, self.now) {
            self.job = *job;
        }
    }

    /// One step of dispatch, which goes well.
    fn dispatch(&mut self) -> bool {
        self.dispatch_as_of(self.now)
    }

    fn dispatch_as_of(&mut self, now: DateTime<Utc>) -> bool {
        let (shards, zones) = (Shards::default(), Zones::embedded());
        let Some(bucket) = self.job.due_bucket else { return false };
        let (first, to) = match decide(&self.job, bucket, now, &world(&shards, &zones), "s") {
            Decision::Fire { runs, .. } | Decision::Skip { runs, .. } => {
                (runs[0].message.scheduled_at, runs[runs.len() - 1].to.clone())
            }
            Decision::Coalesce(skip) => (skip.first.message.scheduled_at, skip.to),
            Decision::Stale => return false,
            other => panic!("{other:?}"),
        };
        self.accounted.push(first);
        self.job.advance(&to);
        true
    }

    fn happens(&mut self, happening: &Happening) {
        match happening {
            Happening::Wait(ms) => self.now += TimeDelta::milliseconds(*ms * 1_001),
            Happening::Dispatch => drop(self.dispatch()),
            Happening::Ahead(s) => {
                let due_at = self.job.next_due_at.expect("none of these timetables ends");
                self.now = self.now.max(due_at - TimeDelta::seconds(*s));
                self.dispatch_as_of(self.now.max(due_at));
            }
            Happening::Timing(n) => {
                self.change(&edit(&self.job, |spec| spec.schedule = schedule(TIMINGS[*n], "UTC", None)))
            }
            Happening::Rule(many) => self.change(&edit(&self.job, |spec| spec.missed.many = *many)),
            Happening::Window(window) => self.change(&edit(&self.job, |spec| {
                spec.spread = window.map(|window_s| Spread { key: "c-10001".into(), window_s });
            })),
            Happening::Text(n) => {
                self.change(&edit(&self.job, |spec| spec.payload = spec.payload.with_text(format!("text {n}"))))
            }
            Happening::Pause => self.change(&Change::Pause),
            Happening::Resume => self.change(&Change::Resume),
        }
    }
}

proptest! {
    #[test]
    fn what_is_owed_at_a_change_is_accounted_for_once(happenings in prop::collection::vec(happening(), 1..60)) {
        let mut life = Life { job: daily(), now: at("00:00"), accounted: Vec::new() };
        let mut owed = Vec::new();
        for happening in &happenings {
            let (before, now, was_accounted) = (life.job.clone(), life.now, life.accounted.len());
            life.happens(happening);
            let after = &life.job;
            prop_assert!(after.next_scheduled_at.is_some(), "none of these timetables ends");
            if after.version == before.version {
                continue;
            }
            prop_assert_eq!(life.accounted.len(), was_accounted);
            prop_assert_eq!(after.due_bucket.is_some(), after.state == JobState::Active);
            let next = before.next_scheduled_at.unwrap();
            if next <= now {
                prop_assert_eq!(after.next_scheduled_at, Some(next), "an owed instant stays owed");
                owed.push(next);
            } else {
                prop_assert!(after.next_scheduled_at > Some(now), "what was not owed is not made so");
            }
            let decides = after.spec.schedule != before.spec.schedule
                || after.spec.spread != before.spec.spread
                || after.spec.missed != before.spec.missed;
            prop_assert_eq!(after.generation > before.generation, decides);
            prop_assert!(after.generation >= before.generation);
            let boundary = if next <= now { next } else { whole_second(now) + TimeDelta::seconds(1) };
            for s in [-90_000, -600, -1, 0, 1, 600, 90_000] {
                let (instant, generation) = (boundary + TimeDelta::seconds(s), before.generation);
                let expected = decides && s >= 0;
                prop_assert_eq!(void(after, instant, generation), expected, "{} s from the boundary", s);
                prop_assert!(!void(after, instant, after.generation));
            }
            let ahead: Vec<_> = life.accounted.iter().copied().filter(|one| *one > now).collect();
            prop_assert!(ahead.len() <= 1);
            if decides {
                if after.spec.schedule == before.spec.schedule && !ahead.is_empty() {
                    prop_assert_eq!(after.next_scheduled_at, ahead.first().copied(), "the job comes to it again");
                }
                life.accounted.retain(|one| *one <= now);
            }
        }
        life.change(&Change::Resume);
        life.now = life.now.max(life.job.next_due_at.unwrap());
        while life.dispatch() {}
        let strictly_later = life.accounted.windows(2).all(|two| two[0] < two[1]);
        prop_assert!(strictly_later, "no instant is accounted for twice: {:?}", life.accounted);
        for instant in owed {
            let times = life.accounted.iter().filter(|one| **one == instant).count();
            prop_assert_eq!(times, 1, "{} was owed", instant);
        }
    }
}
