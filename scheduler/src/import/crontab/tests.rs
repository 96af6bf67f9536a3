use super::*;
use proptest::prelude::*;
use punctual_core::payload::Handler;
use punctual_core::schedule::Anchor;

fn now() -> DateTime<Utc> {
    "2026-12-01T00:00:00Z".parse().unwrap()
}

fn options(rules: &[&str]) -> CrontabOptions {
    let rules = rules.iter().map(|rule| rule.parse().unwrap()).collect();
    CrontabOptions { rules, tenant: "bank".into(), ..CrontabOptions::default() }
}

fn read(crontab: impl AsRef<[u8]>, options: &CrontabOptions) -> Vec<Line> {
    let zones = Zones::embedded();
    CrontabLines::new(crontab.as_ref(), options, now(), &zones).collect()
}

fn any(crontab: impl AsRef<[u8]>) -> Vec<Line> {
    read(crontab, &options(&["*=>webhook:https://hooks.example.com/run"]))
}

fn refusal(crontab: &str) -> String {
    let lines = any(crontab);
    lines.last().unwrap().problem("tab").unwrap()
}

fn body(line: &Line) -> serde_json::Value {
    serde_json::from_str(line.read.as_ref().unwrap().payload.text().unwrap()).unwrap()
}

#[test]
fn an_entry_becomes_a_job() {
    let options = CrontabOptions {
        with_user: true,
        ..options(&["/opt/*=>queue:https://sqs.eu-west-1.amazonaws.com/123456789012/$1"])
    };
    let lines = read("CRON_TZ=Asia/Kolkata\nREGION=south\n0 9 * * 1-5\troot  /opt/bills%x\n", &options);
    let [Line { number: 3, read: Ok(spec), notes, .. }] = &lines[..] else { panic!("{lines:?}") };
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!(spec.schedule.to_string(), "cron 0 9 * * 1-5, Asia/Kolkata");
    let key = spec.key.as_str();
    assert!(key.starts_with("bank/cron/bills-") && key.len() == "bank/cron/bills-".len() + 8, "{key}");
    assert_eq!(
        (spec.priority, spec.anchor, spec.payload.handler()),
        (Priority::Normal, Anchor::Stated, Handler::Queue)
    );
    let told = serde_json::json!({"command": "/opt/bills", "stdin": "x\n", "user": "root", "env": {"REGION": "south"}});
    assert_eq!(body(&lines[0]), told);
}

#[test]
fn an_id_stays_when_a_schedule_is_edited_and_again_is_counted() {
    let ids = |crontab: &str| -> Vec<String> {
        any(crontab).into_iter().filter_map(|line| Some(line.read.ok()?.key.id().to_owned())).collect()
    };
    let before = ids("0 9 * * * /bin/x\n0 10 * * * /bin/x\n@reboot /bin/y\n@daily /bin/y\n0 9 * * * /bin/x\n");
    let after = ids("30 9 * * * /bin/x\n@daily /bin/x\n@hourly /bin/y\n@weekly /bin/x\n");
    assert_eq!(before[0], after[0]);
    assert_eq!([&before[1], &before[3]], [&format!("{}-2", before[0]), &format!("{}-3", before[0])]);
    assert_eq!([&after[1], &after[3]], [&before[1], &before[3]]);
    assert_eq!(before[2], after[2], "what was refused does not count");
}

#[test]
fn a_command_without_a_rule_is_refused_and_not_shown() {
    for rules in [&[][..], &["/opt/*=>noop"]] {
        let lines = read("\n@daily /bin/x --password hunter2\n", &options(rules));
        let found = lines[0].problem("tab").unwrap();
        assert!(found.starts_with("tab, line 2: no rule says what becomes of the command"), "{found}");
        assert!(
            found.contains("--map '*=>webhook:") && !found.contains("hunter2") && !found.contains("/bin/x"),
            "{found}"
        );
    }
    let lines = read("@daily a\n@daily b\n", &options(&["a=>noop", "*=>webhook:https://hooks.example.com/"]));
    let handlers: Vec<Handler> = lines.iter().map(|line| line.read.as_ref().unwrap().payload.handler()).collect();
    assert_eq!(handlers, [Handler::Noop, Handler::Webhook], "the first rule that means a command counts");
}

