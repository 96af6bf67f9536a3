//! The table of [`super`] as tests: every row against every event, and what no sequence of events can bring about.

use super::*;
use crate::retry::{MOST_ATTEMPTS, OutcomeClass};
use proptest::prelude::*;

const NOW: i64 = 1_000;
const GRACE: Duration = Duration::from_secs(30);
const LEASE: Duration = Duration::from_secs(60);
const RULE: RetryRule = RetryRule { max_attempts: 3, base_s: 30, cap_s: 600, waits_s: None };
/// The generation of the message in all single cases.
const GENERATION: u64 = 5;

/// What each event does to each row, at second 1000. The message is of generation 5, three attempts are allowed, the
/// grace is 30 s, and the gateway drops no repeats: an unknown outcome is held, a lost worker's run is tried again.
const TABLE: &str = "
row                        | begin         | delivered | temporary | permanent | unknown       | other's | given up  | by other | void 5        | skip by worker | by dispatch
none                       | running 1     | refused   | refused   | refused   | refused       | refused | refused   | refused  | void 5        | late           | late
running, held              | look at 1040  | succeeded | retrying  | failed    | indeterminate | refused | retrying  | refused  | look at 1040  | look at 1040   | refused
running, within grace      | look at 1001  | succeeded | retrying  | failed    | indeterminate | refused | retrying  | refused  | look at 1001  | look at 1001   | refused
running, past grace        | running 2     | succeeded | retrying  | failed    | indeterminate | refused | retrying  | refused  | indeterminate | indeterminate  | refused
running, last, held        | look at 1040  | succeeded | dead      | failed    | indeterminate | refused | retrying  | refused  | look at 1040  | look at 1040   | refused
running, last, past grace  | dead          | succeeded | dead      | failed    | indeterminate | refused | retrying  | refused  | indeterminate | indeterminate  | refused
retrying, waiting          | look at 1001  | refused   | refused   | refused   | refused       | refused | refused   | refused  | void 5        | late           | refused
retrying, waited           | running 2     | refused   | refused   | refused   | refused       | refused | refused   | refused  | void 5        | late           | refused
retrying, none left        | dead          | refused   | refused   | refused   | refused       | refused | refused   | refused  | void 5        | late           | refused
succeeded                  | refused       | refused   | refused   | refused   | refused       | refused | refused   | refused  | refused       | refused        | refused
failed                     | refused       | refused   | refused   | refused   | refused       | refused | refused   | refused  | refused       | refused        | refused
dead                       | refused       | refused   | refused   | refused   | refused       | refused | refused   | refused  | refused       | refused        | refused
indeterminate              | refused       | refused   | refused   | refused   | refused       | refused | refused   | refused  | refused       | refused        | refused
late                       | refused       | refused   | refused   | refused   | refused       | refused | refused   | refused  | refused       | refused        | refused
void 4                     | running 1     | refused   | refused   | refused   | refused       | refused | refused   | refused  | void 5        | late           | late
void 5                     | running 1     | refused   | refused   | refused   | refused       | refused | refused   | refused  | refused       | late           | late
void 6                     | refused       | refused   | refused   | refused   | refused       | refused | refused   | refused  | refused       | refused        | refused
void 5, waiting            | look at 1001  | refused   | refused   | refused   | refused       | refused | refused   | refused  | refused       | late           | late
void 5, waited             | running 2     | refused   | refused   | refused   | refused       | refused | refused   | refused  | refused       | late           | late
void 5, none left          | dead          | refused   | refused   | refused   | refused       | refused | refused   | refused  | refused       | late           | late
";

fn at(s: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(s, 0).unwrap()
}

fn facts(generation: u64) -> RunFacts {
    let id = RunId { job_key: JobKey::new("bank", "c-1/bill").unwrap(), run_key: RunKey::scheduled(at(900)) };
    RunFacts { id, generation, due_at: at(901), first_enqueued_at: at(902) }
}

fn begin_as(token: &str) -> Begin<'_> {
    Begin {
        token,
        worker: "w1",
        job_version: 7,
        lease: LEASE,
        takeover_grace: GRACE,
        rule: RULE,
        gateway: GatewayPolicy::default(),
    }
}

