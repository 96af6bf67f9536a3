//! The shares of the limit on text messages.

use super::{Local, eventually};
use punctual_core::rate::{SHARES, Shares};
use punctual_core::target::Target;
use std::time::Duration;

impl Local {
    /// Who holds how many shares of the limit on text messages.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn shares(&self) -> anyhow::Result<Shares> {
        Ok(self.ports.shares.get(&Target::sms()).await?)
    }

    /// Waits until so many workers hold all shares, as evenly as can be.
    ///
    /// # Errors
    /// When it takes too long, or the store fails.
    pub async fn wait_for_shares(&self, workers: u32, within: Duration) -> anyhow::Result<()> {
        eventually(&format!("{workers} workers hold all shares"), within, async || {
            let shares = self.shares().await?;
            let is_even = shares.holders.values().all(|holder| holder.shares == SHARES / workers);
            Ok(shares.holders.len() == workers as usize && is_even)
        })
        .await
    }
}
