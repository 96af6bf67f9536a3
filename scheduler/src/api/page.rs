//! The contract as a page for people, made on the server from the same document: no scripts, nothing from elsewhere.
//!
//! All that comes from the document is escaped, whoever wrote it.

use super::openapi::DOCUMENT;
use super::routes::ROUTES;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use std::fmt::Write;
use std::sync::LazyLock;

const STYLE: &str = include_str!("page.css");
/// Nothing is loaded and nothing is run: the style is in the page.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HTML: &str = "text/html; charset=utf-8";

static PAGE: LazyLock<String> = LazyLock::new(|| page(&DOCUMENT));

/// The page.
pub(super) fn show() -> Response {
    let mut response = PAGE.as_str().into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(HTML));
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    response
}

/// One operation on its route.
struct Shown<'a> {
    method: &'a str,
    path: &'a str,
    operation: &'a Value,
}

fn page(document: &Value) -> String {
    let info = &document["info"];
    let operations: Vec<Shown<'_>> = ROUTES
        .iter()
        .map(|route| {
            let method = route.method.as_str();
            let operation = &document["paths"][route.path][method.to_ascii_lowercase()];
            Shown { method, path: route.path, operation }
        })
        .collect();
    let (mut nav, mut main) = (String::new(), String::new());
    for tag in list(&document["tags"]) {
        let of_tag: Vec<&Shown<'_>> = operations.iter().filter(|one| one.operation["tags"][0] == tag["name"]).collect();
        let name = escape(text(&tag["name"]));
        let links = of_tag.iter().map(|one| {
            let id = escape(text(&one.operation["operationId"]));
            format!("<li><a href=\"#{id}\">{}</a></li>", escape(text(&one.operation["summary"])))
        });
        let _ = write!(nav, "<strong>{name}</strong><ul>{}</ul>", links.collect::<String>());
        let articles: String = of_tag.iter().map(|one| article(document, one)).collect();
        let _ = write!(main, "<h2>{name}</h2><p class=\"dim\">{}</p>{articles}", rich(text(&tag["description"])));
    }
    let schemas = document["components"]["schemas"].as_object();
    let links = schemas.into_iter().flat_map(Map::keys).map(|name| {
        let name = escape(name);
        format!("<li><a href=\"#schema-{name}\">{name}</a></li>")
    });
    let _ = write!(nav, "<strong>Forms</strong><ul>{}</ul>", links.collect::<String>());
    let forms = schemas.into_iter().flatten().map(|(name, schema)| {
        let name = escape(name);
        format!("<article id=\"schema-{name}\"><h3>{name}</h3>{}</article>", form(schema))
    });
    let _ = write!(main, "<h2>Forms</h2>{}", forms.collect::<String>());
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{title}</title><style>{STYLE}</style></head><body><div class=\"all\"><nav>{nav}</nav><main><h1>{title}</h1>\
         <p class=\"dim\">Version {version} · <a href=\"/openapi.json\">openapi.json</a></p>{about}{main}</main></div></body></html>",
        title = escape(text(&info["title"])),
        version = escape(text(&info["version"])),
        about = paragraphs(text(&info["description"])),
    )
}

fn article(document: &Value, shown: &Shown<'_>) -> String {
    let one = shown.operation;
    let mut html = format!(
        "<article id=\"{id}\"><h3>{summary}</h3><p><span class=\"method\">{method}</span> <code>{path}</code></p>{description}",
        id = escape(text(&one["operationId"])),
        summary = escape(text(&one["summary"])),
        method = escape(shown.method),
        path = escape(shown.path),
        description = paragraphs(text(&one["description"])),
    );
    let parameters = list(&one["parameters"]).iter().map(|parameter| {
        let parameter = resolved(document, parameter);
        let place = match text(&parameter["in"]) {
            "query" => "parameter",
            "path" => "in the path",
            place => place,
        };
        row(&[code(text(&parameter["name"])), escape(place), about(&parameter["schema"], &parameter["description"])])
    });
    html += &table("Parameters and headers", &["name", "where", "what"], parameters.collect());
    if let Some((_, body)) = first(&one["requestBody"]["content"]) {
        let kinds = one["requestBody"]["content"].as_object().into_iter().flat_map(Map::keys).map(|kind| code(kind));
        let kinds: Vec<String> = kinds.collect();
        let optional = if one["requestBody"]["required"] == true { "" } else { ", may be left out" };
        let _ = write!(html, "<h4>Body</h4><p>{}{optional}: {}</p>", kinds.join(" or "), kind_of(&body["schema"]));
        let schema = resolved(document, &body["schema"]);
        html += &form_fields(resolved(document, if schema["items"].is_object() { &schema["items"] } else { schema }));
    }
    let _ = write!(html, "<h4>Example</h4><pre><code>{}</code></pre>", escape(&curl(document, shown)));
    let answers = one["responses"].as_object().into_iter().flatten().map(|(status, answer)| {
        let answer = resolved(document, answer);
        let content = first(&answer["content"]);
        let shape = content.map_or_else(String::new, |(kind, content)| match kind {
            "application/problem+json" => format!("{} ", code(kind)),
            _ => format!("{} {} ", code(kind), kind_of(&content["schema"])),
        });
        let headers = answer["headers"].as_object().into_iter().flat_map(Map::keys).map(|name| code(name));
        let headers: Vec<String> = headers.collect();
        row(&[code(status), rich(text(&answer["description"])), shape, headers.join(" ")])
    });
    html += &table("Answers", &["status", "when", "what", "headers"], answers.collect());
    html + "</article>"
}