fn record_as<'a>(token: &'a str, outcome: &'a Outcome) -> Event<'a> {
    Event::Record(Record { token, outcome, rule: RULE, gateway: GatewayPolicy::default(), random: 0.5 })
}

fn void(void_gen: u64) -> Event<'static> {
    Event::Void { void_gen, reason: SkipReason::Superseded, takeover_grace: GRACE }
}

fn late(by: SkippedBy) -> Event<'static> {
    Event::Skip { reason: SkipReason::Deadline, range: None, by, takeover_grace: GRACE }
}

fn delivered() -> Outcome {
    Outcome::Delivered { gateway_ref: "gw-1".into() }
}

fn temporary() -> Outcome {
    Outcome::Temporary { reason: "503".into(), retry_after: None }
}

fn permanent() -> Outcome {
    Outcome::Permanent { reason: "no such number".into() }
}

fn unknown() -> Outcome {
    Outcome::Unknown { reason: "timeout".into() }
}

fn apply_now(row: Option<&RunRow>, event: &Event<'_>) -> Transition {
    apply(row, &facts(GENERATION), event, at(NOW), "w")
}

fn written(transition: Transition) -> RunRow {
    match transition {
        Transition::Write(row) => *row,
        other => panic!("not written: {other:?}"),
    }
}

fn attempt(n: u32, started_s: i64, class: Option<OutcomeClass>) -> Attempt {
    Attempt {
        n,
        started_at: at(started_s),
        ended_at: class.map(|_| at(started_s + 1)),
        worker: "w0".into(),
        job_version: 7,
        class,
        detail: None,
    }
}

/// A row with `n` attempts begun, the last of which goes on if the run does.
fn row(status: RunStatus, n: u32) -> RunRow {
    let is_running = status == RunStatus::Running;
    let class = |k| (!is_running || k < n).then_some(OutcomeClass::Temporary);
    RunRow {
        id: facts(GENERATION).id,
        status,
        attempt: n,
        owner: is_running.then(|| "mine".into()),
        lease_until: None,
        not_before: None,
        generation: 3,
        void_gen: None,
        due_at: at(901),
        first_enqueued_at: at(902),
        started_at: (n > 0).then(|| at(910)),
        completed_at: None,
        attempts: (1..=n).map(|k| attempt(k, 900 + 10 * i64::from(k), class(k))).collect(),
        error: None,
        gateway_ref: None,
        reason: None,
        range: None,
        revision: 8,
        write_token: "before".into(),
    }
}

fn running(n: u32, lease_until_s: i64) -> RunRow {
    RunRow { lease_until: Some(at(lease_until_s)), ..row(RunStatus::Running, n) }
}

fn retrying(n: u32, not_before_s: i64) -> RunRow {
    RunRow { not_before: Some(at(not_before_s)), ..row(RunStatus::Retrying, n) }
}

fn ended(status: RunStatus) -> RunRow {
    RunRow { completed_at: Some(at(950)), ..row(status, 1) }
}

fn voided(n: u32, void_gen: u64, not_before_s: Option<i64>) -> RunRow {
    RunRow {
        void_gen: Some(void_gen),
        not_before: not_before_s.map(at),
        reason: Some(SkipReason::Cancelled),
        completed_at: Some(at(950)),
        ..row(RunStatus::Skipped, n)
    }
}

