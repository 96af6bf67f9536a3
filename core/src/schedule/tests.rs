use super::*;
use crate::zone::Zones;
use proptest::prelude::*;

fn at(text: &str) -> DateTime<Utc> {
    parse_instant(text).unwrap()
}

fn show(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn now() -> DateTime<Utc> {
    at("2026-11-29T00:00:00Z")
}

fn next(schedule: &str, after: &str) -> String {
    let firing = Schedule::parse(schedule, now()).unwrap().next_after(at(after), &Zones::embedded());
    show(firing.unwrap().at)
}

fn read(text: &ScheduleText<'_>) -> Schedule {
    text.read(now(), &Zones::embedded()).unwrap().0
}

fn refusal(text: &ScheduleText<'_>) -> ScheduleError {
    text.read(now(), &Zones::embedded()).unwrap_err()
}

fn firings(schedule: &Schedule, after: &str, count: usize) -> Vec<String> {
    let zones = Zones::embedded();
    let first = schedule.next_after(at(after), &zones);
    let all = std::iter::successors(first, |previous| schedule.next_firing(previous, &zones));
    all.take(count).map(|firing| show(firing.at)).collect()
}

fn in_zone<'a>(when: &'a str, tz: &'a str) -> ScheduleText<'a> {
    ScheduleText { when, tz: Some(tz), ..ScheduleText::default() }
}

#[test]
fn cron_follows_unix_and_not_the_crate() {
    // Monday is 1, as in Unix; the crate's 1 is Sunday. 2026-11-29 is a Sunday.
    assert_eq!(next("cron 0 9 * * 1", "2026-11-29T00:00:00Z"), "2026-11-30T09:00:00Z");
    assert_eq!(next("cron 0 9 * * 7", "2026-11-29T00:00:00Z"), "2026-11-29T09:00:00Z");
    assert_eq!(next("cron 0 9 * * sun", "2026-11-29T10:00:00Z"), "2026-12-06T09:00:00Z");
    // Both day fields restricted: either is enough.
    assert_eq!(next("cron 0 9 13 * 5", "2026-12-01T00:00:00Z"), "2026-12-04T09:00:00Z");
    assert_eq!(next("cron 0 9 13 * 5", "2026-12-12T00:00:00Z"), "2026-12-13T09:00:00Z");
    // A day field that starts with `*` restricts: both are needed.
    assert_eq!(next("cron 0 9 */2 * 1", "2026-12-01T00:00:00Z"), "2026-12-07T09:00:00Z");
    assert_eq!(next("cron */15 9-17 * * mon-fri", "2026-12-04T17:45:00Z"), "2026-12-07T09:00:00Z");
    assert_eq!(next("cron @daily", "2026-12-04T17:45:00Z"), "2026-12-05T00:00:00Z");
    assert_eq!(next("cron 0 0 29 2 *", "2026-12-04T17:45:00Z"), "2028-02-29T00:00:00Z");
}

#[test]
fn the_last_day_is_the_last_day_of_each_month() {
    let last = read(&in_zone("cron 30 9 L * *", "UTC"));
    assert_eq!(
        firings(&last, "2027-01-31T10:00:00Z", 4),
        ["2027-02-28T09:30:00Z", "2027-03-31T09:30:00Z", "2027-04-30T09:30:00Z", "2027-05-31T09:30:00Z"]
    );
    assert_eq!(firings(&last, "2028-02-01T00:00:00Z", 1), ["2028-02-29T09:30:00Z"]);
    assert_eq!(
        firings(&read(&in_zone("cron 0 0 l 2,4 *", "UTC")), "2028-02-29T00:00:00Z", 1),
        ["2028-04-30T00:00:00Z"]
    );
    assert_eq!(firings(&last, "2099-12-31T10:00:00Z", 2), ["2100-01-31T09:30:00Z", "2100-02-28T09:30:00Z"]);
    // Beside a weekday it is one of two ways to match; beside `*/n` both are needed.
    assert_eq!(
        firings(&read(&in_zone("cron 0 0 L * 1", "UTC")), "2026-12-22T00:00:00Z", 2),
        ["2026-12-28T00:00:00Z", "2026-12-31T00:00:00Z"]
    );
    assert_eq!(
        firings(&read(&in_zone("cron 0 0 L * */7", "UTC")), "2026-12-01T00:00:00Z", 1),
        ["2027-01-31T00:00:00Z"]
    );
}

#[test]
fn what_cannot_be_read_is_refused_with_advice() {
    for (text, advice) in [
        ("cron 0 9 * * 8", "weekday 8 is out of range 0-7 in field 5 of `0 9 * * 8`"),
        ("cron 0 0 31 2 *", "never fires"),
        ("cron 0 0 30,31 2 *", "never fires"),
        ("cron 0 0 31 4,6,9,11 *", "never fires"),
        ("cron 0 0 9 * * *", "has 6 fields: leave out the seconds at the start and write `0 9 * * *`"),
        ("cron 0 9 * * ? 2026", "has 6 fields: leave out the year at the end and write `0 9 * * *`"),
        (
            "cron cron(0 9 ? * MON-FRI *)",
            "leave out `cron(…)` and leave out the year at the end and write `0 9 * * MON-FRI`",
        ),
        (
            "cron 0 0 9 * * ? 2026",
            "has 7 fields: leave out the seconds at the start and the year at the end and write `0 9 * * *`",
        ),
        (
            "cron 0 0 9 ? * 2-6",
            "leave out the seconds at the start and write `0 9 * * 1-5`; weekdays are counted from Sunday = 0 here",
        ),
        ("cron 0 9 ? * 2 *", "leave out the year at the end and write `0 9 * * 1`; weekdays"),
        ("cron 0 9 ? * 6L *", "has 6 fields: write five fields"),
        ("cron 30 0 9 * * MON 2027", "write `0 9 * * MON`"),
        ("cron 0 9 * *", "has 4 fields: write five fields, minute hour day-of-month month weekday"),
        ("cron", "has 0 fields"),
        (
            "cron ? 9 * * *",
            "`?` is not Unix cron (minute `?`): write `*` for any value, or `H` for one chosen by hash in field 1",
        ),
        ("cron 0 9 ? * *", "day-of-month `?`"),
        (
            "cron 0 9 15W * *",
            "`W` (the nearest working day) is not Unix cron (day-of-month `15W`): write weekdays such as `1-5`",
        ),
        ("cron 0 9 LW * *", "`W` (the nearest working day)"),
        ("cron 0 9 * * 5#2", "day-of-month `8-14`, and let the handler look for weekday 5 in field 5"),
        ("cron 0 9 * * 5L", "among day-of-month `22-31`"),
        ("cron 0 9 1,L * *", "`L` must stand alone in day-of-month (found `1,L`)"),
        ("cron 0 9 L-3 * *", "must stand alone"),
        ("cron 0 9 * L *", "`L` is only for day-of-month (month `L`): write 12 in field 4"),
        ("cron L 9 * * *", "(minute `L`): write 59"),
        ("cron @every 5m", "write the interval as a schedule of its own, `every 5m`"),
        ("cron @reboot", "there is nothing that boots"),
        ("cron @fortnightly", "one of @hourly @daily"),
        ("cron 61 9 * * *", "minute 61 is out of range 0-59 in field 1"),
        ("cron 0 24 * * *", "hour 24 is out of range 0-23 in field 2"),
        ("cron 0 9 0 * *", "day-of-month 0 is out of range 1-31 in field 3"),
        ("cron 0 9 * 13 *", "month 13 is out of range 1-12 in field 4"),
        ("cron 0 9 * mon *", "month `mon` is not a number 1-12 or a name jan-dec in field 4"),
        ("cron 0 9 * * monday", "weekday `monday` is not a number 0-7 or a name sun-sat in field 5"),
        ("cron 5-1 9 * * *", "minute range 5-1 runs backwards: write two ranges, `5-59,0-1` in field 1"),
        ("cron 0 9 * * fri-sun", "as in `5-7`"),
        ("cron */0 9 * * *", "step `0` of minute is not a whole number above 0"),
        ("cron 1,,2 9 * * *", "minute `` is not a number 0-59 in field 1"),
        ("cron H 9 * * *", "give the key"),
        ("every 24", "write `90s`, `15m`, `24h` or `7d`"),
        ("every 5s", "too short"),
        ("every 24h from tomorrow", "is no moment"),
        ("at 2026-12-05", "is no moment"),
        ("at 2026-12-05T09:00:00.5Z", "whole seconds"),
        ("daily", "is not a schedule"),
        ("0 9 * * 1-5", "write `cron 0 9 * * 1-5`"),
        ("@daily", "write `cron @daily`"),
        ("cron(0 9 * * ? *)", "write `0 9 * * *`"),
        ("rate(5 minutes)", "write an interval such as `every 5m`"),
        ("at +99999-01-01T00:00", "the calendar ends with the year 2100"),
        ("at 2150-07-01T09:00", "the calendar ends with the year 2100"),
        ("every 24h from -99999-01-01T00:00", "is out of range"),
        ("every 40000d", "the calendar ends with the year 2100"),
        ("every 40000d from 2026-12-05T09:00:00Z", "too long"),
        ("at 2026-12-05T09:00:60", "a leap second"),
        ("", "is not a schedule"),
    ] {
        let error = Schedule::parse(text, now()).unwrap_err().to_string();
        assert!(error.contains(advice), "{text}: {error}");
    }
    let long = format!("cron {}", "1,".repeat(200));
    assert!(Schedule::parse(&long, now()).unwrap_err().to_string().contains("400 bytes is too long: 256 are allowed"));
}

#[test]
fn a_step_beyond_its_range_is_unix_but_worth_a_word() {
    let warning = |when| read(&in_zone(when, "UTC")).warning();
    assert!(warning("cron */90 * * * *").unwrap().contains("step 90 of minute"));
    assert!(warning("cron 0 */36 * * *").unwrap().contains("write the schedule `every …`"));
    for fine in ["cron */60 */24 */31 */12 */8", "cron */15 * * * *", "cron @daily", "every 90m"] {
        assert_eq!(warning(fine), None, "{fine}");
    }
}

#[test]
fn blanks_between_fields_do_not_make_another_expression() {
    let read = |text| CronExpression::read(text, None).unwrap();
    assert_eq!(read(" 0\t9  * *\n1-5 "), read("0 9 * * 1-5"));
    let error = CronExpression::read("0\r9\u{1b}[31m * *", None).unwrap_err().to_string();
    assert!(!error.contains(char::is_control) && error.contains("\\u{1b}"), "{error}");
}

#[test]
fn the_calendar_begins_in_1970_and_ends_with_2100() {
    let zones = Zones::embedded();
    let daily = read(&in_zone("cron 0 9 * * *", "UTC"));
    assert_eq!(firings(&daily, "1901-01-01T00:00:00Z", 1), ["1970-01-01T09:00:00Z"]);
    assert_eq!(daily.next_after(at("2100-12-31T09:00:00Z"), &zones), None);
    for end in [DateTime::<Utc>::MAX_UTC, DateTime::<Utc>::MIN_UTC] {
        assert_eq!(daily.next_after(end, &zones).is_some(), end < now());
    }
}

#[test]
fn each_part_of_a_schedule_is_refused_by_its_name() {
    let base = in_zone("cron 0 9 * * *", "Asia/Kolkata");
    for (text, part) in [
        (ScheduleText { tz: Some("Asia/Calcuta"), ..base.clone() }, "tz"),
        (ScheduleText { when: "cron 0 9 * *", ..base.clone() }, "schedule"),
        (ScheduleText { start_at: Some("soon"), ..base.clone() }, "start_at"),
        (ScheduleText { end_at: Some("2026"), ..base.clone() }, "end_at"),
        (
            ScheduleText { start_at: Some("2027-01-02T00:00"), end_at: Some("2027-01-01T00:00"), ..base.clone() },
            "end_at",
        ),
        (ScheduleText { max_runs: Some(0), ..base.clone() }, "max_runs"),
    ] {
        assert_eq!(refusal(&text).part, part);
    }
}

#[test]
fn hashed_fields_give_a_key_its_own_values_for_ever() {
    let of = |when: &'static str, key: &'static str| {
        let schedule = read(&ScheduleText { when, key: Some(key), ..ScheduleText::default() });
        let Timing::Cron(cron) = schedule.timing else { panic!("{when}") };
        (cron.resolved().to_owned(), cron.to_string())
    };
    // Worked out by another implementation: pick("minute", "c-10001", 60) is 25, and so on. These must never change.
    assert_eq!(of("cron H 9 * * *", "c-10001"), ("25 9 * * *".into(), "25 9 * * * (H 9 * * *)".into()));
    assert_eq!(of("cron H H H H H", "c-10001").0, "25 5 23 12 2");
    assert_eq!(of("cron H(0-29) H(9-16) * * H(1-5)", "c-10001").0, "12 10 * * 2");
    assert_eq!(of("cron H/15 * * * *", "c-10001").0, "6-59/15 * * * *");
    assert_eq!(of("cron h(30-59)/10 9,h * * *", "c-10001").0, "34-59/10 9,5 * * *");
    assert_eq!(of("cron 0 9 * * thu", "c-10001").0, "0 9 * * thu");
    for (when, advice) in [
        ("cron H(50-70) 9 * * *", "minute 70 is out of range 0-59 in field 1"),
        ("cron H(9-5) 9 * * *", "runs backwards"),
        ("cron 0 9 * * H(0-7)", "write 0-6"),
        ("cron H5 9 * * *", "write `H`, `H(0-59)`, `H/2` or `H(0-59)/2` in field 1"),
        ("cron 0 9 H(5) * *", "write `H`, `H(1-28)`"),
        ("cron H/0 9 * * *", "step `0`"),
    ] {
        let error = refusal(&ScheduleText { when, key: Some("k"), ..ScheduleText::default() });
        assert!(error.to_string().contains(advice), "{when}: {error}");
    }
}

#[test]
fn an_interval_is_counted_from_its_anchor() {
    assert_eq!(next("every 24h from 2026-12-05T09:00:00Z", "2026-12-01T00:00:00Z"), "2026-12-05T09:00:00Z");
    assert_eq!(next("every 24h from 2026-12-05T09:00:00Z", "2026-12-05T09:00:00Z"), "2026-12-06T09:00:00Z");
    assert_eq!(next("every 90m from 2026-12-05T09:00:00Z", "2026-12-05T11:59:59Z"), "2026-12-05T12:00:00Z");
    let kolkata = read(&in_zone("every 24h from 2026-12-05T09:00", "Asia/Kolkata"));
    assert_eq!(firings(&kolkata, "2026-12-01T00:00:00Z", 1), ["2026-12-05T03:30:00Z"]);
    let started =
        read(&ScheduleText { when: "every 24h", start_at: Some("2027-01-01T06:00:00Z"), ..ScheduleText::default() });
    assert_eq!(firings(&started, "2026-12-01T00:00:00Z", 1), ["2027-01-01T06:00:00Z"]);
}

#[test]
fn only_an_interval_without_from_has_an_implied_anchor() {
    let anchor = |when| ScheduleText { when, ..ScheduleText::default() }.read(now(), &Zones::embedded()).unwrap().1;
    assert_eq!(anchor("every 24h"), Anchor::Implied);
    for stated in ["every 24h from 2026-12-05T09:00:00Z", "at 2026-12-05T09:00:00Z", "cron 0 9 * * *"] {
        assert_eq!(anchor(stated), Anchor::Stated, "{stated}");
    }
}

#[test]
fn a_single_wall_time_is_an_instant_of_its_zone() {
    let once = |when, gap, repeat| {
        let text = ScheduleText { dst_gap: gap, dst_repeat: repeat, ..in_zone(when, "America/New_York") };
        firings(&read(&text), "1970-01-01T00:00:00Z", 3)
    };
    let (gap, repeat) = (DstGap::default(), DstRepeat::default());
    assert_eq!(once("at 2026-12-05T09:00", gap, repeat), ["2026-12-05T14:00:00Z"]);
    assert_eq!(once("at 2026-12-05T09:00:07", gap, repeat), ["2026-12-05T14:00:07Z"]);
    assert_eq!(once("at 2026-03-08T02:30", gap, repeat), ["2026-03-08T07:00:00Z"]);
    assert_eq!(once("at 2026-03-08T02:30", DstGap::Skip, repeat), [""; 0]);
    assert_eq!(once("at 2026-11-01T01:30", gap, DstRepeat::First), ["2026-11-01T05:30:00Z"]);
    assert_eq!(once("at 2026-11-01T01:30", gap, DstRepeat::Second), ["2026-11-01T06:30:00Z"]);
    assert_eq!(once("at 2026-11-01T01:30", gap, DstRepeat::Both), ["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z"]);
}

#[test]
fn bounds_are_the_first_and_the_last_moment_at_which_it_may_fire() {
    let text = ScheduleText {
        start_at: Some("2027-01-05T09:00"),
        end_at: Some("2027-01-07T09:00"),
        ..in_zone("cron 0 9 * * *", "Asia/Kathmandu")
    };
    let bounded = read(&text);
    let expected = ["2027-01-05T03:15:00Z", "2027-01-06T03:15:00Z", "2027-01-07T03:15:00Z"];
    assert_eq!(firings(&bounded, "2026-12-01T00:00:00Z", 9), expected);
    assert_eq!(show(bounded.first(now(), &Zones::embedded()).unwrap().at), expected[0]);
    let over =
        read(&ScheduleText { start_at: Some("2026-12-06T00:00:00Z"), ..in_zone("at 2026-12-05T09:00:00Z", "UTC") });
    assert_eq!(over.first(now(), &Zones::embedded()), None);
}

#[test]
fn this_years_law_holds_on_an_older_machine() {
    let vancouver = read(&in_zone("cron 0 9 30 11 *", "America/Vancouver"));
    assert_eq!(firings(&vancouver, "2026-11-01T00:00:00Z", 1), ["2026-11-30T16:00:00Z"]);
}

// The copy with the newer rules fired 9:00 at 16:00Z; for one with the older rules it is then 8:00, and 9:00 is still ahead.
#[test]
fn a_wall_time_that_has_fired_does_not_fire_again_under_older_rules() {
    let zones = Zones::embedded();
    let daily = read(&in_zone("cron 0 9 * * *", "Etc/GMT+8"));
    let wall = Some(at("2026-11-30T09:00:00Z").naive_utc());
    let fired = Firing { at: at("2026-11-30T16:00:00Z"), wall };
    assert_eq!(show(daily.next_firing(&fired, &zones).unwrap().at), "2026-12-01T17:00:00Z");
    assert_eq!(
        show(daily.next_after(fired.at, &zones).unwrap().at),
        "2026-11-30T17:00:00Z",
        "by the instant alone it would"
    );
}

#[test]
fn the_shortest_interval_is_found_within_a_day_and_over_night() {
    for (cron, expected) in [
        ("* * * * *", Some(60)),
        ("*/7 * * * *", Some(240)),
        ("0 9 * * *", Some(86_400)),
        ("0 9,17 * * *", Some(8 * 3_600)),
        ("0 1,23 * * *", Some(2 * 3_600)),
        ("0 1,23 1 * *", Some(22 * 3_600)),
        ("0 9 * * 1-5", Some(86_400)),
        ("0 9 * * 1", Some(7 * 86_400)),
        ("0 9 1 * *", Some(28 * 86_400)),
        ("0 9 L * *", Some(28 * 86_400)),
        ("0 9 29 2 *", Some(1_461 * 86_400)),
    ] {
        assert_eq!(CronExpression::read(cron, None).unwrap().shortest_interval_s(), expected, "{cron}");
    }
}

#[test]
fn a_preview_marks_what_a_clock_change_moves_drops_and_repeats() {
    let zones = Zones::embedded();
    let marks = |text: ScheduleText<'_>, after: &str, count| {
        let lines = preview(&read(&text), at(after), count, &zones);
        lines.into_iter().map(|line| (line.wall.format("%m-%dT%H:%M").to_string(), line.mark)).collect::<Vec<_>>()
    };
    let new_york = |when| in_zone(when, "America/New_York");
    let moved = marks(new_york("cron 0,30 2 * * *"), "2026-03-07T12:00:00Z", 2);
    assert_eq!(moved, [("03-08T02:00".into(), Some(Mark::Moved { together: 1 })), ("03-09T02:00".into(), None)]);
    let skipped = ScheduleText { dst_gap: DstGap::Skip, ..new_york("cron 30 2 * * *") };
    assert_eq!(
        marks(skipped.clone(), "2026-03-07T12:00:00Z", 1),
        [("03-08T02:30".into(), Some(Mark::Dropped { count: 1 })), ("03-09T02:30".into(), None)]
    );
    let coinciding = marks(new_york("cron 0 2,3 * * *"), "2026-03-07T12:00:00Z", 1);
    assert_eq!(coinciding, [("03-08T02:00".into(), Some(Mark::Moved { together: 1 }))]);
    let not_yet = ScheduleText { start_at: Some("2026-06-01T00:00"), ..skipped.clone() };
    assert_eq!(marks(not_yet, "2026-03-01T00:00:00Z", 1), [("06-01T02:30".into(), None)]);
    let never = ScheduleText { dst_gap: DstGap::Skip, ..new_york("at 2026-03-08T02:30") };
    assert_eq!(marks(never, "2026-03-01T00:00:00Z", 1), [("03-08T02:30".into(), Some(Mark::Dropped { count: 1 }))]);
    let every_quarter = marks(new_york("cron */15 * * * *"), "2026-03-08T06:40:00Z", 2);
    assert_eq!(every_quarter[1], ("03-08T02:00".into(), Some(Mark::Dropped { count: 4 })));
    assert_eq!(
        marks(new_york("cron 30 1 * * *"), "2026-11-01T04:00:00Z", 1),
        [("11-01T01:30".into(), Some(Mark::Once(preview::Pass::First)))]
    );
    let both = ScheduleText { dst_repeat: DstRepeat::Both, ..new_york("cron 30 1 * * *") };
    assert_eq!(
        marks(both, "2026-11-01T04:00:00Z", 2),
        [
            ("11-01T01:30".into(), Some(Mark::Twice(preview::Pass::First))),
            ("11-01T01:30".into(), Some(Mark::Twice(preview::Pass::Second)))
        ]
    );
}

proptest! {
    #[test]
    fn the_next_firing_is_always_later(start in 0i64..4_000_000_000, interval in 60i64..1_000_000, anchor in 0i64..4_000_000_000) {
        let instant = |s| DateTime::from_timestamp(s, 0).unwrap();
        let every = Schedule::utc(Timing::Every { interval_s: interval, anchor: instant(anchor) });
        let next = every.next_after(instant(start), &Zones::embedded()).unwrap().at;
        prop_assert!(next > instant(start));
        prop_assert_eq!((next.timestamp() - anchor) % interval, 0);
        prop_assert!(next == instant(anchor) || next.timestamp() - start <= interval);
    }

    #[test]
    fn a_schedule_survives_its_text(interval in 60i64..1_000_000, anchor in 0i64..4_000_000_000) {
        let every = Schedule::utc(Timing::Every { interval_s: interval, anchor: DateTime::from_timestamp(anchor, 0).unwrap() });
        prop_assert_eq!(Schedule::parse(&every.to_string(), DateTime::UNIX_EPOCH).unwrap(), every);
    }
}
