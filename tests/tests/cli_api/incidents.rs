//! What is left after trouble: dead letters, and runs of which nothing shows what became of them.

use super::{PATIENCE, Settings, Town, text};
use anyhow::ensure;
use chrono::{SecondsFormat, TimeDelta};
use punctual_core::job::JobSpec;
use punctual_core::payload::Payload;
use punctual_core::retry::RetryRule;
use punctual_core::run::{RunId, RunStatus};
use punctual_localstack::gateway::Behaviour;
use punctual_tests::local::{Local, eventually};
use punctual_tests::reminder;
use std::collections::BTreeMap;

const PHONE: &str = "+447700900123";

/// Runs that were due a minute ago and are dead after two attempts; from then on the gateway takes everything.
async fn dead_runs(local: &Local, ids: &[String]) -> anyhow::Result<Vec<RunId>> {
    let unavailable = vec![Behaviour::Unavailable { retry_after_s: None }];
    local.stack.gateway().set_script(BTreeMap::from([(PHONE.to_owned(), unavailable)]));
    let spec = |id: &String, schedule: &str| JobSpec {
        payload: Payload::sms(PHONE, "Your bill is due"),
        retry: RetryRule::with_waits(&[1]).expect("a valid rule"),
        ..reminder(id, schedule)
    };
    let runs = local.enqueue(1, |schedule| ids.iter().map(|id| spec(id, schedule)).collect()).await?;
    for run in &runs {
        wait_for(local, run, RunStatus::Dead).await?;
    }
    local.stack.gateway().set_script(BTreeMap::new());
    Ok(runs)
}

async fn wait_for(local: &Local, run: &RunId, status: RunStatus) -> anyhow::Result<()> {
    let is_so = async || Ok(local.ports.runs.get(run).await?.is_some_and(|row| row.status == status));
    eventually(&format!("{run} is {}", status.as_str()), PATIENCE, is_so).await
}

