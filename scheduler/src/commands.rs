//! What each word of the `punctual` command does.

use crate::cli::{
    AddArgs, Cli, Command, DispatchArgs, ImportArgs, JobsCommand, ListArgs, NextArgs, RunsCommand, RunsListArgs,
    SetupArgs,
};
use crate::dispatch::{DispatchSettings, service};
use crate::next::{self, Format};
use crate::operations::{Created, create_job};
use crate::timetable::{Problem, window};
use crate::{doctor, import, listing};
use chrono::{DateTime, Utc};
use punctual_core::aws::{Aws, Names, connect, schema};
use punctual_core::clock::{AnchoredClock, Clock, SystemClock};
use punctual_core::due::{Minute, SETTLE, Shards};
use punctual_core::job::{JobKey, JobSpec, Timetable};
use punctual_core::lease::{LeaseId, LeaseTimes};
use punctual_core::payload::{Handler, SmsPayload};
use punctual_core::ports::Ports;
use punctual_core::process::{keep_time, print_line, process_id, stop_signal};
use punctual_core::retry::RetryRule;
use punctual_core::schedule::parse_moment;
use punctual_core::zone::{Tz, Zones};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

/// Jobs named one by one where many could be.
const KEYS_SHOWN: usize = 20;

/// Why a command ended badly.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The input is wrong; nothing was done. One line each.
    #[error("{}", .0.join("\n"))]
    BadInput(Vec<String>),
    /// Something failed.
    #[error("{0}")]
    Failed(String),
}

fn bad(problem: impl Display) -> CommandError {
    CommandError::BadInput(vec![problem.to_string()])
}

fn failed(problem: impl Display) -> CommandError {
    CommandError::Failed(problem.to_string())
}

fn print(text: impl Display) -> Result<(), CommandError> {
    print_line(&text.to_string()).map_err(|e| failed(format!("standard output cannot be written: {e}")))
}

/// Runs one command.
///
/// # Errors
/// See [`CommandError`].
pub async fn run(cli: Cli) -> Result<(), CommandError> {
    let names = Names::new(&cli.prefix).map_err(bad)?;
    let zones = || Zones::load(cli.tzdir.as_deref()).map_err(bad);
    match cli.command {
        Command::Setup(args) => setup(names, args).await,
        Command::Dispatch(args) => dispatch(names, args, zones()?).await,
        Command::Jobs(JobsCommand::Add(args)) => add(names, *args, zones()?).await,
        Command::Jobs(JobsCommand::Import(args)) => import_file(names, args, zones()?).await,
        Command::Jobs(JobsCommand::List(args)) => list_jobs(names, args).await,
        Command::Runs(RunsCommand::List(args)) => list_runs(names, args).await,
        Command::Next(args) => show_next(&args, &zones()?),
        Command::Doctor => print(doctor::report(&zones()?, &doctor::ask_store(names).await)),
    }
}

async fn open(names: Names) -> Result<Aws, CommandError> {
    connect(names).await.map_err(failed)
}

/// The store that jobs are written to, asked before anything is read that counts from now: its answer is what sets the
/// clock.
struct Store {
    aws: Aws,
    ports: Ports,
    shards: Shards,
}

impl Store {
    async fn open(names: Names) -> Result<Self, CommandError> {
        let aws = open(names).await?;
        let ports = aws.ports();
        let shards = shards_of(&ports).await?;
        Ok(Store { aws, ports, shards })
    }

    /// The store's time; this host's where there is no store, for what is wrong whatever the time.
    fn now(store: &Result<Self, CommandError>) -> DateTime<Utc> {
        store.as_ref().map_or_else(|_| SystemClock::new().now(), |store| store.aws.clock.now())
    }
}

async fn shards_of(ports: &Ports) -> Result<Shards, CommandError> {
    let shards = ports.control.shards().await.map_err(failed)?;
    shards.ok_or_else(|| failed("the store was never set up: run `punctual setup`"))
}

async fn setup(names: Names, args: SetupArgs) -> Result<(), CommandError> {
    let aws = open(names).await?;
    let made = schema::setup(&aws).await.map_err(failed)?;
    let ports = aws.ports();
    let wanted = Shards { urgent: args.urgent_shards, standard: args.standard_shards };
    let shards = init_shards(&ports, &aws.clock, wanted).await?;
    match made.as_slice() {
        [] => print("everything is there already")?,
        made => print(format_args!("made {}", made.join(", ")))?,
    }
    if shards != wanted {
        let Shards { urgent, standard } = shards;
        print(format_args!("the shard counts stay as they are: {urgent} urgent, {standard} standard"))?;
    }
    Ok(())
}

