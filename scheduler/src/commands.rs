//! What each word of the `punctual` command does.

mod api;
mod ask;
mod change;
mod import;
mod incidents;
mod jobs;
mod operate;
mod payload;
mod runs;
mod steer;

use crate::cli::{
    Cli, Command, CostArgs, CursorsCommand, DispatchArgs, JobsCommand, NextArgs, RunsCommand, SetupArgs, ShardsCommand,
};
use crate::cost::{self, Fleet, Uniform};
use crate::dispatch::{DispatchSettings, service};
use crate::import as files;
use crate::next::{self, Format};
use crate::operations::{Created, create_job};
use crate::timetable::{Problem, window};
use crate::{doctor, listing};
use ask::Asker;
use clap::CommandFactory;
use punctual_core::aws::{Aws, Names, connect, schema};
use punctual_core::clock::{AnchoredClock, Clock, SystemClock};
use punctual_core::cost::{Load, Prices};
use punctual_core::due::{Layout, Minute, SETTLE, Shards};
use punctual_core::heartbeat;
use punctual_core::job::Timetable;
use punctual_core::lease::{LeaseId, LeaseTimes};
use punctual_core::ports::Ports;
use punctual_core::process::{keep_time, print_line, process_id, stop_signal};
use punctual_core::schedule::{parse_interval, parse_moment};
use punctual_core::telemetry::table::Service;
use punctual_core::telemetry::{self, Ways};
use punctual_core::zone::Zones;
use std::fmt::Display;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Why a command ended badly.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The input is wrong; nothing was done. One line each.
    #[error("{}", .0.join("\n"))]
    BadInput(Vec<String>),
    /// Something failed.
    #[error("{0}")]
    Failed(String),
    /// Some lines or jobs were refused; the others are done.
    #[error("{0}")]
    Partly(String),
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
    let names = Names::new(&cli.store_prefix).map_err(bad)?;
    let (tzdir, access) = (cli.tzdir, cli.api);
    let zones = || Zones::load(tzdir.as_deref()).map_err(bad);
    let asker = || zones().map(|zones| Asker::new(names.clone(), access.clone(), zones));
    match cli.command {
        Command::Setup(args) => setup(names, args, &zones()?).await,
        Command::Dispatch(args) => dispatch(names, args, zones()?).await,
        Command::Api(args) => api::serve(names, args, zones()?).await,
        Command::Keys(command) => api::keys(names, command).await,
        Command::Jobs(command) => of_jobs(&asker()?, command).await,
        Command::Status(args) => operate::show_status(&asker()?, &args).await,
        Command::Rates(args) => steer::rates(&asker()?, args).await,
        Command::Hold(command) => steer::hold(&asker()?, command).await,
        Command::Release(command) => steer::release(&asker()?, command).await,
        Command::Cursors(CursorsCommand::Rewind(args)) => operate::rewind(names, args).await,
        Command::Shards(ShardsCommand::Release { shard }) => operate::release_shard(names, shard).await,
        Command::Shards(ShardsCommand::Grow(args)) => operate::grow_shards(names, &args).await,
        Command::Runs(RunsCommand::List(args)) => runs::list(&asker()?, args).await,
        Command::Runs(RunsCommand::Show(args)) => runs::show(&asker()?, args).await,
        Command::Runs(RunsCommand::Replay(args)) => incidents::replay_one(&asker()?, args).await,
        Command::Runs(RunsCommand::Requeue(args)) => incidents::requeue_one(&asker()?, args).await,
        Command::DeadLetters(command) => incidents::dead_letters(&asker()?, command).await,
        Command::Audit(args) => incidents::audit(&asker()?, args).await,
        Command::Next(args) => show_next(&args, &zones()?),
        Command::Cost(args) => show_cost(&args, &zones()?),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "punctual", &mut script);
            print(String::from_utf8_lossy(&script).trim_end())
        }
        Command::Doctor => {
            let api = operate::ask_ready(&access).await;
            print(doctor::report(&zones()?, &doctor::ask_store(names).await, api.as_deref()))
        }
    }
}

async fn of_jobs(asker: &Asker, command: JobsCommand) -> Result<(), CommandError> {
    match command {
        JobsCommand::Add(args) => jobs::add(asker, *args).await,
        JobsCommand::Import(args) => import::import(asker, *args).await,
        JobsCommand::Export(args) => jobs::export(asker, args).await,
        JobsCommand::List(args) => jobs::list(asker, args).await,
        JobsCommand::Show(args) => jobs::show(asker, args).await,
        JobsCommand::Changes(args) => jobs::changes(asker, args).await,
        JobsCommand::Edit(args) => change::edit(asker, *args).await,
        JobsCommand::Pause(args) => change::change(asker, args, "pause").await,
        JobsCommand::Resume(args) => change::change(asker, args, "resume").await,
        JobsCommand::Cancel(args) => change::change(asker, args, "cancel").await,
        JobsCommand::Release(args) => change::change(asker, args, "release").await,
        JobsCommand::Delete(args) => change::delete(asker, args).await,
        JobsCommand::Run(args) => change::run_now(asker, args).await,
    }
}

async fn open(names: Names) -> Result<Aws, CommandError> {
    connect(names).await.map_err(failed)
}

async fn layout_of(ports: &Ports) -> Result<Layout, CommandError> {
    let layout = ports.control.layout().await.map_err(failed)?;
    layout.ok_or_else(|| failed("the store was never set up: run `punctual setup`"))
}

