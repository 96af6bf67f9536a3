//! Limits, shares and holds: as the API shows them, and that as tables.

use super::{instant, list, said, table};
use punctual_core::rate::{SHARES, Shares};
use punctual_core::steering::{Hold, Scope, Steering};
use punctual_core::target::Target;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Limits as the API lists them.
pub fn limits(limits: &[Value]) -> String {
    let mut table = table(&["target", "calls a second", ""]);
    for limit in limits {
        let whose = if limit["is_default"] == true { "the default" } else { "" };
        table.add_row([said(limit, "target"), said(limit, "per_second"), whose.to_owned()]);
    }
    table.to_string()
}

/// Limits for programs.
pub fn limits_json(steering: &Steering) -> Value {
    let limits = steering.limited().into_iter().map(|(target, limit)| {
        let is_default = !steering.limits.contains_key(&target);
        json!({"target": target.as_str(), "per_second": limit, "is_default": is_default})
    });
    Value::Array(limits.collect())
}

/// Limits with who holds how many shares of them, as the status shows them.
pub fn shares_table(limits: &[Value]) -> String {
    let mut table = table(&["target", "calls a second", "worker", "shares", "calls a second of it"]);
    for limit in limits {
        let all = limit["per_second"].as_f64().unwrap_or_default();
        table.add_row([said(limit, "target"), said(limit, "per_second"), String::new(), String::new(), String::new()]);
        for (worker, shares) in limit["shares"].as_object().into_iter().flatten() {
            let part = all * shares.as_f64().unwrap_or_default() / f64::from(SHARES);
            table.add_row(["", "", worker, &shares.to_string(), &format!("{part:.1}")]);
        }
    }
    table.to_string()
}

/// The same for programs.
pub fn shares_json(steering: &Steering, shares: &BTreeMap<Target, Shares>) -> Value {
    let limits = steering.limited().into_iter().map(|(target, limit)| {
        let held = shares.get(&target).cloned().unwrap_or_default();
        let holders: BTreeMap<&String, u32> = held.holders.iter().map(|(id, holder)| (id, holder.shares)).collect();
        json!({"target": target.as_str(), "per_second": limit, "shares": holders, "shares_free": held.free()})
    });
    Value::Array(limits.collect())
}

/// Holds as the API lists them.
pub fn holds(holds: &[Value]) -> String {
    if holds.is_empty() {
        return "nothing is held".into();
    }
    let mut table = table(&["held", "by", "since", "why"]);
    for hold in holds {
        let named = said(hold, "scope");
        let named = named.parse().map_or(named, |of: Scope| scope(&of));
        table.add_row([named, said(hold, "by"), said(hold, "since"), said(hold, "why")]);
    }
    table.to_string()
}

/// One hold for programs.
pub fn hold_json(hold: &Hold) -> Value {
    json!({"scope": hold.scope.to_string(), "by": hold.by, "why": hold.why, "since": instant(hold.since)})
}

/// What a hold is about, in words.
pub fn scope(scope: &Scope) -> String {
    match scope {
        Scope::All => "everything".into(),
        Scope::Tenant(tenant) => format!("tenant {tenant}"),
        Scope::Priority(priority) => format!("priority {priority}"),
        Scope::Target(target) => format!("target {target}"),
    }
}

/// How many calls a second a target takes by these limits, if that is said.
pub(crate) fn limit_of(limits: &Value, target: &str) -> Option<u32> {
    let of = list(limits, "items").iter().find(|limit| limit["target"] == target)?;
    of["per_second"].as_u64().and_then(|limit| u32::try_from(limit).ok())
}
