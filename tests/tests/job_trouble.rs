//! What dispatch does about a job whose own row cannot be read or written for an hour, in memory and in virtual time.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_core::due::{Minute, Shards};
use punctual_core::error::PortError;
use punctual_core::memory::{Effect, FaultPlan, Recorded, World};
use punctual_core::run::RunStatus;
use punctual_tests::logs::Logs;
use punctual_tests::{Town, at, broken, reminder, run_of, watch, within};
use std::sync::Arc;
use std::time::Duration;
use tracing::Level;

const ONE_SHARD: Shards = Shards { urgent: 0, standard: 1 };
const DUE_AT: i64 = 8;
const GOOD_JOBS: usize = 10;
/// The row of this job's run is out of reach.
const ODD: &str = "odd/bill";

/// When runs were put into the queue, and how late.
fn lags(world: &World) -> Vec<(DateTime<Utc>, TimeDelta)> {
    let lag = |recorded: Recorded| match recorded.effect {
        Effect::Enqueued(enqueued) => {
            let message = enqueued.message.expect("it can be read");
            Some((message.due_at, recorded.at + enqueued.delay - message.due_at))
        }
        _ => None,
    };
    world.history().into_iter().filter_map(lag).collect()
}

fn minutes_behind(town: &Town) -> i64 {
    let leases = town.world.leases();
    let cursor = leases.iter().filter(|lease| lease.owner.is_some()).find_map(|lease| lease.cursor);
    Minute::of(town.clock.now()).0 - cursor.expect("the shard is held").0
}

#[tokio::test(start_paused = true)]
async fn a_job_in_trouble_neither_holds_its_shards_cursor_nor_slows_the_others_and_its_row_comes_in_the_end() {
    for error in [PortError::Permanent("refused".into()), PortError::Unknown("lost".into())] {
        let logs = Logs::keep();
        let (reading, reads) = watch::due_reads();
        let (breaking, breakage) = broken::rows_of(run_of(ODD, at(DUE_AT)).job_key);
        let change = Arc::new(move |ports| reading(breaking(ports)));
        let mut town = Town::with(ONE_SHARD, FaultPlan::default(), change).await;
        // Too late to start when a scheduler comes: it needs its row.
        let mut odd = reminder(ODD, "every 24h from 2026-10-05T03:13:28Z");
        odd.missed = within(30);
        town.add(odd).await;
        for n in 0..GOOD_JOBS {
            town.add(reminder(&format!("good-{n}/bill"), &format!("every 60s from 2026-10-05T03:20:{:02}Z", n * 5)))
                .await;
        }
        breakage.set(error.clone());
        tokio::time::sleep(Duration::from_secs(300)).await;
        town.start_scheduler("s");
        tokio::time::sleep(Duration::from_secs(900)).await;
        let mut reads_of_minutes = Vec::new();
        for minute in 0..60 {
            reads.clear();
            tokio::time::sleep(Duration::from_secs(60)).await;
            reads_of_minutes.push(reads.all().len());
            let behind = minutes_behind(&town);
            assert!(behind <= 8, "{error:?}: {behind} minutes behind in minute {minute}");
        }
        let (first, last) = (reads_of_minutes[0], reads_of_minutes[59]);
        assert!(last <= first + first / 10, "{error:?}: the reads grow: {reads_of_minutes:?}");
        assert_eq!(town.world.row(&run_of(ODD, at(DUE_AT))), None, "{error:?}: it is out of reach");
        let told = [logs.of(Level::WARN), logs.of(Level::ERROR)].concat();
        assert_eq!(told.len(), 1, "{error:?}: {told:#?}");
        assert!(told[0].contains(ODD) && told[0].contains(error.class()), "{}", told[0]);
        breakage.mend();
        let is_skipped =
            |world: &World| world.row(&run_of(ODD, at(DUE_AT))).is_some_and(|row| row.status == RunStatus::Skipped);
        assert!(town.until(5, is_skipped).await, "{error:?}: it is not taken up again");
        town.stop().await;
        let odd = town.world.job(&run_of(ODD, at(DUE_AT)).job_key).expect("the job is there");
        assert_eq!(odd.next_scheduled_at, Some(at(DUE_AT + 86_400)), "{error:?}");
        let lags = lags(&town.world);
        assert!(lags.len() >= GOOD_JOBS * 73, "{error:?}: {}", lags.len());
        let late: Vec<_> = lags.iter().filter(|(_, lag)| *lag > TimeDelta::seconds(1)).collect();
        assert!(late.is_empty(), "{error:?}: {late:?}");
    }
}
