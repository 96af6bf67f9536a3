use super::super::routes::Op;
use super::operation::{OF_A_BODY, OF_A_KEY};
use super::*;
use std::collections::BTreeSet;

fn operations() -> Vec<(String, String, &'static Value)> {
    let paths = DOCUMENT["paths"].as_object().unwrap();
    let all = paths.iter().flat_map(|(path, item)| {
        item.as_object().unwrap().iter().map(|(method, one)| (path.clone(), method.to_ascii_uppercase(), one))
    });
    all.collect()
}

fn walk(value: &Value, found: &mut impl FnMut(&Value)) {
    found(value);
    match value {
        Value::Object(object) => object.values().for_each(|value| walk(value, found)),
        Value::Array(array) => array.iter().for_each(|value| walk(value, found)),
        _ => {}
    }
}

#[test]
fn the_contract_has_every_route_with_its_role_and_nothing_else() {
    let known: BTreeSet<_> = ROUTES.iter().map(|route| (route.path.to_owned(), route.method.to_string())).collect();
    let said: BTreeSet<_> = operations().into_iter().map(|(path, method, _)| (path, method)).collect();
    assert_eq!(said, known);
    let ids: BTreeSet<_> = operations().into_iter().map(|(.., one)| one["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), ROUTES.len(), "each operation has a name of its own");
    for route in &ROUTES {
        let one = &DOCUMENT["paths"][route.path][route.method.as_str().to_ascii_lowercase()];
        let description = one["description"].as_str().unwrap();
        match route.role {
            Some(role) => {
                assert_eq!(one["security"], json!([{"key": [role]}]), "{}", route.path);
                assert!(description.contains(&format!("the role `{role}`")), "{}", route.path);
            }
            None => assert_eq!(one["security"], json!([]), "{}", route.path),
        }
    }
}

#[test]
fn every_reference_leads_to_something_and_every_schema_is_used() {
    let mut referred = BTreeSet::new();
    walk(&DOCUMENT, &mut |value| {
        if let Some(to) = value["$ref"].as_str() {
            let pointer = to.strip_prefix('#').unwrap();
            assert!(DOCUMENT.pointer(pointer).is_some(), "{to} is nowhere");
            referred.insert(to.to_owned());
        }
    });
    for name in DOCUMENT["components"]["schemas"].as_object().unwrap().keys() {
        assert!(referred.contains(&format!("#/components/schemas/{name}")), "{name} is used nowhere");
    }
    let ids: BTreeSet<_> = operations().into_iter().map(|(.., one)| one["operationId"].as_str().unwrap()).collect();
    walk(&DOCUMENT, &mut |value| {
        if let (Some(id), Some(_)) = (value["operationId"].as_str(), value["parameters"].as_object()) {
            assert!(ids.contains(id), "a link leads to {id}, which is nowhere");
        }
    });
}

#[test]
fn every_operation_has_the_problems_that_its_route_can_give() {
    for route in &ROUTES {
        let method = route.method.as_str().to_ascii_lowercase();
        let one = &DOCUMENT["paths"][route.path][&method];
        let has = |status: u16| one["responses"].get(status.to_string()).is_some();
        let place = format!("{method} {}", route.path);
        assert!((200..300).any(has), "{place} ends well");
        assert_eq!(
            OF_A_KEY.iter().filter(|status| **status != 503).all(|status| has(*status)),
            route.role.is_some(),
            "{place}"
        );
        // An audit names a job, or many, by a parameter.
        let names_one = route.path.contains('{') || matches!(route.op, Op::Audit | Op::RequeueMissing);
        assert_eq!(has(404), names_one, "{place}");
        assert_eq!(OF_A_BODY.iter().all(|status| has(*status)), one.get("requestBody").is_some(), "{place}");
        let has_header = |name: &str| {
            let parameters = one["parameters"].as_array().into_iter().flatten();
            parameters.filter_map(|one| one["$ref"].as_str()).any(|to| to.ends_with(name))
        };
        assert!(!has_header("IfMatch") || has(412), "{place}");
        assert_eq!(has_header("Tenant"), route.role.is_some(), "{place}");
    }
}

#[test]
fn the_variables_of_a_path_are_described() {
    for (path, method, one) in operations() {
        let in_path: BTreeSet<String> = path
            .split('/')
            .filter(|part| part.starts_with('{'))
            .map(|part| part.trim_matches(['{', '}']).to_owned())
            .collect();
        let parameters = one["parameters"].as_array().into_iter().flatten();
        let described =
            parameters.filter(|one| one["in"] == "path").map(|one| one["name"].as_str().unwrap().to_owned());
        assert_eq!(described.collect::<BTreeSet<_>>(), in_path, "{method} {path}");
    }
}

#[test]
fn what_callers_send_takes_no_unknown_names() {
    for name in [
        "JobInput",
        "JobLine",
        "JobPatch",
        "CronSchedule",
        "SmsPayload",
        "Spread",
        "PreviewInput",
        "HoldInput",
        "RateInput",
        "ReplayInput",
        "DropInput",
        "RequeueInput",
    ] {
        assert_eq!(DOCUMENT["components"]["schemas"][name]["additionalProperties"], json!(false), "{name}");
    }
}
