//! The calendar's vectors: expressions, rules and instants worked out elsewhere, `data/cron.json`.

use chrono::{DateTime, Utc};
use punctual_core::schedule::{DstGap, DstRepeat, ScheduleText};
use punctual_core::zone::Zones;
use serde::Deserialize;

const VECTORS: &str = include_str!("data/cron.json");

/// One vector; the last two fields are for its reader.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    cron: String,
    tz: String,
    gap_policy: Gap,
    overlap_policy: Overlap,
    after: DateTime<Utc>,
    expect: Vec<DateTime<Utc>>,
    class: String,
    note: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Gap {
    NextValid,
    Skip,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Overlap {
    First,
    Second,
    Both,
}

#[test]
fn every_vector_fires_as_expected() {
    let vectors: Vec<Vector> = serde_json::from_str(VECTORS).expect("the vectors are well formed");
    assert!(vectors.len() >= 41, "{} vectors", vectors.len());
    let zones = Zones::embedded();
    for vector in &vectors {
        let when = format!("cron {}", vector.cron);
        let text = ScheduleText {
            when: &when,
            tz: Some(&vector.tz),
            dst_gap: match vector.gap_policy {
                Gap::NextValid => DstGap::NextValid,
                Gap::Skip => DstGap::Skip,
            },
            dst_repeat: match vector.overlap_policy {
                Overlap::First => DstRepeat::First,
                Overlap::Second => DstRepeat::Second,
                Overlap::Both => DstRepeat::Both,
            },
            ..ScheduleText::default()
        };
        let (schedule, _) = text.read(vector.after, &zones).unwrap_or_else(|error| panic!("{vector:?}: {error}"));
        let (what, count) = (format!("{} ({}): {vector:?}", vector.note, vector.class), vector.expect.len());
        assert!(count > 0, "{what} expects nothing");

        let first = schedule.next_after(vector.after, &zones);
        let chain = std::iter::successors(first, |previous| schedule.next_firing(previous, &zones));
        assert_eq!(chain.take(count).map(|firing| firing.at).collect::<Vec<_>>(), vector.expect, "{what}");

        // By the instants alone it goes on in the same way.
        let next = |after: DateTime<Utc>| schedule.next_after(after, &zones).map(|firing| firing.at);
        let instants = std::iter::successors(next(vector.after), |previous| next(*previous));
        assert_eq!(instants.take(count).collect::<Vec<_>>(), vector.expect, "{what}");
    }
}
