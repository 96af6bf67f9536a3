//! How fast the Jobs API answers, and how fast it takes an import: a real API process on the local stack, asked over HTTP.
//!
//! Requests leave at their own times, whether earlier ones were answered or not; a time counts from when its request should
//! have left. So a stall shows in all requests that it delayed, and not in one.

use anyhow::{Context, bail, ensure};
use clap::{Parser, value_parser};
use futures::future::join_all;
use punctual_core::clock::{Clock, SystemClock};
use punctual_localstack::demo::processes::{Launcher, Process};
use punctual_localstack::multicall::SCHEDULER;
use punctual_localstack::stack::{Stack, StackConfig};
use punctual_tests::measure;
use serde::Serialize;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

// As in the programs that ship.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures the Jobs API. Exits with 1 when an answer was wrong.
#[derive(Debug, Parser)]
#[command(name = "api", after_help = "In half a minute: --seconds 10 --jobs 10000")]
struct Args {
    /// Write the figures to this file, as JSON. cargo starts benchmarks in their package's folder: name it from the root.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Requests a second: creates and gets by turns.
    #[arg(long, default_value_t = 200, value_parser = value_parser!(u32).range(1..=5_000))]
    per_s: u32,
    /// For how many seconds.
    #[arg(long, default_value_t = 60, value_parser = value_parser!(u32).range(1..=3_600))]
    seconds: u32,
    /// Jobs that are imported.
    #[arg(long, default_value_t = 1_000_000, value_parser = value_parser!(u32).range(1..=10_000_000))]
    jobs: u32,
    /// Keep the stack's tables on disk, and not in memory as the stack does where nothing is said.
    #[arg(long)]
    on_disk: bool,
    /// What cargo says to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Times of one kind of request, in milliseconds.
#[derive(Debug, Serialize)]
struct Times {
    requests: usize,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Times {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort();
        let at = |share: f64| {
            let index = ((times.len() as f64 * share).ceil() as usize).clamp(1, times.len().max(1)) - 1;
            times.get(index).map_or(0.0, |time| (time.as_secs_f64() * 100_000.0).round() / 100.0)
        };
        Times { requests: times.len(), p50_ms: at(0.5), p95_ms: at(0.95), p99_ms: at(0.99), max_ms: at(1.0) }
    }

