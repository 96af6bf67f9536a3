//! What a job does, as people write it on the command line.

use crate::timetable::{NONE, Problem};
use clap::Args;
use punctual_core::payload::{Handler, Payload, Secret};
use punctual_core::retry::RetryRule;
use punctual_core::schedule::parse_interval;
use punctual_core::template::Vars;
use std::path::PathBuf;

/// What the runs of a job do.
#[derive(Clone, Debug, Default, Args)]
pub struct PayloadText {
    /// A text message to this phone number, E.164.
    #[arg(long)]
    pub to: Option<String>,
    /// The text of a message or an email. May hold variables: `{{ vars.amount }}`, `{{ local.date }}`, `{{ run.id }}`,
    /// `{{ job.name }}`; filters: `{{ vars.name | title }}`; and conditions: `{% if vars.x %}…{% else %}…{% endif %}`.
    #[arg(long)]
    pub text: Option<String>,
    /// An email to this mailbox.
    #[arg(long)]
    pub email_to: Option<String>,
    /// Its subject; may hold variables.
    #[arg(long)]
    pub subject: Option<String>,
    /// A POST to this address.
    #[arg(long)]
    pub webhook: Option<String>,
    /// A message to the SQS queue of this URL.
    #[arg(long)]
    pub queue: Option<String>,
    /// The JSON of a POST, or what goes to a queue; may hold variables: `{"name": {{ vars.name | tojson }}}`.
    #[arg(long)]
    pub body: Option<String>,
    /// A file with the secret that a POST is signed by, `whsec_…`; `none` takes it away.
    #[arg(long)]
    pub secret_file: Option<PathBuf>,
    /// Nothing: to see that all works.
    #[arg(long)]
    pub noop: bool,
    /// A variable for text, subject or body: `amount=12.50`. Can be given several times; a name alone takes it away.
    #[arg(long = "var", value_name = "NAME=VALUE")]
    pub vars: Vec<String>,
    /// Hosts that webhooks and queues may name whatever their addresses are; what the workers are given.
    #[arg(long, env = "PUNCTUAL_WEBHOOK_ALLOW", default_value = "")]
    pub webhook_allow: String,
}

/// How often runs are tried.
#[derive(Clone, Debug, Default, Args)]
pub struct RetryText {
    /// Attempts in all, 1 to 20; six by default.
    #[arg(long)]
    pub max_attempts: Option<u32>,
    /// Bound of the first wait, `30s`; each further one is twice that.
    #[arg(long)]
    pub retry_base: Option<String>,
    /// Highest bound of a wait, `10m`.
    #[arg(long)]
    pub retry_cap: Option<String>,
    /// The bound of each wait in place of these: `30s,2m,10m`, for four attempts. A wait is chosen at random below its bound.
    /// `none` goes back to base and cap.
    #[arg(long)]
    pub retry_waits: Option<String>,
}

impl RetryText {
    /// What is given, over `old`.
    ///
    /// # Errors
    /// The option that is wrong.
    pub fn read_over(&self, old: RetryRule) -> Result<RetryRule, Problem> {
        let has_others = self.max_attempts.is_some() || self.retry_base.is_some() || self.retry_cap.is_some();
        let old = match self.retry_waits.as_deref() {
            Some(NONE) => RetryRule::default(),
            Some(_) if has_others => {
                let problem = "a list of waits says all: leave --max-attempts, --retry-base and --retry-cap out";
                return Err(Problem::plain("retry_waits", problem));
            }
            Some(list) => {
                let waits: Vec<u32> =
                    list.split(',').map(|wait| seconds("retry_waits", wait.trim())).collect::<Result<_, _>>()?;
                return RetryRule::with_waits(&waits).map_err(|problem| Problem::plain("retry_waits", problem));
            }
            None if has_others && old.waits_s.is_some() => {
                let problem = "the job has a list of waits: give --retry-waits none as well, or another list";
                return Err(Problem::plain("retry_waits", problem));
            }
            None => old,
        };
        let given = |column, text: &Option<String>, old| text.as_deref().map_or(Ok(old), |text| seconds(column, text));
        let rule = RetryRule {
            max_attempts: self.max_attempts.unwrap_or(old.max_attempts),
            base_s: given("retry_base", &self.retry_base, old.base_s)?,
            cap_s: given("retry_cap", &self.retry_cap, old.cap_s)?,
            ..old
        };
        rule.check().map_err(|problem| Problem::plain("max_attempts", problem))?;
        Ok(rule)
    }
}

fn seconds(column: &'static str, text: &str) -> Result<u32, Problem> {
    let seconds = parse_interval(text).ok().and_then(|s| u32::try_from(s).ok());
    seconds.ok_or_else(|| Problem::plain(column, "expected an interval such as `30s`, `2m` or `1h`"))
}

