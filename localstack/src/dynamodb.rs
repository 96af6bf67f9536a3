//! DynamoDB, embedded: dynoxide on a thread of its own.
//!
//! dynoxide answers on the thread that polls the request and holds one lock around SQLite. On the shared runtime a few
//! busy requests would hold up the queue and the gateway, and with them the figures those two measure.

use crate::listener::{self, GRACE, stopped};
use crate::stack::StackError;
use dynoxide::Database;
use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

const SERVICE: &str = "DynamoDB";

/// How often items past their time to live are removed. Each sweep reads every row of a table with a time to live, so
/// it is rare; DynamoDB itself promises no more than "within a few days".
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// A DynamoDB endpoint that runs until the stop.
pub(crate) struct DynamoDb {
    port: u16,
    database: Database,
    ended: oneshot::Receiver<()>,
}

impl DynamoDb {
    /// Opens the database (a SQLite file, or memory) and serves it on 127.0.0.1.
    pub(crate) fn start(port: u16, data: Option<&Path>, stop: watch::Receiver<bool>) -> Result<Self, StackError> {
        let listener = listener::bind(SERVICE, port)?;
        let port = listener::port_of(SERVICE, &listener)?;
        let listener = listener.into_std().map_err(|source| StackError::Listen { service: SERVICE, port, source })?;
        let database = open(data)?;
        let served = database.clone();

        let (ready, started) = std::sync::mpsc::sync_channel(1);
        let (alive, ended) = oneshot::channel();
        std::thread::Builder::new()
            .name("dynamodb".to_owned())
            .spawn(move || {
                run(listener, served, stop, &ready);
                drop(alive);
            })
            .map_err(StackError::Thread)?;
        match started.recv() {
            Ok(Ok(())) => Ok(Self { port, database, ended }),
            Ok(Err(source)) => Err(StackError::Thread(source)),
            Err(_) => Err(StackError::Thread(io::Error::other("the DynamoDB thread ended at once"))),
        }
    }

    /// The port it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The tables themselves.
    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Resolves when the listener and every connection are closed.
    pub(crate) async fn ended(&mut self) {
        // The thread never sends: it drops its end when it is done.
        let _ = (&mut self.ended).await;
    }
}

fn open(data: Option<&Path>) -> Result<Database, StackError> {
    let Some(path) = data else {
        return Database::memory().map_err(|error| StackError::Database { error: error.to_string() });
    };
    let failed = |error: String| StackError::Data { path: path.to_owned(), error };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|error| failed(error.to_string()))?;
    }
    let name = path.to_str().ok_or_else(|| failed("the path is not UTF-8".to_owned()))?;
    Database::new(name).map_err(|error| failed(error.to_string()))
}

fn run(
    listener: TcpListener,
    database: Database,
    stop: watch::Receiver<bool>,
    ready: &std::sync::mpsc::SyncSender<io::Result<()>>,
) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(ready, Err(error)),
    };
    runtime.block_on(async {
        match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => {
                report(ready, Ok(()));
                serve(listener, database, stop).await;
            }
            Err(error) => report(ready, Err(error)),
        }
    });
    // Ends the connections that outlived the grace, and a sweep that is under way.
    runtime.shutdown_background();
}

fn report(ready: &std::sync::mpsc::SyncSender<io::Result<()>>, outcome: io::Result<()>) {
    // The receiver waits in `start` until this arrives.
    let _ = ready.send(outcome);
}

async fn serve(listener: tokio::net::TcpListener, database: Database, stop: watch::Receiver<bool>) {
    let sweeper = tokio::spawn(sweep(database.clone()));
    let overdue = async {
        stopped(stop.clone()).await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = dynoxide::server::serve_with_shutdown(listener, database, stopped(stop.clone())) => {
            if let Err(error) = served {
                tracing::error!(%error, "the DynamoDB endpoint failed");
            }
        }
        () = overdue => tracing::debug!("DynamoDB requests were still open at the stop"),
    }
    sweeper.abort();
}

async fn sweep(database: Database) {
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        let database = database.clone();
        match tokio::task::spawn_blocking(move || database.sweep_ttl()).await {
            Ok(Ok(removed)) => tracing::debug!(removed, "removed items past their time to live"),
            Ok(Err(error)) => tracing::warn!(%error, "could not remove items past their time to live"),
            Err(error) => tracing::warn!(%error, "the removal of items past their time to live ended early"),
        }
    }
}
