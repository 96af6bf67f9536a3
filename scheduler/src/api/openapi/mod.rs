//! The contract of the API, OpenAPI 3.1: made from the table of routes, so that no route can be without it.
//!
//! A further route is a further function in [`paths`]; what it shares with others (keys, roles, problems) is added here.

mod operation;
mod paths;
mod schemas;
mod shown;
mod status;
#[cfg(test)]
mod tests;

use super::routes::ROUTES;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// The contract, built once.
pub static DOCUMENT: LazyLock<Value> = LazyLock::new(document);

const ABOUT: &str = "\
Cron at scale: jobs are standing instructions, runs are their firings.\n\n\
A key is sent as `Authorization: Bearer punctual_…`; `punctual keys add` makes keys. It opens the jobs of one tenant, or of \
every tenant (then `Punctual-Tenant` says which one is meant), and has one of the roles `read`, `write` and `operate`, each of \
which opens what those before it do.\n\n\
Whatever is not done is said by a problem (RFC 9457, `application/problem+json`), with a pointer to each field that is wrong; \
what was sent is never repeated in it. A method that a path does not have is answered with 405 and `Allow`. After a 503, and \
after no answer at all, ask again: everything can be repeated but a run, and a job that is made without an id, where there is no `Idempotency-Key`.\n\n\
Instants are RFC 3339 in UTC, lengths of texts are in bytes of UTF-8. Names that are not known are refused, in bodies as in \
queries. Answers may have further fields in later versions.";

fn document() -> Value {
    let mut paths = Map::new();
    for route in &ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = paths::of(route.op).on(route);
    }
    let tags = paths::TAGS.map(|(name, description)| json!({"name": name, "description": description}));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Punctual", "version": env!("CARGO_PKG_VERSION"), "summary": "Jobs, runs and steering of Punctual over HTTP",
            "description": ABOUT, "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": tags,
        "paths": paths,
        "components": {
            "schemas": schemas(), "parameters": parameters(), "headers": headers(), "responses": operation::problems(),
            "securitySchemes": {"key": {
                "type": "http", "scheme": "bearer", "bearerFormat": "punctual_<id>_<secret>",
                "description": "A key of the API; the roles are `read`, `write` and `operate`.",
            }},
        },
    })
}

fn schemas() -> Map<String, Value> {
    let mut all = schemas::all();
    all.extend(shown::all());
    all.extend(paths::incident_schemas());
    all
}

fn parameters() -> Value {
    let header = |name: &str, description: &str, schema: Value| json!({"name": name, "in": "header", "description": description, "schema": schema});
    let version = "Only if the job has this version: one `ETag` of it, or `*` for any. Else 412.";
    let key = "Makes a repeat of the request the same request, for seven days. 1 to 255 characters of ASCII.";
    json!({
        "Tenant": header(
            "Punctual-Tenant",
            "Whose jobs are meant. A key for every tenant needs it where jobs are concerned; another key may name its own tenant.",
            json!({"type": "string", "format": "punctual-tenant", "pattern": "^[A-Za-z0-9._-]{1,64}$"}),
        ),
        "IfMatch": header(
            "If-Match",
            version,
            json!({
                "type": "string", "minLength": 1, "maxLength": 21, "pattern": "^(\\*|\"[0-9]{1,19}\")$",
                "examples": ["\"3\"", "*"],
            }),
        ),
        "IfNoneMatch": header("If-None-Match", "Only `*`: only if there is no such job. Else 412.", json!({"type": "string", "const": "*"})),
        "IdempotencyKey": header(
            "Idempotency-Key", key, json!({"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"}),
        ),
    })
}

fn headers() -> Value {
    let header = |description: &str, schema: Value| json!({"description": description, "schema": schema});
    let mut location = header("The address of the job.", json!({"type": "string", "pattern": "^/v1/jobs/"}));
    location["required"] = json!(true);
    let mut tag =
        header("The version of the job, for `If-Match`.", json!({"type": "string", "pattern": "^\"[0-9]+\"$"}));
    tag["required"] = json!(true);
    json!({
        "ETag": tag,
        "Location": location,
        "Idempotency-Replayed": header("Set where the answer is to a repeat.", json!({"type": "string", "const": "true"})),
        "Retry-After": header("After so many seconds to ask again.", json!({"type": "integer", "minimum": 1})),
        "WWW-Authenticate": header("How to show a key.", json!({"type": "string", "const": "Bearer"})),
        "Allow": header("What may be done here.", json!({"type": "string"})),
    })
}
