//! Cron expressions from people, from other programs and from nowhere: 400,000 texts are read or refused, none panics.
//!
//! Random bytes, soup of cron's alphabet, mutated expressions of this and other dialects, other scripts, and texts of any
//! length. What is accepted must fire later than asked and say the same when it is read back; what is refused must be told
//! in one line. `PUNCTUAL_SEED` chooses other texts. A hang would show as a test that never ends.

use chrono::{DateTime, Utc};
use punctual_core::schedule::{CronExpression, LONGEST_CRON_BYTES, Schedule, ScheduleError, ScheduleText, Timing};
use punctual_core::zone::Zones;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng, seq::IndexedRandom};

const SEED: u64 = 20_261_129;
const TEXTS_PER_KIND: usize = 80_000;

/// Expressions to mutate: of this dialect, of others, and near misses.
const WRITTEN: [&str; 36] = [
    "* * * * *",
    "*/15 9-17 * * 1-5",
    "0 9 1,15 * *",
    "30 9 L * *",
    "0 0 29 2 *",
    "0 0 13 * 5",
    "0 9 * jan,jul mon",
    "5/10 0-23/2 */2 1-12 sun-sat",
    "H H(9-16) * * H(1-5)",
    "H/15 * * * *",
    "h(0-29)/10 9,h H H H",
    "59 23 31 12 7",
    "0 0 31 2 *",
    "0 0 30 2 */7",
    "@daily",
    "@hourly",
    "@annually",
    "@every 5m",
    "@reboot",
    "0 0 9 * * *",
    "0 0 9 * * ? 2026",
    "0 9 ? * MON-FRI",
    "cron(0 9 ? * MON-FRI *)",
    "rate(5 minutes)",
    "0 9 15W * *",
    "0 9 LW * *",
    "0 9 L-3 * *",
    "0 9 * * 5#2",
    "0 9 * * 5L",
    "0 9 * * FRI#L",
    "R/2026-01-01T00:00:00Z/PT5M",
    "TZ=Asia/Kolkata 0 9 * * *",
    "*-*-* 09:00:00",
    "0 9 * * * /usr/bin/true",
    "0~59 9 * * *",
    "0 9 1-5,10-15/2,20 2-11/3 0,3-5,7",
];

const ALPHABET: [&str; 48] = [
    "0",
    "1",
    "2",
    "3",
    "5",
    "7",
    "9",
    "12",
    "23",
    "28",
    "29",
    "30",
    "31",
    "59",
    "60",
    "*",
    "*",
    "/",
    "/",
    "-",
    "-",
    ",",
    ",",
    " ",
    " ",
    " ",
    " ",
    " ",
    "\t",
    "\n",
    "\r",
    "L",
    "l",
    "W",
    "H",
    "h",
    "(",
    ")",
    "#",
    "?",
    "@",
    "mon",
    "SUN",
    "feb",
    "4294967296",
    "18446744073709551616",
    "+",
    ".",
];

const STRANGE: [&str; 24] = [
    "٣",
    "９",
    "½",
    "Ⅻ",
    "é",
    "ß",
    "İ",
    "ſ",
    "🕘",
    "👩‍👩‍👧",
    "\u{202e}",
    "\u{200b}",
    "\u{feff}",
    "\u{a0}",
    "\u{2003}",
    "\u{85}",
    "\u{2028}",
    "\0",
    "\u{1b}[2J",
    "\u{10ffff}",
    "日",
    "–",
    "−",
    "∗",
];

/// Instants to ask from: an ordinary day, inside New York's repeated hour, before Lord Howe's gap, the calendar's last days.
const INSTANTS: [&str; 4] =
    ["2027-02-28T23:59:59Z", "2026-11-01T05:40:00Z", "2026-10-03T15:29:59Z", "2100-12-30T12:00:00Z"];