/// Writes the cursors of all shards, and then the counts by which dispatch finds them: a setup that ends in between
/// leaves no shard without a cursor. Returns the counts that hold: those of the first setup.
async fn init_shards(ports: &Ports, clock: &AnchoredClock, wanted: Shards) -> Result<Shards, CommandError> {
    let mut shards = ports.control.shards().await.map_err(failed)?.unwrap_or(wanted);
    clock.check().map_err(failed)?;
    // Nothing can be due before the store exists, so reading starts here and not at the horizon.
    let cursor = Minute::of(clock.now() - SETTLE);
    loop {
        for shard in shards.all() {
            ports.leases.init(&LeaseId::Shard(shard), cursor).await.map_err(failed)?;
        }
        let stored = ports.control.init_shards(shards).await.map_err(failed)?;
        if stored == shards {
            return Ok(stored);
        }
        // Another setup was faster, with other counts. Counts never change, so this ends with the next turn.
        shards = stored;
    }
}

async fn dispatch(names: Names, args: DispatchArgs, zones: Zones) -> Result<(), CommandError> {
    let s = Duration::from_secs;
    let settings = DispatchSettings {
        leases: LeaseTimes { lease: s(args.lease_s), renew_every: s(args.renew_s), margin: s(args.margin_s) },
        tick: Duration::from_millis(args.tick_ms),
        page: args.page,
        calls_in_flight: args.calls_in_flight,
    };
    settings.check().map_err(CommandError::BadInput)?;
    let aws = open(names).await?;
    let ports = aws.ports();
    let shards = shards_of(&ports).await?;
    aws.check_queues().await.map_err(failed)?;
    aws.clock.check().map_err(failed)?;
    let id = process_id(&args.id);
    tracing::info!(scheduler.id = id, ?settings, ?shards, ?zones, "dispatch starts");
    let stop = async {
        if let Err(error) = stop_signal().await {
            tracing::error!(%error, "the stop signal cannot be listened for: stopping");
        }
    };
    let control = ports.control.clone();
    let dispatch = service::run(ports, aws.clock.clone(), shards, Arc::new(zones), settings, id, stop);
    tokio::select! {
        () = dispatch => {}
        () = keep_time(&*aws.clock, &*control) => {}
    }
    Ok(())
}

async fn add(names: Names, args: AddArgs, zones: Zones) -> Result<(), CommandError> {
    let key = JobKey::new(&args.tenant, &args.id).map_err(bad)?;
    let store = Store::open(names).await;
    let now = Store::now(&store);
    let timetable = args.runs.read(&args.clock, &args.schedule, key.as_str(), now, &zones).map_err(in_option)?;
    let spec = JobSpec {
        key,
        name: args.name,
        schedule: timetable.schedule,
        anchor: timetable.anchor,
        priority: args.priority.parse().map_err(bad)?,
        handler: Handler::Sms,
        payload: SmsPayload { to: args.to, text: args.text },
        retry: RetryRule::default(),
        spread: timetable.spread,
        missed: timetable.missed,
    };
    spec.check().map_err(bad)?;
    warn(std::slice::from_ref(&spec));
    let Store { aws, ports, shards } = store?;
    let world = Timetable { shards: &shards, zones: &zones };
    let key = spec.key.clone();
    match create_job(&*ports.jobs, &*aws.clock, &world, spec, &user()).await.map_err(failed)? {
        Created::New(job) => {
            let schedule = &job.spec.schedule;
            let due = job.next_due_at.map(|at| (listing::instant(at), zones.wall(schedule.tz, at)));
            let (next, local) = due.unzip();
            let local = local.filter(|_| schedule.tz != Tz::UTC).map(|wall| format!(", {wall} in {}", schedule.tz));
            let (next, local) = (next.unwrap_or_default(), local.unwrap_or_default());
            print(format_args!("job {key} made ({schedule}); its first run is due at {next}{local}"))
        }
        Created::Over => Err(bad(format!("job {key}: its schedule has no firing left, it was not made"))),
        Created::Same => print(format_args!("job {key} is there already, the same")),
        Created::Different => {
            Err(failed(format!("job {key} is there already, with another content; it was left as it is")))
        }
    }
}