/// The rows of the table, by name. Where a bound counts, the row sits just on one side of it.
fn rows() -> Vec<(&'static str, Option<RunRow>)> {
    let too_late = RunRow { reason: Some(SkipReason::Deadline), ..ended(RunStatus::Skipped) };
    let rows = [
        ("running, held", running(1, 1_010)),
        ("running, within grace", running(1, 971)),
        ("running, past grace", running(1, 970)),
        ("running, last, held", running(3, 1_010)),
        ("running, last, past grace", running(3, 970)),
        ("retrying, waiting", retrying(1, 1_001)),
        ("retrying, waited", retrying(1, 1_000)),
        ("retrying, none left", retrying(3, 1_000)),
        ("succeeded", ended(RunStatus::Succeeded)),
        ("failed", ended(RunStatus::Failed)),
        ("dead", ended(RunStatus::Dead)),
        ("indeterminate", ended(RunStatus::Indeterminate)),
        ("late", too_late),
        ("void 4", voided(0, 4, None)),
        ("void 5", voided(0, 5, None)),
        ("void 6", voided(0, 6, None)),
        ("void 5, waiting", voided(1, 5, Some(1_001))),
        ("void 5, waited", voided(1, 5, Some(1_000))),
        ("void 5, none left", voided(3, 5, Some(1_000))),
    ];
    std::iter::once(("none", None)).chain(rows.map(|(name, row)| (name, Some(row)))).collect()
}

/// A transition in the table's words.
fn in_words(transition: &Transition) -> String {
    match transition {
        Transition::LookLater { at } => format!("look at {}", at.timestamp()),
        Transition::Refused(_) => "refused".into(),
        Transition::Write(row) => match (row.status, row.reason) {
            (RunStatus::Running, _) => format!("running {}", row.attempt),
            (RunStatus::Skipped, Some(SkipReason::Deadline)) => "late".into(),
            (RunStatus::Skipped, _) => format!("void {}", row.void_gen.unwrap()),
            (status, _) => status.as_str().into(),
        },
    }
}

#[test]
fn every_row_answers_every_event_as_the_table_says() {
    let outcomes = [delivered(), temporary(), permanent(), unknown()];
    let mut events = vec![Event::Begin(begin_as("mine"))];
    events.extend(outcomes.iter().map(|outcome| record_as("mine", outcome)));
    events.extend([
        record_as("other", &outcomes[0]),
        Event::GiveUp { token: "mine" },
        Event::GiveUp { token: "other" },
    ]);
    events.extend([void(5), late(SkippedBy::Worker), late(SkippedBy::Dispatch)]);

    let mut lines = TABLE.trim().lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let columns = lines.next().unwrap();
    let rows = rows();
    for ((name, row), expected) in rows.iter().zip(lines.by_ref()) {
        assert_eq!(*name, expected[0], "the rows of the table");
        assert_eq!(expected.len(), events.len() + 1, "{name}");
        for ((event, column), expected) in events.iter().zip(&columns[1..]).zip(&expected[1..]) {
            let transition = apply_now(row.as_ref(), event);
            assert_eq!(in_words(&transition), *expected, "{name} × {column}");
            if let (Transition::Refused(status), Some(row)) = (&transition, row) {
                assert_eq!(*status, row.status, "{name} × {column}: a refusal names what the row is");
            }
        }
    }
    assert_eq!(lines.count(), 0, "a row of the table was not tried");
}

#[test]
fn a_first_begin_makes_a_row_from_the_message() {
    let row = written(apply_now(None, &Event::Begin(begin_as("mine"))));
    let expected_attempt = Attempt { worker: "w1".into(), ..attempt(1, NOW, None) };
    let facts = facts(GENERATION);
    assert_eq!((&row.id, row.due_at, row.first_enqueued_at), (&facts.id, facts.due_at, facts.first_enqueued_at));
    assert_eq!((row.owner.as_deref(), row.lease_until), (Some("mine"), Some(at(NOW + 60))));
    assert_eq!((row.generation, row.revision, row.write_token.as_str()), (GENERATION, 1, "w"));
    assert_eq!((row.started_at, row.completed_at, row.reason), (Some(at(NOW)), None, None));
    assert_eq!(row.attempts, [expected_attempt]);
}

#[test]
fn stale_owner_cannot_record_a_run() {
    let expired = running(1, 970);
    let taken_over = written(apply_now(Some(&expired), &Event::Begin(begin_as("second"))));
    let outcome = delivered();
    let refused = Transition::Refused(RunStatus::Running);
    assert_eq!(apply_now(Some(&taken_over), &record_as("mine", &outcome)), refused);
    assert_eq!(written(apply_now(Some(&taken_over), &record_as("second", &outcome))).status, RunStatus::Succeeded);
}

