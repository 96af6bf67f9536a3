//! Step 6, *idempotency*: a run is begun however long the store takes to say so, and given back where that leads to no call.
//!
//! A try whose answer was lost may have begun it. While what was read of the job is valid it is made again with the same
//! token, and knows its own row; before anything else is decided, the row is given back.

use crate::idempotency::{Begun, Screened, begin, is_free, put};
use crate::lease::Held;
use crate::pipeline::{Context, GIVEN_UP_FOR, SCREEN_VALID, Step, circuit_is_open, insist, may_go_on, screen};
use punctual_core::circuit::Gate;
use punctual_core::lease::Wait;
use punctual_core::message::Message;
use punctual_core::ports::{PortResult, Put};
use punctual_core::process::random_token;
use punctual_core::run::{Event, RunRow, Transition, apply};
use punctual_core::target::Target;
use tokio::sync::watch;

/// Makes the run this worker's own: its row, and the token that it began with.
pub(crate) async fn own(
    context: &Context,
    held: &Held,
    message: &Message,
    target: &Target,
    screened: &mut Box<Screened>,
    stop: &mut watch::Receiver<bool>,
) -> Result<(Box<RunRow>, String), Step> {
    loop {
        let mut tries = Tries { context, held, message, target, token: random_token(), is_lost: false };
        match tries.begin(screened, stop).await {
            Ok(Some(row)) => return Ok((row, tries.token)),
            Ok(None) => tries.take_back(stop).await?,
            Err(step) => {
                if tries.is_lost
                    && let Err(error) = tries.take_back_once().await
                {
                    tracing::debug!(class = error.class(), %error, "what may have begun is left to be taken over");
                }
                return Err(step);
            }
        }
        *screened = screen(context, held, message, None, stop).await?;
        if screened.job.spec.payload.target() != *target {
            return Err(Step::PutBack { wait: Wait::For(GIVEN_UP_FOR), why: "its job was changed" });
        }
    }
}

/// Tries of one begin, with one token.
struct Tries<'a> {
    context: &'a Context,
    held: &'a Held,
    message: &'a Message,
    target: &'a Target,
    token: String,
    /// Whether the answer of the last try was lost.
    is_lost: bool,
}

impl Tries<'_> {
    /// Tries at least once, and for as long as what was read of the job is valid; none when it is not any more.
    async fn begin(
        &mut self,
        screened: &Screened,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<Option<Box<RunRow>>, Step> {
        let Tries { context, held, message, target, .. } = *self;
        while !self.is_lost || screened.age.elapsed(&*context.clock) <= SCREEN_VALID {
            may_go_on(context, stop)?;
            if !context.hands.trusts(held) {
                return Err(Step::Fenced);
            }
            if matches!(context.slots.gate(target), Gate::Open { .. }) {
                return Err(circuit_is_open(context, held, target));
            }
            is_free(context, held.delivery.priority, message, screened)?;
            self.is_lost = true;
            let began = begin(context, message, screened, &self.token).await;
            match insist(context, held, stop, began).await? {
                Some(Begun::Mine(row)) => return Ok(Some(row)),
                Some(Begun::Do(step)) => {
                    self.is_lost = false;
                    return Err(step);
                }
                None => {}
            }
        }
        Ok(None)
    }

    /// Gives back what they may have written, however long the store takes to say that it is.
    async fn take_back(&self, stop: &mut watch::Receiver<bool>) -> Result<(), Step> {
        loop {
            // Tried once whatever else is to be done: what is left running is taken over, and counts.
            let taken_back = self.take_back_once().await;
            if insist(self.context, self.held, stop, taken_back).await?.is_some() {
                return Ok(());
            }
            may_go_on(self.context, stop)?;
        }
    }

    async fn take_back_once(&self) -> PortResult<()> {
        let row = self.context.ports.runs.get(&self.message.run_id()).await?;
        give_up(self.context, self.message, row, &self.token).await
    }
}

/// Gives back what was begun with `token` and not made: the attempt is not counted. Does nothing where the row is not held by
/// it. A write of begin that is still under way may land later; what it begins is taken over, and counts.
pub(crate) async fn give_up(
    context: &Context,
    message: &Message,
    mut row: Option<RunRow>,
    token: &str,
) -> PortResult<()> {
    let write_token = random_token();
    loop {
        let event = Event::GiveUp { token };
        match apply(row.as_ref(), &message.facts(), &event, context.clock.now(), &write_token) {
            Transition::Write(new) => match put(context, &new).await? {
                Put::Written => return Ok(()),
                Put::Conflict(current) => row = current.map(|row| *row),
            },
            Transition::LookLater { .. } | Transition::Refused(_) => return Ok(()),
        }
    }
}
