//! The schedule of an entry, in the words of the project's own reader.
//!
//! Decides what becomes of what only some crons know: taken where it has the same meaning here, else refused with what to
//! write instead. Never shows words that may belong to a command: in a line with too few fields, some of them do.

use punctual_core::schedule::parse_interval;

/// What is expected where nothing can be said of what was found.
pub(super) const EXPECTED: &str = "expected five fields (minute 0-59, hour 0-23, day of month 1-31, month 1-12 or jan-dec, weekday \
                                   0-7 or sun-sat) or a macro such as `@daily`, and a command behind them";

/// What `~` reaches from and to where it does not say: minute, hour, day of month, month, weekday.
const BOUNDS: [(&str, &str); 5] = [("0", "59"), ("0", "23"), ("1", "31"), ("1", "12"), ("0", "6")];

const NAMES: [&str; 19] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec", "sun", "mon", "tue", "wed",
    "thu", "fri", "sat",
];

/// A schedule for the project's own reader, and whether it has a value chosen by hash in place of a random one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) text: String,
    pub(super) is_chosen: bool,
}

/// Reads the words of an entry's schedule.
///
/// # Errors
/// What to write instead.
pub(super) fn take(words: &[&str]) -> Result<Taken, String> {
    let fixed = |text: String| Ok(Taken { text, is_chosen: false });
    let [first, rest @ ..] = words else { return Err(EXPECTED.into()) };
    let Some(name) = first.strip_prefix('@') else { return five(words) };
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "hourly" | "daily" | "midnight" | "weekly" | "monthly" | "yearly" | "annually" => {
            fixed(format!("cron @{name}"))
        }
        "every_minute" => fixed("cron * * * * *".into()),
        "every_second" => Err("`@every_second` is too often: the shortest interval is a minute, `* * * * *`".into()),
        "reboot" => Err(
            "`@reboot` is no time, there is nothing here that boots: start the command with its service, or give it \
                         a time, such as `@hourly`"
                .into(),
        ),
        "every" => Err(format!(
            "`@every` counts from when its cron was started: {}",
            instead(rest.first().and_then(|interval| parse_interval(interval).ok()))
        )),
        seconds if !seconds.is_empty() && seconds.bytes().all(|b| b.is_ascii_digit()) => {
            Err(format!("`@` and seconds counts from the end of the run before: {}", instead(seconds.parse().ok())))
        }
        _ => Err(
            "the macro is not known: write five fields, or one of @hourly @daily @midnight @weekly @monthly @yearly \
                  @annually @every_minute"
                .into(),
        ),
    }
}

/// What to write in place of an interval of so many seconds.
fn instead(interval_s: Option<i64>) -> String {
    let cron = interval_s.and_then(|s| match (s % 60, s / 60) {
        (0, 1) => Some("* * * * *".to_owned()),
        (0, minutes @ 2..60) if 60 % minutes == 0 => Some(format!("*/{minutes} * * * *")),
        (0, 60) => Some("@hourly".into()),
        (0, 1_440) => Some("@daily".into()),
        (0, minutes) if minutes % 60 == 0 && minutes < 1_440 && 1_440 % minutes == 0 => {
            Some(format!("0 */{} * * *", minutes / 60))
        }
        _ => None,
    });
    match (cron, interval_s) {
        (Some(cron), _) => format!("write `{cron}`"),
        (None, Some(..60)) => "the shortest interval here is a minute, `* * * * *`".into(),
        (None, Some(interval_s)) => {
            format!("make it a job of its own, `punctual jobs add --schedule 'every {interval_s}s'`")
        }
        (None, None) => "write five fields, such as `*/5 * * * *`".into(),
    }
}

fn five(fields: &[&str]) -> Result<Taken, String> {
    let mut taken = Taken { text: "cron".into(), is_chosen: false };
    for (field, bounds) in fields.iter().zip(BOUNDS) {
        let items: Result<Vec<String>, String> = field.split(',').map(|item| hashed(item, bounds)).collect();
        taken.is_chosen |= field.contains('~');
        taken.text = format!("{} {}", taken.text, items?.join(","));
    }
    Ok(taken)
}