    fn show(&self, what: &str) {
        let Times { requests, p50_ms, p95_ms, p99_ms, max_ms } = self;
        println!(
            "{what:8} {requests:7} requests   p50 {p50_ms} ms   p95 {p95_ms} ms   p99 {p99_ms} ms   max {max_ms} ms"
        );
    }
}

#[derive(Debug, Default, Serialize)]
struct Import {
    jobs: u32,
    created_s: f64,
    created_per_s: f64,
    /// The same file once more.
    same_s: f64,
    same_per_s: f64,
    /// The most memory that the API's process held.
    peak_mib: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    per_s: u32,
    create: Times,
    get: Times,
    import: Import,
}

struct Api {
    process: Process,
    http: reqwest::Client,
    url: String,
    key: String,
    _stack: Stack,
    _folder: tempfile::TempDir,
}

impl Api {
    async fn start(on_disk: bool) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let data = on_disk.then(|| folder.path().join("tables.db"));
        let stack = Stack::start(StackConfig { data, ..StackConfig::default() })?;
        let launcher = Launcher { settings: stack.exports(), logs: folder.path().to_owned() };
        launcher.punctual(&["setup"]).await?;
        let words = ["keys", "add", "--tenant", "bank", "--role", "write", "--label", "bench"];
        let key = launcher.answer(&words).await?.trim().to_owned();
        let listen = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let process =
            launcher.start("api", SCHEDULER, &["api", "--listen", &listen, "--key-requests-per-s", "100000"])?;
        // Nobody else has done so in this process.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?;
        let api = Api { process, http, url: format!("http://{listen}"), key, _stack: stack, _folder: folder };
        for _ in 0..200 {
            if api.http.get(format!("{}/readyz", api.url)).send().await.is_ok_and(|answer| answer.status() == 200) {
                return Ok(api);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("the API was not ready within 10 s")
    }

    async fn create(&self, id: &str) -> anyhow::Result<()> {
        let answer =
            self.http.post(format!("{}/v1/jobs", self.url)).bearer_auth(&self.key).json(&job(id)).send().await?;
        ensure!(answer.status() == 201, "a create was answered {}", answer.status());
        answer.bytes().await?;
        Ok(())
    }

    async fn get(&self, id: &str) -> anyhow::Result<()> {
        let answer = self.http.get(format!("{}/v1/jobs/{id}", self.url)).bearer_auth(&self.key).send().await?;
        ensure!(answer.status() == 200, "a get was answered {}", answer.status());
        answer.bytes().await?;
        Ok(())
    }

    /// Imports so many jobs; how long it took.
    async fn import(&self, jobs: u32, word: &str) -> anyhow::Result<Duration> {
        let lines = futures::stream::iter(
            (0..jobs).map(|n| Ok::<_, std::io::Error>(format!("{}\n", job(&format!("i-{n:08}"))))),
        );
        let clock = SystemClock::new();
        let began = clock.monotonic();
        let request = self.http.post(format!("{}/v1/jobs/import", self.url)).bearer_auth(&self.key);
        let request = request.header("content-type", "application/x-ndjson").body(reqwest::Body::wrap_stream(lines));
        let mut answer = request.send().await?;
        ensure!(answer.status() == 200, "an import was answered {}", answer.status());
        let mut last = Vec::new();
        while let Some(bytes) = answer.chunk().await? {
            last.extend_from_slice(&bytes);
            let whole = last.len().saturating_sub(1);
            let cut = last[..whole].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            last.drain(..cut);
        }
        let summary: Value = serde_json::from_slice(&last).context("the last line is no JSON")?;
        let counted = &summary["summary"]["counts"][word];
        ensure!(summary["summary"]["complete"] == true && counted == jobs, "not all were {word}: {summary}");
        Ok(clock.monotonic() - began)
    }
}

fn job(id: &str) -> Value {
    json!({
        "id": id, "schedule": {"cron": "0 9 * * 1-5", "tz": "Asia/Kolkata"},
        "payload": {"handler": "sms", "to": "+447700900123", "text": "Your bill of 12.50 is due on Friday"},
    })
}

fn main() -> ExitCode {
    measure::run("api", measure)
}

async fn measure(args: Args) -> anyhow::Result<()> {
    let mut api = Api::start(args.on_disk).await?;
    let (create, get) = steady(&api, &args).await?;
    create.show("create");
    get.show("get");
    let created = api.import(args.jobs, "created").await?.as_secs_f64();
    let same = api.import(args.jobs, "same").await?.as_secs_f64();
    api.process.measure();
    let jobs = f64::from(args.jobs);
    let import = Import {
        jobs: args.jobs,
        created_s: created,
        created_per_s: (jobs / created).round(),
        same_s: same,
        same_per_s: (jobs / same).round(),
        peak_mib: api.process.peak_rss_mb,
    };
    let Import { created_per_s, same_per_s, peak_mib, .. } = &import;
    println!("import   {jobs} jobs: {created_per_s}/s made, {same_per_s}/s found the same; {peak_mib:.0} MiB at most");
    let report = Report { per_s: args.per_s, create, get, import };
    if let Some(path) = &args.report {
        measure::write_report(path, &report)?;
    }
    api.process.stop().await
}

/// Creates and gets by turns, at their own times.
async fn steady(api: &Api, args: &Args) -> anyhow::Result<(Times, Times)> {
    api.create("warm").await?;
    let clock = SystemClock::new();
    let began = clock.monotonic() + Duration::from_millis(100);
    let requests = (0..args.per_s * args.seconds).map(|n| {
        let clock = &clock;
        async move {
            let leaves_at = began + Duration::from_secs(1) * n / args.per_s;
            tokio::time::sleep(leaves_at.saturating_sub(clock.monotonic())).await;
            // A get asks for what was created two seconds before.
            let (is_create, before) = (n % 2 == 0, n.saturating_sub(2 * args.per_s + 1));
            match (is_create, before) {
                (true, _) => api.create(&format!("c-{n}")).await?,
                (false, 0) => api.get("warm").await?,
                (false, before) => api.get(&format!("c-{}", before - before % 2)).await?,
            }
            anyhow::Ok((is_create, clock.monotonic().saturating_sub(leaves_at)))
        }
    });
    let times = join_all(requests).await.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    let of = |kind: bool| times.iter().filter(|(is_create, _)| *is_create == kind).map(|(_, time)| *time).collect();
    Ok((Times::of(of(true)), Times::of(of(false))))
}
