mod ahead;
mod life;

use super::*;
use crate::due::{Minute, ShardClass, Shards};
use crate::job::{Voids, request_token};
use crate::missed::{Many, MissedRule};
use crate::payload::Payload;
use crate::priority::Priority;
use crate::retry::RetryRule;
use crate::run::RunKey;
use crate::schedule::ScheduleText;
use crate::spread::Spread;
use crate::zone::Zones;

/// An instant of 5 December 2026, by UTC; `+1` and so on at the end for later days.
fn at(time: &str) -> DateTime<Utc> {
    let (time, days) = time.split_once('+').map_or((time, 0), |(time, days)| (time, days.parse().unwrap()));
    let midnight: DateTime<Utc> = "2026-12-05T00:00:00Z".parse().unwrap();
    let time: chrono::NaiveTime = time.parse().unwrap();
    midnight + TimeDelta::days(days) + (time - chrono::NaiveTime::MIN)
}

fn world<'a>(shards: &'a Shards, zones: &'a Zones) -> Timetable<'a> {
    Timetable { shards, zones }
}

fn schedule(when: &str, tz: &str, max_runs: Option<u32>) -> Schedule {
    let text = ScheduleText { when, tz: Some(tz), max_runs, ..ScheduleText::default() };
    text.read(at("00:00"), &Zones::embedded()).unwrap().0
}

fn spec(when: &str) -> JobSpec {
    JobSpec {
        key: JobKey::new("bank", "c-1/bill").unwrap(),
        name: None,
        schedule: schedule(when, "UTC", None),
        anchor: Anchor::Stated,
        priority: Priority::Normal,
        payload: Payload::sms("+447700900123", "Your bill is due"),
        retry: RetryRule::default(),
        spread: None,
        missed: MissedRule::default(),
    }
}

fn made(spec: JobSpec) -> Job {
    let (shards, zones) = (Shards::default(), Zones::embedded());
    Job::create(spec, at("00:00"), &world(&shards, &zones), None, "made".into(), "ann").unwrap()
}

fn tried(job: &Job, change: &Change, now: DateTime<Utc>) -> Result<Changed, ChangeError> {
    let (shards, zones) = (Shards::default(), Zones::embedded());
    job.change(change, now, &world(&shards, &zones), "changed".into(), "bob")
}

fn changed(job: &Job, change: &Change, now: DateTime<Utc>) -> Job {
    match tried(job, change, now) {
        Ok(Changed::To(job)) => *job,
        other => panic!("{change:?}: {other:?}"),
    }
}

fn edited(job: &Job, now: DateTime<Utc>, how: impl Fn(&mut JobSpec)) -> Job {
    changed(job, &edit(job, how), now)
}

fn edit(job: &Job, how: impl Fn(&mut JobSpec)) -> Change {
    let mut spec = job.spec.clone();
    how(&mut spec);
    Change::Edit(Box::new(spec))
}

fn void(job: &Job, instant: DateTime<Utc>, generation: u64) -> bool {
    job.void_of(&RunKey::scheduled(instant), instant, generation).is_some()
}

/// The job after its firing was enqueued.
fn fired(job: &Job, now: DateTime<Utc>) -> Job {
    let (shards, zones) = (Shards::default(), Zones::embedded());
    let mut after = job.clone();
    after.advance(&job.after_firings(&job.next().unwrap(), 1, now, &world(&shards, &zones)));
    after
}

fn daily() -> Job {
    made(spec("cron 0 9 * * *"))
}

const WINDOW: Spread = Spread { key: String::new(), window_s: 1_800 };

fn spread(key: &str) -> Option<Spread> {
    Some(Spread { key: key.into(), ..WINDOW }) // c-10001: 1,171 s
}

