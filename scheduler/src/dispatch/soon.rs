//! What one shard holds of the near future, and what is to be done with it next. Pure: `now` is an argument.
//!
//! The index is read once for each stretch of the near future, and what is due there is kept in memory. A light second is
//! sent at its instant. A heavy one, more than the shard can send in a second, is sent early and kept back by the queue,
//! so that it appears on time and the seconds before it carry the burst. Nothing kept here is advanced: a copy that dies
//! loses nothing.

use super::READ_AHEAD_EVERY;
use super::fire::Firing;
use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::due::Minute;
use punctual_core::ports::{DueSpan, PageToken};
use punctual_core::schedule::whole_second;
use std::collections::BTreeMap;
use std::time::Duration;

/// Runs that one shard keeps at most: 24 shards of a copy keep 24 MB at worst.
const MOST_KEPT: usize = 1_000;
/// Runs that are sent in one step.
pub(super) const STEP: usize = 200;
/// The near future is read on when it is shorter than it should be by this.
const READ_EVERY: TimeDelta = TimeDelta::seconds(READ_AHEAD_EVERY.as_secs() as i64);
/// What could not be sent within this is left to the passes: they read its job again, so that what became of it counts.
const STALE_AFTER: TimeDelta = TimeDelta::seconds(5);

/// What is to be done next.
pub(super) enum Step {
    /// Send these now: they are due.
    Send(Vec<Firing>),
    /// Send these now, to appear after this delay.
    SendEarly(Vec<Firing>, Duration),
    /// Read on in the index.
    Read(Reading),
    /// Nothing until then.
    Wait(Duration),
}

/// A part of the index to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) minute: Minute,
    pub(super) span: DueSpan,
    pub(super) after: Option<PageToken>,
}

/// The near future of one shard.
pub(super) struct NearFuture {
    length: TimeDelta,
    kept: BTreeMap<DateTime<Utc>, Vec<Firing>>,
    count: usize,
    /// Everything due up to here was read.
    read_until: Option<DateTime<Utc>>,
    /// A stretch that was read in part.
    in_part: Option<Reading>,
    light: usize,
    rate: Rate,
}

impl NearFuture {
    /// An empty one that will reach so far ahead; a second with more than `light` runs will go out early.
    pub(super) fn new(length: Duration, light: usize) -> Self {
        NearFuture {
            length: TimeDelta::from_std(length).unwrap_or_default(),
            kept: BTreeMap::new(),
            count: 0,
            read_until: None,
            in_part: None,
            light,
            rate: Rate::default(),
        }
    }

    /// Forgets everything: somebody else may have the shard.
    pub(super) fn clear(&mut self) {
        (self.kept, self.count, self.read_until, self.in_part) = (BTreeMap::new(), 0, None, None);
    }

    /// What to do at `now`: what is due first, then what must be known in time, then what takes long.
    pub(super) fn step(&mut self, now: DateTime<Utc>) -> Step {
        self.drop_stale(now);
        if let Some(due_at) = self.kept.first_key_value().map(|(due_at, _)| *due_at).filter(|due_at| *due_at <= now) {
            return Step::Send(self.take(due_at));
        }
        if let Some(reading) = self.reading(now) {
            return Step::Read(reading);
        }
        if let Some(due_at) = self.heavy() {
            // Rounded up: never visible before it is due.
            let left = (due_at - now).to_std().unwrap_or_default();
            let delay_s = left.as_secs() + u64::from(left.subsec_nanos() > 0);
            return Step::SendEarly(self.take(due_at), Duration::from_secs(delay_s));
        }
        let next_due = self.kept.first_key_value().map(|(due_at, _)| *due_at - now);
        let next_read = self.read_until.map(|until| until - now - self.length + self.read_every());
        let wait = next_due.into_iter().chain(next_read.filter(|wait| *wait > TimeDelta::zero())).min();
        // Timers count milliseconds: for less than one nothing would pass.
        Step::Wait(wait.unwrap_or(READ_EVERY).max(TimeDelta::milliseconds(1)).to_std().unwrap_or_default())
    }

