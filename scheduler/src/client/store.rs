//! Requests to the router in this process, on the store.

use super::{Ask, ClientError, Raw};
use crate::api::{self, Api, ApiSettings, Caller, Trusted};
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::header::HeaderName;
use axum::http::{HeaderValue, StatusCode};
use chrono::{DateTime, Utc};
use punctual_core::address::AllowList;
use punctual_core::clock::Clock;
use punctual_core::ports::Ports;
use punctual_core::zone::Zones;
use std::num::NonZeroU32;
use std::sync::Arc;

/// Whose jobs are meant where nobody is named.
pub const DEFAULT_TENANT: &str = "default";

/// The API in this very process.
pub struct OnStore {
    router: Router,
    clock: Arc<dyn Clock>,
    by: String,
}

impl OnStore {
    /// On these ports, for an operator of this name.
    pub fn new(ports: Ports, clock: Arc<dyn Clock>, zones: Arc<Zones>, allowed: AllowList, by: &str) -> Self {
        // Nobody's key is counted here.
        let settings = ApiSettings { key_requests_per_s: NonZeroU32::MAX, allowed };
        let api = Api::new(ports, clock.clone(), zones, settings);
        OnStore { router: api::router(&api), clock, by: by.to_owned() }
    }

    pub(super) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    pub(super) async fn send(&self, ask: &Ask) -> Result<Raw, ClientError> {
        let body = ask.body.clone().map_or_else(Body::empty, Body::from);
        let request = Request::builder().method(ask.method.clone()).uri(ask.target()).body(body);
        let mut request = request.map_err(|_| ClientError::Setting("the name cannot stand in an address".into()))?;
        *request.headers_mut() = ask.headers.clone();
        let tenant = HeaderName::from_static(api::TENANT_HEADER);
        request.headers_mut().entry(tenant).or_insert(HeaderValue::from_static(DEFAULT_TENANT));
        request.extensions_mut().insert(Trusted(Caller::operator(&self.by)));
        let answer = api::server::answer(self.router.clone(), request).await;
        let (parts, body) = answer.into_parts();
        let body = to_bytes(body, usize::MAX).await.map_err(|_| ClientError::strange(StatusCode::OK))?;
        Ok(Raw { status: parts.status, headers: parts.headers, body })
    }
}
