//! The five fields of a Unix cron expression, read as sets of numbers.

use std::collections::BTreeSet;

struct FieldRule {
    name: &'static str,
    lowest: u32,
    highest: u32,
    names: &'static [&'static str],
}

const FIELDS: [FieldRule; 5] = [
    FieldRule { name: "minute", lowest: 0, highest: 59, names: &[] },
    FieldRule { name: "hour", lowest: 0, highest: 23, names: &[] },
    FieldRule { name: "day of month", lowest: 1, highest: 31, names: &[] },
    FieldRule {
        name: "month",
        lowest: 1,
        highest: 12,
        names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    FieldRule { name: "weekday", lowest: 0, highest: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

const MACROS: [(&str, &str); 7] = [
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// Days of each month, in a leap year.
const MONTH_DAYS: [u32; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

pub(super) struct Fields {
    sets: [BTreeSet<u32>; 5],
    /// Both day fields name days, so a day that either names is enough.
    either_day: bool,
}

impl Fields {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let trimmed = text.trim();
        if trimmed.starts_with('@') {
            let known = MACROS.iter().find(|(name, _)| name.eq_ignore_ascii_case(trimmed));
            return match known {
                Some((_, fields)) => Self::parse(fields),
                None => Err(format!(
                    "`{trimmed}` is not known: write five fields, one of @hourly @daily @midnight @weekly @monthly \
                     @yearly @annually, or an interval such as `every 5m`"
                )),
            };
        }
        let parts: Vec<&str> = trimmed.split_whitespace().collect();
        if parts.len() != 5 {
            return Err(format!(
                "`{trimmed}` has {} fields: write five fields, minute hour day-of-month month weekday",
                parts.len()
            ));
        }
        let mut sets: [BTreeSet<u32>; 5] = Default::default();
        for (index, part) in parts.iter().enumerate() {
            sets[index] = parse_field(part, &FIELDS[index])
                .map_err(|problem| format!("{problem} in field {} of `{trimmed}`", index + 1))?;
        }
        if sets[4].remove(&7) {
            sets[4].insert(0);
        }
        Ok(Self { sets, either_day: !parts[2].starts_with('*') && !parts[4].starts_with('*') })
    }

    /// Whether any month named has a day named.
    pub(super) fn can_fire(&self) -> bool {
        self.either_day
            || self.sets[3].iter().any(|month| {
                let days = MONTH_DAYS[*month as usize - 1];
                self.sets[2].iter().any(|day| *day <= days)
            })
    }

    /// Seven-field expressions for the crate; a day matches if any of them does.
    pub(super) fn for_the_crate(&self) -> Vec<String> {
        let list = |set: &BTreeSet<u32>| set.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let weekdays = list(&self.sets[4].iter().map(|d| d + 1).collect()); // the crate's Sunday is 1
        let (minutes, hours, days, months) =
            (list(&self.sets[0]), list(&self.sets[1]), list(&self.sets[2]), list(&self.sets[3]));
        if self.either_day {
            vec![
                format!("0 {minutes} {hours} {days} {months} * *"),
                format!("0 {minutes} {hours} * {months} {weekdays} *"),
            ]
        } else {
            vec![format!("0 {minutes} {hours} {days} {months} {weekdays} *")]
        }
    }
}

fn parse_field(text: &str, rule: &FieldRule) -> Result<BTreeSet<u32>, String> {
    if let Some(advice) = other_dialect(text, rule) {
        return Err(advice);
    }
    let mut set = BTreeSet::new();
    for item in text.split(',') {
        let (range, step) = match item.split_once('/') {
            Some((range, step)) => (
                range,
                Some(
                    number(step)
                        .filter(|s| *s > 0)
                        .ok_or_else(|| format!("step {step} of {} is not a number above 0", rule.name))?,
                ),
            ),
            None => (item, None),
        };
        let (from, to) = match range {
            "*" => (rule.lowest, rule.highest),
            _ => match range.split_once('-') {
                Some((from, to)) => (value(from, rule)?, value(to, rule)?),
                // `5/10` means from 5 on, by tens.
                None if step.is_some() => (value(range, rule)?, rule.highest),
                None => (value(range, rule)?, value(range, rule)?),
            },
        };
        if from > to {
            return Err(format!("{} range {from}-{to} runs backwards", rule.name));
        }
        set.extend((from..=to).step_by(step.unwrap_or(1) as usize));
    }
    Ok(set)
}

fn other_dialect(text: &str, rule: &FieldRule) -> Option<String> {
    let upper = text.to_ascii_uppercase();
    let named = |item: &str| rule.names.iter().any(|name| item.eq_ignore_ascii_case(name));
    if upper.contains('?') {
        return Some(
            "`?` is not Unix cron: write `*`; for a value chosen by hash write `H` once hashed fields are there".into(),
        );
    }
    if upper.contains('#') {
        return Some("`#` is not Unix cron: write the weekday and check the date in the handler".into());
    }
    for (letter, meaning) in [("L", "the last day"), ("W", "the nearest working day"), ("H", "a hashed value")] {
        let bare = upper.split([',', '-', '/', '(']).any(|item| {
            !named(item) && (item == letter || item.strip_suffix(letter).is_some_and(|n| number(n).is_some()))
        });
        if bare {
            return Some(format!("`{letter}` ({meaning}) is not supported in {}: write numbers", rule.name));
        }
    }
    None
}

fn value(text: &str, rule: &FieldRule) -> Result<u32, String> {
    if let Some(index) = rule.names.iter().position(|name| text.eq_ignore_ascii_case(name)) {
        return Ok(index as u32 + rule.lowest.min(1));
    }
    let value = number(text).ok_or_else(|| format!("{} `{text}` is not a number", rule.name))?;
    if value < rule.lowest || value > rule.highest {
        return Err(format!("{} {value} is out of range {}-{}", rule.name, rule.lowest, rule.highest));
    }
    Ok(value)
}

fn number(text: &str) -> Option<u32> {
    (!text.is_empty() && text.len() <= 4 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok())?
}
