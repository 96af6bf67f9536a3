//! What a run carries to its handler. Personal data: never printed, never logged.

mod secret;

pub use secret::Secret;

use crate::address::{AllowList, check_queue_url, check_url, read_url};
use crate::ports::{LONGEST_BODY_BYTES, check_body};
use crate::sms::{MOST_SEGMENTS, check_e164, check_number, segments};
use crate::target::Target;
use crate::template::{Vars, check_vars};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest text of a message, in bytes; a job's body beyond 1 KiB costs more than one write unit each time.
pub const LONGEST_TEXT_BYTES: usize = 2_000;
/// The longest text of an email, and body of a webhook or for a queue, in bytes.
pub const LONGEST_PAYLOAD_BYTES: usize = 16_384;
/// The longest subject of an email, in bytes.
pub const LONGEST_SUBJECT_BYTES: usize = 200;
/// The longest address of a mailbox (RFC 5321, 4.5.3.1.3).
const LONGEST_MAILBOX: usize = 254;

/// Which handler does the work of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Handler {
    /// A text message through the SMS gateway.
    Sms,
    /// An email through the mail server.
    Email,
    /// A POST to an address of the job's own.
    Webhook,
    /// A message to another SQS queue.
    Queue,
    /// Nothing: runs that only show that all works.
    Noop,
}

impl Handler {
    /// All handlers.
    pub const ALL: [Handler; 5] = [Handler::Sms, Handler::Email, Handler::Webhook, Handler::Queue, Handler::Noop];

    /// The word for tables, labels and the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Handler::Sms => "sms",
            Handler::Email => "email",
            Handler::Webhook => "webhook",
            Handler::Queue => "queue",
            Handler::Noop => "noop",
        }
    }
}

/// What a job's runs carry. In a job, texts, subjects and bodies may be templates (see [`crate::template`]); in a call, they
/// are finished.
#[derive(Clone, PartialEq, Eq)]
pub enum Payload {
    /// A text message.
    Sms {
        /// The phone number, E.164.
        to: String,
        /// The text.
        text: String,
        /// What its template may name.
        vars: Vars,
    },
    /// An email.
    Email {
        /// The mailbox.
        to: String,
        /// One line.
        subject: String,
        /// Plain text.
        text: String,
        /// What its templates may name.
        vars: Vars,
    },
    /// A POST.
    Webhook {
        /// Where to.
        url: String,
        /// JSON.
        body: String,
        /// What its template may name.
        vars: Vars,
        /// What the request is signed by; none = it is not signed.
        secret: Option<Secret>,
    },
    /// A message to another SQS queue.
    Queue {
        /// The queue's URL.
        url: String,
        /// Its body.
        body: String,
        /// What its template may name.
        vars: Vars,
    },
    /// Nothing.
    Noop,
    /// Stands for a payload that was not read. No job that has it may be written.
    Unread(Handler),
}

impl Payload {
    /// A text message without variables.
    pub fn sms(to: impl Into<String>, text: impl Into<String>) -> Self {
        Payload::Sms { to: to.into(), text: text.into(), vars: Vars::new() }
    }

    /// Whether this stands for one that was not read.
    pub fn is_unread(&self) -> bool {
        matches!(self, Payload::Unread(_))
    }

    /// Which handler it is for.
    pub fn handler(&self) -> Handler {
        match self {
            Payload::Sms { .. } => Handler::Sms,
            Payload::Email { .. } => Handler::Email,
            Payload::Webhook { .. } => Handler::Webhook,
            Payload::Queue { .. } => Handler::Queue,
            Payload::Noop => Handler::Noop,
            Payload::Unread(handler) => *handler,
        }
    }

    /// What its calls go to: what limits, holds and circuit breakers are kept for. The host of a webhook that was not read is
    /// not known.
    pub fn target(&self) -> Target {
        match self {
            Payload::Webhook { url, .. } => {
                Target::webhook(url::Url::parse(url).ok().as_ref().and_then(|url| url.host_str()).unwrap_or("unknown"))
            }
            other => match other.handler() {
                Handler::Sms => Target::sms(),
                Handler::Email => Target::email(),
                Handler::Queue => Target::queue(),
                Handler::Noop => Target::noop(),
                Handler::Webhook => Target::webhook("unknown"),
            },
        }
    }

    /// The text or body, finished or not; none where there is none.
    pub fn text(&self) -> Option<&str> {
        match self {
            Payload::Sms { text, .. } | Payload::Email { text, .. } => Some(text),
            Payload::Webhook { body, .. } | Payload::Queue { body, .. } => Some(body),
            Payload::Noop | Payload::Unread(_) => None,
        }
    }

    /// The same with another text or body, where it has one.
    #[must_use]
    pub fn with_text(&self, new: impl Into<String>) -> Self {
        let mut payload = self.clone();
        match &mut payload {
            Payload::Sms { text, .. } | Payload::Email { text, .. } => *text = new.into(),
            Payload::Webhook { body, .. } | Payload::Queue { body, .. } => *body = new.into(),
            Payload::Noop | Payload::Unread(_) => {}
        }
        payload
    }

    /// What its templates may name; none where it has no text.
    pub fn vars(&self) -> Option<&Vars> {
        match self {
            Payload::Sms { vars, .. }
            | Payload::Email { vars, .. }
            | Payload::Webhook { vars, .. }
            | Payload::Queue { vars, .. } => Some(vars),
            Payload::Noop | Payload::Unread(_) => None,
        }
    }

