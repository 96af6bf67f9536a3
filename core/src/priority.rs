//! Priorities: `urgent`, `normal`, `bulk`. Each has one queue; they are named, never numbered.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How soon a run must start when there is more work than hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// One-time passwords, fraud alerts: seconds matter. Lives in due shards of its own and is never spread.
    Urgent,
    /// The ordinary reminder.
    Normal,
    /// Newsletters and the like: some time today.
    Bulk,
}

impl Priority {
    /// All priorities, the most urgent first.
    pub const ALL: [Priority; 3] = [Priority::Urgent, Priority::Normal, Priority::Bulk];

    /// The word used in files, messages, queue names and labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Priority::Urgent => "urgent",
            Priority::Normal => "normal",
            Priority::Bulk => "bulk",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Priority {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Priority::ALL
            .into_iter()
            .find(|p| p.as_str() == text)
            .ok_or_else(|| format!("`{text}` is not a priority: write `urgent`, `normal` or `bulk`"))
    }
}
