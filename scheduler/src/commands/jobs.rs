//! Making jobs one by one, and looking at them.

use super::ask::{Asker, Pages, asked, due_next, now, progress};
use super::payload::{read_over, read_secret_file};
use super::{CommandError, bad, failed, in_option, print};
use crate::api::{LARGEST_PAGE, document, path_of};
use crate::cli::{AddArgs, ChangesArgs, ExportArgs, ListArgs, ShowArgs};
use crate::client::Ask;
use crate::listing::{self, has_kept_secret, list as entries};
use axum::http::StatusCode;
use punctual_core::job::{JobKey, JobSpec};
use punctual_core::payload::Secret;
use punctual_core::retry::RetryRule;
use punctual_core::schedule::{Anchor, Timing};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};

/// Where jobs are.
pub(super) const JOBS: &str = "/v1/jobs";
/// Whose a job is while only its options are read: no option depends on it.
pub(super) const SOMEBODY: &str = "default";

pub(super) async fn add(asker: &Asker, args: AddArgs) -> Result<(), CommandError> {
    let key = JobKey::new(args.tenant.as_deref().unwrap_or(SOMEBODY), &args.id).map_err(bad)?;
    let client = asker.client_allowing(&args.payload.webhook_allow).await;
    let (now, zones) = (now(&client), &*asker.zones);
    let timetable = args.runs.read(&args.clock, &args.schedule, key.as_str(), now, zones).map_err(in_option)?;
    let secret = read_secret_file(&args.payload)?;
    let spec = JobSpec {
        key,
        name: args.name,
        schedule: timetable.schedule,
        anchor: timetable.anchor,
        priority: args.priority.parse().map_err(bad)?,
        payload: read_over(&args.payload, None, secret.clone())?,
        retry: args.retry.read_over(RetryRule::default()).map_err(in_option)?,
        spread: timetable.spread,
        missed: timetable.missed,
    };
    let body = as_said(&spec, secret.flatten().as_ref(), args.runs.spread_key.as_deref());
    let ask = Ask::post(JOBS).tenant(args.tenant.as_deref()).json(&Value::Object(body)).repeatable();
    let answer = client?.request(&ask).await.map_err(asked)?;
    let job = answer.json;
    for warning in entries(&job, "warnings").iter().filter_map(Value::as_str) {
        eprintln!("warning: {warning}");
    }
    let key = name_of(&job);
    if answer.status != StatusCode::CREATED {
        return print(format_args!("job {key} is there already, the same"));
    }
    let schedule = listing::schedule(&job["schedule"], written(&spec));
    let due = due_next(&job, zones).unwrap_or_default();
    let size = listing::segments(&spec).map(|size| format!("; its text is {size}")).unwrap_or_default();
    print(format_args!("job {key} made ({schedule}); its first run is due at {due}{size}"))
}

/// The document of a job as options or a file said it: what is left to the API stays so. `hash_key` chooses the values of
/// hashed fields, if one was named.
pub(super) fn as_said(spec: &JobSpec, secret: Option<&Secret>, hash_key: Option<&str>) -> Map<String, Value> {
    let mut document = document::write(spec);
    let schedule = &mut document["schedule"];
    if let (Timing::Every { .. }, Anchor::Implied, Some(schedule)) =
        (&spec.schedule.timing, spec.anchor, schedule.as_object_mut())
    {
        schedule.remove("from");
    }
    if let Some(written) = written(spec) {
        schedule["cron"] = json!(written);
        schedule["hash_key"] = json!(hash_key);
    }
    if let Some(secret) = secret {
        document["payload"]["secret"] = json!(secret.reveal());
    }
    document
}

/// A cron expression as a person wrote it.
fn written(spec: &JobSpec) -> Option<&str> {
    match &spec.schedule.timing {
        Timing::Cron(cron) => Some(cron.written()),
        _ => None,
    }
}

/// What people call a job.
pub(super) fn name_of(job: &Value) -> String {
    format!("{}/{}", listing::said(job, "tenant"), listing::said(job, "id"))
}

