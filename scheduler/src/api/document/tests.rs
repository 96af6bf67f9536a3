use super::*;

const NOW: i64 = 1_796_428_800;

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(NOW, 0).unwrap()
}

fn read_as(document: &Value, old: Option<&JobSpec>) -> Result<JobSpec, Vec<FieldProblem>> {
    let (zones, allowed) = (Zones::embedded(), AllowList::default());
    let reading = Reading { tenant: "bank", now: now(), zones: &zones, allowed: &allowed, old };
    read(document, "c-1/bill", &reading)
}

fn sms(fields: Value) -> Value {
    let document = json!({
        "schedule": {"cron": "0 9 * * 1-5", "tz": "Asia/Kolkata"},
        "payload": {"handler": "sms", "to": "+447700900123", "text": "Your bill is due"},
    });
    merged(document, &fields)
}

fn pointers(document: &Value) -> Vec<String> {
    read_as(document, None).unwrap_err().into_iter().map(|problem| problem.pointer).collect()
}

#[test]
fn what_was_written_is_read_as_the_same_job() {
    for fields in [
        json!({}),
        json!({"name": "Rechnung für Zoë 🎉", "priority": "bulk"}),
        json!({"schedule": {"cron": "H 9 L * *", "hash_key": "c-1", "dst_gap": "skip", "dst_repeat": "both", "max_runs": 12,
            "start_at": "2026-12-05T09:00", "end_at": "2027-12-05T09:00:00Z"}}),
        json!({"schedule": {"cron": null, "every": "24h"}}),
        json!({"schedule": {"cron": null, "every": "90m", "from": "2026-12-05T09:00"}}),
        json!({"schedule": {"cron": null, "at": "2026-12-05T09:00"}}),
        json!({"schedule": {"cron": null, "at": "2026-12-05T09:00:00+05:30"}}),
        json!({"spread": {"window_s": 1800}}),
        json!({"spread": {"window_s": 1800, "key": "c-10001"}}),
        json!({"retry": {"max_attempts": 3}}),
        json!({"retry": {"waits_s": [30, 120]}}),
        json!({"missed": {"many": "all", "start_within_s": 3600}}),
        json!({"missed": {"until_local": "20:00"}}),
        json!({"payload": {"text": "{{ vars.amount }} is due", "vars": {"amount": "12.50"}}}),
        json!({"payload": {"handler": "email", "to": "ana@example.com", "subject": "Bill"}}),
        json!({"payload": {"handler": "queue", "to": null, "text": null, "body": "c-1",
            "url": "https://sqs.eu-west-1.amazonaws.com/123456789012/bills"}}),
        json!({"payload": {"handler": "noop", "to": null, "text": null}}),
    ] {
        let spec = read_as(&sms(fields.clone()), None).unwrap_or_else(|problems| panic!("{fields}: {problems:?}"));
        let written = Value::Object(write(&spec));
        assert_eq!(read_as(&written, Some(&spec)), Ok(spec), "{written}");
    }
}

#[test]
fn a_secret_is_not_shown_and_can_be_kept() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let payload = json!({"handler": "webhook", "url": "https://hooks.example.com/x", "body": "{}", "secret": secret});
    let document = merged(sms(json!({"payload": null})), &json!({"payload": payload}));
    let spec = read_as(&document, None).unwrap();
    let written = Value::Object(write(&spec));
    assert_eq!(written["payload"]["secret"], KEPT_SECRET);
    assert!(!written.to_string().contains("MfKQ9"));
    assert_eq!(read_as(&written, Some(&spec)), Ok(spec));
    assert_eq!(pointers(&written), ["/payload/secret"], "a job that is not there has none to keep");
}

