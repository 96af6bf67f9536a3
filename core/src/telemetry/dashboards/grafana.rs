//! Grafana's dashboard against the table.

use super::promql::{self, read};
use super::{Place, misplaced, text};
use crate::telemetry::table::Metric;
use serde_json::Value;
use std::collections::BTreeSet;

/// The variable that names the data source: an import chooses it.
const DATASOURCE: &str = "${datasource}";

/// What is wrong with a dashboard.
pub(super) fn problems(json: &str, table: &[&'static Metric]) -> Vec<String> {
    let dashboard: Value = match serde_json::from_str(json) {
        Ok(dashboard) => dashboard,
        Err(error) => return vec![error.to_string()],
    };
    let mut problems: Vec<String> = variables(&dashboard).flat_map(|query| of_variable(query, table)).collect();
    let panels = list(&dashboard, "panels");
    let ids: BTreeSet<Option<u64>> = panels.iter().map(|panel| panel["id"].as_u64()).collect();
    if panels.is_empty() || ids.len() != panels.len() || ids.contains(&None) {
        problems.push("panels have no ids of their own".to_owned());
    }
    let places = panels.iter().map(|panel| (text(&panel["title"]), place(&panel["gridPos"])));
    problems.extend(misplaced(&places.collect::<Vec<_>>()));
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        problems.extend(of_panel(panel, table).into_iter().map(|problem| format!("{}: {problem}", panel["title"])));
    }
    problems
}

/// The names of the metrics that panels read.
pub(super) fn metrics(json: &str, table: &[&'static Metric]) -> BTreeSet<&'static str> {
    let dashboard: Value = serde_json::from_str(json).expect("a dashboard that was found to be sound");
    list(&dashboard, "panels").iter().flat_map(|panel| read_by(panel, table)).map(|metric| metric.name).collect()
}

fn list<'a>(of: &'a Value, name: &str) -> &'a [Value] {
    of[name].as_array().map_or(&[], Vec::as_slice)
}

fn place(grid: &Value) -> Option<Place> {
    let figure = |name: &str| grid[name].as_u64();
    Some(Place { x: figure("x")?, y: figure("y")?, width: figure("w")?, height: figure("h")? })
}

fn variables(dashboard: &Value) -> impl Iterator<Item = &str> {
    let of_series = |variable: &&Value| variable["type"] == "query";
    list(&dashboard["templating"], "list").iter().filter(of_series).map(|variable| text(&variable["query"]["query"]))
}

/// `label_values(series, label)` has to name a label that the series has.
fn of_variable(query: &str, table: &[&'static Metric]) -> Vec<String> {
    let inner = query.strip_prefix("label_values(").and_then(|inner| inner.strip_suffix(')'));
    match inner.and_then(|inner| inner.rsplit_once(", ")) {
        Some((series, label)) => promql::problems(&format!("max by ({label}) ({series})"), table),
        None => vec![format!("unknown query of a variable: {query}")],
    }
}

fn of_panel(panel: &Value, table: &[&'static Metric]) -> Vec<String> {
    let mut problems = Vec::new();
    let unit = &panel["fieldConfig"]["defaults"]["unit"];
    for (name, value) in [("title", &panel["title"]), ("description", &panel["description"]), ("unit", unit)] {
        if text(value).is_empty() {
            problems.push(format!("no {name}"));
        }
    }
    let targets = list(panel, "targets");
    if targets.is_empty() {
        problems.push("no expression".to_owned());
    }
    for target in targets {
        problems.extend(promql::problems(text(&target["expr"]), table));
        problems.extend(of_legend(target));
    }
    if targets.iter().chain([panel]).any(|part| part["datasource"]["uid"] != DATASOURCE) {
        problems.push(format!("a data source other than {DATASOURCE}"));
    }
    problems.extend(of_alarms(panel, table));
    problems
}

/// A legend may name what the expression keeps.
fn of_legend(target: &Value) -> Vec<String> {
    let Ok(query) = read(text(&target["expr"])) else { return Vec::new() };
    let named = text(&target["legendFormat"]).split("{{").skip(1).filter_map(|part| part.split("}}").next());
    named.filter(|label| !query.keeps(label)).map(|label| format!("the legend names {label}, which is lost")).collect()
}

/// The description ends with the alarms that go by the panel's metrics: sections of the operations' guide.
fn of_alarms(panel: &Value, table: &[&'static Metric]) -> Vec<String> {
    let description = text(&panel["description"]);
    let marks = [" Alarm: ", " Alarms: "];
    let end = marks.iter().find_map(|mark| description.split_once(mark)).map_or("", |(_, end)| end);
    let told: BTreeSet<&str> = end.trim_end_matches('.').split(", ").filter(|alarm| !alarm.is_empty()).collect();
    let known: BTreeSet<&str> = table.iter().filter_map(|metric| metric.alarm).collect();
    let due: BTreeSet<&str> = read_by(panel, table).filter_map(|metric| metric.alarm).collect();
    let unknown = told.difference(&known).map(|alarm| format!("there is no alarm {alarm}"));
    unknown.chain(due.difference(&told).map(|alarm| format!("the alarm {alarm} is not told"))).collect()
}

fn read_by(panel: &Value, table: &[&'static Metric]) -> impl Iterator<Item = &'static Metric> {
    let queries = list(panel, "targets").iter().filter_map(|target| read(text(&target["expr"])).ok());
    queries.flat_map(|query| query.selectors).filter_map(|selector| Some(selector.metric(table)?.0))
}
