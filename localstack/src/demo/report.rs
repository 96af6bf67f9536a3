//! What the demo saw, for a file and for a person.

use super::ledger::Book;
use crate::gateway::{Arrival, GatewayStats};
use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

/// The numbers of a demo. The gateway's come from the gateway, the queue's from the queue.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Jobs imported.
    pub jobs: u64,
    /// Runs that became due.
    pub due: u64,
    /// Messages that the queues accepted.
    pub enqueued: u64,
    /// Distinct runs among them.
    pub distinct_enqueued: u64,
    /// Jobs still due at the end.
    pub left_due: u64,
    /// Messages of each scheduler, in the order they were started.
    pub per_scheduler: Vec<u64>,
    /// Distinct references that the gateway accepted.
    pub gateway_accepted: u64,
    /// References offered again after they were accepted.
    pub gateway_repeats: u64,
    /// Of these, dropped by the gateway.
    pub gateway_repeats_dropped: u64,
    /// References whose phone got the message more than once.
    pub gateway_sent_twice: u64,
    /// Requests refused because there were too many.
    pub gateway_429: u64,
    /// Most requests let through in any second.
    pub gateway_peak_per_s: u64,
    /// Dead letters.
    pub dead_letters: u64,
    /// From due to visible in the queue, in milliseconds.
    pub dispatch_lag_ms: Percentiles,
    /// From due to the first call, in milliseconds.
    pub start_lag_ms: Percentiles,
    /// Distinct runs enqueued a second, from the first to the last.
    pub dispatch_runs_per_s: f64,
    /// The whole demo, in seconds.
    pub elapsed_s: f64,
    /// Most memory held by one process, in MiB.
    pub max_rss_mb: MaxRss,
    /// What was killed, and when.
    pub killed: Vec<Killed>,
}

/// The most memory that one scheduler and one worker held, in MiB.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct MaxRss {
    /// Of the schedulers.
    pub scheduler: f64,
    /// Of the workers.
    pub worker: f64,
}

/// A process killed by the demo.
#[derive(Clone, Debug, Serialize)]
pub struct Killed {
    /// Which.
    pub process: String,
    /// What was counted.
    pub counted: &'static str,
    /// The count at which it was killed.
    pub at: u64,
}

/// A distribution in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Percentiles {
    /// Half are at most this.
    pub p50: f64,
    /// 95 % are at most this.
    pub p95: f64,
    /// 99 % are at most this.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Percentiles {
    fn of(lags: impl Iterator<Item = TimeDelta>) -> Self {
        let mut ms: Vec<f64> = lags.map(|lag| lag.as_seconds_f64() * 1_000.0).collect();
        ms.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let rank = (share * ms.len() as f64).ceil() as usize;
            ms.get(rank.saturating_sub(1)).map_or(0.0, |value| (value * 10.0).round() / 10.0)
        };
        Percentiles { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1.0) }
    }
}

