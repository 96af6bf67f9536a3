//! The worker's handlers against the stack: queues by the real SDK, the gateway over HTTP.

use crate::clients::{self, start};
use punctual_core::aws::Names;
use punctual_core::clock::{Clock, SystemClock};
use punctual_core::job::JobKey;
use punctual_core::payload::Payload;
use punctual_core::ports::{Call, Gateway};
use punctual_core::retry::{Outcome, OutcomeClass};
use punctual_core::run::{RunId, RunKey};
use punctual_core::trace::TraceContext;
use punctual_localstack::stack::{Stack, StackConfig};
use punctual_worker::deliver::{Handlers, JsonAdapter, Queues, SmsGateway, SystemLookup, Webhooks};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;

const TIME: Duration = Duration::from_secs(10);
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn handlers(stack: &Stack, allowed: &str) -> Handlers {
    let sms_url = format!("{}/v1/sms", stack.gateway_url());
    with_queues(sms_url, clients::sqs(stack), allowed)
}

fn with_queues(sms_url: String, sqs: aws_sdk_sqs::Client, allowed: &str) -> Handlers {
    let clock = || -> Arc<dyn Clock> { Arc::new(SystemClock::new()) };
    let allowed = || allowed.parse().unwrap();
    Handlers {
        sms: Some(SmsGateway::new(&sms_url, "w1".into(), Box::new(JsonAdapter), TIME, clock()).unwrap()),
        mail: None,
        webhooks: Webhooks::new(allowed(), Arc::new(SystemLookup), TIME, clock()).unwrap(),
        queues: Queues::new(sqs, allowed(), &Names::new("punctual").unwrap()),
    }
}

async fn send(handlers: &Handlers, payload: Payload) -> Outcome {
    let job_key = JobKey::new("bank", "c-1/bill").unwrap();
    let reference = RunId { job_key, run_key: RunKey::scheduled("2026-12-05T03:30:00Z".parse().unwrap()) };
    handlers.send(&Call { reference, attempt: 1, payload, trace: TraceContext::parse(TRACE), time: TIME }).await
}

fn to_queue(url: &str) -> Payload {
    Payload::Queue { url: url.into(), body: "Your bill".into(), vars: Default::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_gets_the_body_and_the_run_it_is_of() {
    let stack = start(StackConfig::default());
    let sqs = clients::sqs(&stack);
    let url = sqs.create_queue().queue_name("bills").send().await.unwrap().queue_url.unwrap();
    let handlers = handlers(&stack, "127.0.0.1,localhost");
    let outcome = send(&handlers, to_queue(&url)).await;
    assert!(matches!(&outcome, Outcome::Delivered { gateway_ref } if !gateway_ref.is_empty()), "{outcome:?}");
    let received =
        sqs.receive_message().queue_url(&url).message_attribute_names("All").wait_time_seconds(5).send().await.unwrap();
    let [message] = &received.messages.unwrap()[..] else { panic!("one message was sent") };
    assert_eq!(message.body.as_deref(), Some("Your bill"));
    let said = |name: &str| message.message_attributes.as_ref().unwrap()[name].string_value.clone().unwrap();
    assert_eq!(said("punctual-run-id"), "bank/c-1/bill:1796441400");
    assert_eq!(said("traceparent"), TRACE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_may_not_or_cannot_be_sent_to_gets_nothing() {
    let stack = start(StackConfig::default());
    let sqs = clients::sqs(&stack);
    let own = sqs.create_queue().queue_name("punctual-urgent").send().await.unwrap().queue_url.unwrap();
    let open = handlers(&stack, "127.0.0.1,localhost");
    for (handlers, url, class) in [
        (&open, own.clone(), OutcomeClass::Permanent),
        (&open, own.replace("punctual-urgent", "nowhere"), OutcomeClass::Temporary),
        (&handlers(&stack, ""), own.replace("punctual-urgent", "bills"), OutcomeClass::Permanent),
    ] {
        let outcome = send(handlers, to_queue(&url)).await;
        assert_eq!(outcome.class(), class, "{url}: {outcome:?}");
    }
    let received = sqs.receive_message().queue_url(&own).send().await.unwrap();
    assert!(received.messages.unwrap_or_default().is_empty());
}

/// The SDK would try three times, and each try that breaks after the request may have put a message.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_answer_is_lost_is_sent_once_and_unknown() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let requests = Arc::new(AtomicUsize::new(0));
    let seen = requests.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !String::from_utf8_lossy(&request).contains("Your bill") {
                assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
            }
            seen.fetch_add(1, Ordering::Relaxed);
        }
    });
    let sqs = clients::sqs_at(&format!("http://{address}"));
    let handlers = with_queues("http://127.0.0.1:1".into(), sqs, "127.0.0.1");
    let outcome = send(&handlers, to_queue(&format!("http://{address}/000000000000/bills"))).await;
    assert_eq!(outcome.class(), OutcomeClass::Unknown, "{outcome:?}");
    assert_eq!(requests.load(Ordering::Relaxed), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_found_no_connection_is_sent_again() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let sqs = clients::sqs_at(&format!("http://{closed}"));
    let handlers = with_queues("http://127.0.0.1:1".into(), sqs, "127.0.0.1");
    let outcome = send(&handlers, to_queue(&format!("http://{closed}/000000000000/bills"))).await;
    assert_eq!(outcome.class(), OutcomeClass::Temporary, "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gateway_gets_texts_and_nothing_else_is_made_of_what_is_not_configured() {
    let stack = start(StackConfig::default());
    let handlers = handlers(&stack, "");
    let sent = send(&handlers, Payload::sms("+447700900123", "Your bill is due")).await;
    assert_eq!(sent.class(), OutcomeClass::Delivered, "{sent:?}");
    assert_eq!(stack.gateway().stats().accepted, 1);
    assert_eq!(send(&handlers, Payload::Noop).await.class(), OutcomeClass::Delivered);
    let email = Payload::Email {
        to: "ana@example.com".into(),
        subject: "Bill".into(),
        text: "Your bill".into(),
        vars: Default::default(),
    };
    assert!(!handlers.serves(email.handler()));
    let outcome = send(&handlers, email).await;
    assert!(matches!(&outcome, Outcome::Temporary { reason, .. } if reason.contains("email")), "{outcome:?}");
}
