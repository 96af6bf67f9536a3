//! Whom a run's call goes to: what limits, holds and circuit breakers are kept for.
//!
//! All text messages go to one gateway, and so have one target; webhooks have one for each host.

use std::fmt;

/// What a call goes to: `sms`, `email`, `queue`, `noop`, or `webhook/` and a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target(String);

/// The longest name of a host (RFC 1035).
const LONGEST_HOST: usize = 253;

impl Target {
    /// The SMS gateway.
    pub fn sms() -> Self {
        Target("sms".into())
    }

    /// The mail server.
    pub fn email() -> Self {
        Target("email".into())
    }

    /// Other SQS queues.
    pub fn queue() -> Self {
        Target("queue".into())
    }

    /// Nothing: runs that only show that all works.
    pub fn noop() -> Self {
        Target("noop".into())
    }

    /// The webhooks of one host. A name is the same with and without the dot of the root.
    pub fn webhook(host: &str) -> Self {
        Target(format!("webhook/{}", host.trim_end_matches('.').to_ascii_lowercase()))
    }

    /// Whether the webhooks of a host can be named, and so be limited and held: letters, digits, `-`, `_` and `.`, or an address.
    pub fn can_name(host: &str) -> bool {
        let host = host.trim_end_matches('.');
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | ':' | '[' | ']');
        (1..=LONGEST_HOST).contains(&host.len()) && host.chars().all(fits)
    }

    /// Whether it is a webhook's host.
    pub fn is_webhook(&self) -> bool {
        self.0.starts_with("webhook/")
    }

    /// The word for labels: the handler's, for all hosts of webhooks the same.
    pub fn kind(&self) -> &'static str {
        match self.0.as_str() {
            "sms" => "sms",
            "email" => "email",
            "queue" => "queue",
            "noop" => "noop",
            _ => "webhook",
        }
    }

    /// The text used in the store, in commands and in labels.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            None if ["sms", "email", "queue", "noop"].contains(&text) => Ok(Target(text.into())),
            Some(("webhook", host)) if Target::can_name(host) => Ok(Target::webhook(host)),
            _ => Err("a target is `sms`, `email`, `queue`, `noop`, or `webhook/` and a host, such as `webhook/hooks.example.com`".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_reads_back_from_its_text() {
        for text in ["sms", "email", "queue", "noop", "webhook/hooks.example.com"] {
            assert_eq!(text.parse::<Target>().unwrap().as_str(), text);
        }
        for same in ["webhook/Hooks.Example.COM", "webhook/hooks.example.com."] {
            assert_eq!(same.parse(), Ok(Target::webhook("hooks.example.com")));
        }
        for bad in
            ["", "SMS", "webhook", "webhook/", "webhook/.", "webhook/a b", "webhook/a/b", "webhook/a!b", "pager/x"]
        {
            assert!(bad.parse::<Target>().unwrap_err().contains("webhook/"), "{bad}");
        }
        assert!(Target::can_name(&"a".repeat(253)) && !Target::can_name(&"a".repeat(254)));
    }
}
