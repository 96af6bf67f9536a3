//! The Jobs API, asked through its router on the world in memory.

mod audit;
mod imports;
mod jobs;
mod letters;
mod odd;
mod rights;

use punctual_core::due::Shards;
use punctual_tests::Town;
use punctual_tests::desk::Desk;
use serde_json::{Value, json};

/// A town, and a desk in it.
async fn town() -> (Town, Desk) {
    let town = Town::new(Shards { urgent: 1, standard: 1 }).await;
    let desk = Desk::new(&town).await;
    (town, desk)
}

/// The document of a daily reminder.
fn bill(id: &str) -> Value {
    json!({
        "id": id, "schedule": {"cron": "0 9 * * *", "tz": "Asia/Kolkata"},
        "payload": {"handler": "sms", "to": "+447700900123", "text": "Your bill is due"},
    })
}
