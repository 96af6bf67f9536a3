//! Jobs that are there already, as the API shows them, for a forecast.

use super::forecast::Counted;
use crate::api::document::read_schedule;
use chrono::{DateTime, Utc};
use punctual_core::payload::Handler;
use punctual_core::priority::Priority;
use punctual_core::schedule::Schedule;
use punctual_core::spread::Spread;
use punctual_core::target::Target;
use punctual_core::zone::Zones;
use serde::Deserialize;
use serde_json::Value;

/// What a forecast asks of a job that is there.
pub struct Stored {
    schedule: Schedule,
    spread: Option<Spread>,
    priority: Priority,
    target: Target,
    handler: Handler,
    next: DateTime<Utc>,
}

impl Stored {
    /// A job that fires; none for one that does not, or of which too little is shown.
    pub fn of(shown: &Value, now: DateTime<Utc>, zones: &Zones) -> Option<Self> {
        if shown["state"] != "active" {
            return None;
        }
        let id = shown["id"].as_str()?;
        let spread = Option::<Spread>::deserialize(&shown["spread"]).ok()?;
        let key = spread.as_ref().map_or(id, |spread| &spread.key);
        let (schedule, _) = read_schedule(&shown["schedule"], "/schedule", key, now, zones, &mut Vec::new())?;
        let left = shown["runs_left"].as_u64().and_then(|left| u32::try_from(left).ok());
        Some(Stored {
            schedule: Schedule { max_runs: left.or(schedule.max_runs), ..schedule },
            spread,
            priority: Priority::deserialize(&shown["priority"]).ok()?,
            target: shown["target"].as_str()?.parse().ok()?,
            handler: Handler::deserialize(&shown["payload"]["handler"]).ok()?,
            next: shown["next_run_at"].as_str()?.parse().ok()?,
        })
    }

    /// What is counted of it.
    pub fn counted(&self) -> Counted<'_> {
        let Stored { schedule, spread, priority, target, handler, next } = self;
        let (priority, target, handler, next) = (*priority, target.clone(), *handler, Some(*next));
        Counted { schedule, spread: spread.as_ref(), priority, target, handler, next }
    }
}
