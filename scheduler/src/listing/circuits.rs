//! What workers say of circuits, as text.

use super::{instant, said, table};
use chrono::{DateTime, Utc};
use punctual_core::report::{CircuitState, Said};
use punctual_core::target::Target;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What the status shows of circuits, for people.
pub fn circuits_table(circuits: &[Value]) -> String {
    if circuits.is_empty() {
        return "all circuits are closed".into();
    }
    let mut table = table(&["circuit", "state", "workers", "since", "for", "last said"]);
    for circuit in circuits {
        let of = |name: &str| said(circuit, name);
        let (age, last) = (format!("{} s", of("age_s")), format!("{} s ago", of("last_said_s")));
        table.add_row([of("target"), of("state"), of("workers"), of("since"), age, last]);
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
