//! From wall times that match to instants: what a clock change does to a cron job.
//!
//! Within one period of constant offset a zone's clock runs evenly, so a match is an instant. The walk goes from period to
//! period: at a gap it fires what fell into it, or drops it; in an overlap it lets each wall time fire in the pass that the
//! rule names. A *wildcard* job (minute or hour starts with `*`) follows real time: every matching minute that the clock
//! really shows, in both passes, and none of a gap.

use super::{CronExpression, DstGap, DstRepeat};
use crate::zone::Timeline;

/// What a cron job's firings follow from.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    pub(super) cron: &'a CronExpression,
    pub(super) gap: DstGap,
    pub(super) repeat: DstRepeat,
    pub(super) timeline: &'a Timeline,
}

/// A firing, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The instant.
    pub(super) at: i64,
    /// The wall time that matched.
    pub(super) wall: i64,
}

impl Walk<'_> {
    /// The first firing after `after` whose wall time is past `floor`, or is shown again by a job that asks for both passes.
    /// A wildcard job follows real time and has no floor.
    pub(super) fn next(&self, after: i64, floor: Option<i64>) -> Option<Step> {
        let line = self.timeline;
        let passed = floor.filter(|_| !self.cron.is_wildcard()).unwrap_or(i64::MIN);
        // Below this no wall time is worth a look.
        let floor = if self.repeat == DstRepeat::Both { i64::MIN } else { passed };
        let mut index = line.index_at(after);
        let mut offset = line.period(index)?.offset;
        // Nothing matches between `searched` and `wall`.
        let mut searched = floor.max(after + offset);
        let mut wall = self.cron.next_wall(searched)?;
        loop {
            while wall - offset < line.end(index) {
                if self.fires(index, wall, passed) {
                    return Some(Step { at: wall - offset, wall });
                }
                searched = wall;
                wall = self.cron.next_wall(searched)?;
            }
            index += 1;
            let period = line.period(index)?;
            let (expected, opens) = (period.start + offset, period.start + period.offset);
            offset = period.offset;
            if expected < opens && wall < opens {
                if !self.cron.is_wildcard() && self.gap == DstGap::NextValid && wall > passed {
                    return Some(Step { at: period.start, wall });
                }
                searched = floor.max(opens - 1);
                wall = self.cron.next_wall(searched)?;
            } else if opens <= searched {
                // The clock was put back: it shows times again that were passed already.
                searched = floor.max(opens - 1);
                wall = self.cron.next_wall(searched)?;
            }
        }
    }

    /// Whether a wall time fires in this period, or in another one that shows it too; up to `passed` all have fired once.
    fn fires(&self, index: usize, wall: i64, passed: i64) -> bool {
        let shows = |other: usize| self.timeline.shows(other, wall);
        match self.repeat {
            _ if self.cron.is_wildcard() => true,
            DstRepeat::Both => wall > passed || index > 0 && shows(index - 1),
            DstRepeat::First => index == 0 || !shows(index - 1),
            DstRepeat::Second => self.timeline.period(index + 1).is_none() || !shows(index + 1),
        }
    }
}
