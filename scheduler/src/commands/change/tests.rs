use super::*;
use crate::cli::{Cli, Command, JobsCommand};
use clap::Parser;
use punctual_core::deadline::StartRule;
use punctual_core::job::JobKey;
use punctual_core::missed::{Many, MissedRule};
use punctual_core::payload::Payload;
use punctual_core::priority::Priority;
use punctual_core::retry::RetryRule;
use punctual_core::schedule::{Anchor, Schedule, ScheduleText};
use punctual_core::spread::Spread;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_790_000_000, 0).unwrap()
}

fn old() -> JobSpec {
    let text = ScheduleText {
        when: "cron H 9 * * *",
        tz: Some("Asia/Kolkata"),
        end_at: Some("2027-01-01T00:00:00Z"),
        max_runs: Some(12),
        key: Some("c-1"),
        ..ScheduleText::default()
    };
    JobSpec {
        key: JobKey::new("bank", "c-1/bill").unwrap(),
        name: Some("Bill".into()),
        schedule: text.read(now(), &Zones::embedded()).unwrap().0,
        anchor: Anchor::Stated,
        priority: Priority::Bulk,
        payload: Payload::sms("+447700900123", "Your bill is due"),
        retry: RetryRule::default(),
        spread: Some(Spread { key: "c-1".into(), window_s: 1_800 }),
        missed: MissedRule { many: Many::All, start: StartRule::WithinS(5_400) },
    }
}

fn patch(words: &[&str]) -> Result<JobSpec, String> {
    let words = ["punctual", "jobs", "edit", "c-1/bill"].iter().chain(words);
    let Command::Jobs(JobsCommand::Edit(args)) = Cli::parse_from(words).command else { panic!() };
    patched(&old(), &args, now(), &Zones::embedded()).map_err(|error| error.to_string())
}

#[test]
fn an_edit_without_options_changes_nothing() {
    assert_eq!(patch(&[]), Ok(old()));
}

#[test]
fn an_edit_changes_what_is_given_and_nothing_else() {
    let changed = |how: fn(&mut JobSpec)| {
        let mut spec = old();
        how(&mut spec);
        Ok(spec)
    };
    assert_eq!(patch(&["--text", "Thank you"]), changed(|spec| spec.payload = spec.payload.with_text("Thank you")));
    assert_eq!(patch(&["--name", "none"]), changed(|spec| spec.name = None));
    assert_eq!(patch(&["--tz", "Europe/Paris"]), changed(|spec| spec.schedule.tz = "Europe/Paris".parse().unwrap()));
    assert_eq!(patch(&["--max-runs", "none"]), changed(|spec| spec.schedule.max_runs = None));
    assert_eq!(patch(&["--spread", "none"]), changed(|spec| spec.spread = None));
    assert_eq!(
        patch(&["--spread", "10m"]),
        changed(|spec| spec.spread = Some(Spread { key: "c-1".into(), window_s: 600 }))
    );
    assert_eq!(patch(&["--start-within", "none"]), changed(|spec| spec.missed.start = StartRule::Always));
    let until_eight =
        changed(|spec| spec.missed.start = StartRule::UntilLocal(chrono::NaiveTime::from_hms_opt(20, 0, 0).unwrap()));
    assert_eq!(patch(&["--until-local", "20:00"]), until_eight);
    let rescheduled = patch(&["--schedule", "cron 0 10 * * *", "--priority", "normal"]).unwrap();
    let text = ScheduleText { when: "cron 0 10 * * *", ..ScheduleText::default() };
    let (ten, _) = text.read(now(), &Zones::embedded()).unwrap();
    assert_eq!(rescheduled.schedule, Schedule { timing: ten.timing, ..old().schedule });
    assert_eq!((rescheduled.priority, rescheduled.spread), (Priority::Normal, old().spread));
}

