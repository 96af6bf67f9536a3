use super::*;
use chrono::DateTime;
use punctual_core::clock::TokioClock;
use punctual_core::job::JobKey;
use punctual_core::payload::Payload;
use punctual_core::retry::OutcomeClass::{self, Delivered, Permanent, Temporary, Unknown};
use punctual_core::run::RunKey;
use std::net::SocketAddr;
use std::sync::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

const TIME: Duration = Duration::from_secs(10);
const TO: &str = "ana@example.com";

fn clock() -> Arc<dyn Clock> {
    Arc::new(TokioClock::new(DateTime::from_timestamp(1_796_441_400, 0).unwrap()))
}

fn run() -> RunId {
    let job_key = JobKey::new("bank", "c-1/bill").unwrap();
    RunId { job_key, run_key: RunKey::scheduled(DateTime::from_timestamp(1_796_441_400, 0).unwrap()) }
}

fn call(time: Duration) -> Call {
    Call { reference: run(), attempt: 1, payload: Payload::Noop, trace: None, time }
}

/// What a server says where it does not say yes: at a command (`HELLO`, `MAIL`, `RCPT`, `DATA`, `TEXT`, `QUIT`), this;
/// nothing = it hangs up.
type Script = Option<(&'static str, &'static str)>;

/// It says nothing more, and stays.
const SILENCE: &str = "silence";

/// A mail server for one message after the other; keeps what it was told.
async fn server(script: Script) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, told) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let kept = told.clone();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that has gone breaks the conversation off.
            let _ = talk(stream, script, &kept).await;
        }
    });
    (address, told)
}

async fn talk(stream: TcpStream, script: Script, told: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let answer = |at: &str, yes: &str| match script {
        Some((command, said)) if command == at => said.to_owned(),
        _ => yes.to_owned(),
    };
    let (mut line, mut in_text) = (String::new(), false);
    let hello = answer("HELLO", "220 mail.example.com ESMTP");
    if hello == SILENCE {
        std::future::pending::<()>().await;
    }
    stream.write_all(format!("{hello}\r\n").as_bytes()).await?;
    loop {
        line.clear();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        told.lock().unwrap().push(line.trim_end().to_owned());
        let said = match line.split_whitespace().next().unwrap_or_default() {
            "." if in_text => {
                in_text = false;
                answer("TEXT", "250 queued for ana@example.com")
            }
            _ if in_text => continue,
            "EHLO" => answer("EHLO", "250 mail.example.com"),
            "MAIL" => answer("MAIL", "250 ok"),
            "RCPT" => answer("RCPT", "250 ok"),
            "DATA" => {
                let said = answer("DATA", "354 go on");
                in_text = said.starts_with('3');
                said
            }
            "QUIT" => answer("QUIT", "221 bye"),
            _ => "500 what".to_owned(),
        };
        if said.is_empty() {
            return Ok(());
        }
        if said == SILENCE {
            std::future::pending::<()>().await;
        }
        stream.write_all(format!("{said}\r\n").as_bytes()).await?;
    }
}

fn mail(address: SocketAddr) -> Mail {
    Mail::new(&format!("smtp://{address}"), "bills@bank.example", TIME, clock()).unwrap()
}

#[tokio::test]
async fn an_email_goes_out_with_the_same_id_at_each_attempt() {
    let (address, told) = server(None).await;
    for _ in 0..2 {
        let outcome = mail(address).send(&call(TIME), TO, "Your bill", "12.50 is due\n.\nThank you").await;
        assert_eq!(outcome, Outcome::Delivered { gateway_ref: "SMTP 250".into() });
    }
    let told = told.lock().unwrap().clone();
    for expected in [
        "MAIL FROM:<bills@bank.example>",
        "RCPT TO:<ana@example.com>",
        "From: bills@bank.example",
        "To: ana@example.com",
        "Subject: Your bill",
        "Message-ID: <bank/c-1/bill=3A1796441400@bank.example>",
        "..",
        "Thank you",
    ] {
        assert_eq!(told.iter().filter(|line| *line == expected).count(), 2, "{expected}: {told:?}");
    }
    assert!(told.iter().any(|line| line.starts_with("Date: Sat, 05 Dec 2026")), "{told:?}");
}