#[test]
fn a_known_outcome_is_recorded_however_late_as_long_as_nobody_took_over() {
    let row = written(apply_now(Some(&running(1, 1)), &record_as("mine", &delivered())));
    assert_eq!((row.status, row.gateway_ref.as_deref()), (RunStatus::Succeeded, Some("gw-1")));
    assert_eq!((row.owner, row.lease_until, row.completed_at), (None, None, Some(at(NOW))));
    assert_eq!(row.attempts[0].class, Some(OutcomeClass::Delivered));
}

#[test]
fn a_take_over_closes_the_lost_attempt_and_counts_it() {
    let row = written(apply_now(Some(&running(1, 970)), &Event::Begin(begin_as("second"))));
    let classes: Vec<_> = row.attempts.iter().map(|a| (a.n, a.ended_at, a.class)).collect();
    assert_eq!(classes, [(1, Some(at(NOW)), Some(OutcomeClass::Lost)), (2, None, None)]);
    assert_eq!((row.attempt, row.owner.as_deref()), (2, Some("second")));
    assert_eq!(row.started_at, Some(at(910)), "the run started with its first attempt");
}

#[test]
fn a_run_that_killed_three_workers_is_dead_and_not_run_a_fourth_time() {
    let rule = RetryRule { max_attempts: 20, ..RULE };
    let (mut row, mut now) = (None, at(NOW));
    for n in 1..=3 {
        let begin = Event::Begin(Begin { rule, ..begin_as("mine") });
        let begun = written(apply(row.as_ref(), &facts(GENERATION), &begin, now, "w"));
        assert_eq!((begun.status, begun.attempt), (RunStatus::Running, n));
        now = begun.lease_until.unwrap() + GRACE;
        row = Some(begun);
    }
    let begin = Event::Begin(Begin { rule, ..begin_as("mine") });
    let dead = written(apply(row.as_ref(), &facts(GENERATION), &begin, now, "w"));
    assert_eq!((dead.status, dead.attempt), (RunStatus::Dead, 3));
    assert!(dead.error.unwrap().contains("3 workers died"));
}

#[test]
fn a_lost_attempt_goes_to_a_person_where_a_repeat_could_reach_the_customer_and_may_not() {
    let hold = GatewayPolicy { on_takeover: WhenUnknown::Hold, ..GatewayPolicy::default() };
    for (gateway, expected) in [
        (hold, RunStatus::Indeterminate),
        // The attempt began at 910: a window of 90 s and a lease is just over when the lease of one that begins at 1000 is.
        (GatewayPolicy { dedupe_window: Duration::from_secs(90) + LEASE, ..hold }, RunStatus::Indeterminate),
        (GatewayPolicy { dedupe_window: Duration::from_secs(91) + LEASE, ..hold }, RunStatus::Running),
        (GatewayPolicy::default(), RunStatus::Running),
    ] {
        let event = Event::Begin(Begin { gateway, ..begin_as("second") });
        assert_eq!(written(apply_now(Some(&running(1, 970)), &event)).status, expected, "{gateway:?}");
    }
}

#[test]
fn an_unknown_outcome_that_was_to_be_repeated_in_time_goes_to_a_person_when_its_time_is_over() {
    let gateway = GatewayPolicy { dedupe_window: Duration::from_secs(120) + LEASE, ..GatewayPolicy::default() };
    let outcome = unknown();
    let record = Event::Record(Record { token: "mine", outcome: &outcome, rule: RULE, gateway, random: 0.5 });
    let retrying = written(apply_now(Some(&running(1, 1_010)), &record));
    assert_eq!((retrying.status, retrying.not_before), (RunStatus::Retrying, Some(at(NOW + 15))));
    for (second, expected) in [(1_029, RunStatus::Running), (1_030, RunStatus::Indeterminate)] {
        let begin = Event::Begin(Begin { gateway, ..begin_as("mine") });
        let row = written(apply(Some(&retrying), &facts(GENERATION), &begin, at(second), "w"));
        assert_eq!(row.status, expected, "at {second}");
    }
}

