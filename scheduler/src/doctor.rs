//! `punctual doctor`: what this program works with on this machine.

use crate::listing::table;
use chrono::TimeDelta;
use punctual_core::aws::{Names, connect};
use punctual_core::clock::{AnchoredClock, Clock, MOST_OFFSET, Standing, in_words};
use punctual_core::zone::{ZoneSource, Zones, embedded_version};
use std::sync::Arc;
use std::time::Duration;

/// Questions to the store. Its answers are in whole seconds: spread over one, they show the clock's offset to tenths.
const QUESTIONS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(110);
/// The doctor does not wait longer for a store.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was found of the store.
pub struct StoreFound {
    store: String,
    clock: String,
}

/// Asks the store that the environment names, if there is one.
pub async fn ask_store(names: Names) -> StoreFound {
    let asked = tokio::time::timeout(PATIENCE, ask(names)).await;
    let asked = asked.unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())));
    match asked {
        Ok(clock) => StoreFound { store: "answers".into(), clock: offset(&clock) },
        Err(why) => StoreFound { store: why, clock: "not compared: that needs the store".into() },
    }
}

async fn ask(names: Names) -> Result<Arc<AnchoredClock>, String> {
    let aws = connect(names).await.map_err(|e| e.to_string())?;
    let control = aws.ports().control;
    for _ in 0..QUESTIONS {
        control.shards().await.map_err(|e| e.to_string())?;
        tokio::time::sleep(PAUSE).await;
    }
    Ok(aws.clock)
}

fn offset(clock: &AnchoredClock) -> String {
    let exact_to = TimeDelta::from_std(clock.exact_to().unwrap_or_default()).unwrap_or_default();
    match clock.standing() {
        Standing::Unanchored => "not compared: the store's answers bear no date".into(),
        Standing::Anchored { offset } if offset.abs() <= exact_to => {
            format!("agrees with the store's, as far as can be seen ({:.1} s)", exact_to.as_seconds_f64())
        }
        Standing::Anchored { offset } => in_words(offset),
        Standing::Off { offset } => {
            let most = MOST_OFFSET.num_seconds();
            format!("{}: above {most} s nothing is written or sent, synchronise it (NTP)", in_words(offset))
        }
    }
}

/// What is in use, as a table.
pub fn report(zones: &Zones, found: &StoreFound) -> String {
    let mut table = table(&["what", "found"]);
    let mut say = |what: &str, found: String| {
        table.add_row([what.to_owned(), found]);
    };
    say("punctual", env!("CARGO_PKG_VERSION").into());
    say("zone rules in use", format!("{} ({})", zones.version(), zones.source()));
    say("zone rules embedded", embedded_version().to_string());
    let system = zones.system().map(|(dir, version)| format!("{version} ({})", dir.display()));
    say("zone rules of the system", system.unwrap_or_else(|| "none that say their version".into()));
    if zones.filled_in() > 0 {
        say("filled in", format!("{} zones that the directory has not are the embedded ones", zones.filled_in()));
    }
    say("store", found.store.clone());
    say("clock of this host", found.clock.clone());
    if matches!(zones.source(), ZoneSource::Embedded) {
        say("to use others", "set PUNCTUAL_TZDIR to a directory of TZif files".into());
    }
    table.to_string()
}
