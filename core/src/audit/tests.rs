mod due;
mod histories;

use super::*;
use crate::due::Shards;
use crate::job::{Change, Changed, JobKey, JobSpec, Timetable};
use crate::missed::MissedRule;
use crate::payload::Payload;
use crate::priority::Priority;
use crate::retry::RetryRule;
use crate::run::{RunId, RunKey, SkippedRange};
use crate::schedule::{Anchor, Firing, Schedule, ScheduleText};
use crate::spread::Spread;

/// An instant of 5 December 2026, by UTC; `+1` and so on at the end for later days.
fn at(time: &str) -> DateTime<Utc> {
    let (time, days) = time.split_once('+').map_or((time, 0), |(time, days)| (time, days.parse().unwrap()));
    let midnight: DateTime<Utc> = "2026-12-05T00:00:00Z".parse().unwrap();
    let time: chrono::NaiveTime = time.parse().unwrap();
    midnight + TimeDelta::days(days) + (time - chrono::NaiveTime::MIN)
}

fn schedule(when: &str) -> Schedule {
    ScheduleText { when, ..ScheduleText::default() }.read(at("00:00"), &Zones::embedded()).unwrap().0
}

fn spec(schedule: Schedule) -> JobSpec {
    JobSpec {
        key: JobKey::new("bank", "c-1/bill").unwrap(),
        name: None,
        schedule,
        anchor: Anchor::Stated,
        priority: Priority::Normal,
        payload: Payload::sms("+447700900123", "Your bill is due"),
        retry: RetryRule::default(),
        spread: None,
        missed: MissedRule::default(),
    }
}

/// A job and what people did to it.
struct Log {
    zones: Zones,
    shards: Shards,
    past: Vec<(Job, DateTime<Utc>)>,
    job: Job,
    since: DateTime<Utc>,
}

impl Log {
    fn begin(spec: JobSpec, now: DateTime<Utc>) -> Self {
        let (zones, shards) = (Zones::embedded(), Shards::default());
        let world = Timetable { shards: &shards, zones: &zones };
        let job = Job::create(spec, now, &world, None, "made".into(), "ann").unwrap();
        Log { zones, shards, past: Vec::new(), job, since: now }
    }

    fn hourly() -> Self {
        Self::begin(spec(schedule("cron 0 * * * *")), at("05:30"))
    }

    fn world(&self) -> Timetable<'_> {
        Timetable { shards: &self.shards, zones: &self.zones }
    }

    /// Makes a change; says whether it changed anything.
    fn change(&mut self, change: &Change, now: DateTime<Utc>) -> bool {
        match self.job.change(change, now, &self.world(), "changed".into(), "bob") {
            Ok(Changed::To(job)) => {
                self.past.push((std::mem::replace(&mut self.job, *job), self.since));
                self.since = now;
                true
            }
            Ok(Changed::Same) | Err(_) => false,
        }
    }

    fn edit(&mut self, time: &str, how: impl Fn(&mut JobSpec)) {
        let mut spec = self.job.spec.clone();
        how(&mut spec);
        assert!(self.change(&Change::Edit(Box::new(spec)), at(time)));
    }

    fn reschedule(&mut self, time: &str, when: &str) {
        self.edit(time, |spec| spec.schedule = schedule(when));
    }

    /// Passes so many firings, without a row.
    fn pass(&mut self, count: usize, time: &str) {
        for _ in 0..count {
            let next = self.job.next().unwrap();
            let to = self.job.after_firings(&next, 1, at(time), &self.world());
            self.job.advance(&to);
        }
    }

    fn versions(&self) -> Vec<Version<'_>> {
        let past = self.past.iter().map(|(job, since)| Version { job, since: *since });
        past.chain([Version { job: &self.job, since: self.since }]).collect()
    }

    fn inquiry<'a>(&'a self, versions: &'a [Version<'a>], now: DateTime<Utc>) -> Inquiry<'a> {
        let (from, to) = (at("00:00"), at("00:00+30"));
        Inquiry { versions, from, to, now, grace: Duration::from_secs(600), is_held: false, zones: &self.zones }
    }

    /// Each instant and its standing, `06:00 missing`, with no rows but these.
    fn told(&self, rows: &[RunRow], now: &str) -> Vec<String> {
        let versions = self.versions();
        let (instants, _) = audit(self.inquiry(&versions, at(now)), rows);
        instants.iter().map(|one| format!("{} {}", one.scheduled_at.format("%H:%M"), word(&one.standing))).collect()
    }

    fn row(&self, time: &str, status: RunStatus) -> RunRow {
        row(RunKey::scheduled(at(time)), status, self.job.generation)
    }

    fn skipped(&self, time: &str, reason: SkipReason) -> RunRow {
        RunRow { reason: Some(reason), ..self.row(time, RunStatus::Skipped) }
    }

    fn void(&self, time: &str, reason: SkipReason) -> RunRow {
        RunRow { void_gen: Some(self.job.generation), ..self.skipped(time, reason) }
    }

    fn range(&self, time: &str, to: &str, count: u32) -> RunRow {
        let range = Some(SkippedRange { to: at(to), count });
        RunRow { range, ..self.skipped(time, SkipReason::Missed) }
    }
}