#[test]
fn what_cannot_be_taken_names_its_option() {
    assert!(patch(&["--schedule", "cron 0 25 * * *"]).unwrap_err().starts_with("--schedule: "));
    assert!(patch(&["--start-within", "2h", "--until-local", "20:00"]).unwrap_err().starts_with("--until-local: "));
    let nothing = patch(&["--spread", "none", "--spread-key", "c-2"]).unwrap_err();
    assert!(nothing.starts_with("--spread-key: there is nothing"), "{nothing}");
    assert!(patch(&["--priority", "high"]).is_err());
}

/// What an edit asks of the API for a job as it shows it.
fn asked_for(shown: &JobSpec, words: &[&str]) -> Result<Value, String> {
    let words = ["punctual", "jobs", "edit", "c-1/bill"].iter().chain(words);
    let Command::Jobs(JobsCommand::Edit(args)) = Cli::parse_from(words).command else { panic!() };
    let mut shown = Value::Object(document::write(shown));
    // More is shown than a document says.
    shown["tenant"] = json!("bank");
    shown["version"] = json!(3);
    super::patch(&shown, &args, now(), &Zones::embedded()).map_err(|error| error.to_string())
}

fn signed() -> JobSpec {
    let secret = Some(punctual_core::payload::Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"));
    let (url, body) = ("https://hooks.example.com/bills".into(), "{}".into());
    JobSpec { payload: Payload::Webhook { url, body, vars: [("a".into(), "1".into())].into(), secret }, ..old() }
}

#[test]
fn an_edit_asks_for_what_differs_and_for_nothing_else() {
    for (words, expected) in [
        (&[][..], json!({})),
        (&["--priority", "normal"], json!({"priority": "normal"})),
        (&["--name", "none", "--spread", "none"], json!({"name": null, "spread": null})),
        (&["--text", "Pay"], json!({"payload": {"text": "Pay"}})),
        (&["--end-at", "none", "--tz", "UTC"], json!({"schedule": {"end_at": null, "tz": null}})),
        (&["--retry-waits", "5s,30s"], {
            let gone = json!({"max_attempts": null, "base_s": null, "cap_s": null});
            let mut retry = gone;
            retry["waits_s"] = json!([5, 30]);
            json!({"retry": retry})
        }),
        (&["--schedule", "every 24h"], json!({"schedule": {"cron": null, "every": "86400s"}})),
        (&["--schedule", "cron H 8 * * *"], json!({"schedule": {"cron": "H 8 * * *", "hash_key": "c-1"}})),
    ] {
        assert_eq!(asked_for(&old(), words), Ok(expected), "{words:?}");
    }
}

#[test]
fn a_secret_stays_unless_it_is_spoken_of_or_the_work_is_another() {
    assert_eq!(asked_for(&signed(), &["--body", "[]"]), Ok(json!({"payload": {"body": "[]"}})));
    assert_eq!(asked_for(&signed(), &["--secret-file", "none"]), Ok(json!({"payload": {"secret": null}})));
    let other = asked_for(&signed(), &["--noop"]).unwrap();
    let gone = json!({"handler": "noop", "url": null, "body": null, "secret": null, "vars": null});
    assert_eq!(other, json!({"payload": gone}));
}

#[test]
fn what_an_edit_asks_for_makes_what_the_options_say() {
    for words in
        [&["--schedule", "at 2027-03-01T09:00"][..], &["--var", "a", "--var", "b=2"], &["--until-local", "20:00"]]
    {
        let patch = asked_for(&signed(), words).unwrap();
        let merged = document::merged(Value::Object(document::write(&signed())), &patch);
        let reading = document::Reading {
            tenant: "bank",
            now: now(),
            zones: &Zones::embedded(),
            allowed: &Default::default(),
            old: Some(&signed()),
        };
        let read = document::read(&merged, "c-1/bill", &reading).unwrap();
        let args = ["punctual", "jobs", "edit", "c-1/bill"].iter().chain(words);
        let Command::Jobs(JobsCommand::Edit(args)) = Cli::parse_from(args).command else { panic!() };
        assert_eq!(read, patched(&signed(), &args, now(), &Zones::embedded()).unwrap(), "{words:?}");
    }
}
