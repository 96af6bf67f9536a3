//! Steps 6 and 7: what operators say while everything runs: limits of targets, and holds.
//!
//! A hold stops the start of new calls for all, a tenant, a priority or a target; it loses nothing, and what is under
//! way goes on. All of it is one small item in the store, changed by compare-and-swap and read by every worker every
//! few seconds. Nothing here reads a clock or writes.

use crate::job::check_tenant;
use crate::priority::Priority;
use crate::target::Target;
use chrono::{DateTime, Utc};
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

/// Calls a second to the SMS gateway where nothing else was said: under its 500 (reference design).
pub const DEFAULT_SMS_LIMIT: NonZeroU32 = NonZeroU32::new(450).expect("450 is not 0");
/// Time between two reads of a worker.
pub const READ_EVERY: Duration = Duration::from_secs(2);
/// For so long a worker believes what it read, from the start of the read on; after that it begins nothing.
pub const BELIEVED_FOR: Duration = Duration::from_secs(10);
/// The largest limit, in calls a second.
pub const LARGEST_LIMIT: u32 = 100_000;
/// Limits and holds are read by every worker every few seconds: there may be this many of each.
pub const MOST_ENTRIES: usize = 100;
/// The longest reason of a hold, in bytes.
pub const LONGEST_WHY_BYTES: usize = 200;

/// Limits and holds in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steering {
    /// Raised by every change; 0 = nothing was ever said.
    pub revision: u64,
    /// Calls a second, where they were set.
    pub limits: BTreeMap<Target, NonZeroU32>,
    /// Holds, one a scope, the oldest first.
    pub holds: Vec<Hold>,
}

/// An operator's stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// What is held.
    pub scope: Scope,
    /// Who holds it.
    pub by: String,
    /// Why.
    pub why: String,
    /// Since when, in whole seconds.
    pub since: DateTime<Utc>,
}

/// What a hold is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Everything.
    All,
    /// The jobs of a tenant.
    Tenant(String),
    /// A priority's queue.
    Priority(Priority),
    /// Calls to a target.
    Target(Target),
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scope::All => f.write_str("all"),
            Scope::Tenant(tenant) => write!(f, "tenant/{tenant}"),
            Scope::Priority(priority) => write!(f, "priority/{priority}"),
            Scope::Target(target) => write!(f, "target/{target}"),
        }
    }
}

impl std::str::FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once('/') {
            None if text == "all" => Ok(Scope::All),
            Some(("tenant", tenant)) => check_tenant(tenant).map(|()| Scope::Tenant(tenant.to_owned())),
            Some(("priority", priority)) => priority.parse().map(Scope::Priority),
            Some(("target", target)) => target.parse().map(Scope::Target),
            _ => Err(format!(
                "`{text}` is no scope of a hold: write `all`, `tenant/bank`, `priority/bulk` or `target/sms`"
            )),
        }
    }
}

impl Scope {
    /// Whether this can be told from a message alone, without its job.
    fn covers_message(&self, tenant: &str, priority: Priority) -> bool {
        match self {
            Scope::All => true,
            Scope::Tenant(held) => held == tenant,
            Scope::Priority(held) => *held == priority,
            Scope::Target(_) => false,
        }
    }
}

impl Steering {
    /// The limit of a target, in calls a second; none = it has none.
    pub fn limit(&self, target: &Target) -> Option<NonZeroU32> {
        let default = || (*target == Target::sms()).then_some(DEFAULT_SMS_LIMIT);
        self.limits.get(target).copied().or_else(default)
    }

    /// All targets with a limit, and that.
    pub fn limited(&self) -> BTreeMap<Target, NonZeroU32> {
        let mut limited = BTreeMap::from([(Target::sms(), DEFAULT_SMS_LIMIT)]);
        limited.extend(self.limits.iter().map(|(target, limit)| (target.clone(), *limit)));
        limited
    }

