//! Quarantined jobs: those that dispatch could not understand and set aside for a person.

use super::insist;
use punctual_core::due::Shards;
use punctual_core::job::{JobKey, JobState};
use punctual_core::ports::{JobRead, PortResult, Ports};

/// Entries of the index that are read at a time.
const PAGE: usize = 100;

/// A tenant's quarantined jobs, by key: up to `limit` and whether there are more. Reads the quarantines of all shards.
///
/// # Errors
/// When the store still fails after several tries.
pub async fn quarantined(
    ports: &Ports,
    shards: &Shards,
    tenant: &str,
    limit: usize,
) -> PortResult<(Vec<(JobKey, JobRead)>, bool)> {
    let mut found = Vec::new();
    'shards: for shard in shards.all() {
        let mut after = None;
        loop {
            let page = insist(|| ports.due.quarantined(shard, after.clone(), PAGE)).await?;
            let keys = page.entries.into_iter().map(|entry| entry.key);
            let keys: Vec<JobKey> = keys.filter(|key| key.tenant() == tenant).collect();
            let jobs = insist(|| ports.jobs.get_many(&keys)).await?;
            // The index lags: what was released a moment ago is still in it.
            found.extend(jobs.into_iter().filter(|(_, read)| is_set_aside(read)));
            if found.len() > limit {
                break 'shards;
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    let more = found.len() > limit;
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found.truncate(limit);
    Ok((found, more))
}

fn is_set_aside(read: &JobRead) -> bool {
    read.job().is_none_or(|job| job.state == JobState::Quarantined)
}
