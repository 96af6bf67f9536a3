//! `punctual jobs import`: files of jobs, read line by line.
//!
//! Decides what a line of a file says: a job, or what is wrong and what to write instead. Each kind of file is an iterator of
//! [`Line`]s that holds one line at a time, and a fingerprint and a number of each line before it ([`Seen`]); a file is read
//! once to be checked and once to be sent. [`forecast`] says what the jobs will come to, beside those that are [`stored`]. A problem says where something is
//! wrong and what was expected, never what was found: where columns are shifted, any of them may hold a phone number, a
//! text or a password.

pub mod crontab;
mod csv;
pub mod forecast;
mod ndjson;
mod raw;
pub mod stored;

pub use self::csv::{CsvLines, read_jobs};
pub use ndjson::NdjsonLines;

use punctual_core::job::JobSpec;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::fmt;
use std::hash::{Hash, Hasher};

/// What a line of a file says.
#[derive(Debug)]
pub struct Line {
    /// Which line of the file, from 1 on; 0 where the file as a whole is meant.
    pub number: u64,
    /// The job, or why there is none.
    pub read: Result<JobSpec, LineProblem>,
    /// What is allowed but may not be meant, and what of the file has no effect here.
    pub notes: Vec<String>,
    /// The job as the file says it, where that is a document: it may hold what only the API can fill in.
    pub document: Option<Map<String, Value>>,
}

/// Why a line is no job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineProblem {
    /// The column, where the file has columns with names.
    pub column: Option<String>,
    /// What was expected, and what to write instead.
    pub text: String,
}

impl Line {
    /// A line with a problem, and nothing to note.
    fn refused(number: u64, problem: LineProblem) -> Self {
        Line { number, read: Err(problem), notes: Vec::new(), document: None }
    }

    /// Its problem with its place: `name, line N, column C: …`; none where it is a job.
    pub fn problem(&self, name: &str) -> Option<String> {
        let problem = self.read.as_ref().err()?;
        Some(match (self.number, &problem.column) {
            (0, _) => format!("{name}: {problem}"),
            (number, Some(_)) => format!("{name}, line {number}, {problem}"),
            (number, None) => format!("{name}, line {number}: {problem}"),
        })
    }
}

impl LineProblem {
    fn plain(text: impl Into<String>) -> Self {
        LineProblem { column: None, text: text.into() }
    }

    fn in_column(column: &str, text: impl Into<String>) -> Self {
        LineProblem { column: Some(column.to_owned()), text: text.into() }
    }
}

impl fmt::Display for LineProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.column {
            Some(column) => write!(f, "column {column}: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// What was seen in the lines before, by 64-bit fingerprints: two that differ are taken for the same once in some 300,000 files
/// of ten million lines.
#[derive(Debug, Default)]
struct Seen(HashMap<u64, u64>);

impl Seen {
    /// The line that said the same first; none if none did, and this is it.
    fn first(&mut self, what: &str, line: u64) -> Option<u64> {
        match self.0.entry(fingerprint(what)) {
            Entry::Occupied(first) => Some(*first.get()),
            Entry::Vacant(place) => {
                place.insert(line);
                None
            }
        }
    }

    /// How often this was counted, this time included.
    fn count(&mut self, what: &str) -> u64 {
        let count = self.0.entry(fingerprint(what)).or_default();
        *count += 1;
        *count
    }
}

/// Tells texts apart in 64 bits.
pub(crate) fn fingerprint(what: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}
