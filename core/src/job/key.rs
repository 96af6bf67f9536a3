//! The identity of a job.

use serde::{Deserialize, Serialize};
use std::fmt;

const LONGEST_ID_BYTES: usize = 128;
const LONGEST_TENANT_BYTES: usize = 64;

/// Identity of a job over all tenants: `tenant/id`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct JobKey(String);

impl JobKey {
    /// Builds the key of job `id` of `tenant`.
    ///
    /// # Errors
    /// Names the part that is wrong and what is allowed.
    pub fn new(tenant: &str, id: &str) -> Result<Self, String> {
        check_tenant(tenant)?;
        check_name(id, "job id", LONGEST_ID_BYTES, "._-/")?;
        if id.starts_with('/') || id.ends_with('/') || id.contains("//") {
            return Err(format!("job id `{id}` has an empty part: write `a/b`, with no `/` at either end"));
        }
        Ok(JobKey(format!("{tenant}/{id}")))
    }

    /// The whole key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The tenant.
    pub fn tenant(&self) -> &str {
        self.0.split_once('/').map_or("", |(tenant, _)| tenant)
    }

    /// The id within the tenant.
    pub fn id(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, id)| id)
    }
}

/// Whether a tenant may be called so.
///
/// # Errors
/// Says what is allowed.
pub fn check_tenant(tenant: &str) -> Result<(), String> {
    check_name(tenant, "tenant", LONGEST_TENANT_BYTES, "._-")
}

fn check_name(text: &str, what: &str, longest: usize, extra: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > longest {
        return Err(format!("{what} has {} bytes: 1 to {longest} are allowed", text.len()));
    }
    match text.chars().find(|c| !c.is_ascii_alphanumeric() && !extra.contains(*c)) {
        Some(c) => {
            Err(format!("{what} `{text}` holds `{}`: allowed are letters, digits and `{extra}`", c.escape_debug()))
        }
        None => Ok(()),
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for JobKey {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let (tenant, id) =
            text.split_once('/').ok_or_else(|| format!("`{text}` is not a job key: expected `tenant/id`"))?;
        JobKey::new(tenant, id)
    }
}

impl From<JobKey> for String {
    fn from(key: JobKey) -> String {
        key.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_refuses_what_would_break_run_ids_and_prefixes() {
        assert_eq!(JobKey::new("bank", "48213/bill").unwrap().as_str(), "bank/48213/bill");
        assert_eq!(JobKey::new("bank", "48213/bill").unwrap().id(), "48213/bill");
        for (tenant, id) in
            [("", "1"), ("a/b", "1"), ("a", ""), ("a", "1:2"), ("a", "/1"), ("a", "1/"), ("a", "1//2"), ("a", "é")]
        {
            assert!(JobKey::new(tenant, id).is_err(), "{tenant} {id}");
        }
        assert!(JobKey::new("a", &"x".repeat(129)).is_err());
    }
}
