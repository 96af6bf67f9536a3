//! What will happen, shown before it happens: firings, and what the clock changes between them do.

use super::{CronExpression, DstGap, DstRepeat, Firing, Schedule, Timing};
use crate::zone::{Timeline, Zones, naive};
use chrono::{DateTime, NaiveDateTime, Utc};

/// One line of a preview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// When it fires; none for wall times that a clock change drops.
    pub at: Option<DateTime<Utc>>,
    /// What the schedule asked the clock to show: the first such time where several are dropped.
    pub wall: NaiveDateTime,
    /// What a clock change does to it.
    pub mark: Option<Mark>,
}

/// What a clock change does to a firing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Its wall time does not exist: it fires right after the gap.
    Moved {
        /// How many other wall times, of the gap or right behind it, fall together with it.
        together: usize,
    },
    /// Wall times that do not exist and do not fire.
    Dropped {
        /// How many.
        count: usize,
    },
    /// Its wall time exists twice, and fires this time only.
    Once(Pass),
    /// Its wall time exists twice, and fires both times.
    Twice(Pass),
}

/// Which of the two times a repeated wall time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Before the clock goes back.
    First,
    /// After that.
    Second,
}

/// The next `count` firings after `after`, and between them what clock changes drop.
pub fn preview(schedule: &Schedule, after: DateTime<Utc>, count: usize, zones: &Zones) -> Vec<Line> {
    let line = zones.timeline(schedule.tz);
    let count = schedule.max_runs.map_or(count, |most| count.min(most as usize));
    let mut lines = Vec::new();
    // What is dropped before the schedule begins is nobody's loss.
    let mut since = schedule.start_at.map_or(after, |start| after.max(start));
    let mut next = schedule.next_after(after, zones);
    if let (Timing::AtLocal(wall), None) = (&schedule.timing, next)
        && line.after_gap(wall.and_utc().timestamp()).is_some_and(|gap| gap > after.timestamp())
    {
        return vec![Line { at: None, wall: *wall, mark: Some(Mark::Dropped { count: 1 }) }];
    }
    for _ in 0..count {
        let Some(firing) = next else { break };
        if let Timing::Cron(cron) = &schedule.timing
            && (schedule.dst_gap == DstGap::Skip || cron.is_wildcard())
        {
            lines.extend(dropped(cron, line, since.timestamp(), firing.at.timestamp()));
        }
        let wall = firing.wall.unwrap_or_else(|| zones.wall(schedule.tz, firing.at));
        lines.push(Line { at: Some(firing.at), wall, mark: mark(schedule, &firing, line) });
        since = firing.at;
        next = schedule.next_firing(&firing, zones);
    }
    lines
}

/// The gaps between two instants, the second included, that swallow wall times.
fn dropped(cron: &CronExpression, line: &Timeline, since: i64, until: i64) -> Vec<Line> {
    let gaps = (line.index_at(since) + 1..=line.index_at(until)).filter_map(|index| {
        let (first, count) = matches_in_gap(cron, line, index)?;
        Some(Line { at: None, wall: naive(first), mark: Some(Mark::Dropped { count }) })
    });
    gaps.collect()
}

/// The first match in the gap before a period, and how many there are.
fn matches_in_gap(cron: &CronExpression, line: &Timeline, index: usize) -> Option<(i64, usize)> {
    let (before, now) = (line.period(index.checked_sub(1)?)?, line.period(index)?);
    let (closes, opens) = (now.start + before.offset, now.start + now.offset);
    let matches = std::iter::successors(cron.next_wall(closes - 1), |wall| cron.next_wall(*wall));
    let mut matches = matches.take_while(|wall| *wall < opens);
    Some((matches.next()?, 1 + matches.count()))
}

fn mark(schedule: &Schedule, firing: &Firing, line: &Timeline) -> Option<Mark> {
    let (at, wall) = (firing.at.timestamp(), firing.wall?.and_utc().timestamp());
    let cron = match &schedule.timing {
        Timing::Cron(cron) => Some(cron),
        _ => None,
    };
    if at + line.offset_at(at) != wall {
        let matches = cron.and_then(|cron| matches_in_gap(cron, line, line.index_at(at)));
        let shown = at + line.offset_at(at);
        let is_own = cron.is_some_and(|cron| cron.next_wall(shown - 1) == Some(shown));
        return Some(Mark::Moved { together: matches.map_or(0, |(_, count)| count - 1) + usize::from(is_own) });
    }
    let instants = line.instants_of(wall);
    if instants.len() < 2 {
        return None;
    }
    let pass = if instants.first() == Some(&at) { Pass::First } else { Pass::Second };
    let fires_twice = schedule.dst_repeat == DstRepeat::Both || cron.is_some_and(CronExpression::is_wildcard);
    Some(if fires_twice { Mark::Twice(pass) } else { Mark::Once(pass) })
}
