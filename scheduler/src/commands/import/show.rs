//! What a file would do and did, in words.

use super::SHOWN;
use super::plan::{Group, Plan, Tally};
use crate::cost::figure;

/// What a file would do.
pub(super) fn plan(name: &str, plan: &Plan) -> String {
    let tally = &plan.tally;
    let groups = [
        (&tally.created, "new"),
        (&tally.changed, "changed"),
        (&tally.cancelled, "cancelled before, and left so"),
        (&tally.over, "with no firing left, and not made"),
        (&plan.gone, "not in the file any more"),
    ];
    let mut text = format!("{name}: {} jobs, {} of them as they are\n", count(plan.jobs), count(tally.same.count));
    for (group, what) in groups.into_iter().filter(|(group, _)| group.count > 0) {
        text += &format!("\n{} {what}\n{}", count(group.count), named(group));
    }
    if let Some(outlook) = &plan.outlook {
        text += &format!("\n{outlook}\n");
    }
    let notes = notes(plan);
    if !notes.is_empty() {
        text += &format!("\n{}\n", notes.join("\n"));
    }
    if plan.refused() > 0 {
        text += &format!("\n{} lines refused, named below\n", count(plan.refused()));
    }
    text + "\nnothing was changed; run it again with --yes"
}

fn named(group: &Group) -> String {
    let mut text: String = group.examples.iter().map(|id| format!("  {id}\n")).collect();
    let more = group.count.saturating_sub(group.examples.len() as u64);
    if more > 0 {
        text += &format!("  and {} more\n", count(more));
    }
    text
}

/// What is allowed but may not be meant: each thing once.
pub(super) fn notes(plan: &Plan) -> Vec<String> {
    let note = |(note, lines): (&String, &u64)| match lines {
        1 => note.clone(),
        lines => format!("{lines} jobs: {note}"),
    };
    let mut notes: Vec<String> = plan.notes.iter().take(SHOWN).map(note).collect();
    let more = plan.notes.len().saturating_sub(SHOWN);
    if more > 0 {
        notes.push(format!("and {more} other things"));
    }
    notes
}

/// What a file did.
pub(super) fn done(name: &str, tally: &Tally) -> String {
    let mut text = format!(
        "{name}: {} jobs made, {} there already, {} changed",
        tally.created.count, tally.same.count, tally.changed.count
    );
    for (group, what) in
        [(&tally.cancelled, "cancelled before and left so"), (&tally.over, "with no firing left and not made")]
    {
        if group.count > 0 {
            text += &format!(", {} {what}", group.count);
        }
    }
    text
}

fn count(number: u64) -> String {
    figure(number as f64)
}