#[test]
fn a_refusal_shows_words_of_schedules_and_nothing_of_commands() {
    for (line, expected) in [
        ("0 9 * * 8 x", "tab, line 1: weekday 8 is out of range 0-7 in field 5 of `0 9 * * 8`"),
        ("0 9 L-2 * * x", "tab, line 1: `L` must stand alone"),
        ("0 9 31 2 * x", "tab, line 1: `0 9 31 2 *` never fires"),
        ("0 9 * * /bin/x hunter2", "tab, line 1: expected five fields (minute 0-59"),
        ("0 9 * hunter2 /bin/x y", "tab, line 1: expected five fields"),
        ("hunter2 x", "tab, line 1: expected five fields"),
        ("@hunter2 x", "tab, line 1: the macro is not known"),
        ("@reboot x", "tab, line 1: `@reboot` is no time"),
        ("A='hunter2", "tab, line 1: the quote that the value begins with is never closed"),
        ("@daily", "tab, line 1: the command is missing"),
    ] {
        let found = refusal(line);
        assert!(found.starts_with(expected), "{line}: {found}");
        assert!(!found.contains("hunter2") && !found.contains("/bin/x"), "{found}");
    }
}

#[test]
fn a_zone_counts_for_the_lines_below_it() {
    let crontab = "@daily a\nTZ=Asia/Tokyo\n@daily b\nCRON_TZ=Asia/Kolkata\n@daily c\nTZ=Europe/Paris\n@daily d\nCRON_TZ=\n@daily e\n\
                   CRON_TZ=Asia/Calcuta\n@daily f\n@daily g\nCRON_TZ=\"hunter 2\"\n@daily h\nCRON_TZ=:UTC\n@daily i\n";
    let options = CrontabOptions { tz: Tz::America__New_York, ..options(&["*=>noop"]) };
    let lines = read(crontab, &options);
    let shown: Vec<String> = lines
        .iter()
        .map(|line| line.read.as_ref().map_or_else(ToString::to_string, |spec| spec.schedule.tz.name().to_owned()))
        .collect();
    let unknown = "CRON_TZ in line 10: `Asia/Calcuta` is not a time zone: write an IANA name with its region, such as \
                   `Asia/Kolkata`, or `UTC`";
    let unreadable = "CRON_TZ in line 13 is no time zone: write an IANA name, such as `Asia/Kolkata`, or `UTC`";
    let expected = [
        "America/New_York",
        "Asia/Tokyo",
        "Asia/Kolkata",
        "Asia/Kolkata",
        "Europe/Paris",
        unknown,
        unknown,
        unreadable,
        "UTC",
    ];
    assert_eq!(shown, expected);
    assert!(lines[1].notes[0].starts_with("TZ in line 2 is taken as the zone"), "{:?}", lines[1]);
    assert!([0, 2, 3, 4].iter().all(|n| lines[*n].notes.is_empty()));
}

#[test]
fn what_has_no_effect_here_is_noted_once() {
    let crontab = "MAILTO=a@example.com\nRANDOM_DELAY=45\nSHELL=/bin/sh\n@daily a\n@daily b\nMAILTO=b\nMAILTO=\n-@daily c\n0~9 * * * * d\n\
                   */90 * * * * e\nMAILTO=f\n@reboot f\n";
    let notes: Vec<Vec<String>> = any(crontab).into_iter().map(|line| line.notes).collect();
    let begins: Vec<Vec<&str>> =
        notes.iter().map(|notes| notes.iter().map(|note| &note[..note.len().min(22)]).collect()).collect();
    let expected: [&[&str]; 6] = [
        &["MAILTO in line 1 has n", "RANDOM_DELAY in line 2"],
        &[],
        &["the `-` before the sch"],
        &["`~` stands for one val"],
        &["step 90 of minute in `"],
        &["MAILTO in line 11 has "],
    ];
    assert_eq!(begins, expected);
    assert!(!notes.concat().join(" ").contains("example.com"));
}

