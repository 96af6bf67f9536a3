//! Settings of one worker, and the words of the `punctual-worker` command.

mod policies;

pub use policies::{Policies, PolicyArgs};

use crate::rate::Sharing;
use clap::Parser;
use punctual_core::address::AllowList;
use punctual_core::aws::Names;
use punctual_core::circuit::{CircuitRule, JUDGED};
use punctual_core::lease::LeaseTimes;
use punctual_core::payload::Payload;
use punctual_core::priority::Priority;
use punctual_core::retry::GatewayPolicy;
use punctual_core::telemetry::Ways;
use punctual_core::turns::SlotCounts;
use punctual_core::zone::Zones;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// Takes runs from the queues and does their work: texts, emails, webhooks, other queues. Stops on SIGTERM.
#[derive(Debug, Parser)]
#[command(name = "punctual-worker", version, about, long_about = None, after_help = "\
AWS is found as all AWS tools find it: AWS_REGION, credentials, AWS_ENDPOINT_URL_DYNAMODB, AWS_ENDPOINT_URL_SQS.
PUNCTUAL_FAIR_QUEUES=1, here and on all schedulers, makes the tenant the message group of SQS's fair queues.
Logs go to standard error; PUNCTUAL_LOG filters them (default `info`), PUNCTUAL_LOG_FORMAT=json for machines.
Exit codes: 0 stopped in order, 1 failed, 2 wrong settings.")]
pub struct Cli {
    /// First part of the names of all tables and queues.
    #[arg(long = "store-prefix", env = "PUNCTUAL_STORE_PREFIX", default_value = "punctual")]
    pub prefix: String,
    /// Name of this worker in rows and logs; a random part is added.
    #[arg(long, env = "PUNCTUAL_WORK_ID", default_value = "worker")]
    pub id: String,
    /// Where the SMS gateway takes messages, such as `https://gateway.example/v1/sms`. Without it, text messages are left to
    /// workers that have one.
    #[arg(long, env = "PUNCTUAL_SMS_URL", hide_env_values = true)]
    pub sms_url: Option<String>,
    /// The mail server: `smtps://user:password@mail.example.com`, or `smtp://` for STARTTLS, which a server on another host must
    /// offer. Without this setting, emails are left to workers that have it.
    #[arg(long, env = "PUNCTUAL_SMTP_URL", hide_env_values = true)]
    pub smtp_url: Option<String>,
    /// Whom emails are from, such as `bills@example.com`.
    #[arg(long, env = "PUNCTUAL_EMAIL_FROM")]
    pub email_from: Option<String>,
    /// Hosts that jobs may name whatever their addresses are, also over plain HTTP: `host`, `address`, `host:port`, separated
    /// by commas.
    #[arg(long, env = "PUNCTUAL_WEBHOOK_ALLOW", default_value = "")]
    pub webhook_allow: String,
    /// What becomes of repeats.
    #[command(flatten)]
    pub policies: PolicyArgs,
    /// Calls under way at once.
    #[arg(long, env = "PUNCTUAL_WORK_SLOTS", default_value_t = 20)]
    pub slots: usize,
    /// Use a fixed part of each limit, one of so many, instead of shares under lease: for functions, of which at most so
    /// many run at once.
    #[arg(long, env = "PUNCTUAL_WORK_MAX_CONCURRENCY")]
    pub max_concurrency: Option<NonZeroU32>,
    /// Messages of each priority held at once, those in a slot included; twice the slots keep all of them busy.
    #[arg(long, env = "PUNCTUAL_WORK_PREFETCH", default_value_t = 40)]
    pub prefetch: usize,
    /// Queues to read, such as `urgent` for workers that are kept for one-time passwords.
    #[arg(long, env = "PUNCTUAL_WORK_PRIORITIES", value_delimiter = ',', default_values_t = Priority::ALL)]
    pub priorities: Vec<Priority>,
    /// Of the messages held, the most of one tenant, in percent; what is above that waits until about its turn.
    #[arg(long, env = "PUNCTUAL_WORK_TENANT_PERCENT", default_value_t = 100)]
    pub tenant_percent: u8,
    /// Slots for webhooks, all hosts together; half of them unless given.
    #[arg(long, env = "PUNCTUAL_WORK_WEBHOOK_SLOTS")]
    pub webhook_slots: Option<usize>,
    /// Slots for the webhooks of one host; a quarter of them unless given.
    #[arg(long, env = "PUNCTUAL_WORK_HOST_SLOTS")]
    pub host_slots: Option<usize>,
    /// Failed calls among the latest 20 after which a target is left alone for a while, if they are half of these; 0 = never.
    #[arg(long, env = "PUNCTUAL_WORK_CIRCUIT_FAILURES", default_value_t = 10)]
    pub circuit_failures: usize,
    /// Seconds after which an unanswered call counts as unknown.
    #[arg(long, env = "PUNCTUAL_WORK_ATTEMPT_TIMEOUT_S", default_value_t = 10)]
    pub attempt_timeout_s: u64,
    /// Seconds for which a received message stays invisible to others.
    #[arg(long, env = "PUNCTUAL_WORK_VISIBILITY_S", default_value_t = 60)]
    pub visibility_s: u64,
    /// Seconds between extensions of that time.
    #[arg(long, env = "PUNCTUAL_WORK_HEARTBEAT_S", default_value_t = 20)]
    pub heartbeat_s: u64,
    /// For how many seconds after an extension a worker trusts it.
    #[arg(long, env = "PUNCTUAL_WORK_TRUST_S", default_value_t = 50)]
    pub trust_s: u64,
    /// Seconds beyond its lease that the holder of a run is given before the run is taken over; at least the largest
    /// offset between two hosts' clocks.
    #[arg(long, env = "PUNCTUAL_WORK_TAKEOVER_GRACE_S", default_value_t = 30)]
    pub takeover_grace_s: u64,
    /// Seconds to finish what is under way when told to stop.
    #[arg(long, env = "PUNCTUAL_WORK_STOP_S", default_value_t = 25)]
    pub stop_s: u64,
    /// File that is written each second while the worker gets somewhere, for a health check.
    #[arg(long, env = "PUNCTUAL_WORK_ALIVE_FILE")]
    pub alive_file: Option<PathBuf>,
    /// Only say whether the worker that keeps that file gets anywhere: exit code 0, or 1 when it was not written for 30 s.
    #[arg(long)]
    pub check_alive: bool,
    /// Directory of zone rules (TZif); without it the newer of the embedded rules and the system's.
    #[arg(long, env = "PUNCTUAL_TZDIR")]
    pub tzdir: Option<PathBuf>,
}