fn row(run_key: RunKey, status: RunStatus, generation: u64) -> RunRow {
    let due_at = run_key.instant().unwrap();
    RunRow {
        id: RunId { job_key: JobKey::new("bank", "c-1/bill").unwrap(), run_key },
        status,
        attempt: 0,
        owner: None,
        lease_until: None,
        not_before: None,
        generation,
        void_gen: None,
        due_at,
        first_enqueued_at: due_at,
        started_at: None,
        completed_at: None,
        attempts: Vec::new(),
        error: None,
        gateway_ref: None,
        reason: None,
        range: None,
        revision: 1,
        write_token: "w".into(),
    }
}

/// What is told, and the summary; what holds of every audit is asserted.
fn audit(asked: Inquiry<'_>, rows: &[RunRow]) -> (Vec<Instant>, Summary) {
    assert!(rows.is_sorted_by(|a, b| a.id.run_key < b.id.run_key), "rows come in order");
    let mut told = Vec::new();
    let mut tell = |instant: &Instant| told.push(*instant);
    let mut auditor = Auditor::new(asked);
    rows.iter().for_each(|row| auditor.row(row, &mut tell));
    let summary = auditor.finish(&mut tell);
    assert!(told.is_sorted_by(|a, b| a.scheduled_at < b.scheduled_at), "each instant once, in order");
    let Summary { due, succeeded, failed, skipped, dead, indeterminate, open, missing, .. } = &summary;
    let others = skipped.values().sum::<u64>() + open.values().sum::<u64>();
    assert_eq!(*due, succeeded + failed + dead + indeterminate + missing + others);
    assert_eq!(*due, told.len() as u64);
    (told, summary)
}

fn word(standing: &Standing) -> String {
    match standing {
        Standing::Row { status, reason, replayed } => {
            let words = [Some(status.as_str()), reason.map(SkipReason::as_str), replayed.map(RunStatus::as_str)];
            words.into_iter().flatten().collect::<Vec<_>>().join(" ")
        }
        Standing::Cancelled => "cancelled".into(),
        Standing::Open(open) => open.as_str().into(),
        Standing::Missing => "missing".into(),
    }
}

#[test]
fn each_row_is_told_as_it_stands() {
    use RunStatus::*;
    let mut log = Log::hourly();
    log.pass(7, "12:00");
    let rows = [
        log.row("06:00", Succeeded),
        log.row("07:00", Failed),
        log.row("08:00", Dead),
        log.row("09:00", Indeterminate),
        log.skipped("10:00", SkipReason::Deadline),
        log.row("11:00", Running),
        log.row("12:00", Retrying),
    ];
    let expected = [
        "06:00 succeeded",
        "07:00 failed",
        "08:00 dead",
        "09:00 indeterminate",
        "10:00 skipped deadline",
        "11:00 running",
        "12:00 retrying",
    ];
    assert_eq!(log.told(&rows, "12:59"), expected);
    let versions = log.versions();
    let (told, summary) = audit(log.inquiry(&versions, at("12:59")), &rows);
    let fine: Vec<bool> = told.iter().map(|one| one.standing.is_fine()).collect();
    assert_eq!(fine, [true, false, false, false, true, true, true]);
    let mut twice = summary.clone();
    twice.add(&summary);
    assert_eq!((twice.due, twice.succeeded, twice.skipped["deadline"], twice.open[&Open::Running]), (14, 2, 2, 2));
}

