//! The metrics themselves. They stand in the order of a run's way.

use super::DimensionSet::{self, Labels, Service as OfService};
use super::{Kind, Label, Metric, Service, Unit, Values};

/// From a hundredth of a second, which is as good as at once, to an hour, which is an outage; 120 s are the bound above
/// which a firing counts as missed, 300 s and 900 s tell a backlog from a stop.
const LAG: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0];
/// From a permit that is there to more than a minute; after 20 s without a share a run is put back.
const WAIT: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0];
/// From a queue's or a near gateway's answer to a minute; 10 s are the default timeout.
const ATTEMPT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// From what needs no read of the store to what an impatient caller has left already.
const REQUEST: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

const DISPATCH: &[Service] = &[Service::Dispatch];
const WORKER: &[Service] = &[Service::Worker];
const API: &[Service] = &[Service::Api];
const ALL_SERVICES: &[Service] = &Service::ALL;

const SUM: &[DimensionSet] = &[OfService];
const EACH: &[DimensionSet] = &[Labels];
const SUM_AND_EACH: &[DimensionSet] = &[OfService, Labels];

const fn label(name: &'static str, values: &'static [&'static str]) -> Label {
    Label { name, values: Values::Listed(values) }
}

const PRIORITIES: &[&str] = &["urgent", "normal", "bulk"];
const PRIORITY: Label = label("priority", PRIORITIES);
const HANDLER: Label = label("handler", &["sms", "email", "webhook", "queue", "noop"]);

const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [Label],
    by: &'static [Service],
    meaning: &'static str,
) -> Metric {
    let unit = match kind {
        Kind::Counter | Kind::Gauge => Unit::Count,
        Kind::Histogram(_) => Unit::Seconds,
    };
    Metric { name, kind, unit, labels, by, meaning, alarm: None, in_emf: &[] }
}

const fn counter(
    name: &'static str,
    labels: &'static [Label],
    by: &'static [Service],
    meaning: &'static str,
) -> Metric {
    metric(name, Kind::Counter, labels, by, meaning)
}

const fn gauge(name: &'static str, labels: &'static [Label], by: &'static [Service], meaning: &'static str) -> Metric {
    metric(name, Kind::Gauge, labels, by, meaning)
}

impl Metric {
    const fn seconds(self) -> Self {
        Metric { unit: Unit::Seconds, ..self }
    }

    const fn alarm(self, alarm: &'static str) -> Self {
        Metric { alarm: Some(alarm), ..self }
    }

    const fn emf(self, in_emf: &'static [DimensionSet]) -> Self {
        Metric { in_emf, ..self }
    }
}

/// Due to found.
pub const RUNS_DUE: Metric = counter(
    "punctual_runs_due_total",
    &[PRIORITY],
    DISPATCH,
    "Runs found due, each time again until they are in their queue.",
)
.emf(SUM_AND_EACH);
/// Found to enqueued.
pub const RUNS_ENQUEUED: Metric =
    counter("punctual_runs_enqueued_total", &[PRIORITY], DISPATCH, "Runs whose message is in its queue.")
        .alarm("dispatch-stopped")
        .emf(SUM_AND_EACH);
/// How late dispatch is.
pub const DISPATCH_LAG: Metric = metric(
    "punctual_dispatch_lag_seconds",
    Kind::Histogram(LAG),
    &[PRIORITY],
    DISPATCH,
    "From the instant a run was due to the moment its message is in the queue.",
)
.alarm("dispatch-lag")
.emf(EACH);
/// Advances done.
pub const JOBS_ADVANCED: Metric =
    counter("punctual_jobs_advanced_total", &[], DISPATCH, "Jobs moved on to their next firing.").emf(SUM);
