//! A process's metrics, as whoever collects them reads them: from the port that its log names.

use crate::local::{Process, eventually};
use anyhow::Context;
use punctual_core::telemetry::rules::text::Text;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// An answer that takes longer is none.
const SCRAPE_TIME: Duration = Duration::from_secs(5);

/// Where one process tells its metrics.
#[derive(Clone)]
pub struct Metrics {
    client: reqwest::Client,
    url: String,
}

impl Metrics {
    /// Those of a process that serves them, or soon will.
    ///
    /// # Errors
    /// When it does not say where.
    pub async fn of(process: &Process) -> anyhow::Result<Self> {
        let said = || {
            let log = process.log();
            let (_, rest) = log.split_once("metrics are served at ")?;
            Some(rest.split_whitespace().next()?.to_owned())
        };
        eventually("the metrics are served", PATIENCE, async || Ok(said().is_some())).await?;
        // Whoever was first in this process has done so already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder().no_proxy().timeout(SCRAPE_TIME).build()?;
        Ok(Metrics { client, url: said().context("it said so")? })
    }

    /// What it tells at this moment.
    ///
    /// # Errors
    /// When it does not answer, or with no text of the format.
    pub async fn read(&self) -> anyhow::Result<Text> {
        let text = self.client.get(&self.url).send().await?.error_for_status()?.text().await?;
        Text::read(&text).map_err(anyhow::Error::msg)
    }

    /// The sum over all series of this name that have these labels.
    ///
    /// # Errors
    /// As [`Metrics::read`].
    pub async fn sum(&self, name: &str, having: &[(&str, &str)]) -> anyhow::Result<f64> {
        Ok(sum(&self.read().await?, name, having))
    }
}

/// The sum over all series of this name that have these labels.
pub fn sum(text: &Text, name: &str, having: &[(&str, &str)]) -> f64 {
    text.of(name, having).sum()
}
