//! What was due: edits, ends, new lives, and clock changes.

use super::*;

fn times(told: &[String]) -> Vec<&str> {
    told.iter().map(|one| &one[..5]).collect()
}

#[test]
fn an_edit_decides_from_the_next_second_on() {
    for (ms, expected) in [(-1, vec!["06:30"]), (0, vec!["06:00", "06:30"]), (1, vec!["06:00", "06:30"])] {
        let mut log = Log::hourly();
        log.pass(1, "05:59:30");
        let spec = JobSpec { schedule: schedule("cron 30 * * * *"), ..log.job.spec.clone() };
        assert!(log.change(&Change::Edit(Box::new(spec)), at("06:00") + TimeDelta::milliseconds(ms)));
        assert_eq!(times(&log.told(&[], "07:29")), expected, "{ms} ms");
    }
}

#[test]
fn what_was_sent_ahead_and_superseded_is_decided_anew() {
    let mut log = Log::hourly();
    log.pass(1, "05:59:30");
    let void = log.void("06:00", SkipReason::Superseded);
    let mut urgent = log.job.clone();
    log.reschedule("05:59:40", "cron 15 * * * *");
    assert_eq!(log.told(std::slice::from_ref(&void), "06:20"), ["06:15 not_dispatched"]);
    // Under the same timetable the job comes to it again.
    std::mem::swap(&mut log.job, &mut urgent);
    log.past.clear();
    log.edit("05:59:40", |spec| spec.priority = Priority::Urgent);
    assert_eq!(log.told(&[void], "06:20"), ["06:00 not_dispatched"]);
}

#[test]
fn an_owed_instant_stays_owed_and_the_new_timetable_goes_on_from_the_edit() {
    let mut within = Log::hourly();
    within.reschedule("06:00", "cron 30 * * * *");
    assert_eq!(times(&within.told(&[], "06:40")), ["06:00", "06:30"], "owed in the second of the edit");
    let mut log = Log::hourly();
    log.reschedule("06:20", "cron 10,40 * * * *");
    assert_eq!(log.told(&[], "07:15"), ["06:00 not_dispatched", "06:40 not_dispatched", "07:10 not_dispatched"]);
    log.pass(1, "06:25");
    assert_eq!(log.told(&[log.row("06:00", RunStatus::Succeeded)], "07:15")[0], "06:00 succeeded");
    log.reschedule("06:41", "cron 50 * * * *");
    assert_eq!(times(&log.told(&[], "07:55")), ["06:00", "06:40", "06:50", "07:50"], "a second one, 06:40 being owed");
}

#[test]
fn of_several_owed_instants_the_first_stays_and_the_new_timetable_counts_from_it() {
    let mut log = Log::hourly();
    log.reschedule("08:20", "cron 45 * * * *");
    assert_eq!(times(&log.told(&[], "08:50")), ["06:00", "06:45", "07:45", "08:45"]);
    log.edit("08:51", |spec| spec.priority = Priority::Urgent);
    assert_eq!(times(&log.told(&[], "09:50")), ["06:00", "06:45", "07:45", "08:45", "09:45"]);
}

#[test]
fn the_due_time_of_an_owed_instant_is_that_of_the_change_which_made_it_due() {
    let spread = |s: u32| Some(Spread { key: "c-10001".into(), window_s: s });
    let mut log = Log::begin(JobSpec { spread: spread(1_800), ..spec(schedule("cron 0 * * * *")) }, at("05:30"));
    let due = |log: &Log| {
        let versions = log.versions();
        audit(log.inquiry(&versions, at("06:50")), &[]).0[0].due_at
    };
    log.edit("06:10", |spec| spec.spread = None);
    assert_eq!((due(&log), log.job.next_due_at), (at("06:10"), Some(at("06:10"))), "it was to start at 06:19:31");
    log.pass(1, "06:11");
    assert_eq!(due(&log), at("06:10"));
    let mut late = Log::begin(JobSpec { spread: spread(1_800), ..spec(schedule("cron 0 * * * *")) }, at("05:30"));
    late.edit("06:40", |spec| spec.spread = None);
    late.pass(1, "06:41");
    assert_eq!(due(&late), at("06:19:31"), "it was late already");
}

