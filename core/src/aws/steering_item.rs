//! The item that holds limits and holds.

use super::job_item::Item;
use super::jobs::{number, text};
use super::shares::number_in;
use crate::steering::{Hold, Steering};
use crate::target::Target;
use aws_sdk_dynamodb::types::AttributeValue;
use chrono::DateTime;
use std::collections::HashMap;
use std::num::NonZeroU32;

/// The key of the item in the control table.
pub(super) const STEERING: &str = "steering";

pub(super) fn to_item(steering: &Steering) -> Item {
    let limits = steering.limits.iter().map(|(target, limit)| (target.to_string(), number(limit)));
    let hold = |hold: &Hold| {
        AttributeValue::M(HashMap::from([
            ("scope".into(), text(&hold.scope.to_string())),
            ("by".into(), text(&hold.by)),
            ("why".into(), text(&hold.why)),
            ("since_s".into(), number(hold.since.timestamp())),
        ]))
    };
    HashMap::from([
        ("control_id".into(), text(STEERING)),
        ("revision".into(), number(steering.revision)),
        ("limits".into(), AttributeValue::M(limits.collect())),
        ("holds".into(), AttributeValue::L(steering.holds.iter().map(hold).collect())),
    ])
}

/// None where anything cannot be understood: a hold that is not understood must not be overlooked.
pub(super) fn from_item(item: &Item) -> Option<Steering> {
    let limits = item.get("limits")?.as_m().ok()?.iter().map(|(target, limit)| {
        let limit: NonZeroU32 = limit.as_n().ok()?.parse().ok()?;
        Some((target.parse::<Target>().ok()?, limit))
    });
    let holds = item.get("holds")?.as_l().ok()?.iter().map(|value| {
        let hold = value.as_m().ok()?;
        let said = |name: &str| hold.get(name)?.as_s().ok();
        Some(Hold {
            scope: said("scope")?.parse().ok()?,
            by: said("by")?.clone(),
            why: said("why")?.clone(),
            since: DateTime::from_timestamp(number_in(hold, "since_s")?, 0)?,
        })
    });
    Some(Steering {
        revision: number_in(item, "revision")?,
        limits: limits.collect::<Option<_>>()?,
        holds: holds.collect::<Option<_>>()?,
    })
}
