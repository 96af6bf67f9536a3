//! The metrics of real processes, as whoever collects them finds them: on the port that the log names.

mod alarms;
mod cardinality;
mod full_disk;
mod guide;

use anyhow::ensure;
use chrono::{SecondsFormat, TimeDelta};
use punctual_core::telemetry::table::{self, Service};
use punctual_localstack::gateway::GatewayConfig;
use punctual_tests::local::{Local, eventually};
use punctual_tests::scrape::{Metrics, sum};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const PATIENCE: Duration = Duration::from_secs(60);

async fn three_processes() -> anyhow::Result<()> {
    let local = Local::start(PROGRAM, GatewayConfig::default(), &[]).await?;
    local.punctual(&["setup", "--heartbeat"]).await?;
    ensure!(local.punctual(&["setup", "--heartbeat"]).await?.contains("is there already"));
    let (api, url) = local.start_api("api", &[]).await?;
    let (scheduler, worker) = (local.start_scheduler("s", &[])?, local.start_worker("w")?);
    let (of_api, of_scheduler, of_worker) =
        (Metrics::of(&api).await?, Metrics::of(&scheduler).await?, Metrics::of(&worker).await?);
    let at = (local.now() + TimeDelta::seconds(3)).to_rfc3339_opts(SecondsFormat::Secs, true);
    let to = ["--to", "+447700900123", "--text", "Your bill is due"];
    for id in ["c-1/bill", "c-2/bill"] {
        let schedule = format!("at {at}");
        local
            .punctual(&[&["jobs", "add", "--tenant", "bank", "--id", id, "--schedule", &schedule], &to[..]].concat())
            .await?;
    }
    let delivered = [("handler", "sms"), ("outcome", "delivered")];
    eventually("both runs are delivered", PATIENCE, async || {
        Ok(of_worker.sum("punctual_attempts_total", &delivered).await? >= 2.0)
    })
    .await?;
    let worker_says = of_worker.read().await?;
    ensure!(sum(&worker_says, "punctual_attempts_total", &delivered) == 2.0, "{worker_says:?}");
    ensure!(sum(&worker_says, "punctual_queue_latency_seconds_count", &[]) >= 2.0);
    ensure!(of_scheduler.sum("punctual_runs_enqueued_total", &[]).await? >= 2.0);
    eventually("all shards are held", PATIENCE, async || {
        Ok(of_scheduler.sum("punctual_shards_held", &[]).await? == 32.0)
    })
    .await?;
    let nothing = of_api.read().await?;
    ensure!(sum(&nothing, "punctual_build_info", &[]) == 1.0);
    ensure!(sum(&nothing, "punctual_runs_enqueued_total", &[]) == 0.0);
    // Without a key, and beside all that there is.
    for path in ["/v1/jobs/c-1/bill", "/v1/jobs?tenant=bank", "/bank/c-1/bill"] {
        reqwest::Client::builder().no_proxy().build()?.get(format!("{url}{path}")).send().await?;
    }
    ensure!(of_api.sum("punctual_api_requests_total", &[("status", "4xx")]).await? > 0.0);
    eventually("the queues are looked at", PATIENCE, async || {
        Ok(of_scheduler.read().await?.of("punctual_queue_messages", &[]).next().is_some())
    })
    .await?;
    eventually("the heartbeat ran", PATIENCE * 2, async || {
        Ok(of_worker.sum("punctual_heartbeat_timestamp_seconds", &[]).await? > 0.0)
    })
    .await?;
    for (metrics, service) in [(of_worker, Service::Worker), (of_scheduler, Service::Dispatch), (of_api, Service::Api)]
    {
        let text = metrics.read().await?;
        let faults = [text.faults(), text.strangers()].concat();
        ensure!(faults.is_empty(), "{service:?}: {faults:?}");
        let is_told_by_it = |name: &&String| table::find(name).is_some_and(|metric| metric.by.contains(&service));
        let foreign: Vec<&String> = text.kinds.keys().filter(|name| !is_told_by_it(name)).collect();
        ensure!(foreign.is_empty(), "{service:?}: {foreign:?}");
        let shown = text.samples.keys().find(|sample| sample.contains("bank") || sample.contains("7700"));
        ensure!(shown.is_none(), "{shown:?}");
    }
    for process in [api, scheduler, worker] {
        process.stop().await?;
    }
    local.stack.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_tell_their_figures_by_the_table_and_no_names_and_pass_the_lint() {
    three_processes().await.expect("everything comes to its end");
}
