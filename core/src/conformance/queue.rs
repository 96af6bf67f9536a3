//! What a [`RunQueue`](crate::ports::RunQueue) must do. Each case needs queues that are empty and its own.

use super::eventually;
use super::samples::{at_ms, random_job_key, row};
use crate::error::PortError;
use crate::message::DeadLetter;
use crate::ports::{BATCH, Delivery, LONGEST_BODY_BYTES, Ports, QueueDepth};
use crate::priority::Priority;
use std::time::Duration;

const Q: Priority = Priority::Normal;
const S: fn(u64) -> Duration = Duration::from_secs;
/// Longer than any case takes.
const LONG: Duration = Duration::from_secs(600);

async fn send(ports: &Ports, bodies: &[&str]) {
    let bodies: Vec<String> = bodies.iter().map(|body| (*body).to_owned()).collect();
    let results = ports.queue.send(Q, &bodies).await.expect("a batch can be sent");
    assert_eq!(results, vec![Ok(()); bodies.len()]);
}

/// Receives what is there after a short wait.
async fn receive(ports: &Ports, wait: u64, visibility: Duration) -> Vec<Delivery> {
    ports.queue.receive(Q, BATCH, S(wait), visibility).await.expect("the queue can be read")
}

/// Receives until `count` messages are there.
async fn receive_all(ports: &Ports, count: usize, visibility: Duration) -> Vec<Delivery> {
    let mut deliveries = Vec::new();
    let what = format!("{count} messages arrive");
    eventually(&what, async || {
        deliveries.extend(receive(ports, 1, visibility).await);
        (deliveries.len() >= count).then_some(())
    })
    .await;
    assert_eq!(deliveries.len(), count);
    deliveries
}

async fn receive_one(ports: &Ports, visibility: Duration) -> Delivery {
    receive_all(ports, 1, visibility).await.remove(0)
}

async fn extend(ports: &Ports, delivery: &Delivery, by: Duration) {
    let results = ports.queue.extend(Q, &[(delivery.receipt.clone(), by)]).await;
    assert_eq!(results, Ok(vec![Ok(())]));
}

async fn expect_depth(ports: &Ports, visible: u64, in_flight: u64) {
    let expected = QueueDepth { visible, in_flight, delayed: 0 };
    eventually(&format!("the depth is {expected:?}"), async || {
        (ports.queue.depth(Q).await.expect("the depth can be read") == expected).then_some(())
    })
    .await;
}

async fn expect_delayed(ports: &Ports, delayed: u64) {
    let expected = QueueDepth { visible: 0, in_flight: 0, delayed };
    eventually(&format!("the depth is {expected:?}"), async || {
        (ports.queue.depth(Q).await.expect("the depth can be read") == expected).then_some(())
    })
    .await;
}

fn is_permanent<T>(result: &Result<T, PortError>) -> bool {
    matches!(result, Err(PortError::Permanent(_)))
}