#[tokio::test]
async fn each_answer_means_what_the_table_says() {
    let cases: [(&str, &str, OutcomeClass); 39] = [
        ("HELLO", "421 busy", Temporary),
        ("HELLO", "554 no", Temporary),
        ("HELLO", "", Temporary),
        ("EHLO", "", Temporary),
        ("MAIL", "451 later", Temporary),
        ("MAIL", "550 not you", Temporary),
        ("MAIL", "", Temporary),
        ("RCPT", "450 ana@example.com is busy", Temporary),
        ("RCPT", "550 no ana@example.com here", Permanent),
        ("RCPT", "550 5.1.1 no ana@example.com here", Permanent),
        ("RCPT", "550-5.1.1 no ana@example.com here\r\n550 5.1.1 nor a bill", Permanent),
        ("RCPT", "556 5.1.10 example.com takes no bills", Permanent),
        ("RCPT", "552 5.2.2 ana's mailbox is full", Permanent),
        ("RCPT", "553 5.1.7 bills@bank.example is no sender", Temporary),
        ("RCPT", "550 5.1.8 bank.example is no domain", Temporary),
        ("RCPT", "554 5.7.1 <ana@example.com>: Relay access denied", Temporary),
        ("RCPT", "554 5.7.1 Client host blocked", Temporary),
        ("RCPT", "553 5.7.1 <bills@bank.example>: Sender address rejected: not owned by user", Temporary),
        ("RCPT", "530 5.7.0 Must issue a STARTTLS command first", Temporary),
        ("RCPT", "530 5.1.1 log in", Temporary),
        ("RCPT", "535 5.7.8 log in", Temporary),
        ("RCPT", "503 5.5.1 MAIL first", Temporary),
        ("RCPT", "550 4.2.1 make up your mind", Temporary),
        ("RCPT", "550 5.12.2026 is no code of ours", Temporary),
        ("RCPT", "550 12.5.2026 is a day", Permanent),
        ("RCPT", "", Temporary),
        ("DATA", "451 later", Temporary),
        ("DATA", "554 no", Temporary),
        ("DATA", "554 5.5.1 no valid recipients", Temporary),
        ("DATA", "550 no", Permanent),
        ("DATA", "", Temporary),
        ("TEXT", "250 ok", Delivered),
        ("TEXT", "451 later", Temporary),
        ("TEXT", "554 spam for ana@example.com", Temporary),
        ("TEXT", "554 Message rejected: bills@bank.example is not verified", Temporary),
        ("TEXT", "550 5.7.60 client does not have permissions to send as this sender", Temporary),
        ("TEXT", "552 5.3.4 too large", Permanent),
        ("TEXT", "554 5.6.0 no such charset", Permanent),
        ("TEXT", "", Unknown),
    ];
    for (command, says, expected) in cases {
        let (address, _) = server(Some((command, says))).await;
        let outcome = mail(address).send(&call(TIME), TO, "Your bill", "12.50 is due").await;
        assert_eq!(outcome.class(), expected, "{command} {says}: {outcome:?}");
        let reason = outcome.reason().unwrap_or_default();
        assert!(!reason.contains("ana") && !reason.contains("bill"), "{reason}");
        assert!(says.is_empty() || reason.is_empty() || reason.contains(&says[..3]), "{reason}");
        let enhanced = says.split_whitespace().nth(1).filter(|word| word.starts_with("5."));
        assert!(enhanced.is_none_or(|enhanced| reason.contains(enhanced)), "{reason}");
    }
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    assert_eq!(mail(closed).send(&call(TIME), TO, "Your bill", "x").await.class(), Temporary);
}

#[tokio::test]
async fn silence_before_the_text_means_that_nothing_went_out() {
    let time = Duration::from_millis(900);
    for command in ["HELLO", "EHLO", "MAIL", "RCPT", "DATA"] {
        let (address, _) = server(Some((command, SILENCE))).await;
        let outcome = timeout(time, mail(address).send(&call(time), TO, "Your bill", "x")).await;
        let Ok(Outcome::Temporary { reason, .. }) = outcome else { panic!("{command}: {outcome:?}") };
        assert!(reason.ends_with("in time"), "{reason}");
    }
}