    /// The second to be sent early: one that the shard cannot send in a second, or, when there is no room for more, the
    /// fullest one.
    fn heavy(&self) -> Option<DateTime<Utc>> {
        let light = self.rate.per_second().min(self.light);
        let too_much = self.kept.iter().find(|(_, of_second)| of_second.len() > light);
        let fullest = || self.kept.iter().max_by_key(|(_, of_second)| of_second.len());
        let heavy = if self.is_full() { too_much.or_else(fullest) } else { too_much };
        heavy.map(|(due_at, _)| *due_at)
    }

    /// A short future is read on more often: it would be over before.
    fn read_every(&self) -> TimeDelta {
        READ_EVERY.min(self.length / 2)
    }

    fn is_full(&self) -> bool {
        self.count >= MOST_KEPT
    }

    /// Notes what `reading` showed, and where its next page begins.
    pub(super) fn read(&mut self, reading: Reading, shown: Vec<Firing>, next: Option<PageToken>) {
        self.count += shown.len();
        for firing in shown {
            self.kept.entry(firing.message.due_at).or_default().push(firing);
        }
        match next {
            None => {
                self.read_until = Some(reading.span.until);
                self.in_part = None;
            }
            after => self.in_part = Some(Reading { after, ..reading }),
        }
    }

    /// Notes how long it took to send so many.
    pub(super) fn sent(&mut self, runs: usize, took: Duration) {
        self.rate.note(runs, took);
    }

    fn take(&mut self, due_at: DateTime<Utc>) -> Vec<Firing> {
        let Some(of_second) = self.kept.get_mut(&due_at) else { return Vec::new() };
        let taken = of_second.split_off(of_second.len().saturating_sub(STEP));
        if of_second.is_empty() {
            self.kept.remove(&due_at);
        }
        self.count -= taken.len();
        taken
    }

    fn drop_stale(&mut self, now: DateTime<Utc>) {
        while let Some(oldest) = self.kept.first_entry().filter(|oldest| now - *oldest.key() > STALE_AFTER) {
            self.count -= oldest.remove().len();
        }
    }

    /// The next part of the index to be read, if there is room for it and it is time.
    fn reading(&mut self, now: DateTime<Utc>) -> Option<Reading> {
        if self.length <= TimeDelta::zero() || self.is_full() {
            return None;
        }
        if let Some(in_part) = self.in_part.take_if(|in_part| in_part.span.until <= now) {
            self.read_until = Some(in_part.span.until);
        }
        if let Some(in_part) = &self.in_part {
            return Some(in_part.clone());
        }
        // What is due by now belongs to the passes.
        let from = self.read_until.map_or(now, |until| until.max(now));
        let target = whole_second(now + self.length);
        // Counted from what was read, not from now: a short future would never be short of so much.
        if self.read_until.is_some_and(|until| target - until < self.read_every()) {
            return None;
        }
        let minute = Minute::of(from + TimeDelta::seconds(1));
        let until = target.min(minute.next().start() - TimeDelta::seconds(1));
        Some(Reading { minute, span: DueSpan { after: Some(from), until }, after: None })
    }
}

/// How many runs the shard sends in a second when it is busy.
struct Rate(f64);

impl Rate {
    /// Fewer say nothing of how long many take.
    const TELLING: usize = 20;
    const BOUNDS: (f64, f64) = (50.0, 2_000.0);

    fn per_second(&self) -> usize {
        self.0 as usize
    }

    fn note(&mut self, runs: usize, took: Duration) {
        if runs >= Self::TELLING {
            let seen = runs as f64 / took.as_secs_f64().max(0.001);
            self.0 = (self.0 * 0.7 + seen * 0.3).clamp(Self::BOUNDS.0, Self::BOUNDS.1);
        }
    }
}

