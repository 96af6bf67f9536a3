//! Serving the API: on a socket until told to stop, or as a Lambda function behind its URL.

use super::{Api, route_by_id, router};
use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use punctual_core::telemetry::Telemetry;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tower::{Service, ServiceExt, service_fn};

/// After the stop signal requests under way have this long.
const STOP_TIME: Duration = Duration::from_secs(25);

/// So long an answer of a function waits for metrics and spans to be sent.
const FLUSH: Duration = Duration::from_millis(500);

/// Answers one request.
pub async fn answer(router: Router, request: Request) -> Response {
    match router.oneshot(route_by_id(request)).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Serves on `listener` until `stop`; what is under way then is finished, if it ends in time.
///
/// # Errors
/// When the socket cannot be served.
pub async fn serve(
    api: &Arc<Api>,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let app = by_id(router(api));
    let (told, stopped) = tokio::sync::oneshot::channel();
    let stop = async move {
        stop.await;
        // Whoever waits for it may be gone.
        let _ = told.send(());
    };
    let serving = axum::serve(listener, app).with_graceful_shutdown(stop);
    let too_late = async {
        if stopped.await.is_ok() {
            tokio::time::sleep(STOP_TIME).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        served = serving => served,
        () = too_late => Ok(()),
    }
}

/// The router behind what puts requests onto their routes.
fn by_id(router: Router) -> Router {
    let around = service_fn(move |request: Request| {
        let router = router.clone();
        async move { Ok::<_, Infallible>(answer(router, request).await) }
    });
    Router::new().fallback_service(around)
}

/// Serves invocations of a function URL until the environment ends.
///
/// # Errors
/// When the runtime cannot be reached.
pub async fn serve_function(api: &Arc<Api>, telemetry: &Telemetry) -> Result<(), String> {
    let app = by_id(router(api));
    let service = service_fn(|request: lambda_http::Request| {
        let mut app = app.clone();
        async move {
            let answered = app.call(request.map(axum::body::Body::new)).await;
            // What is not told now is told after a thaw, if there is one.
            telemetry.flush(FLUSH).await;
            answered
        }
    });
    lambda_http::run(service).await.map_err(|error| error.to_string())
}

/// Whether an address is this machine's own.
pub fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().is_loopback()
}
