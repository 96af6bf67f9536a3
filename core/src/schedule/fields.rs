//! The five fields of a Unix cron expression, read as sets of numbers.

use super::dialects;
use crate::spread::pick;
use chrono::{Datelike, NaiveDate};
use std::collections::BTreeSet;

/// What a field may hold.
pub(super) struct FieldRule {
    pub(super) name: &'static str,
    /// Its name in the hash of `H`: part of what a key gives for ever.
    hash: &'static str,
    pub(super) lowest: u32,
    pub(super) highest: u32,
    /// The highest value that `H` gives: a day of month that every month has, a Sunday that is not counted twice.
    highest_hashed: u32,
    pub(super) names: &'static [&'static str],
}

const FIELDS: [FieldRule; 5] = [
    FieldRule { name: "minute", hash: "minute", lowest: 0, highest: 59, highest_hashed: 59, names: &[] },
    FieldRule { name: "hour", hash: "hour", lowest: 0, highest: 23, highest_hashed: 23, names: &[] },
    FieldRule { name: DAY_OF_MONTH, hash: "dom", lowest: 1, highest: 31, highest_hashed: 28, names: &[] },
    FieldRule {
        name: "month",
        hash: "month",
        lowest: 1,
        highest: 12,
        highest_hashed: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    FieldRule {
        name: WEEKDAY,
        hash: "dow",
        lowest: 0,
        highest: 7,
        highest_hashed: 6,
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    },
];

pub(super) const DAY_OF_MONTH: &str = "day-of-month";
pub(super) const WEEKDAY: &str = "weekday";

const MACROS: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// The crate's years, cut where February ends: its last day is a question of the year.
const YEARS: std::ops::RangeInclusive<u32> = 1970..=2100;

/// The fields of an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    minutes: BTreeSet<u32>,
    hours: BTreeSet<u32>,
    days: BTreeSet<u32>,
    months: BTreeSet<u32>,
    weekdays: BTreeSet<u32>,
    /// `L`: the last day of each month.
    last_day: bool,
    /// Both day fields name days, so a day that either names is enough.
    either_day: bool,
    /// Minute or hour starts with `*`: such a job follows real time where the clock is changed.
    pub(super) is_wildcard: bool,
}

