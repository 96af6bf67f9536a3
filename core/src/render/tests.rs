use super::*;
use crate::job::JobKey;
use crate::message::MESSAGE_VERSION;
use crate::missed::MissedRule;
use crate::priority::Priority;
use crate::retry::RetryRule;
use crate::run::RunKey;
use crate::schedule::{Anchor, ScheduleText};

fn spec(payload: Payload) -> JobSpec {
    let now = DateTime::from_timestamp(1_790_000_000, 0).unwrap();
    let text = ScheduleText { when: "cron 0 9 * * *", tz: Some("Asia/Kolkata"), ..ScheduleText::default() };
    JobSpec {
        key: JobKey::new("bank", "c-1/bill").unwrap(),
        name: Some("Bill \"1\"".into()),
        schedule: text.read(now, &Zones::embedded()).unwrap().0,
        anchor: Anchor::Stated,
        priority: Priority::Normal,
        payload,
        retry: RetryRule::default(),
        spread: None,
        missed: MissedRule::default(),
    }
}

fn message() -> Message {
    let at = DateTime::from_timestamp(1_796_441_400, 0).unwrap();
    Message {
        v: MESSAGE_VERSION,
        job_key: JobKey::new("bank", "c-1/bill").unwrap(),
        run_key: RunKey::scheduled(at),
        generation: 1,
        scheduled_at: at,
        due_at: at,
        first_enqueued_at: at,
        scheduler: "test".into(),
        trace: None,
    }
}

fn rendered(payload: Payload) -> Result<Payload, String> {
    let spec = spec(payload);
    let rendered = render(&spec, &message(), 1, &Zones::embedded());
    assert_eq!(check(&spec).is_ok(), rendered.is_ok(), "{:?}", check(&spec));
    rendered
}

fn webhook(body: &str) -> Payload {
    let vars = [("name".to_owned(), "Ana \"Q\"".to_owned())].into();
    Payload::Webhook { url: "https://hooks.example.com/".into(), body: body.into(), vars, secret: None }
}

#[test]
fn a_text_says_the_time_on_the_clock_of_its_job() {
    let sent =
        rendered(Payload::sms("+447700900123", "Due on {{ local.weekday }}, {{ local.date }} at {{ local.time }}"));
    assert_eq!(sent.unwrap().text(), Some("Due on Saturday, 2026-12-05 at 09:00"));
    let sent = rendered(Payload::sms("+447700900123", "{{ run.id }} {{ run.due_at }} {{ run.attempt }}"));
    assert_eq!(sent.unwrap().text(), Some("bank/c-1/bill:1796441400 2026-12-05T03:30:00Z 1"));
}

#[test]
fn a_body_is_json_whatever_its_variables_hold() {
    let sent = rendered(webhook(r#"{"to": {{ vars.name | tojson }}, "job": {{ job.name | tojson }}}"#)).unwrap();
    assert_eq!(sent.text(), Some(r#"{"to": "Ana \"Q\"", "job": "Bill \"1\""}"#));
    let error = rendered(webhook(r#"{"to": "{{ vars.name }}"}"#)).unwrap_err();
    assert!(error.contains("| tojson") && !error.contains("Ana"), "{error}");
}

#[test]
fn a_finished_text_must_be_fit_to_send() {
    let long = format!("{}{{{{ job.id }}}}", "x".repeat(1_530));
    assert!(rendered(Payload::sms("+447700900123", long)).unwrap_err().contains("11 SMS segments"));
    let vars = [("name".to_owned(), "a\r\nBcc: eve@example.com".to_owned())].into();
    let injected = Payload::Email {
        to: "ana@example.com".into(),
        subject: "Hello {{ vars.name }}".into(),
        text: "x".into(),
        vars,
    };
    assert!(rendered(injected).unwrap_err().contains("one line"));
    assert!(rendered(Payload::sms("+447700900123", "{% if vars.x %}a{% endif %}")).is_err());
    assert!(rendered(Payload::sms("+447700900123", "{{ vars.x | default(' ') }}")).unwrap_err().contains("is empty"));
    assert!(rendered(Payload::sms("+4477", "x")).is_err());
    assert_eq!(rendered(Payload::Noop), Ok(Payload::Noop));
}

#[test]
fn a_text_that_fits_some_runs_only_is_refused() {
    for variable in ["{{ local.weekday }}", "{{ run.id }}", "{{ run.attempt }}"] {
        let with = |text: String| spec(Payload::sms("+447700900123", text));
        let of = |values: Values<'_>| template::render(variable, &values, LONGEST_TEXT_BYTES).unwrap().len();
        let job = with(variable.into());
        let (example, longest) = (of(sample(&job)), of(longest(&job)));
        assert!(example < longest, "{variable}");
        let filled = |length: usize| with(format!("{}{variable}", "x".repeat(1_530 - length)));
        assert!(super::example(&filled(example)).is_some(), "{variable}");
        let error = check(&filled(example)).unwrap_err();
        assert!(error.contains("longest values") && error.contains("11 SMS segments"), "{variable}: {error}");
        assert_eq!(check(&filled(longest)), Ok(()), "{variable}");
    }
    let longest = longest(&spec(Payload::Noop)).local.format("%A").to_string();
    assert_eq!(longest, "Wednesday");
}

#[test]
fn a_call_carries_no_variables_beside_its_texts() {
    assert_eq!(rendered(webhook("[{{ vars.name | tojson }}]")).unwrap().vars(), Some(&Vars::new()));
}
