//! The AWS adapters pass the conformance suites on the local stack, and name groups where queues are to be fair. Each case
//! has a stack of its own.

use aws_sdk_dynamodb::types::AttributeValue;
use chrono::{DateTime, TimeDelta};
use punctual_core::aws::{Aws, Names, schema};
use punctual_core::error::PortError;
use punctual_core::job::JobKey;
use punctual_core::message::{DeadLetter, MESSAGE_VERSION, Message};
use punctual_core::ports::{Ports, RowRead, RowSpan};
use punctual_core::priority::Priority;
use punctual_core::run::{RunId, RunKey};
use punctual_localstack::stack::{Stack, StackConfig};

async fn aws() -> (Stack, Aws) {
    let stack = Stack::start(StackConfig::default()).expect("free ports are always found");
    let aws = stack.aws(Names::new("punctual").expect("a valid prefix")).await;
    schema::setup(&aws).await.expect("a new stack can be set up");
    (stack, aws)
}

async fn aws_ports() -> (Stack, Ports) {
    let (stack, aws) = aws().await;
    let ports = aws.ports();
    (stack, ports)
}

macro_rules! tests {
    ($($suite:ident: [$($case:ident),* $(,)?])*) => {
        $(
            mod $suite {
                $(
                    #[tokio::test]
                    async fn $case() {
                        let (stack, ports) = crate::aws_ports().await;
                        punctual_core::conformance::$suite::$case(&ports).await;
                        stack.stop().await;
                    }
                )*
            }
        )*
    };
}

punctual_core::for_each_conformance_case!(tests);

fn a_message() -> Message {
    let at = DateTime::from_timestamp(1_796_441_400, 0).expect("the instant is in range");
    Message {
        v: MESSAGE_VERSION,
        job_key: JobKey::new("bank", "48213/bill").expect("a valid key"),
        run_key: RunKey::scheduled(at),
        generation: 1,
        scheduled_at: at,
        due_at: at,
        first_enqueued_at: at,
        scheduler: "s".into(),
        trace: None,
    }
}

/// The local stack's queues take no groups, and say so: that is how a group is seen here.
#[tokio::test]
async fn with_fair_queues_on_every_priority_queue_is_told_a_group_and_the_dead_letters_none() {
    let (stack, mut aws) = aws().await;
    aws.fair_queues = true;
    let queue = aws.ports().queue;
    for priority in Priority::ALL {
        let sent = queue.send(priority, &[a_message().encode(), "names no tenant".into()]).await;
        let sent = sent.expect("the call goes through");
        let Err(PortError::Permanent(refusal)) = &sent[0] else { panic!("{priority}: {sent:?}") };
        assert!(refusal.contains("MessageGroupId"), "{refusal}");
        assert_eq!(sent[1], Ok(()), "without a tenant there is no group");
    }
    let at = a_message().due_at;
    let letter = DeadLetter::new("lost".into(), Some(&a_message().run_id()), &a_message().encode(), at);
    assert_eq!(queue.send_dead_letter(&letter).await, Ok(()));
    stack.stop().await;
}

#[tokio::test]
async fn with_fair_queues_off_no_queue_is_told_a_group() {
    let (stack, aws) = aws().await;
    assert!(!aws.fair_queues);
    for priority in Priority::ALL {
        assert_eq!(aws.ports().queue.send(priority, &[a_message().encode()]).await, Ok(vec![Ok(())]));
    }
    stack.stop().await;
}

#[tokio::test]
async fn rows_that_something_else_wrote_are_told_as_unreadable_by_what_their_keys_say() {
    let (stack, aws) = aws().await;
    let history = aws.ports().history;
    let text = |text: &str| AttributeValue::S(text.to_owned());
    let at = DateTime::from_timestamp(1_796_441_400, 0).expect("the instant is in range");
    for run_key in ["1796441400", "1796441400.x", "1796441400x"] {
        let put = aws.dynamodb.put_item().table_name(aws.names.runs());
        let put = put.item("job_key", text("bank/c-1/bill")).item("run_key", text(run_key));
        let put = put.item("status", text("dead")).item("attention_tenant", text("bank"));
        put.item("completed_at_ms", AttributeValue::N("1796441400000".into())).send().await.expect("it is taken");
    }
    let key = JobKey::new("bank", "c-1/bill").expect("a valid key");
    let span = RowSpan::between(at, at + TimeDelta::seconds(1));
    // Page by page: what has no key of a run hides nothing behind it.
    let (mut of_job, mut waiting) = (Vec::new(), Vec::new());
    for (told, is_of_job) in [(&mut of_job, true), (&mut waiting, false)] {
        let mut after = None;
        loop {
            let page = match is_of_job {
                true => history.rows(&key, span, after, 1).await,
                false => history.attention("bank", after, 1).await,
            };
            let page = page.expect("rows can be read");
            for read in &page.rows {
                let RowRead::Unreadable(row) = read else { panic!("{} was read", read.id()) };
                assert!(!row.problem.is_empty() && row.completed_at_ms == 1_796_441_400_000, "{row:?}");
                told.push(row.id.clone());
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        told.sort_unstable();
    }
    let expected = ["1796441400", "1796441400.x", "1796441400x"].map(|run_key| format!("bank/c-1/bill:{run_key}"));
    assert_eq!((of_job, waiting), (expected.to_vec(), expected.to_vec()));
    let known = RunId { job_key: key, run_key: RunKey::scheduled(at) };
    assert!(matches!(history.row(&known).await, Ok(Some(RowRead::Unreadable(_)))));
    stack.stop().await;
}