impl Fields {
    /// Reads an expression without hashed fields.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = split(text)?;
        let mut sets: [BTreeSet<u32>; 5] = Default::default();
        let mut last_day = false;
        for (index, part) in parts.iter().enumerate() {
            if FIELDS[index].name == DAY_OF_MONTH && part.eq_ignore_ascii_case("l") {
                last_day = true;
                continue;
            }
            sets[index] = parse_field(part, &FIELDS[index]).map_err(|problem| in_field(&problem, index, text))?;
        }
        let [minutes, hours, days, months, mut weekdays] = sets;
        if weekdays.remove(&7) {
            weekdays.insert(0);
        }
        let starred = |index: usize| parts[index].starts_with('*');
        Ok(Self {
            minutes,
            hours,
            days,
            months,
            weekdays,
            last_day,
            either_day: !starred(2) && !starred(4),
            is_wildcard: starred(0) || starred(1),
        })
    }

    /// Whether any month named has a day named.
    pub(super) fn can_fire(&self) -> bool {
        self.either_day || self.has_date()
    }

    /// Whether the day-of-month field ever matches.
    fn has_date(&self) -> bool {
        let has_day = |month: &u32| {
            let longest = if *month == 2 { 29 } else { days_of(*month) };
            self.last_day || self.days.iter().any(|day| *day <= longest)
        };
        self.months.iter().any(has_day)
    }

    /// Seven-field expressions for the crate, in explicit numbers; a minute matches if any of them does.
    pub(super) fn for_the_crate(&self) -> Vec<String> {
        let of_week = list(&self.weekdays.iter().map(|day| day + 1).collect(), 7); // the crate's Sunday is 1
        let times = format!("0 {} {}", list(&self.minutes, 60), list(&self.hours, 24));
        let months = list(&self.months, 12);
        // The crate asks for both day fields, so an OR of the two is two expressions.
        let beside = if self.either_day { "*" } else { of_week.as_str() };
        let mut expressions = Vec::new();
        if self.last_day {
            for length in [31, 30] {
                let such: BTreeSet<u32> =
                    self.months.iter().copied().filter(|month| days_of(*month) == length).collect();
                if !such.is_empty() {
                    expressions.push(format!("{times} {length} {} {beside} *", list(&such, 12)));
                }
            }
            if self.months.contains(&2) {
                let (leap, common): (BTreeSet<u32>, BTreeSet<u32>) =
                    YEARS.partition(|year| NaiveDate::from_ymd_opt(*year as i32, 2, 29).is_some());
                expressions.push(format!("{times} 29 2 {beside} {}", list(&leap, usize::MAX)));
                expressions.push(format!("{times} 28 2 {beside} {}", list(&common, usize::MAX)));
            }
        } else if self.has_date() {
            // Otherwise the crate would look for a 30 February up to the end of its calendar, again and again.
            expressions.push(format!("{times} {} {months} {beside} *", list(&self.days, 31)));
        }
        if self.either_day {
            expressions.push(format!("{times} * {months} {of_week} *"));
        }
        expressions
    }

    /// The shortest time between two matches on an even clock, in seconds; none when there is only ever one.
    pub(super) fn shortest_interval_s(&self) -> Option<i64> {
        let times: Vec<i64> = self
            .hours
            .iter()
            .flat_map(|hour| self.minutes.iter().map(move |minute| i64::from(hour * 60 + minute)))
            .collect();
        let within_a_day = times.windows(2).map(|pair| pair[1] - pair[0]).min();
        let over_night = self.shortest_days().map(|days| days * 1_440 + times[0] - times[times.len() - 1]);
        within_a_day.into_iter().chain(over_night).min().map(|minutes| minutes * 60)
    }

    /// The fewest days from one matching day to the next. Weekdays and leap years repeat after 28 years.
    fn shortest_days(&self) -> Option<i64> {
        let first = NaiveDate::from_ymd_opt(2000, 1, 1)?;
        let (mut shortest, mut last) = (None::<i64>, None::<i64>);
        for (n, date) in (0..28 * 1_461 / 4 + 1_461 * 2).zip(first.iter_days()) {
            if self.names_day(date) {
                let since = last.replace(n).map(|last| n - last);
                shortest = shortest.into_iter().chain(since).min();
                if shortest == Some(1) {
                    break;
                }
            }
        }
        shortest
    }

    fn names_day(&self, date: NaiveDate) -> bool {
        let is_last = || date.succ_opt().is_none_or(|next| next.day() == 1);
        let by_date = self.days.contains(&date.day()) || self.last_day && is_last();
        let by_weekday = self.weekdays.contains(&date.weekday().num_days_from_sunday());
        let named = if self.either_day { by_date || by_weekday } else { by_date && by_weekday };
        named && self.months.contains(&date.month())
    }
}

/// Writes an expression with numbers in place of its hashed items; none when it has none.
///
/// `H` is one value of its field, `H(a-b)` one of the range, `H/s` and `H(a-b)/s` every s-th value from a hashed one on.
pub(super) fn resolve(text: &str, key: Option<&str>) -> Result<Option<String>, String> {
    if text.trim().starts_with('@') || !text.contains(['H', 'h']) {
        return Ok(None);
    }
    let parts = split(text)?;
    let is_hashed = |item: &str| item.starts_with(['H', 'h']);
    if !parts.iter().any(|part| part.split(',').any(is_hashed)) {
        return Ok(None);
    }
    let key =
        key.ok_or_else(|| format!("`{}` has hashed fields: give the key that chooses their values", text.trim()))?;
    let mut resolved = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let rule = &FIELDS[index];
        let items =
            part.split(',').map(|item| if is_hashed(item) { hashed(item, rule, key) } else { Ok(item.to_owned()) });
        let items: Result<Vec<String>, String> = items.collect();
        resolved.push(items.map_err(|problem| in_field(&problem, index, text))?.join(","));
    }
    Ok(Some(resolved.join(" ")))
}

/// What is Unix cron but probably not meant: a step that comes to no second value.
pub(super) fn warning(text: &str) -> Option<String> {
    let parts = split(text).ok()?;
    parts.iter().zip(&FIELDS).find_map(|(part, rule)| {
        let steps = part.split(',').filter_map(|item| item.split_once('/').and_then(|(_, every)| number(every)));
        let long = steps.max().filter(|step| *step > rule.highest - rule.lowest + 1)?;
        Some(format!(
            "step {long} of {} in `{text}` goes beyond its range {}-{} and starts anew in each: for an interval across it, \
             write the schedule `every …`",
            rule.name, rule.lowest, rule.highest
        ))
    })
}

