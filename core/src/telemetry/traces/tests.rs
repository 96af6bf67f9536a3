use super::*;

#[test]
fn spans_go_nowhere_unless_asked_for_and_a_wrong_setting_says_what_is_meant() {
    let all = TraceExport::Otlp { ratio: Ratio::ALL };
    for (choice, ratio, expected) in [
        (None, None, TraceExport::Off),
        (Some(""), Some("nonsense"), TraceExport::Off),
        (Some("off"), None, TraceExport::Off),
        (Some("otlp"), None, all),
        (Some("otlp"), Some(""), all),
        (Some("otlp"), Some("1.0"), all),
        (Some("otlp"), Some("0.25"), TraceExport::Otlp { ratio: Ratio::new(0.25).unwrap() }),
    ] {
        assert_eq!(TraceExport::choose(choice, ratio), Ok(expected), "{choice:?} {ratio:?}");
    }
    for ratio in ["2", "-0.1", "a tenth", "NaN"] {
        let problems = TraceExport::choose(Some("otlp"), Some(ratio)).unwrap_err();
        assert_eq!(
            problems,
            ["OTEL_TRACES_SAMPLER_ARG: a part of all traces is meant, from 0 to 1, such as `0.01`"],
            "{ratio}"
        );
    }
    let problems = TraceExport::choose(Some("jaeger"), None).unwrap_err();
    assert_eq!(problems, ["PUNCTUAL_TRACES: `jaeger` is none of `otlp` and `off`"]);
}

#[test]
fn what_is_not_recorded_costs_no_attributes() {
    let at = DateTime::UNIX_EPOCH;
    let context = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
    let span = Span { name: "send", kind: SpanKind::Producer, context, parent: None, time: (at, at), failure: None };
    assert!(!are_recorded());
    record(span, || panic!("nobody records it"));
}
