//! Runs as tables.

use super::{facts, given, list, said, table, whole};
use serde_json::Value;

/// Runs as the API lists them.
pub fn runs(runs: &[Value]) -> String {
    let mut table = table(&["run", "status", "due", "started", "attempts", "why"]);
    for run in runs {
        table.add_row([
            said(run, "run"),
            said(run, "status"),
            whole(&said(run, "due_at")),
            whole(&said(run, "started_at")),
            said(run, "attempt"),
            why(run).unwrap_or_default(),
        ]);
    }
    table.to_string()
}

/// Dead letters as the API lists them.
pub fn letters(letters: &[Value]) -> String {
    let mut table = table(&["run", "status", "ended", "attempts", "class", "why"]);
    for letter in letters {
        table.add_row([
            said(letter, "id"),
            said(letter, "status"),
            whole(&said(letter, "completed_at")),
            said(letter, "attempt"),
            said(letter, "class"),
            why(letter).unwrap_or_default(),
        ]);
    }
    table.to_string()
}

/// One run with its attempts, and who saw to its dead letter.
pub fn run(run: &Value) -> String {
    let at = |name: &str| given(run, name).map(|at| whole(&at));
    let note = &run["attended"];
    let attended = note.is_object().then(|| {
        let replay = given(note, "replay").map(|replay| format!(", run again as {replay}")).unwrap_or_default();
        let why = given(note, "why").map(|why| format!(": {why}")).unwrap_or_default();
        format!("by {}, {}{replay}{why}", said(note, "by"), whole(&said(note, "at")))
    });
    let shown = facts([
        ("run", given(run, "id")),
        ("status", given(run, "status")),
        ("why", why(run)),
        ("scheduled", at("scheduled_at")),
        ("due", at("due_at")),
        ("started", at("started_at")),
        ("completed", at("completed_at")),
        ("not before", at("not_before")),
        ("gateway's id", given(run, "gateway_ref")),
        ("attended", attended),
    ]);
    let attempts = list(run, "attempts");
    if attempts.is_empty() {
        return shown;
    }
    let mut table = table(&["attempt", "started", "ended", "worker", "outcome", "detail"]);
    for attempt in attempts {
        table.add_row([
            said(attempt, "n"),
            said(attempt, "started_at"),
            said(attempt, "ended_at"),
            said(attempt, "worker"),
            said(attempt, "class"),
            said(attempt, "detail"),
        ]);
    }
    format!("{shown}\n\n{table}")
}

fn why(run: &Value) -> Option<String> {
    let range = &run["range"];
    let several =
        range.is_object().then(|| format!(", {} firings up to {}", said(range, "count"), whole(&said(range, "to"))));
    let reason = given(run, "reason").map(|reason| reason + several.as_deref().unwrap_or_default());
    reason.or(given(run, "error"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_row_for_several_firings_says_how_many() {
        let row = json!({
            "run": "1791171000", "status": "skipped", "reason": "missed", "range": {"to": "2026-10-05T04:00:00Z", "count": 49},
        });
        assert!(runs(&[row]).contains("missed, 49 firings up to 2026-10-05T04:00:00Z"));
    }

    #[test]
    fn a_run_is_shown_with_its_attempts() {
        let row = json!({
            "id": "bank/c-1/bill:1791171000", "status": "dead", "error": "503", "due_at": "2026-10-05T03:30:00Z",
            "attempts": [{"n": 1, "class": "temporary", "worker": "w1", "detail": "503"}],
            "attended": {"by": "ann", "at": "2026-10-05T05:00:00.000Z", "replay": "1791171000r1", "why": null},
        });
        let text = run(&row);
        for expected in
            ["bank/c-1/bill:1791171000", "temporary", "by ann, 2026-10-05T05:00:00Z, run again as 1791171000r1"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