    /// Bytes of it in the store, names of attributes left out.
    pub fn bytes(&self) -> usize {
        let vars = |vars: &Vars| vars.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>();
        match self {
            Payload::Sms { to, text, vars: named } => to.len() + text.len() + vars(named),
            Payload::Email { to, subject, text, vars: named } => to.len() + subject.len() + text.len() + vars(named),
            Payload::Webhook { url, body, vars: named, secret } => {
                url.len() + body.len() + vars(named) + secret.as_ref().map_or(0, |secret| secret.reveal().len())
            }
            Payload::Queue { url, body, vars: named } => url.len() + body.len() + vars(named),
            Payload::Noop | Payload::Unread(_) => 0,
        }
    }

    /// Checks what holds whether its texts are finished or not: numbers, addresses and sizes.
    ///
    /// # Errors
    /// Says what was expected, never what was found: all of it is personal data.
    pub fn check(&self) -> Result<(), String> {
        self.vars().map_or(Ok(()), check_vars)?;
        match self {
            Payload::Sms { to, text, .. } => {
                check_e164(to)?;
                check_text("text", text, LONGEST_TEXT_BYTES)
            }
            Payload::Email { to, subject, text, .. } => {
                check_mailbox(to)?;
                check_text("subject", subject, LONGEST_SUBJECT_BYTES)?;
                check_text("text", text, LONGEST_PAYLOAD_BYTES)
            }
            Payload::Webhook { url, body, secret, .. } => {
                read_url(url)?;
                secret.as_ref().map_or(Ok(()), Secret::check)?;
                check_text("body", body, LONGEST_PAYLOAD_BYTES)
            }
            Payload::Queue { url, body, .. } => {
                read_url(url)?;
                check_text("body", body, LONGEST_PAYLOAD_BYTES)
            }
            Payload::Noop => Ok(()),
            Payload::Unread(_) => Err("the payload was not read".into()),
        }
    }

    /// Checks a payload whose texts are finished: that it can be sent as it is.
    ///
    /// # Errors
    /// As [`Payload::check`], and what is wrong with a text.
    pub fn check_finished(&self) -> Result<(), String> {
        self.check()?;
        match self {
            Payload::Sms { to, text, .. } => {
                check_number(to)?;
                let count = segments(text).count;
                if count > MOST_SEGMENTS {
                    return Err(format!("the text is {count} SMS segments long: {MOST_SEGMENTS} are allowed"));
                }
                Ok(())
            }
            Payload::Email { subject, .. } if subject.chars().any(char::is_control) => {
                Err("the subject must be one line, without control characters".into())
            }
            Payload::Email { text, .. } => check_lines(text),
            Payload::Webhook { url, body, .. } => {
                check_host(url)?;
                let read: Result<serde::de::IgnoredAny, _> = serde_json::from_str(body);
                let say = "put a variable into it as `{{ vars.name | tojson }}`, without quotes of your own";
                read.map_err(|e| format!("the body is not JSON (line {}, column {}); {say}", e.line(), e.column()))
                    .map(|_| ())
            }
            Payload::Queue { body, .. } => check_body(body).map_err(|_| {
                format!("the body holds a character that SQS does not take, or is beyond {LONGEST_BODY_BYTES} bytes")
            }),
            Payload::Noop | Payload::Unread(_) => Ok(()),
        }
    }

    /// Checks that its address may be called, as far as that shows without looking names up.
    ///
    /// # Errors
    /// Which kind of address is refused.
    pub fn check_address(&self, allowed: &AllowList) -> Result<(), String> {
        match self {
            Payload::Webhook { url, .. } => check_url(url, allowed).map(|_| ()),
            Payload::Queue { url, .. } => check_queue_url(url, allowed).map(|_| ()),
            Payload::Sms { .. } | Payload::Email { .. } | Payload::Noop | Payload::Unread(_) => Ok(()),
        }
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Payload({}, redacted)", self.handler().as_str())
    }
}

fn check_text(what: &str, text: &str, longest: usize) -> Result<(), String> {
    if text.trim().is_empty() {
        return Err(format!("the {what} is empty"));
    }
    if text.len() > longest {
        return Err(format!("the {what} has {} bytes: {longest} are allowed", text.len()));
    }
    Ok(())
}

/// Checks that an email's text is lines and nothing else. Mail servers read a lone carriage return or NUL in different ways, and
/// what one takes for text may be the end of it, and a next message, to another.
fn check_lines(text: &str) -> Result<(), String> {
    if text.replace("\r\n", "\n").chars().any(|c| c.is_control() && c != '\n' && c != '\t') {
        return Err(
            "the text holds a control character that is neither a tab nor the end of a line: leave it out".into()
        );
    }
    Ok(())
}

/// Checks that limits and holds can name the host of a webhook.
fn check_host(url: &str) -> Result<(), String> {
    if read_url(url)?.host_str().is_some_and(Target::can_name) {
        return Ok(());
    }
    Err("the host of the address must be letters, digits, `-`, `_` and `.`, at most 253 in all, such as `hooks.example.com`: limits and holds \
         are kept for it by name"
        .into())
}

/// Checks a mailbox: what mail servers take without quoting, and nothing that could end a header or a command.
///
/// # Errors
/// Says what was expected, never the mailbox itself.
pub fn check_mailbox(mailbox: &str) -> Result<(), String> {
    let is_atom = |part: &str| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&b);
        !part.is_empty() && part.bytes().all(fits)
    };
    let is_label = |label: &str| {
        let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(fits) && !label.starts_with('-') && !label.ends_with('-')
    };
    let is_mailbox = mailbox.len() <= LONGEST_MAILBOX
        && mailbox.rsplit_once('@').is_some_and(|(local, domain)| {
            local.len() <= 64
                && local.split('.').all(is_atom)
                && domain.contains('.')
                && domain.split('.').all(is_label)
        });
    if is_mailbox { Ok(()) } else { Err("an email address is one mailbox in ASCII, such as `ana@example.com`".into()) }
}

#[cfg(test)]
mod tests;
