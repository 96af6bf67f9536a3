//! The metrics of real processes, as whoever collects them finds them: on the port that the log names.

use anyhow::{Context, ensure};
use chrono::{SecondsFormat, TimeDelta};
use punctual_core::telemetry::table::{self, Kind};
use punctual_localstack::gateway::GatewayConfig;
use punctual_tests::local::{Local, Process, eventually};
use std::collections::BTreeMap;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const PATIENCE: Duration = Duration::from_secs(60);

/// The address that a process says it serves its metrics at.
async fn address(process: &Process) -> anyhow::Result<String> {
    let said = || {
        let log = process.log();
        let (_, rest) = log.split_once("metrics are served at ")?;
        Some(rest.split_whitespace().next()?.to_owned())
    };
    eventually("the metrics are served", PATIENCE, async || Ok(said().is_some())).await?;
    said().context("it said so")
}

/// Every sample, by name and labels as they stand.
async fn scrape(url: &str) -> anyhow::Result<BTreeMap<String, f64>> {
    // Whoever was first in this process has done so already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let text = reqwest::Client::builder().no_proxy().build()?.get(url).send().await?.error_for_status()?.text().await?;
    let mut samples = BTreeMap::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').with_context(|| format!("`{line}` is no sample"))?;
        samples.insert(name.to_owned(), value.parse()?);
    }
    for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split_whitespace().nth(2).unwrap_or_default();
        ensure!(table::find(name).is_some(), "{name} is not in the table");
    }
    Ok(samples)
}

fn sum(samples: &BTreeMap<String, f64>, name: &str) -> f64 {
    samples.iter().filter(|(sample, _)| sample.split('{').next() == Some(name)).map(|(_, value)| value).sum()
}

async fn three_processes() -> anyhow::Result<()> {
    let local = Local::start(PROGRAM, GatewayConfig::default(), &[]).await?;
    local.punctual(&["setup", "--heartbeat"]).await?;
    ensure!(local.punctual(&["setup", "--heartbeat"]).await?.contains("is there already"));
    let (api, _) = local.start_api("api", &[]).await?;
    let (scheduler, worker) = (local.start_scheduler("s", &[])?, local.start_worker("w")?);
    let (of_api, of_scheduler, of_worker) = (address(&api).await?, address(&scheduler).await?, address(&worker).await?);
    let at = (local.now() + TimeDelta::seconds(3)).to_rfc3339_opts(SecondsFormat::Secs, true);
    let to = ["--to", "+447700900123", "--text", "Your bill is due"];
    for id in ["c-1/bill", "c-2/bill"] {
        let schedule = format!("at {at}");
        local
            .punctual(&[&["jobs", "add", "--tenant", "bank", "--id", id, "--schedule", &schedule], &to[..]].concat())
            .await?;
    }
    let delivered = r#"punctual_attempts_total{handler="sms",outcome="delivered"}"#;
    eventually("both runs are delivered", PATIENCE, async || {
        Ok(scrape(&of_worker).await?.get(delivered).is_some_and(|runs| *runs >= 2.0))
    })
    .await?;
    let worker_says = scrape(&of_worker).await?;
    ensure!(worker_says.get(delivered) == Some(&2.0), "{worker_says:?}");
    ensure!(sum(&worker_says, "punctual_queue_latency_seconds_count") >= 2.0);
    let scheduler_says = scrape(&of_scheduler).await?;
    ensure!(sum(&scheduler_says, "punctual_runs_enqueued_total") >= 2.0, "{scheduler_says:?}");
    eventually("all shards are held", PATIENCE, async || {
        Ok(sum(&scrape(&of_scheduler).await?, "punctual_shards_held") == 32.0)
    })
    .await?;
    let nothing = scrape(&of_api).await?;
    ensure!(sum(&nothing, "punctual_build_info") == 1.0 && sum(&nothing, "punctual_runs_enqueued_total") == 0.0);
    eventually("the queues are looked at", PATIENCE, async || {
        Ok(scrape(&of_scheduler).await?.keys().any(|sample| sample.starts_with("punctual_queue_messages{")))
    })
    .await?;
    eventually("the heartbeat ran", PATIENCE * 2, async || {
        Ok(sum(&scrape(&of_worker).await?, "punctual_heartbeat_timestamp_seconds") > 0.0)
    })
    .await?;
    for samples in [scrape(&of_worker).await?, scrape(&of_scheduler).await?, scrape(&of_api).await?] {
        let shown = samples.keys().find(|sample| sample.contains("bank") || sample.contains("7700"));
        ensure!(shown.is_none(), "{shown:?}");
    }
    for process in [api, scheduler, worker] {
        process.stop().await?;
    }
    local.stack.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_tell_their_figures_by_the_table_and_no_names() {
    three_processes().await.expect("everything comes to its end");
}

/// What stands between two marks of the guide is what the table says.
#[test]
fn the_guide_shows_the_table_and_a_section_for_each_alarm() {
    let guide = include_str!("../../docs/operations.md");
    for (mark, expected) in [("metrics", table::markdown()), ("bounds", table::markdown_of_bounds())] {
        let begin = format!("<!-- {mark}: begin -->\n");
        let shown = guide.split_once(&begin).and_then(|(_, rest)| rest.split_once(&format!("<!-- {mark}: end -->")));
        let shown = shown.map_or("nothing", |(shown, _)| shown);
        assert_eq!(
            shown.trim(),
            expected.trim(),
            "put this between the marks `{mark}` of docs/operations.md:\n{expected}"
        );
    }
    for metric in table::ALL {
        if let Some(alarm) = metric.alarm {
            assert!(guide.contains(&format!("\n### {alarm}\n")), "{} names the alarm {alarm}", metric.name);
        }
        let is_used = guide.matches(metric.name).count() > 1 || metric.alarm.is_none();
        assert!(is_used, "no alarm's section names {}, which says that one goes by it", metric.name);
        if let Kind::Histogram(bounds) = metric.kind {
            assert!(bounds.is_sorted());
        }
    }
    let alarms = guide.lines().filter_map(|line| line.strip_prefix("### "));
    for alarm in alarms {
        assert!(table::ALL.iter().any(|metric| metric.alarm == Some(alarm)), "no metric is for the alarm {alarm}");
    }
}