/// Checked settings.
#[derive(Clone, Debug)]
pub struct WorkSettings {
    /// Which queues are read.
    pub priorities: Vec<Priority>,
    /// Calls under way at once.
    pub slots: SlotCounts,
    /// Messages of each priority held at once.
    pub prefetch: usize,
    /// Of these, of one tenant.
    pub tenant_in_hand: usize,
    /// When no calls are made to a target that fails.
    pub circuit: CircuitRule,
    /// How this worker comes to its part of each limit.
    pub sharing: Sharing,
    /// The times of rate shares under lease. All workers must go by the same.
    pub share_leases: LeaseTimes,
    /// What each handler's receivers do with repeats.
    pub policies: Policies,
    /// Hosts that jobs may name whatever their addresses are.
    pub webhook_allow: AllowList,
    /// Bound of one call.
    pub attempt_timeout: Duration,
    /// How long a row stays ours after begin: the call and the time to record it.
    pub row_lease: Duration,
    /// Beyond that, how long others wait.
    pub takeover_grace: Duration,
    /// How long a message stays invisible.
    pub visibility: Duration,
    /// Time between extensions.
    pub heartbeat: Duration,
    /// How long an extension is trusted.
    pub trust: Duration,
    /// How long one receive waits.
    pub poll: Duration,
    /// Time to finish when told to stop.
    pub stop: Duration,
    /// Kept fresh while the worker gets somewhere.
    pub alive_file: Option<PathBuf>,
}