#[tokio::test]
async fn a_known_outcome_comes_in_time_although_no_farewell_does() {
    // Shorter than a farewell is waited for.
    let time = Duration::from_millis(900);
    let (address, _) = server(Some(("QUIT", SILENCE))).await;
    let outcome = timeout(time, mail(address).send(&call(time), TO, "Your bill", "x")).await;
    assert_eq!(outcome, Ok(Outcome::Delivered { gateway_ref: "SMTP 250".into() }));
}

#[tokio::test]
async fn no_email_goes_over_an_open_line_but_to_this_host_itself() {
    let (address, told) = server(None).await;
    let elsewhere = Mail { is_loopback: false, ..mail(address) };
    let outcome = elsewhere.send(&call(TIME), TO, "Your bill", "x").await;
    assert!(matches!(&outcome, Outcome::Temporary { reason, .. } if reason.contains("STARTTLS")), "{outcome:?}");
    let told = told.lock().unwrap().clone();
    assert!(told.iter().all(|line| line.starts_with("EHLO") || line.starts_with("QUIT")), "{told:?}");
    let is_loopback = |url: &str| Mail::new(url, "bills@bank.example", TIME, clock()).unwrap().is_loopback;
    for url in ["smtp://127.0.0.1", "smtp://[::1]:25", "smtp://localhost:2525"] {
        assert!(is_loopback(url), "{url}");
    }
    for url in ["smtp://mail.example.com", "smtp://10.0.0.7", "smtp://localhost.example.com", "smtp://[2001:db8::1]"] {
        assert!(!is_loopback(url), "{url}");
    }
}

#[tokio::test]
async fn a_password_never_goes_over_an_open_line() {
    let (address, told) = server(None).await;
    let mail = Mail::new(&format!("smtp://ana:s%33cret@{address}"), "bills@bank.example", TIME, clock()).unwrap();
    assert_eq!(mail.send(&call(TIME), TO, "Your bill", "x").await.class(), Temporary);
    let told = told.lock().unwrap().clone();
    assert!(told.iter().all(|line| line.starts_with("EHLO") || line.starts_with("QUIT")), "{told:?}");
}

#[test]
fn nothing_can_be_slipped_into_a_header() {
    let mail = mail("127.0.0.1:1".parse().unwrap());
    assert!(mail.message(&run(), "ana@example.com\r\nBcc: eve@example.com", "x", "x").is_none());
    let (_, message) = mail.message(&run(), TO, "Bill\r\nBcc: eve@example.com", "x").unwrap();
    let message = String::from_utf8(message).unwrap();
    assert!(!message.lines().any(|line| line.starts_with("Bcc")), "{message}");
    let (_, message) = mail.message(&run(), TO, "Счёт", "12,50 € fällig").unwrap();
    assert!(message.is_ascii());
}

#[test]
fn a_message_id_is_made_of_what_may_stand_in_one() {
    assert_eq!(message_id("bank/a.b-c_D:17m0f", "x.example"), "<bank/a=2Eb-c_D=3A17m0f@x.example>");
    assert_eq!((decoded("a%40b%3a"), decoded("100%")), ("a@b:".into(), "100%".into()));
}

#[test]
fn a_wrong_setting_is_refused_without_showing_it() {
    let made =
        |url: &str, from: &str| Mail::new(url, from, TIME, clock()).map(|mail| (mail.host, mail.port)).unwrap_err();
    for url in ["mail.example.com", "http://mail.example.com", "smtps://", "smtps://s3cret@mail.example.com"] {
        let error = made(url, "bills@bank.example");
        assert!(error.contains("PUNCTUAL_SMTP_URL") && !error.contains("s3cret"), "{url}: {error}");
    }
    assert!(made("smtps://mail.example.com", "Bank <bills@bank.example>").contains("PUNCTUAL_EMAIL_FROM"));
    let port = |url: &str| Mail::new(url, "bills@bank.example", TIME, clock()).unwrap().port;
    assert_eq!((port("smtps://m.example"), port("smtp://m.example"), port("smtp://m.example:25")), (465, 587, 25));
}
