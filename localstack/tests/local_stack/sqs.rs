use crate::clients::{self, eventually, start};
use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName, QueueAttributeName,
    SendMessageBatchRequestEntry,
};
use punctual_localstack::stack::{AcceptedMessage, Stack, StackConfig};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

type Tapped = Arc<Mutex<Vec<AcceptedMessage>>>;

fn tapped_stack() -> (Stack, Tapped) {
    let tapped = Tapped::default();
    let seen = tapped.clone();
    let on_message = Arc::new(move |message| seen.lock().unwrap().push(message));
    (start(StackConfig { on_message: Some(on_message), ..StackConfig::default() }), tapped)
}

async fn create_queue(sqs: &Client, name: &str) -> String {
    sqs.create_queue().queue_name(name).send().await.unwrap().queue_url.unwrap()
}

fn entry(id: usize, body: impl Into<String>) -> SendMessageBatchRequestEntry {
    SendMessageBatchRequestEntry::builder().id(id.to_string()).message_body(body).build().unwrap()
}

async fn receive(sqs: &Client, queue: &str, wait_s: i32) -> Vec<Message> {
    let received = sqs
        .receive_message()
        .queue_url(queue)
        .max_number_of_messages(10)
        .wait_time_seconds(wait_s)
        .visibility_timeout(300)
        .message_system_attribute_names(MessageSystemAttributeName::All)
        .send()
        .await
        .unwrap();
    received.messages.unwrap_or_default()
}

/// Messages that can be received, that are received and not deleted, and that are delayed.
async fn counts(sqs: &Client, queue: &str) -> [u64; 3] {
    let attributes = sqs
        .get_queue_attributes()
        .queue_url(queue)
        .attribute_names(QueueAttributeName::All)
        .send()
        .await
        .unwrap()
        .attributes
        .unwrap();
    [
        QueueAttributeName::ApproximateNumberOfMessages,
        QueueAttributeName::ApproximateNumberOfMessagesNotVisible,
        QueueAttributeName::ApproximateNumberOfMessagesDelayed,
    ]
    .map(|name| attributes[&name].parse().unwrap())
}

