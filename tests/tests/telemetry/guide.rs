//! The operations' guide and the table say the same.

use punctual_core::telemetry::table::{self, Kind};

/// What stands between two marks of the guide is what the table says.
#[test]
fn the_guide_shows_the_table_and_a_section_for_each_alarm() {
    let guide = include_str!("../../../docs/operations.md");
    for (mark, expected) in [("metrics", table::markdown()), ("bounds", table::markdown_of_bounds())] {
        let begin = format!("<!-- {mark}: begin -->\n");
        let shown = guide.split_once(&begin).and_then(|(_, rest)| rest.split_once(&format!("<!-- {mark}: end -->")));
        let shown = shown.map_or("nothing", |(shown, _)| shown);
        assert_eq!(
            shown.trim(),
            expected.trim(),
            "put this between the marks `{mark}` of docs/operations.md:\n{expected}"
        );
    }
    for metric in table::ALL {
        if let Some(alarm) = metric.alarm {
            assert!(guide.contains(&format!("\n### {alarm}\n")), "{} names the alarm {alarm}", metric.name);
        }
        let is_used = guide.matches(metric.name).count() > 1 || metric.alarm.is_none();
        assert!(is_used, "no alarm's section names {}, which says that one goes by it", metric.name);
        if let Kind::Histogram(bounds) = metric.kind {
            assert!(bounds.is_sorted());
        }
    }
    let alarms = guide.lines().filter_map(|line| line.strip_prefix("### "));
    for alarm in alarms {
        assert!(table::ALL.iter().any(|metric| metric.alarm == Some(alarm)), "no metric is for the alarm {alarm}");
    }
}