fn show_next(args: &NextArgs, zones: &Zones) -> Result<(), CommandError> {
    let now = SystemClock::new().now();
    let when = match (&args.cron, &args.schedule) {
        (Some(cron), _) => format!("cron {cron}"),
        (None, Some(schedule)) => schedule.clone(),
        (None, None) => return Err(bad("give --cron or --schedule")),
    };
    let tz = args.clock.zone().map_err(in_option)?;
    let after = args.after.as_deref().map(|text| parse_moment(text, tz, zones)).transpose();
    let after = after.map_err(|error| bad(format!("--after: {error}")))?.unwrap_or(now);
    let read = args.clock.read(&when, args.key.as_deref(), after, zones);
    let (schedule, _) = read.map_err(|problem| match problem.column {
        "schedule" if args.cron.is_some() => bad(format!("--cron: {}", problem.text)),
        _ => in_option(problem),
    })?;
    let spread = window(args.spread.as_deref(), args.key.as_deref().unwrap_or_default()).map_err(in_option)?;
    if let Some(spread) = &spread {
        let fits = spread.check_range().and_then(|()| spread.check_fit(schedule.shortest_interval_s()));
        fits.map_err(|problem| bad(format!("--spread: {problem}")))?;
    }
    if let Some(warning) = schedule.warning() {
        eprintln!("warning: {warning}");
    }
    let default = if std::io::stdout().is_terminal() { Format::Table } else { Format::Lines };
    let format = args.format.unwrap_or(default);
    let shown = next::show(&schedule, spread.as_ref(), after, args.count, format, zones);
    if shown.is_empty() {
        eprintln!("the schedule has no firing after {}", listing::instant(after));
        return Ok(());
    }
    print(shown)
}

fn in_option(problem: Problem) -> CommandError {
    bad(format!("--{}: {}", problem.column.replace('_', "-"), problem.text))
}

/// Says what is allowed but probably not meant: each thing once.
fn warn(specs: &[JobSpec]) {
    let mut counted: BTreeMap<String, usize> = BTreeMap::new();
    for warning in specs.iter().flat_map(JobSpec::warnings) {
        *counted.entry(warning).or_default() += 1;
    }
    for (warning, jobs) in counted {
        match jobs {
            1 => eprintln!("warning: {warning}"),
            _ => eprintln!("warning: {jobs} jobs: {warning}"),
        }
    }
}

async fn import_file(names: Names, args: ImportArgs, zones: Zones) -> Result<(), CommandError> {
    JobKey::new(&args.tenant, "x").map_err(bad)?;
    let name = args.file.display().to_string();
    let file = std::fs::File::open(&args.file).map_err(|e| bad(format!("{name} cannot be opened: {e}")))?;
    let store = Store::open(names).await;
    let now = Store::now(&store);
    let specs = import::read_jobs(&name, file, &args.tenant, now, &zones).map_err(CommandError::BadInput)?;
    warn(&specs);
    let Store { aws, ports, shards } = store?;
    let world = Timetable { shards: &shards, zones: &zones };
    let bar = if std::io::stderr().is_terminal() {
        indicatif::ProgressBar::new(specs.len() as u64)
    } else {
        indicatif::ProgressBar::hidden()
    };
    let report = import::import(&*ports.jobs, &*aws.clock, &world, specs, &user(), || bar.inc(1)).await;
    bar.finish_and_clear();
    let report = report.map_err(|e| failed(format!("{e}; import the file again to go on from there")))?;
    for key in report.over.iter().take(KEYS_SHOWN) {
        eprintln!("job {key}: its schedule has no firing left, it was not made");
    }
    let over = match report.over.len() {
        0 => String::new(),
        jobs => format!(", {jobs} with no firing left and not made"),
    };
    print(format_args!(
        "{name}: {} jobs made, {} there already, {} there with another content and left as they are{over}",
        report.created, report.same, report.different
    ))
}

async fn list_jobs(names: Names, args: ListArgs) -> Result<(), CommandError> {
    let ports = open(names).await?.ports();
    let (mut jobs, mut after) = (Vec::new(), None);
    loop {
        let page = ports.jobs.list(&args.tenant, after, args.limit).await.map_err(failed)?;
        jobs.extend(page.jobs);
        after = page.next;
        if after.is_none() || jobs.len() > args.limit {
            break;
        }
    }
    let more = jobs.len() > args.limit || after.is_some();
    jobs.truncate(args.limit);
    jobs.sort_by(|a, b| a.0.cmp(&b.0));
    print(listing::jobs(&jobs, args.json))?;
    if more {
        eprintln!("there are more: raise --limit");
    }
    Ok(())
}

async fn list_runs(names: Names, args: RunsListArgs) -> Result<(), CommandError> {
    let key = JobKey::new(&args.tenant, &args.job).map_err(bad)?;
    let ports = open(names).await?.ports();
    let rows = ports.runs.list(&key, args.limit).await.map_err(failed)?;
    print(listing::runs(&rows, args.json))
}

fn user() -> String {
    std::env::var("USER").unwrap_or_else(|_| "cli".into())
}
