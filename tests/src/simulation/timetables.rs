//! Schedules that fire a few times within a simulation, and an independent reading of them.
//!
//! [`Calendar`] shares no code with the product's calendar: it looks at every real minute, or asks `chrono` what a wall
//! time means, and lists all firings around the simulated time.

use chrono::{DateTime, MappedLocalTime, NaiveDateTime, TimeDelta, TimeZone, Timelike, Utc};
use punctual_core::schedule::{DstGap, DstRepeat, Schedule, ScheduleText, Timing};
use punctual_core::zone::{Zones, parse_name};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::collections::BTreeSet;
use std::ops::Bound;

/// Before and after a schedule's drawing, how far the calendar is worked out.
const BACK: TimeDelta = TimeDelta::hours(2);
const AHEAD: TimeDelta = TimeDelta::hours(4);

/// When a simulation begins, and the zone whose clock matters there: an ordinary night, or minutes before a clock change.
pub fn start(random: &mut StdRng) -> (DateTime<Utc>, &'static str) {
    let (text, zone) = *[
        ("2026-10-05T03:13:20Z", "Asia/Kathmandu"),
        ("2026-10-05T03:57:41Z", "Europe/London"),
        ("2026-12-31T23:55:02Z", "UTC"),
        ("2026-03-08T06:54:10Z", "America/New_York"),
        ("2026-11-01T05:54:33Z", "America/New_York"),
        ("2026-11-01T06:53:07Z", "America/New_York"),
    ]
    .choose(random)
    .expect("not empty");
    (text.parse().expect("a valid instant"), zone)
}

/// A schedule that fires soon after `now`.
pub fn draw(now: DateTime<Utc>, zone: &str, zones: &Zones, random: &mut StdRng) -> Schedule {
    let soon = now + TimeDelta::seconds(random.random_range(-30..300));
    let minute = soon.with_timezone(&parse_name(zone).expect("a known zone")).minute();
    let later = (minute + random.random_range(2..9)) % 60;
    let when = match random.random_range(0..10) {
        0..4 => format!("every {}s from {}", random.random_range(60..300), soon.format("%Y-%m-%dT%H:%M:%SZ")),
        4 => "cron * * * * *".into(),
        5 => format!("cron */{} * * * *", random.random_range(2..6)),
        6 => format!("cron {minute},{later} 0-23 * * *"),
        7 => format!("cron {minute} 0-23 * * *"),
        8 => format!("cron 0,{later},30 0-23 * * *"),
        _ => format!("at {}", soon.format("%Y-%m-%dT%H:%M:%SZ")),
    };
    let gap = if random.random_bool(0.7) { DstGap::NextValid } else { DstGap::Skip };
    let text = ScheduleText {
        when: &when,
        tz: Some(zone),
        dst_gap: gap,
        dst_repeat: if random.random_bool(0.7) { DstRepeat::First } else { DstRepeat::Both },
        max_runs: random.random_bool(0.2).then(|| random.random_range(1..6)),
        ..ScheduleText::default()
    };
    text.read(now, zones).expect("what is drawn is valid").0
}

/// All firings of a schedule around an instant.
#[derive(Clone, Debug)]
pub struct Calendar {
    firings: BTreeSet<DateTime<Utc>>,
    /// Nothing is known of what lies behind this.
    pub known_until: DateTime<Utc>,
}

impl Calendar {
    /// The firings of `schedule` around `start`.
    pub fn around(start: DateTime<Utc>, schedule: &Schedule) -> Self {
        let (from, until) = (start - BACK, start + AHEAD);
        let firings = match &schedule.timing {
            Timing::At(at) => BTreeSet::from([*at]),
            Timing::AtLocal(_) => unreachable!("no such schedule is drawn"),
            Timing::Every { interval_s, anchor } => {
                let nth = |n: i32| *anchor + TimeDelta::seconds(*interval_s) * n;
                (0..).map(nth).take_while(|at| *at < until).collect()
            }
            Timing::Cron(cron) => {
                let fields = Fields::of(cron.written());
                if fields.is_wildcard() {
                    fields.real_minutes(from, until, schedule)
                } else {
                    fields.walls(from, until, schedule)
                }
            }
        };
        Calendar { firings, known_until: until }
    }

    /// The first firing after an instant.
    pub fn next(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.firings.range((Bound::Excluded(after), Bound::Unbounded)).next().copied()
    }
}

/// Minutes and hours of a cron expression: nothing else is drawn.
struct Fields {
    minutes: String,
    hours: String,
}

impl Fields {
    fn of(expression: &str) -> Self {
        let mut words = expression.split(' ').map(str::to_owned);
        let mut word = || words.next().expect("five fields");
        Fields { minutes: word(), hours: word() }
    }

    fn is_wildcard(&self) -> bool {
        self.minutes.starts_with('*') || self.hours.starts_with('*')
    }

    fn matches(&self, wall: NaiveDateTime) -> bool {
        let is_minute = match self.minutes.strip_prefix("*/") {
            Some(step) => wall.minute().is_multiple_of(step.parse().expect("a step")),
            None if self.minutes == "*" => true,
            None => self.minutes.split(',').any(|minute| minute.parse() == Ok(wall.minute())),
        };
        is_minute && matches!(self.hours.as_str(), "*" | "0-23")
    }

    fn real_minutes(&self, from: DateTime<Utc>, until: DateTime<Utc>, schedule: &Schedule) -> BTreeSet<DateTime<Utc>> {
        let shows = |at: &DateTime<Utc>| self.matches(at.with_timezone(&schedule.tz).naive_local());
        minutes(from.naive_utc(), until.naive_utc()).map(|at| at.and_utc()).filter(shows).collect()
    }

    fn walls(&self, from: DateTime<Utc>, until: DateTime<Utc>, schedule: &Schedule) -> BTreeSet<DateTime<Utc>> {
        let mut firings = BTreeSet::new();
        let local = |at: DateTime<Utc>| at.with_timezone(&schedule.tz).naive_local();
        // A day more on either side: walls are shifted by offsets.
        for wall in minutes(local(from) - TimeDelta::days(1), local(until) + TimeDelta::days(1)) {
            if !self.matches(wall) {
                continue;
            }
            match schedule.tz.from_local_datetime(&wall) {
                MappedLocalTime::Single(at) => drop(firings.insert(at.to_utc())),
                MappedLocalTime::Ambiguous(first, second) => {
                    firings.insert(first.to_utc());
                    if schedule.dst_repeat == DstRepeat::Both {
                        firings.insert(second.to_utc());
                    }
                }
                MappedLocalTime::None if schedule.dst_gap == DstGap::NextValid => {
                    let valid = minutes(wall, wall + TimeDelta::hours(3));
                    let after = valid.filter_map(|wall| schedule.tz.from_local_datetime(&wall).earliest()).next();
                    firings.extend(after.map(|at| at.to_utc()));
                }
                MappedLocalTime::None => {}
            }
        }
        firings.into_iter().filter(|at| (from..until).contains(at)).collect()
    }
}

fn minutes(from: NaiveDateTime, until: NaiveDateTime) -> impl Iterator<Item = NaiveDateTime> {
    let first = from.with_second(0).and_then(|at| at.with_nanosecond(0)).expect("0 is in range");
    (0..).map(move |n| first + TimeDelta::minutes(n)).take_while(move |at| *at < until)
}
