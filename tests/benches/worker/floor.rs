//! Part c: what the libraries alone take for the calls of a run, in a process of their own: the SDK and the HTTP client, with
//! nothing of Punctual between them. A worker that is built on them takes more.
//!
//! Ten messages, as many as a receive brings, go together all the way: read ten jobs, write ten rows, call the gateway ten
//! times, write ten rows again, delete. A worker writes up to 25 rows in a call, where so many come together. Rows have the
//! attributes that a worker's have.

use anyhow::{Context, bail};
use aws_sdk_dynamodb::types::{AttributeValue, BatchStatementRequest, KeysAndAttributes};
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message, MessageSystemAttributeName};
use futures::future::try_join_all;
use punctual_core::aws::{Names, config_loader};
use punctual_core::ports::BATCH;
use punctual_core::priority::Priority;
use punctual_core::process::stop_signal;
use std::collections::HashMap;
use std::ffi::OsString;
use std::process::ExitCode;

/// The first word that makes the benchmark this.
pub const LIBRARIES: &str = "__libraries";
/// Batches under way at once, of each priority.
const BATCHES: usize = 2;
const WAIT_S: i32 = 1;

/// The whole program, if the first word says so.
pub fn contained_program(words: &[OsString]) -> Option<ExitCode> {
    (words.get(1).is_some_and(|word| word == LIBRARIES)).then(|| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let worked = runtime.block_on(async {
            tokio::select! {
                worked = work() => worked,
                stopped = stop_signal() => Ok(stopped?),
            }
        });
        match worked {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        }
    })
}

struct Libraries {
    dynamodb: aws_sdk_dynamodb::Client,
    sqs: aws_sdk_sqs::Client,
    http: reqwest::Client,
    gateway: reqwest::Url,
    names: Names,
}

async fn work() -> anyhow::Result<()> {
    // Fails only when a provider is installed already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let config = config_loader().load().await;
    let libraries = Libraries {
        dynamodb: aws_sdk_dynamodb::Client::new(&config),
        sqs: aws_sdk_sqs::Client::new(&config),
        http: reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?,
        gateway: reqwest::Url::parse(&std::env::var("PUNCTUAL_SMS_URL")?)?,
        names: Names::new("punctual").map_err(anyhow::Error::msg)?,
    };
    let libraries = &libraries;
    let loops = Priority::ALL.into_iter().flat_map(|priority| {
        (0..BATCHES).map(move |_| async move {
            let queue = libraries.sqs.get_queue_url().queue_name(libraries.names.queue(priority)).send().await?;
            let queue = queue.queue_url.context("a queue without an address")?;
            loop {
                libraries.batch(&queue).await?;
            }
        })
    });
    try_join_all(loops).await.map(|_: Vec<()>| ())
}

impl Libraries {
    async fn batch(&self, queue: &str) -> anyhow::Result<()> {
        let receive = self.sqs.receive_message().queue_url(queue).max_number_of_messages(BATCH as i32);
        let receive = receive.wait_time_seconds(WAIT_S).visibility_timeout(60);
        let receive = receive.message_system_attribute_names(MessageSystemAttributeName::ApproximateReceiveCount);
        let messages = receive.send().await?.messages.unwrap_or_default();
        if messages.is_empty() {
            return Ok(());
        }
        let runs = messages.iter().map(Run::of).collect::<anyhow::Result<Vec<_>>>()?;
        self.read_jobs(&runs).await?;
        self.write(runs.iter().map(|run| run.begin(&self.names.runs()))).await?;
        try_join_all(runs.iter().map(|run| self.call(run))).await?;
        self.write(runs.iter().map(|run| run.record(&self.names.runs()))).await?;
        let entries = messages.into_iter().enumerate().map(|(n, message)| {
            let entry = DeleteMessageBatchRequestEntry::builder().id(n.to_string());
            entry.set_receipt_handle(message.receipt_handle).build()
        });
        let entries = entries.collect::<Result<Vec<_>, _>>()?;
        self.sqs.delete_message_batch().queue_url(queue).set_entries(Some(entries)).send().await?;
        Ok(())
    }

    async fn read_jobs(&self, runs: &[Run]) -> anyhow::Result<()> {
        let keys = runs.iter().map(|run| HashMap::from([("job_key".to_owned(), text(&run.job_key))])).collect();
        let wanted = KeysAndAttributes::builder().set_keys(Some(keys)).build()?;
        let read = self.dynamodb.batch_get_item().request_items(self.names.jobs(), wanted).send().await?;
        let found: usize = read.responses.iter().flat_map(HashMap::values).map(Vec::len).sum();
        if found != runs.len() {
            bail!("{found} of {} jobs were read", runs.len());
        }
        Ok(())
    }

