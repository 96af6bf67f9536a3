//! Processes whose standard output and standard error take nothing, as on a full disk: runs go on.

use crate::{PATIENCE, PROGRAM};
use chrono::{SecondsFormat, TimeDelta};
use punctual_core::job::JobSpec;
use punctual_core::payload::Payload;
use punctual_core::schedule::whole_second;
use punctual_core::zone::Zones;
use punctual_localstack::gateway::GatewayConfig;
use punctual_tests::local::{Local, eventually};
use punctual_tests::reminder;

const JOBS: u64 = 20;

/// The second firing of each job comes after the first flush of the figures, a minute after the start, which fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheduler_and_a_worker_that_can_write_nothing_do_their_work_and_stop_in_order() -> anyhow::Result<()> {
    let settings = [("PUNCTUAL_METRICS", "emf"), ("PUNCTUAL_LOG", "debug")];
    let mut local = Local::start(PROGRAM, GatewayConfig::default(), &settings).await?;
    local.punctual(&["setup"]).await?;
    local.fill_disk();
    let mut processes = [local.start_scheduler("s", &[])?, local.start_worker("w")?];
    let first = whole_second(local.now()) + TimeDelta::seconds(5);
    let schedule = format!("every 1m from {}", first.to_rfc3339_opts(SecondsFormat::Secs, true));
    let specs = (0..JOBS).map(|n| JobSpec {
        payload: Payload::sms(format!("+4477009{n:05}"), "Your bill is due"),
        ..reminder(&format!("c-{n}/bill"), &schedule)
    });
    local.load(specs, local.now(), &Zones::embedded()).await?;
    for firings in 1..=2 {
        eventually(&format!("firing {firings} is delivered"), PATIENCE * 2, async || {
            for process in &mut processes {
                process.check()?;
            }
            Ok(local.stack.gateway().stats().accepted >= firings * JOBS)
        })
        .await?;
    }
    for process in processes {
        assert_eq!((process.log(), process.output()), (String::new(), String::new()), "nothing could be written");
        process.stop().await?;
    }
    let stats = local.stack.gateway().stats();
    assert_eq!((stats.accepted, stats.repeats), (2 * JOBS, 0));
    local.stack.stop().await;
    Ok(())
}
