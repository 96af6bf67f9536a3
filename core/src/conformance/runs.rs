//! What a [`RunStore`](crate::ports::RunStore) must do.

use super::samples::{all_kinds_of_rows, at, random_job_key, random_name, row};
use crate::ports::{Ports, Put};
use crate::run::{RunRow, RunStatus};
use futures::future::join_all;

/// The row that a later write would make of `row`.
fn next(row: &RunRow) -> RunRow {
    RunRow { revision: row.revision + 1, write_token: random_name(), status: RunStatus::Retrying, ..row.clone() }
}

async fn written(ports: &Ports, row: RunRow) -> RunRow {
    assert_eq!(ports.runs.put(&row).await, Ok(Put::Written));
    row
}

async fn expect(ports: &Ports, row: &RunRow) {
    assert_eq!(ports.runs.get(&row.id).await, Ok(Some(row.clone())));
}

/// All variants and options of a row are kept, instants to the millisecond; a later write leaves nothing of an earlier.
pub async fn a_row_survives_the_round_trip_whole(ports: &Ports) {
    let key = random_job_key();
    for row in all_kinds_of_rows(&key) {
        let row = written(ports, row).await;
        expect(ports, &row).await;
    }
    let mut over = written(ports, row(&key, at(-1))).await;
    for kind in all_kinds_of_rows(&key) {
        over = written(ports, RunRow { id: over.id.clone(), revision: over.revision + 1, ..kind }).await;
        expect(ports, &over).await;
    }
}

/// Neither the row of another firing nor that of another job.
pub async fn a_row_that_is_not_there_is_none(ports: &Ports) {
    let there = written(ports, row(&random_job_key(), at(0))).await;
    for missing in [row(&there.id.job_key, at(1)), row(&random_job_key(), at(0))] {
        assert_eq!(ports.runs.get(&missing.id).await, Ok(None));
    }
}

/// Who begins second sees who began first.
pub async fn the_first_revision_needs_that_there_is_no_row(ports: &Ports) {
    let first = written(ports, row(&random_job_key(), at(0))).await;
    let second = RunRow { write_token: random_name(), owner: Some(random_name()), ..first.clone() };
    assert_eq!(ports.runs.put(&second).await, Ok(Put::Conflict(Some(Box::new(first.clone())))));
    expect(ports, &first).await;
}

/// Neither the same revision, nor an older one, nor one that skips a revision.
pub async fn a_revision_is_written_over_the_one_before_it_only(ports: &Ports) {
    let first = written(ports, row(&random_job_key(), at(0))).await;
    let second = written(ports, next(&first)).await;
    let current = written(ports, next(&second)).await;
    for revision in [1, 2, 3, 5] {
        let stale = RunRow { revision, ..next(&first) };
        let conflict = Put::Conflict(Some(Box::new(current.clone())));
        assert_eq!(ports.runs.put(&stale).await, Ok(conflict), "revision {revision}");
        expect(ports, &current).await;
    }
    let last = written(ports, next(&current)).await;
    expect(ports, &last).await;
}

/// A later revision never makes a row.
pub async fn a_row_that_is_gone_conflicts_with_none(ports: &Ports) {
    let second = next(&row(&random_job_key(), at(0)));
    assert_eq!(ports.runs.put(&second).await, Ok(Put::Conflict(None)));
    assert_eq!(ports.runs.get(&second.id).await, Ok(None));
}

/// The same write again is no conflict, unless someone came after it.
pub async fn a_put_whose_answer_was_lost_is_written(ports: &Ports) {
    let mut row = row(&random_job_key(), at(0));
    for _ in 0..2 {
        row = written(ports, row).await;
        row = written(ports, row).await;
        expect(ports, &row).await;
        row = next(&row);
    }
    let current = written(ports, row).await;
    let overtaken = RunRow { revision: current.revision - 1, write_token: random_name(), ..current.clone() };
    assert_eq!(ports.runs.put(&overtaken).await, Ok(Put::Conflict(Some(Box::new(current.clone())))));
    expect(ports, &current).await;
}

/// Two workers decided from the same row.
pub async fn of_two_puts_over_one_revision_one_wins(ports: &Ports) {
    let first = row(&random_job_key(), at(0));
    let mut rivals = (first.clone(), RunRow { write_token: random_name(), owner: Some(random_name()), ..first });
    for _ in 0..3 {
        let (a, b) = &rivals;
        let winner = match futures::join!(ports.runs.put(a), ports.runs.put(b)) {
            (Ok(Put::Written), Ok(Put::Conflict(Some(seen)))) if *seen == *a => a,
            (Ok(Put::Conflict(Some(seen))), Ok(Put::Written)) if *seen == *b => b,
            other => panic!("not one winner that the other sees: {other:?}"),
        };
        expect(ports, winner).await;
        rivals = (next(winner), next(winner));
    }
}

/// As a worker with many runs in hand writes them: each under its own condition, whatever becomes of the others.
pub async fn rows_that_are_put_at_once_have_each_an_outcome_of_its_own(ports: &Ports) {
    let keys = [random_job_key(), random_job_key(), random_job_key()];
    let mut rows: Vec<RunRow> = keys.iter().flat_map(all_kinds_of_rows).collect();
    for _ in 0..3 {
        let first = join_all(rows.iter().map(|row| ports.runs.put(row))).await;
        assert!(first.iter().all(|put| *put == Ok(Put::Written)), "{first:?}");
        let rivals: Vec<RunRow> = rows.iter().map(|row| RunRow { write_token: random_name(), ..row.clone() }).collect();
        let again = rows.iter().zip(&rivals).flat_map(|(row, rival)| [ports.runs.put(row), ports.runs.put(rival)]);
        let again = join_all(again).await;
        for (row, outcomes) in rows.iter().zip(again.chunks(2)) {
            let conflict = Put::Conflict(Some(Box::new(row.clone())));
            assert_eq!(outcomes, [Ok(Put::Written), Ok(conflict)]);
            expect(ports, row).await;
        }
        // Of another kind each, so that whatever a row has comes and goes.
        let over = |(n, row): (usize, &RunRow)| RunRow {
            id: row.id.clone(),
            revision: row.revision + 1,
            write_token: random_name(),
            ..rows[(n + 1) % rows.len()].clone()
        };
        rows = rows.iter().enumerate().map(over).collect();
    }
}

/// One job's rows, as many as asked for.
pub async fn rows_are_listed_newest_first(ports: &Ports) {
    let key = random_job_key();
    let mut rows = Vec::new();
    for s in [120, 0, 60, -60, 180] {
        rows.push(written(ports, row(&key, at(s))).await);
    }
    written(ports, row(&random_job_key(), at(300))).await;
    rows.sort_by(|a, b| b.id.cmp(&a.id));
    assert_eq!(ports.runs.list(&key, 100).await, Ok(rows.clone()));
    assert_eq!(ports.runs.list(&key, 2).await, Ok(rows[..2].to_vec()));
    assert_eq!(ports.runs.list(&random_job_key(), 2).await, Ok(Vec::new()));
}