#[test]
fn random_bytes_do_not_panic() {
    survive("bytes", |rng| {
        let length = rng.random_range(0..40);
        let byte = |rng: &mut StdRng| if rng.random() { rng.random_range(b' '..=b'~') } else { rng.random() };
        let bytes: Vec<u8> = (0..length).map(|_| byte(rng)).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    });
}

#[test]
fn soup_of_the_alphabet_does_not_panic() {
    survive("soup", |rng| match rng.random_range(0..3) {
        0 => soup(rng, 30),
        // Five fields, so that it is mostly about what is in them.
        _ => (0..5)
            .map(|_| if rng.random_ratio(3, 4) { "*".to_owned() } else { soup(rng, 4) })
            .collect::<Vec<_>>()
            .join(" "),
    });
}

#[test]
fn mutated_expressions_do_not_panic() {
    survive("mutations", |rng| {
        let mut text = (*WRITTEN.choose(rng).expect("some")).to_owned();
        for _ in 0..rng.random_range(0..4) {
            text = mutated(&text, rng);
        }
        text
    });
}

#[test]
fn other_scripts_do_not_panic() {
    survive("scripts", |rng| {
        let mut text = if rng.random() { soup(rng, 12) } else { (*WRITTEN.choose(rng).expect("some")).to_owned() };
        for _ in 0..rng.random_range(1..4) {
            let place = place_in(&text, rng);
            text.insert_str(place, STRANGE.choose(rng).expect("some"));
        }
        text
    });
}

#[test]
fn texts_of_any_length_do_not_panic() {
    survive("lengths", |rng| {
        let part = match rng.random_range(0..4) {
            0 => soup(rng, 10),
            1 => (*STRANGE.choose(rng).expect("some")).to_owned(),
            2 => format!("{},", rng.random_range(0..60)),
            _ => (*["*", "H,", "*/1,", "0-59/1,", " ", "(", "cron("].choose(rng).expect("some")).to_owned(),
        };
        // Most are around the limit, a few far beyond it.
        let length =
            if rng.random_ratio(1, 100) { rng.random_range(1_000..60_000) } else { rng.random_range(200..320) };
        let mut text = part.repeat(length / part.len().max(1));
        if rng.random() {
            text = format!("{} 9 * * *", text.trim_end_matches(','));
        }
        text
    });
}

fn soup(rng: &mut StdRng, most: usize) -> String {
    (0..rng.random_range(0..most)).map(|_| *ALPHABET.choose(rng).expect("some")).collect()
}

/// Some place between two characters.
fn place_in(text: &str, rng: &mut StdRng) -> usize {
    let place = rng.random_range(0..=text.len());
    (place..=text.len()).find(|place| text.is_char_boundary(*place)).expect("the end is a boundary")
}

/// A text with one thing put in, taken out, doubled, or taken from another expression.
fn mutated(text: &str, rng: &mut StdRng) -> String {
    let (one, other) = (place_in(text, rng), place_in(text, rng));
    let (from, to) = (one.min(other), one.max(other));
    let other = WRITTEN.choose(rng).expect("some");
    let mut fields: Vec<&str> = text.split(' ').collect();
    match rng.random_range(0..6) {
        0 => format!("{}{}{}", &text[..from], ALPHABET.choose(rng).expect("some"), &text[from..]),
        1 => format!("{}{}{}", &text[..from], ALPHABET.choose(rng).expect("some"), &text[to..]),
        2 => format!("{}{}", &text[..from], &text[to..]),
        3 => format!("{}{}", &text[..to], &text[from..]),
        4 => format!("{}{}", &text[..from], &other[place_in(other, rng)..]),
        _ => {
            let index = rng.random_range(0..fields.len());
            fields[index] = other.split(' ').collect::<Vec<_>>().choose(rng).expect("a text has a part");
            fields.join(" ")
        }
    }
}

