//! The heartbeat: a job of the installation's own that fires every minute and does nothing, through the whole way. When it
//! last ran, and how late, says in one figure whether all of it works.

use crate::deadline::StartRule;
use crate::job::{JobKey, JobSpec};
use crate::missed::MissedRule;
use crate::payload::Payload;
use crate::priority::Priority;
use crate::retry::RetryRule;
use crate::schedule::{ScheduleError, ScheduleText};
use crate::zone::Zones;
use chrono::{DateTime, Utc};

/// Whose job it is: no customer's.
const TENANT: &str = "punctual";
const ID: &str = "heartbeat";
/// A beat that is later than this is left out: the next one says the same.
const LATEST_S: u32 = 120;

/// Whether a job is the heartbeat.
pub fn is_heartbeat(key: &JobKey) -> bool {
    key.tenant() == TENANT && key.id() == ID
}

/// The job.
///
/// # Errors
/// When `now` lies outside the calendar.
pub fn spec(now: DateTime<Utc>, zones: &Zones) -> Result<JobSpec, ScheduleError> {
    let text = ScheduleText { when: "every 1m", ..ScheduleText::default() };
    let (schedule, anchor) = text.read(now, zones)?;
    Ok(JobSpec {
        key: JobKey::new(TENANT, ID).expect("the key is well formed"),
        name: Some("the whole way works".into()),
        schedule,
        anchor,
        priority: Priority::Normal,
        payload: Payload::Noop,
        retry: RetryRule::default(),
        spread: None,
        missed: MissedRule { start: StartRule::WithinS(LATEST_S), ..MissedRule::default() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_by_its_key_and_no_other_is_taken_for_it() {
        let now = DateTime::from_timestamp(1_790_000_000, 0).expect("a time");
        let spec = spec(now, &Zones::embedded()).expect("it can be made");
        assert!(is_heartbeat(&spec.key));
        assert_eq!(spec.schedule.shortest_interval_s(), Some(60));
        for (tenant, id) in [("punctual", "heartbeat2"), ("bank", "heartbeat")] {
            assert!(!is_heartbeat(&JobKey::new(tenant, id).expect("a key")), "{tenant}/{id}");
        }
    }
}
