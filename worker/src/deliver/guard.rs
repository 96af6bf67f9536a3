//! What names stand for, and which of that may be called.
//!
//! A name is looked up once for each connection, and what was checked is what is connected to: a name that stands for one
//! thing when it is checked and for another when it is called gains nothing.

use async_trait::async_trait;
use punctual_core::address;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Whoever knows what names stand for.
#[async_trait]
pub trait Lookup: Send + Sync {
    /// The addresses of a name.
    ///
    /// # Errors
    /// When it has none, or nobody can be asked.
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// Why an address may not be called.
pub(super) type Judge = fn(IpAddr) -> Option<&'static str>;

/// Looks names up, and refuses one whose addresses are not all fit to be called.
pub(super) struct Guard {
    pub(super) lookup: Arc<dyn Lookup>,
    pub(super) judge: Judge,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, judge) = (self.lookup.clone(), self.judge);
        Box::pin(async move {
            let addresses = lookup.lookup(name.as_str()).await?;
            if let Some(why) = addresses.iter().find_map(|ip| judge(*ip)) {
                return Err(Box::from(Refused(why)));
            }
            let addresses: Addrs = Box::new(addresses.into_iter().map(|ip| SocketAddr::new(ip, 0)));
            Ok(addresses)
        })
    }
}

/// A name stands for something that may not be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) &'static str);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&address::refusal(self.0))
    }
}

impl Error for Refused {}

/// The refusal behind a failed call, if that is why it failed.
pub(super) fn refused(error: &reqwest::Error) -> Option<Refused> {
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = next {
        if let Some(refused) = error.downcast_ref() {
            return Some(*refused);
        }
        next = error.source();
    }
    None
}
