//! How a job's timetable is laid out in its item: schedule, spread window, missed-run rule.

use crate::deadline::StartRule;
use crate::missed::{Many, MissedRule};
use crate::schedule::{CronExpression, DstGap, DstRepeat, Schedule, Timing};
use crate::zone;
use chrono::serde::ts_seconds_option;
use chrono::{DateTime, NaiveDateTime, NaiveTime, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

/// One of `at`, `at_local`, `every` and `cron` is there; what has its default is left out.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ScheduleItem {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at_local: Option<NaiveDateTime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    every: Option<EveryItem>,
    /// As written.
    #[serde(skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    /// With numbers in place of hashed fields, where it has any: what counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    resolved: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tz: Option<String>,
    #[serde(skip_serializing_if = "is_default")]
    dst_gap: DstGap,
    #[serde(skip_serializing_if = "is_default")]
    dst_repeat: DstRepeat,
    #[serde(skip_serializing_if = "Option::is_none", with = "ts_seconds_option")]
    start_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none", with = "ts_seconds_option")]
    end_at: Option<DateTime<Utc>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_runs: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct EveryItem {
    interval_s: i64,
    anchor: DateTime<Utc>,
}

impl ScheduleItem {
    pub(super) fn of(schedule: &Schedule) -> Self {
        let mut item = ScheduleItem {
            tz: (schedule.tz != Tz::UTC).then(|| schedule.tz.name().to_owned()),
            dst_gap: schedule.dst_gap,
            dst_repeat: schedule.dst_repeat,
            start_at: schedule.start_at,
            end_at: schedule.end_at,
            max_runs: schedule.max_runs,
            ..ScheduleItem::default()
        };
        match &schedule.timing {
            Timing::At(at) => item.at = Some(*at),
            Timing::AtLocal(wall) => item.at_local = Some(*wall),
            Timing::Every { interval_s, anchor } => {
                item.every = Some(EveryItem { interval_s: *interval_s, anchor: *anchor });
            }
            Timing::Cron(cron) => {
                item.cron = Some(cron.written().to_owned());
                item.resolved = (cron.resolved() != cron.written()).then(|| cron.resolved().to_owned());
            }
        }
        item
    }

    pub(super) fn schedule(self) -> Result<Schedule, String> {
        let timing = match (self.at, self.at_local, self.every, self.cron) {
            (Some(at), None, None, None) => Timing::At(at),
            (None, Some(wall), None, None) => Timing::AtLocal(wall),
            (None, None, Some(EveryItem { interval_s, anchor }), None) => Timing::Every { interval_s, anchor },
            (None, None, None, Some(cron)) => {
                let resolved = self.resolved.as_ref().unwrap_or(&cron);
                Timing::Cron(CronExpression::stored(&cron, resolved).map_err(|e| e.to_string())?)
            }
            _ => return Err("schedule: expected one of `at`, `at_local`, `every` and `cron`".into()),
        };
        Ok(Schedule {
            timing,
            tz: self.tz.map_or(Ok(Tz::UTC), |name| zone::parse_name(&name))?,
            dst_gap: self.dst_gap,
            dst_repeat: self.dst_repeat,
            start_at: self.start_at,
            end_at: self.end_at,
            max_runs: self.max_runs,
        })
    }
}

#[derive(Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct MissedItem {
    #[serde(skip_serializing_if = "is_default")]
    many: Many,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_within_s: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until_local: Option<NaiveTime>,
}

impl MissedItem {
    pub(super) fn of(rule: MissedRule) -> Self {
        let (start_within_s, until_local) = match rule.start {
            StartRule::Always => (None, None),
            StartRule::WithinS(s) => (Some(s), None),
            StartRule::UntilLocal(time) => (None, Some(time)),
        };
        MissedItem { many: rule.many, start_within_s, until_local }
    }

    pub(super) fn rule(self) -> Result<MissedRule, String> {
        let start = match (self.start_within_s, self.until_local) {
            (None, None) => StartRule::Always,
            (Some(s), None) => StartRule::WithinS(s),
            (None, Some(time)) => StartRule::UntilLocal(time),
            _ => return Err("missed: expected `start_within_s` or `until_local`, not both".into()),
        };
        Ok(MissedRule { many: self.many, start })
    }
}

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