    async fn write(&self, statements: impl Iterator<Item = BatchStatementRequest>) -> anyhow::Result<()> {
        let statements = Some(statements.collect());
        let written = self.dynamodb.batch_execute_statement().set_statements(statements).send().await?;
        match written.responses.unwrap_or_default().into_iter().find_map(|response| response.error) {
            Some(error) => bail!("a row was refused: {error:?}"),
            None => Ok(()),
        }
    }

    async fn call(&self, run: &Run) -> anyhow::Result<()> {
        let reference = format!("{}:{}", run.job_key, run.run_key);
        let body = serde_json::json!({"reference": reference, "to": "+447700900123", "text": "Your bill is due today"});
        self.http.post(self.gateway.clone()).json(&body).send().await?.error_for_status()?.bytes().await?;
        Ok(())
    }
}

struct Run {
    job_key: String,
    run_key: String,
}

impl Run {
    fn of(message: &Message) -> anyhow::Result<Self> {
        let body: serde_json::Value = serde_json::from_str(message.body.as_deref().unwrap_or_default())?;
        let field = |name: &str| body[name].as_str().map(str::to_owned).with_context(|| format!("no {name}"));
        Ok(Run { job_key: field("job_key")?, run_key: field("run_key")? })
    }

    fn begin(&self, table: &str) -> BatchStatementRequest {
        let attempt = HashMap::from([
            ("n".to_owned(), number("1")),
            ("started_at_ms".to_owned(), number(MS)),
            ("worker".to_owned(), text("w1-0123abcd")),
            ("job_version".to_owned(), number("1")),
        ]);
        let values = [
            ("job_key", text(&self.job_key)),
            ("run_key", text(&self.run_key)),
            ("status", text("running")),
            ("attempt", number("1")),
            ("owner", text(TOKEN)),
            ("lease_until_ms", number(MS)),
            ("generation", number(MS)),
            ("due_at_ms", number(MS)),
            ("first_enqueued_at_ms", number(MS)),
            ("started_at_ms", number(MS)),
            ("attempts", AttributeValue::L(vec![AttributeValue::M(attempt)])),
            ("revision", number("1")),
            ("write_token", text(TOKEN)),
            ("expires_at", number("1791170000")),
        ];
        let (names, values): (Vec<_>, Vec<_>) =
            values.into_iter().map(|(name, value)| (format!("'{name}': ?"), value)).unzip();
        statement(format!("INSERT INTO \"{table}\" VALUE {{{}}}", names.join(", ")), values)
    }

    /// Only what changed.
    fn record(&self, table: &str) -> BatchStatementRequest {
        let attempt = HashMap::from([
            ("n".to_owned(), number("1")),
            ("started_at_ms".to_owned(), number(MS)),
            ("ended_at_ms".to_owned(), number(MS)),
            ("worker".to_owned(), text("w1-0123abcd")),
            ("job_version".to_owned(), number("1")),
            ("class".to_owned(), text("delivered")),
        ]);
        let set =
            r#"SET "status" = ? SET "completed_at_ms" = ? SET "attempts" = ? SET "gateway_ref" = ? SET "revision" = ?"#;
        let more = r#"SET "write_token" = ? SET "expires_at" = ? REMOVE "owner" REMOVE "lease_until_ms""#;
        let values = vec![
            text("succeeded"),
            number(MS),
            AttributeValue::L(vec![AttributeValue::M(attempt)]),
            text("sms-00000001"),
            number("2"),
            text(TOKEN),
            number("1791170000"),
            text(&self.job_key),
            text(&self.run_key),
            number("1"),
        ];
        let place = "job_key = ? AND run_key = ? AND revision = ?";
        statement(format!("UPDATE \"{table}\" {set} {more} WHERE {place}"), values)
    }
}

const MS: &str = "1791170000000";
const TOKEN: &str = "a132cda3d92633b66354adb0";

fn text(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

fn number(number: &str) -> AttributeValue {
    AttributeValue::N(number.to_owned())
}

fn statement(statement: String, values: Vec<AttributeValue>) -> BatchStatementRequest {
    let statement = BatchStatementRequest::builder().statement(statement).set_parameters(Some(values));
    statement.build().expect("a statement is given")
}
