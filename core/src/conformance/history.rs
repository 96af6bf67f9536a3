//! What a [`RunHistory`](crate::ports::RunHistory) must do.

use super::eventually;
use super::samples::{at, at_ms, random_name, row};
use crate::job::JobKey;
use crate::ports::{Attended, Ports, Put, RowRead, RowSpan, place_in_attention};
use crate::run::{RunId, RunKey, RunRow, RunStatus};
use chrono::{DateTime, TimeDelta, Utc};

fn key(tenant: &str) -> JobKey {
    JobKey::new(tenant, "c-1/bill").expect("keys of cases are well formed")
}

fn tenant() -> String {
    format!("t{}", random_name())
}

async fn stored(ports: &Ports, row: RunRow) -> RunRow {
    assert_eq!(ports.runs.put(&row).await, Ok(Put::Written));
    row
}

/// Rows of which every one can be read.
fn readable(rows: Vec<RowRead>) -> impl Iterator<Item = RunRow> {
    rows.into_iter().map(|read| match read {
        RowRead::Row(row) => *row,
        RowRead::Unreadable(row) => panic!("{} cannot be read: {}", row.id, row.problem),
    })
}

fn row_of(job_key: &JobKey, run_key: RunKey, status: RunStatus) -> RunRow {
    let id = RunId { job_key: job_key.clone(), run_key };
    RunRow { id, status, revision: 1, write_token: random_name(), ..row(job_key, at(0)) }
}

async fn keys_in(ports: &Ports, key: &JobKey, span: RowSpan, page: usize) -> Vec<String> {
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let found = ports.history.rows(key, span, after, page).await.expect("rows can be read");
        assert!(found.rows.len() <= page, "a page of {} rows", found.rows.len());
        keys.extend(readable(found.rows).map(|row| row.id.run_key.to_string()));
        after = found.next;
        if after.is_none() {
            return keys;
        }
    }
}

/// Both ends where they say, runs by hand and replays where their instants are, in either order, page by page.
pub async fn rows_of_a_span_are_read_in_order(ports: &Ports) {
    let key = key(&tenant());
    let base = at(0);
    let minute = |n: i64| base + TimeDelta::minutes(n);
    let mut expected = Vec::new();
    for n in 0..6 {
        let scheduled = RunKey::scheduled(minute(n));
        let by_hand = RunKey::manual(minute(n), "abc");
        let replay = scheduled.replay(1);
        for run_key in [scheduled, by_hand, replay] {
            if (1..4).contains(&n) {
                expected.push(run_key.to_string());
            }
            stored(ports, row_of(&key, run_key, RunStatus::Dead)).await;
        }
    }
    let span = RowSpan::between(minute(1), minute(4));
    assert_eq!(keys_in(ports, &key, span, 4).await, expected);
    let backwards = RowSpan { newest_first: true, ..span };
    expected.reverse();
    assert_eq!(keys_in(ports, &key, backwards, 4).await, expected);
    assert_eq!(keys_in(ports, &key, RowSpan::newest_first(), 5).await.len(), 18);
    let second = RowSpan::between(minute(1), minute(1) + TimeDelta::seconds(1));
    assert_eq!(keys_in(ports, &key, second, 9).await.len(), 3, "a second is the shortest span");
    assert_eq!(keys_in(ports, &key, RowSpan::between(minute(2), minute(2)), 9).await, Vec::<String>::new());
}

async fn waiting(ports: &Ports, tenant: &str) -> Vec<RunId> {
    let (mut ids, mut after) = (Vec::new(), None);
    loop {
        let page = ports.history.attention(tenant, after, 2).await.expect("what waits can be read");
        assert!(page.rows.len() <= 2, "a page of {} rows", page.rows.len());
        ids.extend(readable(page.rows).map(|row| row.id));
        after = page.next;
        if after.is_none() {
            return ids;
        }
    }
}

fn note(at: DateTime<Utc>) -> Attended {
    Attended { by: "ann".into(), at, replay: None, why: Some("the customer paid".into()) }
}