#[test]
fn a_person_is_needed_only_for_held_attempts_outside_the_window() {
    let now = at(NOW);
    let old = |class| RunRow { attempts: vec![attempt(1, NOW - 60, Some(class))], ..row(RunStatus::Retrying, 1) };
    let policy = |window_s, on_unknown, on_takeover| GatewayPolicy {
        dedupe_window: Duration::from_secs(window_s),
        on_unknown,
        on_takeover,
    };
    use OutcomeClass::{Delivered, Lost, Permanent, Temporary, Unknown};
    use WhenUnknown::{Hold, Retry};
    for (class, gateway, expected) in [
        (Unknown, policy(0, Hold, Retry), true),
        (Unknown, policy(60, Hold, Retry), true),
        (Unknown, policy(61, Hold, Retry), false),
        (Unknown, policy(0, Retry, Hold), false),
        (Lost, policy(0, Retry, Hold), true),
        (Lost, policy(60, Retry, Hold), true),
        (Lost, policy(61, Retry, Hold), false),
        (Lost, policy(0, Hold, Retry), false),
        (Delivered, policy(0, Hold, Hold), false),
        (Temporary, policy(0, Hold, Hold), false),
        (Permanent, policy(0, Hold, Hold), false),
    ] {
        assert_eq!(old(class).needs_a_person(&gateway, now), expected, "{class:?} {gateway:?}");
    }
    let earlier = [attempt(1, NOW - 60, Some(Unknown)), attempt(2, NOW - 5, Some(Temporary))];
    let later_known = RunRow { attempts: earlier.to_vec(), ..row(RunStatus::Retrying, 2) };
    assert!(
        later_known.needs_a_person(&policy(60, Hold, Retry), now),
        "what came after does not tell what became of it"
    );
}

#[test]
fn a_void_keeps_attempts_and_back_off_for_a_later_generation() {
    let before = retrying(2, 1_600);
    let void_row = written(apply_now(Some(&before), &void(6)));
    assert_eq!((void_row.status, void_row.void_gen), (RunStatus::Skipped, Some(6)));
    assert_eq!((void_row.attempt, void_row.not_before), (2, Some(at(1_600))));
    assert_eq!(void_row.attempts, before.attempts);

    let begin = Event::Begin(begin_as("mine"));
    let early = apply(Some(&void_row), &facts(6), &begin, at(1_599), "w");
    assert_eq!(early, Transition::LookLater { at: at(1_600) });
    let resumed = written(apply(Some(&void_row), &facts(6), &begin, at(1_600), "w"));
    assert_eq!((resumed.status, resumed.attempt, resumed.generation), (RunStatus::Running, 3, 6));
    assert_eq!((resumed.void_gen, resumed.reason, resumed.completed_at, resumed.not_before), (None, None, None, None));
}

#[test]
fn a_void_without_a_row_makes_one_that_says_why() {
    let event = Event::Void { void_gen: 6, reason: SkipReason::Cancelled, takeover_grace: GRACE };
    let row = written(apply_now(None, &event));
    assert_eq!((row.status, row.reason, row.void_gen), (RunStatus::Skipped, Some(SkipReason::Cancelled), Some(6)));
    assert_eq!((row.attempt, row.started_at, row.completed_at), (0, None, Some(at(NOW))));
}

#[test]
fn a_run_that_ends_forgets_that_it_was_void() {
    let hold = GatewayPolicy { on_takeover: WhenUnknown::Hold, ..GatewayPolicy::default() };
    let lost = [attempt(1, 910, Some(OutcomeClass::Lost))].to_vec();
    for (row, gateway, expected) in [
        (voided(3, 5, None), GatewayPolicy::default(), RunStatus::Dead),
        (RunRow { attempts: lost, ..voided(1, 5, None) }, hold, RunStatus::Indeterminate),
    ] {
        let ended = written(apply_now(Some(&row), &Event::Begin(Begin { gateway, ..begin_as("mine") })));
        assert_eq!(ended.status, expected);
        assert_eq!((ended.reason, ended.void_gen), (None, None), "a {expected:?} run was not skipped");
    }
}

