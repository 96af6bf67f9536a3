use punctual_core::zone::{Zones, parse_name};
use std::collections::{BTreeMap, BTreeSet};

const DATA: &str = include_str!("../../demo/reminders.csv");
const README: &str = include_str!("../../demo/README.md");

/// The GSM 7-bit default alphabet (3GPP TS 23.038) without its control characters and braces.
const GSM: &str = "@£$¥èéùìòÇØøÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿\
                   abcdefghijklmnopqrstuvwxyzäöñüà";

/// The ranges of demo/README.md: what a phone begins with, and the range of its last digits.
const FICTION: [(&str, &str, std::ops::RangeInclusive<u32>); 4] = [
    ("+447700900", "###", 0..=999),
    ("+3363998", "####", 0..=9999),
    ("+4917139200", "##", 0..=99),
    ("+4670174", "####", 605..=699),
];

fn is_fiction(phone: &str) -> bool {
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = phone.strip_prefix("+1") {
        return digits(rest, 10) && &rest[3..8] == "55501";
    }
    FICTION.iter().any(|(prefix, pattern, range)| {
        phone.strip_prefix(prefix).is_some_and(|rest| {
            digits(rest, pattern.len()) && rest.parse().is_ok_and(|number: u32| range.contains(&number))
        })
    })
}

/// What a schedule is, as demo/README.md counts them.
fn kind_of(schedule: &str) -> &'static str {
    if schedule == "every 24h" {
        return "every";
    }
    if let Some(fields) = schedule.strip_prefix("cron ") {
        assert_eq!(fields.split(' ').count(), 5, "{schedule}");
        return "cron";
    }
    assert!(schedule.starts_with("at 2027-"), "{schedule}");
    if schedule.ends_with('Z') {
        return "instant";
    }
    assert!(chrono::NaiveDateTime::parse_from_str(schedule, "at %Y-%m-%dT%H:%M").is_ok(), "{schedule}");
    "wall time"
}

/// Rows by a property, for comparison with those expected.
fn counts<const N: usize>(expected: [(&str, u32); N]) -> BTreeMap<String, u32> {
    expected.map(|(name, rows)| (name.to_owned(), rows)).into()
}

#[test]
fn every_row_of_the_demo_data_is_as_documented() {
    let mut reader = csv::Reader::from_reader(DATA.as_bytes());
    assert_eq!(
        reader.headers().unwrap(),
        "customer,phone,kind,priority,schedule,tz,missed,template".split(',').collect::<Vec<_>>()
    );
    let (mut kinds, mut customers, mut texts) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
    let [mut priorities, mut schedules, mut rules] = [const { BTreeMap::<String, u32>::new() }; 3];
    for row in reader.records() {
        let row = row.unwrap();
        let [customer, phone, kind, priority, schedule, tz, missed, template] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|n| row[n].to_owned());
        assert!(is_fiction(&phone), "the phone of {customer} could be somebody's");
        assert!(template.chars().count() <= 160 && template.chars().all(|char| GSM.contains(char)), "{template}");
        assert!(missed != "none" || priority == "bulk", "{customer} would miss what is no advertising");
        assert!(
            !phone.starts_with("+1") || tz.starts_with("America/") || tz == "Pacific/Honolulu",
            "{customer} is not in America"
        );
        for (of, name) in [(&mut priorities, priority), (&mut rules, missed)] {
            *of.entry(name).or_default() += 1;
        }
        *schedules.entry(kind_of(&schedule).to_owned()).or_default() += 1;
        let who = (phone, tz);
        assert_eq!(
            customers.entry(customer.clone()).or_insert(who.clone()),
            &who,
            "{customer} has two phones or zones"
        );
        assert!(kinds.insert((customer, kind)), "a customer has the same kind twice");
        assert!(texts.insert(template), "a text is there twice");
    }
    assert_eq!((kinds.len(), customers.len()), (200, 152));
    assert_eq!(priorities, counts([("bulk", 60), ("normal", 130), ("urgent", 10)]));
    assert_eq!(schedules, counts([("cron", 120), ("every", 60), ("instant", 4), ("wall time", 16)]));
    assert_eq!(rules, counts([("", 34), ("all", 20), ("latest", 136), ("none", 10)]));
}

#[test]
fn the_demos_customers_live_by_clocks_of_all_kinds() {
    let zones = Zones::embedded();
    let mut names = BTreeSet::new();
    for row in csv::Reader::from_reader(DATA.as_bytes()).records() {
        names.insert(row.unwrap()[5].to_owned());
    }
    assert_eq!(names.len(), 39);
    for name in &names {
        assert!(README.contains(&format!("`{name}`")), "demo/README.md does not tell of {name}");
    }
    // In July, when Lord Howe's clock is not put forward by its half hour.
    let july = chrono::DateTime::parse_from_rfc3339("2027-07-01T00:00:00Z").unwrap().timestamp();
    let minutes = |name: &String| zones.timeline(parse_name(name).unwrap()).offset_at(july).rem_euclid(3_600) / 60;
    let off_the_hour = |offset: i64| names.iter().filter(|name| minutes(name) == offset).count();
    assert_eq!([30, 45].map(off_the_hour), [7, 3]);
}

#[test]
fn the_importer_reads_every_row_of_the_demo_data_on_its_customers_clock() {
    let now = chrono::DateTime::from_timestamp(1_790_000_000, 0).unwrap();
    let specs =
        punctual_scheduler::import::read_jobs("reminders.csv", DATA.as_bytes(), "demo", now, &Zones::embedded());
    let read: Vec<String> = specs.unwrap().iter().map(|spec| spec.schedule.tz.name().to_owned()).collect();
    let mut rows = csv::Reader::from_reader(DATA.as_bytes());
    let written: Vec<String> = rows.records().map(|row| row.unwrap()[5].to_owned()).collect();
    assert_eq!(read, written);
}
