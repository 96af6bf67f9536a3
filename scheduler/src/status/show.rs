//! What the status says, for people.

use super::name_and_version;
use crate::listing::{self, list, said, table};
use chrono::TimeDelta;
use punctual_core::clock::in_words;
use serde_json::Value;

/// What the API shows of the status, as a text.
pub fn show(status: &Value) -> String {
    let at = said(status, "at");
    let mut text = match status["due"].as_u64().unwrap_or_default() {
        0 => format!("{at}: everything that is due is in a queue\n"),
        due => {
            let more = if status["due_is_cut"] == true { " or more" } else { "" };
            format!("{at}: {due}{more} due and not in a queue, the oldest for {} s\n", said(status, "lag_s"))
        }
    };
    let idle = |name: &str| status["idle_shard_hour"][name].as_f64().unwrap_or_default();
    text += &format!(
        "a shard without work takes {:.0} read units and {:.0} write units an hour, ${:.4} by the known prices\n",
        idle("read_units"),
        idle("write_units"),
        idle("dollars")
    );
    if let Some(offset_s) = status["clock_offset_s"].as_f64() {
        let offset = TimeDelta::milliseconds((offset_s * 1_000.0) as i64);
        text += &format!("the clock of the host that answers is {}\n", in_words(offset));
    }
    let (read, write) = (&status["shards_read"], &status["shards_written"]);
    if read != write {
        text += &format!(
            "shards are being added: {} urgent and {} standard are read, {} and {} written\n",
            said(read, "urgent"),
            said(read, "standard"),
            said(write, "urgent"),
            said(write, "standard")
        );
    }
    let holds = listing::holds(list(status, "holds"));
    let circuits = listing::circuits_table(list(status, "circuits"));
    let limits = listing::shares_table(list(status, "limits"));
    let (copies, queues, shards) = (copies(status), queues(status), shards(status));
    text + &format!("\n{holds}\n\n{circuits}\n\n{copies}\n\n{queues}\n\n{limits}\n\n{shards}")
}

fn copies(status: &Value) -> String {
    let mut table = table(&["copy", "version", "shards"]);
    for copy in list(status, "copies") {
        let id = said(copy, "id");
        let (name, version) = name_and_version(&id);
        table.add_row([name, version, &said(copy, "shards")]);
    }
    table.to_string()
}

fn queues(status: &Value) -> String {
    let mut table = table(&["queue", "waiting", "in hand", "delayed"]);
    for priority in ["urgent", "normal", "bulk"] {
        let queue = &status["queues"][priority];
        table.add_row([priority.to_owned(), said(queue, "visible"), said(queue, "in_flight"), said(queue, "delayed")]);
    }
    table.to_string()
}

fn shards(status: &Value) -> String {
    let mut table = table(&["shard", "holder", "read up to", "cursor age", "due", "oldest due for", "asked for by"]);
    for shard in list(status, "shards") {
        let name = |of: &str| shard[of].as_str().map(|id| name_and_version(id).0.to_owned());
        let seconds = |of: &str| shard[of].as_i64().map(|s| format!("{s} s")).unwrap_or_default();
        let is_due = shard["due"].as_u64().is_some_and(|due| due > 0);
        let cut = if shard["due_is_cut"] == true { "+" } else { "" };
        table.add_row([
            said(shard, "shard"),
            name("holder").unwrap_or_else(|| "nobody".into()),
            said(shard, "cursor"),
            seconds("cursor_age_s"),
            format!("{}{cut}", said(shard, "due")),
            if is_due { seconds("lag_s") } else { String::new() },
            name("wanted_by").unwrap_or_default(),
        ]);
    }
    table.to_string()
}
