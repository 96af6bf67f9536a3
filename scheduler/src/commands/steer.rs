//! The operator's words to the workers: `rates`, `hold`, `release`.

use super::operate::in_operation;
use super::{CommandError, Store, bad, failed, open, print, user};
use crate::cli::{HoldCommand, RatesArgs, RatesCommand, ReleaseCommand, WhyArgs};
use crate::listing;
use crate::operator;
use punctual_core::aws::Names;
use punctual_core::clock::Clock;
use punctual_core::job::check_tenant;
use punctual_core::schedule::whole_second;
use punctual_core::steering::{Hold, Scope};

pub(super) async fn rates(names: Names, args: RatesArgs) -> Result<(), CommandError> {
    let control = open(names).await?.ports().control;
    let (target, changed) = match args.command {
        None => {
            let steering = control.steering().await.map_err(failed)?;
            return print(listing::limits(&steering, args.json));
        }
        Some(RatesCommand::Set { target, per_second }) => {
            let change = operator::steer(&*control, |from| from.with_limit(target.clone(), per_second)).await;
            (target, change)
        }
        Some(RatesCommand::Unset { target }) => {
            let change = operator::steer(&*control, |from| Ok(from.without_limit(&target))).await;
            (target, change)
        }
    };
    let (steering, has_changed) = changed.map_err(in_operation)?;
    let limit = steering.limit(&target).map_or_else(|| "no limit".into(), |limit| format!("{limit} calls a second"));
    let when = if has_changed { "within 10 s" } else { "already" };
    print(format_args!("{target}: {limit}, {when}"))
}

pub(super) async fn hold(names: Names, command: HoldCommand) -> Result<(), CommandError> {
    let (scope, WhyArgs { why }) = match command {
        HoldCommand::All(why) => (Scope::All, why),
        HoldCommand::Tenant { tenant, why } => (of_tenant(tenant)?, why),
        HoldCommand::Priority { priority, why } => (Scope::Priority(priority), why),
        HoldCommand::Target { target, why } => (Scope::Target(target), why),
        HoldCommand::List { json } => {
            let steering = open(names).await?.ports().control.steering().await.map_err(failed)?;
            return print(listing::holds(&steering.holds, json));
        }
    };
    let Store { aws, ports, .. } = Store::open(names).await?;
    let hold = Hold { scope, by: user(), why, since: whole_second(aws.clock.now()) };
    let held = operator::steer(&*ports.control, |from| from.with_hold(hold.clone())).await.map_err(in_operation)?;
    let scope = listing::scope(&hold.scope);
    match held {
        (_, true) => print(format_args!("{scope} is held: within 5 s nothing more of it is begun")),
        (_, false) => print(format_args!("{scope} is held already")),
    }
}

pub(super) async fn release(names: Names, command: ReleaseCommand) -> Result<(), CommandError> {
    let scope = match command {
        ReleaseCommand::All => Scope::All,
        ReleaseCommand::Tenant { tenant } => of_tenant(tenant)?,
        ReleaseCommand::Priority { priority } => Scope::Priority(priority),
        ReleaseCommand::Target { target } => Scope::Target(target),
    };
    let control = open(names).await?.ports().control;
    let released = operator::steer(&*control, |from| Ok(from.without_hold(&scope))).await.map_err(in_operation)?;
    let said = listing::scope(&scope);
    print(match released {
        (steering, true) if steering.holds.is_empty() => format!("{said} is released; nothing is held any more"),
        (steering, true) => format!("{said} is released; {} other holds stand", steering.holds.len()),
        (_, false) => format!("{said} was not held"),
    })
}

fn of_tenant(tenant: String) -> Result<Scope, CommandError> {
    check_tenant(&tenant).map_err(bad)?;
    Ok(Scope::Tenant(tenant))
}
