//! The `email` handler: one message through a mail server.
//!
//! A connection for each message, step by step, so that it is known how far it came: until the text goes out nothing can
//! have been sent, so what is not done with that in half of the call's time is given up; after that a lost answer is
//! unknown. Mail servers drop no repeats; the `Message-ID` is the same for
//! every attempt, so that a reader's program can.

use super::TimeLeft;
use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail as MailFrom, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use punctual_core::clock::Clock;
use punctual_core::payload::check_mailbox;
use punctual_core::ports::Call;
use punctual_core::retry::Outcome;
use punctual_core::run::RunId;
use std::error::Error as _;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use url::Url;

/// A server that has taken the text is not waited for longer at the end.
const QUIT_TIME: Duration = Duration::from_secs(1);

/// The mail server of this worker.
pub struct Mail {
    host: String,
    port: u16,
    /// From the first byte on (`smtps`), or by STARTTLS (`smtp`).
    is_tls: bool,
    /// Nobody is between: it may do without.
    is_loopback: bool,
    tls: TlsParameters,
    credentials: Option<Credentials>,
    from: Mailbox,
    connect_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl Mail {
    /// The server at `url` (`smtps://user:password@host:port`, or `smtp://` for STARTTLS, which only this host itself may lack),
    /// with `from` as sender.
    ///
    /// # Errors
    /// Says what was expected, never the address: it may hold a password.
    pub fn new(url: &str, from: &str, attempt_timeout: Duration, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let expected = "PUNCTUAL_SMTP_URL must be an address such as `smtps://user:password@mail.example.com`";
        let url = Url::parse(url).map_err(|_| expected)?;
        let is_tls = match url.scheme() {
            "smtps" => true,
            "smtp" => false,
            _ => return Err(expected.into()),
        };
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(expected)?.trim_matches(['[', ']']).to_owned();
        let login = match (url.username(), url.password()) {
            ("", None) => None,
            (user, Some(password)) if !user.is_empty() => Some((decoded(user), decoded(password))),
            _ => return Err(format!("{expected}: user name and password belong together")),
        };
        check_mailbox(from).map_err(|expected| format!("PUNCTUAL_EMAIL_FROM: {expected}"))?;
        Ok(Mail {
            port: url.port().unwrap_or(if is_tls { 465 } else { 587 }),
            is_tls,
            is_loopback: host.eq_ignore_ascii_case("localhost")
                || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback()),
            tls: TlsParameters::new(host.clone())
                .map_err(|_| "PUNCTUAL_SMTP_URL: no TLS to that host can be prepared")?,
            credentials: login.map(|(user, password)| Credentials::new(user, password)),
            from: Mailbox::new(None, from.parse().map_err(|_| "PUNCTUAL_EMAIL_FROM must be one mailbox")?),
            connect_timeout: (attempt_timeout / 2).min(Duration::from_secs(3)),
            host,
            clock,
        })
    }

    pub(super) async fn send(&self, call: &Call, to: &str, subject: &str, text: &str) -> Outcome {
        let left = TimeLeft::of(call, &*self.clock);
        let before_text = left.half();
        let Some((to, message)) = self.message(&call.reference, to, subject, text) else {
            return Outcome::Permanent { reason: "no email can be made of it".into() };
        };
        let mut connection = match timeout(before_text.now(), self.connect()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(outcome)) => return outcome,
            Err(_) => return temporary("the mail server did not get as far as taking a sender in time"),
        };
        let outcome = match timeout(before_text.now(), self.ask(&mut connection, to)).await {
            Ok(Ok(())) => hand_over(&mut connection, &message).await,
            Ok(Err(outcome)) => outcome,
            Err(_) => return temporary("the mail server did not get as far as taking a text in time"),
        };
        // Whatever becomes of the farewell, what happened is known.
        let _ = timeout(QUIT_TIME.min(left.now()), connection.quit()).await;
        outcome
    }

    fn message(&self, reference: &RunId, to: &str, subject: &str, text: &str) -> Option<(lettre::Address, Vec<u8>)> {
        let to: lettre::Address = to.parse().ok()?;
        let message = Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to.clone()))
            .subject(subject)
            .message_id(Some(message_id(&reference.to_string(), self.from.email.domain())))
            .date(self.clock.now().into())
            .header(ContentType::TEXT_PLAIN)
            .body(text.to_owned());
        Some((to, message.ok()?.formatted()))
    }

    /// A connection that an email may go over.
    async fn connect(&self) -> Result<AsyncSmtpConnection, Outcome> {
        let failed = |error: Error| not_sent("the mail server cannot be used", &error);
        let hello = ClientId::Domain(self.from.email.domain().to_owned());
        let tls = self.is_tls.then(|| self.tls.clone());
        let server = (self.host.as_str(), self.port);
        let mut connection = AsyncSmtpConnection::connect_tokio1(server, Some(self.connect_timeout), &hello, tls, None)
            .await
            .map_err(failed)?;
        // The offer of STARTTLS is made over an open line: whoever is between can take it out. So it is no offer but a
        // condition, where anybody can be between or a password would go.
        let may_stay_open = self.is_loopback && self.credentials.is_none();
        if !self.is_tls && (connection.can_starttls() || !may_stay_open) {
            if !connection.can_starttls() {
                return Err(temporary("the mail server offers no STARTTLS: take `smtps://` for PUNCTUAL_SMTP_URL"));
            }
            connection.starttls(self.tls.clone(), &hello).await.map_err(failed)?;
        }
        if let Some(credentials) = &self.credentials {
            connection.auth(&[Mechanism::Plain, Mechanism::Login], credentials).await.map_err(failed)?;
        }
        Ok(connection)
    }

    /// Sender, recipient, and whether the text is taken.
    async fn ask(&self, connection: &mut AsyncSmtpConnection, to: lettre::Address) -> Result<(), Outcome> {
        let sender = MailFrom::new(Some(self.from.email.clone()), Vec::new());
        connection
            .command(sender)
            .await
            .map_err(|error| not_sent("the mail server does not take the sender: check PUNCTUAL_EMAIL_FROM", &error))?;
        connection.command(Rcpt::new(to, Vec::new())).await.map_err(|error| {
            refused("the recipient", &error)
                .unwrap_or_else(|| not_sent("the mail server did not take the recipient", &error))
        })?;
        connection.command(Data).await.map_err(|error| {
            refused("the message", &error).unwrap_or_else(|| not_sent("the mail server took no text", &error))
        })?;
        Ok(())
    }
}