#[test]
fn handlers_are_told_of_the_environment_above_an_entry() {
    let crontab = "A=1\n@daily a\nA=2\nMAILTO=x\nPATH=/bin\nSHELL=x\nHOME=/\nLOGNAME=x\nUSER=x\nTZ=UTC\nCRON_TZ=UTC\nB='{{ }}'\n@daily b\n";
    let lines = any(crontab);
    assert_eq!(body(&lines[0]), serde_json::json!({"command": "a", "env": {"A": "1"}}));
    assert_eq!(body(&lines[1]), serde_json::json!({"command": "b", "env": {"A": "2", "B": "{{ }}"}}));
    let long = "x".repeat(20_000);
    let found = refusal(&format!("A={long}\n@daily a\n"));
    assert!(found.starts_with("tab, line 2: the body has"), "{found}");
    let more: String = ["A", "B", "C", "D"].map(|name| format!("{name}={long}\n")).concat();
    let found = refusal(&format!("{more}@daily a\n"));
    assert!(found.starts_with("tab, line 5: the environment lines above have more than"), "{found}");
}

#[test]
fn an_address_inside_the_network_needs_a_permission() {
    let rules = ["*=>webhook:http://10.0.0.7/run"];
    assert!(read("@daily x", &options(&rules))[0].read.is_err());
    let allowed = CrontabOptions { allowed: "10.0.0.7".parse().unwrap(), ..options(&rules) };
    assert!(read("@daily x", &allowed)[0].read.is_ok());
}

#[test]
fn lines_that_cannot_be_read_are_named_and_comments_may_say_anything() {
    let long = "x".repeat(LONGEST_LINE_BYTES);
    let crontab =
        [b"# \xff\n@daily \xff\n#".as_slice(), long.as_bytes(), b"\n@daily ", long.as_bytes(), b"\n@daily x"].concat();
    let lines = any(crontab);
    let problems: Vec<Option<String>> = lines.iter().map(|line| line.problem("tab")).collect();
    assert_eq!(problems.len(), 3);
    assert!(problems[0].as_ref().unwrap().starts_with("tab, line 2: the line is not UTF-8"), "{problems:?}");
    assert!(
        problems[1].as_ref().unwrap().starts_with("tab, line 4: the line has more than 65536 bytes"),
        "{problems:?}"
    );
    assert_eq!(problems[2], None);
}

/// Text that looks like a crontab, so that most of it gets far.
fn crontab() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "0", "*/7", "*", "1-5/2", "mon", "61", "~", "0~9/2", "H", "L", "@daily", "@every", "5m", "@60", "-@hourly",
        "@reboot", "#", "CRON_TZ", "TZ=UTC", "=", "MAILTO=x", "'", "\"", "%", "\\%", "/bin/x", "..", "{{", "é",
        "\u{feff}", "\0", "-",
    ]);
    let gap = prop::sample::select(vec![" ", "\t", "", "\n", "\r\n", " * * * * "]);
    prop::collection::vec((word, gap), 0..60).prop_map(|words| words.iter().flat_map(|(a, b)| [*a, *b]).collect())
}

fn accounts_for_each_line(crontab: &[u8], with_user: bool) {
    let zones = Zones::embedded();
    let rules = [
        "/bin/*=>webhook:https://hooks.example.com/$1/x?y=$1",
        "*{*=>noop",
        "* *=>queue:https://sqs.eu-west-1.amazonaws.com/123456789012/q",
    ];
    let options = CrontabOptions { with_user, ..options(&rules) };
    let mut lines = CrontabLines::new(crontab, &options, now(), &zones);
    let mut numbers = Vec::new();
    for line in &mut lines {
        assert!(line.number > 0 && numbers.last().is_none_or(|last| *last < line.number));
        numbers.push(line.number);
        assert!(line.problem("tab").is_none_or(|problem| !problem.contains(['\n', '\r', '\0'])));
    }
    let ends = crontab.iter().filter(|b| **b == b'\n').count() as u64;
    let all = ends + u64::from(!crontab.is_empty() && !crontab.ends_with(b"\n"));
    assert_eq!((lines.lines(), numbers.len() as u64 + lines.ignored().lines()), (all, all));
}

proptest! {
    #[test]
    fn no_bytes_make_the_reader_panic_and_each_line_is_accounted_for(
        bytes in prop::collection::vec(proptest::num::u8::ANY, 0..300), with_user: bool,
    ) {
        accounts_for_each_line(&bytes, with_user);
    }

    #[test]
    fn each_line_of_what_looks_like_a_crontab_is_accounted_for(text in crontab(), with_user: bool) {
        accounts_for_each_line(text.as_bytes(), with_user);
    }
}
