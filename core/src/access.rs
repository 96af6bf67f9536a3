//! Who may ask for what: the keys that callers of the HTTP API show.
//!
//! A key is told by its id and proven by its secret, of which the store has the hash only; its tenant and its role say what
//! it opens. All keys are one item in the store, changed by compare-and-swap. Nothing here reads a clock or draws a secret.

use crate::job::{RETENTION, check_tenant};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

/// How many keys there may be: all are read as one item.
pub const MOST_KEYS: usize = 1_000;
/// The longest label, in bytes.
pub const LONGEST_LABEL_BYTES: usize = 64;

const MARK: &str = "punctual";
const SECRET_DIGITS: usize = 48;

/// What a key opens; each role opens what those before it do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Looking, without payloads.
    Read,
    /// Making, changing and running jobs.
    Write,
    /// Holds, limits, replays, and what was lost.
    Operate,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 3] = [Role::Read, Role::Write, Role::Operate];

    /// The word for tables and files.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Write => "write",
            Role::Operate => "operate",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let role = Role::ALL.into_iter().find(|role| role.as_str() == text);
        role.ok_or_else(|| "a role is `read`, `write` or `operate`".into())
    }
}

/// Whose jobs a key opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// One tenant's.
    Tenant(String),
    /// Everybody's: for who runs the installation. It alone reaches what concerns all tenants.
    Everyone,
}

impl Reach {
    /// Whether this opens the jobs of a tenant.
    pub fn covers(&self, tenant: &str) -> bool {
        match self {
            Reach::Tenant(own) => own == tenant,
            Reach::Everyone => true,
        }
    }
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reach::Tenant(tenant) => tenant,
            Reach::Everyone => "*",
        })
    }
}

impl std::str::FromStr for Reach {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "*" => Ok(Reach::Everyone),
            tenant => check_tenant(tenant).map(|()| Reach::Tenant(tenant.to_owned())),
        }
    }
}

/// A key as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiKey {
    /// Tells it from others; no secret.
    pub id: String,
    /// SHA-256 of the whole key as its holder shows it. The secret in it is random and long: nothing slower is needed.
    pub hash: [u8; 32],
    /// Whose jobs it opens.
    pub reach: Reach,
    /// What it opens of them.
    pub role: Role,
    /// Who holds it, for people.
    pub label: String,
    /// Who made it.
    pub made_by: String,
    /// When, in whole seconds.
    pub made_at: DateTime<Utc>,
    /// When it was revoked; none = it opens.
    pub revoked_at: Option<DateTime<Utc>>,
}

impl ApiKey {
    /// A key, and the text that its holder shows: it is told once, here. `id` and `secret` are fresh and random.
    ///
    /// # Panics
    /// Unless the id is 8, and the secret 48 hexadecimal digits.
    pub fn new(
        id: &str,
        secret: &str,
        reach: Reach,
        role: Role,
        label: &str,
        by: &str,
        now: DateTime<Utc>,
    ) -> Result<(ApiKey, String), String> {
        let is_hex = |text: &str, digits| text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(is_hex(id, 8) && is_hex(secret, SECRET_DIGITS), "id and secret of a key are random");
        if label.trim().is_empty() || label.len() > LONGEST_LABEL_BYTES || label.chars().any(char::is_control) {
            return Err(format!("a label is 1 to {LONGEST_LABEL_BYTES} bytes on one line, such as `billing service`"));
        }
        let text = format!("{MARK}_{id}_{secret}");
        let key = ApiKey {
            id: id.to_owned(),
            hash: hash_of(&text),
            reach,
            role,
            label: label.to_owned(),
            made_by: by.to_owned(),
            made_at: now,
            revoked_at: None,
        };
        Ok((key, text))
    }
}

/// All keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApiKeys {
    /// Raised by every change; 0 = there never was a key.
    pub revision: u64,
    /// The keys, the oldest first.
    pub keys: Vec<ApiKey>,
}

impl ApiKeys {
    /// The key that this text is, if it opens anything. Takes the same time for a wrong secret as for a right one.
    pub fn holder(&self, text: &str) -> Option<&ApiKey> {
        let id = text.strip_prefix(MARK)?.strip_prefix('_')?.split_once('_')?.0;
        let key = self.keys.iter().find(|key| key.id == id)?;
        let is_right = bool::from(hash_of(text).ct_eq(&key.hash));
        (is_right && key.revoked_at.is_none()).then_some(key)
    }

