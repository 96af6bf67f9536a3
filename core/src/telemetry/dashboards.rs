//! Holds the dashboards in `infra/dashboards` against the table: a panel that reads what nobody tells stays empty, and looks
//! like calm.

mod cloudwatch;
mod grafana;
mod promql;
mod tests;

use serde_json::Value;

/// Columns of both dashboards' grids.
const COLUMNS: u64 = 24;

/// What a panel covers.
#[derive(Clone, Copy, Debug)]
struct Place {
    x: u64,
    y: u64,
    width: u64,
    height: u64,
}

impl Place {
    fn is_on_grid(self) -> bool {
        self.width > 0 && self.height > 0 && self.x + self.width <= COLUMNS
    }

    fn overlaps(self, other: Place) -> bool {
        let is_beside = self.x + self.width <= other.x || other.x + other.width <= self.x;
        let is_above = self.y + self.height <= other.y || other.y + other.height <= self.y;
        !is_beside && !is_above
    }
}

/// What stands beyond the grid or on something else.
fn misplaced(panels: &[(&str, Option<Place>)]) -> Vec<String> {
    let mut problems = Vec::new();
    for (n, (title, place)) in panels.iter().enumerate() {
        let Some(place) = place.filter(|place| place.is_on_grid()) else {
            problems.push(format!("{title} is not on the grid"));
            continue;
        };
        let covered = panels[n + 1..].iter().filter(|(_, other)| other.is_some_and(|other| place.overlaps(other)));
        problems.extend(covered.map(|(other, _)| format!("{title} and {other} overlap")));
    }
    problems
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