pub(super) async fn list(asker: &Asker, args: ListArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let ask = listed(args.tenant.as_deref(), args.prefix.as_deref(), args.state.as_deref());
    let (mut jobs, more) = Pages::of(&client, ask).up_to(args.limit).await?;
    jobs.sort_by_key(|job| listing::said(job, "id"));
    let is_quarantine = args.state.as_deref() == Some("quarantined");
    print(match (args.json, is_quarantine) {
        (true, _) => listing::lines(jobs.into_iter()),
        (false, true) => listing::quarantined(&jobs),
        (false, false) => listing::jobs(&jobs),
    })?;
    if more {
        eprintln!("there are more: raise --limit");
    }
    Ok(())
}

/// A listing of jobs.
pub(super) fn listed(tenant: Option<&str>, prefix: Option<&str>, state: Option<&str>) -> Ask {
    let mut ask = Ask::get(JOBS).tenant(tenant);
    if let Some(prefix) = prefix {
        ask = ask.query("prefix", prefix);
    }
    match state {
        Some(state) => ask.query("state", state),
        None => ask,
    }
}

pub(super) async fn show(asker: &Asker, args: ShowArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let ask = Ask::get(path_of(&args.id)).tenant(args.tenant.as_deref());
    let job = client.request(&ask).await.map_err(asked)?.json;
    if args.json {
        return print(job);
    }
    print(listing::job(&job))?;
    if args.payload { print(format_args!("\n{}", listing::payload(&job))) } else { Ok(()) }
}

pub(super) async fn changes(asker: &Asker, args: ChangesArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let ask = Ask::get(format!("{}/changes", path_of(&args.id))).tenant(args.tenant.as_deref());
    let (changes, more) = Pages::of(&client, ask).up_to(args.limit).await?;
    print(if args.json { listing::lines(changes.into_iter()) } else { listing::changes(&changes) })?;
    if more {
        eprintln!("there are more: raise --limit");
    }
    Ok(())
}

/// Writes the documents of jobs, page by page.
pub(super) async fn export(asker: &Asker, args: ExportArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let ask = listed(args.tenant.as_deref(), args.prefix.as_deref(), args.state.as_deref());
    let mut pages = Pages::of(&client, ask);
    let mut out: Box<dyn Write> = match &args.output {
        Some(path) => {
            let file = File::create(path);
            Box::new(BufWriter::new(
                file.map_err(|e| bad(format!("--output: {} cannot be written: {e}", path.display())))?,
            ))
        }
        None => Box::new(BufWriter::new(std::io::stdout())),
    };
    let bar = progress(None, "exported");
    let (mut written, mut with_secret, mut unread, mut over) = (0_u64, 0_u64, 0_u64, false);
    'pages: while let Some(jobs) = pages.next(LARGEST_PAGE).await? {
        for job in jobs {
            match job["state"].as_str() {
                Some("unreadable") => {
                    unread += 1;
                    continue;
                }
                // What ended for good is no job to make anew.
                Some("cancelled") => continue,
                _ => with_secret += u64::from(has_kept_secret(&job)),
            }
            let document: Map<String, Value> =
                document::FIELDS.iter().map(|field| ((*field).to_owned(), job[*field].clone())).collect();
            match writeln!(out, "{}", Value::Object(document)) {
                // Whoever reads has seen enough.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    over = true;
                    break 'pages;
                }
                other => other.map_err(cannot_write)?,
            }
            written += 1;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    if !over {
        out.flush()
            .or_else(|e| if e.kind() == ErrorKind::BrokenPipe { Ok(()) } else { Err(e) })
            .map_err(cannot_write)?;
    }
    if with_secret > 0 {
        eprintln!(
            "warning: {with_secret} of these jobs have a secret, which is written as `(kept)`: imported elsewhere they need it anew"
        );
    }
    if let Some(path) = &args.output {
        print(format_args!("{written} jobs written to {}", path.display()))?;
    }
    match unread {
        0 => Ok(()),
        unread => Err(CommandError::Partly(format!("{unread} jobs cannot be read by this version and are left out"))),
    }
}

fn cannot_write(error: std::io::Error) -> CommandError {
    failed(format!("the export cannot be written: {error}"))
}
