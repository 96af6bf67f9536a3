use super::*;

fn chosen(values: &[(&str, &str)]) -> Result<TraceExport, Vec<String>> {
    TraceExport::choose(|name| values.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned()))
}

#[test]
fn spans_go_nowhere_unless_asked_for() {
    let otlp = ("PUNCTUAL_TRACES", "otlp");
    let of = |ratio| Ok(TraceExport::Otlp { ratio });
    let (part, sampler) = (|part| ("OTEL_TRACES_SAMPLER_ARG", part), |sampler| ("OTEL_TRACES_SAMPLER", sampler));
    for (values, expected) in [
        (&[][..], Ok(TraceExport::Off)),
        (&[("PUNCTUAL_TRACES", ""), part("nonsense")], Ok(TraceExport::Off)),
        (&[("PUNCTUAL_TRACES", "off"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], Ok(TraceExport::Off)),
        (&[otlp, ("OTEL_SDK_DISABLED", "TRUE")], Ok(TraceExport::Off)),
        (&[otlp], of(Ratio::ALL)),
        (&[otlp, part("")], of(Ratio::ALL)),
        (&[otlp, part("0.25")], of(Ratio::new(0.25).unwrap())),
        (&[otlp, part("0.25"), sampler("parentbased_traceidratio")], of(Ratio::new(0.25).unwrap())),
        (&[otlp, part("endpoint=http://a"), sampler("parentbased_always_on")], of(Ratio::ALL)),
        (&[otlp, sampler("always_off")], of(Ratio::NONE)),
        (&[otlp, ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")], of(Ratio::ALL)),
        (&[otlp, ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://otlp.example.com/v1/traces")], of(Ratio::ALL)),
    ] {
        assert_eq!(chosen(values), expected, "{values:?}");
    }
}

#[test]
fn what_would_be_left_aside_without_a_word_is_a_problem_and_no_address_is_shown() {
    for (name, value, why) in [
        ("PUNCTUAL_TRACES", "jaeger", "`jaeger` is none of `otlp` and `off`"),
        ("OTEL_TRACES_SAMPLER_ARG", "2", "from 0 to 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "-0.1", "from 0 to 1"),
        ("OTEL_TRACES_SAMPLER_ARG", "NaN", "from 0 to 1"),
        ("OTEL_TRACES_SAMPLER", "jaeger_remote", "`parentbased_traceidratio`"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "or set it to `http/protobuf`"),
        ("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "gzip", "or set it to `none`"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem", "unset it"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "secret-host:4317", "such as `http://localhost:4318`"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://me:secret@otlp.example.com", "OTEL_EXPORTER_OTLP_HEADERS"),
    ] {
        let problems = chosen(&[(name, value), ("PUNCTUAL_TRACES", "otlp")]).unwrap_err();
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert!(problem.starts_with(name) && problem.contains(why) && !problem.contains("secret"), "{problem}");
    }
    let two = [("PUNCTUAL_TRACES", "otlp"), ("OTEL_TRACES_SAMPLER_ARG", "2"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")];
    assert_eq!(chosen(&two).unwrap_err().len(), 2);
}

#[test]
fn what_is_not_recorded_costs_no_attributes() {
    let at = DateTime::UNIX_EPOCH;
    let context = TraceContext::parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").unwrap();
    let span = Span { name: "send", kind: SpanKind::Producer, context, parent: None, time: (at, at), failure: None };
    assert!(!are_recorded());
    record(span, || panic!("nobody records it"));
}
