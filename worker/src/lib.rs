//! The `punctual-worker` command: takes runs from the queues and does their work.
//!
//! A message goes five of the nine steps here, one module each: [`lease`], `idempotency`, [`rate`], [`deliver`],
//! `record`; `shares` and [`steering`] keep what [`rate`] goes by; `report` tells operators of circuits; `pipeline` is the way through them, [`service`] the loops around it.

pub mod alive;
mod begin;
mod clock;
pub mod deliver;
mod gauges;
mod gone;
mod idempotency;
pub mod lambda;
pub mod lease;
mod metrics;
mod pipeline;
pub mod rate;
mod receive;
mod record;
mod report;
pub mod returns;
pub mod service;
pub mod settings;
mod shares;
pub mod slots;
mod spans;
pub mod steering;
pub mod tenants;

use clap::Parser;
use deliver::{Handlers, JsonAdapter, Mail, Queues, SmsGateway, SystemLookup, Webhooks};
use punctual_core::aws::{Aws, connect};
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::payload::Handler;
use punctual_core::ports::Gateway;
use punctual_core::process::{EXIT_BAD_INPUT, EXIT_FAILED, EXIT_OK, fail, init_logs, process_id, stop_signal};
use punctual_core::telemetry::{self, table::Service};
use rate::Sharing;
use service::{Ended, Equipment};
use settings::{Checked, Cli, WorkSettings};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// The whole program, for its own binary and for others that contain it.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = Cli::parse_from(args);
    init_logs("info");
    if cli.check_alive {
        return match cli.alive_file.as_deref().map(|file| alive::check(file, &SystemClock::new())) {
            Some(Ok(())) => ExitCode::from(EXIT_OK),
            Some(Err(problem)) => fail("punctual-worker", &problem, EXIT_FAILED),
            None => fail(
                "punctual-worker",
                &"name the file that the worker keeps: PUNCTUAL_WORK_ALIVE_FILE",
                EXIT_BAD_INPUT,
            ),
        };
    }
    let checked = match cli.checked() {
        Ok(checked) => checked,
        Err(problems) => {
            problems.iter().for_each(|problem| eprintln!("punctual-worker: {problem}"));
            return ExitCode::from(EXIT_BAD_INPUT);
        }
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail("punctual-worker", &error, EXIT_FAILED),
    };
    let ended = runtime.block_on(work(cli, checked));
    // A look-up of a host name may hang for longer than anybody wants to wait.
    runtime.shutdown_timeout(Duration::from_secs(1));
    match ended {
        Ok(Ended::InOrder) => ExitCode::from(EXIT_OK),
        Ok(Ended::Broken) => ExitCode::from(EXIT_FAILED),
        Err(problem) => fail("punctual-worker", &problem, EXIT_FAILED),
    }
}

/// What this worker can do, by its settings.
fn handlers(cli: &Cli, aws: &Aws, settings: &WorkSettings, id: &str) -> Result<Handlers, String> {
    let (time, clock) = (settings.attempt_timeout, || -> Arc<dyn Clock> { aws.clock.clone() });
    let sms =
        cli.sms_url.as_deref().map(|url| SmsGateway::new(url, id.to_owned(), Box::new(JsonAdapter), time, clock()));
    let mail = cli.smtp_url.as_deref().zip(cli.email_from.as_deref());
    let allowed = || settings.webhook_allow.clone();
    let handlers = Handlers {
        sms: sms.transpose()?,
        mail: mail.map(|(url, from)| Mail::new(url, from, time, clock())).transpose()?,
        webhooks: Webhooks::new(allowed(), Arc::new(SystemLookup), time, clock())?,
        queues: Queues::new(aws.sqs.clone(), allowed(), &aws.names),
    };
    for handler in [Handler::Sms, Handler::Email].into_iter().filter(|handler| !handlers.serves(*handler)) {
        let handler = handler.as_str();
        tracing::warn!(handler, "nothing is configured for this handler: its runs are put back for other workers");
    }
    Ok(handlers)
}

async fn work(cli: Cli, checked: Checked) -> Result<Ended, String> {
    let Checked { names, settings, zones, ways } = checked;
    let id = process_id(&cli.id);
    let aws = connect(names).await.map_err(|e| e.to_string())?;
    aws.check_queues().await.map_err(|e| e.to_string())?;
    let ports = aws.ports();
    let shards = ports.control.shards().await.map_err(|e| e.to_string())?;
    shards.ok_or("the store was never set up: run `punctual setup`")?;
    // Handles that were made before count nothing.
    let telemetry = telemetry::install(ways, Service::Worker, aws.clock.clone()).await;
    let gateway = Arc::new(handlers(&cli, &aws, &settings, &id)?);
    tracing::info!(worker.id = id, ?settings, ?zones, "work starts");
    let equipment = Equipment { ports, gateway, clock: aws.clock.clone(), zones: Arc::new(zones), settings, id };
    if lambda::is_function() {
        if equipment.settings.sharing == Sharing::Leased {
            let problem = "a function cannot keep a share of a limit while it is frozen: set PUNCTUAL_WORK_MAX_CONCURRENCY \
                           to the most environments that run at once";
            return Err(problem.into());
        }
        return lambda::serve(equipment, aws.names, telemetry).await.map(|()| Ended::InOrder);
    }
    let stop = async {
        if let Err(error) = stop_signal().await {
            tracing::error!(%error, "the stop signal cannot be listened for: stopping");
        }
    };
    let ended = service::run(equipment, stop).await;
    telemetry.stop().await;
    Ok(ended)
}