/// Advances lost to another copy.
pub const JOBS_ALREADY_ADVANCED: Metric = counter(
    "punctual_jobs_already_advanced_total",
    &[],
    DISPATCH,
    "Jobs that another copy or a change had moved on already.",
);
/// Skips.
pub const RUNS_SKIPPED: Metric = counter(
    "punctual_runs_skipped_total",
    &[label("by", &["dispatch", "worker"]), label("reason", &["cancelled", "superseded", "deadline", "missed"])],
    &[Service::Dispatch, Service::Worker],
    "Runs that were recorded as skipped and not run.",
)
.emf(SUM);
/// Quarantines.
pub const JOBS_QUARANTINED: Metric = counter(
    "punctual_jobs_quarantined_total",
    &[],
    DISPATCH,
    "Jobs taken out of the timetable because they could not be dispatched.",
)
.alarm("quarantined-jobs")
.emf(SUM);
/// Found behind the cursor.
pub const DISPATCH_STRAGGLERS: Metric =
    counter("punctual_dispatch_stragglers_total", &[], DISPATCH, "Due jobs found where the cursor had been already.");
/// Passes that failed.
pub const DISPATCH_PASS_FAILURES: Metric =
    counter("punctual_dispatch_pass_failures_total", &[], DISPATCH, "Passes over a shard that failed.")
        .alarm("dispatch-failures")
        .emf(SUM);
/// Shards of this copy.
pub const SHARDS_HELD: Metric =
    gauge("punctual_shards_held", &[], DISPATCH, "Shards whose lease this copy holds.").alarm("shards-unheld").emf(SUM);
/// Lease churn.
pub const SHARDS_TAKEN: Metric =
    counter("punctual_shards_taken_total", &[], DISPATCH, "Leases of shards that this copy took.").emf(SUM);
/// How far behind the slowest shard is.
pub const CURSOR_AGE: Metric = gauge(
    "punctual_cursor_age_seconds",
    &[],
    DISPATCH,
    "How far the cursor of the held shard that is furthest behind lies before now: six to seven minutes, when all is well.",
)
.seconds()
.alarm("cursor-age")
.emf(SUM);
/// Jobs in quarantine.
pub const QUARANTINED_JOBS: Metric =
    gauge("punctual_quarantined_jobs", &[], DISPATCH, "Jobs in quarantine, which wait for a person.")
        .alarm("quarantined-jobs")
        .emf(SUM);
/// Backlog.
pub const QUEUE_MESSAGES: Metric = gauge(
    "punctual_queue_messages",
    &[PRIORITY, label("state", &["visible", "in_flight", "delayed"])],
    DISPATCH,
    "Messages in a queue, about.",
)
.alarm("backlog")
.emf(EACH);
/// Rows that wait for a person.
pub const DEAD_LETTER_ROWS: Metric = gauge(
    "punctual_dead_letter_rows",
    &[],
    DISPATCH,
    "Runs that wait for a person: dead, or indeterminate; counted up to 1,000.",
)
.alarm("dead-letters")
.emf(SUM);
/// The one that waits longest.
pub const OLDEST_DEAD_LETTER_AGE: Metric = gauge(
    "punctual_oldest_dead_letter_age_seconds",
    &[],
    DISPATCH,
    "Time since the run that waits longest for a person ended; 0 if none waits.",
)
.seconds()
.alarm("dead-letter-age")
.emf(SUM);

/// Messages received.
pub const MESSAGES_RECEIVED: Metric =
    counter("punctual_messages_received_total", &[], WORKER, "Messages received from the queues, repeats included.")
        .emf(SUM);
/// In the queue.
pub const QUEUE_LATENCY: Metric = metric(
    "punctual_queue_latency_seconds",
    Kind::Histogram(LAG),
    &[PRIORITY],
    WORKER,
    "From the moment a message was put into its queue to its first receipt.",
)
.emf(EACH);
/// How late runs start.
pub const START_LAG: Metric = metric(
    "punctual_start_lag_seconds",
    Kind::Histogram(LAG),
    &[PRIORITY],
    WORKER,
    "From the instant a run was due to the start of its first attempt.",
)
.alarm("start-lag")
.emf(EACH);
/// Waiting for a turn.
pub const LIMITER_WAIT: Metric = metric(
    "punctual_limiter_wait_seconds",
    Kind::Histogram(WAIT),
    &[],
    WORKER,
    "Time a run waited for a slot and a permit of its target's limit.",
)
.emf(SUM);
/// Calls.
pub const ATTEMPT_DURATION: Metric = metric(
    "punctual_attempt_duration_seconds",
    Kind::Histogram(ATTEMPT),
    &[HANDLER],
    WORKER,
    "Time a call took, until its answer or its timeout.",
)
.emf(EACH);
/// How calls ended.
pub const ATTEMPTS: Metric = counter(
    "punctual_attempts_total",
    &[HANDLER, label("outcome", &["delivered", "temporary", "permanent", "unknown", "lost"])],
    WORKER,
    "Attempts that ended, by their outcome.",
)
.alarm("failure-rate")
.emf(SUM_AND_EACH);
/// Second and later attempts.
pub const RETRIES: Metric =
    counter("punctual_retries_total", &[HANDLER], WORKER, "Attempts that were not a run's first.").emf(SUM_AND_EACH);