impl PayloadText {
    /// The payload that is given, over `old`, if there is one. `secret` is what the file of it holds: none = nothing is said of
    /// it, and inside, none = it is to be taken away.
    ///
    /// # Errors
    /// The option that is wrong or missing; shows nothing of the payload.
    pub fn read_over(&self, old: Option<&Payload>, secret: Option<Option<Secret>>) -> Result<Payload, Problem> {
        let handler = self.handler(old)?;
        self.check_fit(handler)?;
        let old = old.filter(|old| old.handler() == handler);
        let vars = self.read_vars(old.and_then(Payload::vars).cloned().unwrap_or_default())?;
        let text = |column: &'static str, given: &Option<String>| {
            let old = || old.and_then(Payload::text).map(str::to_owned);
            given.clone().or_else(old).ok_or_else(|| missing(column))
        };
        let of = |column: &'static str, given: &Option<String>, old: Option<&String>| {
            given.as_ref().or(old).cloned().ok_or_else(|| missing(column))
        };
        Ok(match handler {
            Handler::Sms => {
                let to = old.and_then(|old| if let Payload::Sms { to, .. } = old { Some(to) } else { None });
                Payload::Sms { to: of("to", &self.to, to)?, text: text("text", &self.text)?, vars }
            }
            Handler::Email => {
                let fields = old.and_then(|old| match old {
                    Payload::Email { to, subject, .. } => Some((to, subject)),
                    _ => None,
                });
                Payload::Email {
                    to: of("email_to", &self.email_to, fields.map(|(to, _)| to))?,
                    subject: of("subject", &self.subject, fields.map(|(_, subject)| subject))?,
                    text: text("text", &self.text)?,
                    vars,
                }
            }
            Handler::Webhook => {
                let fields = old.and_then(|old| match old {
                    Payload::Webhook { url, secret, .. } => Some((url, secret)),
                    _ => None,
                });
                Payload::Webhook {
                    url: of("webhook", &self.webhook, fields.map(|(url, _)| url))?,
                    body: text("body", &self.body)?,
                    vars,
                    secret: secret.unwrap_or_else(|| fields.and_then(|(_, secret)| secret.clone())),
                }
            }
            Handler::Queue => {
                let url = old.and_then(|old| if let Payload::Queue { url, .. } = old { Some(url) } else { None });
                Payload::Queue { url: of("queue", &self.queue, url)?, body: text("body", &self.body)?, vars }
            }
            Handler::Noop => Payload::Noop,
        })
    }

    fn handler(&self, old: Option<&Payload>) -> Result<Handler, Problem> {
        let kinds = [
            (self.to.is_some(), Handler::Sms),
            (self.email_to.is_some(), Handler::Email),
            (self.webhook.is_some(), Handler::Webhook),
            (self.queue.is_some(), Handler::Queue),
            (self.noop, Handler::Noop),
        ];
        let mut given = kinds.iter().filter(|(is_given, _)| *is_given).map(|(_, handler)| *handler);
        match (given.next(), given.next(), old) {
            (Some(handler), None, _) => Ok(handler),
            (None, _, Some(old)) => Ok(old.handler()),
            _ => Err(Problem::plain(
                "to",
                "say what the job does by one of --to, --email-to, --webhook, --queue and --noop, and no other",
            )),
        }
    }

    /// Refuses what a handler has no use for: it would be forgotten in silence.
    fn check_fit(&self, handler: Handler) -> Result<(), Problem> {
        use Handler::{Email, Queue, Sms, Webhook};
        let options: [(&'static str, bool, &[Handler]); 5] = [
            ("text", self.text.is_some(), &[Sms, Email]),
            ("subject", self.subject.is_some(), &[Email]),
            ("body", self.body.is_some(), &[Webhook, Queue]),
            ("secret_file", self.secret_file.is_some(), &[Webhook]),
            ("var", !self.vars.is_empty(), &[Sms, Email, Webhook, Queue]),
        ];
        match options.iter().find(|(_, is_given, of)| *is_given && !of.contains(&handler)) {
            Some((option, ..)) => {
                let problem = format!("a job that does `{}` has none: leave it out", handler.as_str());
                Err(Problem::plain(option, problem))
            }
            None => Ok(()),
        }
    }

    fn read_vars(&self, mut vars: Vars) -> Result<Vars, Problem> {
        for given in &self.vars {
            match given.split_once('=') {
                Some((name, value)) => {
                    vars.insert(name.to_owned(), value.to_owned());
                }
                None if vars.remove(given).is_some() => {}
                None => return Err(Problem::plain("var", "expected a name and a value, such as `amount=12.50`")),
            }
        }
        Ok(vars)
    }
}