#[test]
fn an_edit_to_what_is_there_changes_nothing() {
    let job = daily();
    assert_eq!(tried(&job, &edit(&job, |_| ()), at("08:00")), Ok(Changed::Same));
    let interval = made(spec("every 24h from 2026-12-05T09:00:00Z"));
    let unstated = edit(&interval, |spec| {
        spec.anchor = Anchor::Implied;
        spec.schedule = schedule("every 24h from 2026-12-05T17:00:00Z", "UTC", None);
    });
    assert_eq!(tried(&interval, &unstated, at("08:00")), Ok(Changed::Same));
    let with_text = edit(&interval, |spec| {
        spec.anchor = Anchor::Implied;
        spec.schedule = schedule("every 24h from 2026-12-05T17:00:00Z", "UTC", None);
        spec.payload = spec.payload.with_text("Your last bill is due");
    });
    let after = changed(&interval, &with_text, at("08:00"));
    assert_eq!((after.generation, after.next_scheduled_at), (interval.generation, Some(at("09:00"))));
}

#[test]
fn a_change_of_content_raises_the_version_and_nothing_else() {
    let job = daily();
    type Content = fn(&mut JobSpec);
    let contents: [Content; 3] = [
        |spec| spec.name = Some("Bill".into()),
        |spec| spec.payload = spec.payload.with_text("Your last bill is due"),
        |spec| spec.retry = RetryRule { max_attempts: 2, ..RetryRule::default() },
    ];
    for content in contents {
        let after = edited(&job, at("08:00"), content);
        let by = ("changed".to_owned(), "bob".to_owned());
        let mut expected =
            Job { version: 2, edit_token: by.0, updated_by: by.1, updated_at: at("08:00"), ..job.clone() };
        content(&mut expected.spec);
        assert_eq!(after, expected);
    }
}

#[test]
fn a_change_of_the_timetable_decides_anew_what_lies_ahead() {
    let job = daily();
    type Timing = fn(&mut JobSpec);
    let timings: [(Timing, DateTime<Utc>); 6] = [
        (|spec| spec.schedule = schedule("cron 30 10 * * *", "UTC", None), at("10:30")),
        (|spec| spec.schedule = schedule("cron 0 9 * * *", "America/New_York", None), at("14:00")),
        (|spec| spec.schedule.end_at = Some(at("09:00+9")), at("09:00")),
        (|spec| spec.spread = spread("c-10001"), at("09:00")),
        (|spec| spec.priority = Priority::Urgent, at("09:00")),
        (|spec| spec.missed.many = Many::All, at("09:00")),
    ];
    let now = at("08:00");
    for (timing, next) in timings {
        let after = edited(&job, now, timing);
        assert_eq!((after.version, after.next_scheduled_at), (2, Some(next)));
        assert!(after.generation > job.generation);
        assert_eq!(after.next_due_at, Some(after.spec.due_at(&after.next().unwrap())));
        assert_eq!(after.due_bucket.unwrap().minute, Minute::of(after.next_due_at.unwrap()));
        let is_urgent = after.due_bucket.unwrap().shard.class == ShardClass::Urgent;
        assert_eq!(is_urgent, after.spec.priority == Priority::Urgent);
        assert!(!void(&after, now, job.generation), "what was due until now goes on");
        assert!(void(&after, now + TimeDelta::seconds(1), job.generation), "what was sent ahead does not");
        assert!(!void(&after, next, after.generation));
    }
}

// Nine o'clock was fired; its run waits in the queue.
#[test]
fn an_edit_after_a_firing_does_not_void_its_run() {
    let job = fired(&daily(), at("09:00"));
    let after = edited(&job, at("09:10"), |spec| spec.schedule = schedule("cron 0 10 * * *", "UTC", None));
    assert_eq!(after.next_scheduled_at, Some(at("10:00")));
    assert!(!void(&after, at("09:00"), job.generation));
    assert!(void(&after, at("09:00+1"), job.generation));
}

