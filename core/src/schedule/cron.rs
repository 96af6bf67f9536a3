//! A checked cron expression, parsed once for all jobs that say the same. The only importer of `cron`.
//!
//! The crate matches on a clock that runs evenly; it never sees a zone, in whose overlaps it goes backwards. It counts
//! weekdays from Sunday = 1, takes a seconds field and asks for both day fields, so it is handed explicit numbers.

use super::ScheduleError;
use super::fields::{Fields, resolve, warning};
use crate::zone::CALENDAR_END;
use chrono::DateTime;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// The longest cron expression that is read, in bytes.
pub const LONGEST_CRON_BYTES: usize = 256;

/// Expressions that are kept parsed, a few KB each; above that the cache starts anew.
const MOST_CACHED: usize = 20_000;

/// A checked five-field Unix cron expression.
#[derive(Clone, Debug)]
pub struct CronExpression {
    written: String,
    parsed: Arc<Parsed>,
}

impl CronExpression {
    /// Reads an expression; `key` chooses the values of its hashed fields.
    ///
    /// # Errors
    /// Says which field, what was found, what is allowed, and what to write instead.
    pub fn read(text: &str, key: Option<&str>) -> Result<Self, ScheduleError> {
        check_length(text, "")?;
        let written = text.split_whitespace().collect::<Vec<_>>().join(" ");
        match resolve(&written, key).map_err(ScheduleError::in_schedule)? {
            Some(resolved) => Self::stored(&written, &resolved),
            None => Self::stored(&written, &written),
        }
    }

    /// An expression as written, and as it was resolved when its job was made.
    ///
    /// # Errors
    /// As [`CronExpression::read`].
    pub fn stored(written: &str, resolved: &str) -> Result<Self, ScheduleError> {
        check_length(written, "")?;
        check_length(resolved, ", with numbers in place of hashed fields,")?;
        Ok(Self { written: written.to_owned(), parsed: KNOWN.get(resolved)? })
    }

    /// As a person wrote it.
    pub fn written(&self) -> &str {
        &self.written
    }

    /// With numbers in place of hashed fields: what counts.
    pub fn resolved(&self) -> &str {
        &self.parsed.text
    }

    /// What is allowed but probably not meant.
    pub fn warning(&self) -> Option<String> {
        warning(self.resolved())
    }

    /// The shortest time between two firings where the clock runs evenly, in seconds.
    pub fn shortest_interval_s(&self) -> Option<i64> {
        self.parsed.fields.shortest_interval_s()
    }

    /// Whether minute or hour starts with `*`.
    pub(super) fn is_wildcard(&self) -> bool {
        self.parsed.fields.is_wildcard
    }

    /// The first wall time after `wall` that matches; both in seconds of a clock that runs like UTC.
    pub(super) fn next_wall(&self, wall: i64) -> Option<i64> {
        // The crate knows the years from 1970 to 2100, and takes others for something else.
        let wall = DateTime::from_timestamp(wall.max(-1), 0).filter(|wall| *wall < CALENDAR_END)?;
        self.parsed.either.iter().filter_map(|one| one.after(&wall).next()).min().map(|next| next.timestamp())
    }
}

fn check_length(text: &str, which: &str) -> Result<(), ScheduleError> {
    if text.len() <= LONGEST_CRON_BYTES {
        return Ok(());
    }
    Err(ScheduleError::in_schedule(format!(
        "a cron expression{which} of {} bytes is too long: {LONGEST_CRON_BYTES} are allowed",
        text.len()
    )))
}

/// The numbers count, as if they had been written.
impl PartialEq for CronExpression {
    fn eq(&self, other: &Self) -> bool {
        self.parsed.text == other.parsed.text
    }
}

impl fmt::Display for CronExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.resolved())?;
        if self.written != self.resolved() { write!(f, " ({})", self.written) } else { Ok(()) }
    }
}

#[derive(Debug)]
struct Parsed {
    text: String,
    fields: Fields,
    // A minute matches if any of them does.
    either: Vec<cron::Schedule>,
}

impl Parsed {
    fn new(text: &str) -> Result<Self, ScheduleError> {
        let refused = ScheduleError::in_schedule;
        let fields = Fields::parse(text).map_err(refused)?;
        if !fields.can_fire() {
            return Err(refused(format!(
                "`{text}` never fires: no month it names has such a day; `L` is the last day of each month"
            )));
        }
        let parse = |one: &String| one.parse().map_err(|error| refused(format!("`{text}`: {error}")));
        let either = fields.for_the_crate().iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Parsed { text: text.to_owned(), fields, either })
    }
}

/// The expressions of all jobs of this process: millions of jobs say the same few thousand things.
static KNOWN: LazyLock<Expressions> = LazyLock::new(Expressions::default);

/// Expressions by their text. A memo of a pure function: what it holds can be seen only in the time it saves.
#[derive(Default)]
struct Expressions(RwLock<HashMap<String, Arc<Parsed>>>);

impl Expressions {
    fn get(&self, text: &str) -> Result<Arc<Parsed>, ScheduleError> {
        // A panic while the lock was held leaves a map that is still true.
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(text) {
            return Ok(Arc::clone(known));
        }
        let parsed = Arc::new(Parsed::new(text)?);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_CACHED {
            known.clear();
        }
        Ok(Arc::clone(known.entry(text.to_owned()).or_insert(parsed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_say_the_same_share_one_parsed_expression() {
        let known = Expressions::default();
        let texts: Vec<String> =
            (0..5_000).map(|n| format!("{} {} {} * *", n % 60, n / 60 % 24, n / 1_440 + 1)).collect();
        let first: Vec<_> = texts.iter().map(|text| known.get(text).unwrap()).collect();
        for n in 0..2_700_000 {
            let n = n % texts.len();
            assert!(Arc::ptr_eq(&known.get(&texts[n]).unwrap(), &first[n]));
        }
        assert_eq!(known.0.read().unwrap().len(), 5_000);
    }

    #[test]
    fn the_cache_is_bounded_and_holds_no_refusals() {
        let known = Expressions::default();
        for n in 0..=MOST_CACHED {
            known.get(&format!("{} {} {} {} *", n % 60, n / 60 % 24, n / 1_440 % 28 + 1, n / 40_320 + 1)).unwrap();
        }
        assert_eq!(known.0.read().unwrap().len(), 1);
        assert!(known.get("61 * * * *").is_err());
        assert_eq!(known.0.read().unwrap().len(), 1);
    }
}