#[test]
fn dispatch_leaves_an_open_row_to_the_worker() {
    for open in [running(1, 1_010), running(1, 970), retrying(1, 1_000)] {
        assert!(matches!(apply_now(Some(&open), &late(SkippedBy::Dispatch)), Transition::Refused(_)));
    }
    let skipped = written(apply_now(Some(&retrying(1, 1_001)), &late(SkippedBy::Worker)));
    assert_eq!((skipped.reason, skipped.attempt, skipped.completed_at), (Some(SkipReason::Deadline), 1, Some(at(NOW))));
}

#[test]
fn an_attempt_that_was_not_made_is_given_up_by_its_holder_and_not_counted() {
    let begun = written(apply_now(None, &Event::Begin(begin_as("mine"))));
    let given_up = written(apply_now(Some(&begun), &Event::GiveUp { token: "mine" }));
    assert_eq!((given_up.status, given_up.attempt, given_up.attempts.len()), (RunStatus::Retrying, 0, 0));
    assert_eq!((given_up.owner.clone(), given_up.started_at, given_up.not_before), (None, None, Some(at(NOW))));
    let again = written(apply_now(Some(&given_up), &Event::Begin(begin_as("other"))));
    assert_eq!((again.status, again.attempt), (RunStatus::Running, 1));
    for row in [None, Some(&given_up), Some(&again)] {
        let refused = apply_now(row, &Event::GiveUp { token: "mine" });
        assert!(matches!(refused, Transition::Refused(_)), "{refused:?}");
    }
}

#[test]
fn a_record_without_a_row_is_refused() {
    assert!(matches!(apply_now(None, &record_as("mine", &delivered())), Transition::Refused(_)));
}

#[test]
fn a_row_keeps_the_last_twenty_attempts() {
    let rule = RetryRule { max_attempts: 50, ..RULE };
    let (mut row, mut now) = (None, at(NOW));
    for n in 1..=50 {
        let begin = Event::Begin(Begin { rule, ..begin_as("mine") });
        let begun = written(apply(row.as_ref(), &facts(GENERATION), &begin, now, "w"));
        assert_eq!((begun.attempt, begun.attempts.last().unwrap().n), (n, n));
        assert_eq!(begun.attempts.len(), n.min(MOST_ATTEMPTS) as usize);
        let outcome = temporary();
        let record = Event::Record(Record {
            token: "mine",
            outcome: &outcome,
            rule,
            gateway: GatewayPolicy::default(),
            random: 0.5,
        });
        let recorded = written(apply(Some(&begun), &facts(GENERATION), &record, now, "w"));
        now = recorded.not_before.unwrap_or(now);
        row = Some(recorded);
    }
    assert_eq!(row.unwrap().status, RunStatus::Dead);
}

/// One step of a history: some process acts, `after_s` seconds later.
#[derive(Clone, Debug)]
struct Step {
    after_s: i64,
    generation: u64,
    act: Act,
}

#[derive(Clone, Debug)]
enum Act {
    Begin { token: String },
    Record { token: String, outcome: Outcome },
    GiveUp { token: String },
    Void { void_gen: u64, reason: SkipReason },
    Skip { by: SkippedBy },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let token = || "[abc]";
    let outcome =
        prop_oneof![Just(delivered()), Just(temporary()), Just(temporary()), Just(permanent()), Just(unknown())];
    let reason = prop_oneof![Just(SkipReason::Cancelled), Just(SkipReason::Superseded)];
    let by = prop_oneof![Just(SkippedBy::Worker), Just(SkippedBy::Dispatch)];
    let act = prop_oneof![
        4 => token().prop_map(|token| Act::Begin { token }),
        4 => (token(), outcome).prop_map(|(token, outcome)| Act::Record { token, outcome }),
        2 => token().prop_map(|token| Act::GiveUp { token }),
        1 => (1u64..6, reason).prop_map(|(void_gen, reason)| Act::Void { void_gen, reason }),
        1 => by.prop_map(|by| Act::Skip { by }),
    ];
    let step = (0i64..120, 1u64..6, act).prop_map(|(after_s, generation, act)| Step { after_s, generation, act });
    prop::collection::vec(step, 1..40)
}