/// One result per body; each message is new to its receiver and has a receipt of its own.
pub async fn a_batch_is_answered_in_order_and_arrives_whole(ports: &Ports) {
    let bodies: Vec<String> = (0..10).map(|n| format!("body {n}")).collect();
    send(ports, &bodies.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let mut deliveries = receive_all(ports, 10, LONG).await;
    deliveries.sort_by(|a, b| a.body.cmp(&b.body));
    assert_eq!(deliveries.iter().map(|d| d.body.clone()).collect::<Vec<_>>(), bodies);
    assert!(deliveries.iter().all(|d| d.receive_count == 1 && d.priority == Q));
    let receipts: std::collections::BTreeSet<&str> = deliveries.iter().map(|d| d.receipt.as_str()).collect();
    assert_eq!(receipts.len(), 10);
}

/// Also what XML and JSON would escape.
pub async fn text_of_any_script_arrives_unchanged(ports: &Ports) {
    let body = "{\"text\":\"Grüße, Ζωή, 你好, שלום 👩‍👩‍👧 <&>' \\\"\",\n\t\"n\":1}\r\n";
    send(ports, &[body]).await;
    assert_eq!(receive_one(ports, LONG).await.body, body);
}

/// The rest stays for others.
pub async fn a_receiver_gets_no_more_than_it_asked_for(ports: &Ports) {
    send(ports, &["a", "b", "c", "d", "e"]).await;
    let taken = eventually("something arrives", async || {
        let taken = ports.queue.receive(Q, 2, S(1), LONG).await.expect("the queue can be read");
        (!taken.is_empty()).then_some(taken)
    });
    let taken = taken.await.len();
    assert!(taken <= 2, "{taken} messages");
    receive_all(ports, 5 - taken, LONG).await;
}

/// Nobody has to ask again.
pub async fn a_waiting_receiver_gets_what_is_sent_meanwhile(ports: &Ports) {
    let (deliveries, ()) = futures::join!(receive(ports, 20, LONG), send(ports, &["a"]));
    assert_eq!(deliveries.len(), 1);
    assert_eq!(deliveries[0].body, "a");
}

/// Each has a queue of its own, and its deliveries say so.
pub async fn priorities_do_not_mix(ports: &Ports) {
    for priority in Priority::ALL {
        let sent = ports.queue.send(priority, &[priority.to_string()]).await;
        assert_eq!(sent, Ok(vec![Ok(())]));
    }
    for priority in Priority::ALL {
        let deliveries = ports.queue.receive(priority, BATCH, S(5), LONG).await.expect("the queue can be read");
        let found: Vec<_> = deliveries.iter().map(|d| (d.priority, d.body.as_str())).collect();
        assert_eq!(found, [(priority, priority.as_str())]);
    }
}

/// Others do not see what one holds.
pub async fn a_received_message_is_hidden(ports: &Ports) {
    send(ports, &["a"]).await;
    receive_one(ports, LONG).await;
    assert_eq!(receive(ports, 1, LONG).await, []);
}

/// A holder that died gives its messages back by doing nothing.
pub async fn a_message_comes_again_when_its_visibility_ends(ports: &Ports) {
    send(ports, &["a"]).await;
    let first = receive_one(ports, S(1)).await;
    let again = receive_one(ports, LONG).await;
    assert_eq!((again.body.as_str(), again.receive_count), ("a", 2));
    assert_ne!(again.receipt, first.receipt);
}

/// A holder that stops gives its messages back at once.
pub async fn a_message_given_back_comes_again_with_a_new_receipt(ports: &Ports) {
    send(ports, &["a"]).await;
    let first = receive_one(ports, LONG).await;
    extend(ports, &first, Duration::ZERO).await;
    let again = receive_one(ports, LONG).await;
    assert_eq!((again.body.as_str(), again.receive_count), ("a", 2));
    assert_ne!(again.receipt, first.receipt);
}

/// A heartbeat keeps a message beyond the visibility that it was received with.
pub async fn an_extended_message_stays_hidden(ports: &Ports) {
    send(ports, &["a"]).await;
    let held = receive_one(ports, S(3)).await;
    extend(ports, &held, LONG).await;
    assert_eq!(receive(ports, 6, LONG).await, []);
    let deleted = ports.queue.delete(Q, std::slice::from_ref(&held.receipt)).await;
    assert_eq!(deleted, Ok(vec![Ok(())]), "its receipt still stands");
    expect_depth(ports, 0, 0).await;
}

/// It is rounded up where the queue counts in seconds: cut to zero it would hide nothing.
pub async fn an_extension_below_a_second_hides_all_the_same(ports: &Ports) {
    send(ports, &["a"]).await;
    let held = receive_one(ports, LONG).await;
    extend(ports, &held, Duration::from_millis(900)).await;
    assert_eq!(receive(ports, 0, LONG).await, []);
    assert_eq!(receive_one(ports, LONG).await.receive_count, 2);
}

/// For good; deleting it again is no error.
pub async fn a_deleted_message_is_gone(ports: &Ports) {
    send(ports, &["a", "b"]).await;
    let deliveries = receive_all(ports, 2, LONG).await;
    let receipts: Vec<String> = deliveries.into_iter().map(|d| d.receipt).collect();
    for _ in 0..2 {
        assert_eq!(ports.queue.delete(Q, &receipts).await, Ok(vec![Ok(()); 2]));
        expect_depth(ports, 0, 0).await;
    }
}

/// Who lost a message to another cannot take it from him.
pub async fn a_stale_receipt_deletes_nothing(ports: &Ports) {
    send(ports, &["a"]).await;
    let first = receive_one(ports, LONG).await;
    extend(ports, &first, Duration::ZERO).await;
    let second = receive_one(ports, LONG).await;
    let answer = ports.queue.delete(Q, &[first.receipt]).await;
    assert_eq!(answer.map(|results| results.len()), Ok(1), "whatever it says");
    expect_depth(ports, 0, 1).await;
    extend(ports, &second, Duration::ZERO).await;
    assert_eq!(receive_one(ports, LONG).await.body, "a");
}

/// Who lost a message to another cannot show it to a third.
pub async fn a_stale_receipt_extends_nothing(ports: &Ports) {
    send(ports, &["a"]).await;
    let first = receive_one(ports, LONG).await;
    extend(ports, &first, Duration::ZERO).await;
    receive_one(ports, LONG).await;
    let answer = ports.queue.extend(Q, &[(first.receipt, Duration::ZERO)]).await;
    assert_eq!(answer.map(|results| results.len()), Ok(1), "whatever it says");
    assert_eq!(receive(ports, 1, LONG).await, []);
}

/// As a whole, before anything happens.
pub async fn a_batch_of_more_than_ten_is_refused(ports: &Ports) {
    let bodies: Vec<String> = (0..11).map(|n| format!("body {n}")).collect();
    let sent = ports.queue.send(Q, &bodies).await;
    assert!(is_permanent(&sent), "{sent:?}");
    send(ports, &["a"]).await;
    let held = receive_one(ports, LONG).await;
    let extended = ports.queue.extend(Q, &vec![(held.receipt.clone(), Duration::ZERO); 11]).await;
    assert!(is_permanent(&extended), "{extended:?}");
    let deleted = ports.queue.delete(Q, &vec![held.receipt; 11]).await;
    assert!(is_permanent(&deleted), "{deleted:?}");
    expect_depth(ports, 0, 1).await;
}

/// It is no error, and SQS, which refuses it, is not asked.
pub async fn an_empty_batch_does_nothing(ports: &Ports) {
    assert_eq!(ports.queue.send(Q, &[]).await, Ok(Vec::new()));
    assert_eq!(ports.queue.extend(Q, &[]).await, Ok(Vec::new()));
    assert_eq!(ports.queue.delete(Q, &[]).await, Ok(Vec::new()));
}

/// Too long, empty, or with a character that SQS does not take; the rest of its batch goes out.
pub async fn a_body_that_cannot_be_sent_is_refused_alone(ports: &Ports) {
    let longest = "é".repeat(LONGEST_BODY_BYTES / 2);
    let bodies = [
        format!("{longest}xx"),
        longest.clone(),
        String::new(),
        "nul \u{0}".to_owned(),
        "last".to_owned(),
        "escape \u{1b}".to_owned(),
        "no character \u{ffff}".to_owned(),
    ];
    let results = ports.queue.send(Q, &bodies).await.expect("a batch can be sent");
    let sent: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(sent, [false, true, false, false, true, false, false]);
    assert!(results.iter().all(|result| result.is_ok() || is_permanent(result)), "{results:?}");
    let mut received: Vec<String> = receive_all(ports, 2, LONG).await.into_iter().map(|d| d.body).collect();
    received.sort();
    assert!(received == ["last".to_owned(), longest], "just the two that can be sent arrive");
}

/// It is counted apart until then.
pub async fn a_delayed_message_comes_later(ports: &Ports) {
    let bodies = ["later".to_owned()];
    assert_eq!(ports.queue.send_after(Q, &bodies, S(2)).await, Ok(vec![Ok(())]));
    expect_delayed(ports, 1).await;
    assert!(receive(ports, 0, LONG).await.is_empty(), "it is kept back");
    assert_eq!(receive_one(ports, LONG).await.body, "later");
}

/// Emulators take more than SQS does.
pub async fn a_delay_above_a_quarter_of_an_hour_is_refused(ports: &Ports) {
    let bodies = ["never".to_owned()];
    assert!(is_permanent(&ports.queue.send_after(Q, &bodies, S(901)).await));
    assert_eq!(ports.queue.send_after(Q, &bodies, S(900)).await, Ok(vec![Ok(())]));
    expect_delayed(ports, 1).await;
}

/// SQS would refuse it; emulators would not.
pub async fn a_visibility_above_twelve_hours_is_refused(ports: &Ports) {
    send(ports, &["a", "b"]).await;
    let received = ports.queue.receive(Q, BATCH, S(1), S(43_201)).await;
    assert!(is_permanent(&received), "{received:?}");
    let held = receive_all(ports, 2, LONG).await;
    let extensions = [(held[0].receipt.clone(), S(43_201)), (held[1].receipt.clone(), Duration::ZERO)];
    let results = ports.queue.extend(Q, &extensions).await.expect("a batch can be extended");
    assert!(is_permanent(&results[0]), "{results:?}");
    assert_eq!(results[1], Ok(()));
    let again = receive_one(ports, LONG).await;
    assert_eq!(again.body, held[1].body, "only the other one was shown again");
}

/// What waits, and what is in somebody's hands.
pub async fn the_depth_tells_visible_from_held(ports: &Ports) {
    expect_depth(ports, 0, 0).await;
    send(ports, &["a", "b", "c"]).await;
    expect_depth(ports, 3, 0).await;
    let held = receive_all(ports, 3, LONG).await;
    expect_depth(ports, 0, 3).await;
    extend(ports, &held[0], Duration::ZERO).await;
    expect_depth(ports, 1, 2).await;
}

/// With a run, and for a body that names none.
pub async fn a_dead_letter_goes_out(ports: &Ports) {
    let run = row(&random_job_key(), at_ms(0)).id;
    for run in [Some(&run), None] {
        let letter = DeadLetter::new("Grüße: \"nobody\" knows".into(), run, "{not json", at_ms(1));
        assert_eq!(ports.queue.send_dead_letter(&letter).await, Ok(()));
    }
    expect_depth(ports, 0, 0).await;
}
