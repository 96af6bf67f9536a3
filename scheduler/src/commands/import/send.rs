//! Sends the lines of a file to the API in batches, and hands on what came of each.
//!
//! A repeat of a line that was done does nothing, so whatever is not answered is sent again.

use super::super::ask::asked;
use super::super::{CommandError, failed};
use super::source::document_of;
use crate::client::{Ask, Client, Refusal, pause};
use crate::import::Line;
use futures::stream::{self, StreamExt};
use punctual_core::process::random_fraction;
use serde_json::Value;
use std::collections::BTreeMap;

/// Where lines are sent to.
const IMPORT: &str = "/v1/jobs/import";
/// Lines of a batch.
const BATCH: usize = 500;
/// A batch has no more bytes than this, unless one line has: a function's URL takes six million.
const BATCH_BYTES: usize = 4 * 1_024 * 1_024;
/// Batches under way at the same time.
const IN_FLIGHT: usize = 4;
/// Tries of a batch in all.
const TRIES: u32 = 5;

/// What came of a line.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome {
    /// Which line of the file.
    pub(super) line: u64,
    /// The job's id, where the API could read it.
    pub(super) id: String,
    /// What came of it.
    pub(super) result: Result,
}

/// What came of a line, in a word.
#[derive(Debug, PartialEq)]
pub(super) enum Result {
    Created,
    Changed,
    Same,
    /// The job was cancelled, and stays so.
    Cancelled,
    /// Its schedule has no firing left, and it is not there.
    Over,
    /// Why not.
    Refused(String),
}

/// Lines that are sent together, each with its number.
type Batch = Vec<(u64, String)>;

/// The batches of a file's lines. Lines that are no jobs are left out.
struct Batches<I> {
    lines: I,
    held: Option<(u64, String)>,
}

impl<I: Iterator<Item = Line>> Iterator for Batches<I> {
    type Item = Batch;

    fn next(&mut self) -> Option<Batch> {
        let (mut batch, mut bytes) = (Batch::new(), 0);
        let mut jobs = self.lines.by_ref().filter_map(|line| {
            let document = document_of(line.read.as_ref().ok()?, line.document);
            Some((line.number, Value::Object(document).to_string()))
        });
        while batch.len() < BATCH {
            let Some((number, text)) = self.held.take().or_else(|| jobs.next()) else { break };
            if !batch.is_empty() && bytes + text.len() > BATCH_BYTES {
                self.held = Some((number, text));
                break;
            }
            bytes += text.len() + 1;
            batch.push((number, text));
        }
        (!batch.is_empty()).then_some(batch)
    }
}

/// Sends all lines that are jobs; `done` is told what came of each, in the order of the file.
pub(super) async fn send(
    client: &Client,
    tenant: &str,
    lines: impl Iterator<Item = Line>,
    is_dry: bool,
    mut done: impl FnMut(Outcome),
) -> std::result::Result<(), CommandError> {
    let batches = Batches { lines, held: None };
    let one = |batch| send_one(client, tenant, batch, is_dry);
    let mut answers = stream::iter(batches).map(one).buffered(IN_FLIGHT);
    while let Some(outcomes) = answers.next().await {
        outcomes?.into_iter().for_each(&mut done);
    }
    Ok(())
}

/// Sends a batch until each of its lines is answered.
async fn send_one(
    client: &Client,
    tenant: &str,
    batch: Batch,
    is_dry: bool,
) -> std::result::Result<Vec<Outcome>, CommandError> {
    let (mut left, mut outcomes) = (batch, BTreeMap::new());
    for tried in 1..=TRIES {
        let body: String = left.iter().flat_map(|(_, text)| [text.as_str(), "\n"]).collect();
        let ask = Ask::post(IMPORT).tenant(Some(tenant)).lines(body.into()).repeatable();
        let ask = if is_dry { ask.query("dry_run", true) } else { ask };
        let answers = client.request_lines(&ask).await.map_err(asked)?;
        for answer in &answers {
            let place = answer["line"].as_u64().and_then(|line| usize::try_from(line).ok()?.checked_sub(1));
            let Some((number, _)) = place.and_then(|place| left.get(place)) else { continue };
            if let Some(outcome) = outcome(*number, answer) {
                outcomes.insert(*number, outcome);
            }
        }
        left.retain(|(number, _)| !outcomes.contains_key(number));
        if left.is_empty() {
            return Ok(outcomes.into_values().collect());
        }
        if tried < TRIES {
            tokio::time::sleep(pause(tried, random_fraction(), None)).await;
        }
    }
    Err(failed("the API did not do all lines of a batch: its store or a queue does not answer"))
}

/// What an answer says of its line; none where it was not done.
fn outcome(line: u64, answer: &Value) -> Option<Outcome> {
    let result = match answer["result"].as_str()? {
        "created" => Result::Created,
        "changed" => Result::Changed,
        "same" => Result::Same,
        "cancelled" => Result::Cancelled,
        "refused" if is_over(&answer["problem"]) => Result::Over,
        "refused" => Result::Refused(Refusal::of_problem(&answer["problem"]).text(|_| None)),
        _ => return None,
    };
    Some(Outcome { line, id: answer["id"].as_str().unwrap_or_default().to_owned(), result })
}

/// Whether a job was refused because its time is over: no error of a file, which is imported again and again.
fn is_over(problem: &Value) -> bool {
    let errors = problem["errors"].as_array().map(Vec::as_slice).unwrap_or_default();
    matches!(errors, [one] if one["pointer"] == "/schedule"
        && one["detail"].as_str().is_some_and(|detail| detail.contains("no firing left")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::problem::{FieldProblem, Problem};
    use punctual_core::zone::Zones;
    use serde_json::json;

    #[test]
    fn batches_hold_the_jobs_of_a_file_with_their_lines() {
        let rows: String = (0..1_200).map(|n| format!("c-{n},+447700900123,bill,normal,every 24h,Due\n")).collect();
        let file = format!("customer,phone,kind,priority,schedule,template\n{rows}c-x,0,bill,normal,every 24h,Due\n");
        let (now, zones) = ("2026-12-01T00:00:00Z".parse().unwrap(), Zones::embedded());
        let lines = crate::import::CsvLines::new(file.as_bytes(), "bank", now, &zones);
        let batches: Vec<Batch> = Batches { lines, held: None }.collect();
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [500, 500, 200]);
        assert_eq!((batches[0][0].0, batches[2][199].0), (2, 1_201));
        assert!(!batches[0][0].1.contains("\"from\""), "an anchor that nobody stated is not sent");
    }

    #[test]
    fn a_line_whose_time_is_over_is_told_from_a_wrong_one() {
        let answer = |problem: Problem| outcome(7, &json!({"id": "a", "result": "refused", "problem": problem.json()}));
        let field = |pointer: &str, detail: &str| Problem::fields(vec![FieldProblem::new(pointer, detail)]);
        let over = answer(field("/schedule", "has no firing left: the job was not made"));
        assert_eq!(over, Some(Outcome { line: 7, id: "a".into(), result: Result::Over }));
        let wrong = answer(field("/schedule/cron", "has no firing left"));
        let text = "/schedule/cron: has no firing left".to_owned();
        assert_eq!(wrong.unwrap().result, Result::Refused(text));
        assert_eq!(outcome(7, &json!({"line": 1, "result": "failed"})), None, "it is sent again");
    }
}
