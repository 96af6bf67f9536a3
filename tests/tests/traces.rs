//! Traces of real processes, as a collector and the called find them.

use anyhow::{Context, ensure};
use chrono::{SecondsFormat, TimeDelta};
use punctual_core::trace::TraceContext;
use punctual_localstack::gateway::GatewayConfig;
use punctual_tests::collector::{Collector, Manner, Told};
use punctual_tests::local::{Local, Process, eventually};
use punctual_tests::scrape::Metrics;
use serde_json::json;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const PATIENCE: Duration = Duration::from_secs(60);
const GIVEN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

struct Town {
    local: Local,
    processes: Vec<Process>,
    api: String,
    key: String,
}

impl Town {
    /// An API, a scheduler and a worker that call the collector's gateway.
    async fn start(collector: &Collector, settings: &[(&'static str, &str)]) -> anyhow::Result<Self> {
        let (sms, endpoint) = (collector.url("/v1/sms"), collector.url(""));
        let own = [
            ("PUNCTUAL_SMS_URL", &*sms),
            ("PUNCTUAL_WEBHOOK_ALLOW", "127.0.0.1"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.trim_end_matches('/')),
            ("OTEL_BSP_SCHEDULE_DELAY", "200"),
        ];
        let local = Local::start(PROGRAM, GatewayConfig::default(), &[&own[..], settings].concat()).await?;
        local.punctual(&["setup"]).await?;
        let key = local.punctual(&["keys", "add", "--tenant", "bank", "--role", "operate", "--label", "test"]).await?;
        let (process, api) = local.start_api("api", &[]).await?;
        let processes = vec![process, local.start_scheduler("s", &[])?, local.start_worker("w")?];
        Ok(Town { local, processes, api, key: key.trim().to_owned() })
    }

    async fn add(&self, id: &str, in_s: i64, payload: serde_json::Value) -> anyhow::Result<()> {
        let at = (self.local.now() + TimeDelta::seconds(in_s)).to_rfc3339_opts(SecondsFormat::Secs, true);
        let job = json!({"id": id, "schedule": {"at": at}, "payload": payload});
        self.post("/v1/jobs", Some(job), None).await.map(|_| ())
    }

    /// Posts, with a trace if one is given; returns the answer.
    async fn post(
        &self,
        path: &str,
        body: Option<serde_json::Value>,
        trace: Option<&str>,
    ) -> anyhow::Result<serde_json::Value> {
        // Whoever was first in this process has done so already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build()?;
        let mut request = http.post(format!("{}{path}", self.api)).bearer_auth(&self.key);
        if let Some(body) = body {
            request = request.json(&body);
        }
        if let Some(trace) = trace {
            request = request.header("traceparent", trace);
        }
        let answer = request.send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        ensure!(status.is_success(), "{status}: {text}");
        Ok(serde_json::from_str(&text)?)
    }

    async fn stop(self) -> anyhow::Result<()> {
        for process in self.processes {
            process.stop().await?;
        }
        self.local.stack.stop().await;
        Ok(())
    }
}

fn sms() -> serde_json::Value {
    json!({"handler": "sms", "to": "+447700900123", "text": "Your bill is due"})
}

async fn until_called(collector: &Collector, calls: usize) -> anyhow::Result<Vec<TraceContext>> {
    eventually("the gateway is called", PATIENCE, async || Ok(collector.called().len() >= calls)).await?;
    let called = collector.called();
    ensure!(called.len() == calls, "{called:?}");
    called.into_iter().map(|trace| trace.context("a call without a trace")).collect()
}

/// The spans of a trace by name, each of which there must be once.
async fn chain<const N: usize>(collector: &Collector, trace: &str, names: [&str; N]) -> anyhow::Result<[Told; N]> {
    let of_trace = || collector.spans().into_iter().filter(|span| span.trace_id == trace).collect::<Vec<_>>();
    eventually("the spans are told", PATIENCE, async || Ok(of_trace().len() >= N)).await?;
    let spans = of_trace();
    ensure!(spans.len() == N, "{spans:#?}");
    let one = |name: &str| spans.iter().find(|span| span.name == name).with_context(|| format!("{name}: {spans:#?}"));
    let found = names.iter().map(|name| one(name).cloned()).collect::<anyhow::Result<Vec<Told>>>()?;
    found.try_into().map_err(|_| anyhow::anyhow!("as many as were asked for"))
}

async fn recorded() -> anyhow::Result<()> {
    let collector = Collector::start(Manner::Takes).await?;
    let for_machines = [("PUNCTUAL_LOG_FORMAT", "json"), ("PUNCTUAL_LOG", "debug")];
    let town = Town::start(&collector, &[&[("PUNCTUAL_TRACES", "otlp")], &for_machines[..]].concat()).await?;
    town.add("c-1/bill", 3, sms()).await?;
    let called = until_called(&collector, 1).await?[0];
    is_logged_for_machines(&town.processes, called)?;
    let trace = called.id().to_string();
    let [send, process, attempt] = chain(&collector, &trace, ["send", "process", "attempt"]).await?;
    ensure!(send.parent_id.is_empty() && process.parent_id == send.span_id && attempt.parent_id == process.span_id);
    ensure!(attempt.span_id == format!("{:016x}", called.span_id()) && called.is_sampled(), "{called} {attempt:?}");
    let services = [&send, &process, &attempt].map(|span| span.service.as_str());
    ensure!(services == ["punctual-dispatch", "punctual-worker", "punctual-worker"], "{services:?}");
    ensure!(attempt.attributes["run.id"] == send.attributes["run.id"] && attempt.attributes["outcome"] == "delivered");
    ensure!(process.attributes["step"] == "succeeded", "{process:?}");
    // Each process knows the store's time to some hundredths of a second.
    let off = Duration::from_secs(1).as_nanos() as u64;
    ensure!(send.time_ns.0 <= process.time_ns.0 + off, "{send:?} {process:?}");
    ensure!(
        process.time_ns.0 <= attempt.time_ns.0 && attempt.time_ns.1 <= process.time_ns.1,
        "{process:?} {attempt:?}"
    );

    let hook = json!({"handler": "webhook", "url": collector.url("/hook"), "body": "{}"});
    town.add("c-2/bill", 86_400, hook).await?;
    town.post("/v1/jobs/c-2%2Fbill/run", None, Some(GIVEN)).await?;
    let called = until_called(&collector, 2).await?[1];
    ensure!(called.id().to_string() == TRACE && called.is_sampled(), "{called}");
    let [request, process, attempt] = chain(&collector, TRACE, ["RunJobs", "process", "attempt"]).await?;
    ensure!(request.parent_id == "00f067aa0ba902b7" && request.service == "punctual-api", "{request:?}");
    ensure!(process.parent_id == request.span_id && attempt.parent_id == process.span_id);

    collector.be_busy(1);
    town.add("c-3/bill", 3, sms()).await?;
    let called = until_called(&collector, 4).await?;
    ensure!(called[2].id().to_string() == called[3].id().to_string() && called[2].span_id() != called[3].span_id());
    let trace = called[3].id().to_string();
    let of_trace = || collector.spans().into_iter().filter(|span| span.trace_id == trace).collect::<Vec<_>>();
    eventually("both attempts are told", PATIENCE, async || Ok(of_trace().len() >= 5)).await?;
    let outcomes: Vec<String> = of_trace().iter().filter_map(|span| span.attributes.get("outcome").cloned()).collect();
    ensure!(of_trace().len() == 5 && outcomes == ["temporary", "delivered"], "{:#?}", of_trace());
    let told = format!("{:?}", collector.spans());
    ensure!(!told.contains("447700900123") && !told.contains("Your bill") && !told.contains(&town.key));
    town.stop().await
}

/// Every line is a JSON object, and what a worker says of a run names the run and its trace.
fn is_logged_for_machines(processes: &[Process], called: TraceContext) -> anyhow::Result<()> {
    let mut of_the_call = Vec::new();
    for process in processes {
        for line in process.log().lines() {
            let line: serde_json::Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
            ensure!(line["level"].is_string() && line["timestamp"].is_string(), "{line}");
            of_the_call.extend((line["message"] == "its call goes out").then(|| line["span"].clone()));
        }
    }
    let [span] = &of_the_call[..] else { anyhow::bail!("one call was made: {of_the_call:?}") };
    let is_text = |name: &&str| span[*name].as_str().is_some_and(|text| !text.is_empty());
    let missing: Vec<&str> =
        ["job.id", "run.id", "tenant", "queue", "worker.id"].into_iter().filter(|n| !is_text(n)).collect();
    ensure!(missing.is_empty() && span["attempt"] == 1, "{missing:?}: {span}");
    ensure!(span["trace_id"] == called.id().to_string(), "{span}");
    Ok(())
}

async fn not_recorded() -> anyhow::Result<()> {
    let collector = Collector::start(Manner::Takes).await?;
    let town = Town::start(&collector, &[]).await?;
    town.add("c-1/bill", 3, sms()).await?;
    eventually("the gateway is called", PATIENCE, async || Ok(collector.called().len() == 1)).await?;
    ensure!(
        collector.called() == [None],
        "a receiver told of a trace that nobody records would record none of its own"
    );
    ensure!(town.local.ledger.since(0)[0].message.trace.is_none());
    town.add("c-2/bill", 86_400, sms()).await?;
    town.post("/v1/jobs/c-2%2Fbill/run", None, Some(GIVEN)).await?;
    eventually("the gateway is called again", PATIENCE, async || Ok(collector.called().len() == 2)).await?;
    let called = collector.called()[1].context("a call without the trace that was named")?;
    ensure!(called.id().to_string() == TRACE && called.is_sampled(), "{called}");
    ensure!(collector.asked() == 0, "nothing was asked for");
    town.stop().await
}

/// With a collector that takes nothing: everything goes on, and ends in time.
async fn without_a_collector(manner: Manner, endpoint: Option<&str>) -> anyhow::Result<()> {
    let collector = Collector::start(manner).await?;
    let mut settings = vec![("PUNCTUAL_TRACES", "otlp")];
    settings.extend(endpoint.map(|endpoint| ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)));
    let town = Town::start(&collector, &settings).await?;
    for n in 0..50 {
        town.add(&format!("c-{n}/bill"), 5, sms()).await?;
    }
    until_called(&collector, 50).await?;
    ensure!(endpoint.is_some() || collector.asked() > 0, "it was asked, and did not answer");
    let warned = |process: &Process| process.log().matches("the collector takes no spans").count();
    eventually("it is told", PATIENCE, async || Ok(town.processes.iter().all(|process| warned(process) == 1))).await?;
    let of_worker = Metrics::of(&town.processes[2]).await?;
    eventually("what was lost is counted", PATIENCE, async || {
        Ok(of_worker.sum("punctual_spans_lost_total", &[]).await? >= 1.0)
    })
    .await?;
    let errors: Vec<String> = town.processes.iter().flat_map(Process::errors).collect();
    ensure!(errors.is_empty(), "{errors:?}");
    tokio::time::timeout(Duration::from_secs(30), town.stop()).await.context("they end in time")?
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_is_one_trace_from_who_made_it_to_the_call_of_the_gateway() {
    recorded().await.expect("all spans are told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_goes_on_its_way_where_nobody_records_it() {
    not_recorded().await.expect("the gateway is told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_never_answers_stops_nothing() {
    without_a_collector(Manner::Hangs, None).await.expect("everything goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_gone_stops_nothing() {
    without_a_collector(Manner::Hangs, Some("http://127.0.0.1:1")).await.expect("everything goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_answers_nonsense_stops_nothing() {
    without_a_collector(Manner::Refuses, None).await.expect("everything goes on");
}
