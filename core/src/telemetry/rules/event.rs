//! The rules of CloudWatch's embedded metric format: a schema, and what a schema cannot say.

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;
use std::collections::BTreeSet;

/// What an event may be in all (the format's specification).
pub const LIMIT_BYTES: usize = 256 * 1024;
/// Metrics in one event, as strict as in one directive.
const MOST_METRICS: usize = 100;

/// The format's rules.
pub struct Rules {
    schemas: Schemas,
    schema: SchemaIndex,
}

impl Default for Rules {
    fn default() -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        let url = "https://punctual.example/event.json";
        let schema = serde_json::from_str(include_str!("event.json")).expect("the schema is JSON");
        compiler.add_resource(url, schema).expect("the schema has a place of its own");
        let schema = compiler.compile(url, &mut schemas).expect("the schema is one");
        Rules { schemas, schema }
    }
}

impl Rules {
    /// Reads a line that keeps to them.
    ///
    /// # Errors
    /// Says which of them it does not keep to.
    pub fn check(&self, line: &str) -> Result<Value, String> {
        if line.contains('\n') {
            return Err("more than a line".into());
        }
        if line.len() > LIMIT_BYTES {
            return Err(format!("{} bytes", line.len()));
        }
        let event: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
        self.schemas.validate(&event, self.schema).map_err(|e| e.to_string())?;
        let mut told = BTreeSet::new();
        for directive in items(&event["_aws"]["CloudWatchMetrics"]) {
            for key in items(&directive["Dimensions"]).iter().flat_map(items) {
                if !event[text(key)].is_string() {
                    return Err(format!("the dimension {key} has no value"));
                }
            }
            for metric in items(&directive["Metrics"]) {
                let name = text(&metric["Name"]);
                let target = &event[name];
                if !told.insert(name) || target.is_string() || target.is_null() {
                    return Err(format!("{name} is told twice, or not at all"));
                }
                if target.is_object() && items(&target["Values"]).len() != items(&target["Counts"]).len() {
                    return Err(format!("{name} has not one count for each value"));
                }
            }
        }
        if told.len() > MOST_METRICS { Err("too many metrics".into()) } else { Ok(event) }
    }
}

fn items(array: &Value) -> &[Value] {
    array.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
