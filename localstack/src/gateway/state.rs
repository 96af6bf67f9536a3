//! What the gateway decides about one request, as pure rules: time is an argument, answers are values.
//!
//! The order is: arrival, cap, script, repeat. A request above the cap is answered 429 and plays no behaviour.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// The cap holds over any second, not over calendar seconds.
const WINDOW: Duration = Duration::from_secs(1);

/// How the gateway behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayConfig {
    /// Requests let through in any second; those above it are answered 429.
    pub per_second_cap: u32,
    /// Whether a reference accepted before is answered without a second message to the phone.
    pub drops_repeats: bool,
    /// How long every answer takes.
    pub latency: Duration,
    /// What calls to a phone meet, in this order; the last behaviour repeats. Phones not named here are accepted.
    pub script: BTreeMap<String, Vec<Behaviour>>,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self { per_second_cap: 500, drops_repeats: true, latency: Duration::from_millis(5), script: BTreeMap::new() }
    }
}

/// What one call to a phone meets. In JSON: `"bad_number"`, `{"slow": {"ms": 200}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Behaviour {
    /// Accepted: 200.
    Accept,
    /// Refused for good: 400.
    BadNumber,
    /// Refused for good: 403.
    OptedOut,
    /// Not accepted: 503.
    Unavailable {
        /// Seconds in `Retry-After`; none sends no such header.
        retry_after_s: Option<u32>,
    },
    /// Not accepted: 429, whatever the cap says.
    Throttle {
        /// Seconds in `Retry-After`.
        retry_after_s: u32,
    },
    /// Not accepted: no answer for this long, then the connection is closed.
    Hang {
        /// Milliseconds until the connection is closed.
        for_ms: u64,
    },
    /// Accepted, but the connection is closed without an answer.
    AcceptThenDropConnection,
    /// Accepted on arrival, but the answer takes this much longer.
    Slow {
        /// Milliseconds on top of the latency.
        ms: u64,
    },
}

/// The body of a request to send one message.
#[derive(Debug, Deserialize)]
pub(crate) struct SmsRequest {
    /// The caller's name for the message: the same at every try.
    pub reference: String,
    /// The phone.
    pub to: String,
    /// The text. Nothing is done with it, but a request without one is not a request.
    #[serde(rename = "text")]
    pub _text: String,
}

/// What a request is answered, and after how long.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub answer: Answer,
    pub after: Duration,
}

/// What a request is answered.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Accepted { id: String, repeat: bool },
    BadRequest,
    BadNumber,
    OptedOut,
    Throttled { retry_after_s: u32 },
    Unavailable { retry_after_s: Option<u32> },
    ConnectionClosed,
}

/// The gateway's figures. "Let through" means not answered 429.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatewayStats {
    /// Distinct references accepted.
    pub accepted: u64,
    /// Requests let through whose reference had been accepted before.
    pub repeats: u64,
    /// Repeats answered with the first id, the phone getting nothing.
    pub repeats_dropped: u64,
    /// References whose phone got the message more than once.
    pub sent_twice: u64,
    /// Requests answered 429, by the cap or by the script.
    pub rejected_429: u64,
    /// Requests answered 400 or 403.
    pub refused_permanent: u64,
    /// Requests answered 503, or not answered and not accepted.
    pub unavailable: u64,
    /// Most requests let through in any second.
    pub peak_per_s: u64,
    /// Distinct references accepted, by the worker whose request was the first accepted.
    pub per_worker: BTreeMap<String, u64>,
}

/// The first request for a reference.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    /// The reference.
    pub reference: String,
    /// The worker that sent it.
    pub worker: String,
    /// When it arrived.
    pub arrived_at: DateTime<Utc>,
}

/// A reference the gateway has seen.
#[derive(Debug, Default)]
struct Seen {
    /// Number of its id, once it is accepted.
    accepted: Option<u64>,
    /// Messages its phone got.
    sent: u64,
}

/// Everything the gateway knows.
#[derive(Debug)]
pub(crate) struct GatewayState {
    config: GatewayConfig,
    /// Behaviours played, by phone.
    played: HashMap<String, usize>,
    references: HashMap<String, Seen>,
    arrivals: Vec<Arrival>,
    /// Times of the requests let through in the last second.
    let_through: VecDeque<Duration>,
    stats: GatewayStats,
}

impl GatewayState {
    pub(crate) fn new(config: GatewayConfig) -> Self {
        Self {
            config,
            played: HashMap::new(),
            references: HashMap::new(),
            arrivals: Vec::new(),
            let_through: VecDeque::new(),
            stats: GatewayStats::default(),
        }
    }

    /// Decides one request that arrives at `now`; `arrived_at` is the same moment on the wall clock.
    pub(crate) fn take(
        &mut self,
        request: &SmsRequest,
        worker: &str,
        now: Duration,
        arrived_at: DateTime<Utc>,
    ) -> Reply {
        self.note_arrival(request, worker, arrived_at);
        if !self.has_room(now) {
            return self.throttle(1);
        }
        let behaviour = self.next_behaviour(&request.to);
        if let Behaviour::Throttle { retry_after_s } = behaviour {
            return self.throttle(retry_after_s);
        }
        self.note_let_through(now);
        if self.is_accepted(&request.reference) {
            self.stats.repeats += 1;
        }
        self.play(&behaviour, request, worker)
    }

