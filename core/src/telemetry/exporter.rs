//! Which way the metrics and spans of a process go, and what it takes to keep them going there.

use super::admin::{Render, serve};
use super::emf::{Emf, Flusher};
use super::handles::Tabled;
use super::prometheus::{self, keep_up};
use super::table::{self, BUILD_INFO, Kind, Service};
use super::traces::{self, Otlp, TraceExport};
use crate::clock::Clock;
use crate::process::tell_lost;
use metrics::{Recorder, set_global_recorder, with_local_recorder};
use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

const CHOICE: &str = "PUNCTUAL_METRICS";
const LISTEN: &str = "PUNCTUAL_METRICS_LISTEN";
/// This machine only: metrics say how much there is to do, and nobody asks for a key.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9464);
/// CloudWatch's own resolution.
const FLUSH_EVERY: Duration = Duration::from_secs(60);

/// Where metrics go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exporter {
    /// Served as Prometheus text.
    Prometheus {
        /// Where; port 0 is any free one.
        listen: SocketAddr,
    },
    /// Written to standard output in CloudWatch's embedded metric format.
    Emf {
        /// How often; none = only when told to, as at the end of each invocation of a function.
        every: Option<Duration>,
    },
    /// Nowhere.
    Off,
}

impl Exporter {
    fn from_env() -> Result<Self, Vec<String>> {
        let value = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let is_function = value("AWS_LAMBDA_RUNTIME_API").or(value("AWS_LAMBDA_FUNCTION_NAME")).is_some();
        Self::choose(value(CHOICE).as_deref(), value(LISTEN).as_deref(), is_function)
    }

    /// What `PUNCTUAL_METRICS` and `PUNCTUAL_METRICS_LISTEN` mean. Not set or empty, a function writes to its log, and all else
    /// serves on this machine.
    ///
    /// # Errors
    /// One line for each problem.
    pub fn choose(choice: Option<&str>, listen: Option<&str>, is_function: bool) -> Result<Self, Vec<String>> {
        let mut problems = Vec::new();
        let listen = match listen.filter(|text| !text.is_empty()).map(str::parse) {
            None => DEFAULT_LISTEN,
            Some(Ok(listen)) => listen,
            Some(Err(_)) => {
                let found = listen.unwrap_or_default();
                problems.push(format!("{LISTEN}: `{found}` is no address and port, such as `{DEFAULT_LISTEN}`"));
                DEFAULT_LISTEN
            }
        };
        let emf = Exporter::Emf { every: (!is_function).then_some(FLUSH_EVERY) };
        let exporter = match choice.unwrap_or_default() {
            "" if is_function => emf,
            "" | "prometheus" => Exporter::Prometheus { listen },
            "emf" => emf,
            "off" => Exporter::Off,
            found => {
                problems.push(format!("{CHOICE}: `{found}` is none of `prometheus`, `emf` and `off`"));
                Exporter::Off
            }
        };
        if problems.is_empty() { Ok(exporter) } else { Err(problems) }
    }
}

/// Where what a process tells of itself goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ways {
    /// Its metrics.
    pub metrics: Exporter,
    /// Its spans.
    pub traces: TraceExport,
}

impl Ways {
    /// What the environment says.
    ///
    /// # Errors
    /// One line for each problem.
    pub fn from_env() -> Result<Self, Vec<String>> {
        match (Exporter::from_env(), TraceExport::from_env()) {
            (Ok(metrics), Ok(traces)) => Ok(Ways { metrics, traces }),
            (metrics, traces) => Err([metrics.err(), traces.err()].into_iter().flatten().flatten().collect()),
        }
    }
}

/// What keeps metrics and spans going out, for as long as it lives.
pub struct Telemetry {
    clock: Arc<dyn Clock>,
    spans: Option<Arc<Otlp>>,
    flusher: Option<Arc<Flusher>>,
    server: Option<Server>,
    /// Ended with it.
    beside: JoinSet<()>,
}

struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

type Recording = Box<dyn Recorder + Send + Sync>;

/// Starts exporters, and records with them all that is counted by handles made from now on, and every span. It works
/// without a port or a collector too: figures that nobody can read are no reason to leave work undone.
pub async fn install(ways: Ways, service: Service, clock: Arc<dyn Clock>) -> Telemetry {
    let (recorder, telemetry) = start(ways.metrics, service, clock.clone()).await;
    let telemetry = match recorder.map(set_global_recorder) {
        None | Some(Ok(())) => telemetry,
        Some(Err(_)) => {
            // As in tests that run two services in one process.
            tracing::debug!("this process has an exporter of metrics already; it keeps that one");
            Telemetry::idle(clock)
        }
    };
    Telemetry { spans: traces::install(ways.traces, service), ..telemetry }
}

