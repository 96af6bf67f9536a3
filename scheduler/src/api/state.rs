//! What all requests of one process share: ports, time, zone rules, keys in force, limits of keys.

use super::problem::Problem;
use chrono::{DateTime, Utc};
use governor::clock::DefaultClock;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use punctual_core::access::{ApiKey, ApiKeys};
use punctual_core::address::AllowList;
use punctual_core::clock::Clock;
use punctual_core::due::Shards;
use punctual_core::job::Timetable;
use punctual_core::ports::{Control, Ports};
use punctual_core::zone::Zones;
use serde_json::Value;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex as AsyncMutex;

/// After this time keys are read again: so long a revoked key may still open.
pub const KEYS_READ_EVERY: Duration = Duration::from_secs(5);
/// A key that is not known is looked for in the store, but not more often than this.
const UNKNOWN_READ_EVERY: Duration = Duration::from_secs(1);
/// While the store does not answer, keys that were read are believed for so long.
const KEYS_BELIEVED_FOR: Duration = Duration::from_secs(60);
/// After this time the shard counts are read again. Who writes by older counts writes to shards that are read all the same.
const SHARDS_READ_EVERY: Duration = Duration::from_secs(10);

/// What is set at start.
#[derive(Clone, Debug)]
pub struct ApiSettings {
    /// Requests a second that one key is good for, in this process.
    pub key_requests_per_s: NonZeroU32,
    /// Hosts that webhooks and queues may name whatever their addresses are.
    pub allowed: AllowList,
}

/// What all requests share.
pub struct Api {
    /// Store and queues.
    pub ports: Ports,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The zone rules.
    pub zones: Arc<Zones>,
    /// Hosts that may be named whatever their addresses are.
    pub allowed: AllowList,
    pub(super) keys: Keys,
    pub(super) limits: KeyLimits,
    shards: AsyncMutex<Option<(Duration, Shards)>>,
    /// What was said of the readiness last, and when.
    pub(super) readiness: AsyncMutex<Option<(Duration, bool, Value)>>,
}

impl Api {
    /// What requests share, on these ports.
    pub fn new(ports: Ports, clock: Arc<dyn Clock>, zones: Arc<Zones>, settings: ApiSettings) -> Arc<Self> {
        Arc::new(Api {
            keys: Keys::new(ports.control.clone(), clock.clone()),
            limits: KeyLimits { per_s: settings.key_requests_per_s, keys: Mutex::default() },
            allowed: settings.allowed,
            shards: AsyncMutex::default(),
            readiness: AsyncMutex::default(),
            ports,
            clock,
            zones,
        })
    }

    /// The present instant.
    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// The shards that jobs are written to.
    pub(super) async fn shards(&self) -> Result<Shards, Problem> {
        let mut known = self.shards.lock().await;
        let now = self.clock.monotonic();
        if let Some((read_at, shards)) = *known
            && now < read_at + SHARDS_READ_EVERY
        {
            return Ok(shards);
        }
        let shards = self.ports.control.shards().await?;
        let shards = shards.ok_or_else(|| Problem::unavailable("the store was never set up: run `punctual setup`"))?;
        *known = Some((now, shards));
        Ok(shards)
    }

    /// What firings are placed by.
    pub(super) fn timetable<'a>(&'a self, shards: &'a Shards) -> Timetable<'a> {
        Timetable { shards, zones: &self.zones }
    }
}

/// The keys in force, as they were read last.
pub(super) struct Keys {
    control: Arc<dyn Control>,
    clock: Arc<dyn Clock>,
    read: Mutex<Known>,
    /// Held by whoever reads them.
    reading: AsyncMutex<()>,
}

#[derive(Clone, Default)]
struct Known {
    keys: Arc<ApiKeys>,
    /// When they were asked for, by a clock that goes on while the machine is suspended.
    read_at: Option<Duration>,
    /// When a read ended last, well or not.
    tried_at: Option<Duration>,
}

impl Keys {
    fn new(control: Arc<dyn Control>, clock: Arc<dyn Clock>) -> Self {
        Keys { control, clock, read: Mutex::default(), reading: AsyncMutex::default() }
    }

    /// The key that this text is.
    pub(super) async fn holder(&self, text: &str) -> Result<ApiKey, Problem> {
        let wrong = || Problem::unauthenticated("the key is unknown or revoked");
        let keys = self.at_most(KEYS_READ_EVERY).await?;
        if let Some(key) = keys.holder(text) {
            return Ok(key.clone());
        }
        // It may have been made a moment ago.
        let keys = self.at_most(UNKNOWN_READ_EVERY).await?;
        keys.holder(text).cloned().ok_or_else(wrong)
    }

    /// Whether the key of this id is not revoked.
    pub(super) async fn is_in_force(&self, id: &str) -> Result<(), Problem> {
        let keys = self.at_most(KEYS_READ_EVERY).await?;
        let is_there = keys.keys.iter().any(|key| key.id == id && key.revoked_at.is_none());
        is_there.then_some(()).ok_or_else(|| Problem::unauthenticated("the key was revoked meanwhile"))
    }

    fn known(&self) -> Known {
        self.read.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The keys, read at most so long ago; older ones while somebody else reads them, or while they cannot be read.
    async fn at_most(&self, old: Duration) -> Result<Arc<ApiKeys>, Problem> {
        let now = || self.clock.boottime();
        let is_older = |at: Option<Duration>, than: Duration| at.is_none_or(|at| now() > at + than);
        let needs_a_read = |known: &Known| is_older(known.read_at, old) && is_older(known.tried_at, UNKNOWN_READ_EVERY);
        let mut known = self.known();
        if needs_a_read(&known) {
            let reading = match is_older(known.read_at, KEYS_BELIEVED_FOR) {
                true => Some(self.reading.lock().await),
                // Nobody waits for a store that hangs, as long as there are keys to go by.
                false => self.reading.try_lock().ok(),
            };
            known = self.known();
            if reading.is_some() && needs_a_read(&known) {
                known = self.read(known).await;
            }
        }
        if is_older(known.read_at, KEYS_BELIEVED_FOR) {
            return Err(Problem::unavailable("keys cannot be checked now: ask again"));
        }
        Ok(known.keys)
    }

    async fn read(&self, mut known: Known) -> Known {
        let asked_at = self.clock.boottime();
        match self.control.api_keys().await {
            Ok(keys) => (known.keys, known.read_at) = (Arc::new(keys), Some(asked_at)),
            Err(error) => tracing::warn!(class = error.class(), %error, "keys could not be read"),
        }
        known.tried_at = Some(self.clock.boottime());
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = known.clone();
        known
    }
}

type Limiter = RateLimiter<NotKeyed, InMemoryState, DefaultClock>;

/// How often each key may be used.
pub(super) struct KeyLimits {
    per_s: NonZeroU32,
    keys: Mutex<HashMap<String, Arc<Limiter>>>,
}

impl KeyLimits {
    pub(super) fn admit(&self, key: &str) -> Result<(), Problem> {
        let limiter = {
            // A map of counters is true whoever panicked. Only keys that exist are in it, so it is bounded.
            let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(RateLimiter::direct(Quota::per_second(self.per_s)));
            keys.entry(key.to_owned()).or_insert_with(new).clone()
        };
        limiter.check().map_err(|_| Problem::too_many(self.per_s.get()))
    }
}
