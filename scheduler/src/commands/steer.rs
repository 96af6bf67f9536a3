//! The operator's words to the workers: `rates`, `hold`, `release`.

use super::ask::{Asker, asked};
use super::{CommandError, bad, print};
use crate::cli::{HoldCommand, RatesArgs, RatesCommand, ReleaseCommand, WhyArgs};
use crate::client::{Ask, Client};
use crate::listing::{self, limit_of, list};
use axum::http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use punctual_core::job::check_tenant;
use punctual_core::steering::{Scope, Steering};
use serde_json::{Value, json};

const RATES: &str = "/v1/rates";
const HOLDS: &str = "/v1/holds";

/// A name in its place of an address.
fn at(place: &str, name: &str) -> String {
    format!("{place}/{}", utf8_percent_encode(name, NON_ALPHANUMERIC))
}

/// The limits as the API shows them.
pub(super) async fn limits(client: &Client) -> Result<Value, CommandError> {
    Ok(client.request(&Ask::get(RATES)).await.map_err(asked)?.json)
}

pub(super) async fn rates(asker: &Asker, args: RatesArgs) -> Result<(), CommandError> {
    let (target, ask) = match args.command {
        None => {
            let limits = limits(&asker.client().await?).await?;
            return if args.json { print(limits) } else { print(listing::limits(list(&limits, "items"))) };
        }
        Some(RatesCommand::Set { target, per_second }) => {
            Steering::default().with_limit(target.clone(), per_second).map_err(bad)?;
            let ask = Ask::put(at(RATES, target.as_str())).json(&json!({"per_second": per_second}));
            (target, ask)
        }
        Some(RatesCommand::Unset { target }) => {
            let ask = Ask::delete(at(RATES, target.as_str()));
            (target, ask)
        }
    };
    let client = asker.client().await?;
    let before = limit_of(&limits(&client).await?, target.as_str());
    let set = client.request(&ask).await.map_err(asked)?.json;
    let limit = set["per_second"].as_u64();
    let when = if limit == before.map(u64::from) { "already" } else { "within 10 s" };
    let limit = limit.map_or_else(|| "no limit".into(), |limit| format!("{limit} calls a second"));
    print(format_args!("{target}: {limit}, {when}"))
}

pub(super) async fn hold(asker: &Asker, command: HoldCommand) -> Result<(), CommandError> {
    let (scope, WhyArgs { why }) = match command {
        HoldCommand::All(why) => (Scope::All, why),
        HoldCommand::Tenant { tenant, why } => (of_tenant(tenant)?, why),
        HoldCommand::Priority { priority, why } => (Scope::Priority(priority), why),
        HoldCommand::Target { target, why } => (Scope::Target(target), why),
        HoldCommand::List { json } => {
            let held = held(&asker.client().await?).await?;
            return print(if json { listing::lines(held.into_iter()) } else { listing::holds(&held) });
        }
    };
    let client = asker.client().await?;
    let name = scope.to_string();
    let is_held = held(&client).await?.iter().any(|hold| hold["scope"] == name.as_str());
    client.request(&Ask::put(at(HOLDS, &name)).json(&json!({"why": why}))).await.map_err(asked)?;
    let said = listing::scope(&scope);
    print(match is_held {
        false => format!("{said} is held: within 5 s nothing more of it is begun"),
        true => format!("{said} is held already"),
    })
}

async fn held(client: &Client) -> Result<Vec<Value>, CommandError> {
    let holds = client.request(&Ask::get(HOLDS)).await.map_err(asked)?.json;
    Ok(list(&holds, "items").to_vec())
}

pub(super) async fn release(asker: &Asker, command: ReleaseCommand) -> Result<(), CommandError> {
    let scope = match command {
        ReleaseCommand::All => Scope::All,
        ReleaseCommand::Tenant { tenant } => of_tenant(tenant)?,
        ReleaseCommand::Priority { priority } => Scope::Priority(priority),
        ReleaseCommand::Target { target } => Scope::Target(target),
    };
    let client = asker.client().await?;
    let said = listing::scope(&scope);
    match client.request(&Ask::delete(at(HOLDS, &scope.to_string()))).await {
        Ok(released) => print(match released.json["holds_left"].as_u64() {
            Some(0) | None => format!("{said} is released; nothing is held any more"),
            Some(left) => format!("{said} is released; {left} other holds stand"),
        }),
        Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => print(format_args!("{said} was not held")),
        Err(error) => Err(asked(error)),
    }
}

fn of_tenant(tenant: String) -> Result<Scope, CommandError> {
    check_tenant(&tenant).map_err(bad)?;
    Ok(Scope::Tenant(tenant))
}
