//! One operation of the contract, put together: what it takes, what it answers, and what every route of its kind can answer.

use crate::api::problem::PROBLEM_JSON;
use crate::api::routes::Route;
use serde_json::{Map, Value, json};

/// The problems by which a request can end: status, name of the response, when it comes, and the ends of its `type`.
const PROBLEMS: [(u16, &str, &str, &[&str]); 13] = [
    (400, "Malformed", "A parameter, a header or the JSON itself cannot be read.", &["malformed-request"]),
    (401, "Unauthenticated", "There is no key, or none that opens.", &["unauthenticated"]),
    (403, "Forbidden", "The key does not open this: its role is too small, or it is another tenant's.", &["forbidden"]),
    (404, "NotFound", "There is no such thing, or it is another tenant's.", &["not-found"]),
    (405, "MethodNotAllowed", "The path is there, the method is not. `Allow` says which are.", &["method-not-allowed"]),
    (
        409,
        "Conflict",
        "What is there does not allow it.",
        &["job-exists", "job-erased", "idempotency-key-reused", "state", "unreadable", "not-scheduled", "not-missing"],
    ),
    (412, "Changed", "Somebody else changed it first, or a condition does not hold.", &["changed", "precondition"]),
    (413, "TooLarge", "The body is too long.", &["too-large"]),
    (415, "MediaType", "The body is of another media type.", &["media-type"]),
    (422, "Invalid", "The body can be read, but not be taken. `errors` points to each field.", &["invalid-body"]),
    (429, "TooManyRequests", "The key is used too often.", &["too-many-requests"]),
    (500, "Internal", "Something is broken. Nothing is known to be done.", &["internal"]),
    (503, "Unavailable", "Store or queue do not answer, or the clock of the host is off.", &["unavailable"]),
];

/// What every route that asks for a key can answer.
pub(super) const OF_A_KEY: [u16; 6] = [400, 401, 403, 429, 500, 503];
/// What every route that reads a body can answer.
pub(super) const OF_A_BODY: [u16; 3] = [413, 415, 422];

/// An operation.
pub(super) struct Operation {
    tag: &'static str,
    id: &'static str,
    summary: &'static str,
    description: String,
    parameters: Vec<Value>,
    body: Option<Value>,
    answers: Map<String, Value>,
}

impl Operation {
    /// An operation that takes nothing and answers nothing yet.
    pub(super) fn new(tag: &'static str, id: &'static str, summary: &'static str) -> Self {
        let (description, parameters, body, answers) = (String::new(), Vec::new(), None, Map::new());
        Operation { tag, id, summary, description, parameters, body, answers }
    }

    /// With what there is to know of it.
    pub(super) fn says(self, description: &str) -> Self {
        Operation { description: description.to_owned(), ..self }
    }

    /// With a parameter or header.
    pub(super) fn with(mut self, parameter: Value) -> Self {
        self.parameters.push(parameter);
        self
    }

    /// With a body in JSON of a named schema, that must be there.
    pub(super) fn takes(self, schema: &str, examples: Value) -> Self {
        self.takes_as(&["application/json"], &reference(schema), examples, true)
    }

    /// With a body of some media types.
    pub(super) fn takes_as(mut self, kinds: &[&str], schema: &Value, examples: Value, is_needed: bool) -> Self {
        let content: Map<String, Value> =
            kinds.iter().map(|kind| ((*kind).to_owned(), json!({"schema": schema, "examples": examples}))).collect();
        self.body = Some(json!({"required": is_needed, "content": content}));
        self.fails(&OF_A_BODY)
    }

    /// With an answer in JSON of a schema.
    pub(super) fn gives(self, status: u16, description: &str, schema: &Value) -> Self {
        let content = json!({"application/json": {"schema": schema}});
        self.answers(status, json!({"description": description, "content": content}))
    }

    /// With an answer of a named schema.
    pub(super) fn shows(self, status: u16, description: &str, schema: &str) -> Self {
        self.gives(status, description, &reference(schema))
    }