fn survive(kind: &str, make: impl Fn(&mut StdRng) -> String) {
    let seed = match std::env::var("PUNCTUAL_SEED") {
        Ok(seed) => seed.parse().expect("PUNCTUAL_SEED is a number"),
        Err(_) => SEED,
    };
    println!("{kind}: PUNCTUAL_SEED {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let probe = Probe::new(seed);
    let mut accepted = 0;
    for number in 0..TEXTS_PER_KIND {
        let text = make(&mut rng);
        accepted += usize::from(probe.try_text(&text, number));
    }
    println!("{kind}: {accepted} of {TEXTS_PER_KIND} texts accepted");
}

struct Probe {
    seed: u64,
    zones: Zones,
    instants: Vec<DateTime<Utc>>,
}

impl Probe {
    fn new(seed: u64) -> Self {
        let instants = INSTANTS.iter().map(|text| text.parse().expect("an instant")).collect();
        Probe { seed, zones: Zones::embedded(), instants }
    }

    /// Reads a text in three ways, and says whether it was accepted with a key.
    fn try_text(&self, text: &str, number: usize) -> bool {
        let what = || format!("seed {} text {number}: {text:?}", self.seed);
        let is_long = text.len() > LONGEST_CRON_BYTES;
        for (read, key) in
            [(CronExpression::read(text, None), None), (CronExpression::read(text, Some("k")), Some("k"))]
        {
            match read {
                Ok(cron) => {
                    assert!(!is_long, "{} bytes were accepted: {}", text.len(), what());
                    self.try_cron(&cron, number, &what);
                    // The same from the text of a schedule, which may be trimmed before it is measured.
                    let when = format!("cron {text}");
                    let schedule = ScheduleText { when: &when, key, ..ScheduleText::default() };
                    let read = schedule.read(self.instants[0], &self.zones).map(|(schedule, _)| schedule.timing);
                    assert_eq!(read, Ok(Timing::Cron(cron)), "{}", what());
                }
                Err(error) => check_refusal(&error, is_long, &what),
            }
        }
        // What a person may have written without saying that it is cron.
        for when in [text, &format!("cron {text}"), &format!("every {text}"), &format!("at {text}")] {
            let read =
                ScheduleText { when, key: Some("k"), ..ScheduleText::default() }.read(self.instants[0], &self.zones);
            if let Err(error) = read {
                check_refusal(&error, false, &what);
            }
        }
        CronExpression::read(text, Some("k")).is_ok()
    }

    fn try_cron(&self, cron: &CronExpression, number: usize, what: &dyn Fn() -> String) {
        let resolved = cron.resolved();
        let again =
            CronExpression::read(resolved, None).unwrap_or_else(|error| panic!("{resolved:?}: {error}, {}", what()));
        let stored = CronExpression::stored(cron.written(), resolved);
        assert_eq!(stored.as_ref(), Ok(cron), "{}", what());
        assert!(cron.shortest_interval_s().is_none_or(|interval| interval >= 60), "{}", what());
        let after = self.instants[number % self.instants.len()];
        let schedule = |cron: &CronExpression, tz| Schedule { tz, ..Schedule::utc(Timing::Cron(cron.clone())) };
        for tz in [chrono_tz::America::New_York, chrono_tz::Australia::Lord_Howe] {
            let next = schedule(cron, tz).next_after(after, &self.zones);
            assert!(next.is_none_or(|next| next.at > after), "{next:?} after {after}, {}", what());
            assert_eq!(schedule(&again, tz).next_after(after, &self.zones), next, "{resolved:?}, {}", what());
        }
    }
}

fn check_refusal(error: &ScheduleError, is_long: bool, what: &dyn Fn() -> String) {
    let told = error.to_string();
    assert!(!told.trim().is_empty(), "{}", what());
    assert!(!told.contains(['\n', '\r']), "a refusal of more than one line, {told:?}: {}", what());
    assert!(!is_long || told.contains("256"), "{told}: {}", what());
}
