//! The operator's words: `status`, `cursors`, `shards`.

use super::ask::{Asker, address, asked};
use super::{CommandError, Store, bad, failed, layout_of, open, print, user};
use crate::cli::{ApiAccess, GrowArgs, RewindArgs, StatusArgs};
use crate::client::{Ask, Client};
use crate::operator::{self, OperatorError};
use crate::{listing, status};
use punctual_core::aws::Names;
use punctual_core::clock::Clock;
use punctual_core::due::{AUDIT_HORIZON, Minute, ShardId, Shards};
use punctual_core::process::process_id;
use punctual_core::schedule::parse_instant;

pub(super) async fn show_status(asker: &Asker, args: &StatusArgs) -> Result<(), CommandError> {
    let client = asker.client().await?;
    let shown = client.request(&Ask::get("/v1/status")).await.map_err(asked)?.json;
    if args.json { print(shown) } else { print(status::show(&shown)) }
}

/// Whether the API that the settings name is ready; none where they name none.
pub(super) async fn ask_ready(access: &ApiAccess) -> Option<String> {
    let url = address(access)?;
    // Nobody is asked for a key there.
    let client = match Client::over_http(url, "none") {
        Ok(client) => client,
        Err(problem) => return Some(problem.to_string()),
    };
    Some(match client.look(&Ask::get("/readyz")).await {
        Ok(answer) => {
            let parts = answer.json["parts"].as_object().into_iter().flatten();
            let not_ok = parts.filter(|(_, said)| **said != "ok");
            let not_ok: Vec<String> =
                not_ok.map(|(part, said)| format!("{part} {}", said.as_str().unwrap_or_default())).collect();
            let state = listing::said(&answer.json, "status");
            if not_ok.is_empty() {
                format!("{state} ({url})")
            } else {
                format!("{state} ({url}): {}", not_ok.join(", "))
            }
        }
        Err(problem) => problem.to_string(),
    })
}

pub(super) async fn rewind(names: Names, args: RewindArgs) -> Result<(), CommandError> {
    let to = parse_instant(&args.to).map_err(|error| bad(format!("--to: {error}")))?;
    let Store { aws, ports } = Store::open(names).await?;
    let now = aws.clock.now();
    if to > now || to < now - AUDIT_HORIZON {
        return Err(bad("--to must lie within the last fourteen days: queues keep no message longer"));
    }
    let rewound = operator::rewind(&*ports.leases, Minute::of(to), args.shard, &process_id(&user())).await;
    let rewound = rewound.map_err(in_operation)?;
    print(format_args!("{} shards are read again from {}", rewound.len(), listing::instant(Minute::of(to).start())))
}

pub(super) async fn release_shard(names: Names, shard: ShardId) -> Result<(), CommandError> {
    let ports = open(names).await?.ports();
    operator::release(&*ports.leases, shard, &process_id(&user())).await.map_err(in_operation)?;
    print(format_args!("shard {shard} is free"))
}

pub(super) async fn grow_shards(names: Names, args: &GrowArgs) -> Result<(), CommandError> {
    let aws = open(names).await?;
    let ports = aws.ports();
    let Shards { urgent, standard } = layout_of(&ports).await?.read;
    let to = Shards { urgent: args.urgent.unwrap_or(urgent), standard: args.standard.unwrap_or(standard) };
    let layout = operator::grow(&ports, &*aws.clock, to).await.map_err(in_operation)?;
    print(format_args!(
        "{} urgent and {} standard shards are read and written",
        layout.write.urgent, layout.write.standard
    ))
}

fn in_operation(error: OperatorError) -> CommandError {
    match error {
        OperatorError::Refused(_) => bad(error),
        OperatorError::NotNow(_) | OperatorError::Store(_) => failed(error),
    }
}