#[test]
fn an_owed_instant_stays_owed_and_what_is_queued_for_it_is_void() {
    let job = daily();
    let after = edited(&job, at("09:10"), |spec| spec.schedule = schedule("cron 5 9,17 * * *", "UTC", None));
    assert_eq!((after.next_scheduled_at, after.next_due_at), (Some(at("09:00")), Some(at("09:00"))));
    assert_eq!((after.next_wall, after.due_bucket.unwrap().minute), (None, Minute::of(at("09:10"))));
    assert!(void(&after, at("09:00"), job.generation), "the job comes to it again");
    assert!(!void(&after, at("08:59"), job.generation));
    assert_eq!(fired(&after, at("09:11")).next_scheduled_at, Some(at("17:05")), "9:05 was never in a timetable");
    let same_schedule = edited(&job, at("09:10"), |spec| spec.missed.many = Many::All);
    assert_eq!((same_schedule.next_wall, same_schedule.tzdb), (job.next_wall, job.tzdb.clone()));
    let once = edited(&job, at("09:10"), |spec| spec.schedule = schedule("at 2026-12-05T08:00", "UTC", None));
    assert_eq!(once.next_scheduled_at, Some(at("09:00")));
    assert_eq!(fired(&once, at("09:11")).state, JobState::Done);
}

// The wall time that an owed firing asked for is later on the new clock than what the new timetable asks for.
#[test]
fn the_wall_time_of_an_owed_firing_does_not_hold_back_another_zones_timetable() {
    let kiritimati = JobSpec { schedule: schedule("cron 0 23 * * *", "Pacific/Kiritimati", None), ..spec("every 1h") };
    let job = made(kiritimati); // 23:00 is 09:00 UTC
    assert_eq!(job.next_scheduled_at, Some(at("09:00")));
    let to = schedule("cron 0 9 * * *", "Pacific/Honolulu", None); // 19:00 UTC
    let after = edited(&job, at("09:10"), |spec| spec.schedule = to.clone());
    assert_eq!(after.next_scheduled_at, Some(at("09:00")));
    assert_eq!(fired(&after, at("09:11")).next_scheduled_at, Some(at("19:00")));
}

#[test]
fn where_several_are_owed_the_new_timetable_takes_over_from_the_first() {
    let job = made(spec("cron 0 * * * *"));
    let job = fired(&job, at("01:00"));
    let after = edited(&job, at("04:30"), |spec| spec.schedule = schedule("cron 30 * * * *", "UTC", None));
    assert_eq!(after.next_scheduled_at, Some(at("02:00")));
    assert_eq!(fired(&after, at("04:30")).next_scheduled_at, Some(at("02:30")));
    // Not before the moment from which on the edit before this one decided.
    let single = edited(&daily(), at("09:10"), |spec| spec.schedule = schedule("cron 0 */2 * * *", "UTC", None));
    let again = edited(&single, at("12:30"), |spec| spec.schedule = schedule("cron 30 * * * *", "UTC", None));
    assert_eq!(again.next_scheduled_at, Some(at("09:00")));
    assert_eq!(fired(&again, at("12:31")).next_scheduled_at, Some(at("09:30")));
    // Another rule for the same timetable leaves all that is owed.
    let other_rule = edited(&job, at("04:30"), |spec| spec.missed.many = Many::All);
    assert_eq!(fired(&other_rule, at("04:30")).next_scheduled_at, Some(at("03:00")));
}

#[test]
fn a_window_that_changes_between_nominal_and_due_moves_the_start_but_not_the_identity() {
    let job = made(JobSpec { spread: spread("c-10001"), ..spec("cron 0 9 * * *") });
    assert_eq!(job.next_due_at, Some(at("09:19:31")));
    let now = at("09:10:00") + TimeDelta::milliseconds(250);
    let due = |how: fn(&mut JobSpec)| {
        let after = edited(&job, now, how);
        assert_eq!(after.next_scheduled_at, Some(at("09:00")));
        assert!(void(&after, at("09:00"), job.generation));
        (after.next_due_at.unwrap(), after.due_bucket.unwrap().minute.start())
    };
    assert_eq!(due(|spec| spec.spread = None), (at("09:10"), at("09:10")), "at once");
    let wider = |spec: &mut JobSpec| spec.spread = spread("c-10001").map(|one| Spread { window_s: 3_600, ..one });
    assert_eq!(due(wider), (at("09:39:03"), at("09:39")));
    // Once it was due, its deadline does not start anew.
    let late = edited(&job, at("09:30"), wider);
    assert_eq!(late.next_due_at, Some(at("09:19:31")));
    assert_eq!(late.due_bucket.unwrap().minute, Minute::of(at("09:30")));
}