    /// With one key more; those that were revoked long ago are left out.
    ///
    /// # Errors
    /// When there are too many.
    pub fn with(&self, key: ApiKey, now: DateTime<Utc>) -> Result<Self, String> {
        let mut keys = self.keys.clone();
        if keys.iter().any(|old| old.id == key.id) {
            // A repeat of a change whose answer was lost.
            return Ok(self.clone());
        }
        keys.retain(|key| key.revoked_at.is_none_or(|at| crate::run::plus(at, RETENTION) > now));
        if keys.len() >= MOST_KEYS {
            return Err(format!("there are {MOST_KEYS} keys already: revoke one that is not needed"));
        }
        keys.push(key);
        Ok(ApiKeys { revision: self.revision + 1, keys })
    }

    /// With the key of this id revoked; none = there is none that opens.
    pub fn without(&self, id: &str, now: DateTime<Utc>) -> Option<Self> {
        let mut to = ApiKeys { revision: self.revision + 1, keys: self.keys.clone() };
        to.keys.iter_mut().find(|key| key.id == id && key.revoked_at.is_none())?.revoked_at = Some(now);
        Some(to)
    }
}

fn hash_of(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "00112233445566778899aabbccddeeff0011223344556677";

    fn at(s: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_790_000_000 + s, 0).unwrap()
    }

    fn key(id: &str) -> (ApiKey, String) {
        let secret = format!("{id}{}", &SECRET[8..]);
        ApiKey::new(id, &secret, Reach::Tenant("bank".into()), Role::Write, "billing", "ann", at(0)).unwrap()
    }

    #[test]
    fn only_the_whole_key_opens_and_a_revoked_one_does_not() {
        let ((a, text), (b, _)) = (key("0000000a"), key("0000000b"));
        let keys = ApiKeys::default().with(a.clone(), at(0)).unwrap().with(b, at(0)).unwrap();
        assert_eq!(keys.holder(&text), Some(&a));
        let other_secret = format!("{}8", &text[..text.len() - 1]);
        for wrong in
            ["", "punctual", "punctual_0000000a_", "0000000a", &text[1..], &text[..text.len() - 1], &other_secret]
        {
            assert_eq!(keys.holder(wrong), None, "{wrong}");
        }
        assert_eq!(keys.holder(&text.replacen("0000000a", "0000000b", 1)), None, "a secret belongs to its id");
        let revoked = keys.without("0000000a", at(9)).unwrap();
        assert_eq!((revoked.holder(&text), revoked.revision), (None, 3));
        assert_eq!(revoked.without("0000000a", at(9)), None);
    }

    #[test]
    fn what_was_revoked_long_ago_makes_room() {
        let mut keys = ApiKeys::default();
        for n in 0..MOST_KEYS {
            keys = keys.with(key(&format!("{n:08x}")).0, at(0)).unwrap();
        }
        assert!(keys.with(key("ffffffff").0, at(0)).unwrap_err().contains("1000 keys"));
        let revoked = keys.without("00000000", at(0)).unwrap();
        assert!(revoked.with(key("ffffffff").0, at(60)).is_err(), "it is still told who had it");
        assert!(revoked.with(key("ffffffff").0, at(61 * 86_400)).is_ok());
    }

    #[test]
    fn roles_and_tenants_open_what_they_say() {
        assert!(Role::Read < Role::Write && Role::Write < Role::Operate);
        assert!("admin".parse::<Role>().is_err());
        let bank: Reach = "bank".parse().unwrap();
        assert!(bank.covers("bank") && !bank.covers("bank2"));
        assert!("*".parse::<Reach>().unwrap().covers("bank"));
        assert!("a/b".parse::<Reach>().is_err());
        let label = |label: &str| ApiKey::new("0000000a", SECRET, Reach::Everyone, Role::Read, label, "ann", at(0));
        assert!(label("").is_err() && label("a\nb").is_err() && label(&"x".repeat(65)).is_err());
    }
}