/// Starts an exporter, and leaves its recorder to the caller.
async fn start(exporter: Exporter, service: Service, clock: Arc<dyn Clock>) -> (Option<Recording>, Telemetry) {
    let mut telemetry = Telemetry::idle(clock);
    let recorder: Recording = match exporter {
        Exporter::Off => return (None, telemetry),
        Exporter::Prometheus { listen } => {
            let (recorder, handle) = prometheus::recorder();
            let kept = handle.clone();
            telemetry.beside.spawn(keep_up(move || kept.run_upkeep()));
            telemetry.serve(listen, Arc::new(move || handle.render())).await;
            Box::new(recorder)
        }
        Exporter::Emf { every } => {
            let emf = Emf::default();
            match standard_output().and_then(|out| Flusher::start(emf.clone(), service, out)) {
                Ok(flusher) => telemetry.flush_with(flusher, every),
                Err(error) => tracing::warn!(%error, "metrics cannot be written to standard output: there are none"),
            }
            Box::new(Tabled::new(emf))
        }
    };
    with_local_recorder(&recorder, || {
        BUILD_INFO.gauge(&[("version", env!("CARGO_PKG_VERSION"))]).set(1.0);
        begin_at_zero(service);
        tell_lost();
    });
    (Some(recorder), telemetry)
}

/// Makes every counter of a service whose labels are listed: one that came into being with its first event would show no
/// rise by it.
fn begin_at_zero(service: Service) {
    for metric in table::ALL.iter().filter(|metric| metric.kind == Kind::Counter && metric.by.contains(&service)) {
        metric.series().iter().for_each(|labels| metric.counter(labels).increment(0));
    }
}

/// Without the buffer of the standard library, which would keep what it could not write and write it later, after what is
/// told again.
fn standard_output() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

impl Telemetry {
    fn idle(clock: Arc<dyn Clock>) -> Self {
        Telemetry { clock, spans: None, flusher: None, server: None, beside: JoinSet::new() }
    }

    /// Where metrics are served, if they are.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.as_ref().map(|server| server.address)
    }

    /// Has what was counted written, where it is written, and spans sent: to be called at the end of each invocation of a
    /// function, which may be frozen after it.
    pub async fn flush(&self) {
        if let Some(spans) = &self.spans {
            spans.flush().await;
        }
        if let Some(flusher) = &self.flusher {
            flusher.flush(self.clock.now().timestamp_millis()).await;
        }
    }

    /// Flushes, and ends what was started.
    pub async fn stop(mut self) {
        if let Some(spans) = self.spans.take() {
            spans.stop().await;
        }
        self.flush().await;
        if let Some(Server { stop, serving, .. }) = self.server.take() {
            // It may have ended.
            let _ = stop.send(());
            let _ = serving.await;
        }
    }

    async fn serve(&mut self, listen: SocketAddr, render: Render) {
        let bound = TcpListener::bind(listen).await;
        match bound.and_then(|listener| Ok((listener.local_addr()?, listener))) {
            Ok((address, listener)) => {
                tracing::info!("metrics are served at http://{address}/metrics");
                let (stop, stopped) = oneshot::channel();
                let serving = tokio::spawn(serve(listener, render, async {
                    // A sender that is gone is a stop too.
                    let _ = stopped.await;
                }));
                self.server = Some(Server { address, stop, serving });
            }
            Err(error) => tracing::warn!(
                %error,
                "metrics cannot be served at {listen}: set {LISTEN} to an address that is free (port 0 takes any), or \
                 {CHOICE} to `emf` or `off`"
            ),
        }
    }

    fn flush_with(&mut self, flusher: Flusher, every: Option<Duration>) {
        let flusher = Arc::new(flusher);
        self.flusher = Some(flusher.clone());
        if let Some(every) = every {
            let clock = self.clock.clone();
            self.beside.spawn(async move {
                loop {
                    tokio::time::sleep(every).await;
                    flusher.flush(clock.now().timestamp_millis()).await;
                }
            });
        }
    }
}

#[cfg(test)]
mod tests;
