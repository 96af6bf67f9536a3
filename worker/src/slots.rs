//! Slots and permits, handed out together: a screened run waits here until its target has a permit and a slot is free, and
//! the weights say that it is its turn.
//!
//! The rules are those of [`punctual_core::turns`], [`punctual_core::circuit`] and [`punctual_core::pacing`]; here is what
//! waits and wakes. A permit is asked for only when someone could use it at once, so none goes to waste while slots are
//! scarce, and a run is chosen only after its permit, so that a run which came meanwhile can go first.

use crate::metrics::Metrics;
use crate::rate::{Permit, Permits};
use punctual_core::circuit::{Circuit, CircuitRule, Gate};
use punctual_core::clock::Clock;
use punctual_core::pacing::Pacing;
use punctual_core::priority::Priority;
use punctual_core::retry::OutcomeClass;
use punctual_core::target::Target;
use punctual_core::turns::{SlotCounts, Ticket, Turn, Turns};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// A permit that nobody could use for so long, and until its target's next, is forgotten. At the door all keep their distance.
const PERMIT_VALID: Duration = Duration::from_millis(100);
/// Of a limited target so much work is kept in hand; more is in the way of others. A limit that works off all that fits in
/// hand in this time bounds nothing.
const IN_HAND: Duration = Duration::from_secs(2);
/// Time between two clear-outs of what is long over.
const TIDY_EVERY: Duration = Duration::from_secs(60);

/// All slots of a worker, and all that waits for one.
pub struct Slots {
    clock: Arc<dyn Clock>,
    permits: Arc<Permits>,
    rule: CircuitRule,
    /// Of one priority.
    most_in_hand: usize,
    metrics: Arc<Metrics>,
    state: Mutex<State>,
    changed: Notify,
    circuits_changed: Notify,
}

struct State {
    turns: Turns,
    waiting: BTreeMap<Ticket, oneshot::Sender<Granted>>,
    last_ticket: Ticket,
    /// Permits that were taken and not used yet, and when.
    permits: BTreeMap<Target, Duration>,
    circuits: BTreeMap<Target, Circuit>,
    pacing: Pacing<(Priority, Target)>,
}

impl State {
    fn gate(&self, target: &Target, now: Duration) -> Gate {
        self.circuits.get(target).map_or(Gate::Closed, |circuit| circuit.gate(now))
    }
}

/// A slot and a permit. The slot is free again when this is dropped.
pub struct Granted {
    slots: Arc<Slots>,
    turn: Turn,
}

impl Drop for Granted {
    fn drop(&mut self) {
        self.slots.lock().turns.done(&self.turn);
        self.slots.changed.notify_one();
    }
}

/// Nobody calls this target at present: its circuit has opened.
pub struct SentAway;

impl Slots {
    /// Free slots.
    pub(crate) fn new(
        counts: SlotCounts,
        rule: CircuitRule,
        most_in_hand: usize,
        permits: Arc<Permits>,
        clock: Arc<dyn Clock>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        let state = State {
            turns: Turns::new(counts),
            waiting: BTreeMap::new(),
            last_ticket: 0,
            permits: BTreeMap::new(),
            circuits: BTreeMap::new(),
            pacing: Pacing::default(),
        };
        let (changed, circuits_changed) = (Notify::new(), Notify::new());
        Arc::new(Slots {
            clock,
            permits,
            rule,
            most_in_hand,
            metrics,
            state: Mutex::new(state),
            changed,
            circuits_changed,
        })
    }

    /// Waits for a turn. Whoever stops waiting loses nothing for others.
    ///
    /// # Errors
    /// When the target's circuit is open, or opens meanwhile.
    pub async fn turn(
        self: &Arc<Self>,
        priority: Priority,
        target: &Target,
        tenant: &str,
    ) -> Result<Granted, SentAway> {
        let (sender, receiver) = oneshot::channel();
        let ticket = {
            let mut state = self.lock();
            if matches!(state.gate(target, self.clock.monotonic()), Gate::Open { .. }) {
                return Err(SentAway);
            }
            state.last_ticket += 1;
            let ticket = state.last_ticket;
            state.turns.wait(ticket, priority, target, tenant);
            state.waiting.insert(ticket, sender);
            ticket
        };
        self.changed.notify_one();
        let _leaves = Leaves { slots: self, ticket, priority, target };
        receiver.await.map_err(|_| SentAway)
    }

    /// Whether more wait with a run of `priority` for `target` than are of use.
    pub fn is_in_excess(&self, priority: Priority, target: &Target) -> bool {
        self.lock().turns.is_in_excess(priority, target)
    }

    /// Whether as many wait for `target` already as are of use to a run of `priority`: as many as keep its slots busy, or
    /// its limit for a while. Each priority has hands of its own to wait in.
    pub fn is_crowded(&self, priority: Priority, target: &Target) -> bool {
        let state = self.lock();
        let fill_the_limit = |pace: f64| {
            let of_use = match (pace * IN_HAND.as_secs_f64()).ceil() as usize {
                0 => (self.most_in_hand / 4).max(1),
                of_use => of_use.max(2),
            };
            of_use < self.most_in_hand && state.turns.waiting(priority..=priority, |other| other == target) >= of_use
        };
        state.turns.is_crowded(priority, target) || self.permits.pace(target).is_some_and(fill_the_limit)
    }

    /// Whether calls to `target` may be made.
    pub fn gate(&self, target: &Target) -> Gate {
        self.lock().gate(target, self.clock.monotonic())
    }