fn hashed(item: &str, rule: &FieldRule, key: &str) -> Result<String, String> {
    let unreadable = || {
        format!(
            "`{item}` is no hashed {}: write `H`, `H({low}-{high})`, `H/2` or `H({low}-{high})/2`",
            rule.name,
            low = rule.lowest,
            high = rule.highest_hashed
        )
    };
    let (place, every) = match item[1..].split_once('/') {
        Some((place, every)) => (place, Some(step(every, rule)?)),
        None => (&item[1..], None),
    };
    let (from, to) = if place.is_empty() {
        (rule.lowest, rule.highest_hashed)
    } else {
        let range = place.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).ok_or_else(unreadable)?;
        let (from, to) = range.split_once('-').ok_or_else(unreadable)?;
        (value(from, rule)?, value(to, rule)?)
    };
    if from > to {
        return Err(backwards(rule, &from.to_string(), &to.to_string()));
    }
    if rule.name == WEEKDAY && to > rule.highest_hashed {
        return Err(format!("weekday {to} in `{item}` would be Sunday twice: write 0-6"));
    }
    let choose = |n: u32| from + u32::try_from(pick(rule.hash, key, u64::from(n))).expect("a value below n fits");
    Ok(match every {
        None => choose(to - from + 1).to_string(),
        Some(every) => {
            let first = choose(every.min(to - from + 1));
            format!("{first}-{to}/{every}")
        }
    })
}

fn split(text: &str) -> Result<Vec<&str>, String> {
    let trimmed = text.trim();
    if trimmed.starts_with('@') {
        let known = MACROS.iter().find(|(name, _)| name.eq_ignore_ascii_case(trimmed));
        return match known {
            Some((_, fields)) => Ok(fields.split(' ').collect()),
            None => Err(dialects::macro_advice(trimmed)),
        };
    }
    let parts: Vec<&str> = trimmed.split_whitespace().collect();
    if parts.len() != 5 {
        return Err(dialects::count_advice(trimmed, &parts));
    }
    Ok(parts)
}

fn parse_field(text: &str, rule: &FieldRule) -> Result<BTreeSet<u32>, String> {
    if let Some(advice) = dialects::advice(text, rule) {
        return Err(advice);
    }
    let mut set = BTreeSet::new();
    for item in text.split(',') {
        let (range, every) = match item.split_once('/') {
            Some((range, every)) => (range, Some(step(every, rule)?)),
            None => (item, None),
        };
        let (from, to) = match range {
            "*" => (rule.lowest, rule.highest),
            _ => match range.split_once('-') {
                Some((from, to)) => {
                    let (low, high) = (value(from, rule)?, value(to, rule)?);
                    if low > high {
                        return Err(backwards(rule, from, to));
                    }
                    (low, high)
                }
                // `5/10` means from 5 on, by tens.
                None if every.is_some() => (value(range, rule)?, rule.highest),
                None => (value(range, rule)?, value(range, rule)?),
            },
        };
        set.extend((from..=to).step_by(every.unwrap_or(1) as usize));
    }
    Ok(set)
}

fn backwards(rule: &FieldRule, from: &str, to: &str) -> String {
    let hint = match rule.name {
        WEEKDAY => "; Sunday is 0 at the start of a range and 7 at its end, as in `5-7`".to_owned(),
        _ => format!(": write two ranges, `{from}-{},{}-{to}`", rule.highest, rule.lowest),
    };
    format!("{} range {from}-{to} runs backwards{hint}", rule.name)
}

fn step(text: &str, rule: &FieldRule) -> Result<u32, String> {
    number(text)
        .filter(|step| *step > 0)
        .ok_or_else(|| format!("step `{text}` of {} is not a whole number above 0", rule.name))
}

fn value(text: &str, rule: &FieldRule) -> Result<u32, String> {
    if let Some(index) = rule.names.iter().position(|name| text.eq_ignore_ascii_case(name)) {
        return Ok(index as u32 + rule.lowest.min(1));
    }
    let Some(value) = number(text) else {
        let names = match rule.names {
            [first, .., last] => format!(" or a name {first}-{last}"),
            _ => String::new(),
        };
        return Err(format!("{} `{text}` is not a number {}-{}{names}", rule.name, rule.lowest, rule.highest));
    };
    if value < rule.lowest || value > rule.highest {
        return Err(format!("{} {value} is out of range {}-{}", rule.name, rule.lowest, rule.highest));
    }
    Ok(value)
}

pub(super) fn number(text: &str) -> Option<u32> {
    (!text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}

fn in_field(problem: &str, index: usize, text: &str) -> String {
    format!("{problem} in field {} of `{}`", index + 1, text.trim())
}

fn list(set: &BTreeSet<u32>, full: usize) -> String {
    if set.len() == full {
        return "*".into();
    }
    set.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// The days of a month in a common year.
fn days_of(month: u32) -> u32 {
    match month {
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