/// A tenant's, the oldest end first, and nobody else's; what somebody has seen to waits no more.
pub async fn what_waits_for_a_person_is_listed_until_it_is_seen_to(ports: &Ports) {
    let (tenant, other) = (tenant(), tenant());
    let mut expected = Vec::new();
    for n in 0..5 {
        let status = if n % 2 == 0 { RunStatus::Dead } else { RunStatus::Indeterminate };
        let row = row_of(&key(&tenant), RunKey::scheduled(at(9_000 - n)), status);
        expected.push(stored(ports, RunRow { completed_at: Some(at_ms(n)), ..row }).await.id);
    }
    let others = [RunStatus::Succeeded, RunStatus::Failed, RunStatus::Running, RunStatus::Skipped];
    for (status, token) in others.into_iter().zip(["a", "b", "c", "d"]) {
        stored(ports, row_of(&key(&tenant), RunKey::manual(at(0), token), status)).await;
    }
    stored(ports, row_of(&key(&other), RunKey::scheduled(at(0)), RunStatus::Dead)).await;
    let shows = async |expected: &[RunId]| {
        let expected = expected.to_vec();
        eventually("what waits is listed", async || (waiting(ports, &tenant).await == expected).then_some(())).await;
    };
    shows(&expected).await;
    let all = ports.history.waiting(1_000).await.expect("it can be counted");
    assert!(all.rows >= expected.len() && all.oldest.is_some_and(|oldest| oldest <= at_ms(0)), "{all:?}");
    assert_eq!(ports.history.waiting(1).await.expect("it can be counted").rows, 1);
    let seen_to = expected.remove(1);
    assert_eq!(ports.history.attend(&seen_to, &note(at_ms(1))).await, Ok(true));
    shows(&expected).await;
    let seen = ports.history.row(&seen_to).await.expect("it can be read").expect("it is there");
    let behind = ports.history.attention(&tenant, Some(place_in_attention(&seen)), 9).await.expect("it can be read");
    let behind: Vec<RunId> = readable(behind.rows).map(|row| row.id).collect();
    assert_eq!(behind, expected[1..], "a page starts behind a row that waits no more");
    let row = ports.runs.get(&seen_to).await.expect("it can be read").expect("it is there");
    assert_eq!(row.status, RunStatus::Indeterminate, "its row stays as it is");
}

/// The first note stays, and a repeat of it is one; what needs nobody takes none.
pub async fn a_note_is_made_once(ports: &Ports) {
    let key = key(&tenant());
    let dead = stored(ports, row_of(&key, RunKey::scheduled(at(0)), RunStatus::Dead)).await.id;
    let done = stored(ports, row_of(&key, RunKey::scheduled(at(1)), RunStatus::Succeeded)).await.id;
    let (first, second) = (
        note(at_ms(1) + TimeDelta::microseconds(7)),
        Attended { replay: Some(dead.run_key.replay(1)), why: None, ..note(at_ms(2)) },
    );
    assert_eq!(ports.history.attended(&dead).await, Ok(None));
    for expected in [(&first, true), (&first, true), (&second, false)] {
        assert_eq!(ports.history.attend(&dead, expected.0).await, Ok(expected.1));
        let kept = Attended { at: at_ms(1), ..first.clone() };
        assert_eq!(ports.history.attended(&dead).await, Ok(Some(kept)));
    }
    assert_eq!(ports.history.attend(&done, &second).await, Ok(false));
    let missing = RunId { run_key: RunKey::scheduled(at(2)), ..dead };
    assert_eq!(ports.history.attend(&missing, &second).await, Ok(false));
    let other = stored(ports, row_of(&key, RunKey::scheduled(at(3)), RunStatus::Indeterminate)).await.id;
    assert_eq!(ports.history.attend(&other, &second).await, Ok(true));
    assert_eq!(ports.history.attended(&other).await, Ok(Some(second)));
}
