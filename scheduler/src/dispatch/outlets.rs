//! Step 4, *queue*: how the queue of each priority fares, as seen by one process. Pure: `now` is an argument, by the monotonic
//! clock.
//!
//! A queue that fails is left alone for a while, and then tried by one call at a time, so that calls that hang hold up nothing
//! else. Whether it is the queue that fails or this copy that reaches none of them is a question for a probe: only a copy
//! that is cut off must lose its shards.

use super::shard::backoff;
use punctual_core::priority::Priority;
use std::time::Duration;

/// A trial that nothing was heard of for so long is given up: its caller may be gone.
const TRIAL: Duration = Duration::from_secs(30);
/// A queue that works again without a failure for this long is said to be well.
const WELL_AFTER: Duration = Duration::from_secs(8);

/// Leave to make one call; it says whether what came of the call is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pass {
    /// Failures of the queue that were counted before the call.
    round: u64,
}

/// How the queue of one priority fares.
#[derive(Clone, Copy, Debug, Default)]
struct Outlet {
    /// In a row.
    failures: u32,
    /// Counts all failures, calls that failed together once.
    round: u64,
    /// No call before that.
    try_at: Duration,
    /// When the last call ended, and whether it worked.
    last: Option<(Duration, bool)>,
    failed_at: Duration,
    /// It was said that it fails.
    is_told: bool,
}

/// The queues of all priorities.
#[derive(Debug)]
pub(super) struct Outlets {
    outlets: [Outlet; Priority::ALL.len()],
    /// What happened longer ago says nothing of now: the lease time.
    recent: Duration,
    wants_probe: bool,
    is_cut_off: bool,
}

impl Outlets {
    /// Queues of which nothing is known yet. What happened within `recent` tells how they fare.
    pub(super) fn new(recent: Duration) -> Self {
        Outlets { outlets: Default::default(), recent, wants_probe: false, is_cut_off: false }
    }

    /// Leave to send, unless the queue is left alone at `now`, or another call tries it.
    pub(super) fn ask(&mut self, priority: Priority, now: Duration) -> Option<Pass> {
        if self.is_closed(priority, now) {
            return None;
        }
        let outlet = &mut self.outlets[priority as usize];
        if outlet.failures > 0 {
            outlet.try_at = now + TRIAL;
        }
        Some(Pass { round: outlet.round })
    }

    /// Whether nothing is sent to the queue at `now`.
    pub(super) fn is_closed(&self, priority: Priority, now: Duration) -> bool {
        let outlet = &self.outlets[priority as usize];
        outlet.failures > 0 && now < outlet.try_at
    }

    /// Notes that a call worked; says whether that is the end of a trouble that was told.
    pub(super) fn worked(&mut self, priority: Priority, pass: Pass, now: Duration) -> bool {
        let outlet = &mut self.outlets[priority as usize];
        (self.wants_probe, self.is_cut_off) = (false, false);
        // A call from before the last failure does not say that the queue has recovered from it.
        if pass.round < outlet.round {
            return false;
        }
        outlet.last = Some((now, true));
        outlet.failures = 0;
        let is_over = outlet.is_told && now.saturating_sub(outlet.failed_at) >= WELL_AFTER;
        outlet.is_told &= !is_over;
        is_over
    }

    /// Notes that a call failed; says whether that is a trouble to be told. Calls that failed together count once.
    pub(super) fn failed(&mut self, priority: Priority, pass: Pass, now: Duration) -> bool {
        let outlet = &mut self.outlets[priority as usize];
        if pass.round < outlet.round {
            return false;
        }
        outlet.round += 1;
        outlet.try_at = now + backoff(outlet.failures);
        outlet.failures = (outlet.failures + 1).min(8);
        (outlet.last, outlet.failed_at) = (Some((now, false)), now);
        let is_new = !std::mem::replace(&mut outlet.is_told, true);
        self.wants_probe |= self.all_fail(now);
        is_new
    }

    /// Whether no queue that was lately sent to takes anything.
    fn all_fail(&self, now: Duration) -> bool {
        let lately = self.outlets.iter().filter_map(|outlet| outlet.last);
        lately.filter(|(at, _)| now.saturating_sub(*at) < self.recent).all(|(_, worked)| !worked)
    }

    /// Whether a probe should show if any queue can be reached: once for each failure with which all fail.
    pub(super) fn take_probe(&mut self) -> bool {
        std::mem::take(&mut self.wants_probe)
    }

    /// Notes what a probe that began at `began` has shown; says whether that changed whether this copy is cut off.
    pub(super) fn probed(&mut self, began: Duration, is_answered: bool) -> bool {
        let has_worked = self.outlets.iter().filter_map(|outlet| outlet.last).any(|(at, worked)| worked && at >= began);
        let was_cut_off = std::mem::replace(&mut self.is_cut_off, !is_answered && !has_worked);
        was_cut_off != self.is_cut_off
    }

    /// Whether this copy reaches no queue: until that is over it gets nowhere, whatever it reads.
    pub(super) fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;
    const S: fn(u64) -> Duration = Duration::from_secs;

    fn outlets() -> Outlets {
        Outlets::new(S(10))
    }

    /// Fails a call that begins and ends at `now`; says whether that was told.
    fn fail(outlets: &mut Outlets, priority: Priority, now: Duration) -> bool {
        let pass = outlets.ask(priority, now).expect("the queue is tried");
        outlets.failed(priority, pass, now)
    }