fn missing(column: &'static str) -> Problem {
    Problem::plain(column, "is missing: what the job does needs it")
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://hooks.example.com/bills";
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[derive(clap::Parser)]
    struct Words {
        #[command(flatten)]
        payload: PayloadText,
        #[command(flatten)]
        retry: RetryText,
    }

    fn words(words: &[&str]) -> Words {
        clap::Parser::parse_from(["x"].iter().chain(words))
    }

    fn read(given: &[&str], old: Option<&Payload>) -> Result<Payload, Problem> {
        let payload = words(given).payload;
        let secret = payload.secret_file.as_ref().map(|file| (file.as_os_str() != NONE).then(|| Secret::new(SECRET)));
        payload.read_over(old, secret)
    }

    #[test]
    fn each_kind_of_work_has_its_words() {
        let email = Payload::Email {
            to: "ana@example.com".into(),
            subject: "Bill".into(),
            text: "{{ vars.amount }}".into(),
            vars: [("amount".to_owned(), "a=b".to_owned())].into(),
        };
        let webhook = Payload::Webhook {
            url: URL.into(),
            body: "[]".into(),
            vars: Vars::new(),
            secret: Some(Secret::new(SECRET)),
        };
        for (given, expected) in [
            (&["--to", "+447700900123", "--text", "x"][..], Payload::sms("+447700900123", "x")),
            (
                &[
                    "--email-to",
                    "ana@example.com",
                    "--subject",
                    "Bill",
                    "--text",
                    "{{ vars.amount }}",
                    "--var",
                    "amount=a=b",
                ],
                email,
            ),
            (&["--webhook", URL, "--body", "[]", "--secret-file", "x"], webhook),
            (&["--queue", URL, "--body", "x"], Payload::Queue { url: URL.into(), body: "x".into(), vars: Vars::new() }),
            (&["--noop"], Payload::Noop),
        ] {
            assert_eq!(read(given, None), Ok(expected.clone()), "{given:?}");
            assert_eq!(read(&[], Some(&expected)), Ok(expected), "an edit without options changes nothing");
        }
    }

    #[test]
    fn an_edit_changes_what_is_given_and_nothing_else() {
        let old = read(&["--webhook", URL, "--body", "[]", "--secret-file", "x", "--var", "a=1", "--var", "b=2"], None)
            .unwrap();
        assert_eq!(read(&["--body", "{}"], Some(&old)).unwrap(), old.with_text("{}"));
        let unsigned = read(&["--secret-file", "none", "--var", "a", "--var", "b=3"], Some(&old)).unwrap();
        let vars = [("b".to_owned(), "3".to_owned())].into();
        assert_eq!(unsigned, Payload::Webhook { url: URL.into(), body: "[]".into(), vars, secret: None });
        let moved = read(&["--to", "+447700900123", "--text", "x"], Some(&old));
        assert_eq!(moved, Ok(Payload::sms("+447700900123", "x")), "another kind keeps nothing");
    }

    #[test]
    fn what_is_missing_or_does_not_fit_names_its_option() {
        for (given, column) in [
            (&[][..], "to"),
            (&["--to", "+447700900123", "--noop"], "to"),
            (&["--to", "+447700900123"], "text"),
            (&["--email-to", "ana@example.com", "--text", "x"], "subject"),
            (&["--webhook", URL], "body"),
            (&["--webhook", URL, "--body", "[]", "--text", "x"], "text"),
            (&["--queue", URL, "--body", "x", "--secret-file", "x"], "secret_file"),
            (&["--to", "+447700900123", "--text", "x", "--subject", "x"], "subject"),
            (&["--noop", "--var", "a=1"], "var"),
            (&["--to", "+447700900123", "--text", "x", "--var", "a"], "var"),
        ] {
            let problem = read(given, None).unwrap_err();
            assert_eq!(problem.column, column, "{given:?}: {problem:?}");
            assert!(!problem.text.contains("7700") && !problem.text.contains("hooks"), "{problem:?}");
        }
    }

    #[test]
    fn a_retry_rule_is_said_by_bounds_or_by_a_list() {
        let rule = |given: &[&str], old| words(given).retry.read_over(old).map_err(|problem| problem.column);
        let default = RetryRule::default();
        let list = RetryRule::with_waits(&[30, 120, 600]).unwrap();
        assert_eq!(rule(&[], default), Ok(default));
        assert_eq!(rule(&[], list), Ok(list));
        assert_eq!(rule(&["--retry-waits", "30s, 2m,10m"], default), Ok(list));
        assert_eq!(rule(&["--retry-waits", "none"], list), Ok(default));
        let given = ["--max-attempts", "3", "--retry-base", "5s", "--retry-cap", "1m"];
        assert_eq!(rule(&given, default), Ok(RetryRule { max_attempts: 3, base_s: 5, cap_s: 60, waits_s: None }));
        assert_eq!(rule(&["--max-attempts", "3"], list), Err("retry_waits"));
        assert_eq!(rule(&["--retry-waits", "30s", "--max-attempts", "3"], default), Err("retry_waits"));
        assert_eq!(rule(&["--retry-waits", "30"], default), Err("retry_waits"));
        assert_eq!(rule(&["--retry-waits", "2d"], default), Err("retry_waits"));
        assert_eq!(rule(&["--max-attempts", "21"], default), Err("max_attempts"));
        assert_eq!(rule(&["--retry-base", "2h"], default), Err("max_attempts"));
    }
}