/// Repeats that did no harm.
pub const REPEATS_CAUGHT: Metric = counter(
    "punctual_repeats_caught_total",
    &[],
    WORKER,
    "Messages of runs that had ended or were somebody's already.",
)
.emf(SUM);
/// Runs of workers that are gone.
pub const TAKEOVERS: Metric =
    counter("punctual_takeovers_total", &[], WORKER, "Runs taken over from a worker that is gone.").emf(SUM);
/// Records refused.
pub const FENCED_RECORDS: Metric = counter(
    "punctual_fenced_records_total",
    &[],
    WORKER,
    "Outcomes that a row refused because the run was another worker's by then.",
)
.emf(SUM);
/// Calls to the store that failed.
pub const STORE_FAILURES: Metric =
    counter("punctual_store_failures_total", &[], WORKER, "Calls to the store that failed and were made again.")
        .alarm("store-failures")
        .emf(SUM);
/// Put back with nothing done.
pub const MESSAGES_PUT_BACK: Metric = counter(
    "punctual_messages_put_back_total",
    &[label("why", &["paused", "held", "not_due", "job_older"])],
    WORKER,
    "Messages put back into their queue with nothing done for them.",
)
.emf(SUM);
/// Dead letters made.
pub const DEAD_LETTERS: Metric = counter(
    "punctual_dead_letters_total",
    &[label("reason", &["exhausted", "indeterminate", "no_job", "too_old", "unreadable"])],
    WORKER,
    "Messages that went to the dead letters: attempts used up, outcome unknown, job gone, older than its rows, unreadable.",
)
.alarm("dead-letters")
.emf(SUM_AND_EACH);
/// How runs ended.
pub const RUNS_ENDED: Metric = counter(
    "punctual_runs_ended_total",
    &[label("status", &["succeeded", "failed", "dead", "indeterminate", "skipped"])],
    WORKER,
    "Runs that ended at a worker, by their final status.",
)
.emf(EACH);
/// Turns.
pub const SLOTS_TAKEN: Metric = counter(
    "punctual_slots_taken_total",
    &[label("slot", &["shared", "urgent_only"]), label("queue", PRIORITIES)],
    WORKER,
    "Slots given to runs, by the kind of slot and the run's queue.",
);
/// Held at a moment.
pub const RUNS_IN_FLIGHT: Metric =
    gauge("punctual_runs_in_flight", &[], WORKER, "Runs that this worker has begun and not ended.").emf(SUM);
/// Stuck work.
pub const RUNS_STUCK: Metric =
    gauge("punctual_runs_stuck", &[], WORKER, "Runs taken over from a worker that is gone, and not ended yet.")
        .alarm("stuck-runs")
        .emf(SUM);
/// Shares of limits.
pub const RATE_SHARES_HELD: Metric = gauge(
    "punctual_rate_shares_held",
    &[label("target", &["sms", "email", "webhook", "queue"])],
    WORKER,
    "Shares of the rate limits that this worker holds; those of all webhook hosts together.",
);
/// Open circuits.
pub const CIRCUITS: Metric = gauge(
    "punctual_circuits",
    &[HANDLER, label("state", &["open", "half_open"])],
    WORKER,
    "Targets whose circuit is not closed at this worker.",
)
.alarm("circuits")
.emf(EACH);

/// Requests.
pub const API_REQUESTS: Metric = counter(
    "punctual_api_requests_total",
    &[
        Label { name: "op", values: Values::UpTo { most: 40, of: "operations of the API" } },
        label("status", &["2xx", "3xx", "4xx", "5xx"]),
    ],
    API,
    "Requests answered, by operation and class of status.",
)
.emf(SUM);
/// Requests that the API could not answer.
pub const API_FAILURES: Metric =
    counter("punctual_api_failures_total", &[], API, "Requests answered 5xx: by a defect, or by the store's trouble.")
        .alarm("api-errors")
        .emf(SUM);