/// Time to record an outcome, beyond the call itself.
pub const RECORD_MARGIN: Duration = Duration::from_secs(5);
/// A receive waits this long for a message; longer waits only make a stop slower.
const POLL: Duration = Duration::from_secs(5);

impl WorkSettings {
    /// What the receivers of a payload do with repeats.
    pub fn policy(&self, payload: &Payload) -> GatewayPolicy {
        self.policies.of(payload.handler())
    }
}

/// What a worker goes by, when all of it is right.
#[derive(Debug)]
pub struct Checked {
    /// Tables and queues.
    pub names: Names,
    /// How it works.
    pub settings: WorkSettings,
    /// The zone rules.
    pub zones: Zones,
    /// Where its metrics and spans go.
    pub ways: Ways,
}

impl Cli {
    /// Checks everything, and loads the zone rules.
    ///
    /// # Errors
    /// One line for each problem.
    pub fn checked(&self) -> Result<Checked, Vec<String>> {
        let s = Duration::from_secs;
        let mut problems = Vec::new();
        let ways = Ways::from_env().map_err(|e| problems.extend(e)).ok();
        let names = Names::new(&self.prefix).map_err(|e| problems.push(e)).ok();
        let zones = Zones::load(self.tzdir.as_deref()).map_err(|e| problems.push(e.to_string())).ok();
        problems.extend(self.sms_url.as_deref().and_then(|url| check_url(url).err()));
        let webhook_allow = self.webhook_allow.parse::<AllowList>();
        let webhook_allow = webhook_allow.map_err(|e| problems.push(format!("PUNCTUAL_WEBHOOK_ALLOW: {e}"))).ok();
        if self.smtp_url.is_some() != self.email_from.is_some() {
            problems.push("PUNCTUAL_SMTP_URL and PUNCTUAL_EMAIL_FROM belong together: give both or none".into());
        }
        if reqwest::header::HeaderValue::from_str(&self.id).is_err() || self.id.is_empty() {
            problems.push("PUNCTUAL_WORK_ID must be printable ASCII: it is sent to the gateway".into());
        }
        if !(1..=1_000).contains(&self.slots) || !(1..=1_000).contains(&self.prefetch) {
            problems.push(format!("{} slots and {} prefetched: 1 to 1000 are allowed", self.slots, self.prefetch));
        }
        if !(1..=100).contains(&self.tenant_percent) {
            problems.push(format!("a tenant's part of {} % is out of range 1-100", self.tenant_percent));
        }
        if self.circuit_failures > JUDGED {
            problems.push(format!(
                "{} failures of the latest {JUDGED} calls: 0 to {JUDGED} are possible",
                self.circuit_failures
            ));
        }
        let slots = self.slot_counts().map_err(|e| problems.push(e)).ok();
        if !(1..=900).contains(&self.attempt_timeout_s) {
            problems.push(format!("an attempt timeout of {} s is out of range 1-900", self.attempt_timeout_s));
        } else if s(self.attempt_timeout_s) + RECORD_MARGIN > s(self.stop_s) {
            problems.push(format!(
                "a stop time of {} s is too short for an attempt of {} s and {} s to record it: calls would be cut off",
                self.stop_s,
                self.attempt_timeout_s,
                RECORD_MARGIN.as_secs()
            ));
        }
        // A heartbeat comes up to a quarter late, and a lost one must leave time for another.
        let orders = self.heartbeat_s > 0
            && self.heartbeat_s.saturating_mul(2) < self.trust_s
            && self.trust_s < self.visibility_s
            && self.visibility_s <= 43_200;
        if !orders {
            problems.push(format!(
                "heartbeat {} s, trust {} s, visibility {} s: two heartbeats must be shorter than the trust, the trust \
                 shorter than the visibility, and that at most 43200 s",
                self.heartbeat_s, self.trust_s, self.visibility_s
            ));
        }
        if !(1..=600).contains(&self.takeover_grace_s) {
            problems.push(format!("a take-over grace of {} s is out of range 1-600", self.takeover_grace_s));
        }
        let (Some(names), Some(zones), Some(slots), Some(webhook_allow), Some(ways), true) =
            (names, zones, slots, webhook_allow, ways, problems.is_empty())
        else {
            return Err(problems);
        };
        let settings = WorkSettings {
            priorities: Priority::ALL.into_iter().filter(|p| self.priorities.contains(p)).collect(),
            slots,
            prefetch: self.prefetch,
            tenant_in_hand: (self.prefetch * usize::from(self.tenant_percent)).div_ceil(100),
            circuit: CircuitRule { failures: self.circuit_failures, ..CircuitRule::default() },
            sharing: self.max_concurrency.map_or(Sharing::Leased, Sharing::Static),
            share_leases: LeaseTimes::default(),
            policies: Policies::from(&self.policies),
            webhook_allow,
            attempt_timeout: s(self.attempt_timeout_s),
            row_lease: s(self.attempt_timeout_s) + RECORD_MARGIN,
            takeover_grace: s(self.takeover_grace_s),
            visibility: s(self.visibility_s),
            heartbeat: s(self.heartbeat_s),
            trust: s(self.trust_s),
            poll: POLL.min(s(self.visibility_s - self.trust_s)),
            stop: s(self.stop_s),
            alive_file: self.alive_file.clone(),
        };
        Ok(Checked { names, settings, zones, ways })
    }
}