/// The store, asked before anything is read that counts from now: its answer is what sets the clock.
struct Store {
    aws: Aws,
    ports: Ports,
}

impl Store {
    async fn open(names: Names) -> Result<Self, CommandError> {
        let aws = open(names).await?;
        let ports = aws.ports();
        layout_of(&ports).await?;
        Ok(Store { aws, ports })
    }
}

async fn setup(names: Names, args: SetupArgs, zones: &Zones) -> Result<(), CommandError> {
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
    if args.heartbeat {
        let spec = heartbeat::spec(aws.clock.now(), zones).map_err(failed)?;
        let (key, world) = (spec.key.clone(), Timetable { shards: &shards, zones });
        let made = create_job(&*ports.jobs, &*aws.clock, &world, spec, &user()).await.map_err(failed)?;
        match made {
            Created::New(_) => print(format_args!("made job {key}, which fires every minute"))?,
            _ => print(format_args!("job {key} is there already"))?,
        }
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
        look_ahead: s(args.look_ahead_s),
        ..DispatchSettings::default()
    };
    let ((), ways) = all_right(settings.check(), Ways::from_env())?;
    let aws = open(names).await?;
    let ports = aws.ports();
    let layout = layout_of(&ports).await?;
    aws.check_queues().await.map_err(failed)?;
    aws.clock.check().map_err(failed)?;
    // Handles that were made before count nothing.
    let telemetry = telemetry::install(ways, Service::Dispatch, aws.clock.clone()).await;
    // The version shows in `punctual status`, beside the shards that this copy holds.
    let id = format!("{}+{}", process_id(&args.id), env!("CARGO_PKG_VERSION"));
    tracing::info!(scheduler.id = id, ?settings, ?layout, ?zones, "dispatch starts");
    let stop = async {
        if let Err(error) = stop_signal().await {
            tracing::error!(%error, "the stop signal cannot be listened for: stopping");
        }
    };
    let control = ports.control.clone();
    let dispatch = service::run(ports, aws.clock.clone(), layout, Arc::new(zones), settings, id, stop);
    tokio::select! {
        () = dispatch => {}
        () = keep_time(&*aws.clock, &*control) => {}
    }
    telemetry.stop().await;
    Ok(())
}

/// What two checks came to, if both went well; all problems otherwise.
fn all_right<A, B>(first: Result<A, Vec<String>>, second: Result<B, Vec<String>>) -> Result<(A, B), CommandError> {
    match (first, second) {
        (Ok(first), Ok(second)) => Ok((first, second)),
        (first, second) => {
            let problems = [first.err(), second.err()].into_iter().flatten().flatten();
            Err(CommandError::BadInput(problems.collect()))
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

fn show_cost(args: &CostArgs, zones: &Zones) -> Result<(), CommandError> {
    let fleet = Fleet {
        shards: Shards { urgent: args.urgent_shards, standard: args.standard_shards },
        copies: args.copies,
        workers: args.workers,
        tick: Duration::from_millis(args.tick_ms),
        renew_every: Duration::from_secs(args.renew_s),
    };
    if !(1.0..=100.0).contains(&args.attempts) || !(0.0..=1.0).contains(&args.dead) {
        return Err(bad("--attempts is 1 to 100, --dead a share from 0 to 1"));
    }
    let prices = args.price_file.as_deref().map_or_else(|| Ok(Prices::default()), read_prices)?;
    let load = cost_load(args, &fleet.shards, zones)?;
    let load = Load { attempts_per_run: args.attempts, attention_share: args.dead, ..load };
    let shown = if args.json { cost::as_json } else { cost::as_table };
    print(shown(&load, &fleet, &prices))
}

fn cost_load(args: &CostArgs, shards: &Shards, zones: &Zones) -> Result<Load, CommandError> {
    let Some(path) = &args.file else {
        let every_s = parse_interval(&args.every).map_err(|error| bad(format!("--every: {error}")))?;
        return Ok(cost::uniform(
            &Uniform {
                jobs: args.jobs.unwrap_or_default(),
                every_s: (!args.once).then_some(every_s),
                text_bytes: args.text_bytes,
                together: args.together,
            },
            shards,
        ));
    };
    let (name, now) = (path.display().to_string(), SystemClock::new().now());
    let file = std::fs::File::open(path).map_err(|e| bad(format!("{name} cannot be opened: {e}")))?;
    let specs = files::read_jobs(&name, file, "default", now, zones).map_err(CommandError::BadInput)?;
    let (load, over) = cost::counted(&specs, now, &Timetable { shards, zones });
    if over > 0 {
        eprintln!("{over} jobs have no firing left");
    }
    Ok(load)
}

fn read_prices(path: &Path) -> Result<Prices, CommandError> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| bad(format!("{name} cannot be read: {e}")))?;
    let prices: Prices = serde_json::from_str(&text).map_err(|e| bad(format!("{name}: {e}")))?;
    prices.check().map_err(|problem| bad(format!("{name}: {problem}")))?;
    Ok(prices)
}

fn in_option(problem: Problem) -> CommandError {
    bad(format!("--{}: {}", problem.column.replace('_', "-"), problem.text))
}

fn user() -> String {
    std::env::var("USER").unwrap_or_else(|_| "cli".into())
}