    /// The hold that stands over runs of a tenant, with this priority, to this target.
    pub fn hold(&self, tenant: &str, priority: Priority, target: &Target) -> Option<&Hold> {
        let is_over = |scope: &Scope| {
            scope.covers_message(tenant, priority) || matches!(scope, Scope::Target(held) if held == target)
        };
        self.holds.iter().find(|hold| is_over(&hold.scope))
    }

    /// The hold that stands over a message, as far as that can be told before its job is read.
    pub fn hold_before_reading(&self, tenant: &str, priority: Priority) -> Option<&Hold> {
        self.holds.iter().find(|hold| hold.scope.covers_message(tenant, priority))
    }

    /// Whether a whole queue is held, so that nothing need be received from it.
    pub fn holds_queue(&self, priority: Priority) -> bool {
        self.holds.iter().any(|hold| match &hold.scope {
            Scope::All => true,
            Scope::Priority(held) => *held == priority,
            Scope::Tenant(_) | Scope::Target(_) => false,
        })
    }

    /// With this limit of a target, in calls a second.
    ///
    /// # Errors
    /// When the limit is out of range, or there are too many.
    pub fn with_limit(&self, target: Target, per_second: u32) -> Result<Self, String> {
        if per_second == 0 {
            return Err(format!("a limit of 0 would stop {target}: use a hold (`punctual hold target {target}`)"));
        }
        let limit = NonZeroU32::new(per_second).filter(|limit| limit.get() <= LARGEST_LIMIT);
        let limit =
            limit.ok_or_else(|| format!("a limit of {per_second} a second is out of range 1-{LARGEST_LIMIT}"))?;
        if self.limits.len() >= MOST_ENTRIES && !self.limits.contains_key(&target) {
            return Err(format!("there are {MOST_ENTRIES} limits already: unset one that is not needed"));
        }
        let mut to = self.next();
        to.limits.insert(target, limit);
        Ok(to)
    }

    /// Without a limit of its own for a target.
    pub fn without_limit(&self, target: &Target) -> Self {
        let mut to = self.next();
        to.limits.remove(target);
        to
    }

    /// With this hold, in the place of one of the same scope. Said again by the same person for the same reason, it stays
    /// as it is.
    ///
    /// # Errors
    /// When its reason is missing or too long, or there are too many.
    pub fn with_hold(&self, hold: Hold) -> Result<Self, String> {
        if hold.why.trim().is_empty() || hold.why.len() > LONGEST_WHY_BYTES {
            return Err(format!("a reason has {} bytes: 1 to {LONGEST_WHY_BYTES} are allowed", hold.why.len()));
        }
        let is_same = |old: &Hold| (&old.scope, &old.by, &old.why) == (&hold.scope, &hold.by, &hold.why);
        if self.holds.iter().any(is_same) {
            return Ok(self.clone());
        }
        let mut to = self.without_hold(&hold.scope);
        if to.holds.len() >= MOST_ENTRIES {
            return Err(format!("there are {MOST_ENTRIES} holds already: release one, or hold all"));
        }
        to.holds.push(hold);
        Ok(to)
    }

    /// Without the hold of this scope.
    pub fn without_hold(&self, scope: &Scope) -> Self {
        let mut to = self.next();
        to.holds.retain(|hold| hold.scope != *scope);
        to
    }

    /// Whether both say the same, whatever their revisions.
    pub fn says_as(&self, other: &Steering) -> bool {
        (&self.limits, &self.holds) == (&other.limits, &other.holds)
    }

