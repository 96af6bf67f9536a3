//! `punctual doctor`: what this program works with on this machine.

use crate::listing::table;
use chrono::TimeDelta;
use punctual_core::aws::{Names, connect};
use punctual_core::clock::{AnchoredClock, Clock, MOST_OFFSET, Standing, in_words};
use punctual_core::zone::{ZoneSource, Zones, embedded_version};
use std::time::Duration;

/// Questions to the store. Its answers are in whole seconds: spread over one, they show the clock's offset to tenths.
const QUESTIONS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(110);
/// The doctor does not wait longer for a store.
const PATIENCE: Duration = Duration::from_secs(5);
const NOT_COMPARED: &str = "not compared with the store's: that needs its answers";

/// What was found of the store.
pub struct StoreFound {
    store: String,
    clock: String,
}

/// Asks the store that the environment names, if there is one.
pub async fn ask_store(names: Names) -> StoreFound {
    let found = tokio::time::timeout(PATIENCE, ask(names)).await;
    found.unwrap_or_else(|_| StoreFound {
        store: format!("no answer within {} s", PATIENCE.as_secs()),
        clock: NOT_COMPARED.into(),
    })
}

async fn ask(names: Names) -> StoreFound {
    let aws = match connect(names).await {
        Ok(aws) => aws,
        Err(why) => return StoreFound { store: why.to_string(), clock: NOT_COMPARED.into() },
    };
    let control = aws.ports().control;
    let mut store = "answers".to_owned();
    for _ in 0..QUESTIONS {
        // A refusal tells the time as well as any other answer.
        match control.shards().await {
            Ok(Some(_)) => {}
            Ok(None) => store = "was never set up: run `punctual setup`".into(),
            Err(error) => store = error.to_string(),
        }
        tokio::time::sleep(PAUSE).await;
    }
    StoreFound { store, clock: offset(&aws.clock) }
}

fn offset(clock: &AnchoredClock) -> String {
    let Some(reading) = clock.reading() else { return NOT_COMPARED.into() };
    let exact_to = TimeDelta::from_std(reading.exact_to()).unwrap_or_default();
    match clock.standing() {
        Standing::Off { offset } => {
            let most = MOST_OFFSET.num_seconds();
            format!("{}: above {most} s nothing is written or sent, synchronise it (NTP)", in_words(offset))
        }
        Standing::Anchored { offset } if offset.abs() > exact_to => in_words(offset),
        _ => format!("agrees with the store's, as far as can be seen ({:.2} s)", exact_to.as_seconds_f64()),
    }
}

/// What is in use, as a table; `api` is what was found of the API, where one is named.
pub fn report(zones: &Zones, found: &StoreFound, api: Option<&str>) -> String {
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
    if let Some(api) = api {
        say("API", api.to_owned());
    }
    say("store", found.store.clone());
    say("clock of this host", found.clock.clone());
    if matches!(zones.source(), ZoneSource::Embedded) {
        say("to use others", "set PUNCTUAL_TZDIR to a directory of TZif files".into());
    }
    table.to_string()
}
