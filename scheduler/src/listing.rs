//! What the API shows, as tables for people; and what it shows of limits, holds and circuits. A table shows no payload.

mod circuits;
mod jobs;
mod runs;
mod steering;

pub use circuits::{circuits_json, circuits_table};
pub(crate) use jobs::has_kept_secret;
pub use jobs::{changes, job, jobs, payload, quarantined, schedule};
pub use runs::{letters, run, runs};
pub(crate) use steering::limit_of;
pub use steering::{hold_json, holds, limits, limits_json, scope, shares_json, shares_table};

use chrono::{DateTime, SecondsFormat, Utc};
use comfy_table::{Table, presets};
use punctual_core::job::JobSpec;
use punctual_core::payload::Handler;
use punctual_core::render::example;
use punctual_core::sms::{self, Encoding, Segments};
use serde_json::Value;

/// How many messages a job's text is, as one of its runs would carry it; none for other handlers.
fn size(spec: &JobSpec) -> Option<Segments> {
    let payload = if spec.payload.handler() == Handler::Sms { example(spec)? } else { return None };
    payload.text().map(sms::segments)
}

/// How many messages a job's text is; none for other handlers.
pub(crate) fn segment_count(spec: &JobSpec) -> Option<usize> {
    size(spec).map(|size| size.count)
}

/// The same in words.
pub(crate) fn segments(spec: &JobSpec) -> Option<String> {
    let Segments { encoding, count } = size(spec)?;
    let encoding = match encoding {
        Encoding::Gsm => "GSM",
        Encoding::Ucs2 => "UCS-2",
    };
    Some(format!("{} ({encoding})", segments_in_words(count as u64)))
}

fn segments_in_words(count: u64) -> String {
    let noun = if count == 1 { "segment" } else { "segments" };
    format!("{count} SMS {noun}")
}

pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    table
}

/// Rows of a name and a value; those without a value are left out.
fn facts(rows: impl IntoIterator<Item = (&'static str, Option<String>)>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for (name, value) in rows {
        if let Some(value) = value {
            table.add_row([name.to_owned(), value]);
        }
    }
    table.to_string()
}

pub(crate) fn lines(values: impl Iterator<Item = Value>) -> String {
    values.map(|value| value.to_string()).collect::<Vec<_>>().join("\n")
}

/// A text or number of an object; nothing where there is none.
pub(crate) fn said(of: &Value, name: &str) -> String {
    given(of, name).unwrap_or_default()
}

/// The same, as far as it is there.
pub(crate) fn given(of: &Value, name: &str) -> Option<String> {
    match &of[name] {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// A list of an object; empty where there is none.
pub(crate) fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// An instant as everything here shows it: `2026-12-05T09:00:00Z`.
pub(crate) fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

/// An instant that the API shows, without parts of a second.
fn whole(at: &str) -> String {
    match at.parse::<DateTime<Utc>>() {
        Ok(at) => at.to_rfc3339_opts(SecondsFormat::Secs, true),
        Err(_) => at.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_shown_in_whole_seconds() {
        assert_eq!(instant(DateTime::UNIX_EPOCH), "1970-01-01T00:00:00Z");
        assert_eq!(whole("2026-12-05T09:00:00.250Z"), "2026-12-05T09:00:00Z");
        assert_eq!(whole("soon"), "soon");
    }
}