#[test]
fn a_bound_of_runs_counts_from_its_own_change_and_stays_through_others() {
    let bounded = |runs| JobSpec { schedule: schedule("cron 0 9 * * *", "UTC", runs), ..spec("every 1h") };
    let job = fired(&made(bounded(Some(3))), at("09:00"));
    assert_eq!(job.runs_left, Some(2));
    let moved = edited(&job, at("10:00"), |spec| spec.schedule = schedule("cron 0 11 * * *", "UTC", Some(3)));
    assert_eq!((moved.runs_left, moved.next_scheduled_at), (Some(2), Some(at("11:00"))));
    let counted_anew = edited(&job, at("10:00"), |spec| spec.schedule.max_runs = Some(5));
    assert_eq!((counted_anew.runs_left, counted_anew.generation > job.generation), (Some(5), true));
    assert_eq!(edited(&job, at("10:00"), |spec| spec.schedule.max_runs = None).runs_left, None);
    // Tomorrow's firing waits in a queue with a delay, and was counted: the job comes to it again.
    let sent_ahead = fired(&job, at("08:59:50+1"));
    assert_eq!((sent_ahead.runs_left, sent_ahead.next_scheduled_at), (Some(1), Some(at("09:00+2"))));
    let after = edited(&sent_ahead, at("08:59:55+1"), |spec| spec.spread = spread("c-10001"));
    assert_eq!((after.runs_left, after.next_scheduled_at), (Some(2), Some(at("09:00+1"))));
    assert!(void(&after, at("09:00+1"), job.generation));
}

#[test]
fn an_edit_that_leaves_no_firing_is_refused_unless_one_is_owed() {
    let job = daily();
    let over = edit(&job, |spec| spec.schedule = schedule("at 2026-12-05T07:00", "UTC", None));
    assert!(matches!(tried(&job, &over, at("08:00")), Err(ChangeError::Invalid(JobError::Over(_)))));
    let wide = edit(&job, |spec| spec.spread = Some(Spread { key: "c-1".into(), window_s: 90_000 }));
    assert!(matches!(tried(&job, &wide, at("08:00")), Err(ChangeError::Invalid(JobError::Spread(_)))));
    let mut other = job.spec.clone();
    other.key = JobKey::new("bank", "c-2/bill").unwrap();
    assert_eq!(
        tried(&job, &Change::Edit(Box::new(other)), at("08:00")).unwrap_err().to_string(),
        "a change keeps the key, and this one says bank/c-2/bill: create another job instead"
    );
}

#[test]
fn a_pause_holds_the_job_and_a_resume_finds_what_fell_due_owed() {
    let job = daily();
    let paused = changed(&job, &Change::Pause, at("08:00"));
    assert_eq!((paused.state, paused.due_bucket, paused.version), (JobState::Paused, None, 2));
    assert_eq!((paused.next(), paused.next_due_at), (job.next(), job.next_due_at));
    assert_eq!((&paused.voids, paused.generation), (&job.voids, job.generation), "nothing is void");
    assert_eq!(tried(&paused, &Change::Pause, at("08:01")), Ok(Changed::Same));
    let resumed = changed(&paused, &Change::Resume, at("11:00+2"));
    assert_eq!((resumed.next(), resumed.next_due_at, resumed.version), (job.next(), job.next_due_at, 3));
    assert_eq!(resumed.due_bucket.unwrap().minute, Minute::of(at("11:00+2")));
    assert_eq!(tried(&resumed, &Change::Resume, at("11:01+2")), Ok(Changed::Same));
}

