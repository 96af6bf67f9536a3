//! Looking at runs.

use super::ask::{Asker, Pages, asked};
use super::{CommandError, bad, print};
use crate::api::path_of;
use crate::cli::{RunShowArgs, RunsListArgs};
use crate::client::Ask;
use crate::listing;
use punctual_core::run::RunKey;

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