impl Default for Rate {
    fn default() -> Self {
        Rate(200.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_core::job::{Advanced, JobKey, JobState};
    use punctual_core::message::{MESSAGE_VERSION, Message};
    use punctual_core::ports::{AdvanceFrom, Move};
    use punctual_core::priority::Priority;
    use punctual_core::run::RunKey;

    const START: i64 = 1_790_000_040; // a whole minute

    fn at(s: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(START + s, 0).unwrap()
    }

    fn at_ms(ms: i64) -> DateTime<Utc> {
        at(0) + TimeDelta::milliseconds(ms)
    }

    fn firing(n: usize, due_at: DateTime<Utc>) -> Firing {
        let key = JobKey::new("bank", &format!("c-{n}/bill")).unwrap();
        let message = Message {
            v: MESSAGE_VERSION,
            job_key: key.clone(),
            run_key: RunKey::scheduled(due_at),
            generation: 1,
            scheduled_at: due_at,
            due_at,
            first_enqueued_at: due_at,
            scheduler: "s".into(),
            trace: None,
        };
        let to = Advanced { state: JobState::Done, next: None, passed: None, expires_at: None };
        let from = AdvanceFrom { next_scheduled_at: due_at, version: 1 };
        Firing { priority: Priority::Normal, message, way: Move { key, from, to } }
    }

    fn near(seconds: u64) -> NearFuture {
        NearFuture::new(Duration::from_secs(seconds), 2_000)
    }

    fn reading(step: Step) -> Reading {
        match step {
            Step::Read(reading) => reading,
            _ => panic!("it does not read"),
        }
    }

    /// Reads all there is to be read at `now`, and shows `due` where it is asked for.
    fn read_all(near: &mut NearFuture, now: DateTime<Utc>, due: &[(i64, usize)]) {
        loop {
            let Some(reading) = near.reading(now) else { return };
            let Reading { minute, span, .. } = reading.clone();
            let inside = |due_at: DateTime<Utc>| {
                Minute::of(due_at) == minute && span.after.is_none_or(|after| after < due_at) && due_at <= span.until
            };
            let seconds = due.iter().filter(|(s, _)| inside(at(*s)));
            let shown = seconds.flat_map(|(s, count)| (0..*count).map(|n| firing(n, at(*s)))).collect();
            near.read(reading, shown, None);
        }
    }

    #[test]
    fn each_second_of_the_near_future_is_read_once_minute_by_minute() {
        let mut near = near(30);
        let mut seen = Vec::new();
        for ms in (45_000..200_000).step_by(500) {
            while let Step::Read(reading) = near.step(at_ms(ms)) {
                let first = reading.span.after.unwrap() + TimeDelta::seconds(1);
                let last = reading.span.until;
                assert!(first <= last && last <= at_ms(ms) + TimeDelta::seconds(30));
                assert_eq!((Minute::of(first), Minute::of(last)), (reading.minute, reading.minute));
                seen.extend(first.timestamp()..=last.timestamp());
                near.read(reading, Vec::new(), None);
            }
            assert!(near.read_until.unwrap() > at_ms(ms) + TimeDelta::seconds(24), "it is always known in time");
        }
        assert_eq!(seen, (START + 46..START + 46 + seen.len() as i64).collect::<Vec<_>>());
    }

    #[test]
    fn a_future_of_a_few_seconds_is_read_on_in_time_too() {
        for seconds in 1..=6 {
            let mut near = near(seconds);
            let (mut now_ms, mut known) = (250, Vec::new());
            while now_ms < 30_000 {
                match near.step(at_ms(now_ms)) {
                    Step::Read(reading) => {
                        let span = reading.span;
                        known.extend(span.after.unwrap().timestamp() + 1..=span.until.timestamp());
                        near.read(reading, Vec::new(), None);
                    }
                    // Woken a moment late, as a timer does.
                    Step::Wait(wait) => now_ms += wait.min(Duration::from_secs(1)).as_millis() as i64 + 1,
                    _ => panic!("there is nothing to send"),
                }
            }
            let missed = (START + 3..START + 29).filter(|s| !known.contains(s)).count();
            assert_eq!(missed, 0, "{seconds} s ahead: {known:?}");
        }
    }

    #[test]
    fn a_light_second_is_sent_at_its_instant() {
        let mut near = near(30);
        read_all(&mut near, at(0), &[(3, 2), (4, 1)]);
        assert!(matches!(near.step(at(0)), Step::Wait(wait) if wait == Duration::from_secs(3)));
        assert!(matches!(near.step(at_ms(2_999)), Step::Wait(wait) if wait == Duration::from_millis(1)));
        assert!(matches!(near.step(at_ms(3_001)), Step::Send(batch) if batch.len() == 2));
        assert!(matches!(near.step(at_ms(3_050)), Step::Wait(wait) if wait == Duration::from_millis(950)));
        assert!(matches!(near.step(at(4)), Step::Send(batch) if batch.len() == 1));
    }

    #[test]
    fn a_heavy_second_is_sent_early_and_never_visible_before_it_is_due() {
        let mut near = near(30);
        read_all(&mut near, at(0), &[(2, 1), (20, 300)]);
        for (now_ms, expected_s) in [(0, 20), (100, 20)] {
            match near.step(at_ms(now_ms)) {
                Step::SendEarly(batch, delay) => {
                    assert!(at_ms(now_ms) + delay >= at(20));
                    assert_eq!(delay, Duration::from_secs(expected_s));
                    assert!(batch.iter().all(|firing| firing.message.due_at == at(20)));
                }
                _ => panic!("{now_ms}"),
            }
            // What is left is light again, and waits for its instant.
            if near.count <= 101 {
                break;
            }
        }
        assert!(
            matches!(near.step(at(2)), Step::Send(batch) if batch.len() == 1),
            "a light second between keeps its instant"
        );
        assert!(matches!(near.step(at(20)), Step::Send(batch) if batch.len() == 100));
    }

    #[test]
    fn a_second_that_does_not_fit_is_read_on_as_it_is_sent() {
        let mut near = near(30);
        let first = reading(near.step(at(0)));
        let page = |from: usize| (from..from + 500).map(|n| firing(n, at(10))).collect::<Vec<_>>();
        near.read(first.clone(), page(0), Some(PageToken("500".into())));
        let second = reading(near.step(at(0)));
        assert_eq!((second.span, second.after.as_ref().unwrap().0.as_str()), (first.span, "500"));
        near.read(second, page(500), Some(PageToken("1000".into())));
        assert!(matches!(near.step(at(0)), Step::SendEarly(..)), "there is no room for more");
        let third = reading(near.step(at(0)));
        assert_eq!(third.after.unwrap().0, "1000");
        // Its span has passed: what was not read is due, and belongs to the passes.
        while matches!(near.step(at(31)), Step::Send(_)) {}
        assert!(reading(near.step(at(31))).span.after.unwrap() >= at(30));
    }

    #[test]
    fn a_future_that_is_full_goes_out_early_where_it_is_fullest() {
        let mut near = near(30);
        (0..20).for_each(|_| near.sent(200, Duration::from_millis(100)));
        read_all(&mut near, at(0), &[(3, 400), (4, 610)]);
        assert!(matches!(near.step(at(0)), Step::SendEarly(batch, _) if batch[0].message.due_at == at(4)));
        assert!(matches!(near.step(at(0)), Step::Wait(_)), "what is left fits");
    }

    #[test]
    fn what_was_not_sent_in_time_is_left_to_the_passes() {
        let mut near = near(30);
        read_all(&mut near, at(0), &[(3, 2), (9, 1)]);
        assert!(matches!(near.step(at(9)), Step::Send(batch) if batch[0].message.due_at == at(9)));
        assert_eq!(near.count, 0);
    }

    #[test]
    fn what_a_shard_sends_in_a_second_is_learnt_from_what_it_sent() {
        let mut near = near(30);
        for _ in 0..20 {
            near.sent(200, Duration::from_millis(100));
        }
        assert!(near.rate.per_second() > 1_900);
        read_all(&mut near, at(0), &[(20, 900)]);
        assert!(matches!(near.step(at(0)), Step::Wait(_)), "900 are light for it");
        near.sent(1, Duration::from_secs(1));
        assert!(near.rate.per_second() > 1_900, "one run says nothing");
    }

    #[test]
    fn without_a_near_future_nothing_is_read() {
        let mut near = near(0);
        assert!(matches!(near.step(at(0)), Step::Wait(_)));
    }
}
