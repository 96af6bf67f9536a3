//! The item that holds the keys of the HTTP API.

use super::job_item::Item;
use super::jobs::{number, text};
use super::shares::number_in;
use crate::access::{ApiKey, ApiKeys};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use chrono::DateTime;
use std::collections::HashMap;

/// The key of the item in the control table.
pub(super) const API_KEYS: &str = "api-keys";

pub(super) fn to_item(keys: &ApiKeys) -> Item {
    let key = |key: &ApiKey| {
        let mut item = HashMap::from([
            ("id".to_owned(), text(&key.id)),
            ("hash".to_owned(), AttributeValue::B(Blob::new(key.hash))),
            ("reach".to_owned(), text(&key.reach.to_string())),
            ("role".to_owned(), text(key.role.as_str())),
            ("label".to_owned(), text(&key.label)),
            ("made_by".to_owned(), text(&key.made_by)),
            ("made_at".to_owned(), number(key.made_at.timestamp())),
        ]);
        if let Some(at) = key.revoked_at {
            item.insert("revoked_at".to_owned(), number(at.timestamp()));
        }
        AttributeValue::M(item)
    };
    HashMap::from([
        ("control_id".into(), text(API_KEYS)),
        ("revision".into(), number(keys.revision)),
        ("keys".into(), AttributeValue::L(keys.keys.iter().map(key).collect())),
    ])
}

/// None where anything cannot be understood: a revocation that is not understood must not be overlooked.
pub(super) fn from_item(item: &Item) -> Option<ApiKeys> {
    let keys = item.get("keys")?.as_l().ok()?.iter().map(|value| {
        let key = value.as_m().ok()?;
        let said = |name: &str| key.get(name)?.as_s().ok();
        let revoked_at = match key.get("revoked_at") {
            None => None,
            Some(_) => Some(DateTime::from_timestamp(number_in(key, "revoked_at")?, 0)?),
        };
        Some(ApiKey {
            id: said("id")?.clone(),
            hash: key.get("hash")?.as_b().ok()?.as_ref().try_into().ok()?,
            reach: said("reach")?.parse().ok()?,
            role: said("role")?.parse().ok()?,
            label: said("label")?.clone(),
            made_by: said("made_by")?.clone(),
            made_at: DateTime::from_timestamp(number_in(key, "made_at")?, 0)?,
            revoked_at,
        })
    });
    Some(ApiKeys { revision: number_in(item, "revision")?, keys: keys.collect::<Option<_>>()? })
}