async fn letters_are_seen_to(town: &Town, settings: &[(&'static str, &str)], customer: &str) -> anyhow::Result<()> {
    let local = &town.local;
    let ids = ["bill", "card", "loan"].map(|kind| format!("{customer}/{kind}"));
    let [bill, card, loan] = &ids;
    let runs = dead_runs(local, &ids).await?;
    let (run, key) = (&runs[0], &runs[0].run_key);
    let which = format!("--tenant bank --prefix {customer}/");
    let listed = town.ends(settings, 0, &format!("dead-letters list {which}")).await?;
    ensure!(ids.iter().all(|id| listed.contains(&format!("bank/{id}"))) && listed.contains("503"), "{listed}");
    let two = town.run(settings, &format!("dead-letters list {which} --limit 2 --json")).await?;
    ensure!(text(&two.stdout).lines().count() == 2 && text(&two.stderr).contains("there are more"));
    let shown = town.ends(settings, 0, &format!("dead-letters show {bill} {key} --tenant bank")).await?;
    ensure!(shown.contains("dead") && shown.contains("temporary") && !shown.contains("7700"), "{shown}");

    let dry = town.ends(settings, 0, &format!("dead-letters replay {which} --dry-run")).await?;
    ensure!(dry.contains("3 would be replayed"), "{dry}");
    let one = town.ends(settings, 0, &format!("dead-letters replay --tenant bank --run {run}")).await?;
    ensure!(one.contains("1 replayed"), "{one}");
    wait_for(local, &RunId { run_key: key.replay(1), ..run.clone() }, RunStatus::Succeeded).await?;
    let unsaid = town.ends(settings, 2, &format!("dead-letters drop {which}")).await?;
    ensure!(unsaid.contains("--why"), "{unsaid}");
    let drop = format!("dead-letters drop --tenant bank --prefix {card} --why paid");
    ensure!(town.ends(settings, 0, &drop).await?.contains("1 dropped"));
    ensure!(town.ends(settings, 0, &drop).await?.contains("nothing waits that was meant"));
    let left = town.ends(settings, 0, &format!("dead-letters list {which}")).await?;
    ensure!(left.contains(loan) && !left.contains(bill) && !left.contains(card), "{left}");
    let dropped = town.ends(settings, 0, &format!("dead-letters show {card} {key} --tenant bank")).await?;
    ensure!(dropped.contains("paid"), "{dropped}");

    // The calendar knows all three, and that one of them was made good.
    let from = (local.now() - TimeDelta::minutes(10)).to_rfc3339_opts(SecondsFormat::Secs, true);
    let audit = format!("audit {which} --from {from} --show problems --json");
    let found = town.json(settings, &audit).await?;
    ensure!(found["summary"]["dead"] == 3 && found["summary"]["replayed"] == 1, "{found}");
    ensure!(found["items"].as_array().map(Vec::len) == Some(2), "what a replay made good is no problem: {found}");
    Ok(())
}

async fn letters() -> anyhow::Result<()> {
    let town = Town::start().await?;
    let operator = town.key("*", "operate").await?;
    let worker = town.local.start_worker("w")?;
    for (settings, customer) in [(Settings::new(), "near"), (town.far(&operator), "far")] {
        letters_are_seen_to(&town, &settings, customer).await?;
    }
    worker.stop().await?;
    town.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_are_listed_shown_replayed_and_dropped() {
    letters().await.expect("everything comes to its end");
}

async fn missing() -> anyhow::Result<()> {
    let town = Town::start().await?;
    let local = &town.local;
    let operator = town.key("*", "operate").await?;
    let settings = town.far(&operator);
    let scheduler = local.start_scheduler("s", &[])?;
    let ids = ["c-1/bill", "c-2/bill"];
    for id in ids {
        let schedule =
            format!("at {}", (local.now() + TimeDelta::seconds(2)).to_rfc3339_opts(SecondsFormat::Secs, true));
        let add = ["jobs", "add", "--tenant", "bank", "--id", id, "--noop", "--schedule", &schedule];
        let added = local.run_with(&settings, &add).await?;
        ensure!(added.status.success(), "{}", text(&added.stderr));
    }
    // Nobody works: what was dispatched is in its queue, and nothing else shows it.
    for id in ids {
        let is_dispatched = async || {
            let job = town.json(&settings, &format!("jobs show {id} --tenant bank --json")).await?;
            Ok(job["state"] == "done")
        };
        eventually(&format!("{id} is dispatched"), PATIENCE, is_dispatched).await?;
    }
    let in_time = town.ends(&settings, 0, "audit --tenant bank").await?;
    ensure!(in_time.contains("open: queued") && !in_time.contains("c-1/bill"), "{in_time}");
    let late = town.ends(&settings, 1, "audit --tenant bank --grace 0s").await?;
    ensure!(late.contains("2 are missing; `punctual audit --requeue`") && late.contains("c-1/bill:"), "{late}");
    let again = town.ends(&settings, 1, "audit --tenant bank --grace 0s --requeue").await?;
    ensure!(again.contains("2 were missing, 2 are in their queues again: audit once more"), "{again}");
    let worker = local.start_worker("w")?;
    local.wait_until_queues_are_empty(PATIENCE).await?;
    let found = town.json(&settings, "audit --tenant bank --grace 0s --json").await?;
    ensure!(found["summary"]["due"] == 2 && found["summary"]["succeeded"] == 2, "{found}");
    // Of two messages of one run, one was worked on.
    for id in ids {
        let run = town.json(&settings, &format!("runs list {id} --tenant bank --json")).await?;
        ensure!(run["attempt"] == 1 && run["status"] == "succeeded", "{run}");
        let key = run["run"].as_str().unwrap_or_default();
        let requeued = town.ends(&settings, 1, &format!("runs requeue {id} {key} --tenant bank")).await?;
        ensure!(requeued.contains("succeeded already"), "{requeued}");
    }
    let wrong = town.ends(&settings, 2, "audit --tenant bank --from 2020-01-01T00:00:00Z").await?;
    ensure!(wrong.contains("from") && wrong.contains("60 days"), "{wrong}");
    worker.stop().await?;
    scheduler.stop().await?;
    town.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_calendar_asked_for_and_nothing_shows_is_named_and_enqueued_again() {
    missing().await.expect("everything comes to its end");
}
