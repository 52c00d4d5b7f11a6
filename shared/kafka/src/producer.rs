//! A small producer, for the quickstart's generator, the scenarios and the tests. Not part of ingestion.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rdkafka::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::KafkaError as ClientError;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use tidegate_types::{PartitionId, TimestampMillis};

use crate::client;
use crate::error::KafkaError;

/// Codec of the batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Snappy,
    Lz4,
    Zstd,
}

impl Compression {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// How to produce.
#[derive(Debug, Clone)]
pub struct ProducerSettings {
    pub compression: Compression,
    /// With it records can be sent in transactions.
    pub transactional_id: Option<String>,
    /// Largest record, bytes.
    pub most_bytes: usize,
}

impl Default for ProducerSettings {
    fn default() -> Self {
        Self {
            compression: Compression::Lz4,
            transactional_id: None,
            most_bytes: 1_000_000,
        }
    }
}

/// One record to send.
#[derive(Debug, Clone, Copy, Default)]
pub struct OutgoingRecord<'a> {
    pub partition: PartitionId,
    pub key: Option<&'a [u8]>,
    /// `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    pub timestamp: Option<TimestampMillis>,
}

/// Counts what the broker took and what it did not.
#[derive(Debug, Clone, Default)]
struct Deliveries {
    delivered: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        client::log(level as i32, facility, message);
    }
    fn error(&self, error: ClientError, reason: &str) {
        tracing::debug!(target: "tidegate_kafka::client", %error, reason, "the producer reports an error");
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();
    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        let counter = if result.is_ok() {
            &self.delivered
        } else {
            &self.failed
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends records to given partitions of one cluster. Calls may block; use it from a thread.
pub struct Producer {
    client: BaseProducer<Deliveries>,
    deliveries: Deliveries,
}

impl Producer {
    /// A producer for the brokers at `servers`.
    pub fn new(servers: &str, settings: &ProducerSettings) -> Result<Self, KafkaError> {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", servers)
            .set("compression.codec", settings.compression.name())
            .set("linger.ms", "5")
            .set(
                "message.max.bytes",
                settings.most_bytes.max(1_000_000).to_string(),
            )
            .set(
                "enable.idempotence",
                if settings.transactional_id.is_some() {
                    "true"
                } else {
                    "false"
                },
            );
        if let Some(id) = &settings.transactional_id {
            config.set("transactional.id", id);
        }
        let deliveries = Deliveries::default();
        let client = config
            .create_with_context(deliveries.clone())
            .map_err(|error| Self::failed("making a producer", &error))?;
        Ok(Self { client, deliveries })
    }

    /// Queues one record, waiting while the queue is full.
    pub fn send(
        &self,
        topic: &str,
        outgoing: OutgoingRecord<'_>,
        deadline: Duration,
    ) -> Result<(), KafkaError> {
        let mut record = BaseRecord::<[u8], [u8]>::to(topic).partition(outgoing.partition.0);
        record.key = outgoing.key;
        record.payload = outgoing.value;
        record.timestamp = outgoing.timestamp.map(|instant| instant.0);
        let until = Instant::now() + deadline;
        loop {
            self.client.poll(Duration::ZERO);
            match self.client.send(record) {
                Ok(()) => return Ok(()),
                Err((error, back)) => {
                    let full = error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull);
                    if !full || Instant::now() >= until {
                        return Err(KafkaError::Produce {
                            topic: topic.into(),
                            partition: outgoing.partition,
                            detail: error.to_string(),
                        });
                    }
                    self.client.poll(Duration::from_millis(10));
                    record = back;
                }
            }
        }
    }

    /// Waits until everything that was sent is with the broker; fails when something never got there.
    pub fn flush(&self, deadline: Duration) -> Result<(), KafkaError> {
        self.client
            .flush(deadline)
            .map_err(|error| Self::failed("flushing a producer", &error))?;
        match self.deliveries.failed.load(Ordering::Relaxed) {
            0 => Ok(()),
            failed => Err(KafkaError::Client {
                what: "producing".into(),
                detail: format!("{failed} records were not taken by the broker"),
            }),
        }
    }

    /// Records that the broker has taken.
    pub fn delivered(&self) -> u64 {
        self.deliveries.delivered.load(Ordering::Relaxed)
    }

    /// Must be called once before the first transaction.
    pub fn init_transactions(&self, deadline: Duration) -> Result<(), KafkaError> {
        self.client
            .init_transactions(deadline)
            .map_err(|error| Self::failed("initializing transactions", &error))
    }

    pub fn begin(&self) -> Result<(), KafkaError> {
        self.client
            .begin_transaction()
            .map_err(|error| Self::failed("beginning a transaction", &error))
    }

    pub fn commit(&self, deadline: Duration) -> Result<(), KafkaError> {
        self.client
            .commit_transaction(deadline)
            .map_err(|error| Self::failed("committing a transaction", &error))
    }

    /// Sends what is queued, then aborts, so that the log holds the records as aborted ones.
    pub fn abort(&self, deadline: Duration) -> Result<(), KafkaError> {
        self.client
            .flush(deadline)
            .and_then(|()| self.client.abort_transaction(deadline))
            .map_err(|error| Self::failed("aborting a transaction", &error))
    }

    fn failed(what: &str, error: &ClientError) -> KafkaError {
        KafkaError::Client {
            what: what.into(),
            detail: error.to_string(),
        }
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer")
            .field("deliveries", &self.deliveries)
            .finish_non_exhaustive()
    }
}
