//! Cron expressions as they are made: structures, which print themselves and match by themselves.

use rand::rngs::StdRng;
use rand::{Rng, seq::IndexedRandom};

/// A cron expression as it was made; its text is only for the schedule.
#[derive(Clone)]
pub struct Expression {
    pub text: String,
    /// The values of each field, as bits.
    values: [u64; 5],
    last_day: bool,
    pub is_wildcard: bool,
    pub either_day: bool,
}

/// What a field is made of.
struct Kind {
    lowest: u32,
    highest: u32,
    names: &'static [&'static str],
}

const KINDS: [Kind; 5] = [
    Kind { lowest: 0, highest: 59, names: &[] },
    Kind { lowest: 0, highest: 23, names: &[] },
    Kind { lowest: 1, highest: 31, names: &[] },
    Kind {
        lowest: 1,
        highest: 12,
        names: &["", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
    },
    Kind { lowest: 0, highest: 7, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] },
];

/// Part of a field.
#[derive(Clone, Copy)]
enum Item {
    All,
    AllBy(u32),
    One(u32),
    From(u32, u32),
    Range(u32, u32),
    RangeBy(u32, u32, u32),
}

impl Item {
    fn holds(self, value: u32, kind: &Kind) -> bool {
        let (from, to, by) = match self {
            Item::All => (kind.lowest, kind.highest, 1),
            Item::AllBy(by) => (kind.lowest, kind.highest, by),
            Item::One(one) => (one, one, 1),
            Item::From(from, by) => (from, kind.highest, by),
            Item::Range(from, to) => (from, to, 1),
            Item::RangeBy(from, to, by) => (from, to, by),
        };
        from <= value && value <= to && (value - from).is_multiple_of(by)
    }

    fn print(self, kind: &Kind, rng: &mut StdRng) -> String {
        let mut value = |value: u32| match kind.names.get(value as usize) {
            Some(name) if rng.random() => {
                if rng.random() {
                    name.to_uppercase()
                } else {
                    (*name).to_owned()
                }
            }
            _ if rng.random_ratio(1, 10) => format!("{value:02}"),
            _ => value.to_string(),
        };
        match self {
            Item::All => "*".into(),
            Item::AllBy(by) => format!("*/{by}"),
            Item::One(one) => value(one),
            Item::From(from, by) => format!("{}/{by}", value(from)),
            Item::Range(from, to) => format!("{}-{}", value(from), value(to)),
            Item::RangeBy(from, to, by) => format!("{}-{}/{by}", value(from), value(to)),
        }
    }
}

impl Expression {
    /// Makes an expression; most of them ask for wall times near the one given.
    pub fn make(rng: &mut StdRng, [_, hour, day, month, weekday]: [u32; 5]) -> Self {
        let (before, after) = ((hour + 23) % 24, (hour + 1) % 24);
        let near: [&[u32]; 5] = [
            &[0, 0, 0, 1, 15, 29, 30, 30, 31, 44, 45, 59],
            &[0, 1, 2, 3, 4, 23, before, hour, hour, hour, hour, hour, hour, hour, after],
            &[1, 28, 29, 30, 31, day, day, day, (day % 31) + 1, (day + 29) % 31 + 1],
            &[1, 2, 12, month, month, month, month],
            &[0, 7, weekday, weekday, (weekday + 1) % 7, (weekday + 6) % 7],
        ];
        let open = if rng.random_ratio(2, 3) { [2, 5, 85, 95, 90] } else { [20, 30, 55, 75, 60] };
        let fields: [Vec<Item>; 5] = std::array::from_fn(|index| items(rng, &KINDS[index], near[index], open[index]));
        let last_day = rng.random_ratio(1, 12);
        let starred = |index: usize| matches!(fields[index][0], Item::All | Item::AllBy(_));
        let mut values = std::array::from_fn(|index| {
            let holds = |value: &u32| fields[index].iter().any(|item| item.holds(*value, &KINDS[index]));
            (0..60).filter(holds).fold(0, |bits, value| bits | 1 << value)
        });
        // Sunday is 0 and 7.
        values[4] |= values[4] >> 7 & 1;
        if last_day {
            values[2] = 0;
        }
        let either_day = (last_day || !starred(2)) && !starred(4);
        let is_wildcard = starred(0) || starred(1);
        let print = |(index, field): (usize, &Vec<Item>)| match index {
            2 if last_day => "L".to_owned(),
            _ => field.iter().map(|item| item.print(&KINDS[index], rng)).collect::<Vec<_>>().join(","),
        };
        let text = fields.iter().enumerate().map(print).collect::<Vec<_>>().join(" ");
        Expression { text, values, last_day, is_wildcard, either_day }
    }

    pub fn when(&self) -> String {
        format!("cron {}", self.text)
    }

    /// Whether it asks for a time of these fields, on the last day of a month or on another one.
    pub fn asks_for(&self, fields: [u32; 5], is_last_day: bool) -> bool {
        let has = |field: usize| self.values[field] >> fields[field] & 1 == 1;
        let by_date = has(2) || self.last_day && is_last_day;
        let day = if self.either_day { by_date || has(4) } else { by_date && has(4) };
        has(0) && has(1) && has(3) && day
    }

    /// Whether a month it names has a day it names, in some year.
    pub fn can_fire(&self) -> bool {
        let longest = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let has_day =
            |month: usize| self.last_day || (1..=longest[month - 1]).any(|day| self.values[2] >> day & 1 == 1);
        self.either_day || (1..=12).any(|month| self.values[3] >> month & 1 == 1 && has_day(month))
    }
}

/// Makes a field; `open` of a hundred are `*`.
fn items(rng: &mut StdRng, kind: &Kind, near: &[u32], open: u32) -> Vec<Item> {
    if rng.random_ratio(open, 100) {
        return vec![Item::All];
    }
    let count = if rng.random_ratio(1, 4) { rng.random_range(2..=5) } else { 1 };
    let value = |rng: &mut StdRng| match near.choose(rng) {
        Some(near) if rng.random_ratio(3, 4) => *near,
        _ => rng.random_range(kind.lowest..=kind.highest),
    };
    let item = |_| {
        let (one, other) = (value(rng), value(rng));
        let (from, to) = (one.min(other), one.max(other));
        let by =
            if rng.random() { rng.random_range(1..=8) } else { *[10, 15, 20, 30, 99].choose(rng).expect("some steps") };
        match rng.random_range(0..20) {
            0 => Item::All,
            1..=3 => Item::AllBy(by),
            4 => Item::From(one, by),
            5..=7 => Item::Range(from, to),
            8 | 9 => Item::RangeBy(from, to, by),
            _ => Item::One(one),
        }
    };
    (0..count).map(item).collect()
}
