//! Reads the store's time off its answers.

use crate::clock::{AnchoredClock, Clock};
use aws_sdk_dynamodb::config::interceptors::{
    BeforeDeserializationInterceptorContextRef, BeforeTransmitInterceptorContextRef,
};
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_smithy_types::config_bag::{Storable, StoreReplace};
use chrono::{DateTime, Utc};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Tells a clock the `Date` of each answer, whatever the answer says; each try of a call counts for itself.
pub(super) struct StoreTime {
    clock: Arc<AnchoredClock>,
}

impl StoreTime {
    pub(super) fn new(clock: Arc<AnchoredClock>) -> Self {
        StoreTime { clock }
    }
}

impl fmt::Debug for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreTime").finish_non_exhaustive()
    }
}

/// What the boot clock showed before this try went out.
#[derive(Debug)]
struct Sent(Duration);

impl Storable for Sent {
    type Storer = StoreReplace<Self>;
}

impl Intercept for StoreTime {
    fn name(&self) -> &'static str {
        "StoreTime"
    }

    fn read_before_transmit(
        &self,
        _: &BeforeTransmitInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        cfg.interceptor_state().store_put(Sent(self.clock.boottime()));
        Ok(())
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        cfg: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date").and_then(parse);
        if let (Some(&Sent(sent)), Some(date)) = (cfg.load::<Sent>(), date) {
            self.clock.hear(sent, date);
        }
        Ok(())
    }
}

/// Reads `Mon, 05 Oct 2026 03:30:00 GMT`; nothing else counts as a date.
fn parse(date: &str) -> Option<DateTime<Utc>> {
    DateTime::parse_from_rfc2822(date).ok().map(|date| date.to_utc())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_read_as_http_writes_it() {
        assert_eq!(parse("Mon, 05 Oct 2026 03:30:00 GMT").map(|date| date.timestamp()), Some(1_791_171_000));
        for other in ["", "soon", "1791171000", "Tue, 05 Oct 2026 03:30:00 GMT"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
