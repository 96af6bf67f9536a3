//! Leases in memory.

use super::World;
use crate::due::Minute;
use crate::lease::{Lease, LeaseId};
use crate::ports::{Claim, LeaseStore, PortResult};
use async_trait::async_trait;

#[async_trait]
impl LeaseStore for World {
    async fn list(&self) -> PortResult<Vec<Lease>> {
        Ok(self.leases())
    }

    async fn init(&self, id: &LeaseId, cursor: Minute) -> PortResult<()> {
        let free = || Lease { id: id.clone(), owner: None, counter: 0, cursor: Some(cursor), wanted_by: None };
        self.state().leases.entry(id.clone()).or_insert_with(free);
        Ok(())
    }

    async fn take(&self, id: &LeaseId, observed: Option<&Lease>, owner: &str) -> PortResult<Claim> {
        let mut state = self.state();
        let Some(lease) = state.leases.get_mut(id) else {
            if observed.is_some() {
                return Ok(Claim::Lost);
            }
            let owner = Some(owner.to_owned());
            let taken = Lease { id: id.clone(), owner, counter: 1, cursor: None, wanted_by: None };
            state.leases.insert(id.clone(), taken);
            return Ok(Claim::Held { counter: 1 });
        };
        if observed.is_some_and(|observed| is_as(lease, observed)) {
            lease.owner = Some(owner.to_owned());
            lease.wanted_by = None;
            lease.counter += 1;
            return Ok(Claim::Held { counter: lease.counter });
        }
        Ok(mine_or_lost(lease, owner))
    }

    async fn renew(&self, id: &LeaseId, owner: &str, counter: u64, cursor: Option<Minute>) -> PortResult<Claim> {
        let mut state = self.state();
        let Some(lease) = state.leases.get_mut(id) else { return Ok(Claim::Lost) };
        if !is_held(lease, owner, counter) {
            return Ok(mine_or_lost(lease, owner));
        }
        lease.counter += 1;
        lease.cursor = cursor.or(lease.cursor);
        Ok(Claim::Held { counter: lease.counter })
    }

    async fn release(&self, id: &LeaseId, owner: &str, counter: u64, cursor: Option<Minute>) -> PortResult<()> {
        if let Some(lease) = self.state().leases.get_mut(id).filter(|l| is_held(l, owner, counter)) {
            lease.owner = None;
            lease.wanted_by = None;
            lease.counter += 1;
            lease.cursor = cursor.or(lease.cursor);
        }
        Ok(())
    }

    async fn ask(&self, id: &LeaseId, owner: &str, by: &str) -> PortResult<()> {
        if let Some(lease) = self.state().leases.get_mut(id).filter(|l| l.owner.as_deref() == Some(owner)) {
            lease.wanted_by = Some(by.to_owned());
        }
        Ok(())
    }

    async fn remove(&self, observed: &Lease) -> PortResult<()> {
        let mut state = self.state();
        if state.leases.get(&observed.id).is_some_and(|lease| is_as(lease, observed)) {
            state.leases.remove(&observed.id);
        }
        Ok(())
    }
}

// The cursor moves only together with the counter, so owner and counter say it all.
fn is_as(lease: &Lease, observed: &Lease) -> bool {
    lease.owner == observed.owner && lease.counter == observed.counter
}

fn is_held(lease: &Lease, owner: &str, counter: u64) -> bool {
    lease.owner.as_deref() == Some(owner) && lease.counter == counter
}

fn mine_or_lost(lease: &Lease, owner: &str) -> Claim {
    match lease.owner.as_deref() {
        Some(holder) if holder == owner => Claim::Mine { counter: lease.counter },
        _ => Claim::Lost,
    }
}