/// Time to answer.
pub const API_REQUEST: Metric =
    metric("punctual_api_request_seconds", Kind::Histogram(REQUEST), &[], API, "Time it took to answer a request.")
        .emf(SUM);

/// How long the heartbeat's way took.
pub const HEARTBEAT_LAG: Metric = gauge(
    "punctual_heartbeat_lag_seconds",
    &[],
    WORKER,
    "From the instant the latest heartbeat job that ran was due to its delivery.",
)
.seconds()
.alarm("heartbeat")
.emf(SUM);
/// When it last ran.
pub const HEARTBEAT_TIMESTAMP: Metric = gauge(
    "punctual_heartbeat_timestamp_seconds",
    &[],
    WORKER,
    "When the latest heartbeat job that ran was delivered, in Unix time.",
)
.seconds()
.alarm("heartbeat");

/// The host's clock.
pub const CLOCK_OFFSET: Metric = gauge(
    "punctual_clock_offset_seconds",
    &[],
    ALL_SERVICES,
    "By how much the host's clock is ahead of the store's time.",
)
.seconds()
.alarm("clock-offset")
.emf(SUM);
/// Throttled calls.
pub const THROTTLES: Metric = counter(
    "punctual_throttles_total",
    &[label("aws_service", &["dynamodb", "sqs"])],
    ALL_SERVICES,
    "Calls to AWS that were answered with a throttle.",
)
.alarm("throttles")
.emf(EACH);
/// Holds.
pub const HOLDS_IN_FORCE: Metric =
    gauge("punctual_holds_in_force", &[], WORKER, "Operators' holds in force, as this process knows them.")
        .alarm("holds")
        .emf(SUM);
/// Lines of the log that nobody will read.
pub const LOG_LINES_LOST: Metric = counter(
    "punctual_log_lines_lost_total",
    &[],
    ALL_SERVICES,
    "Log lines that could not be written: the disk is full, or the reader stands still.",
)
.emf(SUM);
/// Which version runs.
pub const BUILD_INFO: Metric = Metric {
    unit: Unit::Info,
    ..gauge(
        "punctual_build_info",
        &[label("version", &[env!("CARGO_PKG_VERSION")])],
        ALL_SERVICES,
        "The version that runs, in its label; always 1.",
    )
};

/// The table.
pub const ALL: &[&Metric] = &[
    &RUNS_DUE,
    &RUNS_ENQUEUED,
    &DISPATCH_LAG,
    &JOBS_ADVANCED,
    &JOBS_ALREADY_ADVANCED,
    &RUNS_SKIPPED,
    &JOBS_QUARANTINED,
    &DISPATCH_STRAGGLERS,
    &DISPATCH_PASS_FAILURES,
    &SHARDS_HELD,
    &SHARDS_TAKEN,
    &CURSOR_AGE,
    &QUARANTINED_JOBS,
    &QUEUE_MESSAGES,
    &DEAD_LETTER_ROWS,
    &OLDEST_DEAD_LETTER_AGE,
    &MESSAGES_RECEIVED,
    &QUEUE_LATENCY,
    &START_LAG,
    &LIMITER_WAIT,
    &ATTEMPT_DURATION,
    &ATTEMPTS,
    &RETRIES,
    &REPEATS_CAUGHT,
    &TAKEOVERS,
    &FENCED_RECORDS,
    &STORE_FAILURES,
    &MESSAGES_PUT_BACK,
    &DEAD_LETTERS,
    &RUNS_ENDED,
    &SLOTS_TAKEN,
    &RUNS_IN_FLIGHT,
    &RUNS_STUCK,
    &RATE_SHARES_HELD,
    &CIRCUITS,
    &API_REQUESTS,
    &API_FAILURES,
    &API_REQUEST,
    &HEARTBEAT_LAG,
    &HEARTBEAT_TIMESTAMP,
    &CLOCK_OFFSET,
    &THROTTLES,
    &HOLDS_IN_FORCE,
    &LOG_LINES_LOST,
    &BUILD_INFO,
];