/// A named schema.
fn form(schema: &Value) -> String {
    let mut html = paragraphs(text(&schema["description"]));
    let is_plain = schema["properties"].is_object();
    if !is_plain {
        let _ = write!(html, "<p>{}</p>", kind_of(schema));
    }
    html += &form_fields(schema);
    for kind in ["oneOf", "anyOf"] {
        html.extend(list(&schema[kind]).iter().map(form_fields));
    }
    html
}

/// The fields of an object, with their limits; those that may be null only are not said.
fn form_fields(schema: &Value) -> String {
    let required: Vec<&str> = list(&schema["required"]).iter().map(text).collect();
    let mut fields: Vec<(&String, &Value)> = schema["properties"].as_object().into_iter().flatten().collect();
    fields.retain(|(_, field)| field["type"] != "null");
    fields.sort_by_key(|(name, _)| !required.contains(&name.as_str()));
    let rows = fields.into_iter().map(|(name, field)| {
        let needed = if required.contains(&name.as_str()) { "yes" } else { "" };
        row(&[code(name), needed.to_owned(), about(field, &field["description"])])
    });
    table("", &["field", "always", "what"], rows.collect())
}

/// What a value may be and means, with its own fields where it is an object without a name.
fn about(schema: &Value, description: &Value) -> String {
    let fields = unnamed_object(schema).map(form_fields).unwrap_or_default();
    format!("<span class=\"dim\">{}</span> {}{fields}", kind_of(schema), rich(text(description)))
}

fn unnamed_object(schema: &Value) -> Option<&Value> {
    if schema["properties"].is_object() {
        return Some(schema);
    }
    let parts = list(&schema["anyOf"]).iter().chain(schema.get("items"));
    parts.filter_map(unnamed_object).next()
}

/// What a value may be, with its limits.
fn kind_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|to| to.rsplit('/').next()) {
        let name = escape(name);
        return format!("<a href=\"#schema-{name}\">{name}</a>");
    }
    for kinds in ["oneOf", "anyOf", "allOf"] {
        let kinds: Vec<String> = list(&schema[kinds]).iter().filter(|one| one["type"] != "null").map(kind_of).collect();
        if !kinds.is_empty() {
            return kinds.join(" or ");
        }
    }
    if !schema["const"].is_null() {
        return value(&schema["const"]);
    }
    if schema["enum"].is_array() {
        let words = list(&schema["enum"]).iter().filter(|word| !word.is_null()).map(value);
        return words.collect::<Vec<_>>().join(", ") + &default(schema);
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.iter().map(text).find(|kind| *kind != "null").unwrap_or_default(),
        kind => text(kind),
    };
    let limits = |least: &str, most: &str, unit: &str| match (schema[least].as_u64(), schema[most].as_u64()) {
        (Some(least), Some(most)) => format!(", {least} to {most}{unit}"),
        (None, Some(most)) => format!(", at most {most}{unit}"),
        (Some(least), None) if least > 0 => format!(", at least {least}{unit}"),
        _ => String::new(),
    };
    let said = match kind {
        "string" => match text(&schema["format"]) {
            "date-time" => "instant".to_owned(),
            _ => format!("text{}", limits("minLength", "maxLength", " characters")),
        },
        "integer" => format!("whole number{}", limits("minimum", "maximum", "")),
        "array" => format!("list of {}{}", kind_of(&schema["items"]), limits("minItems", "maxItems", " entries")),
        "boolean" => "true or false".to_owned(),
        "" => "anything".to_owned(),
        kind => escape(kind),
    };
    let pattern = schema["pattern"].as_str().map(|pattern| format!(", {}", code(pattern))).unwrap_or_default();
    format!("{said}{pattern}{}", default(schema))
}