#[test]
fn an_edit_of_a_paused_job_leaves_it_paused() {
    let paused = changed(&daily(), &Change::Pause, at("08:00"));
    let ahead = edited(&paused, at("08:10"), |spec| spec.schedule = schedule("cron 0 10 * * *", "UTC", None));
    assert_eq!((ahead.state, ahead.due_bucket), (JobState::Paused, None));
    assert_eq!((ahead.next_scheduled_at, ahead.generation > paused.generation), (Some(at("10:00")), true));
    let owed = edited(&paused, at("09:10"), |spec| spec.schedule = schedule("cron 0 10 * * *", "UTC", None));
    assert_eq!((owed.state, owed.next_scheduled_at, owed.due_bucket), (JobState::Paused, Some(at("09:00")), None));
    let text = edited(&paused, at("09:10"), |spec| spec.payload = spec.payload.with_text("Your last bill is due"));
    assert_eq!((text.state, text.due_bucket, text.generation), (JobState::Paused, None, paused.generation));
}

#[test]
fn a_cancel_voids_everything_and_keeps_the_generation() {
    let quarantined = Job { state: JobState::Quarantined, error: Some("no".into()), due_bucket: None, ..daily() };
    let paused = changed(&daily(), &Change::Pause, at("08:00"));
    let done = Job { expires_at: Some(at("09:00+60")), ..fired(&made(spec("at 2026-12-05T09:00")), at("09:00")) };
    for job in [daily(), paused, quarantined, done] {
        let cancelled = changed(&job, &Change::Cancel, at("10:00"));
        assert_eq!((cancelled.state, cancelled.version), (JobState::Cancelled, job.version + 1));
        assert_eq!((cancelled.next(), cancelled.next_due_at, cancelled.due_bucket), (None, None, None));
        assert_eq!((cancelled.next_wall, cancelled.tzdb.clone(), cancelled.error.clone()), (None, None, None));
        assert_eq!(cancelled.expires_at, Some(at("10:00") + RETENTION));
        assert!(cancelled.generation > job.generation);
        assert!(void(&cancelled, at("09:00"), job.generation) && void(&cancelled, at("09:00+9"), job.generation));
        assert_eq!(tried(&cancelled, &Change::Cancel, at("10:01")), Ok(Changed::Same));
    }
}

#[test]
fn an_erased_job_is_a_cancelled_one_that_says_nothing() {
    let named = edited(&daily(), at("07:00"), |spec| {
        spec.name = Some("Ana's bill".into());
        spec.spread = spread("c-10001");
    });
    let cancelled = changed(&named, &Change::Cancel, at("08:00"));
    for job in [named, cancelled] {
        let erased = changed(&job, &Change::Erase, at("10:00"));
        assert_eq!((erased.state, erased.is_erased, erased.version), (JobState::Cancelled, true, job.version + 1));
        assert_eq!((&erased.spec.payload, &erased.spec.name, &erased.spec.spread), (&Payload::Noop, &None, &None));
        assert!(void(&erased, at("09:00"), job.generation) || job.state == JobState::Cancelled);
        assert!(erased.expires_at.is_some_and(|at_| at_ >= at("08:00") + RETENTION));
        assert_eq!(tried(&erased, &Change::Erase, at("10:01")), Ok(Changed::Same));
        assert_eq!(tried(&erased, &Change::Cancel, at("10:01")), Ok(Changed::Same));
        let again = changed(&erased, &Change::Recreate(Box::new(daily().spec)), at("11:00"));
        assert_eq!((again.state, again.is_erased), (JobState::Active, false));
        assert!(again.generation > erased.generation);
    }
}

#[test]
fn a_job_made_again_is_a_new_life_whose_version_goes_on() {
    let job = daily();
    let cancelled = changed(&job, &Change::Cancel, at("08:00"));
    let again = changed(&cancelled, &Change::Recreate(Box::new(job.spec.clone())), at("08:00"));
    assert_eq!((again.state, again.version, again.expires_at), (JobState::Active, 3, None));
    assert_eq!((again.next_scheduled_at, again.created_at), (Some(at("09:00")), at("08:00")));
    assert_eq!((again.updated_by.as_str(), again.edit_token.as_str()), ("bob", "changed"));
    assert!(again.generation > cancelled.generation, "even within one millisecond");
    assert_eq!(again.voids, Voids::new(again.generation));
    assert!(void(&again, at("07:00"), job.generation), "whatever the former life queued");
    let done = fired(&made(spec("at 2026-12-05T09:00")), at("09:00"));
    let again = changed(&done, &Change::Recreate(Box::new(job.spec.clone())), at("10:00"));
    assert_eq!((again.next_scheduled_at, again.version), (Some(at("09:00+1")), 2));
}

