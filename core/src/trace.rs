//! What ties together all that happens to a run, in the terms of W3C Trace Context: a scheduler's send, a worker's attempts
//! and the call of a gateway are spans of one trace, each the child of the one that led to it.
//!
//! A run starts a trace of its own, whose id follows from the run's: repeats, takeovers and a second scheduler's send are
//! found in it without anything being kept. Where a request made the run, as a run by hand or a replay, and names a trace,
//! the run goes on in that one. `tracestate` is not carried.

use crate::run::RunId;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::fmt;

/// The header, and the attribute of a message, that carries a context.
pub const TRACEPARENT: &str = "traceparent";

/// The one flag that has a meaning: somebody records the trace.
const SAMPLED: u8 = 1;
/// `00-` trace `-` span `-` flags.
const LENGTH: usize = 55;

/// A span, as those that it leads to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: u128,
    span_id: u64,
    is_sampled: bool,
}

/// What tells a span from the others of its parent: what is done, by whom, and which time.
#[derive(Clone, Copy, Debug)]
pub struct SpanKey<'a> {
    /// What is done.
    pub what: &'a str,
    /// The process that does it.
    pub by: &'a str,
    /// A number, such as that of an attempt.
    pub nth: u64,
}

/// Which part of the traces is recorded, from 0 to 1. Every process that is given the same part chooses the same traces.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio(f64);

impl Ratio {
    /// No trace.
    pub const NONE: Ratio = Ratio(0.0);
    /// Every trace.
    pub const ALL: Ratio = Ratio(1.0);

    /// A part; none if it is not from 0 to 1.
    pub fn new(part: f64) -> Option<Self> {
        (0.0..=1.0).contains(&part).then_some(Ratio(part))
    }

    /// Whether a trace is recorded, by the half of its id that is random in everybody's ids.
    fn keeps(self, trace_id: u128) -> bool {
        let drawn = (trace_id as u64 >> 1) as f64 / (1u64 << 63) as f64;
        drawn < self.0 || self == Self::ALL
    }
}

impl TraceContext {
    /// The first span of the trace that a run starts.
    pub fn of_run(run: &RunId, key: SpanKey<'_>, ratio: Ratio) -> Self {
        let digest = Sha256::new().chain_update("run-trace/v1\0").chain_update(run.to_string()).finalize();
        let (half, _) = digest.split_at(16);
        Self::first(u128::from_be_bytes(half.try_into().expect("it has 16 bytes")), key, ratio)
    }

    /// The first span of a trace; of 0, which is no id, it makes 1.
    pub fn first(trace_id: u128, key: SpanKey<'_>, ratio: Ratio) -> Self {
        let trace_id = trace_id.max(1);
        TraceContext { trace_id, span_id: 0, is_sampled: ratio.keeps(trace_id) }.child(key)
    }

    /// A span that this one leads to.
    pub fn child(self, key: SpanKey<'_>) -> Self {
        let digest = Sha256::new()
            .chain_update(self.trace_id.to_be_bytes())
            .chain_update(self.span_id.to_be_bytes())
            .chain_update(key.nth.to_be_bytes())
            .chain_update(key.what)
            .chain_update("\0")
            .chain_update(key.by)
            .finalize();
        let (id, _) = digest.split_at(8);
        let span_id = u64::from_be_bytes(id.try_into().expect("it has 8 bytes")).max(1);
        TraceContext { span_id, ..self }
    }

    /// The id of the trace.
    pub fn trace_id(self) -> u128 {
        self.trace_id
    }

    /// The id of the trace as it is written.
    pub fn id(self) -> impl fmt::Display {
        fmt::from_fn(move |f| write!(f, "{:032x}", self.trace_id))
    }

    /// The id of the span.
    pub fn span_id(self) -> u64 {
        self.span_id
    }

    /// Whether the trace is recorded.
    pub fn is_sampled(self) -> bool {
        self.is_sampled
    }

