use super::*;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn samples() -> [Payload; 5] {
    let vars = || Vars::from([("amount".to_owned(), "12.50 from 7700".to_owned())]);
    [
        Payload::Sms { to: "+447700900123".into(), text: "Your bill is due".into(), vars: vars() },
        Payload::Email { to: "ana@example.com".into(), subject: "Bill".into(), text: "Your bill".into(), vars: vars() },
        Payload::Webhook {
            url: "https://hooks.example.com/bills?key=abc".into(),
            body: r#"{"bill": 1}"#.into(),
            vars: vars(),
            secret: Some(Secret::new(SECRET)),
        },
        Payload::Queue {
            url: "https://sqs.eu-west-1.amazonaws.com/123456789012/bills".into(),
            body: "bill".into(),
            vars: vars(),
        },
        Payload::Noop,
    ]
}

#[test]
fn a_payload_shows_nothing_of_itself() {
    for payload in samples() {
        assert_eq!(payload.check_finished(), Ok(()), "{payload:?}");
        let shown = format!("{payload:?} {payload:#?}");
        for hidden in ["7700", "ana", "Bill", "bill", "hooks.example", "whsec", "MfKQ", "sqs.eu"] {
            assert!(!shown.contains(hidden), "{shown}");
        }
    }
}

#[test]
fn each_payload_has_its_handler_and_target() {
    let targets: Vec<String> = samples().iter().map(|payload| payload.target().to_string()).collect();
    assert_eq!(targets, ["sms", "email", "webhook/hooks.example.com", "queue", "noop"]);
    for payload in samples() {
        assert_eq!(Payload::Unread(payload.handler()).handler(), payload.handler());
        assert!(payload.target().as_str().starts_with(payload.handler().as_str()));
    }
    assert!(Payload::Unread(Handler::Sms).is_unread() && Payload::Unread(Handler::Sms).check().is_err());
}

#[test]
fn a_host_has_one_target_however_it_is_written() {
    for url in ["https://hooks.example.com./bills", "https://HOOKS.example.com", "https://hooks.example.com.:444/"] {
        let payload = Payload::Webhook { url: url.into(), body: "1".into(), vars: Vars::new(), secret: None };
        assert_eq!(payload.target(), Target::webhook("hooks.example.com"), "{url}");
    }
}

#[test]
fn another_text_changes_nothing_else() {
    let [sms, email, ..] = samples();
    assert_eq!(sms.with_text("Thank you").text(), Some("Thank you"));
    assert_eq!(email.with_text("Your bill"), email);
    assert_eq!(Payload::Noop.with_text("x"), Payload::Noop);
}

#[test]
fn what_cannot_be_sent_is_refused_without_showing_it() {
    let [_, email, webhook, queue, _] = samples();
    let sms = |to: &str, text: &str| Payload::sms(to, text);
    let email = |to: &str, subject: &str| match email.clone() {
        Payload::Email { text, vars, .. } => Payload::Email { to: to.into(), subject: subject.into(), text, vars },
        other => other,
    };
    let at_host = |host: &str| match webhook.clone() {
        Payload::Webhook { body, vars, secret, .. } => {
            Payload::Webhook { url: format!("https://{host}/"), body, vars, secret }
        }
        other => other,
    };
    let signed = |secret: &str| match webhook.clone() {
        Payload::Webhook { url, body, vars, .. } => {
            Payload::Webhook { url, body, vars, secret: Some(Secret::new(secret)) }
        }
        other => other,
    };
    for (payload, says) in [
        (sms("447700900123", "x"), "E.164"),
        (sms("+4477009001234", "x"), "+44 has 7 to 10 digits"),
        (sms("+447700900123", " "), "the text is empty"),
        (sms("+447700900123", &"x".repeat(2_001)), "2000 are allowed"),
        (sms("+447700900123", &"x".repeat(1_531)), "11 SMS segments"),
        (sms("+447700900123", &"ж".repeat(671)), "11 SMS segments"),
        (email("ana", "Bill"), "one mailbox"),
        (email("ana@example.com\r\nBcc: eve@example.com", "Bill"), "one mailbox"),
        (email("Ana <ana@example.com>", "Bill"), "one mailbox"),
        (email("ana@example", "Bill"), "one mailbox"),
        (email("a..b@example.com", "Bill"), "one mailbox"),
        (email("ana@-a.example", "Bill"), "one mailbox"),
        (email("ana@example.com", "Bill\r\nBcc: eve@example.com"), "one line"),
        (email("ana@example.com", ""), "the subject is empty"),
        (email("ana@example.com", &"x".repeat(201)), "200 are allowed"),
        (email("ana@example.com", "Bill").with_text("eve\r.\r\nMAIL FROM:<eve@example.com>"), "a control character"),
        (email("ana@example.com", "Bill").with_text("eve\n\r.\n"), "a control character"),
        (email("ana@example.com", "Bill").with_text("a\0eve"), "a control character"),
        (at_host("eve!.example.com"), "the host of the address"),
        (at_host("eve(1),b~.example.com"), "the host of the address"),
        (at_host(&["eve"; 70].join(".")), "the host of the address"),
        (webhook.with_text("{\"bill\": +447700900123"), "is not JSON (line 1"),
        (signed("whsec_short"), "24 to 64 bytes"),
        (signed(&SECRET[6..]), "24 to 64 bytes"),
        (signed("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!"), "24 to 64 bytes"),
        (signed(&format!("{SECRET}===")), "24 to 64 bytes"),
        (queue.with_text("a\u{1}b"), "SQS does not take"),
    ] {
        let error = payload.check_finished().unwrap_err();
        assert!(error.contains(says), "{says}: {error}");
        for hidden in ["7700900", "eve", "MfKQ", "Bcc"] {
            assert!(!error.contains(hidden), "{error}");
        }
    }
    assert_eq!(sms("+447700900123", &"x".repeat(1_530)).check_finished(), Ok(()));
    assert_eq!(email("ana@example.com", "Bill").with_text("One\ttab\nTwo\r\n\r\nlines\n").check_finished(), Ok(()));
    assert_eq!(at_host("eve!.example.com").check(), Ok(()), "a stored job stays readable");
    let stored = sms("+4477009001234", "x");
    assert_eq!(stored.check(), Ok(()), "a stored job stays readable, whatever is learnt of its country");
}
