//! Processes whose log cannot be written, with every line of their own in it: a pipe that is full and that nobody reads, and a
//! full disk. They do their work, and count what was lost.

use anyhow::{Context, ensure};
use chrono::{SecondsFormat, TimeDelta};
use punctual_localstack::gateway::GatewayConfig;
use punctual_localstack::multicall::{SCHEDULER, WORKER};
use punctual_tests::local::{Local, eventually};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{PipeReader, PipeWriter, Write};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_punctual-tests");
const PATIENCE: Duration = Duration::from_secs(60);
const RUNS: u64 = 20;

/// A pipe without room for a line. Its reader is kept, or whoever writes would be told that it is gone.
fn full_pipe() -> anyhow::Result<(PipeReader, PipeWriter)> {
    let (reader, mut writer) = std::io::pipe()?;
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    while poll(&mut [PollFd::new(&writer, PollFlags::OUT)], Some(&at_once))? > 0 {
        writer.write_all(&[b'.'; 4_096])?;
    }
    Ok((reader, writer))
}

async fn lines_lost(address: &str) -> anyhow::Result<f64> {
    // Whoever was first in this process has done so already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build()?;
    let text = client.get(format!("http://{address}/metrics")).send().await?.error_for_status()?.text().await?;
    let sample = text.lines().find_map(|line| line.strip_prefix("punctual_log_lines_lost_total "));
    Ok(sample.with_context(|| format!("nobody tells: {text}"))?.parse()?)
}

async fn delivers_with(log: impl Fn() -> anyhow::Result<Stdio>) -> anyhow::Result<()> {
    let local = Local::start(PROGRAM, GatewayConfig::default(), &[]).await?;
    local.punctual(&["setup"]).await?;
    let free = || anyhow::Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string());
    let (of_scheduler, of_worker) = (free()?, free()?);
    let start = |word: &str, args: &[&str], address: &str| {
        let settings = [("PUNCTUAL_LOG", "debug"), ("PUNCTUAL_METRICS_LISTEN", address)];
        local.start_process_with_log(word, word, args, &settings, log()?)
    };
    let scheduler = start(SCHEDULER, &["dispatch", "--id", "s"], &of_scheduler)?;
    let worker = start(WORKER, &["--id", "w"], &of_worker)?;
    let at = (local.now() + TimeDelta::seconds(5)).to_rfc3339_opts(SecondsFormat::Secs, true);
    for n in 0..RUNS {
        let (id, schedule) = (format!("c-{n}/bill"), format!("at {at}"));
        let job = ["jobs", "add", "--tenant", "bank", "--id", &id, "--schedule", &schedule];
        local.punctual(&[&job[..], &["--to", "+447700900123", "--text", "Your bill is due"]].concat()).await?;
    }
    eventually("all are delivered", PATIENCE, async || Ok(local.stack.gateway().stats().accepted == RUNS)).await?;
    local.wait_until_queues_are_empty(PATIENCE).await?;
    for address in [of_scheduler, of_worker] {
        let lost = lines_lost(&address).await?;
        ensure!(lost > 0.0, "{lost} lines were lost");
    }
    scheduler.stop().await?;
    worker.stop().await?;
    let stats = local.stack.gateway().stats();
    ensure!(stats.accepted == RUNS && stats.repeats == 0, "{stats:?}");
    local.stack.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_whose_log_nobody_reads_deliver_their_runs() {
    let (_reader, pipe) = full_pipe().expect("a pipe");
    delivers_with(|| Ok(pipe.try_clone()?.into())).await.expect("everything comes to its end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_whose_log_is_on_a_full_disk_deliver_their_runs() {
    let full_disk = || Ok(File::options().write(true).open("/dev/full")?.into());
    delivers_with(full_disk).await.expect("everything comes to its end");
}
