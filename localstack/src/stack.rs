//! The local stack: what the services need from the outside, in this process.
//!
//! Gives our binaries the same settings a real account would, the SDK's own endpoint variables, so that product code
//! has no local case. It makes no table and no queue: `punctual setup` does that, here as anywhere.

use crate::dynamodb::DynamoDb;
use crate::gateway::{Gateway, GatewayConfig, GatewayServer};
use crate::sqs::Sqs;
use chrono::{DateTime, Utc};
use punctual_core::clock::SystemClock;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Called once for every message a queue accepted, before the sender has its answer. Must not block or panic.
pub type MessageObserver = Arc<dyn Fn(AcceptedMessage) + Send + Sync>;

/// A message that a queue accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcceptedMessage {
    /// Name of the queue.
    pub queue: String,
    /// The message's body, as it was sent.
    pub body: String,
    /// Delay its sender asked for; zero if it asked for none, even where the queue has a delay of its own.
    pub delay: Duration,
    /// When the queue had accepted the whole request.
    pub accepted_at: DateTime<Utc>,
}

/// What to start. The default takes free ports, keeps everything in memory and scripts no failure.
#[derive(Clone, Default)]
pub struct StackConfig {
    /// Port of DynamoDB; 0 takes a free one.
    pub dynamodb_port: u16,
    /// Port of SQS; 0 takes a free one.
    pub sqs_port: u16,
    /// Port of the SMS gateway; 0 takes a free one.
    pub gateway_port: u16,
    /// SQLite file that keeps the tables; none keeps them in memory. Queues are in memory always.
    pub data: Option<PathBuf>,
    /// How the SMS gateway behaves.
    pub gateway: GatewayConfig,
    /// Who is told of every message a queue accepts.
    pub on_message: Option<MessageObserver>,
}

/// Why the stack did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// Another program listens on the port.
    #[error(
        "port {port} for {service} on 127.0.0.1 is taken by another program: stop that program (perhaps a local stack \
         left running), or choose another port (0 takes a free one)"
    )]
    PortTaken {
        /// What the port was for.
        service: &'static str,
        /// The port.
        port: u16,
    },
    /// The system refused the port for another reason.
    #[error("cannot listen on 127.0.0.1 port {port} for {service}: {source}; choose another port (0 takes a free one)")]
    Listen {
        /// What the port was for.
        service: &'static str,
        /// The port.
        port: u16,
        /// What the system said.
        source: io::Error,
    },
    /// The file that keeps the tables cannot be used.
    #[error("cannot open the tables in {}: {error}; choose a file that can be written, or keep them in memory", path.display())]
    Data {
        /// The file.
        path: PathBuf,
        /// What the database said.
        error: String,
    },
    /// The database in memory could not be made.
    #[error("cannot make tables in memory: {error}")]
    Database {
        /// What the database said.
        error: String,
    },
    /// The thread of the database could not be started.
    #[error("cannot start the thread that serves DynamoDB: {0}")]
    Thread(io::Error),
}

/// A running local stack. It ends when it is dropped; [`Stack::stop`] also waits for the end.
pub struct Stack {
    dynamodb: DynamoDb,
    sqs: Sqs,
    gateway: GatewayServer,
    stop: watch::Sender<bool>,
}

impl Stack {
    /// Starts DynamoDB, SQS and the SMS gateway, each on a port of 127.0.0.1.
    ///
    /// # Errors
    /// [`StackError`] names the port or the file that cannot be used; what had started by then is ended.
    ///
    /// # Panics
    /// If called outside a Tokio runtime.
    pub fn start(config: StackConfig) -> Result<Self, StackError> {
        let (stop, stopped) = watch::channel(false);
        let gateway = Gateway::new(config.gateway, Arc::new(SystemClock::new()));
        Ok(Self {
            gateway: GatewayServer::start(config.gateway_port, gateway, stopped.clone())?,
            sqs: Sqs::start(config.sqs_port, config.on_message, stopped.clone())?,
            dynamodb: DynamoDb::start(config.dynamodb_port, config.data.as_deref(), stopped)?,
            stop,
        })
    }

    /// Where DynamoDB listens.
    pub fn dynamodb_url(&self) -> String {
        local_url(self.dynamodb.port())
    }

    /// Where SQS listens. Queue URLs begin with this.
    pub fn sqs_url(&self) -> String {
        local_url(self.sqs.port())
    }

    /// Where the SMS gateway listens.
    pub fn gateway_url(&self) -> String {
        local_url(self.gateway.port())
    }

    /// The environment that points our binaries, and any AWS SDK or tool, at this stack.
    pub fn exports(&self) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL_DYNAMODB", self.dynamodb_url()),
            ("AWS_ENDPOINT_URL_SQS", self.sqs_url()),
            ("AWS_REGION", "us-east-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", "local".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "local".to_owned()),
            // Several processes of one machine.
            ("PUNCTUAL_METRICS_LISTEN", "127.0.0.1:0".to_owned()),
            ("PUNCTUAL_SMS_URL", format!("{}/v1/sms", self.gateway_url())),
        ]
    }

    /// The tables themselves, for whoever fills them faster than requests could. What holds them longer than a moment holds
    /// up every request.
    pub fn database(&self) -> &dynoxide::Database {
        self.dynamodb.database()
    }

    /// The SMS gateway: its figures and its script.
    pub fn gateway(&self) -> &Gateway {
        self.gateway.gateway()
    }

    /// Closes the listeners, gives requests under way a second, and returns when everything has ended.
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        tokio::join!(self.dynamodb.ended(), self.sqs.ended(), self.gateway.ended());
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

fn local_url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}