fn default(schema: &Value) -> String {
    if schema["default"].is_null() { String::new() } else { format!("; else {}", value(&schema["default"])) }
}

/// How it is asked for on a command line.
fn curl(document: &Value, shown: &Shown<'_>) -> String {
    let one = shown.operation;
    let path =
        ["{id}", "{run}", "{scope}", "{target}"].iter().zip(["c-1%2Fbill", "1791171000", "tenant%2Fbank", "sms"]);
    let path = path.fold(shown.path.to_owned(), |path, (name, example)| path.replace(name, example));
    let mut words = vec![format!("curl -X {} http://127.0.0.1:8080{path}", shown.method)];
    if !list(&one["security"]).is_empty() {
        words.push("-H \"Authorization: Bearer $PUNCTUAL_KEY\"".to_owned());
    }
    let has_key = |one: &Value| resolved(document, one)["name"] == "Idempotency-Key";
    if list(&one["parameters"]).iter().any(has_key) {
        words.push("-H 'Idempotency-Key: 7c0f-1'".to_owned());
    }
    let needs_body = one["requestBody"]["required"] == true;
    if let Some((kind, body)) = first(&one["requestBody"]["content"]).filter(|_| needs_body) {
        let example = first(&body["examples"]).map(|(_, example)| &example["value"]);
        let example = match example {
            Some(Value::Array(lines)) => lines.iter().map(|line| format!("{line}\n")).collect(),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        words.push(format!("-H 'Content-Type: {kind}'"));
        words.push(format!("--data-binary '{}'", example.trim_end().replace('\'', "'\\''")));
    }
    words.join(" \\\n  ")
}

fn table(title: &str, head: &[&str], rows: Vec<String>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let title = if title.is_empty() { String::new() } else { format!("<h4>{title}</h4>") };
    let head: String = head.iter().map(|name| format!("<th>{name}</th>")).collect();
    format!("{title}<div class=\"wide\"><table><tr>{head}</tr>{}</table></div>", rows.concat())
}

fn row(cells: &[String]) -> String {
    let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
    format!("<tr>{cells}</tr>")
}

fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
    let to = value["$ref"].as_str().and_then(|to| to.strip_prefix('#'));
    to.and_then(|to| document.pointer(to)).unwrap_or(value)
}

fn first(object: &Value) -> Option<(&str, &Value)> {
    object.as_object()?.iter().next().map(|(name, value)| (name.as_str(), value))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn value(value: &Value) -> String {
    code(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

fn code(text: &str) -> String {
    format!("<code>{}</code>", escape(text))
}

fn paragraphs(text: &str) -> String {
    text.split("\n\n").filter(|part| !part.is_empty()).map(|part| format!("<p>{}</p>", rich(part))).collect()
}

/// Text in which what stands between backticks is code.
fn rich(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts.map(|(n, part)| if n % 2 == 1 { code(part) } else { escape(part) }).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_operation_is_on_the_page_and_no_script() {
        for route in &ROUTES {
            let operation = &DOCUMENT["paths"][route.path][route.method.as_str().to_ascii_lowercase()];
            let id = text(&operation["operationId"]);
            assert!(PAGE.contains(&format!("<article id=\"{id}\">")), "{id} has no place");
            assert!(PAGE.contains(&format!("href=\"#{id}\"")), "nothing leads to {id}");
        }
        for unwanted in ["<script", "javascript:", "http-equiv", "src=", "url(", "@import"] {
            assert!(!PAGE.contains(unwanted), "{unwanted}");
        }
    }

    #[test]
    fn every_link_leads_to_a_place_on_the_page() {
        for link in PAGE.split("href=\"#").skip(1) {
            let id = link.split('"').next().unwrap_or_default();
            assert!(PAGE.contains(&format!("id=\"{id}\"")), "{id} is nowhere");
        }
    }

    #[test]
    fn what_the_document_says_is_escaped() {
        let mut document = DOCUMENT.clone();
        let evil = "<script>alert('`\"&')</script>";
        document["info"]["title"] = json!(evil);
        document["paths"]["/v1/jobs"]["post"]["summary"] = json!(evil);
        document["components"]["schemas"][evil] = json!({"properties": {evil: {"enum": [evil], "description": evil}}});
        let page = page(&document);
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;alert("));
    }

    #[test]
    fn fields_are_shown_with_their_limits() {
        for shown in [
            "1 to 604800",
            "at most 200 characters",
            "<code>next-valid</code>",
            "<code>cursor_age_s</code>",
            "/v1/jobs/c-1%2Fbill/pause",
        ] {
            assert!(PAGE.contains(shown), "{shown}");
        }
    }
}