#[test]
fn a_done_job_made_again_keeps_what_it_has_queued() {
    let done = fired(&made(spec("at 2026-12-05T09:00")), at("09:00"));
    let again = changed(&done, &Change::Recreate(Box::new(spec("at 2026-12-05T10:00"))), at("09:05"));
    assert_eq!(again.next_scheduled_at, Some(at("10:00")));
    assert!(again.generation > done.generation);
    assert!(!void(&again, at("09:00"), done.generation), "nobody ended its last run");
    assert!(void(&again, at("10:00"), done.generation));
}

#[test]
fn a_done_job_fires_again_only_by_another_timetable() {
    let bounded = JobSpec { schedule: schedule("cron 0 9 * * *", "UTC", Some(1)), ..spec("every 1h") };
    let done = fired(&made(bounded), at("09:00"));
    assert_eq!((done.state, done.expires_at), (JobState::Done, Some(at("09:00") + RETENTION)));
    let urgent = |spec: &mut JobSpec| spec.priority = Priority::Urgent;
    for how in [urgent, |spec: &mut JobSpec| spec.payload = spec.payload.with_text("Thank you")] {
        let after = edited(&done, at("10:00"), how);
        assert_eq!((after.state, after.next(), after.generation), (JobState::Done, None, done.generation));
        assert_eq!(after.expires_at, done.expires_at);
    }
    let active = edited(&done, at("10:00"), |spec| spec.schedule = schedule("cron 0 11 * * *", "UTC", Some(1)));
    assert_eq!((active.state, active.next_scheduled_at), (JobState::Active, Some(at("11:00"))));
    assert_eq!((active.runs_left, active.expires_at), (Some(1), None));
    assert!(!void(&active, at("09:00"), done.generation), "its last run goes on");
}

#[test]
fn a_quarantined_job_is_released_or_edited() {
    let broken = Job { state: JobState::Quarantined, error: Some("no".into()), due_bucket: None, ..daily() };
    let text = edit(&broken, |spec| spec.payload = spec.payload.with_text("Your last bill is due"));
    for change in [Change::Release, text] {
        let after = changed(&broken, &change, at("11:00"));
        assert_eq!((after.state, after.error.clone(), after.version), (JobState::Active, None, 2));
        assert_eq!((after.next_scheduled_at, after.generation), (Some(at("09:00")), broken.generation));
        assert_eq!(after.due_bucket.unwrap().minute, Minute::of(at("11:00")));
        assert_eq!(tried(&after, &Change::Release, at("11:00")), Ok(Changed::Same));
    }
    let empty = Job { next_scheduled_at: None, ..broken };
    assert_eq!(tried(&empty, &Change::Release, at("11:00")), Err(ChangeError::NoFiring));
    let after = edited(&empty, at("11:00"), |spec| spec.payload = spec.payload.with_text("Your last bill is due"));
    assert_eq!((after.state, after.next_scheduled_at), (JobState::Active, Some(at("09:00+1"))));
}

