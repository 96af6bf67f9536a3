use super::*;
use crate::telemetry::table::{ALL, find};
use std::collections::BTreeSet;

const GRAFANA: &str = include_str!("../../../../infra/dashboards/grafana.json");
const CLOUDWATCH: &str = include_str!("../../../../infra/dashboards/cloudwatch.json");
const GUIDE: &str = include_str!("../../../../docs/operations.md");

#[test]
fn grafana_reads_what_the_table_has() {
    assert_eq!(grafana::problems(GRAFANA, ALL), [""; 0]);
}

#[test]
fn cloudwatch_reads_what_is_kept_there() {
    assert_eq!(cloudwatch::problems(CLOUDWATCH, ALL), [""; 0]);
}

#[test]
fn whatever_an_alarm_goes_by_can_be_seen() {
    let (_, sections) = GUIDE.split_once("\n## Alarms\n").unwrap();
    let words =
        sections.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| word.starts_with("punctual_"));
    let named = words.map(|word| word.strip_suffix("_bucket").unwrap_or(word));
    let needed: BTreeSet<&str> =
        named.chain(ALL.iter().filter(|metric| metric.alarm.is_some()).map(|metric| metric.name)).collect();
    assert!(needed.iter().all(|name| find(name).is_some()), "{needed:?}");
    let shown = grafana::metrics(GRAFANA, ALL);
    assert_eq!(needed.difference(&shown).collect::<Vec<_>>(), [&""; 0]);
}

const SMALL_GRAFANA: &str = r#"{
  "templating": { "list": [
    { "type": "datasource", "query": "prometheus" },
    { "type": "query", "query": { "query": "label_values(punctual_build_info, job)" } }
  ] },
  "panels": [
    { "id": 1, "type": "row", "title": "Is it late?", "gridPos": { "x": 0, "y": 0, "w": 24, "h": 1 } },
    { "id": 2, "type": "timeseries", "title": "Lag", "description": "How late. Alarms: dispatch-lag, backlog.",
      "datasource": { "uid": "${datasource}" }, "fieldConfig": { "defaults": { "unit": "s" } },
      "gridPos": { "x": 0, "y": 1, "w": 12, "h": 8 },
      "targets": [
        { "datasource": { "uid": "${datasource}" }, "legendFormat": "p99 {{priority}}", "expr":
          "histogram_quantile(0.99, sum by (le, priority) (rate(punctual_dispatch_lag_seconds_bucket{job=~\"$job\"}[5m])))" },
        { "datasource": { "uid": "${datasource}" }, "legendFormat": "{{state}}", "expr":
          "max by (state) (punctual_queue_messages{priority=~\"urgent|normal\",state!=\"visible\"})" }
      ] },
    { "id": 3, "type": "stat", "title": "Outcomes", "description": "How it ended. Alarm: failure-rate.",
      "datasource": { "uid": "${datasource}" }, "fieldConfig": { "defaults": { "unit": "percentunit" } },
      "gridPos": { "x": 12, "y": 1, "w": 12, "h": 8 },
      "targets": [
        { "datasource": { "uid": "${datasource}" }, "legendFormat": "all", "expr":
          "1 - sum(increase(punctual_attempts_total{outcome=\"delivered\"}[1h])) / sum(increase(punctual_attempts_total[1h]))" }
      ] }
  ]
}"#;

const SMALL_CLOUDWATCH: &str = r#"{
  "periodOverride": "inherit",
  "widgets": [
    { "type": "text", "x": 0, "y": 0, "width": 24, "height": 1, "properties": { "markdown": "Is it late?" } },
    { "type": "metric", "x": 0, "y": 1, "width": 12, "height": 6, "properties": {
      "title": "Lag", "region": "${region}", "period": 60, "yAxis": { "left": { "label": "seconds" } },
      "metrics": [
        ["Punctual", "punctual_start_lag_seconds", "service", "worker", "priority", "urgent", { "stat": "p99" }],
        ["Punctual", "punctual_shards_held", "service", "dispatch", { "stat": "Sum" }]
      ] } },
    { "type": "metric", "x": 12, "y": 1, "width": 12, "height": 6, "properties": {
      "title": "Outcomes", "region": "${region}", "period": 300, "yAxis": { "left": { "label": "attempts" } },
      "metrics": [
        ["Punctual", "punctual_attempts_total", "service", "worker", { "stat": "Sum", "id": "all" }],
        ["Punctual", "punctual_cursor_age_seconds", "service", "dispatch", { "stat": "Maximum", "id": "age" }],
        [{ "expression": "100 * SUM(FILL(METRICS(\"ag\"), 0)) / all", "id": "share" }]
      ] } }
  ]
}"#;

