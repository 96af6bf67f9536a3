use crate::clients::{self, eventually, start};
use punctual_localstack::stack::{Stack, StackConfig, StackError};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

fn ports(stack: &Stack) -> [u16; 3] {
    [stack.dynamodb_url(), stack.sqs_url(), stack.gateway_url()].map(|url| {
        let (host, port) = url.rsplit_once(':').unwrap();
        assert_eq!(host, "http://127.0.0.1");
        port.parse().unwrap()
    })
}

async fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).await.is_ok()
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_point_an_sdk_and_our_binaries_at_the_stack() {
    let stack = start(StackConfig::default());
    let exports = stack.exports();
    let value = |name: &str| exports.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone()).unwrap();
    assert_eq!(value("AWS_ENDPOINT_URL_DYNAMODB"), stack.dynamodb_url());
    assert_eq!(value("AWS_ENDPOINT_URL_SQS"), stack.sqs_url());
    assert_eq!(value("AWS_REGION"), "us-east-1");
    assert_eq!(value("AWS_ACCESS_KEY_ID"), "local");
    assert_eq!(value("AWS_SECRET_ACCESS_KEY"), "local");
    assert_eq!(value("PUNCTUAL_SMS_URL"), format!("{}/v1/sms", stack.gateway_url()));
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_port_is_named_with_what_to_do() {
    let holder = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = holder.local_addr().unwrap().port();
    for config in [
        StackConfig { dynamodb_port: port, ..StackConfig::default() },
        StackConfig { sqs_port: port, ..StackConfig::default() },
        StackConfig { gateway_port: port, ..StackConfig::default() },
    ] {
        let error = Stack::start(config).err().unwrap();
        assert!(matches!(error, StackError::PortTaken { port: named, .. } if named == port), "{error}");
        let text = error.to_string();
        assert!(text.contains(&port.to_string()) && text.contains("choose another port"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_frees_the_ports_and_closes_idle_connections_and_long_polls() {
    let stack = start(StackConfig::default());
    let ports = ports(&stack);
    clients::dynamodb(&stack).list_tables().send().await.unwrap();
    let sqs = clients::sqs(&stack);
    let queue = sqs.create_queue().queue_name("q").send().await.unwrap().queue_url.unwrap();
    let poll = tokio::spawn(sqs.receive_message().queue_url(queue).wait_time_seconds(20).send());
    let mut idle = TcpStream::connect(("127.0.0.1", ports[2])).await.unwrap();

    tokio::time::timeout(clients::DEADLINE, stack.stop()).await.unwrap();
    for port in ports {
        assert!(is_free(port).await, "port {port} is still taken");
    }
    // Closed, or reset if it had not been accepted yet.
    assert!(matches!(idle.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    poll.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_the_stack_frees_the_ports_too() {
    let stack = start(StackConfig::default());
    let ports = ports(&stack);
    drop(stack);
    for port in ports {
        eventually("the port is free", async || is_free(port).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_stack_can_start_again_on_the_same_ports_and_tables() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = StackConfig { data: Some(folder.path().join("made/at/need/tables.db")), ..StackConfig::default() };
    let stack = start(config.clone());
    [config.dynamodb_port, config.sqs_port, config.gateway_port] = ports(&stack);
    crate::dynamodb::create_table(&clients::dynamodb(&stack), "kept").await;
    stack.stop().await;

    let stack = start(config);
    let tables = clients::dynamodb(&stack).list_tables().send().await.unwrap();
    assert_eq!(tables.table_names(), ["kept"]);
    stack.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_no_database_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let error = Stack::start(StackConfig { data: Some(folder.path().to_owned()), ..StackConfig::default() });
    let text = error.err().unwrap().to_string();
    assert!(text.contains(&folder.path().display().to_string()), "{text}");
}