    /// With an answer of any kind.
    pub(super) fn answers(mut self, status: u16, answer: Value) -> Self {
        self.answers.insert(status.to_string(), answer);
        self
    }

    /// With headers of an answer that it has already.
    pub(super) fn tells(mut self, status: u16, headers: &[&str]) -> Self {
        let headers: Map<String, Value> = headers
            .iter()
            .map(|name| ((*name).to_owned(), json!({"$ref": format!("#/components/headers/{name}")})))
            .collect();
        let answer = self.answers.get_mut(&status.to_string()).expect("headers are told of an answer that is there");
        answer["headers"] = json!(headers);
        self
    }

    /// With links from an answer that it has already: what can be asked for next.
    pub(super) fn leads(mut self, status: u16, links: Value) -> Self {
        let answer = self.answers.get_mut(&status.to_string()).expect("links lead from an answer that is there");
        answer["links"] = links;
        self
    }

    /// With problems by which it can end.
    pub(super) fn fails(mut self, statuses: &[u16]) -> Self {
        for status in statuses {
            self.answers
                .insert(status.to_string(), json!({"$ref": format!("#/components/responses/{}", name(*status))}));
        }
        self
    }

    /// The operation as the contract has it, on its route.
    pub(super) fn on(self, route: &Route) -> Value {
        let operation = match route.role {
            Some(_) => self.fails(&OF_A_KEY),
            None => self,
        };
        let operation = if route.path.contains('{') { operation.fails(&[404]) } else { operation };
        let needs = match route.role {
            Some(role) => format!("Needs a key with the role `{role}`, or a greater one."),
            None => "Needs no key.".to_owned(),
        };
        let description = [needs, operation.description].join("\n\n");
        let mut shown = json!({
            "operationId": operation.id, "tags": [operation.tag], "summary": operation.summary,
            "description": description.trim_end(), "responses": operation.answers,
        });
        shown["security"] = match route.role {
            Some(role) => json!([{"key": [role]}]),
            None => json!([]),
        };
        let mut parameters = operation.parameters;
        if route.role.is_some() {
            parameters.push(json!({"$ref": "#/components/parameters/Tenant"}));
        }
        if !parameters.is_empty() {
            shown["parameters"] = json!(parameters);
        }
        if let Some(body) = operation.body {
            shown["requestBody"] = body;
        }
        shown
    }
}

/// Points to a named schema.
pub(super) fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

/// A variable part of the path.
pub(super) fn in_path(name: &str, description: &str, schema: Value) -> Value {
    json!({"name": name, "in": "path", "required": true, "description": description, "schema": schema})
}

/// A parameter of the query, which may be left out.
pub(super) fn in_query(name: &str, description: &str, schema: Value) -> Value {
    json!({"name": name, "in": "query", "description": description, "schema": schema})
}

/// A header or parameter that several operations take.
pub(super) fn shared(name: &str) -> Value {
    json!({"$ref": format!("#/components/parameters/{name}")})
}

fn name(status: u16) -> &'static str {
    let known = PROBLEMS.iter().find(|(known, ..)| *known == status);
    known.map(|(_, name, ..)| *name).expect("every problem that is said to come is known")
}

/// All problems, as responses that operations point to.
pub(super) fn problems() -> Value {
    let all = PROBLEMS.iter().map(|(status, name, description, kinds)| {
        let kinds: Vec<String> = kinds.iter().map(|kind| format!("urn:punctual:problem:{kind}")).collect();
        let said = json!({"properties": {"status": {"const": status}, "type": {"enum": kinds}}});
        let schema = json!({"allOf": [reference("Problem"), said]});
        let mut response = json!({"description": description, "content": {PROBLEM_JSON: {"schema": schema}}});
        let header = match status {
            401 => Some("WWW-Authenticate"),
            405 => Some("Allow"),
            429 | 503 => Some("Retry-After"),
            _ => None,
        };
        if let Some(header) = header {
            response["headers"] = json!({header: {"$ref": format!("#/components/headers/{header}")}});
        }
        ((*name).to_owned(), response)
    });
    Value::Object(all.collect())
}
