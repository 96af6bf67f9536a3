//! Crontabs as systems, containers and people have them: what each line becomes, and that none is lost.
//!
//! Beside each `NN-name.crontab` stands `NN-name.expected`. Its lines are `option` and how the file is read, or the number of a
//! line and one thing that is true of it: `job` and the schedule (`hashed`: as written), `refused` and the whole reason, `note`,
//! `next` firings, `body`, `url`, or what its `id` begins with. A line of the crontab without a number there is ignored.

use chrono::{DateTime, SecondsFormat, Utc};
use punctual_core::job::JobSpec;
use punctual_core::payload::Payload;
use punctual_core::schedule::Timing;
use punctual_core::zone::{Zones, parse_name};
use punctual_scheduler::import::Line;
use punctual_scheduler::import::crontab::{CrontabLines, CrontabOptions};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/crontabs");

fn now() -> DateTime<Utc> {
    "2026-12-01T00:00:00Z".parse().expect("an instant")
}

fn crontabs() -> Vec<PathBuf> {
    let files = std::fs::read_dir(DIRECTORY).expect("the directory is there").map(|file| file.expect("a file").path());
    let mut crontabs: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|e| e == "crontab")).collect();
    crontabs.sort();
    crontabs
}

/// How a file is read, and what is said of its lines.
fn expected(crontab: &Path) -> (CrontabOptions, BTreeMap<u64, Vec<(String, String)>>) {
    let file = std::fs::read_to_string(crontab.with_extension("expected")).expect("what is expected is there");
    let (mut options, mut lines) = (CrontabOptions::default(), BTreeMap::<u64, Vec<(String, String)>>::new());
    for said in file.lines() {
        let (of, rest) = said.split_once(' ').expect("a number and what is true");
        let (what, text) = rest.split_once(' ').unwrap_or((rest, ""));
        match (of, what) {
            ("option", "user") => options.with_user = true,
            ("option", "tz") => options.tz = parse_name(text).expect("a zone"),
            ("option", "map") => options.rules.push(text.parse().expect("a rule")),
            _ => lines.entry(of.parse().expect("a number")).or_default().push((what.to_owned(), text.to_owned())),
        }
    }
    (options, lines)
}

fn check_job(spec: &JobSpec, what: &str, text: &str, zones: &Zones) {
    let Timing::Cron(cron) = &spec.schedule.timing else { panic!("{}", spec.schedule) };
    let zone = spec.schedule.tz.name();
    let found = match what {
        "job" => {
            assert_eq!(cron.written(), cron.resolved());
            format!("cron {cron} | {zone}")
        }
        "hashed" => format!("cron {} | {zone}", cron.written()),
        "id" => spec.key.id().chars().take(text.chars().count()).collect(),
        "next" => {
            let first = spec.schedule.first(now(), zones);
            let firings = std::iter::successors(first, |last| spec.schedule.next_firing(last, zones));
            let shown = firings.map(|firing| firing.at.to_rfc3339_opts(SecondsFormat::Secs, true));
            shown.take(text.split(' ').count()).collect::<Vec<_>>().join(" ")
        }
        "url" => match &spec.payload {
            Payload::Webhook { url, .. } | Payload::Queue { url, .. } => url.clone(),
            other => panic!("{other:?} has no address"),
        },
        "body" => {
            let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
            assert_eq!(json(spec.payload.text().expect("a body")), json(text));
            return;
        }
        _ => panic!("`{what}` is not known"),
    };
    assert_eq!(found, text);
}

fn check_line(line: &Line, expected: &[(String, String)], zones: &Zones) {
    let (notes, others): (Vec<_>, Vec<_>) = expected.iter().partition(|(what, _)| what == "note");
    assert_eq!(line.notes.iter().collect::<Vec<_>>(), notes.iter().map(|(_, text)| text).collect::<Vec<_>>());
    match &line.read {
        Err(problem) => assert_eq!(others, [&("refused".to_owned(), problem.to_string())]),
        Ok(spec) => {
            assert!(others.iter().any(|(what, _)| what == "job" || what == "hashed"), "{}", spec.schedule);
            others.iter().for_each(|(what, text)| check_job(spec, what, text, zones));
        }
    }
}

#[test]
fn each_line_of_twenty_crontabs_is_a_job_a_reason_or_nothing_by_right() {
    let zones = Zones::embedded();
    let crontabs = crontabs();
    assert_eq!(crontabs.len(), 20);
    let (mut taken, mut refused) = (0, 0);
    for crontab in crontabs {
        let name = crontab.display();
        println!("{name}");
        let bytes = std::fs::read(&crontab).expect("the crontab can be read");
        let (options, mut expected) = expected(&crontab);
        let mut lines = CrontabLines::new(&bytes[..], &options, now(), &zones);
        let mut found = 0;
        for line in &mut lines {
            println!("line {}", line.number);
            let expected = expected.remove(&line.number).unwrap_or_default();
            check_line(&line, &expected, &zones);
            found += 1;
            *(if line.read.is_ok() { &mut taken } else { &mut refused }) += 1;
        }
        assert!(expected.is_empty(), "{name}: {expected:?} were ignored");
        let ends = bytes.iter().filter(|byte| **byte == b'\n').count() + usize::from(!bytes.ends_with(b"\n"));
        assert_eq!((lines.lines(), found + lines.ignored().lines()), (ends as u64, ends as u64), "{name}");
    }
    println!("{taken} taken, {refused} refused");
    assert!(taken > 60 && refused > 25, "{taken} taken, {refused} refused");
}

#[test]
fn ids_are_the_same_at_each_reading_and_differ_within_a_file() {
    let zones = Zones::embedded();
    for crontab in crontabs() {
        let (bytes, (options, _)) = (std::fs::read(&crontab).expect("it can be read"), expected(&crontab));
        let ids = || -> Vec<String> {
            let lines = CrontabLines::new(&bytes[..], &options, now(), &zones);
            lines.filter_map(|line| Some(line.read.ok()?.key.id().to_owned())).collect()
        };
        let (first, mut distinct) = (ids(), ids());
        assert_eq!(first, distinct);
        distinct.sort();
        distinct.dedup();
        assert_eq!(first.len(), distinct.len(), "{}", crontab.display());
    }
}