    /// Reads a `traceparent`, of this version or a newer one; none if it is none, as the recommendation has it: whoever is
    /// given nonsense starts a trace of its own.
    pub fn parse(text: &str) -> Option<Self> {
        let (known, more) = text.split_at_checked(LENGTH)?;
        let mut parts = known.split('-');
        let mut part = |digits| parts.next().filter(|part| part.len() == digits && part.bytes().all(is_digit));
        let (version, trace_id, span_id, flags) = (part(2)?, part(32)?, part(16)?, part(2)?);
        let is_known = match version {
            "00" => more.is_empty(),
            "ff" => false,
            _ => more.is_empty() || more.starts_with('-'),
        };
        let trace_id = u128::from_str_radix(trace_id, 16).ok().filter(|id| *id != 0)?;
        let span_id = u64::from_str_radix(span_id, 16).ok().filter(|id| *id != 0)?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        is_known.then_some(TraceContext { trace_id, span_id, is_sampled: flags & SAMPLED != 0 })
    }
}

fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

/// As a `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = if self.is_sampled { SAMPLED } else { 0 };
        write!(f, "00-{:032x}-{:016x}-{flags:02x}", self.trace_id, self.span_id)
    }
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads one of a message. What is none costs a trace, and no run.
pub(crate) fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<TraceContext>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(value.as_str().and_then(TraceContext::parse))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobKey;
    use crate::run::RunKey;
    use chrono::DateTime;

    const KEY: SpanKey<'_> = SpanKey { what: "enqueue", by: "s1", nth: 0 };

    fn run(s: i64) -> RunId {
        let at = DateTime::from_timestamp(1_791_171_000 + s, 0).unwrap();
        RunId { job_key: JobKey::new("bank", "c-1/bill").unwrap(), run_key: RunKey::scheduled(at) }
    }

    #[test]
    fn all_processes_find_a_run_in_the_same_trace_and_no_two_spans_share_an_id() {
        let first = TraceContext::of_run(&run(0), KEY, Ratio::ALL);
        let others = [
            TraceContext::of_run(&run(0), SpanKey { by: "s2", ..KEY }, Ratio::ALL),
            TraceContext::of_run(&run(0), SpanKey { nth: 1, ..KEY }, Ratio::ALL),
            TraceContext::of_run(&run(0), SpanKey { what: "process", ..KEY }, Ratio::ALL),
            first.child(KEY),
        ];
        for other in others {
            assert_eq!(other.trace_id(), first.trace_id());
            assert_ne!(other.span_id(), first.span_id());
        }
        assert_ne!(TraceContext::of_run(&run(1), KEY, Ratio::ALL).trace_id(), first.trace_id());
        assert_eq!(TraceContext::of_run(&run(0), KEY, Ratio::ALL), first);
    }

    #[test]
    fn the_ids_stay_as_they_are_so_that_versions_meet_in_one_trace() {
        let context = TraceContext::of_run(&run(0), KEY, Ratio::ALL);
        assert_eq!(context.to_string(), "00-1d0b7095bd8d300ab3fa39b370a98875-844a2a719630ace7-01");
    }

    #[test]
    fn what_is_written_reads_back_and_a_child_keeps_whether_it_is_recorded() {
        for ratio in [Ratio::ALL, Ratio::NONE] {
            let context = TraceContext::of_run(&run(0), KEY, ratio);
            assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
            assert_eq!(context.child(KEY).is_sampled(), ratio == Ratio::ALL);
        }
    }

    #[test]
    fn the_examples_of_the_recommendation_are_read_and_nonsense_is_not() {
        let given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(given).unwrap();
        assert_eq!((context.to_string().as_str(), context.is_sampled()), (given, true));
        // A newer version is read as far as it is known.
        for text in [
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-the-future-will-be-like",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff",
        ] {
            assert_eq!(TraceContext::parse(text), Some(context), "{text}");
        }
        for text in [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00_4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7_01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0é",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-é1",
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
    }

    #[test]
    fn about_the_part_that_was_asked_for_is_recorded_and_always_the_same() {
        let kept = |ratio: Ratio| {
            (0..10_000).filter(|s| TraceContext::of_run(&run(*s), KEY, ratio).is_sampled()).collect::<Vec<_>>()
        };
        let (few, half) = (kept(Ratio::new(0.1).unwrap()), kept(Ratio::new(0.5).unwrap()));
        assert!((900..1_100).contains(&few.len()), "{}", few.len());
        assert!(few.iter().all(|s| half.contains(s)), "who records more records those too");
        assert_eq!((kept(Ratio::NONE).len(), kept(Ratio::ALL).len()), (0, 10_000));
        assert!([-0.1, 1.1, f64::NAN].map(Ratio::new).iter().all(Option::is_none));
    }
}
