//! `jobs import`: what a file would do, and then that.
//!
//! A file is read twice, line by line: once to say what it comes to, and once to do it. Nothing of it is kept but a few
//! examples, and a fingerprint of each id where jobs are looked for that it does not name any more.

mod plan;
mod send;
mod show;
mod source;

use super::ask::{Asker, progress};
use super::{CommandError, bad, failed, print};
use crate::cli::{ImportArgs, ImportFormat};
use crate::client::Client;
use plan::{Plan, Tally};
use source::Source;
use std::io::IsTerminal;

/// Lines and jobs named one by one where many could be.
const SHOWN: usize = 20;

pub(super) async fn import(asker: &Asker, args: ImportArgs) -> Result<(), CommandError> {
    let source = Source::of(&args, asker.is_far())?;
    let client = asker.client_allowing(&args.webhook_allow).await?;
    let is_look = args.dry_run || args.with_stored || (!args.yes && std::io::stdout().is_terminal());
    let (now, zones) = (client.now(), &*asker.zones);
    let bar = progress(None, "read");
    let plan = plan::plan(&client, &source, now, zones, is_look, &bar).await;
    bar.finish_and_clear();
    let plan = plan?;
    let takes_part = args.skip_refused || (source.format == ImportFormat::Crontab && plan.jobs > 0);
    if is_look {
        print(show::plan(&source.name, &plan))?;
        return refusals(&source.name, plan.refused(), plan.problems(&source.name), takes_part);
    }
    if plan.refused() > 0 && !takes_part {
        return Err(CommandError::BadInput(plan.problems(&source.name)));
    }
    for note in show::notes(&plan) {
        eprintln!("warning: {note}");
    }
    if args.cancel_gone && plan.jobs == 0 {
        return Err(bad(format!("{} names no job: nothing is cancelled for that", source.name)));
    }
    let bar = progress(Some(plan.jobs), "imported");
    let mut tally = Tally::default();
    let lines = source.lines(now, zones)?;
    let sent = send::send(&client, &source.tenant, lines, false, |outcome| {
        tally.add(outcome);
        bar.inc(1);
    });
    let sent = sent.await;
    bar.finish_and_clear();
    sent.map_err(|error| match error {
        CommandError::Failed(problem) => {
            let done = tally.all();
            failed(format!(
                "{problem}; {done} lines are done: import the file again to go on, what is done is found as it is"
            ))
        }
        error => error,
    })?;
    finish(&client, &source, &args, &plan, &tally).await
}

/// Cancels what is gone, if that is asked for, and says what came of all.
async fn finish(
    client: &Client,
    source: &Source,
    args: &ImportArgs,
    plan: &Plan,
    tally: &Tally,
) -> Result<(), CommandError> {
    for id in &tally.over.examples {
        eprintln!("job {}/{id}: its schedule has no firing left, it was not made", source.tenant);
    }
    let refused = plan.refused_by_file + tally.refused;
    let mut gone_words = String::new();
    let mut are_gone_left = false;
    match (&source.gone_under, plan.gone.count) {
        (None, _) | (_, 0) => {}
        (Some(_), gone) if !args.cancel_gone => {
            gone_words = format!(", {gone} not in the file any more and left as they are");
        }
        (Some(_), gone) if refused > 0 => {
            are_gone_left = true;
            gone_words = format!(", {gone} not in the file any more and left: lines that were refused may name them");
        }
        (Some(prefix), _) => {
            let (cancelled, left) = plan::cancel_gone(client, &source.tenant, prefix, &plan.named).await?;
            are_gone_left = left > 0;
            gone_words = format!(", {cancelled} not in the file any more and cancelled");
        }
    }
    print(format_args!("{}{gone_words}", show::done(&source.name, tally)))?;
    let problems = plan::first_problems(&source.name, [&plan.problems_of_file, &tally.problems], refused);
    refusals(&source.name, refused, problems, true)?;
    if are_gone_left {
        return Err(CommandError::Partly("not all that is gone was cancelled".into()));
    }
    Ok(())
}

/// What to say of refused lines, and by which code: wrong input where nothing was or would be taken for them.
fn refusals(name: &str, refused: u64, problems: Vec<String>, takes_part: bool) -> Result<(), CommandError> {
    if refused == 0 {
        return Ok(());
    }
    if !takes_part {
        return Err(CommandError::BadInput(problems));
    }
    problems.iter().for_each(|problem| eprintln!("{problem}"));
    let lines = if refused == 1 { "1 line was refused".to_owned() } else { format!("{refused} lines were refused") };
    Err(CommandError::Partly(format!("{name}: {lines}")))
}