    /// Decides a request that cannot be read: it is refused for good.
    pub(crate) fn take_unreadable(&mut self, now: Duration) -> Reply {
        if !self.has_room(now) {
            return self.throttle(1);
        }
        self.note_let_through(now);
        self.refuse(Answer::BadRequest)
    }

    pub(crate) fn stats(&self) -> GatewayStats {
        self.stats.clone()
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.stats.accepted
    }

    pub(crate) fn arrivals(&self) -> &[Arrival] {
        &self.arrivals
    }

    pub(crate) fn set_script(&mut self, script: BTreeMap<String, Vec<Behaviour>>) {
        self.config.script = script;
        self.played.clear();
    }
    fn note_arrival(&mut self, request: &SmsRequest, worker: &str, arrived_at: DateTime<Utc>) {
        if !self.references.contains_key(&request.reference) {
            self.references.insert(request.reference.clone(), Seen::default());
            self.arrivals.push(Arrival { reference: request.reference.clone(), worker: worker.to_owned(), arrived_at });
        }
    }

    fn has_room(&mut self, now: Duration) -> bool {
        while self.let_through.front().is_some_and(|&earlier| earlier + WINDOW <= now) {
            self.let_through.pop_front();
        }
        self.let_through.len() < self.config.per_second_cap as usize
    }

    fn note_let_through(&mut self, now: Duration) {
        self.let_through.push_back(now);
        self.stats.peak_per_s = self.stats.peak_per_s.max(self.let_through.len() as u64);
    }

    fn next_behaviour(&mut self, phone: &str) -> Behaviour {
        let Some((script, last)) = self.config.script.get(phone).and_then(|script| Some((script, script.last()?)))
        else {
            return Behaviour::Accept;
        };
        let played = self.played.entry(phone.to_owned()).or_default();
        let behaviour = script.get(*played).unwrap_or(last).clone();
        *played += 1;
        behaviour
    }

    fn is_accepted(&self, reference: &str) -> bool {
        self.references.get(reference).is_some_and(|seen| seen.accepted.is_some())
    }

    fn play(&mut self, behaviour: &Behaviour, request: &SmsRequest, worker: &str) -> Reply {
        match *behaviour {
            Behaviour::Accept => {
                let answer = self.accept(&request.reference, worker);
                self.reply(answer)
            }
            Behaviour::Slow { ms } => {
                let answer = self.accept(&request.reference, worker);
                self.reply_later(answer, ms)
            }
            Behaviour::AcceptThenDropConnection => {
                self.accept(&request.reference, worker);
                self.reply(Answer::ConnectionClosed)
            }
            Behaviour::BadNumber => self.refuse(Answer::BadNumber),
            Behaviour::OptedOut => self.refuse(Answer::OptedOut),
            Behaviour::Throttle { retry_after_s } => self.throttle(retry_after_s),
            Behaviour::Unavailable { retry_after_s } => {
                self.stats.unavailable += 1;
                self.reply(Answer::Unavailable { retry_after_s })
            }
            Behaviour::Hang { for_ms } => {
                self.stats.unavailable += 1;
                self.reply_later(Answer::ConnectionClosed, for_ms)
            }
        }
    }

    /// Accepts a reference: for the first time, or as a repeat.
    fn accept(&mut self, reference: &str, worker: &str) -> Answer {
        let seen = self.references.entry(reference.to_owned()).or_default();
        let Some(number) = seen.accepted else {
            self.stats.accepted += 1;
            seen.accepted = Some(self.stats.accepted);
            seen.sent = 1;
            *self.stats.per_worker.entry(worker.to_owned()).or_default() += 1;
            return Answer::Accepted { id: message_id(self.stats.accepted), repeat: false };
        };
        if self.config.drops_repeats {
            self.stats.repeats_dropped += 1;
            return Answer::Accepted { id: message_id(number), repeat: true };
        }
        seen.sent += 1;
        if seen.sent == 2 {
            self.stats.sent_twice += 1;
        }
        Answer::Accepted { id: message_id(number), repeat: false }
    }

    fn refuse(&mut self, answer: Answer) -> Reply {
        self.stats.refused_permanent += 1;
        self.reply(answer)
    }

    fn throttle(&mut self, retry_after_s: u32) -> Reply {
        self.stats.rejected_429 += 1;
        self.reply(Answer::Throttled { retry_after_s })
    }

    fn reply(&self, answer: Answer) -> Reply {
        Reply { answer, after: self.config.latency }
    }

    fn reply_later(&self, answer: Answer, ms: u64) -> Reply {
        Reply { answer, after: self.config.latency + Duration::from_millis(ms) }
    }
}

fn message_id(number: u64) -> String {
    format!("sms-{number:08}")
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