    fn work(outlets: &mut Outlets, priority: Priority, now: Duration) -> bool {
        let pass = outlets.ask(priority, now).expect("the queue is tried");
        outlets.worked(priority, pass, now)
    }

    #[test]
    fn a_queue_that_fails_is_tried_again_after_waits_that_double_up_to_eight_seconds() {
        let (mut outlets, mut now) = (outlets(), S(100));
        for wait in [250, 500, 1_000, 2_000, 4_000, 8_000, 8_000, 8_000, 8_000, 8_000] {
            fail(&mut outlets, Priority::Bulk, now);
            assert_eq!(outlets.ask(Priority::Bulk, now + MS(wait - 1)), None, "after {wait} ms");
            now += MS(wait);
        }
        work(&mut outlets, Priority::Bulk, now);
        fail(&mut outlets, Priority::Bulk, now);
        assert!(outlets.ask(Priority::Bulk, now + MS(250)).is_some(), "a success begins anew");
    }

    #[test]
    fn no_other_queue_is_left_alone_with_one_that_fails() {
        let mut outlets = outlets();
        fail(&mut outlets, Priority::Bulk, S(1));
        assert!(outlets.ask(Priority::Normal, S(1)).is_some());
        assert!(outlets.ask(Priority::Urgent, S(1)).is_some());
    }

    #[test]
    fn calls_that_fail_together_count_once() {
        let mut outlets = outlets();
        let passes: Vec<Pass> = (0..50).filter_map(|_| outlets.ask(Priority::Bulk, S(1))).collect();
        assert_eq!(passes.len(), 50);
        // Each hangs for longer than the back-off that the one before has begun.
        let told = passes.iter().zip(1..).filter(|(pass, n)| outlets.failed(Priority::Bulk, **pass, S(*n))).count();
        assert_eq!(told, 1);
        assert!(outlets.ask(Priority::Bulk, S(1) + MS(250)).is_some());
    }

    #[test]
    fn a_queue_in_trouble_is_tried_by_one_call_at_a_time() {
        let mut outlets = outlets();
        fail(&mut outlets, Priority::Bulk, S(1));
        let trial = outlets.ask(Priority::Bulk, S(2));
        assert!(trial.is_some());
        assert_eq!(outlets.ask(Priority::Bulk, S(12)), None, "another one tries it");
        assert!(outlets.ask(Priority::Bulk, S(32)).is_some(), "nothing was heard of that one");
        outlets.worked(Priority::Bulk, trial.unwrap(), S(33));
        assert!((0..5).all(|_| outlets.ask(Priority::Bulk, S(33)).is_some()));
    }

    #[test]
    fn a_call_from_before_a_failure_does_not_show_that_it_is_over() {
        let mut outlets = outlets();
        let slow = outlets.ask(Priority::Bulk, S(1)).unwrap();
        fail(&mut outlets, Priority::Bulk, S(1));
        outlets.worked(Priority::Bulk, slow, S(1));
        assert_eq!(outlets.ask(Priority::Bulk, S(1)), None);
    }

    #[test]
    fn a_trouble_is_told_once_and_so_is_its_end() {
        let mut outlets = outlets();
        let told: Vec<bool> = [1, 2, 3, 5].map(|s| fail(&mut outlets, Priority::Bulk, S(s))).into();
        assert_eq!(told, [true, false, false, false]);
        assert!(!work(&mut outlets, Priority::Bulk, S(10)), "it may be to and fro");
        assert!(!fail(&mut outlets, Priority::Bulk, S(11)), "it is the same trouble");
        assert!(!work(&mut outlets, Priority::Bulk, S(12)));
        assert!(work(&mut outlets, Priority::Bulk, S(19)));
        assert!(!work(&mut outlets, Priority::Bulk, S(20)), "it is told once");
        assert!(fail(&mut outlets, Priority::Bulk, S(21)), "a new one");
    }

    #[test]
    fn a_probe_is_wanted_once_a_failure_and_only_when_all_fail_that_were_lately_sent_to() {
        let mut outlets = outlets();
        work(&mut outlets, Priority::Normal, S(100));
        fail(&mut outlets, Priority::Bulk, S(105));
        assert!(!outlets.take_probe(), "another one works");
        fail(&mut outlets, Priority::Bulk, S(110));
        assert!(outlets.take_probe(), "nothing was heard of the other one for a lease time");
        assert!(!outlets.take_probe());
        fail(&mut outlets, Priority::Normal, S(110));
        assert!(outlets.take_probe());
        work(&mut outlets, Priority::Normal, S(115));
        fail(&mut outlets, Priority::Bulk, S(116));
        assert!(!outlets.take_probe());
    }

    #[test]
    fn a_copy_is_cut_off_from_a_probe_without_an_answer_until_something_works() {
        let mut outlets = outlets();
        fail(&mut outlets, Priority::Bulk, S(1));
        assert!(!outlets.is_cut_off(), "nobody knows yet");
        assert!(!outlets.probed(S(1), true));
        assert!(!outlets.is_cut_off(), "it is that queue's trouble");
        assert!(outlets.probed(S(1), false));
        assert!(!outlets.probed(S(2), false), "that is known");
        assert!(outlets.is_cut_off());
        work(&mut outlets, Priority::Bulk, S(3));
        assert!(!outlets.is_cut_off());
        assert!(!outlets.probed(S(2), false), "a send has worked since the probe began");
        assert!(!outlets.is_cut_off());
        assert!(outlets.probed(S(4), false) && outlets.probed(S(5), true));
        assert!(!outlets.is_cut_off());
    }
}
