//! What the routes of holds, limits and the state of the installation take and answer.

use super::super::operation::{Operation, in_path};
use super::{STEERING, to};
use serde_json::{Value, json};

pub(super) fn list_holds() -> Operation {
    Operation::new(STEERING, "listHolds", "List holds")
        .says("All of them; for a tenant's key those over its tenant, and over what everybody shares.")
        .shows(200, "All of them, on one page.", "Holds")
}

pub(super) fn put_hold() -> Operation {
    let examples = json!({"mended": {"value": {"why": "the gateway is being mended"}}});
    Operation::new(STEERING, "putHold", "Hold all, a tenant, a priority or a target")
        .says("Within 5 s nothing more of it is begun. Nothing is lost. A tenant's key can hold its tenant alone.")
        .with(scope())
        .takes("HoldInput", examples)
        .shows(200, "The hold that stands.", "Hold")
        .leads(200, to("deleteHold", "scope", "scope"))
}

pub(super) fn delete_hold() -> Operation {
    Operation::new(STEERING, "deleteHold", "End a hold").with(scope()).shows(200, "It is released.", "Released")
}

pub(super) fn list_rates() -> Operation {
    Operation::new(STEERING, "listRates", "List limits").shows(200, "All targets that have one, on one page.", "Rates")
}

pub(super) fn put_rate() -> Operation {
    let examples = json!({"usual": {"value": {"per_second": 450}}});
    Operation::new(STEERING, "putRate", "Limit the calls to a target")
        .says("In force within 10 s, over all workers together. Needs a key for every tenant.")
        .with(target())
        .takes("RateInput", examples)
        .shows(200, "The limit that holds.", "Rate")
        .leads(200, to("deleteRate", "target", "target"))
}

pub(super) fn delete_rate() -> Operation {
    Operation::new(STEERING, "deleteRate", "Take the limit of a target away")
        .says("Text messages go back to 450 a second. Needs a key for every tenant.")
        .with(target())
        .shows(200, "The limit that holds now, if any.", "Rate")
}

pub(super) fn status() -> Operation {
    Operation::new(STEERING, "getStatus", "Show shards, queues and workers")
        .says("Needs a key for every tenant.")
        .shows(200, "What is the case.", "Status")
}

fn scope() -> Value {
    let host = r"[A-Za-z0-9_:\[\]-][A-Za-z0-9._:\[\]-]{0,252}";
    let pattern = format!(
        "^(all|tenant/[A-Za-z0-9._-]{{1,64}}|priority/(urgent|normal|bulk)|target/(sms|email|queue|noop|webhook/{host}))$"
    );
    let schema = json!({"type": "string", "pattern": pattern, "examples": ["tenant/fuzz"]});
    in_path(
        "scope",
        "`all`, `tenant/bank`, `priority/bulk` or `target/sms`. A `/` in it is written `%2F`, or as it is.",
        schema,
    )
}

fn target() -> Value {
    let pattern = r"^(sms|email|queue|noop|webhook/[A-Za-z0-9_:\[\]-][A-Za-z0-9._:\[\]-]{0,252})$";
    let schema = json!({"type": "string", "pattern": pattern, "examples": ["sms"]});
    in_path(
        "target",
        "`sms`, `email`, `queue`, `noop`, or `webhook/` and a host. A `/` in it is written `%2F`, or as it is.",
        schema,
    )
}