/// A part of a text that is sound, what stands there instead, and what is said of it.
type Fault = (&'static str, &'static str, &'static str);

const GRAFANA_FAULTS: &[Fault] = &[
    // Names.
    (
        "dispatch_lag_seconds_bucket",
        "dispatch_delay_seconds_bucket",
        "no series punctual_dispatch_delay_seconds_bucket",
    ),
    ("dispatch_lag_seconds_bucket", "dispatch_lag_seconds", "no series punctual_dispatch_lag_seconds"),
    ("punctual_queue_messages{", "punctual_queue_messages_bucket{", "no series punctual_queue_messages_bucket"),
    ("punctual_build_info, job", "punctual_builds, job", "no series punctual_builds"),
    ("punctual_build_info, job", "punctual_build_info, tenant", "no label tenant"),
    ("label_values(punctual_build_info, job)", "metrics(punctual_.*)", "unknown query"),
    // Labels and their values.
    ("by (le, priority)", "by (le, handler)", "punctual_dispatch_lag_seconds_bucket has no label handler"),
    ("by (state)", "by (state, le)", "punctual_queue_messages has no label le"),
    ("state!=", "status!=", "punctual_queue_messages has no label status"),
    ("state!=\\\"visible", "state!=\\\"ready", "state of punctual_queue_messages is never \"ready\""),
    ("urgent|normal", "urgent|high", "priority of punctual_queue_messages is never \"high\""),
    ("outcome=\\\"delivered", "outcome=\\\"delivered|lost", "is never \"delivered|lost\""),
    ("{{state}}", "{{priority}}", "the legend names priority"),
    // Kinds.
    (
        "max by (state) (punctual_queue_messages{priority=~\\\"urgent|normal\\\",state!=\\\"visible\\\"})",
        "sum by (state) (rate(punctual_queue_messages[5m]))",
        "punctual_queue_messages is a gauge",
    ),
    ("increase(punctual_attempts_total[1h])", "(punctual_attempts_total)", "punctual_attempts_total only rises"),
    (
        "increase(punctual_attempts_total[1h])",
        "increase(punctual_attempts_total)",
        "punctual_attempts_total only rises",
    ),
    (
        "increase(punctual_attempts_total[1h])",
        "rate(sum(punctual_attempts_total[1h]))",
        "punctual_attempts_total only rises",
    ),
    ("by (le, priority)", "by (priority)", "loses its label le"),
    ("histogram_quantile(0.99, ", "sum(", "histogram_quantile is for buckets"),
    ("dispatch_lag_seconds_bucket", "dispatch_lag_seconds_count", "histogram_quantile is for buckets"),
    // What is not read.
    ("max by (state)", "top by (state)", "unknown Word(\"top\")"),
    ("1 - sum(increase", "1 - sum((increase", "a parenthesis too few"),
    ("[1h]))\"", "[1h])))\"", "a parenthesis too many"),
    ("[1h]))\"", "[1h])) by (handler)\"", "`by` after its parentheses"),
    // Panels.
    ("\"id\": 3", "\"id\": 2", "ids"),
    ("\"x\": 12", "\"x\": 11", "Lag and Outcomes overlap"),
    ("\"y\": 1,", "\"y\": 0,", "overlap"),
    ("\"x\": 12", "\"x\": 13", "Outcomes is not on the grid"),
    ("\"title\": \"Lag\"", "\"title\": \"\"", "no title"),
    ("\"unit\": \"s\"", "\"units\": \"s\"", "no unit"),
    ("\"description\": \"How late. Alarms: dispatch-lag, backlog.\"", "\"description\": \"\"", "no description"),
    ("Alarms: dispatch-lag, backlog", "Alarm: backlog", "the alarm dispatch-lag is not told"),
    ("Alarm: failure-rate", "Alarms: failure-rate, failures", "there is no alarm failures"),
    (
        "\"uid\": \"${datasource}\" }, \"legendFormat\": \"all\"",
        "\"uid\": \"P1\" }, \"legendFormat\": \"all\"",
        "data source",
    ),
    ("\"targets\"", "\"queries\"", "no expression"),
];

const CLOUDWATCH_FAULTS: &[Fault] = &[
    ("[\"Punctual\", \"punctual_shards_held\"", "[\"punctual\", \"punctual_shards_held\"", "namespace"),
    ("punctual_shards_held", "punctual_shards", "no metric punctual_shards"),
    ("punctual_shards_held", "punctual_build_info", "is not kept under"),
    (
        "punctual_shards_held\", \"service\", \"dispatch\"",
        "punctual_shards_held\", \"service\", \"worker\"",
        "not told by worker",
    ),
    (
        "punctual_start_lag_seconds\", \"service\", \"worker\", \"priority\", \"urgent\"",
        "punctual_start_lag_seconds\", \"service\", \"worker\"",
        "punctual_start_lag_seconds is not kept under",
    ),
    ("\"priority\", \"urgent\"", "\"priority\", \"high\"", "priority of punctual_start_lag_seconds is one of"),
    ("\"priority\", \"urgent\"", "\"handler\", \"sms\"", "punctual_start_lag_seconds has the labels"),
    (
        "\"service\", \"dispatch\", { \"stat\": \"Sum\"",
        "\"shard\", \"0\", { \"stat\": \"Sum\"",
        "under its service first",
    ),
    ("\"priority\", \"urgent\"", "\"priority\"", "under its service first"),
    ("\"p99\"", "\"Average\"", "no statistic for punctual_start_lag_seconds"),
    (
        "{ \"stat\": \"Sum\", \"id\": \"all\"",
        "{ \"stat\": \"Maximum\", \"id\": \"all\"",
        "no statistic for punctual_attempts_total",
    ),
    ("\"Maximum\"", "\"Sum\"", "no statistic for punctual_cursor_age_seconds"),
    ("\"inherit\"", "\"auto\"", "periods"),
    (" / all", " / every", "unknown"),
    ("METRICS(\\\"ag", "METRICS(\\\"delivered", "unknown"),
    (
        "\"title\": \"Lag\", \"region\": \"${region}\"",
        "\"title\": \"Lag\", \"region\": \"eu-west-1\"",
        "a region other than",
    ),
    ("Is it late?", "%{ if late }", "a variable other than"),
    ("\"x\": 12", "\"x\": 11", "Lag and Outcomes overlap"),
    ("\"x\": 12", "\"x\": 13", "Outcomes is not on the grid"),
    ("\"title\": \"Lag\"", "\"name\": \"Lag\"", "no title"),
    ("{ \"label\": \"seconds\" }", "{}", "no unit"),
];

fn finds_each(sound: &str, faults: &[Fault], problems: impl Fn(&str) -> Vec<String>) {
    assert_eq!(problems(sound), [""; 0]);
    for (part, instead, expected) in faults {
        assert!(sound.contains(part), "{part}");
        let found = problems(&sound.replace(part, instead));
        assert!(found.iter().any(|problem| problem.contains(expected)), "{instead}: {found:?}");
    }
}

#[test]
fn faults_of_a_grafana_dashboard_are_found() {
    finds_each(SMALL_GRAFANA, GRAFANA_FAULTS, |json| grafana::problems(json, ALL));
}

#[test]
fn faults_of_a_cloudwatch_dashboard_are_found() {
    finds_each(SMALL_CLOUDWATCH, CLOUDWATCH_FAULTS, |json| cloudwatch::problems(json, ALL));
}

#[test]
fn a_metric_that_leaves_the_table_is_missed_on_both_dashboards() {
    let fewer: Vec<_> = ALL.iter().copied().filter(|metric| metric.name != "punctual_start_lag_seconds").collect();
    for found in [grafana::problems(GRAFANA, &fewer), cloudwatch::problems(CLOUDWATCH, &fewer)] {
        assert!(found.iter().any(|problem| problem.contains("punctual_start_lag_seconds")), "{found:?}");
    }
}
