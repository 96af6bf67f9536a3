//! The jobs of an outage, and what each owes after it.

use crate::reminder;
use chrono::{DateTime, DurationRound, NaiveTime, SecondsFormat, TimeDelta, Timelike, Utc};
use punctual_core::deadline::StartRule;
use punctual_core::job::JobSpec;
use punctual_core::missed::{Many, MissedRule};
use punctual_core::priority::Priority;
use punctual_core::schedule::{Schedule, ScheduleText};
use punctual_core::spread::Spread;
use punctual_core::zone::Zones;

/// For how long nobody looked: 08:58 to 09:47.
const LENGTH: TimeDelta = TimeDelta::minutes(49);
/// Firings of a minutely job in that time, both ends included.
const MINUTES: u32 = 50;
/// Zones whose clocks never change, and how many minutes they are ahead of UTC.
const ZONES: [(&str, i64); 4] = [("UTC", 0), ("Asia/Kolkata", 330), ("Asia/Kathmandu", 345), ("Asia/Dubai", 240)];
const MANY: [Many; 3] = [Many::Latest, Many::All, Many::None];

/// When nobody looked. Both ends are whole minutes.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    /// Its beginning.
    pub down: DateTime<Utc>,
    /// Its end.
    pub up: DateTime<Utc>,
}

/// A firing that is owed.
#[derive(Clone, Copy, Debug)]
pub struct Owed {
    /// Its nominal instant.
    pub scheduled_at: DateTime<Utc>,
    /// When it should have started.
    pub due_at: DateTime<Utc>,
    /// Until when it may start.
    pub deadline: Option<DateTime<Utc>>,
}

/// A job, and what it owes.
#[derive(Clone, Debug)]
pub struct Case {
    /// The job.
    pub spec: JobSpec,
    /// What it owes, the oldest first.
    pub owed: Vec<Owed>,
    /// Where it stands when nothing is owed any more; none = it is done.
    pub then: Option<DateTime<Utc>>,
}

impl Outage {
    /// The one that has ended with the minute of `now`.
    pub fn ending_at(now: DateTime<Utc>) -> Self {
        let up = now.duration_trunc(TimeDelta::minutes(1)).expect("the present is in the range of nanoseconds");
        Outage { down: up - LENGTH, up }
    }

    /// When its jobs were made: right before it.
    pub fn made_at(&self) -> DateTime<Utc> {
        self.down - TimeDelta::seconds(1)
    }
}

/// How often a job fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Minutely,
    Hourly,
    Daily,
    Once,
}

impl Case {
    /// The n-th case of an outage. A hundred in a row hold every shape, fifteen of a shape every rule.
    pub fn nth(n: usize, outage: &Outage, zones: &Zones) -> Case {
        let seconds = LENGTH.num_seconds();
        let (shape, is_spread) = match n % 100 {
            0..6 => (Shape::Minutely, false),
            6..20 => (Shape::Hourly, false),
            20..40 => (Shape::Once, false),
            40..60 => (Shape::Daily, true),
            _ => (Shape::Daily, false),
        };
        // A prime step visits every second; what is spread over half an hour begins early enough to be due in the outage,
        // what fires each hour late enough not to fire again while it is worked off.
        let place = n as i64 * 641;
        let at = match shape {
            Shape::Minutely => outage.down,
            Shape::Hourly => outage.up - TimeDelta::seconds(place % (seconds / 2)),
            _ if is_spread => outage.down + TimeDelta::seconds(place % (seconds - 1_860)),
            _ => outage.down + TimeDelta::seconds(place % (seconds + 1)),
        };
        let (tz, ahead) = ZONES[n % ZONES.len()];
        let ahead = TimeDelta::minutes(ahead);
        let start = start_rule(n / 3 + n / 100, outage, ahead);
        let spread = is_spread.then(|| Spread { key: format!("c-{n}"), window_s: 1_800 });
        let (schedule, at) = schedule(n, shape, at, ahead, tz, outage, zones);
        let owed = owed(shape, at, spread.as_ref(), start, ahead);
        let interval = match shape {
            Shape::Hourly => Some(TimeDelta::hours(1)),
            Shape::Daily => Some(TimeDelta::days(1)),
            Shape::Minutely | Shape::Once => None,
        };
        let priority = if is_spread { Priority::Bulk } else { Priority::ALL[n % Priority::ALL.len()] };
        let missed = MissedRule { many: MANY[(n + n / 100) % MANY.len()], start };
        let spec = JobSpec { schedule, priority, spread, missed, ..reminder(&format!("c-{n}/bill"), "every 24h") };
        Case { spec, owed, then: interval.map(|interval| at + interval) }
    }
}