/// A range of which one value counts, `a~b`, as one that is chosen by hash.
fn hashed(item: &str, (lowest, highest): (&str, &str)) -> Result<String, String> {
    let (range, step) = item.split_at(item.find('/').unwrap_or(item.len()));
    Ok(match range.split_once('~') {
        None => item.to_owned(),
        Some((_, to)) if to.contains('~') => return Err(EXPECTED.into()),
        Some(("", "")) => format!("H{step}"),
        Some((from, to)) => {
            let or = |given: &str, bound: &str| if given.is_empty() { bound.to_owned() } else { given.to_owned() };
            format!("H({}-{}){step}", or(from, lowest), or(to, highest))
        }
    })
}

/// Whether words can be shown: nothing but what schedules are made of. A command, a number of a phone or a name is not.
pub(super) fn can_be_shown(words: &[&str]) -> bool {
    words.iter().all(|word| {
        let mut parts = word.split(|c: char| "*,/-~?#()@".contains(c)).filter(|part| !part.is_empty());
        word.len() <= 80
            && parts.all(|part| {
                let is_number = part.len() <= 4 && part.bytes().all(|b| b.is_ascii_digit());
                let is_letter = part.len() <= 3 && part.trim_matches(|c: char| c.is_ascii_digit()).len() <= 1;
                is_number || is_letter || NAMES.contains(&part.to_ascii_lowercase().as_str())
            })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &str) -> Result<String, String> {
        take(&line.split(' ').collect::<Vec<_>>()).map(|taken| taken.text)
    }

    #[test]
    fn what_means_the_same_here_is_taken() {
        for (line, expected) in [
            ("*/7 1-5/2 1,15 jan Mon", "cron */7 1-5/2 1,15 jan Mon"),
            ("@Daily", "cron @daily"),
            ("@every_minute", "cron * * * * *"),
            ("0~30 ~ 1~,15 ~6 ~/2", "cron H(0-30) H H(1-31),15 H(1-6) H/2"),
            ("~ mon~fri * * *", "cron H H(mon-fri) * * *"),
        ] {
            assert_eq!(text(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_is_refused_says_what_to_write() {
        for (line, expected) in [
            ("@reboot", "give it a time"),
            ("@every_second", "`* * * * *`"),
            ("@every 5m", "write `*/5 * * * *`"),
            ("@every 6h", "write `0 */6 * * *`"),
            ("@every 24h", "write `@daily`"),
            ("@every 7m", "--schedule 'every 420s'`"),
            ("@every 5h", "--schedule 'every 18000s'`"),
            ("@every 10s", "the shortest interval here is a minute"),
            ("@every soon", "such as `*/5 * * * *`"),
            ("@every", "such as `*/5 * * * *`"),
            ("@60", "write `* * * * *`"),
            ("@900", "write `*/15 * * * *`"),
            ("@3600", "write `@hourly`"),
            ("@99999999999999999999", "such as `*/5 * * * *`"),
            ("@", "the macro is not known"),
            ("@hunter2", "the macro is not known: write five fields"),
            ("0~5~9 * * * *", "expected five fields"),
        ] {
            let found = text(line).unwrap_err();
            assert!(found.contains(expected), "{line}: {found}");
            assert!(!found.contains("hunter2"), "{found}");
        }
    }

    #[test]
    fn only_words_of_schedules_can_be_shown() {
        for line in ["0 9 * * 8", "*/61 H(0-9)/2 L JAN mon#2", "0~5 15W ? 1970 5L"] {
            assert!(can_be_shown(&line.split(' ').collect::<Vec<_>>()), "{line}");
        }
        for word in ["/usr/bin/x", "hunter2", "+447700900123", "447700900123", "Zoe", "-p", "--key=a", "é", "日"] {
            assert_eq!(can_be_shown(&["0", word]), word == "-p", "{word}");
        }
    }
}
