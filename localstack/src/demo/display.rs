//! Where a person sees a demo: a screen that is drawn again and again, or lines now and then where there is no terminal.

use super::lags::{Lag, Lags, Pace};
use super::report::scheduled_at;
use super::screen::{Figures, screen, summary_line};
use crate::gateway::Gateway;
use chrono::TimeDelta;
use indicatif::{ProgressBar, ProgressStyle};
use punctual_core::ports::{QueueDepth, RunQueue};
use punctual_core::priority::Priority;
use rustix::termios::tcgetwinsize;
use std::io::stderr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

const DRAW_EVERY: Duration = Duration::from_millis(300);
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Each look asks the stack for every queue: often enough to see them, seldom enough not to be seen in the figures.
const QUEUES_EVERY: Duration = Duration::from_secs(1);
/// Of a terminal that does not say.
const USUAL_WIDTH: usize = 80;

/// Shows figures.
pub(super) struct Display {
    /// A text of several lines, to this crate; none where there is no terminal.
    text: Option<ProgressBar>,
    shown_at: Option<Duration>,
}

impl Display {
    pub(super) fn new() -> Self {
        let text = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{msg}") {
            text.set_style(style);
        }
        Display { text: (!text.is_hidden()).then_some(text), shown_at: None }
    }

    /// Whether figures are shown again at this moment of the monotonic clock.
    pub(super) fn is_due(&self, now: Duration) -> bool {
        let every = if self.text.is_some() { DRAW_EVERY } else { LINE_EVERY };
        self.shown_at.is_none_or(|at| at + every <= now)
    }

    /// Shows figures. A log is told nothing while nothing happens.
    pub(super) fn show(&mut self, now: Duration, figures: &Figures) {
        self.shown_at = Some(now);
        match &self.text {
            Some(text) => text.set_message(screen(figures, width()).join("\n")),
            None if figures.since_due >= TimeDelta::zero() || figures.enqueued > 0 => {
                eprintln!("{}", summary_line(figures));
            }
            None => {}
        }
    }

    /// Says something that stays.
    pub(super) fn say(&self, line: &str) {
        match &self.text {
            Some(text) => text.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }

    /// Removes what is drawn.
    pub(super) fn clear(&self) {
        if let Some(text) = &self.text {
            text.finish_and_clear();
        }
    }
}

/// Columns that can be written to; the last one is left free, since some terminals begin a line when it is written.
fn width() -> usize {
    let columns = tcgetwinsize(stderr()).map_or(0, |size| size.ws_col.into());
    if columns == 0 { USUAL_WIDTH } else { columns - 1 }
}

/// What figures are made of from one look to the next.
pub(super) struct Looks {
    enqueued: Pace,
    delivered: Pace,
    start_lags: Lags,
    /// Arrivals at the gateway that are in them.
    arrivals: usize,
    queues: watch::Receiver<Option<[QueueDepth; 3]>>,
    /// Ended with it.
    _beside: JoinSet<()>,
}

impl Looks {
    /// Follows the queues as well.
    pub(super) fn begin(queue: Arc<dyn RunQueue>) -> Self {
        let (seen, queues) = watch::channel(None);
        let mut beside = JoinSet::new();
        beside.spawn(async move {
            loop {
                seen.send_replace(depths(&*queue).await);
                tokio::time::sleep(QUEUES_EVERY).await;
            }
        });
        let (enqueued, delivered) = (Pace::default(), Pace::default());
        Looks { enqueued, delivered, start_lags: Lags::default(), arrivals: 0, queues, _beside: beside }
    }

    /// How many more runs a second were enqueued and delivered of late.
    pub(super) fn per_s(&mut self, now: Duration, enqueued: u64, delivered: u64) -> (u64, u64) {
        (self.enqueued.per_s(now, enqueued), self.delivered.per_s(now, delivered))
    }

    /// How late the gateway was called; only what arrived since the last look is looked at.
    pub(super) fn start_lag(&mut self, gateway: &Gateway) -> Option<Lag> {
        for arrival in gateway.arrivals_from(self.arrivals) {
            self.arrivals += 1;
            if let Some(due_at) = scheduled_at(&arrival.reference) {
                self.start_lags.note(arrival.arrived_at - due_at);
            }
        }
        self.start_lags.lag()
    }

    /// What was last seen of the queues; none if they could not be asked.
    pub(super) fn queues(&self) -> Option<[QueueDepth; 3]> {
        *self.queues.borrow()
    }
}

async fn depths(queue: &dyn RunQueue) -> Option<[QueueDepth; 3]> {
    let [urgent, normal, bulk] = Priority::ALL;
    Some([queue.depth(urgent).await.ok()?, queue.depth(normal).await.ok()?, queue.depth(bulk).await.ok()?])
}
