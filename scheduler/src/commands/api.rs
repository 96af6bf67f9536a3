//! `api` serves; `keys` says who may ask.

use super::{CommandError, Store, all_right, bad, failed, layout_of, open, print, user};
use crate::api::{Api, ApiSettings, server};
use crate::cli::{ApiArgs, KeyAddArgs, KeysCommand};
use crate::listing::{instant, lines, table};
use chrono::{DateTime, Utc};
use punctual_core::access::{ApiKey, ApiKeys};
use punctual_core::address::AllowList;
use punctual_core::aws::Names;
use punctual_core::clock::{Clock, Standing};
use punctual_core::ports::Control;
use punctual_core::process::{keep_time, random_token, stop_signal};
use punctual_core::schedule::whole_second;
use punctual_core::telemetry::table::{self, Service};
use punctual_core::telemetry::{self, Ways};
use punctual_core::zone::Zones;
use serde_json::json;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// Tries to change the keys while others change them.
const TRIES: usize = 20;
/// Time between two looks at the host's clock.
const CLOCK_EVERY: Duration = Duration::from_secs(10);

pub(super) async fn serve(names: Names, args: ApiArgs, zones: Zones) -> Result<(), CommandError> {
    let allowed = args.webhook_allow.parse::<AllowList>();
    let allowed = allowed.map_err(|e| vec![format!("PUNCTUAL_WEBHOOK_ALLOW: {e}")]);
    let (allowed, ways) = all_right(allowed, Ways::from_env())?;
    let aws = open(names).await?;
    let ports = aws.ports();
    layout_of(&ports).await?;
    let telemetry = telemetry::install(ways, Service::Api, aws.clock.clone()).await;
    let per_s = NonZeroU32::new(args.key_requests_per_s).expect("the option starts at 1");
    let settings = ApiSettings { key_requests_per_s: per_s, allowed };
    tracing::info!(?settings, ?zones, "the API starts");
    let control = ports.control.clone();
    let api = Api::new(ports, aws.clock.clone(), Arc::new(zones), settings);
    let serving = async {
        if std::env::var_os("AWS_LAMBDA_RUNTIME_API").is_some() {
            return server::serve_function(&api, &telemetry).await.map_err(failed);
        }
        let listener = TcpListener::bind(args.listen).await;
        let listener = listener.map_err(|e| bad(format!("--listen {}: {e}", args.listen)))?;
        let address = listener.local_addr().map_err(failed)?;
        if !server::is_loopback(&address) {
            tracing::warn!(%address, "keys and payloads cross the network as they are: only a load balancer that speaks TLS may reach this");
        }
        print(format_args!("listening on http://{address}"))?;
        server::serve(&api, listener, stop()).await.map_err(failed)
    };
    let served = tokio::select! {
        served = serving => served,
        () = keep_time(&*aws.clock, &*control) => Ok(()),
        () = watch_clock(&*aws.clock) => Ok(()),
    };
    telemetry.stop().await;
    served
}

/// Tells how far this host's clock is off, for ever.
async fn watch_clock(clock: &dyn Clock) {
    loop {
        if let Standing::Anchored { offset } | Standing::Off { offset } = clock.standing() {
            table::CLOCK_OFFSET.gauge(&[]).set(offset.as_seconds_f64());
        }
        tokio::time::sleep(CLOCK_EVERY).await;
    }
}

async fn stop() {
    if let Err(error) = stop_signal().await {
        tracing::error!(%error, "the stop signal cannot be listened for: stopping");
    }
}

pub(super) async fn keys(names: Names, command: KeysCommand) -> Result<(), CommandError> {
    match command {
        KeysCommand::Add(args) => add(names, args).await,
        KeysCommand::List { json } => {
            let keys = open(names).await?.ports().control.api_keys().await.map_err(failed)?;
            print(if json { lines(keys.keys.iter().map(key_json)) } else { as_table(&keys) })
        }
        KeysCommand::Revoke { id } => {
            let Store { aws, ports } = Store::open(names).await?;
            let now = whole_second(aws.clock.now());
            let no_key = || bad(format!("there is no key {id} that opens: `punctual keys list` shows them"));
            change(&*ports.control, |keys| keys.without(&id, now).ok_or_else(no_key)).await?;
            print(format_args!("key {id} is revoked; within 5 s it opens nothing"))
        }
    }
}

async fn add(names: Names, args: KeyAddArgs) -> Result<(), CommandError> {
    let Store { aws, ports } = Store::open(names).await?;
    aws.clock.check().map_err(failed)?;
    let now: DateTime<Utc> = whole_second(aws.clock.now());
    let (id, secret) = (random_token(), random_token() + &random_token());
    let made = ApiKey::new(&id[..8], &secret, args.tenant, args.role, &args.label, &user(), now).map_err(bad)?;
    let (key, text) = made;
    change(&*ports.control, |keys| keys.with(key.clone(), now).map_err(bad)).await?;
    if args.json {
        let mut shown = key_json(&key);
        shown["key"] = json!(text);
        return print(shown);
    }
    eprintln!("key {} for {} ({}), kept nowhere: it is shown this once", key.id, key.reach, key.role);
    print(text)
}

/// Changes the keys; decided anew while others change them.
async fn change(
    control: &dyn Control,
    change: impl Fn(&ApiKeys) -> Result<ApiKeys, CommandError>,
) -> Result<(), CommandError> {
    for _ in 0..TRIES {
        let from = control.api_keys().await.map_err(failed)?;
        let to = change(&from)?;
        if control.change_api_keys(from.revision, &to).await.map_err(failed)? == to {
            return Ok(());
        }
    }
    Err(failed("keys are being changed by others: try again"))
}

fn key_json(key: &ApiKey) -> serde_json::Value {
    json!({
        "id": key.id, "tenant": key.reach.to_string(), "role": key.role, "label": key.label, "made_by": key.made_by,
        "made_at": instant(key.made_at), "revoked_at": key.revoked_at.map(instant),
    })
}

fn as_table(keys: &ApiKeys) -> String {
    if keys.keys.is_empty() {
        return "there is no key: `punctual keys add` makes one".into();
    }
    let mut table = table(&["key", "tenant", "role", "label", "made by", "made", "revoked"]);
    for key in &keys.keys {
        table.add_row([
            key.id.clone(),
            key.reach.to_string(),
            key.role.to_string(),
            key.label.clone(),
            key.made_by.clone(),
            instant(key.made_at),
            key.revoked_at.map(instant).unwrap_or_default(),
        ]);
    }
    table.to_string()
}