#[test]
fn any_one_row_taken_away_is_the_one_that_is_missing() {
    let mut log = Log::hourly();
    log.pass(5, "10:00");
    let rows: Vec<RunRow> =
        ["06:00", "07:00", "08:00", "09:00", "10:00"].iter().map(|time| log.row(time, RunStatus::Succeeded)).collect();
    for n in 0..rows.len() {
        let mut others = rows.clone();
        let taken = others.remove(n).due_at.format("%H:%M missing").to_string();
        let told = log.told(&others, "10:59");
        assert_eq!((told.len(), told[n].clone()), (5, taken));
        assert_eq!(told.iter().filter(|one| one.ends_with("succeeded")).count(), 4);
    }
}

#[test]
fn what_the_job_has_not_come_to_is_not_missing_however_late_it_is() {
    let mut log = Log::hourly();
    log.pass(1, "06:00");
    let done = [log.row("06:00", RunStatus::Succeeded)];
    assert_eq!(log.told(&done, "08:30"), ["06:00 succeeded", "07:00 not_dispatched", "08:00 not_dispatched"]);
    assert_eq!(log.told(&done, "06:59"), ["06:00 succeeded"], "what lies ahead is not due");
    let mut set_aside = Log::hourly();
    set_aside.job.state = JobState::Quarantined;
    assert_eq!(set_aside.told(&[], "07:30"), ["06:00 quarantined", "07:00 quarantined"]);
    set_aside.job.next_scheduled_at = None;
    assert_eq!(set_aside.told(&[], "06:30"), ["06:00 quarantined"], "nobody knows where it stands");
    // Its run was sent, and the copy died before the advance.
    assert_eq!(log.told(&[done[0].clone(), log.row("07:00", RunStatus::Running)], "07:30")[1], "07:00 running");
}

#[test]
fn what_is_passed_is_queued_for_the_grace_and_then_missing() {
    let mut log = Log::hourly();
    log.pass(1, "06:00");
    assert_eq!(log.told(&[], "06:10"), ["06:00 queued"]);
    assert_eq!(log.told(&[], "06:10:01"), ["06:00 missing"]);
    let versions = log.versions();
    let held = Inquiry { is_held: true, ..log.inquiry(&versions, at("06:59")) };
    assert_eq!(audit(held, &[]).1.open[&Open::Queued], 1, "a hold keeps it in the queue");
    // Due 1171 s behind its nominal instant, the grace as well.
    let spread = Some(Spread { key: "c-10001".into(), window_s: 1_800 });
    let mut spread = Log::begin(JobSpec { spread, ..spec(schedule("cron 0 * * * *")) }, at("05:30"));
    spread.pass(1, "06:20");
    assert_eq!(spread.told(&[], "06:29:31"), ["06:00 queued"]);
    assert_eq!(spread.told(&[], "06:29:32"), ["06:00 missing"]);
}

#[test]
fn a_pause_holds_back_what_is_queued_and_what_falls_due() {
    let mut log = Log::hourly();
    log.pass(1, "06:00");
    assert!(log.change(&Change::Pause, at("06:05")));
    assert_eq!(log.told(&[], "07:30"), ["06:00 paused", "07:00 paused"]);
    assert!(log.change(&Change::Resume, at("07:30")));
    assert_eq!(log.told(&[], "07:40"), ["06:00 queued", "07:00 not_dispatched"]);
    log.pass(1, "07:30");
    assert_eq!(log.told(&[], "07:40:01"), ["06:00 missing", "07:00 missing"]);
    // The schedule of a done job is over, paused or not.
    let mut once = Log::begin(spec(schedule("at 2026-12-05T06:00")), at("05:30"));
    once.pass(1, "06:00");
    assert!(once.change(&Change::Pause, at("06:01")));
    assert_eq!(once.told(&[], "09:00"), ["06:00 paused"]);
}

#[test]
fn a_range_stands_for_all_its_firings_also_from_before_the_span() {
    let mut log = Log::hourly();
    log.pass(6, "11:30");
    let rows = [log.row("06:00", RunStatus::Succeeded), log.range("07:00", "10:00", 4)];
    let skipped = |hour: &str| format!("{hour} skipped missed");
    let four = ["07:00", "08:00", "09:00", "10:00"].map(skipped);
    let told = log.told(&rows, "11:30");
    assert_eq!((&told[0][..], &told[1..5], &told[5][..]), ("06:00 succeeded", &four[..], "11:00 missing"));
    let versions = log.versions();
    let later = Inquiry { from: at("09:00"), ..log.inquiry(&versions, at("11:30")) };
    let (told, summary) = audit(later, &rows[1..]);
    assert_eq!((told[0].scheduled_at, summary.skipped["missed"], summary.missing), (at("09:00"), 2, 1));
    // What a void row of a former decision says in between changes nothing.
    let rows = [rows[1].clone(), log.void("08:00", SkipReason::Superseded)];
    assert_eq!(log.told(&rows, "11:30")[2], "08:00 skipped missed");
}

