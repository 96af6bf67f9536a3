//! How a payload is laid out in a job's item: what its handler needs, under plain names.

use crate::payload::{Handler, Payload, Secret};
use crate::template::Vars;
use serde::{Deserialize, Serialize};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PayloadItem {
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
    #[serde(skip_serializing_if = "Vars::is_empty")]
    vars: Vars,
}

impl PayloadItem {
    /// The item of a payload.
    pub(super) fn of(payload: Payload) -> Self {
        let none = PayloadItem::default();
        match payload {
            Payload::Sms { to, text, vars } => PayloadItem { to: Some(to), text: Some(text), vars, ..none },
            Payload::Email { to, subject, text, vars } => {
                PayloadItem { to: Some(to), subject: Some(subject), text: Some(text), vars, ..none }
            }
            Payload::Webhook { url, body, vars, secret } => {
                let secret = secret.map(|secret| secret.reveal().to_owned());
                PayloadItem { url: Some(url), body: Some(body), secret, vars, ..none }
            }
            Payload::Queue { url, body, vars } => PayloadItem { url: Some(url), body: Some(body), vars, ..none },
            Payload::Noop | Payload::Unread(_) => none,
        }
    }

    /// The payload for a handler.
    ///
    /// # Errors
    /// Names what is missing.
    pub(super) fn payload(self, handler: Handler) -> Result<Payload, String> {
        let word = handler.as_str();
        let need = |value: Option<String>, name: &str| {
            value.ok_or_else(|| format!("the payload cannot be read: `{name}` is missing, and {word} needs it"))
        };
        let vars = self.vars;
        Ok(match handler {
            Handler::Sms => Payload::Sms { to: need(self.to, "to")?, text: need(self.text, "text")?, vars },
            Handler::Email => Payload::Email {
                to: need(self.to, "to")?,
                subject: need(self.subject, "subject")?,
                text: need(self.text, "text")?,
                vars,
            },
            Handler::Webhook => Payload::Webhook {
                url: need(self.url, "url")?,
                body: need(self.body, "body")?,
                vars,
                secret: self.secret.map(Secret::new),
            },
            Handler::Queue => Payload::Queue { url: need(self.url, "url")?, body: need(self.body, "body")?, vars },
            Handler::Noop => Payload::Noop,
        })
    }
}
