//! What the routes that need no key answer.

use super::super::operation::Operation;
use super::SERVICE;
use serde_json::json;

pub(super) fn healthz() -> Operation {
    Operation::new(SERVICE, "healthz", "Whether the process is up").shows(200, "It is.", "Up")
}

pub(super) fn readyz() -> Operation {
    Operation::new(SERVICE, "readyz", "Whether store and queues can be reached")
        .shows(200, "They can.", "Readiness")
        .shows(503, "They cannot, or the clock of the host is off.", "Readiness")
}

pub(super) fn contract() -> Operation {
    Operation::new(SERVICE, "getContract", "Show this contract").gives(
        200,
        "OpenAPI 3.1.",
        &json!({"type": "object", "required": ["openapi", "info", "paths"]}),
    )
}

pub(super) fn docs() -> Operation {
    let page = json!({"description": "A page for people.", "content": {"text/html": {"schema": {"type": "string"}}}});
    Operation::new(SERVICE, "getDocs", "Show this contract as a page").answers(200, page)
}
