//! The port on which a process shows itself to whoever watches it: `GET /metrics` and `GET /healthz`.
//!
//! It is in nobody's way: few connections, one short request on each, and a bound on everything a caller could draw out.
//! What comes beyond that waits in the kernel until there is room.

use super::prometheus::METRICS_TEXT;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
/// Connections at once: a collector or two, and a person.
pub(super) const MOST_CONNECTIONS: usize = 16;
/// To send the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// For all of a connection, the reading of the answer included.
const CONNECTION_TIME: Duration = Duration::from_secs(15);
/// The largest head of a request.
const HEAD_BYTES: usize = 16 * 1024;
/// Pause after a failed accept (no file handle left, usually), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// After the stop, for requests under way.
const GRACE: Duration = Duration::from_millis(500);

/// Makes the text of `/metrics`.
pub(super) type Render = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves until `stop`.
pub(super) async fn serve(listener: TcpListener, render: Render, stop: impl Future<Output = ()>) {
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            biased;
            () = &mut stop => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept(), if connections.len() < MOST_CONNECTIONS => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_connection(stream, render.clone()));
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection to the metrics could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let ended = async { while connections.join_next().await.is_some() {} };
    // Whoever is not done by then is cut off with the set.
    let _ = tokio::time::timeout(GRACE, ended).await;
}

async fn serve_connection(stream: TcpStream, render: Render) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), &*render);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_TIME, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection to the metrics broke off"),
        Err(_) => tracing::debug!("a connection to the metrics took too long"),
    }
}

/// What is answered to whom.
fn answer(method: &Method, path: &str, render: &dyn Fn() -> String) -> Response<Full<Bytes>> {
    let (status, text, content_type) = match path {
        "/metrics" | "/healthz" if method != Method::GET => {
            (StatusCode::METHOD_NOT_ALLOWED, "only GET\n".into(), PLAIN_TEXT)
        }
        "/metrics" => (StatusCode::OK, render(), METRICS_TEXT),
        "/healthz" => (StatusCode::OK, "ok\n".into(), PLAIN_TEXT),
        _ => (StatusCode::NOT_FOUND, "here are /metrics and /healthz\n".into(), PLAIN_TEXT),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET"));
    }
    response
}

#[cfg(test)]
mod tests;
