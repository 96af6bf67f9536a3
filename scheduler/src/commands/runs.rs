//! Looking at runs, and running once more what died.

use super::ask::{Asker, Pages, asked};
use super::{CommandError, Store, bad, failed, print};
use crate::api::path_of;
use crate::cli::{ReplayArgs, RunShowArgs, RunsListArgs};
use crate::client::Ask;
use crate::listing;
use crate::operations::{self, OperationError, Replay};
use punctual_core::aws::Names;
use punctual_core::job::{ChangeError, JobKey};
use punctual_core::run::{RunId, RunKey};

pub(super) async fn list(asker: &Asker, args: RunsListArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let ask = Ask::get(format!("{}/runs", path_of(&args.job))).tenant(args.tenant.as_deref());
    let (runs, _) = Pages::of(&client, ask).up_to(args.limit).await?;
    print(if args.json { listing::lines(runs.into_iter()) } else { listing::runs(&runs) })
}

pub(super) async fn show(asker: &Asker, args: RunShowArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    // A key that is none is refused as one that is not there, and can stand in no address.
    let run = RunKey::try_from(args.run).map_err(bad)?;
    let ask = Ask::get(format!("{}/runs/{run}", path_of(&args.job))).tenant(args.tenant.as_deref());
    let run = client.request(&ask).await.map_err(asked)?.json;
    if args.json { print(run) } else { print(listing::run(&run)) }
}

pub(super) async fn replay(names: Names, args: ReplayArgs) -> Result<(), CommandError> {
    let job_key = JobKey::new(&args.tenant, &args.job).map_err(bad)?;
    let run = RunId { job_key, run_key: RunKey::try_from(args.run).map_err(bad)? };
    let Store { aws, ports } = Store::open(names).await?;
    match operations::replay(&ports, &*aws.clock, &run).await.map_err(refused)? {
        Replay::Enqueued(replay) => print(format_args!("run {replay} is in its queue")),
        Replay::Stands(latest, status) => {
            Err(failed(format!("run {latest} is {}: only what is dead or indeterminate is replayed", status.as_str())))
        }
        Replay::Missing => Err(bad(format!("there is no run {run}: `punctual runs list {}` shows them", args.job))),
    }
}

/// What cannot be taken is wrong input; what the job or the store does not allow now may be allowed later.
fn refused(error: OperationError) -> CommandError {
    match error {
        OperationError::Input(..)
        | OperationError::Refused(..)
        | OperationError::NotAllowed(_, ChangeError::Invalid(_)) => bad(error),
        error => failed(error),
    }
}
