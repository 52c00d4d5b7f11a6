//! An in-process Kafka broker: librdkafka's mock cluster, for the quickstart and for unit tests.
//!
//! It listens on loopback, and every librdkafka client can use it. It is a stand-in, not Kafka: it keeps at most
//! about 5 MB (as compressed batches) or 100,000 messages per partition and drops the oldest silently, delivers
//! aborted records, and cannot add partitions. What must hold on Kafka is tested on Kafka.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rdkafka::mocking::MockCluster;

use crate::error::KafkaError;

/// Longest wait for the mock cluster's thread to do what it was asked.
const ANSWER: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce(&MockCluster<'static, rdkafka::producer::DefaultProducerContext>) + Send>;

/// A running mock broker; it ends when this is dropped.
#[derive(Debug)]
pub struct MockBroker {
    jobs: mpsc::Sender<Job>,
    bootstrap_servers: String,
}

impl MockBroker {
    /// Starts a cluster of `brokers` brokers on a thread of its own.
    pub fn start(brokers: i32) -> Result<Self, KafkaError> {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let (started, outcome) = mpsc::channel();
        thread::Builder::new()
            .name("mock broker".into())
            .spawn(move || match MockCluster::new(brokers) {
                Ok(cluster) => {
                    let _ = started.send(Ok(cluster.bootstrap_servers()));
                    while let Ok(job) = inbox.recv() {
                        job(&cluster);
                    }
                }
                Err(error) => {
                    let _ = started.send(Err(error.to_string()));
                }
            })
            .map_err(|error| failed("starting the in-process broker's thread", error.to_string()))?;
        let bootstrap_servers = outcome
            .recv()
            .map_err(|_| {
                failed(
                    "starting the in-process broker",
                    "its thread ended at once".into(),
                )
            })?
            .map_err(|detail| failed("starting the in-process broker", detail))?;
        Ok(Self {
            jobs,
            bootstrap_servers,
        })
    }

    /// Where it listens.
    pub fn bootstrap_servers(&self) -> &str {
        &self.bootstrap_servers
    }

    /// Creates a topic; it must not exist yet.
    pub fn create_topic(&self, topic: &str, partitions: i32) -> Result<(), KafkaError> {
        let name = topic.to_owned();
        self.on_cluster("creating a topic", move |cluster| {
            cluster.create_topic(&name, partitions, 1)
        })
    }

    /// Makes a broker (counted from 1) unreachable.
    pub fn broker_down(&self, broker: i32) -> Result<(), KafkaError> {
        self.on_cluster("taking a broker down", move |cluster| cluster.broker_down(broker))
    }

    /// Brings a broker back.
    pub fn broker_up(&self, broker: i32) -> Result<(), KafkaError> {
        self.on_cluster("bringing a broker up", move |cluster| cluster.broker_up(broker))
    }

    fn on_cluster(
        &self,
        what: &'static str,
        act: impl FnOnce(
            &MockCluster<'static, rdkafka::producer::DefaultProducerContext>,
        ) -> rdkafka::error::KafkaResult<()>
        + Send
        + 'static,
    ) -> Result<(), KafkaError> {
        let (done, outcome) = mpsc::channel();
        self.jobs
            .send(Box::new(move |cluster| {
                let _ = done.send(act(cluster).map_err(|error| error.to_string()));
            }))
            .map_err(|_| failed(what, "the in-process broker has ended".into()))?;
        outcome
            .recv_timeout(ANSWER)
            .map_err(|error| failed(what, error.to_string()))?
            .map_err(|detail| failed(what, detail))
    }
}

fn failed(what: &str, detail: String) -> KafkaError {
    KafkaError::Client {
        what: what.into(),
        detail,
    }
}