#[test]
fn a_change_in_the_wrong_state_says_what_to_do_instead() {
    let in_state = |state| Job { state, ..daily() };
    let spec = Box::new(JobSpec { name: Some("Bill".into()), ..daily().spec });
    let cases = [
        (JobState::Cancelled, Change::Edit(spec.clone()), "it is cancelled: create it again"),
        (JobState::Cancelled, Change::Pause, "it is cancelled: nothing of it runs any more"),
        (JobState::Cancelled, Change::Resume, "it is cancelled: create it again"),
        (JobState::Quarantined, Change::Pause, "it is quarantined: release or edit it first"),
        (JobState::Quarantined, Change::Resume, "it is quarantined: release or edit it instead"),
        (JobState::Paused, Change::Release, "it is paused: resume it instead"),
        (JobState::Done, Change::Resume, "it is done: edit its schedule to let it fire again"),
        (JobState::Active, Change::Recreate(spec.clone()), "it is active: edit it, or cancel it first"),
        (JobState::Paused, Change::Recreate(spec), "it is paused: edit it, or cancel it first"),
    ];
    for (state, change, expected) in cases {
        assert_eq!(tried(&in_state(state), &change, at("08:00")).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_run_by_hand_is_void_by_a_cancel_or_a_former_life_alone() {
    let job = daily();
    let key = RunKey::manual(at("08:00"), "a1");
    assert_eq!((key.as_str(), key.is_manual(), key.instant()), ("1796457600ma1", true, Some(at("08:00"))));
    assert!(!RunKey::scheduled(at("08:00")).is_manual());
    assert!(RunKey::try_from("1796457600ma1r2".to_owned()).unwrap().is_manual(), "a replay of one");
    assert!(!RunKey::try_from("1796457600r2".to_owned()).unwrap().is_manual());
    let message = job.run_by_hand(key.clone(), at("08:00")).unwrap();
    assert_eq!((message.generation, message.scheduled_at, message.due_at), (job.generation, at("08:00"), at("08:00")));
    let is_void = |job: &Job| job.void_of(&key, message.scheduled_at, message.generation);
    // Back from the future: an edit before it decides from an earlier instant on.
    let after = edited(&job, at("07:00"), |spec| spec.schedule = schedule("cron 0 10 * * *", "UTC", None));
    assert_eq!(is_void(&after), None);
    let cancelled = changed(&after, &Change::Cancel, at("08:30"));
    assert_eq!(is_void(&cancelled), Some(cancelled.generation));
    let again = changed(&cancelled, &Change::Recreate(Box::new(job.spec.clone())), at("08:31"));
    assert_eq!(is_void(&again), Some(again.generation));
    assert_eq!(request_token("k-1"), request_token("k-1"));
    assert_ne!(request_token("k-1"), request_token("k-2"));
    assert!(request_token("").is_err() && request_token(&"k".repeat(256)).is_err());
    let done = Job { state: JobState::Done, ..job.clone() };
    assert!(done.run_by_hand(key.clone(), at("08:00")).is_ok());
    for (state, expected) in [
        (JobState::Paused, "it is paused: resume it first"),
        (JobState::Cancelled, "it is cancelled: create it again"),
        (JobState::Quarantined, "it is quarantined: release or edit it first"),
    ] {
        let job = Job { state, ..job.clone() };
        assert_eq!(job.run_by_hand(key.clone(), at("08:00")).unwrap_err().to_string(), expected);
    }
}

#[test]
fn what_is_queued_again_is_the_same_run_as_the_job_decides_it_now() {
    let spread = Spread { key: "c-10001".into(), window_s: 1_800 }; // 1171 s for this key
    let job = edited(&fired(&daily(), at("09:00")), at("09:05"), |spec| spec.spread = Some(spread.clone()));
    let message = job.requeue(at("09:00"), at("12:00")).unwrap();
    assert_eq!(message.run_key, RunKey::scheduled(at("09:00")));
    assert_eq!((message.scheduled_at, message.due_at), (at("09:00"), at("09:19:31")));
    assert_eq!((message.first_enqueued_at, message.scheduler.as_str()), (at("12:00"), "requeue"));
    assert!(message.generation == job.generation && !void(&job, at("09:00"), message.generation));
    for state in [JobState::Done, JobState::Paused] {
        assert!(Job { state, ..job.clone() }.requeue(at("09:00"), at("12:00")).is_ok(), "{state:?}");
    }
    for (state, expected) in [
        (JobState::Cancelled, "it is cancelled: create it again"),
        (JobState::Quarantined, "it is quarantined: release or edit it first"),
    ] {
        let refused = Job { state, ..job.clone() }.requeue(at("09:00"), at("12:00")).unwrap_err();
        assert_eq!(refused.to_string(), expected);
    }
}