    /// Whether a run that has failed before leaves the next call to `target` to others.
    pub fn spares_the_tried(&self, target: &Target) -> bool {
        let now = self.clock.monotonic();
        self.lock().circuits.get(target).is_some_and(|circuit| circuit.spares_the_tried(now))
    }

    /// For how long a run for `target` is put back for which there is no place before `closed_for` is over; at most `longest`
    /// more than that. Whoever comes later comes again later.
    pub fn put_back(&self, priority: Priority, target: &Target, closed_for: Duration, longest: Duration) -> Duration {
        let pace = self.permits.pace(target).filter(|pace| *pace > 0.0);
        let from = self.clock.monotonic() + closed_for;
        closed_for + self.lock().pacing.put_back(&(priority, target.clone()), pace, from, longest)
    }

    /// Says how a call ended that began at `began`, by the monotonic clock.
    pub fn ended(&self, priority: Priority, target: &Target, class: OutcomeClass, began: Duration) {
        let now = self.clock.monotonic();
        let mut sent_away = Vec::new();
        {
            let mut state = self.lock();
            let state = &mut *state;
            state.pacing.worked_off(&(priority, target.clone()), now);
            let circuit = state.circuits.entry(target.clone()).or_default();
            let before = circuit.gate(now);
            circuit.ended(&self.rule, class, began, now);
            let after = circuit.gate(now);
            if let Gate::Open { until } = after {
                let tickets = state.turns.send_away(target);
                sent_away.extend(tickets.iter().filter_map(|ticket| state.waiting.remove(ticket)));
                if before != after {
                    tracing::warn!(%target, lasts_s = (until - now).as_secs(), "most calls fail: none is made for a while");
                }
            } else if before != after {
                tracing::info!(%target, "calls succeed again");
            }
            state.turns.probe(target, after != Gate::Closed);
            if (before == Gate::Closed) != (after == Gate::Closed) {
                self.circuits_changed.notify_one();
            }
        }
        // Whoever waits learns it by the end of its channel.
        drop(sent_away);
        self.changed.notify_one();
    }

    /// The circuits that are not closed.
    pub fn open_circuits(&self) -> Vec<(Target, Gate)> {
        let now = self.clock.monotonic();
        let state = self.lock();
        let gates = state.circuits.iter().map(|(target, circuit)| (target.clone(), circuit.gate(now)));
        gates.filter(|(_, gate)| *gate != Gate::Closed).collect()
    }

    /// Waits until a circuit opens that was closed, or is closed again. What changes before the wait ends it too; one waits
    /// at a time.
    pub async fn circuits_changed(&self) {
        self.circuits_changed.notified().await;
    }

    /// Hands out turns, for ever.
    pub async fn deal(self: Arc<Self>) {
        let mut tidied = self.clock.monotonic();
        loop {
            let (granted, again_at) = self.grant();
            for (sender, granted) in granted {
                // Whoever does not wait any more gives the slot back by dropping it.
                let _ = sender.send(granted);
            }
            let now = self.clock.monotonic();
            if now.saturating_sub(tidied) >= TIDY_EVERY {
                self.tidy(now);
                tidied = now;
            }
            let pause = async {
                match again_at {
                    Some(at) => tokio::time::sleep(at.saturating_sub(now)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                () = self.permits.changed() => {}
                () = pause => {}
            }
        }
    }

    /// Forgets targets to which nothing happened for long.
    fn tidy(&self, now: Duration) {
        let mut state = self.lock();
        let state = &mut *state;
        state.pacing.tidy(now);
        state.circuits.retain(|target, circuit| {
            let is_kept = !circuit.is_over(now);
            if !is_kept {
                state.turns.probe(target, false);
            }
            is_kept
        });
    }

    /// Grants all that can be granted now, and says when to look again if nothing happens before.
    fn grant(self: &Arc<Self>) -> (Vec<(oneshot::Sender<Granted>, Granted)>, Option<Duration>) {
        let mut granted = Vec::new();
        let mut again_at: Option<Duration> = None;
        let mut state = self.lock();
        let state = &mut *state;
        let now = self.clock.monotonic();
        state.permits.retain(|target, at| {
            let next_in =
                self.permits.pace(target).filter(|pace| *pace > 0.0).map(|pace| Duration::from_secs_f64(1.0 / pace));
            now.saturating_sub(*at) <= next_in.unwrap_or_default().max(PERMIT_VALID)
        });
        loop {
            for target in state.turns.wanted() {
                if state.permits.contains_key(&target) {
                    continue;
                }
                // Nobody waits for a target whose circuit is open; half-open ones have room for one call.
                match self.permits.try_permit(&target) {
                    Permit::Ready => {
                        state.permits.insert(target, now);
                    }
                    Permit::At(at) => again_at = Some(again_at.map_or(at, |sooner| sooner.min(at))),
                    Permit::Never => {}
                }
            }
            let permits = &state.permits;
            let Some(turn) = state.turns.pick(|target| permits.contains_key(target)) else { break };
            state.permits.remove(&turn.target);
            match state.waiting.remove(&turn.ticket) {
                Some(sender) => {
                    self.metrics.turn(turn.slot, turn.priority);
                    granted.push((sender, Granted { slots: self.clone(), turn }));
                }
                None => state.turns.done(&turn),
            }
        }
        (granted, again_at)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes one out of line that stops waiting.
struct Leaves<'a> {
    slots: &'a Slots,
    ticket: Ticket,
    priority: Priority,
    target: &'a Target,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.lock();
        if state.waiting.remove(&self.ticket).is_some() {
            state.turns.leave(self.ticket, self.priority, self.target);
        }
    }
}
