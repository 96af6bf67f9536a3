//! What workers say of circuits, as text.

use super::{instant, table};
use chrono::{DateTime, Utc};
use punctual_core::report::{CircuitState, Said};
use punctual_core::target::Target;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// For people, at `now`.
pub fn circuits_table(circuits: &BTreeMap<(Target, CircuitState), Said>, now: DateTime<Utc>) -> String {
    if circuits.is_empty() {
        return "all circuits are closed".into();
    }
    let mut table = table(&["circuit", "state", "workers", "since", "for", "last said"]);
    for ((target, state), said) in circuits {
        let ago = |at: DateTime<Utc>| format!("{} s", (now - at).num_seconds());
        let (workers, last) = (said.workers.to_string(), format!("{} ago", ago(said.last)));
        table.add_row([target.as_str(), state.as_str(), &workers, &instant(said.since), &ago(said.since), &last]);
    }
    table.to_string()
}

/// The same for programs.
pub fn circuits_json(circuits: &BTreeMap<(Target, CircuitState), Said>, now: DateTime<Utc>) -> Value {
    let circuits = circuits.iter().map(|((target, state), said)| {
        json!({
            "target": target.as_str(), "state": state.as_str(), "workers": said.workers, "since": instant(said.since),
            "age_s": (now - said.since).num_seconds(), "last_said_s": (now - said.last).num_seconds(),
        })
    });
    Value::Array(circuits.collect())
}