/// The text.
async fn hand_over(connection: &mut AsyncSmtpConnection, message: &[u8]) -> Outcome {
    match connection.message(message).await {
        Ok(answer) => Outcome::Delivered { gateway_ref: format!("SMTP {}", answer.code()) },
        Err(error) => match (refused("the message", &error), error.status()) {
            (Some(outcome), _) => outcome,
            (None, Some(_)) => not_sent("the mail server took no text", &error),
            (None, None) => {
                let reason = "the connection to the mail server was lost after the text went out".into();
                Outcome::Unknown { reason }
            }
        },
    }
}

/// A final refusal of what is sent.
fn refused(what: &str, error: &Error) -> Option<Outcome> {
    let code = error.status().filter(|_| error.is_permanent())?;
    let is_final = blames_the_email(code.into(), enhanced(error));
    is_final.then(|| Outcome::Permanent { reason: format!("the mail server refused {what} ({})", codes(error)) })
}

/// Whether a 5yz is about this very email. Servers answer so as well, at the recipient or after the text, when they mean the
/// client, its login or its sender (RFC 3463, 3.8: 5.7.z): all emails meet that, until somebody mends it.
fn blames_the_email(code: u16, enhanced: Option<[u16; 3]>) -> bool {
    match (code, enhanced) {
        // Out of order, not logged in, a login that is wrong.
        (503 | 530 | 535, _) => false,
        // Its recipient; 5.1.7 and 5.1.8 are the sender.
        (_, Some([5, 1, detail])) => !matches!(detail, 7 | 8),
        // Its mailbox, its size, its content.
        (_, Some([5, subject, detail])) => matches!((subject, detail), (2 | 6, _) | (3, 4)),
        (_, Some(_)) => false,
        (550..=553, None) => true,
        _ => false,
    }
}

/// The enhanced status code that an answer begins with (RFC 3463): class, subject, detail.
fn enhanced(error: &Error) -> Option<[u16; 3]> {
    let text = error.source().filter(|_| error.status().is_some())?.to_string();
    let numbers: Option<Vec<u16>> = text.split_whitespace().next()?.split('.').map(|part| part.parse().ok()).collect();
    numbers?.try_into().ok().filter(|[class, ..]: &[u16; 3]| matches!(class, 4 | 5))
}

/// It did not go out. A server's own words are left out: they quote addresses.
fn not_sent(what: &str, error: &Error) -> Outcome {
    temporary(&format!("{what} ({})", codes(error)))
}

/// The numbers that a server answered.
fn codes(error: &Error) -> String {
    match (error.status(), enhanced(error)) {
        (Some(code), Some([class, subject, detail])) => format!("{code} {class}.{subject}.{detail}"),
        (Some(code), None) => code.to_string(),
        (None, _) => "no answer".to_owned(),
    }
}

fn temporary(reason: &str) -> Outcome {
    Outcome::Temporary { reason: reason.to_owned(), retry_after: None }
}

/// The `Message-ID` of a run (RFC 5322, 3.6.4): what may stand in one stays, the rest is written as `=` and its code.
fn message_id(run: &str, domain: &str) -> String {
    let mut id = String::from("<");
    for byte in run.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'/' => id.push(char::from(byte)),
            other => write!(id, "={other:02X}").expect("a string takes all that is written"),
        }
    }
    id + "@" + domain + ">"
}

/// A part of an address without its percent codes.
fn decoded(part: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = part.as_bytes();
    while let [first, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        let code = code.filter(|_| *first == b'%').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
