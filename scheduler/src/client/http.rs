//! Requests over HTTP.

use super::{Ask, ClientError, Raw};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HeaderValue};
use punctual_core::address::read_url;
use std::time::Duration;

/// A connection is there by then, or not at all.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// The longest silence of an API that works: a call on a prefix answers when all is done.
const SILENCE: Duration = Duration::from_secs(120);

/// An API that is reached by an address.
pub(super) struct OverHttp {
    base: String,
    key: HeaderValue,
    client: reqwest::Client,
}

impl OverHttp {
    pub(super) fn new(url: &str, key: &str) -> Result<Self, ClientError> {
        let setting = |problem: String| ClientError::Setting(format!("PUNCTUAL_API_URL: {problem}"));
        let read = read_url(url).map_err(setting)?;
        if read.query().is_some() || read.fragment().is_some() {
            return Err(setting("write the address alone, such as `https://punctual.example.com`".into()));
        }
        let host = read.host_str().unwrap_or_default();
        let is_here = host == "localhost" || host.starts_with("127.") || host == "[::1]";
        if read.scheme() != "https" && !is_here {
            eprintln!("warning: PUNCTUAL_API_URL is not https: the key crosses the network as it is");
        }
        let wrong_key =
            |_| ClientError::Setting("the API key holds what no key holds: `punctual keys add` makes keys".into());
        let mut key = HeaderValue::from_str(&format!("Bearer {}", key.trim())).map_err(wrong_key)?;
        key.set_sensitive(true);
        // Fails only when a provider is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_TIME)
            .read_timeout(SILENCE)
            .user_agent(concat!("punctual/", env!("CARGO_PKG_VERSION")));
        let client = if is_here { client.no_proxy() } else { client };
        let client = client.build().map_err(|e| ClientError::Setting(format!("no HTTP client can be made: {e}")))?;
        Ok(OverHttp { base: read.as_str().trim_end_matches('/').to_owned(), key, client })
    }

    pub(super) async fn send(&self, ask: &Ask) -> Result<Raw, ClientError> {
        let address = format!("{}{}", self.base, ask.target());
        let mut headers: HeaderMap = ask.headers.clone();
        headers.insert(AUTHORIZATION, self.key.clone());
        let request = self.client.request(ask.method.clone(), address).headers(headers);
        let request = match &ask.body {
            Some(body) => request.body(body.clone()),
            None => request,
        };
        let answer = request.send().await.map_err(|error| self.failed(&error))?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let body = answer.bytes().await.map_err(|error| self.failed(&error))?;
        Ok(Raw { status, headers, body })
    }

    fn failed(&self, error: &reqwest::Error) -> ClientError {
        if error.is_connect() || error.is_builder() {
            let mut cause: &dyn std::error::Error = error;
            while let Some(source) = cause.source() {
                cause = source;
            }
            return ClientError::Unreachable(format!("the API at {} cannot be reached: {cause}", self.base));
        }
        ClientError::Lost(format!(
            "the connection to the API at {} was lost: nobody knows whether it was done",
            self.base
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_that_of_an_api_and_nothing_more() {
        for url in ["http://127.0.0.1:8080", "https://punctual.example.com/", "https://example.com/punctual"] {
            assert!(OverHttp::new(url, "punctual_x").is_ok(), "{url}");
        }
        for url in ["punctual.example.com", "ftp://example.com", "https://example.com/?x=1", ""] {
            let refused = OverHttp::new(url, "punctual_x").err().expect("it is refused").to_string();
            assert!(refused.starts_with("PUNCTUAL_API_URL: "), "{refused}");
        }
        let refused = OverHttp::new("https://example.com", "a\nb").err().expect("it is refused").to_string();
        assert!(!refused.contains('\n'), "{refused}");
    }
}
