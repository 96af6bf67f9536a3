use super::*;
use punctual_core::missed::{Many, MissedRule};
use punctual_core::spread::Spread;
use punctual_core::zone::Tz;

const HEADER: &str = "customer,phone,kind,priority,schedule,template\n";

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_790_000_000, 0).unwrap()
}

fn problems(rows: &str) -> Vec<String> {
    read_jobs("r.csv", format!("{HEADER}{rows}").as_bytes(), "bank", now(), &Zones::embedded()).unwrap_err()
}

#[test]
fn a_row_becomes_a_job() {
    let row = "c-1,+447700900123,bill,normal,every 24h from 2026-12-05T09:00:00Z,\"Your bill, GBP 12.50, is due\"\n";
    let specs = read_jobs("r.csv", format!("{HEADER}{row}").as_bytes(), "bank", now(), &Zones::embedded()).unwrap();
    assert_eq!(specs[0].key.as_str(), "bank/c-1/bill");
    assert_eq!(specs[0].payload.text(), Some("Your bill, GBP 12.50, is due"));
}

#[test]
fn each_problem_names_file_line_and_column_and_shows_no_personal_data() {
    let good = "c-1,+447700900123,bill,normal,every 24h,Due today\n";
    for (row, expected) in [
        ("c-2,07700900123,bill,normal,every 24h,Due\n", "r.csv, line 3, column phone: a phone number is"),
        ("c-2,+447700900123,bill,soon,every 24h,Due\n", "r.csv, line 3, column priority: expected `urgent`"),
        ("c-2,+447700900123,bill,normal,daily,Due\n", "r.csv, line 3, column schedule: expected `at 2026"),
        (
            "c-2,+447700900123,bill,normal,cron 0 9 * * 8,Due\n",
            "r.csv, line 3, column schedule: expected five Unix cron fields",
        ),
        ("c-2,+447700900123,bill,normal,every 5s,Due\n", "r.csv, line 3, column schedule: expected an interval of"),
        ("c-2,+447700900123,bill,normal,at noon,Due\n", "r.csv, line 3, column schedule: expected an instant"),
        ("c-2,+447700900123,,normal,every 24h,Due\n", "r.csv, line 3, column kind: expected letters"),
        ("c-2,+447700900123,bill,normal,every 24h,\n", "r.csv, line 3, column template: the text is empty"),
        (
            "c-2,+447700900123,bill,normal,every 24h,Dear {{ name }}\n",
            "r.csv, line 3, column template: holds a variable",
        ),
        (",+447700900123,bill,normal,every 24h,Due\n", "r.csv, line 3, column customer: expected letters"),
        ("c 2,+447700900123,bill,normal,every 24h,Due\n", "r.csv, line 3, column customer: expected letters"),
        (
            "c-1,+447700900123,bill,normal,every 24h,Due\n",
            "r.csv, line 3, column customer: customer and kind are the same as in line 2",
        ),
        ("c-2,+447700900123,bill,normal,every 24h,Due, really\n", "r.csv, line 3: has 7 columns: expected 6"),
    ] {
        let found = problems(&format!("{good}{row}"));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(expected), "{}", found[0]);
        assert!(!found[0].contains("7700"), "{}", found[0]);
    }
}

#[test]
fn a_row_can_say_all_that_a_timetable_has() {
    let file = "customer,tz,phone,kind,priority,schedule,template,spread,missed,until_local,end_at,max_runs,dst_repeat\n\
                00123,Asia/Kathmandu,+447700900123,bill,bulk,cron H 9 L * *,Due,30m,all,20:00,2027-06-30T12:00,6,both\n\
                c-2,,+447700900123,bill,urgent,every 24h,Due,,,,,,\n";
    let specs = read_jobs("r.csv", file.as_bytes(), "bank", now(), &Zones::embedded()).unwrap();
    let spec = &specs[0];
    assert_eq!(spec.key.as_str(), "bank/00123/bill");
    let text = spec.schedule.to_string();
    assert!(
        text.ends_with("(H 9 L * *), Asia/Kathmandu, repeat both, until 2027-06-30T06:15:00Z, at most 6 runs"),
        "{text}"
    );
    assert_eq!(spec.spread, Some(Spread { key: "00123".into(), window_s: 1_800 }));
    assert_eq!(spec.missed.many, Many::All);
    assert_eq!(spec.missed.start.to_string(), "until 20:00");
    assert_eq!((&specs[1].spread, specs[1].missed), (&None, MissedRule::default()));
    assert_eq!(specs[1].schedule.tz, Tz::UTC);
}