#[test]
fn nothing_is_due_behind_what_a_finished_job_passed() {
    let three = Schedule { max_runs: Some(3), ..schedule("cron 0 * * * *") };
    let mut log = Log::begin(spec(three.clone()), at("05:30"));
    assert_eq!(times(&log.told(&[], "12:00")), ["06:00", "07:00", "08:00"], "three are owed, and no fourth");
    log.pass(2, "07:00");
    assert_eq!(times(&log.told(&[], "12:00")), ["06:00", "07:00", "08:00"]);
    log.pass(1, "08:00");
    assert_eq!(log.job.state, JobState::Done);
    assert_eq!(times(&log.told(&[], "12:00")), ["06:00", "07:00", "08:00"]);
    log.edit("09:30", |spec| spec.payload = spec.payload.with_text("Thank you"));
    assert_eq!(times(&log.told(&[], "12:00")), ["06:00", "07:00", "08:00"]);
    log.edit("10:30", |spec| spec.schedule.max_runs = Some(1));
    assert_eq!(times(&log.told(&[], "13:00")), ["06:00", "07:00", "08:00", "11:00"], "another series");
    let bounds = Schedule { start_at: Some(at("07:00")), end_at: Some(at("08:59")), ..schedule("cron 0 * * * *") };
    assert_eq!(times(&Log::begin(spec(bounds), at("05:30")).told(&[], "12:00")), ["07:00", "08:00"]);
}

#[test]
fn nothing_is_due_behind_a_cancel_and_what_was_owed_ends_with_it() {
    let mut log = Log::hourly();
    log.pass(2, "07:00");
    let rows = [log.row("06:00", RunStatus::Succeeded)];
    assert!(log.change(&Change::Pause, at("07:30")));
    assert!(log.change(&Change::Cancel, at("09:00")));
    assert_eq!(log.told(&rows, "12:00"), ["06:00 succeeded", "07:00 missing", "08:00 cancelled", "09:00 cancelled"]);
    assert_eq!(log.told(&rows, "09:05")[1], "07:00 queued", "its message was put back until then");
    let versions = log.versions();
    assert_eq!(audit(log.inquiry(&versions, at("12:00")), &rows).1.skipped["cancelled"], 2);
    // A run that was sent ahead was not due yet.
    let mut ahead = Log::hourly();
    ahead.pass(1, "05:59:30");
    assert!(ahead.change(&Change::Cancel, at("05:59:40")));
    assert!(ahead.told(&[ahead.void("06:00", SkipReason::Cancelled)], "07:00").is_empty());
}

#[test]
fn an_instant_before_the_job_was_made_is_due_and_due_from_then() {
    let mut log = Log::begin(spec(schedule("at 2026-12-05T03:00")), at("05:30"));
    log.pass(1, "05:30");
    assert_eq!(log.told(&[], "05:40"), ["03:00 queued"]);
    assert_eq!(log.told(&[], "05:40:01"), ["03:00 missing"]);
    let anchored = Log::begin(spec(schedule("every 1h from 2026-12-05T05:30")), at("05:30"));
    assert_eq!(times(&anchored.told(&[], "06:30")), ["05:30", "06:30"]);
}

#[test]
fn a_later_life_keeps_what_a_former_one_owed_account_for_and_tells_no_instant_twice() {
    let mut log = Log::hourly();
    log.pass(2, "07:00");
    assert!(log.change(&Change::Cancel, at("08:30")));
    let cancelled = log.void("07:00", SkipReason::Cancelled);
    let rows = [log.row("06:00", RunStatus::Succeeded), cancelled];
    let again = spec(schedule("at 2026-12-05T07:00"));
    assert!(log.change(&Change::Recreate(Box::new(again)), at("09:00")));
    assert_eq!(log.told(&rows, "12:00"), ["06:00 succeeded", "07:00 not_dispatched", "08:00 cancelled"]);
    log.pass(1, "09:00");
    assert_eq!(log.told(&rows, "12:00"), ["06:00 succeeded", "07:00 missing", "08:00 cancelled"]);
    // Before the later life's first instant is done with, its timetable is another one.
    let mut edited = Log::hourly();
    edited.pass(3, "08:00");
    assert!(edited.change(&Change::Cancel, at("08:30")));
    assert!(edited.change(&Change::Recreate(Box::new(spec(schedule("at 2026-12-05T06:30")))), at("09:00")));
    edited.reschedule("09:10", "cron 20 * * * *");
    assert_eq!(times(&edited.told(&[], "10:00")), ["06:00", "06:30", "07:00", "08:00", "09:20"]);
}

#[test]
fn what_a_done_job_passed_stays_due_when_it_is_made_again() {
    let mut log = Log::begin(spec(schedule("at 2026-12-05T06:00")), at("05:30"));
    log.pass(1, "06:00");
    assert!(log.change(&Change::Recreate(Box::new(spec(schedule("cron 0 * * * *")))), at("07:30")));
    assert_eq!(log.told(&[], "08:05"), ["06:00 missing", "08:00 not_dispatched"]);
}

