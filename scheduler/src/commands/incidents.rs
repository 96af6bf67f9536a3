//! What needs a person: dead letters, and what the calendar asked for and no row shows.

use super::ask::{Asker, Pages, asked};
use super::{CommandError, bad, failed, print};
use crate::api::path_of;
use crate::cli::{
    AuditArgs, DeadLettersCommand, LettersArgs, LettersDropArgs, LettersListArgs, LettersReplayArgs, ReplayArgs,
};
use crate::client::{Ask, Client};
use crate::listing::{self, list, said};
use punctual_core::run::RunKey;
use punctual_core::schedule::parse_interval;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

pub(super) async fn dead_letters(asker: &Asker, command: DeadLettersCommand) -> Result<(), CommandError> {
    match command {
        DeadLettersCommand::List(args) => list_letters(asker, args).await,
        DeadLettersCommand::Show(args) => super::runs::show(asker, args).await,
        DeadLettersCommand::Replay(args) => replay_letters(asker, args).await,
        DeadLettersCommand::Drop(args) => drop_letters(asker, args).await,
    }
}

fn seconds(option: &str, text: Option<&str>) -> Result<Option<i64>, CommandError> {
    let read = |text: &str| if text == "0s" { Ok(0) } else { parse_interval(text) };
    text.map(read).transpose().map_err(|error| bad(format!("--{option}: {error}")))
}

/// What is said of which letters are meant, by the API's names.
fn which(args: &LettersArgs) -> Result<Map<String, Value>, CommandError> {
    let said = [
        ("prefix", json!(args.prefix)),
        ("status", json!(args.status)),
        ("class", json!(args.class)),
        ("older_than_s", json!(seconds("older-than", args.older_than.as_deref())?)),
        ("newer_than_s", json!(seconds("newer-than", args.newer_than.as_deref())?)),
    ];
    Ok(said.into_iter().filter(|(_, value)| !value.is_null()).map(|(name, value)| (name.to_owned(), value)).collect())
}

async fn list_letters(asker: &Asker, args: LettersListArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let said = which(&args.which)?;
    let mut ask = Ask::get("/v1/dead-letters").tenant(args.which.tenant.as_deref());
    for name in ["prefix", "status", "class", "older_than_s", "newer_than_s"] {
        if let Some(value) = said.get(name) {
            ask = ask.query(name, value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        }
    }
    let (letters, more) = Pages::of(&client, ask).up_to(args.limit).await?;
    print(if args.which.json { listing::lines(letters.into_iter()) } else { listing::letters(&letters) })?;
    if more {
        eprintln!("there are more: raise --limit");
    }
    Ok(())
}

async fn replay_letters(asker: &Asker, args: LettersReplayArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let mut body = meant(&args.which, &args.runs, args.dry_run)?;
    body.insert("per_second".into(), json!(args.per_second));
    each(&client, "/v1/dead-letters/replay", &args.which, body).await
}

async fn drop_letters(asker: &Asker, args: LettersDropArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let mut body = meant(&args.which, &args.runs, args.dry_run)?;
    body.insert("why".into(), json!(args.why));
    each(&client, "/v1/dead-letters/drop", &args.which, body).await
}

fn meant(args: &LettersArgs, runs: &[String], is_dry: bool) -> Result<Map<String, Value>, CommandError> {
    let mut body = which(args)?;
    if !runs.is_empty() {
        body.insert("runs".into(), json!(runs));
    }
    body.insert("dry_run".into(), json!(is_dry));
    Ok(body)
}

/// Asks until all that are meant are done, and says what came of them.
async fn each(
    client: &Client,
    path: &str,
    args: &LettersArgs,
    mut body: Map<String, Value>,
) -> Result<(), CommandError> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        // A repeat replays and drops nothing that was replayed or dropped.
        let ask = Ask::post(path).tenant(args.tenant.as_deref()).json(&Value::Object(body.clone())).repeatable();
        let done = client.request(&ask).await.map_err(asked)?.json;
        if args.json {
            print(&done)?;
        } else {
            for item in list(&done, "items") {
                let more = ["replay", "detail", "status"].into_iter().filter_map(|name| item[name].as_str());
                let more: String = more.map(|text| format!(" {text}")).collect();
                print(format_args!("{} {}{more}", said(item, "id"), said(item, "result")))?;
            }
        }
        for (word, count) in done["counts"].as_object().into_iter().flatten() {
            *counts.entry(word.clone()).or_default() += count.as_u64().unwrap_or_default();
        }
        match done["next_cursor"].as_str() {
            Some(cursor) => body.insert("cursor".into(), json!(cursor)),
            None => break,
        };
    }
    if !args.json {
        let words: Vec<String> =
            counts.iter().map(|(word, count)| format!("{count} {}", word.replace('_', " "))).collect();
        print(if words.is_empty() { "nothing waits that was meant".into() } else { words.join(", ") })?;
    }
    match counts.get("refused").or(counts.get("left")) {
        Some(count) => Err(CommandError::Partly(format!("{count} were not done"))),
        None => Ok(()),
    }
}

