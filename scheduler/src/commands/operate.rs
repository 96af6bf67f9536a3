//! The operator's words: `status`, `cursors`, `shards`.

use super::{CommandError, Store, bad, failed, layout_of, open, print, user};
use crate::cli::{GrowArgs, RewindArgs, StatusArgs};
use crate::listing;
use crate::operator::{self, OperatorError};
use crate::status::Status;
use punctual_core::aws::Names;
use punctual_core::clock::Clock;
use punctual_core::due::{AUDIT_HORIZON, Minute, ShardId, Shards};
use punctual_core::process::process_id;
use punctual_core::schedule::parse_instant;

pub(super) async fn show_status(names: Names, args: &StatusArgs) -> Result<(), CommandError> {
    let aws = open(names).await?;
    let ports = aws.ports();
    let layout = layout_of(&ports).await?;
    let status = Status::read(&ports, layout, &*aws.clock).await.map_err(failed)?;
    if args.json { print(status.json()) } else { print(status.table()) }
}

pub(super) async fn rewind(names: Names, args: RewindArgs) -> Result<(), CommandError> {
    let to = parse_instant(&args.to).map_err(|error| bad(format!("--to: {error}")))?;
    let Store { aws, ports, .. } = Store::open(names).await?;
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

pub(super) fn in_operation(error: OperatorError) -> CommandError {
    match error {
        OperatorError::Refused(_) => bad(error),
        OperatorError::NotNow(_) | OperatorError::Store(_) => failed(error),
    }
}
