//! What a [`ReportStore`](crate::ports::ReportStore) must do.

use super::samples::{at_ms, random_name};
use crate::lease::LeaseId;
use crate::ports::Ports;
use crate::report::{CircuitReport, CircuitState, WorkerReport};
use crate::target::Target;

fn report(written_ms: i64) -> WorkerReport {
    let circuit = |state, since_ms| CircuitReport { state, since: at_ms(since_ms) };
    let circuits = [
        (Target::sms(), circuit(CircuitState::Open, 1)),
        (Target::webhook("hooks.example.com:8443"), circuit(CircuitState::HalfOpen, 4_002)),
    ];
    WorkerReport { worker: format!("{}-1.b+c", random_name()), at: at_ms(written_ms), circuits: circuits.into() }
}

async fn read(ports: &Ports, worker: &str) -> Vec<WorkerReport> {
    let reports = ports.reports.list().await.expect("reports can be listed");
    reports.into_iter().filter(|report| report.worker == worker).collect()
}

/// Each comes back as it was written, beside those of others.
pub async fn a_report_survives_the_round_trip_whole(ports: &Ports) {
    let (one, other) = (report(5_003), report(9_000));
    for report in [&one, &other] {
        assert_eq!(ports.reports.put(report).await, Ok(()));
    }
    assert_eq!(read(ports, &one.worker).await, [one]);
    assert_eq!(read(ports, &other.worker).await, [other]);
}

/// A worker has one report: nothing of the last one stays.
pub async fn a_report_takes_the_place_of_the_last_one(ports: &Ports) {
    let first = report(5_003);
    assert_eq!(ports.reports.put(&first).await, Ok(()));
    let mut second = WorkerReport { at: at_ms(15_000), ..first };
    second.circuits.remove(&Target::sms());
    assert_eq!(ports.reports.put(&second).await, Ok(()));
    assert_eq!(read(ports, &second.worker).await, [second]);
}

/// It is gone, another worker's stays, and a second removal finds nothing to do.
pub async fn a_removed_report_is_gone(ports: &Ports) {
    let (one, other) = (report(0), report(0));
    for report in [&one, &other] {
        assert_eq!(ports.reports.put(report).await, Ok(()));
    }
    for _ in 0..2 {
        assert_eq!(ports.reports.remove(&one.worker).await, Ok(()));
        assert_eq!(read(ports, &one.worker).await, []);
    }
    assert_eq!(read(ports, &other.worker).await, [other]);
}

/// They are no leases, wherever they are kept, and leases are no reports.
pub async fn reports_and_leases_are_not_listed_among_each_other(ports: &Ports) {
    let reports = ports.reports.list().await;
    ports.leases.take(&LeaseId::Copy(random_name()), None, "me").await.expect("a new lease can be taken");
    assert_eq!(ports.reports.list().await, reports);
    let leases = ports.leases.list().await;
    assert_eq!(ports.reports.put(&report(0)).await, Ok(()));
    assert_eq!(ports.leases.list().await, leases);
}