#[test]
fn where_the_first_versions_are_forgotten_it_begins_with_what_the_others_decide() {
    let mut log = Log::hourly();
    log.pass(3, "08:00");
    log.reschedule("08:10", "cron 20 * * * *");
    log.edit("10:00", |spec| spec.payload = spec.payload.with_text("Thank you"));
    let versions = log.versions();
    let told = |versions: &[Version<'_>]| {
        let asked = Inquiry { versions, ..log.inquiry(versions, at("10:30")) };
        let told = audit(asked, &[]).0.iter().map(|one| one.scheduled_at).collect::<Vec<_>>();
        (Auditor::new(asked).from(), told)
    };
    let all = ["06:00", "07:00", "08:00", "08:20", "09:20", "10:20"].map(at);
    assert_eq!(told(&versions), (at("00:00"), all.to_vec()));
    for known in [&versions[1..], &versions[2..]] {
        assert_eq!(told(known), (at("08:10:01"), all[3..].to_vec()));
    }
    assert!(told(&[]).1.is_empty());
    // The owed instant is the first that the edit decides.
    let mut owed = Log::hourly();
    owed.reschedule("06:10", "cron 20 * * * *");
    owed.past.clear();
    assert_eq!(times(&owed.told(&[], "06:30")), ["06:00", "06:20"]);
    // The change that began it is forgotten, and nothing but its generation tells when that was.
    owed.edit("06:40", |spec| spec.payload = spec.payload.with_text("Thank you"));
    owed.past.clear();
    assert_eq!(times(&owed.told(&[], "06:30")), ["06:00", "06:20"]);
}

#[test]
fn what_is_so_old_that_its_row_may_be_deleted_is_left_out() {
    let mut log = Log::begin(spec(schedule("cron 0 0 * * *")), at("00:00"));
    log.pass(70, "00:00+70");
    let versions = log.versions();
    let now = at("12:00+70");
    let asked = Inquiry { to: now, ..log.inquiry(&versions, now) };
    let (told, summary) = audit(asked, &[]);
    assert_eq!((summary.missing, told[0].scheduled_at), (60, at("00:00+11")));
    assert_eq!(Auditor::new(asked).from(), now - RETENTION);
}

#[test]
fn sixty_days_of_a_minutely_job_are_told_minute_by_minute() {
    let mut log = Log::begin(spec(schedule("cron * * * * *")), at("00:00"));
    let (shards, zones) = (Shards::default(), Zones::embedded());
    let last = Firing { at: at("00:00+60"), wall: None };
    let to = log.job.after_firings(&last, 1, at("00:00+60"), &Timetable { shards: &shards, zones: &zones });
    log.job.advance(&to);
    let versions = log.versions();
    let asked = Inquiry { to: at("00:00+61"), ..log.inquiry(&versions, at("00:00+60")) };
    let mut auditor = Auditor::new(asked);
    let mut told = 0;
    for n in (1..=86_400).filter(|n| n % 1_000 != 0) {
        let key = RunKey::scheduled(at("00:00") + TimeDelta::minutes(n));
        auditor.row(&row(key, RunStatus::Succeeded, log.job.generation), &mut |_| told += 1);
    }
    let summary = auditor.finish(&mut |_| told += 1);
    assert_eq!((told, summary.due, summary.succeeded, summary.missing), (86_400, 86_400, 86_400 - 86, 86));
}

#[test]
fn on_the_nights_of_clock_changes_what_was_due_is_what_dispatch_fires() {
    let spans = [("2026-03-07T00:00:00Z", "2026-03-10T00:00:00Z"), ("2026-10-31T00:00:00Z", "2026-11-03T00:00:00Z")];
    let utc = |text: &str| text.parse::<DateTime<Utc>>().unwrap();
    let zones = Zones::embedded();
    for when in ["cron 30 1,2 * * *", "cron 0,30 1-3 * * *", "cron */20 * * * *"] {
        for (gap, repeat) in [("next_valid", "first"), ("skip", "second"), ("next_valid", "both")] {
            let text = ScheduleText {
                when,
                tz: Some("America/New_York"),
                dst_gap: serde_json::from_value(gap.into()).unwrap(),
                dst_repeat: serde_json::from_value(repeat.into()).unwrap(),
                ..ScheduleText::default()
            };
            for (from, to) in spans.map(|(from, to)| (utc(from), utc(to))) {
                let (schedule, _) = text.read(from, &zones).unwrap();
                let log = Log::begin(spec(schedule), from);
                let fired = std::iter::successors(log.job.next(), |firing| log.job.following(firing, None, &zones));
                let fired: Vec<_> = fired.map(|firing| firing.at).take_while(|at| *at < to).collect();
                let versions = log.versions();
                // From each instant on, and from the second behind it, the same ones follow.
                for (n, since) in fired.iter().enumerate() {
                    for (since, skipped) in [(*since, n), (*since + TimeDelta::seconds(1), n + 1)] {
                        let asked = Inquiry { from: since, to, ..log.inquiry(&versions, to) };
                        let told: Vec<_> = audit(asked, &[]).0.iter().map(|one| one.scheduled_at).collect();
                        assert_eq!(told, fired[skipped..], "{when}, {gap}, {repeat}, from {since}");
                    }
                }
            }
        }
    }
}
