//! Files of jobs as lines of JSON: one document, one job.
//!
//! Decides what can be said of a line without the store. The API reads the document itself once more: it alone knows the
//! secret that `(kept)` stands for, and the addresses that may be called.

use super::raw::{RawLine, RawLines};
use super::{Line, LineProblem, Seen};
use crate::api::LONGEST_BODY_BYTES;
use crate::api::document;
use crate::api::problem::{FieldProblem, field_of};
use chrono::{DateTime, Utc};
use punctual_core::job::JobSpec;
use punctual_core::zone::Zones;
use serde_json::{Map, Value};
use std::io::Read;

/// The jobs of a file, line by line.
pub struct NdjsonLines<'a> {
    raw: RawLines<'a>,
    tenant: &'a str,
    now: DateTime<Utc>,
    zones: &'a Zones,
    seen: Seen,
    has_lines: bool,
    is_over: bool,
}

impl<'a> NdjsonLines<'a> {
    /// Jobs for `tenant`, made at `now`.
    pub fn new(ndjson: impl Read + 'a, tenant: &'a str, now: DateTime<Utc>, zones: &'a Zones) -> Self {
        let raw = RawLines::new(ndjson, LONGEST_BODY_BYTES);
        NdjsonLines { raw, tenant, now, zones, seen: Seen::default(), has_lines: false, is_over: false }
    }

    fn read(&mut self, line: &RawLine) -> Result<(JobSpec, Map<String, Value>), LineProblem> {
        if line.is_cut {
            let problem = format!("the line has more than {LONGEST_BODY_BYTES} bytes: a job needs far less");
            return Err(LineProblem::plain(problem));
        }
        let document: Value = serde_json::from_slice(&line.bytes).map_err(|e| {
            LineProblem::plain(format!("the line is not JSON: it cannot be read beyond column {}", e.column()))
        })?;
        let Value::Object(fields) = &document else {
            return Err(LineProblem::plain("the line must be a JSON object, as `punctual jobs export` writes it"));
        };
        let Some(id) = fields.get("id").and_then(Value::as_str) else {
            return Err(LineProblem::plain("/id: is missing: in a file each job has an id of its own"));
        };
        let spec = document::read_with_kept_secret(&document, id, self.tenant, self.now, self.zones);
        let spec = spec.map_err(|problems| LineProblem::plain(in_words(&problems)))?;
        spec.check().map_err(|error| LineProblem::plain(in_words(&[field_of(&error)])))?;
        match self.seen.first(spec.key.as_str(), line.number) {
            None => Ok((spec, fields.clone())),
            Some(first) => Err(LineProblem::plain(format!("/id: is in line {first} as well: each job has one line"))),
        }
    }
}

/// The first of some problems, and how many more there are.
fn in_words(problems: &[FieldProblem]) -> String {
    let Some(first) = problems.first() else { return "cannot be read".into() };
    let hint = first.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
    let more = match problems.len() - 1 {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    format!("{}: {}{hint}{more}", first.pointer, first.detail)
}

impl Iterator for NdjsonLines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        loop {
            if self.is_over {
                return None;
            }
            let line = match self.raw.next() {
                Some(Ok(line)) => line,
                Some(Err(error)) => {
                    self.is_over = true;
                    let problem = LineProblem::plain(format!("the file cannot be read further: {error}"));
                    return Some(Line::refused(self.raw.lines_read() + 1, problem));
                }
                None => {
                    self.is_over = true;
                    let empty = LineProblem::plain("the file has no lines");
                    return (!self.has_lines).then(|| Line::refused(0, empty));
                }
            };
            if line.bytes.iter().all(u8::is_ascii_whitespace) && !line.is_cut {
                continue;
            }
            self.has_lines = true;
            let (read, document) = match self.read(&line) {
                Ok((spec, document)) => (Ok(spec), Some(document)),
                Err(problem) => (Err(problem), None),
            };
            let notes = read.as_ref().map(JobSpec::warnings).unwrap_or_default();
            return Some(Line { number: line.number, read, notes, document });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str =
        r#""schedule": {"cron": "0 9 * * *"}, "payload": {"handler": "sms", "to": "+442079460123", "text": "Due"}"#;

    fn read(file: &str) -> Vec<Line> {
        let now = "2026-12-01T00:00:00Z".parse().unwrap();
        NdjsonLines::new(file.as_bytes(), "bank", now, &Zones::embedded()).collect()
    }

    #[test]
    fn each_line_is_a_job_and_stays_the_document_that_it_is() {
        let file = format!("{{\"id\": \"c-1/bill\", {JOB}}}\n\n{{\"id\": \"c-2/bill\", {JOB}}}");
        let lines = read(&file);
        let numbers: Vec<u64> = lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [1, 3]);
        assert_eq!(lines[1].read.as_ref().unwrap().key.as_str(), "bank/c-2/bill");
        assert_eq!(lines[1].document.as_ref().unwrap()["schedule"]["cron"], "0 9 * * *");
    }

    #[test]
    fn what_is_wrong_with_a_line_is_said_without_what_was_found() {
        let long = format!("{{\"id\": \"{}\"}}", "x".repeat(LONGEST_BODY_BYTES));
        for (line, expected) in [
            ("{\"id\"", "not JSON"),
            ("[\"+442079460123\"]", "a JSON object"),
            ("{\"id\": 7}", "/id: is missing"),
            (&format!("{{\"id\": \"a\", \"cron\": \"x\", {JOB}}}"), "/cron: is unknown here"),
            ("{\"id\": \"a\", \"schedule\": {\"cron\": \"0 9 * * *\"}}", "/payload: is missing"),
            (
                r#"{"id": "a", "schedule": {"cron": "0 9 * * *"}, "payload": {"handler": "sms", "to": "02079460123", "text": "x"}}"#,
                "/payload: ",
            ),
            (&long, "more than"),
        ] {
            let lines = read(line);
            let problem = lines[0].problem("j.ndjson").unwrap_or_else(|| panic!("{line} is taken"));
            assert!(problem.starts_with("j.ndjson, line 1: ") && problem.contains(expected), "{problem}");
            assert!(!problem.contains("7946"), "{problem}");
        }
        assert_eq!(read("\n").len(), 1, "an empty file is a problem");
    }

    #[test]
    fn a_job_has_one_line_and_may_keep_its_secret() {
        let twice = format!("{{\"id\": \"a\", {JOB}}}\n{{\"id\": \"a\", {JOB}}}");
        assert!(read(&twice)[1].problem("f").unwrap().contains("is in line 1 as well"));
        let kept = r#"{"id": "a", "schedule": {"cron": "0 9 * * *"}, "payload": {"handler": "webhook",
            "url": "https://hooks.example.com", "body": "{}", "secret": "(kept)"}}"#;
        let lines = read(&kept.replace('\n', ""));
        assert!(lines[0].read.is_ok(), "{:?}", lines[0]);
        assert_eq!(lines[0].document.as_ref().unwrap()["payload"]["secret"], "(kept)");
    }
}
