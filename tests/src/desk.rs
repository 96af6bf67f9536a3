//! The Jobs API in a town, asked as over a socket: by its router, with keys.

use crate::Town;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Method, Request};
use punctual_core::access::{ApiKey, Reach, Role};
use punctual_core::address::AllowList;
use punctual_core::ports::Ports;
use punctual_core::process::random_token;
use punctual_scheduler::api::{Api, ApiSettings, router, server};
use serde_json::Value;
use std::num::NonZeroU32;
use std::sync::Arc;

/// A process that serves the API.
pub struct Desk {
    api: Arc<Api>,
    /// Opens the tenant `bank`, with every role.
    pub key: String,
}

/// What was answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null where there is none, or where it is not JSON.
    pub json: Value,
    /// The body as it came.
    pub text: String,
}

impl Answer {
    /// A header as text; nothing where there is none.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The pointers to the fields that are wrong.
    pub fn pointers(&self) -> Vec<&str> {
        let errors = self.json["errors"].as_array();
        errors.into_iter().flatten().filter_map(|error| error["pointer"].as_str()).collect()
    }

    /// The lines of a stream.
    pub fn lines(&self) -> Vec<Value> {
        self.text.lines().map(|line| serde_json::from_str(line).expect("every line is JSON")).collect()
    }
}

impl Desk {
    /// A desk on the store of a town.
    pub async fn new(town: &Town) -> Desk {
        Desk::on(town, town.world.ports(), 1_000_000).await
    }

    /// A desk on these ports, each of whose keys is good for so many requests a second.
    pub async fn on(town: &Town, ports: Ports, key_requests_per_s: u32) -> Desk {
        let per_s = NonZeroU32::new(key_requests_per_s).expect("some requests are allowed");
        let settings = ApiSettings { key_requests_per_s: per_s, allowed: AllowList::default() };
        let api = Api::new(ports, town.clock.clone(), town.zones.clone(), settings);
        let key = make_key(town, "bank", Role::Operate).await;
        Desk { api, key }
    }

    /// The same process, asked with another key.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Desk {
        Desk { api: self.api.clone(), key: key.to_owned() }
    }

    /// Asks with the key of the desk.
    pub async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Answer {
        self.ask_with(method, path, body, &[("authorization", &format!("Bearer {}", self.key))]).await
    }

    /// Asks with the key of the desk and a further header.
    pub async fn ask_and(&self, method: &str, path: &str, body: Option<&Value>, header: (&str, &str)) -> Answer {
        self.ask_with(method, path, body, &[("authorization", &format!("Bearer {}", self.key)), header]).await
    }

    /// Asks with these headers.
    pub async fn ask_with(&self, method: &str, path: &str, body: Option<&Value>, headers: &[(&str, &str)]) -> Answer {
        let has_type = headers.iter().any(|(name, _)| *name == "content-type");
        let mut all = headers.to_vec();
        if body.is_some() && !has_type {
            all.push(("content-type", "application/json"));
        }
        self.send(method, path, Body::from(body.map(Value::to_string).unwrap_or_default()), &all).await
    }

    /// Asks with a body that may be anything.
    pub async fn send(&self, method: &str, path: &str, body: Body, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(method.parse::<Method>().expect("a method")).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body).expect("a request");
        let response = server::answer(router(&self.api), request).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = to_bytes(response.into_body(), usize::MAX).await.expect("the body comes whole");
        let text = String::from_utf8(body.to_vec()).expect("answers are text");
        let json = serde_json::from_str(&text).unwrap_or(Value::Null);
        Answer { status, headers, json, text }
    }
}

/// Makes a key of a tenant, or of everybody (`*`).
pub async fn make_key(town: &Town, tenant: &str, role: Role) -> String {
    let reach: Reach = tenant.parse().expect("a tenant");
    let (id, secret) = (random_token(), random_token() + &random_token());
    let (key, text) =
        ApiKey::new(&id[..8], &secret, reach, role, "test", "ann", town.clock.now()).expect("the label is short");
    let control = town.world.ports().control;
    let from = control.api_keys().await.expect("keys can be read");
    let to = from.with(key, town.clock.now()).expect("there is room");
    assert_eq!(control.change_api_keys(from.revision, &to).await, Ok(to));
    text
}
