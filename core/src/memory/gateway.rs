//! The SMS gateway in memory: it remembers what reached it, and what reached the phone.

use super::World;
use super::inspect::Effect;
use crate::ports::{Gateway, SmsRequest};
use crate::retry::Outcome;
use crate::run::RunId;
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

#[derive(Default)]
pub(super) struct State {
    scripts: BTreeMap<String, VecDeque<Script>>,
    pub(super) drops_repeats: bool,
    pub(super) latency: Duration,
    pub(super) sends: Vec<GatewaySend>,
    references: BTreeMap<RunId, String>,
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
    /// What it was to send.
    pub text: String,
    /// Whether the text went out to the phone.
    pub reached_phone: bool,
}

impl State {
    pub(super) fn script(&mut self, number: &str, scripts: impl IntoIterator<Item = Script>) {
        self.scripts.entry(number.to_owned()).or_default().extend(scripts);
    }

    fn accept(&mut self, request: &SmsRequest, at: DateTime<Utc>) -> Script {
        let number = self.references.len() + 1;
        let delivered = |gateway_ref: &str| Script::Answer(Outcome::Delivered { gateway_ref: gateway_ref.to_owned() });
        let known = self.references.get(&request.reference);
        let (script, reached_phone) = match known {
            Some(gateway_ref) if self.drops_repeats => (delivered(gateway_ref), false),
            _ => {
                let script = self.scripts.get_mut(&request.payload.to).and_then(VecDeque::pop_front);
                let script = script.unwrap_or_else(|| delivered(&format!("gw-{number}")));
                let refused = matches!(script, Script::Answer(Outcome::Temporary { .. } | Outcome::Permanent { .. }));
                (script, !refused)
            }
        };
        if reached_phone {
            self.references.entry(request.reference.clone()).or_insert_with(|| format!("gw-{number}"));
        }
        self.sends.push(GatewaySend {
            reference: request.reference.clone(),
            at,
            text: request.payload.text.clone(),
            reached_phone,
        });
        script
    }
}

#[async_trait]
impl Gateway for World {
    async fn send(&self, request: &SmsRequest) -> Outcome {
        let at = self.now();
        let (script, latency) = {
            let mut state = self.state();
            state.record(at, Effect::Sent { reference: request.reference.clone() });
            (state.gateway.accept(request, at), state.gateway.latency)
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