    fn next(&self) -> Self {
        Steering { revision: self.revision + 1, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(scope: Scope) -> Hold {
        Hold { scope, by: "ann".into(), why: "gateway maintenance".into(), since: DateTime::UNIX_EPOCH }
    }

    #[test]
    fn sms_has_a_limit_until_another_is_set_and_all_else_has_none() {
        let nothing = Steering::default();
        let hook = Target::webhook("hooks.example.com");
        assert_eq!(nothing.limit(&Target::sms()), Some(DEFAULT_SMS_LIMIT));
        assert_eq!(nothing.limit(&hook), None);
        let set = nothing.with_limit(Target::sms(), 100).unwrap().with_limit(hook.clone(), 5).unwrap();
        assert_eq!((set.limit(&Target::sms()), set.limit(&hook)), (NonZeroU32::new(100), NonZeroU32::new(5)));
        assert_eq!((set.revision, set.limited().len()), (2, 2));
        let unset = set.without_limit(&Target::sms()).without_limit(&hook);
        assert!(unset.says_as(&nothing) && unset.limit(&Target::sms()) == Some(DEFAULT_SMS_LIMIT));
    }

    #[test]
    fn a_limit_of_nothing_is_refused_and_names_the_hold() {
        let nothing = Steering::default();
        assert!(nothing.with_limit(Target::sms(), 0).unwrap_err().contains("punctual hold target sms"));
        assert!(nothing.with_limit(Target::sms(), 100_001).unwrap_err().contains("1-100000"));
        assert!(nothing.with_limit(Target::sms(), 100_000).is_ok());
        let full = (0..MOST_ENTRIES).fold(nothing, |steering, n| {
            steering.with_limit(Target::webhook(&format!("h{n}.example.com")), 1).unwrap()
        });
        assert!(full.with_limit(Target::sms(), 1).unwrap_err().contains("100 limits already"));
        assert!(full.with_limit(Target::webhook("h7.example.com"), 2).is_ok(), "one that is there can be changed");
    }

    #[test]
    fn each_scope_holds_what_it_names_and_nothing_else() {
        let hook = Target::webhook("hooks.example.com");
        let over = |scope: Scope| {
            let steering = Steering::default().with_hold(hold(scope)).unwrap();
            let of = |tenant: &str, priority, target: &Target| {
                let message = steering.hold_before_reading(tenant, priority).is_some();
                let job = steering.hold(tenant, priority, target).is_some();
                assert!(job || !message, "what holds a message holds its run");
                (message, job)
            };
            let bank = of("bank", Priority::Normal, &Target::sms());
            (bank, of("shop", Priority::Bulk, &hook), steering.holds_queue(Priority::Bulk))
        };
        let (no, by_job, by_message) = ((false, false), (false, true), (true, true));
        assert_eq!(over(Scope::All), (by_message, by_message, true));
        assert_eq!(over(Scope::Tenant("bank".into())), (by_message, no, false));
        assert_eq!(over(Scope::Priority(Priority::Bulk)), (no, by_message, true));
        assert_eq!(over(Scope::Target(Target::sms())), (by_job, no, false));
    }

    #[test]
    fn a_scope_is_held_once_and_goes_with_its_release() {
        let first = Steering::default().with_hold(hold(Scope::All)).unwrap();
        let again = first.with_hold(Hold { why: "longer".into(), ..hold(Scope::All) }).unwrap();
        assert_eq!((again.holds.len(), again.holds[0].why.as_str()), (1, "longer"));
        let later = Hold { since: DateTime::UNIX_EPOCH + chrono::TimeDelta::hours(1), ..hold(Scope::All) };
        assert_eq!(first.with_hold(later).unwrap(), first, "said again, it stands since when it did");
        assert_eq!(again.without_hold(&Scope::All).holds, []);
        assert!(again.without_hold(&Scope::Tenant("bank".into())).says_as(&again));
        assert!(first.with_hold(Hold { why: " ".into(), ..hold(Scope::All) }).unwrap_err().contains("1 to 200"));
        let full = (0..MOST_ENTRIES).fold(Steering::default(), |steering, n| {
            steering.with_hold(hold(Scope::Tenant(format!("t-{n}")))).unwrap()
        });
        assert!(full.with_hold(hold(Scope::All)).unwrap_err().contains("100 holds already"));
    }

    #[test]
    fn a_scope_reads_back_from_its_text() {
        for text in ["all", "tenant/bank", "priority/bulk", "target/sms", "target/webhook/hooks.example.com"] {
            assert_eq!(text.parse::<Scope>().unwrap().to_string(), text);
        }
        for bad in ["", "All", "tenant/", "tenant/a b", "priority/low", "target/pager", "job/x"] {
            assert!(bad.parse::<Scope>().is_err(), "{bad}");
        }
    }
}