impl Report {
    pub(super) fn fill_queue(&mut self, book: &Book, schedulers: &[String]) {
        self.enqueued = book.enqueued;
        self.distinct_enqueued = book.runs.len() as u64;
        self.dead_letters = book.dead_letters;
        // A process adds a random part to the name it is started with.
        let of = |name: &String| {
            let theirs = |id: &str| id.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with('-'));
            book.by_scheduler.iter().filter(|(id, _)| theirs(id)).map(|(_, n)| n).sum()
        };
        self.per_scheduler = schedulers.iter().map(of).collect();
        self.dispatch_lag_ms = Percentiles::of(book.runs.values().map(|run| run.visible_at - run.due_at));
        let visible = || book.runs.values().map(|run| run.visible_at);
        if let (Some(first), Some(last)) = (visible().min(), visible().max()) {
            let took = (last - first).as_seconds_f64().max(0.001);
            self.dispatch_runs_per_s = (book.runs.len() as f64 / took).round();
        }
    }

    pub(super) fn fill_gateway(&mut self, stats: &GatewayStats, arrivals: &[Arrival]) {
        self.gateway_accepted = stats.accepted;
        self.gateway_repeats = stats.repeats;
        self.gateway_repeats_dropped = stats.repeats_dropped;
        self.gateway_sent_twice = stats.sent_twice;
        self.gateway_429 = stats.rejected_429;
        self.gateway_peak_per_s = stats.peak_per_s;
        let lag = |arrival: &Arrival| Some(arrival.arrived_at - scheduled_at(&arrival.reference)?);
        self.start_lag_ms = Percentiles::of(arrivals.iter().filter_map(lag));
    }

    /// What went wrong; nothing means that the demo kept its promises. `may_be_sent_twice` is the documented gap.
    pub(super) fn problems(&self, may_be_sent_twice: u64) -> Vec<String> {
        let mut problems = Vec::new();
        let lost = self.due.saturating_sub(self.gateway_accepted);
        if lost > 0 {
            problems.push(format!("{lost} reminders did not reach the gateway"));
        }
        if self.distinct_enqueued < self.due {
            problems.push(format!("{} runs were never enqueued", self.due - self.distinct_enqueued));
        }
        if self.left_due > 0 {
            problems.push(format!("{} jobs are still due", self.left_due));
        }
        if self.gateway_sent_twice > may_be_sent_twice {
            problems.push(format!(
                "{} reminders were sent twice; at most {may_be_sent_twice} are explained",
                self.gateway_sent_twice
            ));
        }
        if self.dead_letters > 0 {
            problems.push(format!("{} dead letters", self.dead_letters));
        }
        problems
    }

    /// The summary for a person.
    pub(super) fn summary(&self) -> String {
        let shares: Vec<String> = self.per_scheduler.iter().map(|n| self.share(*n)).collect();
        let mut lines = vec![
            format!("  jobs            {:>8}", self.jobs),
            format!(
                "  enqueued        {:>8}   distinct {}, left due {}",
                self.enqueued, self.distinct_enqueued, self.left_due
            ),
            format!("  by scheduler    {}", shares.join("   ")),
            format!(
                "  gateway         {:>8}   accepted; offered again {}, dropped {}, sent twice {}, answered 429 {}",
                self.gateway_accepted,
                self.gateway_repeats,
                self.gateway_repeats_dropped,
                self.gateway_sent_twice,
                self.gateway_429
            ),
            format!(
                "  busiest second  {:>8}   calls (the gateway takes 500, the workers together send 450)",
                self.gateway_peak_per_s
            ),
            format!("  dead letters    {:>8}", self.dead_letters),
            format!("  dispatch lag    {}", lag(&self.dispatch_lag_ms)),
            format!("  start lag       {}", lag(&self.start_lag_ms)),
            format!("  dispatch        {:>8}   runs/s from the first to the last", self.dispatch_runs_per_s),
            format!(
                "  memory          {:>8.1}   MiB at most in a scheduler, {:.1} in a worker",
                self.max_rss_mb.scheduler, self.max_rss_mb.worker
            ),
            format!("  elapsed         {:>8.1}   s", self.elapsed_s),
        ];
        for killed in &self.killed {
            lines.push(format!(
                "  killed          {:>8}   when {} runs were {}",
                killed.process, killed.at, killed.counted
            ));
        }
        lines.join("\n")
    }

    fn share(&self, n: u64) -> String {
        let percent = if self.enqueued == 0 { 0.0 } else { 100.0 * n as f64 / self.enqueued as f64 };
        format!("{n} ({percent:.0} %)")
    }
}

fn lag(p: &Percentiles) -> String {
    format!("p50 {:.0} ms   p95 {:.0} ms   p99 {:.0} ms   max {:.0} ms", p.p50, p.p95, p.p99, p.max)
}

/// A run's id ends with its nominal instant, which in the demo is its due time.
fn scheduled_at(reference: &str) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(reference.rsplit_once(':')?.1.parse().ok()?, 0)
}