fn gateways() -> impl Strategy<Value = GatewayPolicy> {
    let when = || prop_oneof![Just(WhenUnknown::Hold), Just(WhenUnknown::Retry)];
    (0u64..300, when(), when()).prop_map(|(window_s, on_unknown, on_takeover)| GatewayPolicy {
        dedupe_window: Duration::from_secs(window_s),
        on_unknown,
        on_takeover,
    })
}

/// Whether nothing may ever change a row again.
fn is_final(row: &RunRow) -> bool {
    match row.status {
        RunStatus::Running | RunStatus::Retrying => false,
        RunStatus::Skipped => !row.reason.is_some_and(SkipReason::is_void),
        RunStatus::Succeeded | RunStatus::Failed | RunStatus::Dead | RunStatus::Indeterminate => true,
    }
}

/// What every row that was ever written must be.
fn check_row(row: &RunRow, rule: &RetryRule) {
    let is_running = row.status == RunStatus::Running;
    let is_open = is_running || row.status == RunStatus::Retrying;
    assert!(row.attempt <= rule.max_attempts, "attempt {} of {}", row.attempt, rule.max_attempts);
    assert!(row.attempts.len() <= MOST_ATTEMPTS as usize);
    assert_eq!(row.attempts.last().map_or(0, |a| a.n), row.attempt, "the history ends with the last attempt");
    assert_eq!(row.started_at.is_some(), row.attempt > 0, "a run starts with its first attempt");
    assert_eq!(row.owner.is_some(), is_running, "only a running run is somebody's");
    assert_eq!(row.lease_until.is_some(), is_running);
    assert_eq!(row.completed_at.is_some(), !is_open, "what is not open has ended");
    assert_eq!(row.reason.is_some(), row.status == RunStatus::Skipped, "each skip has its reason");
    assert_eq!(row.void_gen.is_some(), row.reason.is_some_and(SkipReason::is_void));
    assert!(row.status != RunStatus::Retrying || row.not_before.is_some());
    let going_on = row.attempts.iter().filter(|a| a.class.is_none()).count();
    assert_eq!(going_on, usize::from(is_running), "only the running attempt has no outcome");
    assert!(row.attempts.iter().all(|a| a.class.is_some() == a.ended_at.is_some()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_history_breaks_a_row(steps in steps(), gateway in gateways(), max_attempts in 1u32..5) {
        let rule = RetryRule { max_attempts, ..RULE };
        let mut current: Option<RunRow> = None;
        let mut now = at(NOW);
        let mut owners = Vec::new();
        for (n, step) in steps.iter().enumerate() {
            now += TimeDelta::seconds(step.after_s);
            let write_token = format!("w{n}");
            let event = match &step.act {
                Act::Begin { token } => Event::Begin(Begin { rule, gateway, ..begin_as(token) }),
                Act::Record { token, outcome } => {
                    Event::Record(Record { token, outcome, rule, gateway, random: 0.9 })
                }
                Act::GiveUp { token } => Event::GiveUp { token },
                Act::Void { void_gen, reason } => {
                    Event::Void { void_gen: *void_gen, reason: *reason, takeover_grace: GRACE }
                }
                Act::Skip { by } => late(*by),
            };
            let before = current.clone();
            match apply(before.as_ref(), &facts(step.generation), &event, now, &write_token) {
                Transition::Refused(_) => {}
                Transition::LookLater { at } => prop_assert!(at > now, "there is something to wait for"),
                Transition::Write(row) => {
                    check_row(&row, &rule);
                    prop_assert_eq!(row.revision, before.as_ref().map_or(0, |b| b.revision) + 1);
                    prop_assert_eq!(&row.write_token, &write_token);
                    if let Some(before) = &before {
                        prop_assert!(!is_final(before), "a final row was written: {before:?}");
                        prop_assert!(row.attempt <= before.attempt + 1);
                        let given_up = u32::from(matches!(event, Event::GiveUp { .. }));
                        prop_assert!(row.attempt + given_up >= before.attempt, "an attempt that was made is counted");
                        prop_assert!(row.generation >= before.generation);
                        prop_assert_eq!(&row.id, &before.id);
                        prop_assert_eq!((row.due_at, row.first_enqueued_at), (before.due_at, before.first_enqueued_at));
                        if row.reason.is_some_and(SkipReason::is_void) {
                            prop_assert_eq!((row.attempt, row.not_before), (before.attempt, before.not_before));
                            prop_assert_eq!(&row.attempts, &before.attempts);
                            prop_assert!(row.void_gen > before.void_gen);
                        }
                    }
                    if let (Event::Record(record), Some(before)) = (&event, &before) {
                        prop_assert_eq!(before.owner.as_deref(), Some(record.token));
                    }
                    if let Event::GiveUp { token } = &event {
                        let given = before.as_ref().expect("what is given up was begun");
                        prop_assert_eq!((given.status, given.owner.as_deref()), (RunStatus::Running, Some(*token)));
                        prop_assert_eq!((row.status, row.attempt + 1), (RunStatus::Retrying, given.attempt));
                        prop_assert_eq!(&row.attempts[..], &given.attempts[..given.attempts.len() - 1]);
                        owners.pop();
                    }
                    if let (Event::Begin(_), RunStatus::Running) = (&event, row.status) {
                        prop_assert!(!row.needs_a_person(&gateway, now), "a held attempt was repeated");
                        prop_assert!(before.as_ref().and_then(|b| b.not_before).is_none_or(|b| b <= now));
                        owners.push(row.attempt);
                    }
                    current = Some(*row);
                }
            }
        }
        let expected: Vec<u32> = (1..=owners.len() as u32).collect();
        prop_assert_eq!(owners, expected, "each attempt that is not given up is begun once");
    }
}

#[test]
fn a_run_of_the_superseding_generation_is_not_ended_by_an_older_message() {
    let of_5 = |row| RunRow { generation: 5, ..row };
    for row in [of_5(running(1, 1_010)), of_5(running(1, 900)), of_5(retrying(1, 1_001))] {
        let stray = apply(Some(&row), &facts(3), &void(5), at(NOW), "w");
        assert!(matches!(stray, Transition::LookLater { at: later } if later > at(NOW)), "{stray:?}");
        let cancel = Event::Void { void_gen: 5, reason: SkipReason::Cancelled, takeover_grace: Duration::ZERO };
        let cancelled = apply(Some(&row), &facts(5), &cancel, at(1_020), "w");
        assert!(matches!(cancelled, Transition::Write(_)), "{cancelled:?}");
    }
}

#[test]
fn the_window_in_which_repeats_are_dropped_begins_with_the_first_unknown_attempt() {
    let gateway = GatewayPolicy { dedupe_window: Duration::from_secs(60), ..GatewayPolicy::default() };
    let attempts = vec![attempt(1, 0, Some(OutcomeClass::Lost)), attempt(2, 50, Some(OutcomeClass::Unknown))];
    let row = RunRow { attempts, ..row(RunStatus::Retrying, 2) };
    assert!(!row.needs_a_person(&gateway, at(59)));
    assert!(row.needs_a_person(&gateway, at(80)), "the gateway has forgotten the first");
}

#[test]
fn a_replay_has_a_key_of_its_own_and_names_its_original() {
    for original in [RunKey::scheduled(at(900)), RunKey::manual(at(900), "0af1")] {
        let replay = original.replay(2);
        assert_eq!(replay.as_str(), format!("{original}r2"));
        assert_eq!((replay.original(), original.original()), (original.clone(), original.clone()));
        assert_eq!(replay.replay(3), original.replay(3), "of a replay it is the original that is replayed");
        assert!(!replay.is_scheduled() && original.is_scheduled() != original.is_manual());
        assert_eq!((replay.is_manual(), replay.instant()), (original.is_manual(), original.instant()));
        assert!(RunKey::try_from(String::from(replay)).is_ok());
    }
}
