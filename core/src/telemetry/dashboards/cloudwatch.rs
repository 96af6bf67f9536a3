//! CloudWatch's dashboard against the table.

use super::promql::{Token, tokens};
use super::{Place, misplaced, text};
use crate::telemetry::emf::NAMESPACE;
use crate::telemetry::table::{DimensionSet, Kind, Metric};
use serde_json::Value;

/// The one variable; Terraform's templates know two ways to write one.
const REGION: &str = "${region}";
const VARIABLES: [&str; 2] = ["${", "%{"];
const FUNCTIONS: [&str; 3] = ["FILL", "METRICS", "SUM"];
/// How often a process tells its gauges.
const TOLD_EVERY_S: u64 = 60;

/// What is wrong with a dashboard.
pub(super) fn problems(json: &str, table: &[&'static Metric]) -> Vec<String> {
    let dashboard: Value = match serde_json::from_str(json) {
        Ok(dashboard) => dashboard,
        Err(error) => return vec![error.to_string()],
    };
    let mut problems = Vec::new();
    if VARIABLES.iter().any(|mark| json.replace(REGION, "").contains(mark)) {
        problems.push(format!("a variable other than {REGION}"));
    }
    if dashboard["periodOverride"] != "inherit" {
        problems.push("periods that go by the time shown: a gauge's sum needs its own".to_owned());
    }
    let widgets = dashboard["widgets"].as_array().map_or(&[][..], Vec::as_slice);
    if widgets.is_empty() {
        problems.push("no widgets".to_owned());
    }
    let places = widgets.iter().map(|widget| (name(widget), place(widget)));
    problems.extend(misplaced(&places.collect::<Vec<_>>()));
    for widget in widgets {
        let found = match text(&widget["type"]) {
            "metric" => of_graph(&widget["properties"], table),
            "text" if !name(widget).is_empty() => Vec::new(),
            _ => vec!["neither a graph nor a text".to_owned()],
        };
        problems.extend(found.into_iter().map(|problem| format!("{}: {problem}", name(widget))));
    }
    problems
}

fn name(widget: &Value) -> &str {
    let properties = &widget["properties"];
    text(if widget["type"] == "text" { &properties["markdown"] } else { &properties["title"] })
}

fn place(widget: &Value) -> Option<Place> {
    let figure = |name: &str| widget[name].as_u64();
    Some(Place { x: figure("x")?, y: figure("y")?, width: figure("width")?, height: figure("height")? })
}

fn of_graph(graph: &Value, table: &[&'static Metric]) -> Vec<String> {
    let mut problems = Vec::new();
    for (name, value) in [("title", &graph["title"]), ("unit at its axis", &graph["yAxis"]["left"]["label"])] {
        if text(value).is_empty() {
            problems.push(format!("no {name}"));
        }
    }
    if graph["region"] != REGION {
        problems.push(format!("a region other than {REGION}"));
    }
    let rows: Vec<&[Value]> = graph["metrics"].as_array().into_iter().flatten().filter_map(as_row).collect();
    let ids: Vec<&str> = rows.iter().filter_map(|row| row.last()?["id"].as_str()).collect();
    if rows.is_empty() {
        problems.push("no metrics".to_owned());
    }
    for row in rows {
        let (words, options) = match row.split_last() {
            Some((options, words)) if options.is_object() => (words, options),
            _ => (row, &Value::Null),
        };
        let found = match options["expression"].as_str() {
            Some(expression) if words.is_empty() => of_expression(expression, &ids),
            Some(_) => Err("both a metric and an expression".to_owned()),
            None => of_metric(&words.iter().map(text).collect::<Vec<_>>(), text(&options["stat"]), graph, table),
        };
        problems.extend(found.err());
    }
    problems
}

fn as_row(row: &Value) -> Option<&[Value]> {
    row.as_array().map(Vec::as_slice)
}

/// Words that begin with a small letter are ids of the same graph, and texts are what ids are picked by.
fn of_expression(expression: &str, ids: &[&str]) -> Result<(), String> {
    for token in tokens(expression)? {
        let is_known = match token {
            Token::Word(word) if word.starts_with(|c: char| c.is_ascii_lowercase()) => ids.contains(&word),
            Token::Word(word) => FUNCTIONS.contains(&word) || word.parse::<f64>().is_ok(),
            Token::Text(part) => ids.iter().any(|id| id.contains(part)),
            Token::Sign(_) => true,
        };
        if !is_known {
            return Err(format!("{token:?} is unknown in `{expression}`"));
        }
    }
    Ok(())
}

fn of_metric(words: &[&str], statistic: &str, graph: &Value, table: &[&'static Metric]) -> Result<(), String> {
    let [namespace, name, dimensions @ ..] = words else { return Err(format!("{words:?} names no metric")) };
    let metric = table.iter().find(|metric| metric.name == *name).ok_or(format!("there is no metric {name}"))?;
    if *namespace != NAMESPACE {
        return Err(format!("{name} is not in the namespace {namespace}"));
    }
    if !fits(statistic, metric.kind, graph["period"].as_u64()) {
        return Err(format!("{statistic:?} is no statistic for {name}"));
    }
    let (pairs, odd) = dimensions.as_chunks::<2>();
    let pairs: Vec<(&str, &str)> = pairs.iter().map(|[name, value]| (*name, *value)).collect();
    match pairs.split_first() {
        Some((("service", service), labels)) if odd.is_empty() => {
            if !metric.by.iter().any(|by| by.as_str() == *service) {
                return Err(format!("{name} is not told by {service}"));
            }
            let set = if labels.is_empty() { DimensionSet::Service } else { DimensionSet::Labels };
            if !metric.in_emf.contains(&set) {
                return Err(format!("{name} is not kept under {pairs:?}"));
            }
            if labels.is_empty() { Ok(()) } else { metric.check(labels) }
        }
        _ => Err(format!("{name} is kept under its service first, not under {dimensions:?}")),
    }
}

/// What copies tell of a gauge adds up only over the time in which each tells it once.
fn fits(statistic: &str, kind: Kind, period_s: Option<u64>) -> bool {
    match kind {
        Kind::Counter => statistic == "Sum",
        Kind::Gauge if statistic == "Sum" => period_s == Some(TOLD_EVERY_S),
        Kind::Gauge => ["Maximum", "Minimum", "SampleCount"].contains(&statistic),
        Kind::Histogram(_) => statistic.strip_prefix('p').is_some_and(|part| part.parse::<u8>().is_ok_and(|p| p < 100)),
    }
}
