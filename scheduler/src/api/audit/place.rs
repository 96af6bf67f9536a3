//! Where a call of the audit ended, and so where the next one goes on: by jobs, for a page may hold others by then.

use chrono::{DateTime, Utc};
use punctual_core::ports::PageToken;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Where a call begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Place {
    /// The first and the last instant that are asked about: where nothing is said they are those of the first call.
    pub(super) span: Option<(DateTime<Utc>, DateTime<Utc>)>,
    /// The page of the listing.
    pub(super) page: Option<String>,
    /// Jobs of it that are done.
    pub(super) done: BTreeSet<String>,
    /// Jobs of it that are done up to an instant.
    pub(super) left: BTreeMap<String, DateTime<Utc>>,
}

impl Place {
    /// As a cursor holds it.
    pub(super) fn token(&self) -> PageToken {
        PageToken(json!(self).to_string())
    }

    /// What a cursor says.
    pub(super) fn read(PageToken(token): &PageToken) -> Option<Self> {
        serde_json::from_str(token).ok()
    }

    /// From which instant on a job is looked at; none = that was done. By the job alone: new jobs may move it to another page.
    pub(super) fn from(&self, id: &str, from: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if self.done.contains(id) {
            None
        } else {
            Some(self.left.get(id).map_or(from, |left_from| from.max(*left_from)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeDelta;

    #[test]
    fn a_place_is_read_as_it_was_written() {
        let at = DateTime::from_timestamp(1_790_000_000, 0).expect("a time");
        let place = Place {
            span: Some((at, at + TimeDelta::days(1))),
            page: Some("3|bank/c-0/bill".into()),
            done: ["c-1/bill".to_owned()].into(),
            left: [("c-2/bill".to_owned(), at)].into(),
        };
        for place in [Place::default(), place] {
            assert_eq!(Place::read(&place.token()), Some(place));
        }
        for wrong in ["", "{}", "x", "null"] {
            assert_eq!(Place::read(&PageToken(wrong.into())), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_call_goes_on_with_the_jobs_and_the_instants_that_the_one_before_it_left() {
        let at = |s: i64| DateTime::from_timestamp(1_790_000_000 + s, 0).expect("a time");
        let place =
            Place { done: ["c-1".to_owned()].into(), left: [("c-2".to_owned(), at(60))].into(), ..Place::default() };
        assert_eq!(["c-0", "c-1", "c-2"].map(|id| place.from(id, at(0))), [Some(at(0)), None, Some(at(60))]);
    }
}
