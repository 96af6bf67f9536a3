//! What to write instead of things that other crons know.

use super::fields::{DAY_OF_MONTH, FieldRule, WEEKDAY, number};

/// What to write in place of a macro that is not known.
pub(super) fn macro_advice(text: &str) -> String {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    if word.eq_ignore_ascii_case("@every") {
        let interval = if rest.is_empty() { "5m" } else { rest.trim() };
        return format!("`{text}` is not cron: write the interval as a schedule of its own, `every {interval}`");
    }
    if word.eq_ignore_ascii_case("@reboot") {
        return "`@reboot` is not known, there is nothing that boots: write `at` and an instant".into();
    }
    format!(
        "`{text}` is not known: write five fields, or one of @hourly @daily @midnight @weekly @monthly @yearly @annually"
    )
}

/// What to write in place of another number of fields than five.
pub(super) fn count_advice(text: &str, parts: &[&str]) -> String {
    const ORDER: &str = "minute hour day-of-month month weekday";
    if let Some(inner) = text.strip_prefix("cron(").and_then(|rest| rest.strip_suffix(')')) {
        let parts: Vec<&str> = inner.split_whitespace().collect();
        let hint = count_advice_for(&parts).unwrap_or_else(|| format!("write five fields, {ORDER}"));
        return format!("`{text}` is another service's form: leave out `cron(…)` and {hint}");
    }
    let hint = count_advice_for(parts).unwrap_or_else(|| format!("write five fields, {ORDER}"));
    format!("`{text}` has {} fields: {hint}", parts.len())
}

fn count_advice_for(parts: &[&str]) -> Option<String> {
    // Where `?` is known, one of the two day fields holds it: its place says which field is too many.
    let knows_question = parts.contains(&"?");
    let has_question = |places: [usize; 2]| places.iter().any(|place| parts.get(*place) == Some(&"?"));
    let year_is_last = has_question([2, 4]) || !knows_question && parts.last().is_some_and(|last| is_year(last));
    let (five, leave_out) = match parts {
        [five @ .., _] if parts.len() == 6 && year_is_last => (five, "the year at the end"),
        [_, five @ ..] if parts.len() == 6 => (five, "the seconds at the start"),
        [_, five @ .., _] if parts.len() == 7 => (five, "the seconds at the start and the year at the end"),
        _ => return None,
    };
    let plain: Vec<String> =
        five.iter().map(|field| if *field == "?" { "*".into() } else { (*field).to_owned() }).collect();
    let weekday = plain[4].clone();
    let ours = if knows_question { from_sunday_one(&weekday)? } else { weekday.clone() };
    let note = if ours == weekday { "" } else { "; weekdays are counted from Sunday = 0 here" };
    Some(format!("leave out {leave_out} and write `{} {ours}`{note}", plain[..4].join(" ")))
}

/// Weekdays of a dialect that counts from Sunday = 1; none when they cannot be said in Unix cron.
fn from_sunday_one(field: &str) -> Option<String> {
    let item = |item: &str| {
        let (range, step) =
            item.split_once('/').map_or((item, String::new()), |(range, step)| (range, format!("/{step}")));
        let day = |day: &str| match number(day) {
            Some(day) => (1..=7).contains(&day).then(|| (day - 1).to_string()),
            None => day.bytes().all(|b| b.is_ascii_alphabetic() || b == b'*').then(|| day.to_owned()),
        };
        let days: Option<Vec<String>> = range.split('-').map(day).collect();
        days.map(|days| days.join("-") + &step)
    };
    field.split(',').map(item).collect::<Option<Vec<_>>>().map(|items| items.join(","))
}

fn is_year(text: &str) -> bool {
    text.split(['-', ',', '/']).next().and_then(number).is_some_and(|year| (1970..=2100).contains(&year))
}

/// What to write in place of a field that another dialect has; none when it is Unix cron, or simply wrong.
pub(super) fn advice(text: &str, rule: &FieldRule) -> Option<String> {
    let name = rule.name;
    if text.contains('?') {
        return Some(format!(
            "`?` is not Unix cron ({name} `{text}`): write `*` for any value, or `H` for one chosen by hash"
        ));
    }
    if let Some((day, nth)) = text.split_once('#') {
        let week = number(nth).filter(|n| (1..=5).contains(n)).map(|n| format!("{}-{}", n * 7 - 6, (n * 7).min(31)));
        let week = week.unwrap_or_else(|| "8-14".into());
        return Some(format!(
            "`#` is not Unix cron ({name} `{text}`): write the days it can fall on, day-of-month `{week}`, and let the handler \
             look for weekday {day}"
        ));
    }
    let upper = text.to_ascii_uppercase();
    let is_name = |item: &str| rule.names.iter().any(|known| item.eq_ignore_ascii_case(known));
    let uses = |letter: char| {
        upper.split([',', '-', '/']).any(|item| {
            let rest = item.trim_matches(letter);
            !is_name(item)
                && item.contains(letter)
                && (rest.is_empty() || matches!(rest, "L" | "W") || number(rest).is_some())
        })
    };
    if uses('W') {
        return Some(format!(
            "`W` (the nearest working day) is not Unix cron ({name} `{text}`): write weekdays such as `1-5` in the weekday field"
        ));
    }
    if uses('L') {
        return Some(match name {
            DAY_OF_MONTH => format!(
                "`L` must stand alone in day-of-month (found `{text}`): write `L` for the last day, and other days as another \
                 job"
            ),
            WEEKDAY => format!(
                "`L` is only for day-of-month (weekday `{text}`): write 6 for Saturday; the last of a weekday is among \
                 day-of-month `22-31`"
            ),
            _ => format!("`L` is only for day-of-month ({name} `{text}`): write {}", rule.highest),
        });
    }
    None
}
