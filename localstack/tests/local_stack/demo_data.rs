use std::collections::{BTreeMap, BTreeSet};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/reminders.csv");

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

#[test]
fn every_row_of_the_demo_data_is_as_documented() {
    let mut reader = csv::Reader::from_path(DATA).unwrap();
    assert_eq!(
        reader.headers().unwrap(),
        "customer,phone,kind,priority,schedule,template".split(',').collect::<Vec<_>>()
    );
    let (mut kinds, mut phones, mut texts) = (BTreeSet::new(), BTreeMap::new(), BTreeSet::new());
    let (mut priorities, mut once) = (BTreeMap::<String, u32>::new(), 0);
    for row in reader.records() {
        let row = row.unwrap();
        let [customer, phone, kind, priority, schedule, template] = [0, 1, 2, 3, 4, 5].map(|n| row[n].to_owned());
        assert!(is_fiction(&phone), "the phone of {customer} could be somebody's");
        assert!(template.chars().count() <= 160 && template.chars().all(|char| GSM.contains(char)), "{template}");
        if let Some(instant) = schedule.strip_prefix("at ") {
            let instant = chrono::DateTime::parse_from_rfc3339(instant).unwrap();
            assert!(schedule.starts_with("at 2027-") && instant.timestamp_subsec_nanos() == 0, "{schedule}");
            once += 1;
        } else {
            assert_eq!(schedule, "every 24h");
        }
        *priorities.entry(priority).or_default() += 1;
        assert_eq!(phones.entry(customer.clone()).or_insert(phone.clone()), &phone, "{customer} has two phones");
        assert!(kinds.insert((customer, kind)), "a customer has the same kind twice");
        assert!(texts.insert(template), "a text is there twice");
    }
    assert_eq!(kinds.len(), 200);
    assert_eq!(once, 20);
    let shares = [("bulk", 60), ("normal", 130), ("urgent", 10)].map(|(name, rows)| (name.to_owned(), rows));
    assert_eq!(priorities, BTreeMap::from(shares));
}