#[test]
fn a_range_that_a_former_timetable_counted_says_nothing_of_this_one() {
    let mut log = Log::hourly();
    // Its row was written, and the copy died before the advance.
    let range = log.range("06:00", "09:00", 4);
    log.reschedule("09:10", "cron 0,30 * * * *");
    assert_eq!(
        log.told(std::slice::from_ref(&range), "09:20")[..3],
        ["06:00 skipped missed", "06:30 not_dispatched", "07:00 not_dispatched"]
    );
    log.pass(7, "09:20");
    let told = log.told(&[range.clone(), log.range("06:30", "09:00", 6)], "09:20");
    assert!(told.len() == 7 && told.iter().all(|one| one.ends_with("skipped missed")), "{told:?}");
}

#[test]
fn replays_are_told_beside_their_original_and_runs_by_hand_are_not_told() {
    let mut log = Log::hourly();
    log.pass(3, "08:00");
    let original = RunKey::scheduled(at("06:00"));
    let replay = |n: u32, status, made: &str| RunRow {
        first_enqueued_at: at(made),
        ..row(original.replay(n), status, log.job.generation)
    };
    let manual = RunKey::manual(at("06:00"), "ab12");
    let rows = [
        log.row("06:00", RunStatus::Dead),
        row(manual.clone(), RunStatus::Succeeded, 1),
        row(manual.replay(1), RunStatus::Dead, 1),
        replay(1, RunStatus::Dead, "07:10"),
        replay(10, RunStatus::Running, "07:40"),
        replay(2, RunStatus::Dead, "07:20"),
        log.row("07:00", RunStatus::Succeeded),
        row(RunKey::manual(at("08:00"), "ab12"), RunStatus::Succeeded, 1),
    ];
    assert_eq!(log.told(&rows, "08:30"), ["06:00 dead running", "07:00 succeeded", "08:00 missing"]);
    let mut succeeded = rows.clone();
    succeeded[3].status = RunStatus::Succeeded;
    assert_eq!(log.told(&succeeded, "08:30")[0], "06:00 dead succeeded");
    let versions = log.versions();
    let (told, summary) = audit(log.inquiry(&versions, at("08:30")), &succeeded);
    assert_eq!((summary.dead, summary.replayed, summary.beside), (1, 1, 0));
    assert!(told[0].standing.is_fine());
}

#[test]
fn what_was_run_although_nothing_was_due_is_counted_beside() {
    let mut log = Log::hourly();
    log.pass(2, "07:00");
    let [first, second] = ["06:00", "07:00"].map(|time| log.row(time, RunStatus::Succeeded));
    let rows = [first, log.row("06:30", RunStatus::Failed), log.void("06:45", SkipReason::Superseded), second];
    assert_eq!(log.told(&rows, "07:30"), ["06:00 succeeded", "07:00 succeeded"]);
    let versions = log.versions();
    assert_eq!(audit(log.inquiry(&versions, at("07:30")), &rows).1.beside, 1);
    let later = Inquiry { from: at("06:31"), ..log.inquiry(&versions, at("07:30")) };
    assert_eq!(audit(later, &rows).1.beside, 0, "it is not asked about");
}

#[test]
fn a_void_row_is_no_end_unless_a_cancel_wrote_it() {
    let mut log = Log::hourly();
    log.pass(1, "05:59:30");
    log.edit("05:59:40", |spec| spec.priority = Priority::Urgent);
    let rows = [log.void("06:00", SkipReason::Superseded)];
    assert_eq!(log.told(&rows, "06:05"), ["06:00 not_dispatched"]);
    log.pass(1, "06:05");
    assert_eq!(log.told(&rows, "06:09"), ["06:00 queued"]);
    assert_eq!(log.told(&rows, "06:30"), ["06:00 missing"]);
    assert!(log.change(&Change::Cancel, at("06:31")));
    assert_eq!(log.told(&rows, "06:40"), ["06:00 missing"]);
    assert_eq!(log.told(&[log.void("06:00", SkipReason::Cancelled)], "06:40"), ["06:00 skipped cancelled"]);
}