#[test]
fn a_problem_of_a_timetable_names_its_column() {
    let header =
        "customer,phone,kind,priority,schedule,template,tz,spread,missed,start_within,until_local,max_runs,start_at\n";
    for (cells, expected) in [
        ("normal,cron 0 9 * * *,Due,Asia/Calcuta,,,,,,", "column tz: expected an IANA name"),
        ("normal,cron 0 9 * * *,Due,,2d,,,,,", "column spread: a spread window of 172800 s is longer than"),
        ("normal,cron 0 9 * * *,Due,,half,,,,,", "column spread: expected an interval"),
        ("urgent,cron 0 9 * * *,Due,,30m,,,,,", "column spread: urgent jobs are never spread"),
        (
            "normal,cron 0 9 * * *,Due,,,some,,,,",
            "column missed: a rule for missed firings is `latest`, `all` or `none`",
        ),
        ("normal,cron 0 9 * * *,Due,,,,5s,,,", "column start_within: start_within_s 5 is too short"),
        ("normal,cron 0 9 * * *,Due,,,,2h,20:00,,", "column until_local: start_within is there as well"),
        ("normal,cron 0 9 * * *,Due,,,,,8pm,,", "column until_local: a time of day is hours and minutes"),
        ("normal,cron 0 9 * * *,Due,,,,,,0,", "column max_runs: expected a whole number from 1 on"),
        ("normal,cron 0 9 * * *,Due,,,,,,many,", "column max_runs: expected a whole number from 1 on"),
        ("normal,cron 0 9 * * *,Due,,,,,,,soon", "column start_at: expected an instant or a wall time"),
    ] {
        let file = format!("{header}c-1,+447700900123,bill,{cells}\n");
        let found = read_jobs("r.csv", file.as_bytes(), "bank", now(), &Zones::embedded()).unwrap_err();
        assert!(found[0].starts_with(&format!("r.csv, line 2, {expected}")), "{cells}: {}", found[0]);
    }
}

#[test]
fn a_column_with_an_unknown_name_is_not_passed_over_in_silence() {
    let file = "customer,phone,kind,priority,schedule,template,timezone\nc-1,+447700900123,bill,normal,every 24h,Due,Asia/Kolkata\n";
    let found = read_jobs("r.csv", file.as_bytes(), "bank", now(), &Zones::embedded()).unwrap_err();
    assert!(found[0].starts_with("r.csv, line 1: 1 column has an unknown name: allowed are customer,"), "{found:?}");
}

#[test]
fn no_problem_shows_what_was_found_in_whatever_column_it_stands() {
    let cells = ["c-2", "+447700900123", "bill", "normal", "every 24h", "Zoe owes Banque Rivage"];
    let mut refused = 0;
    for personal in [1, 5] {
        for other in 0..cells.len() {
            let mut swapped = cells;
            swapped.swap(personal, other);
            // The schedule's own words before it must not bring it to light either.
            let mut begun = swapped.map(String::from);
            for word in ["", "at ", "every ", "every 24h from ", "cron "] {
                begun[4] = format!("{word}{}", swapped[4]);
                let rows = format!("{HEADER}{}\n", begun.join(","));
                let Err(found) = read_jobs("r.csv", rows.as_bytes(), "bank", now(), &Zones::embedded()) else {
                    continue;
                };
                refused += 1;
                let found = found.join("\n");
                assert!(found.starts_with("r.csv, line 2, column "), "{found}");
                assert!(!found.contains("7700") && !found.contains("Zoe") && !found.contains("Rivage"), "{found}");
            }
        }
    }
    assert!(refused > 50, "{refused}");
}

#[test]
fn customer_and_kind_fit_into_a_job_id_together() {
    let row = |bytes: usize| format!("{},+447700900123,bill,normal,every 24h,Due\n", "c".repeat(bytes));
    assert!(read_jobs("r.csv", format!("{HEADER}{}", row(123)).as_bytes(), "bank", now(), &Zones::embedded()).is_ok());
    assert!(problems(&row(124))[0].contains("column customer: expected letters, digits and `._-`, at most 127"));
}

#[test]
fn a_header_without_a_column_is_refused() {
    let found = read_jobs("r.csv", "customer,phone\n".as_bytes(), "bank", now(), &Zones::embedded()).unwrap_err();
    assert!(found[0].contains("kind, priority, schedule, template"), "{found:?}");
    assert!(
        read_jobs("r.csv", HEADER.as_bytes(), "bank", now(), &Zones::embedded()).unwrap_err()[0].contains("no rows")
    );
    assert!(
        read_jobs(
            "r.csv",
            &b"customer,phone,kind,priority,schedule,template\n\xff,a,b,c,d,e\n"[..],
            "bank",
            now(),
            &Zones::embedded()
        )
        .unwrap_err()[0]
            .contains("UTF-8")
    );
}

#[test]
fn a_header_that_could_be_read_in_two_ways_is_refused() {
    let header = |text: &str| read_jobs("r.csv", text.as_bytes(), "bank", now(), &Zones::embedded()).unwrap_err();
    let twice = header("customer,phone,kind,priority,schedule,template,phone\n");
    assert_eq!(twice, ["r.csv, line 1: column phone is there twice: leave one out"]);
    let semicolons = header("customer;phone;kind;priority;schedule;template\n");
    assert!(semicolons[0].ends_with("; separate the columns by commas"), "{semicolons:?}");
}

#[test]
fn at_most_twenty_problems_are_shown() {
    let found = problems(&"c-2,0,bill,normal,every 24h,Due\n".repeat(50));
    assert_eq!(found.len(), 21);
    assert_eq!(found[20], "r.csv: and 30 more");
}
