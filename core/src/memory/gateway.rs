//! All handlers in memory: a gateway that remembers what reached it, and what reached the phone.

use super::World;
use super::inspect::Effect;
use crate::payload::{Handler, Payload};
use crate::ports::{Call, Gateway};
use crate::retry::Outcome;
use crate::run::RunId;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

#[derive(Default)]
pub(super) struct State {
    scripts: BTreeMap<String, VecDeque<Script>>,
    pub(super) drops_repeats: bool,
    pub(super) latency: Duration,
    pub(super) sends: Vec<GatewaySend>,
    references: BTreeMap<RunId, String>,
    pub(super) unserved: BTreeSet<Handler>,
}

/// What the gateway does with one call. Without a script it delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Script {
    /// It answers so. An unknown outcome reaches the phone; a temporary or permanent one does not.
    Answer(Outcome),
    /// It sends the text, and the call never returns.
    NeverAnswers,
}

/// One call that reached the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewaySend {
    /// The run's id.
    pub reference: RunId,
    /// When.
    pub at: DateTime<Utc>,
    /// What it was to send; empty where the payload has no text.
    pub text: String,
    /// Whether the text went out to the phone.
    pub reached_phone: bool,
}

impl State {
    pub(super) fn script(&mut self, to: &str, scripts: impl IntoIterator<Item = Script>) {
        self.scripts.entry(to.to_owned()).or_default().extend(scripts);
    }

    fn accept(&mut self, call: &Call, at: DateTime<Utc>) -> Script {
        let number = self.references.len() + 1;
        let delivered = |gateway_ref: &str| Script::Answer(Outcome::Delivered { gateway_ref: gateway_ref.to_owned() });
        let known = self.references.get(&call.reference);
        let (script, reached_phone) = match known {
            Some(gateway_ref) if self.drops_repeats => (delivered(gateway_ref), false),
            _ => {
                let script = self.scripts.get_mut(script_key(&call.payload)).and_then(VecDeque::pop_front);
                let script = script.unwrap_or_else(|| delivered(&format!("gw-{number}")));
                let refused = matches!(
                    script,
                    Script::Answer(Outcome::Temporary { .. } | Outcome::Permanent { .. } | Outcome::Gone { .. })
                );
                (script, !refused)
            }
        };
        if reached_phone {
            self.references.entry(call.reference.clone()).or_insert_with(|| format!("gw-{number}"));
        }
        self.sends.push(GatewaySend {
            reference: call.reference.clone(),
            at,
            text: call.payload.text().unwrap_or_default().to_owned(),
            reached_phone,
        });
        script
    }
}

/// What scripts are kept by: the number, mailbox or address that a call goes to, or `noop`.
fn script_key(payload: &Payload) -> &str {
    match payload {
        Payload::Sms { to, .. } | Payload::Email { to, .. } => to,
        Payload::Webhook { url, .. } | Payload::Queue { url, .. } => url,
        Payload::Noop | Payload::Unread(_) => payload.handler().as_str(),
    }
}

#[async_trait]
impl Gateway for World {
    fn serves(&self, handler: Handler) -> bool {
        !self.state().gateway.unserved.contains(&handler)
    }

    async fn send(&self, call: &Call) -> Outcome {
        let at = self.now();
        let (script, latency) = {
            let mut state = self.state();
            state.record(at, Effect::Sent { reference: call.reference.clone() });
            (state.gateway.accept(call, at), state.gateway.latency)
        };
        if !latency.is_zero() {
            tokio::time::sleep(latency).await;
        }
        match script {
            Script::Answer(outcome) => outcome,
            Script::NeverAnswers => std::future::pending().await,
        }
    }
}
