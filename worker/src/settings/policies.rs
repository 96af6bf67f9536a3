//! What each handler's receivers do with repeats, and so what becomes of a run of which nobody knows whether it went out.

use clap::Args;
use punctual_core::payload::Handler;
use punctual_core::retry::{GatewayPolicy, WhenUnknown};
use std::time::Duration;

/// The policies as they are given.
#[derive(Clone, Debug, Args)]
pub struct PolicyArgs {
    /// For how many seconds the gateway drops a repeat of a reference; 0 = it never does.
    #[arg(long, env = "PUNCTUAL_SMS_DEDUPE_WINDOW_S", default_value_t = 0)]
    pub sms_dedupe_window_s: u64,
    /// Outside that window, a call without an answer is left to a person (`hold`) or made again (`retry`).
    #[arg(long, env = "PUNCTUAL_SMS_ON_UNKNOWN", default_value = "hold", value_parser = when_unknown)]
    pub sms_on_unknown: WhenUnknown,
    /// The same for a run whose worker is gone.
    #[arg(long, env = "PUNCTUAL_SMS_ON_TAKEOVER", default_value = "retry", value_parser = when_unknown)]
    pub sms_on_takeover: WhenUnknown,
    /// For how many seconds repeats of a Message-ID are dropped behind the mail server; 0 = they are not.
    #[arg(long, env = "PUNCTUAL_EMAIL_DEDUPE_WINDOW_S", default_value_t = 0)]
    pub email_dedupe_window_s: u64,
    /// Outside that window, an email without an answer: `hold` or `retry`.
    #[arg(long, env = "PUNCTUAL_EMAIL_ON_UNKNOWN", default_value = "hold", value_parser = when_unknown)]
    pub email_on_unknown: WhenUnknown,
    /// The same for a run whose worker is gone.
    #[arg(long, env = "PUNCTUAL_EMAIL_ON_TAKEOVER", default_value = "retry", value_parser = when_unknown)]
    pub email_on_takeover: WhenUnknown,
    /// For how many seconds all receivers of webhooks drop a repeated webhook-id; 0 = they do not.
    #[arg(long, env = "PUNCTUAL_WEBHOOK_DEDUPE_WINDOW_S", default_value_t = 0)]
    pub webhook_dedupe_window_s: u64,
    /// Outside that window, a webhook without an answer: `hold` or `retry`.
    #[arg(long, env = "PUNCTUAL_WEBHOOK_ON_UNKNOWN", default_value = "hold", value_parser = when_unknown)]
    pub webhook_on_unknown: WhenUnknown,
    /// The same for a run whose worker is gone.
    #[arg(long, env = "PUNCTUAL_WEBHOOK_ON_TAKEOVER", default_value = "retry", value_parser = when_unknown)]
    pub webhook_on_takeover: WhenUnknown,
    /// For how many seconds readers of queues drop a repeated run id; 0 = they do not.
    #[arg(long, env = "PUNCTUAL_QUEUE_DEDUPE_WINDOW_S", default_value_t = 0)]
    pub queue_dedupe_window_s: u64,
    /// Outside that window, a message without an answer: `hold` or `retry`.
    #[arg(long, env = "PUNCTUAL_QUEUE_ON_UNKNOWN", default_value = "retry", value_parser = when_unknown)]
    pub queue_on_unknown: WhenUnknown,
    /// The same for a run whose worker is gone.
    #[arg(long, env = "PUNCTUAL_QUEUE_ON_TAKEOVER", default_value = "retry", value_parser = when_unknown)]
    pub queue_on_takeover: WhenUnknown,
}

/// A policy for each handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policies {
    /// Text messages.
    pub sms: GatewayPolicy,
    /// Emails.
    pub email: GatewayPolicy,
    /// Webhooks.
    pub webhook: GatewayPolicy,
    /// Other queues.
    pub queue: GatewayPolicy,
}

impl Policies {
    /// The same for all.
    pub fn all(policy: GatewayPolicy) -> Self {
        Policies { sms: policy, email: policy, webhook: policy, queue: policy }
    }

    /// That of one handler. Nothing that is done twice is done once.
    pub fn of(&self, handler: Handler) -> GatewayPolicy {
        match handler {
            Handler::Sms => self.sms,
            Handler::Email => self.email,
            Handler::Webhook => self.webhook,
            Handler::Queue => self.queue,
            Handler::Noop => GatewayPolicy { on_unknown: WhenUnknown::Retry, ..GatewayPolicy::default() },
        }
    }
}

impl From<&PolicyArgs> for Policies {
    fn from(args: &PolicyArgs) -> Self {
        let policy = |dedupe_window_s, on_unknown, on_takeover| GatewayPolicy {
            dedupe_window: Duration::from_secs(dedupe_window_s),
            on_unknown,
            on_takeover,
        };
        Policies {
            sms: policy(args.sms_dedupe_window_s, args.sms_on_unknown, args.sms_on_takeover),
            email: policy(args.email_dedupe_window_s, args.email_on_unknown, args.email_on_takeover),
            webhook: policy(args.webhook_dedupe_window_s, args.webhook_on_unknown, args.webhook_on_takeover),
            queue: policy(args.queue_dedupe_window_s, args.queue_on_unknown, args.queue_on_takeover),
        }
    }
}

fn when_unknown(word: &str) -> Result<WhenUnknown, String> {
    match word {
        "retry" => Ok(WhenUnknown::Retry),
        "hold" => Ok(WhenUnknown::Hold),
        _ => Err("expected `retry` or `hold`".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        policies: PolicyArgs,
    }

    #[test]
    fn only_queues_are_retried_blindly_by_default() {
        let words = Words::parse_from(["x", "--email-on-takeover", "hold", "--webhook-dedupe-window-s", "3600"]);
        let policies = Policies::from(&words.policies);
        let default = GatewayPolicy::default();
        assert_eq!(policies.of(Handler::Sms), default);
        assert_eq!(policies.of(Handler::Email), GatewayPolicy { on_takeover: WhenUnknown::Hold, ..default });
        let hour = Duration::from_secs(3_600);
        assert_eq!(policies.of(Handler::Webhook), GatewayPolicy { dedupe_window: hour, ..default });
        for handler in [Handler::Queue, Handler::Noop] {
            assert_eq!(policies.of(handler), GatewayPolicy { on_unknown: WhenUnknown::Retry, ..default });
        }
        assert!(Words::try_parse_from(["x", "--sms-on-unknown", "drop"]).is_err());
    }
}