/// How late a run may start: always, or by an age or a time of day that is over for all, for some, or for none.
fn start_rule(n: usize, outage: &Outage, ahead: TimeDelta) -> StartRule {
    let time = |at: DateTime<Utc>| {
        let wall = (at + ahead).time();
        NaiveTime::from_hms_opt(wall.hour(), wall.minute(), 0).expect("a clock shows it")
    };
    match n % 5 {
        0 => StartRule::Always,
        1 => StartRule::WithinS(600),
        2 => StartRule::WithinS(4 * 3_600),
        3 => StartRule::UntilLocal(time(outage.up - TimeDelta::minutes(10))),
        _ => StartRule::UntilLocal(time(outage.up + TimeDelta::hours(5))),
    }
}

/// A schedule whose first firing is at about `at`, and that very instant: cron fires on whole minutes only.
fn schedule(
    n: usize,
    shape: Shape,
    at: DateTime<Utc>,
    ahead: TimeDelta,
    tz: &str,
    outage: &Outage,
    zones: &Zones,
) -> (Schedule, DateTime<Utc>) {
    let instant = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
    let minute = at.duration_trunc(TimeDelta::minutes(1)).expect("the present is in the range of nanoseconds");
    let wall = minute + ahead;
    let is_cron = n.is_multiple_of(2);
    let (when, at) = match shape {
        Shape::Minutely if is_cron => ("cron * * * * *".to_owned(), at),
        Shape::Minutely => (format!("every 60s from {}", instant(at)), at),
        Shape::Hourly if is_cron => (format!("cron {} * * * *", wall.minute()), minute),
        Shape::Hourly => (format!("every 1h from {}", instant(at)), at),
        Shape::Daily if is_cron => (format!("cron {} {} * * *", wall.minute(), wall.hour()), minute),
        Shape::Daily => (format!("every 24h from {}", instant(at)), at),
        Shape::Once if is_cron => (format!("at {}", (at + ahead).format("%Y-%m-%dT%H:%M:%S")), at),
        Shape::Once => (format!("at {}", instant(at)), at),
    };
    let end_at = instant(outage.up);
    // A minutely job ends with the outage, by a bound or by its count.
    let (end_at, max_runs) = match shape {
        Shape::Minutely if n.is_multiple_of(3) => (None, Some(MINUTES)),
        Shape::Minutely => (Some(end_at.as_str()), None),
        _ => (None, None),
    };
    let text = ScheduleText { when: &when, tz: Some(tz), end_at, max_runs, ..ScheduleText::default() };
    let (schedule, _) = text.read(outage.made_at(), zones).expect("a valid schedule");
    (schedule, at)
}

fn owed(shape: Shape, first: DateTime<Utc>, spread: Option<&Spread>, start: StartRule, ahead: TimeDelta) -> Vec<Owed> {
    let count = if shape == Shape::Minutely { MINUTES } else { 1 };
    let owe = |n: u32| {
        let scheduled_at = first + TimeDelta::minutes(i64::from(n));
        let due_at = scheduled_at + spread.map(Spread::offset).unwrap_or_default();
        Owed { scheduled_at, due_at, deadline: deadline(start, due_at, ahead) }
    };
    (0..count).map(owe).collect()
}

/// Until when a run may start whose customer's clock is always ahead by so much.
fn deadline(start: StartRule, due_at: DateTime<Utc>, ahead: TimeDelta) -> Option<DateTime<Utc>> {
    match start {
        StartRule::Always => None,
        StartRule::WithinS(s) => Some(due_at + TimeDelta::seconds(i64::from(s))),
        StartRule::UntilLocal(time) => {
            let wall = (due_at + ahead).naive_utc();
            let today = wall.date().and_time(time);
            let next = if today > wall { today } else { today + TimeDelta::days(1) };
            Some(next.and_utc() - ahead)
        }
    }
}
