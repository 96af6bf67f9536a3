//! Takes the stack's ports and serves HTTP on them until the stack stops.
//!
//! Never decides what a request means: that is the business of the service it is given.

use crate::stack::StackError;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long requests that are under way at a stop may still take.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// Pause after a failed accept (no file handle left, usually), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Connections the kernel may hold for us before they are accepted.
const BACKLOG: u32 = 1024;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Listens on 127.0.0.1 at `port`; 0 takes a free one. Connections inherit TCP_NODELAY from the listener.
///
/// # Errors
/// [`StackError::PortTaken`] if another program listens there, [`StackError::Listen`] for any other refusal.
pub(crate) fn bind(service: &'static str, port: u16) -> Result<TcpListener, StackError> {
    let listen = || -> io::Result<TcpListener> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(cfg!(unix))?;
        socket.set_nodelay(true)?;
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|source| match source.kind() {
        ErrorKind::AddrInUse => StackError::PortTaken { service, port },
        _ => StackError::Listen { service, port, source },
    })
}

/// The port a listener really has.
pub(crate) fn port_of(service: &'static str, listener: &TcpListener) -> Result<u16, StackError> {
    let address = listener.local_addr().map_err(|source| StackError::Listen { service, port: 0, source })?;
    Ok(address.port())
}

/// Resolves when the stack stops.
pub(crate) async fn stopped(mut stop: watch::Receiver<bool>) {
    // A dropped sender is a stop too.
    let _ = stop.wait_for(|stopped| *stopped).await;
}

/// Serves HTTP/1.1 until the stop, then closes the listener, gives requests under way [`GRACE`] and ends the rest.
pub(crate) async fn serve<S, B>(listener: TcpListener, service: S, stop: watch::Receiver<bool>)
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    let mut connections = JoinSet::new();
    let mut stopping = pin!(stopped(stop.clone()));
    loop {
        tokio::select! {
            () = &mut stopping => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve_connection(stream, service.clone(), stop.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "could not accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, drained).await.is_err() {
        connections.shutdown().await;
    }
}

async fn serve_connection<S, B>(stream: TcpStream, service: S, stop: watch::Receiver<bool>)
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    B: Body + 'static,
    B::Error: Into<BoxError>,
{
    let mut connection = pin!(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stopped(stop) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // Callers that go away, and answers the gateway was told to withhold.
        tracing::debug!(%error, "connection ended early");
    }
}