/// One run once more, by its job and its key.
pub(super) async fn replay_one(asker: &Asker, args: ReplayArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let tenant = args.tenant.as_deref();
    let run = RunKey::try_from(args.run).map_err(bad)?;
    let ask = Ask::get(format!("{}/runs/{run}", path_of(&args.job))).tenant(tenant);
    let id = said(&client.request(&ask).await.map_err(asked)?.json, "id");
    let ask = Ask::post("/v1/dead-letters/replay").tenant(tenant).json(&json!({"runs": [id]})).repeatable();
    let done = client.request(&ask).await.map_err(asked)?.json;
    let item = &done["items"][0];
    match item["result"].as_str() {
        Some("replayed") => {
            let of_job = id.rsplit_once(':').map_or(id.as_str(), |(job, _)| job);
            print(format_args!("run {of_job}:{} is in its queue", said(item, "replay")))
        }
        Some("stands") => Err(failed(format!(
            "run {} is {}: only what is dead or indeterminate is replayed",
            said(item, "replay"),
            said(item, "status")
        ))),
        Some("too_late") => Err(failed(format!("run {id} may not start any more: its deadline is over"))),
        Some("missing") => Err(failed(format!("run {id} is not dead or indeterminate: only those are replayed"))),
        _ => Err(failed(said(item, "detail"))),
    }
}

/// One run of the timetable, enqueued again.
pub(super) async fn requeue_one(asker: &Asker, args: ReplayArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let run = RunKey::try_from(args.run).map_err(bad)?;
    let ask = Ask::post(format!("{}/runs/{run}/requeue", path_of(&args.job))).tenant(args.tenant.as_deref());
    let done = client.request(&ask.repeatable()).await.map_err(asked)?.json;
    print(format_args!("run {} is in its queue", said(&done, "run_id")))
}

/// Holds the calendar against the rows, call by call, and enqueues what is missing if that is asked for.
pub(super) async fn audit(asker: &Asker, args: AuditArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let grace = seconds("grace", Some(&args.grace))?.unwrap_or_default();
    // By the first call: the others go on over the same span.
    let (from, to) = (args.from.clone(), args.to.clone());
    let (mut sums, mut requeued, mut jobs, mut unreadable) = (Sums::default(), 0, 0, 0);
    let mut cursor: Option<String> = None;
    loop {
        let ask = if args.requeue {
            let mut body = json!({"grace_s": grace});
            for (name, value) in [("prefix", &args.prefix), ("from", &from), ("to", &to), ("cursor", &cursor)] {
                if let Some(value) = value {
                    body[name] = json!(value);
                }
            }
            Ask::post("/v1/audit/requeue").json(&body).repeatable()
        } else {
            let mut ask = Ask::get("/v1/audit").query("grace_s", grace).query("show", &args.show);
            for (name, value) in [("prefix", &args.prefix), ("from", &from), ("to", &to), ("cursor", &cursor)] {
                if let Some(value) = value {
                    ask = ask.query(name, value);
                }
            }
            ask
        };
        let found = client.request(&ask.tenant(args.tenant.as_deref())).await.map_err(asked)?.json;
        if args.json {
            print(&found)?;
        } else {
            for item in list(&found, "items") {
                let reason = item["reason"].as_str().map(|reason| format!(" ({reason})")).unwrap_or_default();
                let (job, run, standing) = (said(item, "job"), said(item, "run"), said(item, "standing"));
                print(format_args!("{job}:{run} due {} {standing}{reason}", said(item, "due_at")))?;
            }
        }
        let number = |name: &str| found[name].as_u64().unwrap_or_default();
        (requeued, jobs, unreadable) =
            (requeued + number("requeued"), jobs + number("jobs"), unreadable + number("unreadable"));
        sums.add("", &found["summary"]);
        cursor = found["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            break;
        }
    }
    if !args.json {
        print(sums.table(jobs))?;
    }
    let missing = sums.of("missing");
    if unreadable > 0 {
        return Err(CommandError::Partly(format!(
            "{unreadable} jobs cannot be read by this version: nothing is known of them"
        )));
    }
    match (missing, requeued) {
        (0, _) => Ok(()),
        (missing, 0) => Err(failed(format!("{missing} are missing; `punctual audit --requeue` enqueues them again"))),
        (missing, requeued) => {
            Err(failed(format!("{missing} were missing, {requeued} are in their queues again: audit once more")))
        }
    }
}

/// The counts of several calls, by name; those of a group by the group's and their own.
#[derive(Default)]
struct Sums(BTreeMap<String, u64>);

impl Sums {
    fn add(&mut self, group: &str, counts: &Value) {
        for (name, count) in counts.as_object().into_iter().flatten() {
            let name = if group.is_empty() { name.clone() } else { format!("{group}: {name}") };
            match count.as_u64() {
                Some(count) => *self.0.entry(name).or_default() += count,
                None => self.add(&name, count),
            }
        }
    }

    fn of(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or_default()
    }

    fn table(&self, jobs: u64) -> String {
        let mut table = listing::table(&["", "instants"]);
        table.add_row(["jobs".to_owned(), jobs.to_string()]);
        let first = ["due", "succeeded"];
        let rest = self.0.keys().map(String::as_str).filter(|name| !first.contains(name) && *name != "missing");
        for name in first.into_iter().chain(rest).chain(["missing"]) {
            table.add_row([name.to_owned(), self.of(name).to_string()]);
        }
        table.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_several_calls_add_up_and_what_is_missing_stands_last() {
        let mut sums = Sums::default();
        for missing in [0, 2] {
            sums.add("", &json!({"due": 5, "succeeded": 3, "missing": missing, "open": {"queued": 1}, "skipped": {}}));
        }
        assert_eq!((sums.of("due"), sums.of("open: queued"), sums.of("missing")), (10, 2, 2));
        let table = sums.table(7);
        assert!(table.trim_end().lines().last().is_some_and(|line| line.contains("missing")), "{table}");
    }
}
