//! `punctual cost`, as a user runs it: without a server.

use serde_json::Value;
use std::process::{Command, Output};

/// Runs the program without any of this process's settings.
fn punctual(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_punctual"));
    command.env_clear().arg("cost").args(args).output().expect("the program runs")
}

fn said(args: &[&str]) -> Value {
    let output = punctual(&[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("one JSON object")
}

fn refusal(args: &[&str]) -> String {
    let output = punctual(args);
    assert_eq!(output.status.code(), Some(2), "{args:?}");
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn prices_come_from_a_file_where_one_is_given() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let known = said(&["--jobs", "1000"]);
    let mut prices = known["prices"].clone();
    prices["write_units_per_million"] = (prices["write_units_per_million"].as_f64().unwrap() * 2.0).into();
    prices["region"] = "eu-nowhere-1".into();
    std::fs::write(file.path(), prices.to_string()).unwrap();
    let path = file.path().to_str().unwrap();
    let dearer = said(&["--jobs", "1000", "--price-file", path]);
    let writes = |bill: &Value| bill["idle_steps"][4]["dollars"].as_f64().unwrap();
    assert_eq!(dearer["idle_steps"][4]["step"], "lease: renew");
    assert!((writes(&dearer) / writes(&known) - 2.0).abs() < 1e-9);
    let table = punctual(&["--jobs", "1000", "--price-file", path]);
    assert!(String::from_utf8_lossy(&table.stdout).contains("eu-nowhere-1"));

    std::fs::write(file.path(), "{}").unwrap();
    assert!(refusal(&["--jobs", "1000", "--price-file", path]).contains("as_of"));
}

#[test]
fn a_file_of_jobs_is_counted() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let rows = "customer,phone,kind,priority,schedule,template\nc-1,+447700900123,bill,normal,every 24h,Due\n";
    std::fs::write(file.path(), rows).unwrap();
    let bill = said(&["--file", file.path().to_str().unwrap()]);
    assert_eq!((&bill["jobs"], &bill["runs"]), (&1.0.into(), &30.0.into()));
    assert_eq!(bill["all_runs"]["write_units"], 150.0);
}

#[test]
fn what_cannot_be_is_refused() {
    for (args, expected) in [
        (&[][..], "--jobs"),
        (&["--jobs", "10", "--file", "jobs.csv"], "cannot be used with"),
        (&["--jobs", "10", "--every", "soon"], "--every"),
        (&["--jobs", "10", "--attempts", "0.5"], "--attempts is 1 to 100"),
        (&["--jobs", "10", "--dead", "2"], "--dead a share from 0 to 1"),
        (&["--file", "no/such/jobs.csv"], "no/such/jobs.csv cannot be opened"),
    ] {
        let error = refusal(args);
        assert!(error.contains(expected), "{args:?}: {error}");
    }
}