#[test]
fn each_wrong_field_is_named_and_nothing_of_a_payload_is_shown() {
    for (fields, expected) in [
        (json!({"colour": 1}), "/colour"),
        (json!({"state": "paused"}), "/state"),
        (json!({"name": 7}), "/name"),
        (json!({"name": "x".repeat(201)}), "/name"),
        (json!({"priority": "high"}), "/priority"),
        (json!({"schedule": null}), "/schedule"),
        (json!({"schedule": {"cron": null}}), "/schedule"),
        (json!({"schedule": {"every": "24h"}}), "/schedule"),
        (json!({"schedule": {"cron": "0 9 * * 8"}}), "/schedule/cron"),
        (json!({"schedule": {"cron": "0 9 31 2 *"}}), "/schedule/cron"),
        (json!({"schedule": {"tz": "Europe/Atlantis"}}), "/schedule/tz"),
        (json!({"schedule": {"dst_gap": "never"}}), "/schedule/dst_gap"),
        (json!({"schedule": {"max_runs": 0}}), "/schedule/max_runs"),
        (json!({"schedule": {"max_runs": "3"}}), "/schedule/max_runs"),
        (json!({"schedule": {"from": "2026-12-05T09:00"}}), "/schedule/from"),
        (json!({"schedule": {"cron": null, "every": "24h from 2026-12-05T09:00"}}), "/schedule/every"),
        (json!({"schedule": {"cron": null, "every": "5s"}}), "/schedule/every"),
        (json!({"schedule": {"cron": null, "at": "tomorrow"}}), "/schedule/at"),
        (json!({"spread": {}}), "/spread/window_s"),
        (json!({"spread": {"window_s": -5}}), "/spread/window_s"),
        (json!({"spread": {"window_s": 60, "key": ""}}), "/spread/key"),
        (json!({"spread": {"window_s": 604800}}), "/spread"),
        (json!({"spread": {"window_s": 60}, "priority": "urgent"}), "/spread"),
        (json!({"retry": {"max_attempts": 21}}), "/retry"),
        (json!({"retry": {"waits_s": [30], "base_s": 5}}), "/retry"),
        (json!({"retry": {"waits_s": ["30"]}}), "/retry/waits_s"),
        (json!({"missed": {"start_within_s": 5}}), "/missed"),
        (json!({"missed": {"until_local": "25:00"}}), "/missed/until_local"),
        (json!({"missed": {"until_local": "20:00", "start_within_s": 60}}), "/missed/until_local"),
        (json!({"payload": null}), "/payload"),
        (json!({"payload": {"handler": "fax"}}), "/payload/handler"),
        (json!({"payload": {"to": "0170 1234567"}}), "/payload"),
        (json!({"payload": {"text": "x".repeat(2_001)}}), "/payload"),
        (json!({"payload": {"subject": "x"}}), "/payload/subject"),
        (json!({"payload": {"text": null}}), "/payload/text"),
        (json!({"payload": {"vars": {"a": 1}}}), "/payload/vars"),
        (json!({"payload": {"text": "{{ vars.x }}"}}), "/payload"),
        (json!({"id": "another"}), "/id"),
    ] {
        let problems = read_as(&sms(fields.clone()), None).unwrap_err();
        assert_eq!(problems[0].pointer, expected, "{fields}: {problems:?}");
        assert_eq!(problems.len(), 1, "{fields}: {problems:?}");
        let shown = &problems[0].detail;
        assert!(!shown.contains("7700") && !shown.contains("0170") && !shown.contains("Your bill"), "{shown}");
    }
    assert_eq!(pointers(&json!([])), [""]);
    assert_eq!(pointers(&json!({})), ["/schedule", "/payload"], "all that is wrong is told at once");
}

#[test]
fn an_address_is_judged_where_it_changes() {
    let payload =
        |url: &str| json!({"payload": {"handler": "webhook", "to": null, "text": null, "url": url, "body": "{}"}});
    assert_eq!(pointers(&sms(payload("https://169.254.169.254/x"))), ["/payload/url"]);
    assert_eq!(pointers(&sms(payload("http://hooks.example.com/x"))), ["/payload/url"]);
}

#[test]
fn a_merge_patch_changes_what_it_names_and_null_takes_away() {
    let document = json!({"a": {"b": 1, "c": 2}, "d": 3});
    assert_eq!(
        merged(document.clone(), &json!({"a": {"b": null}, "e": [1]})),
        json!({"a": {"c": 2}, "d": 3, "e": [1]})
    );
    assert_eq!(merged(document, &json!(7)), json!(7));
    assert_eq!(merged(json!(7), &json!({"a": {"b": null}})), json!({"a": {}}));
}

#[test]
fn a_patch_takes_nothing_away_that_no_document_has() {
    let patch = json!({"spreed": null, "schedule": {"zone": null, "tz": null}, "retry": null, "payload": {"vars": {"any": null}}});
    let pointers: Vec<String> = unknown_in(&patch).into_iter().map(|problem| problem.pointer).collect();
    assert_eq!(pointers, ["/spreed", "/schedule/zone"]);
    assert_eq!(unknown_in(&json!({"name": null, "missed": {"until_local": null}})), []);
}
