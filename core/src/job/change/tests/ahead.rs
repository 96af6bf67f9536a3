//! Changes while a run waits in a queue with a delay.

use super::*;

// Sent at 8:59:30 by a process whose rules place it elsewhere: what counts is what the job says that it has passed.
#[test]
fn what_was_sent_ahead_is_what_the_job_passed_whatever_the_editors_rules_say() {
    let sent = fired(&daily(), at("08:59:30"));
    let elsewhere = Passed { firing: Firing { at: at("08:59:55"), wall: None }, runs_left: None };
    let job = Job { passed: Some(elsewhere), ..sent.clone() };
    let urgent = |spec: &mut JobSpec| spec.priority = Priority::Urgent;
    let after = edited(&job, at("08:59:40"), urgent);
    assert_eq!((after.next_scheduled_at, after.passed.clone()), (Some(at("08:59:55")), None));
    assert!(void(&after, at("08:59:55"), job.generation));
    // It is in a queue and due: the edit decides about what follows.
    let after = edited(&job, at("08:59:55"), urgent);
    assert_eq!(after.next_scheduled_at, Some(at("09:00+1")));
    assert!(!void(&after, at("08:59:55"), job.generation));
    // Nothing was sent ahead: where it stands is where it stays, whatever else the rules would place before.
    let job = Job { passed: None, ..sent };
    assert_eq!(edited(&job, at("08:59:40"), urgent).next_scheduled_at, Some(at("09:00+1")));
}

#[test]
fn a_change_within_the_second_of_a_firing_counts_it_once() {
    let bounded = JobSpec { schedule: schedule("cron 0 9 * * *", "UTC", Some(3)), ..spec("every 1h") };
    let sent = fired(&made(bounded), at("08:59:50"));
    assert_eq!((sent.runs_left, sent.passed.as_ref().unwrap().runs_left), (Some(2), Some(3)));
    for (ms, left, next) in [(-1, 3, "09:00"), (0, 2, "09:00+1"), (1, 2, "09:00+1")] {
        let now = at("09:00") + TimeDelta::milliseconds(ms);
        let after = edited(&sent, now, |spec| spec.priority = Priority::Urgent);
        assert_eq!((after.runs_left, after.next_scheduled_at), (Some(left), Some(at(next))), "{ms} ms");
        assert_eq!(void(&after, at("09:00"), sent.generation), ms < 0, "{ms} ms");
        let again = edited(&after, now, |spec| spec.priority = Priority::Bulk);
        assert_eq!((again.runs_left, again.next_scheduled_at), (Some(left), Some(at(next))), "the second change");
    }
}

#[test]
fn the_last_run_sent_ahead_is_decided_anew_as_others_are() {
    for (when, runs) in [("cron 0 9 * * *", Some(1)), ("at 2026-12-05T09:00", None)] {
        let done = fired(&made(JobSpec { schedule: schedule(when, "UTC", runs), ..spec("every 1h") }), at("08:59:50"));
        assert_eq!(done.state, JobState::Done);
        let urgent = edited(&done, at("08:59:55"), |spec| spec.priority = Priority::Urgent);
        assert_eq!((urgent.state, urgent.next_scheduled_at), (JobState::Active, Some(at("09:00"))));
        assert_eq!((urgent.runs_left, urgent.expires_at), (runs, None));
        assert!(void(&urgent, at("09:00"), done.generation));
        let later = edited(&done, at("08:59:55"), |spec| spec.schedule = schedule("cron 0 10 * * *", "UTC", runs));
        assert_eq!((later.state, later.next_scheduled_at), (JobState::Active, Some(at("10:00"))));
        assert_eq!(later.runs_left, runs, "one is left, and not one more");
        assert!(void(&later, at("09:00"), done.generation));
        let text = edited(&done, at("08:59:55"), |spec| spec.payload = spec.payload.with_text("Thank you"));
        assert_eq!((text.state, text.generation), (JobState::Done, done.generation));
    }
    // Its time was over before its number was used up.
    let mut bounded = JobSpec { schedule: schedule("cron 0 9 * * *", "UTC", Some(9)), ..spec("every 1h") };
    bounded.schedule.end_at = Some(at("09:00"));
    let done = fired(&made(bounded), at("08:59:50"));
    let longer = edited(&done, at("08:59:55"), |spec| spec.schedule.end_at = Some(at("09:00+30")));
    assert_eq!((done.state, longer.state, longer.runs_left), (JobState::Done, JobState::Active, Some(9)));
}

#[test]
fn a_pause_of_a_done_job_holds_what_it_has_queued_and_a_resume_ends_it_again() {
    let done = fired(&made(spec("at 2026-12-05T09:00")), at("08:59:50"));
    let paused = changed(&done, &Change::Pause, at("08:59:55"));
    assert_eq!((paused.state, paused.next(), paused.due_bucket), (JobState::Paused, None, None));
    assert_eq!((paused.generation, paused.expires_at), (done.generation, done.expires_at));
    assert!(!void(&paused, at("09:00"), done.generation));
    let text = edited(&paused, at("09:10"), |spec| spec.payload = spec.payload.with_text("Thank you"));
    assert_eq!((text.state, text.next()), (JobState::Paused, None));
    let resumed = changed(&text, &Change::Resume, at("09:20"));
    assert_eq!((resumed.state, resumed.next(), resumed.expires_at), (JobState::Done, None, done.expires_at));
    let ahead = edited(&paused, at("08:59:56"), |spec| spec.priority = Priority::Urgent);
    assert_eq!((ahead.state, ahead.next_scheduled_at, ahead.due_bucket), (JobState::Paused, Some(at("09:00")), None));
}
