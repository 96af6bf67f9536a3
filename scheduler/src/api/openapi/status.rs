//! What the state of the installation looks like.

use super::operation::reference;
use super::shown::{all_of, count, instant, some_text, text};
use serde_json::{Value, json};

/// What `/v1/status` shows.
pub(super) fn schema() -> Value {
    let number = |description: &str| json!({"type": "number", "description": description});
    let seconds = |description: &str| json!({"type": "integer", "description": description});
    let list = |item: Value| json!({"type": "array", "items": item});
    let shards = || all_of(json!({"urgent": count("Of urgent jobs."), "standard": count("Of all others.")}));
    let depth = || {
        all_of(json!({
            "visible": count("Waiting."), "in_flight": count("In a worker's hand."), "delayed": count("Not to be seen yet."),
        }))
    };
    let is_cut = json!({"type": "boolean", "description": "There may be more than was counted."});
    let shard = all_of(json!({
        "shard": text("Which."), "holder": some_text("The copy that reads it."),
        "wanted_by": some_text("The copy that asked for it."), "cursor": instant("All before this minute is done with."),
        "cursor_age_s": {"type": ["integer", "null"], "description": "How old that is, in seconds."},
        "due": count("Jobs that are due and in no queue."), "due_is_cut": is_cut,
        "lag_s": seconds("For how long the oldest of them is due."),
    }));
    let copy =
        all_of(json!({"id": text("Which."), "version": text("Of the program."), "shards": count("That it holds.")}));
    let limit = all_of(json!({
        "target": text("Whom calls go to."), "per_second": count("Calls a second."),
        "shares": {"type": "object", "additionalProperties": {"type": "integer"}, "description": "Workers and their shares."},
        "shares_free": count("Shares that nobody holds."),
    }));
    let circuit = all_of(json!({
        "target": text("Whom no calls go to."), "state": text("Open or half open."), "workers": count("That say so."),
        "since": text("Since when."), "age_s": seconds("For how long."), "last_said_s": seconds("When it was said last, in seconds before."),
    }));
    let idle = all_of(json!({
        "read_units": number("Read units."), "write_units": number("Write units."), "dollars": number("By the known prices."),
    }));
    all_of(json!({
        "at": text("When this was read."),
        "clock_offset_s": {"type": ["number", "null"], "description": "How far this host's clock is ahead of the store's."},
        "due": count("Jobs that are due and in no queue."), "due_is_cut": is_cut,
        "lag_s": seconds("For how long the oldest of them is due."),
        "copies": list(copy), "queues": all_of(json!({"urgent": depth(), "normal": depth(), "bulk": depth()})),
        "idle_shard_hour": idle, "limits": list(limit), "circuits": list(circuit), "holds": list(reference("Hold")),
        "shards_read": shards(), "shards_written": shards(), "shards": list(shard),
    }))
}