fn bodies(tapped: &Tapped) -> Vec<String> {
    tapped.lock().unwrap().iter().map(|message| message.body.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_received_by_a_long_poll_and_deleted() {
    let stack = start(StackConfig::default());
    let sqs = clients::sqs(&stack);
    let queue = create_queue(&sqs, "runs-normal").await;
    assert!(queue.starts_with(&format!("{}/", stack.sqs_url())), "{queue} does not carry the port");

    let poll = tokio::spawn({
        let (sqs, queue) = (sqs.clone(), queue.clone());
        async move { receive(&sqs, &queue, 20).await }
    });
    let entries = (0..10).map(|n| entry(n, format!("m{n}"))).collect();
    let sent = sqs.send_message_batch().queue_url(&queue).set_entries(Some(entries)).send().await.unwrap();
    assert_eq!((sent.successful().len(), sent.failed().len()), (10, 0));

    let mut messages = poll.await.unwrap();
    assert!(!messages.is_empty(), "the long poll came back empty");
    while messages.len() < 10 {
        messages.extend(receive(&sqs, &queue, 20).await);
    }
    let distinct: BTreeSet<&str> = messages.iter().filter_map(|message| message.body.as_deref()).collect();
    assert_eq!(distinct.len(), 10);
    assert_eq!(counts(&sqs, &queue).await, [0, 10, 0]);

    let delete = |(n, message): (usize, &Message)| {
        let handle = message.receipt_handle().unwrap();
        DeleteMessageBatchRequestEntry::builder().id(n.to_string()).receipt_handle(handle).build().unwrap()
    };
    let entries = messages.iter().enumerate().map(delete).collect();
    let deleted = sqs.delete_message_batch().queue_url(&queue).set_entries(Some(entries)).send().await.unwrap();
    assert_eq!((deleted.successful().len(), deleted.failed().len()), (10, 0));
    assert_eq!(counts(&sqs, &queue).await, [0, 0, 0]);
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_made_visible_comes_again_and_its_old_receipt_is_stale() {
    let stack = start(StackConfig::default());
    let sqs = clients::sqs(&stack);
    let queue = create_queue(&sqs, "q").await;
    sqs.send_message().queue_url(&queue).message_body("m").send().await.unwrap();
    let first = receive(&sqs, &queue, 20).await.remove(0);
    assert!(receive(&sqs, &queue, 0).await.is_empty());

    let visible_in = |receipt: &str, seconds| {
        sqs.change_message_visibility().queue_url(&queue).receipt_handle(receipt).visibility_timeout(seconds).send()
    };
    let stale = first.receipt_handle().unwrap();
    visible_in(stale, 600).await.unwrap();
    visible_in(stale, 0).await.unwrap();
    let second = receive(&sqs, &queue, 20).await.remove(0);
    let attributes = second.attributes().unwrap();
    assert_eq!(attributes[&MessageSystemAttributeName::ApproximateReceiveCount], "2");

    // A stale receipt neither deletes nor extends.
    sqs.delete_message().queue_url(&queue).receipt_handle(stale).send().await.unwrap();
    let error = visible_in(stale, 0).await.unwrap_err().into_service_error();
    assert!(error.is_message_not_inflight(), "{error:?}");
    assert_eq!(counts(&sqs, &queue).await, [0, 1, 0]);
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_message_comes_later_and_the_tap_tells_its_delay() {
    let (stack, tapped) = tapped_stack();
    let sqs = clients::sqs(&stack);
    let queue = create_queue(&sqs, "runs-urgent").await;
    sqs.send_message().queue_url(&queue).message_body("later").delay_seconds(1).send().await.unwrap();
    assert_eq!(counts(&sqs, &queue).await, [0, 0, 1]);
    assert!(receive(&sqs, &queue, 0).await.is_empty());
    assert_eq!(receive(&sqs, &queue, 20).await.len(), 1);

    let seen = tapped.lock().unwrap().clone();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].queue.as_str(), seen[0].body.as_str()), ("runs-urgent", "later"));
    assert_eq!(seen[0].delay, Duration::from_secs(1));
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tap_leaves_out_entries_the_queue_rejected() {
    let (stack, tapped) = tapped_stack();
    let sqs = clients::sqs(&stack);
    let queue = sqs
        .create_queue()
        .queue_name("q")
        .attributes(QueueAttributeName::MaximumMessageSize, "1024")
        .send()
        .await
        .unwrap()
        .queue_url
        .unwrap();
    let entries = (0..10).map(|n| entry(n, if n == 3 { "x".repeat(1_025) } else { format!("m{n}") })).collect();
    let sent = sqs.send_message_batch().queue_url(&queue).set_entries(Some(entries)).send().await.unwrap();
    assert_eq!((sent.successful().len(), sent.failed()[0].id()), (9, "3"));
    assert_eq!(bodies(&tapped), ["m0", "m1", "m2", "m4", "m5", "m6", "m7", "m8", "m9"]);

    // Refused as a whole: ids that are not distinct, and no such queue.
    let entries = vec![entry(1, "a"), entry(1, "b")];
    sqs.send_message_batch().queue_url(&queue).set_entries(Some(entries)).send().await.unwrap_err();
    sqs.send_message().queue_url(format!("{queue}-not")).message_body("c").send().await.unwrap_err();
    assert_eq!(tapped.lock().unwrap().len(), 9);
    assert_eq!(counts(&sqs, &queue).await, [9, 0, 0]);
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tap_and_the_queue_agree_under_load_and_other_actions_pass() {
    let (stack, tapped) = tapped_stack();
    let sqs = clients::sqs(&stack);
    let queue = create_queue(&sqs, "q").await;
    let senders = (0..20).map(|sender| {
        let (sqs, queue) = (sqs.clone(), queue.clone());
        tokio::spawn(async move {
            for batch in 0..10 {
                let entries = (0..10).map(|n| entry(n, format!("{sender}-{batch}-{n}"))).collect();
                sqs.send_message_batch().queue_url(&queue).set_entries(Some(entries)).send().await.unwrap();
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.unwrap();
    }
    let distinct: BTreeSet<String> = bodies(&tapped).into_iter().collect();
    assert_eq!((distinct.len(), tapped.lock().unwrap().len()), (2_000, 2_000));
    assert_eq!(counts(&sqs, &queue).await, [2_000, 0, 0]);
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_senders_that_went_away_are_counted_too() {
    let (stack, tapped) = tapped_stack();
    let sqs = clients::sqs(&stack);
    let queue = create_queue(&sqs, "q").await;
    let address = stack.sqs_url().replace("http://", "");
    for n in 0..200 {
        let entries: Vec<_> =
            (0..10).map(|m| json!({ "Id": m.to_string(), "MessageBody": format!("{n}-{m}") })).collect();
        let body = json!({ "QueueUrl": queue, "Entries": entries }).to_string();
        let mut sender = TcpStream::connect(&address).await.unwrap();
        let head = format!(
            "POST / HTTP/1.1\r\nhost: {address}\r\nx-amz-target: AmazonSQS.SendMessageBatch\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        sender.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    }
    // Some requests were never read; of those that were, whole batches are on the queue and in the figures.
    eventually("the tap agrees with the queue", async || {
        let [on_queue, ..] = counts(&sqs, &queue).await;
        on_queue > 0 && on_queue == tapped.lock().unwrap().len() as u64
    })
    .await;
    assert_eq!(tapped.lock().unwrap().len() % 10, 0);
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_sends_are_refused_and_the_tap_goes_on() {
    let (stack, tapped) = tapped_stack();
    let (sqs, http) = (clients::sqs(&stack), clients::http());
    let queue = create_queue(&sqs, "q").await;
    for target in ["AmazonSQS.SendMessage", "AmazonSQS.SendMessageBatch"] {
        for body in [&b""[..], b"{", b"[1]", b"\xff", br#"{"QueueUrl":7}"#, br#"{"QueueUrl":"q","Entries":"none"}"#] {
            let request = http.post(stack.sqs_url()).header("x-amz-target", target).body(body);
            assert!(request.send().await.unwrap().status().is_client_error());
        }
    }
    assert!(tapped.lock().unwrap().is_empty());
    sqs.send_message().queue_url(&queue).message_body("still").send().await.unwrap();
    assert_eq!(bodies(&tapped), ["still"]);
    stack.stop().await;
}
