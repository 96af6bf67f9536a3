//! The `email` handler: one message through a mail server.
//!
//! A connection for each message, step by step, so that it is known how far it came: until the text goes out nothing can
//! have been sent, and after that a lost answer is unknown. Mail servers drop no repeats; the `Message-ID` is the same for
//! every attempt, so that a reader's program can.

use lettre::message::header::ContentType;
use lettre::message::{Mailbox, Message};
use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, TlsParameters};
use lettre::transport::smtp::commands::{Data, Mail as MailFrom, Rcpt};
use lettre::transport::smtp::extension::ClientId;
use punctual_core::clock::Clock;
use punctual_core::payload::check_mailbox;
use punctual_core::retry::Outcome;
use punctual_core::run::RunId;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// A server that has taken the text is not waited for longer at the end.
const QUIT_TIME: Duration = Duration::from_secs(1);

/// The mail server of this worker.
pub struct Mail {
    host: String,
    port: u16,
    /// From the first byte on (`smtps`), or by STARTTLS (`smtp`).
    is_tls: bool,
    tls: TlsParameters,
    credentials: Option<Credentials>,
    from: Mailbox,
    connect_timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl Mail {
    /// The server at `url` (`smtps://user:password@host:port`, or `smtp://` for STARTTLS), with `from` as sender.
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
            tls: TlsParameters::new(host.clone())
                .map_err(|_| "PUNCTUAL_SMTP_URL: no TLS to that host can be prepared")?,
            credentials: login.map(|(user, password)| Credentials::new(user, password)),
            from: Mailbox::new(None, from.parse().map_err(|_| "PUNCTUAL_EMAIL_FROM must be one mailbox")?),
            connect_timeout: (attempt_timeout / 2).min(Duration::from_secs(3)),
            host,
            clock,
        })
    }

    pub(super) async fn send(&self, reference: &RunId, to: &str, subject: &str, text: &str) -> Outcome {
        let Some((to, message)) = self.message(reference, to, subject, text) else {
            return Outcome::Permanent { reason: "no email can be made of it".into() };
        };
        let mut connection = match self.connect().await {
            Ok(connection) => connection,
            Err(error) => return not_sent("the mail server cannot be used", &error),
        };
        let outcome = self.hand_over(&mut connection, to, &message).await;
        // Whatever becomes of the farewell, what happened is known.
        let _ = tokio::time::timeout(QUIT_TIME, connection.quit()).await;
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

    async fn connect(&self) -> Result<AsyncSmtpConnection, Error> {
        let hello = ClientId::Domain(self.from.email.domain().to_owned());
        let tls = self.is_tls.then(|| self.tls.clone());
        let server = (self.host.as_str(), self.port);
        let mut connection =
            AsyncSmtpConnection::connect_tokio1(server, Some(self.connect_timeout), &hello, tls, None).await?;
        // A password goes over no open line: without STARTTLS the call fails.
        if !self.is_tls && (connection.can_starttls() || self.credentials.is_some()) {
            connection.starttls(self.tls.clone(), &hello).await?;
        }
        if let Some(credentials) = &self.credentials {
            connection.auth(&[Mechanism::Plain, Mechanism::Login], credentials).await?;
        }
        Ok(connection)
    }

    /// Sender, recipient, text.
    async fn hand_over(&self, connection: &mut AsyncSmtpConnection, to: lettre::Address, message: &[u8]) -> Outcome {
        if let Err(error) = connection.command(MailFrom::new(Some(self.from.email.clone()), Vec::new())).await {
            return not_sent("the mail server does not take the sender: check PUNCTUAL_EMAIL_FROM", &error);
        }
        if let Err(error) = connection.command(Rcpt::new(to, Vec::new())).await {
            return refused("the recipient", &error)
                .unwrap_or_else(|| not_sent("the mail server did not take the recipient", &error));
        }
        if let Err(error) = connection.command(Data).await {
            return refused("the message", &error).unwrap_or_else(|| not_sent("the mail server took no text", &error));
        }
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
}

/// A final refusal (5yz) of what is sent.
fn refused(what: &str, error: &Error) -> Option<Outcome> {
    let code = error.status().filter(|_| error.is_permanent())?;
    Some(Outcome::Permanent { reason: format!("the mail server refused {what} ({code})") })
}

/// It did not go out. A server's own words are left out: they quote addresses.
fn not_sent(what: &str, error: &Error) -> Outcome {
    let code = error.status().map_or_else(|| "no answer".to_owned(), |code| code.to_string());
    Outcome::Temporary { reason: format!("{what} ({code})"), retry_after: None }
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