impl Cli {
    /// A worker that reads no urgent queue keeps no slots for it, and one that reads nothing else needs not to.
    fn slot_counts(&self) -> Result<SlotCounts, String> {
        let usual = SlotCounts::of(self.slots);
        let is_mixed = self.priorities.contains(&Priority::Urgent) && self.priorities.len() > 1;
        let counts = SlotCounts {
            urgent_only: if is_mixed { usual.urgent_only } else { 0 },
            webhooks: self.webhook_slots.unwrap_or(usual.webhooks),
            host: self.host_slots.unwrap_or(usual.host),
            ..usual
        };
        // A number of slots that is out of range is a problem of its own.
        if self.slots == 0
            || (1..=counts.all).contains(&counts.webhooks) && (1..=counts.webhooks).contains(&counts.host)
        {
            Ok(counts)
        } else {
            Err(format!(
                "{} slots for webhooks, {} for one host: 1 to {} are possible, and a host has at most what all have",
                counts.webhooks, counts.host, counts.all
            ))
        }
    }
}

fn check_url(text: &str) -> Result<(), String> {
    let usable = reqwest::Url::parse(text).is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    // The address may hold a key: it is not repeated.
    if usable {
        Ok(())
    } else {
        Err("PUNCTUAL_SMS_URL must be an address such as `https://gateway.example/v1/sms`".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(args: &[&str]) -> Vec<String> {
        let args = ["punctual-worker", "--sms-url", "http://127.0.0.1:1/v1/sms"].iter().chain(args);
        Cli::parse_from(args).checked().err().unwrap_or_default()
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        assert!(problems(&[]).is_empty());
        let found =
            problems(&["--heartbeat-s", "60", "--slots", "0", "--takeover-grace-s", "0", "--store-prefix", "a b"]);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(problems(&["--trust-s", "60"])[0].contains("shorter than the visibility"));
        assert!(problems(&["--heartbeat-s", "25"])[0].contains("two heartbeats"));
        assert!(problems(&["--attempt-timeout-s", "60"])[0].contains("calls would be cut off"));
        assert!(problems(&["--takeover-grace-s", "0"])[0].contains("1-600"));
        assert!(problems(&["--webhook-allow", "a b"])[0].contains("PUNCTUAL_WEBHOOK_ALLOW"));
        assert!(problems(&["--smtp-url", "smtps://mail.example.com"])[0].contains("belong together"));
        for url in ["http://", "https://exa mple", "ftp://gateway.example", "gateway.example"] {
            let cli = Cli::parse_from(["punctual-worker", "--sms-url", url]);
            assert!(cli.checked().unwrap_err()[0].contains("PUNCTUAL_SMS_URL"), "{url}");
        }
    }
}
