//! Limits, shares and holds as text.

use super::{instant, lines, table};
use punctual_core::rate::Shares;
use punctual_core::steering::{Hold, Scope, Steering};
use punctual_core::target::Target;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Limits as text.
pub fn limits(steering: &Steering, as_json: bool) -> String {
    let limited = steering.limited();
    let is_set = |target: &Target| steering.limits.contains_key(target);
    if as_json {
        return json!({"limits": limits_json(steering)}).to_string();
    }
    let mut table = table(&["target", "calls a second", ""]);
    for (target, limit) in &limited {
        let whose = if is_set(target) { "" } else { "the default" };
        table.add_row([target.as_str(), &limit.to_string(), whose]);
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

/// Limits with who holds how many shares of them, for people.
pub fn shares_table(steering: &Steering, shares: &BTreeMap<Target, Shares>) -> String {
    let mut table = table(&["target", "calls a second", "worker", "shares", "calls a second of it"]);
    for (target, limit) in steering.limited() {
        let all = u64::from(limit.get());
        table.add_row([target.as_str(), &all.to_string(), "", "", ""]);
        let holders = shares.get(&target).map(|shares| &shares.holders);
        for (worker, holder) in holders.into_iter().flatten() {
            let part = all as f64 * f64::from(holder.shares) / f64::from(punctual_core::rate::SHARES);
            table.add_row(["", "", worker, &holder.shares.to_string(), &format!("{part:.1}")]);
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

/// Holds as text.
pub fn holds(holds: &[Hold], as_json: bool) -> String {
    if as_json {
        return lines(holds.iter().map(hold_json));
    }
    if holds.is_empty() {
        return "nothing is held".into();
    }
    let mut table = table(&["held", "by", "since", "why"]);
    for hold in holds {
        table.add_row([scope(&hold.scope), hold.by.clone(), instant(hold.since), hold.why.clone()]);
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
