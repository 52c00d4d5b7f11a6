//! Look-ups with deadlines: partitions, earliest and latest offsets, cluster id, topic id.
//!
//! One client per set of properties, shared by all who ask. Calls block: ask from a thread, not from a future.
//! Promises: offsets are as the isolation level of the properties sees them, so that `latest` under
//! `read_committed` is the last stable offset, and lag becomes 0 behind an open or aborted tail (B17, B18).
#![allow(
    unsafe_code,
    reason = "one call into topic_id, whose promise is kept by holding the client"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::types::RDKafkaErrorCode;
use tidegate_types::{ClusterId, Offset, PartitionId, PartitionOffsets, TopicId};

use crate::client::Quiet;
use crate::error::KafkaError;
use crate::properties::ConsumerProperties;
use crate::topic_id;

/// Events of the client (its log) that are read before each question.
const EVENTS_AT_ONCE: usize = 64;

/// Which end of the log.
#[derive(Debug, Clone, Copy)]
enum End {
    Earliest,
    Latest,
}

impl End {
    /// The time that the protocol's `ListOffsets` takes for it.
    fn time(self) -> i64 {
        match self {
            Self::Earliest => -2,
            Self::Latest => -1,
        }
    }
    fn what(self) -> &'static str {
        match self {
            Self::Earliest => "earliest offsets",
            Self::Latest => "latest offsets",
        }
    }
}

/// Answers questions about topics.
pub struct Admin {
    client: BaseConsumer<Quiet>,
    servers: String,
}

static SHARED: Mutex<BTreeMap<ConsumerProperties, Weak<Admin>>> = Mutex::new(BTreeMap::new());

impl Admin {
    /// The client of these properties: the one that is in use already, or a new one. Does not wait for a broker.
    pub fn shared(properties: &ConsumerProperties) -> Result<Arc<Self>, KafkaError> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(admin) = shared.get(properties).and_then(Weak::upgrade) {
            return Ok(admin);
        }
        let client = properties
            .for_admin()
            .create_with_context(Quiet)
            .map_err(|error| KafkaError::Client {
                what: format!("making a Kafka client for {}", properties.servers()),
                detail: error.to_string(),
            })?;
        let admin = Arc::new(Self {
            client,
            servers: properties.servers().into(),
        });
        shared.retain(|_, admin| admin.strong_count() > 0);
        shared.insert(properties.clone(), Arc::downgrade(&admin));
        Ok(admin)
    }

    /// The partitions of a topic, in order, from the broker and not from a cache.
    pub fn partitions(&self, topic: &str, deadline: Duration) -> Result<Vec<PartitionId>, KafkaError> {
        self.read_events();
        let until = Instant::now() + deadline;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let answer = self
                .client
                .fetch_metadata(Some(topic), left.max(Duration::from_millis(1)));
            let failed = match &answer {
                Err(error) => Some(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)),
                Ok(metadata) => match metadata.topics().iter().find(|found| found.name() == topic) {
                    None => Some(RDKafkaErrorCode::UnknownTopicOrPartition),
                    Some(found) => match found.error() {
                        Some(code) => Some(code.into()),
                        None if found.partitions().is_empty() => Some(RDKafkaErrorCode::LeaderNotAvailable),
                        None => {
                            let mut ids: Vec<_> =
                                found.partitions().iter().map(|p| PartitionId(p.id())).collect();
                            ids.sort_unstable();
                            return Ok(ids);
                        }
                    },
                },
            };
            let code = failed.unwrap_or(RDKafkaErrorCode::Fail);
            // A topic that was made a moment ago has no leaders yet.
            if code == RDKafkaErrorCode::LeaderNotAvailable && Instant::now() + RETRY < until {
                std::thread::sleep(RETRY);
                continue;
            }
            return Err(self.failed("metadata", topic, deadline, code));
        }
    }

    /// First offsets that are still in the log.
    pub fn earliest(
        &self,
        topic: &str,
        partitions: &[PartitionId],
        deadline: Duration,
    ) -> Result<PartitionOffsets, KafkaError> {
        self.offsets(End::Earliest, topic, partitions, deadline)
    }

    /// The offsets that the next delivered record will have at least: the last stable ones under `read_committed`.
    pub fn latest(
        &self,
        topic: &str,
        partitions: &[PartitionId],
        deadline: Duration,
    ) -> Result<PartitionOffsets, KafkaError> {
        self.offsets(End::Latest, topic, partitions, deadline)
    }

    /// The id of the cluster; empty when the broker does not tell one within the deadline.
    pub fn cluster_id(&self, deadline: Duration) -> ClusterId {
        self.read_events();
        ClusterId(
            self.client
                .client()
                .fetch_cluster_id(deadline)
                .unwrap_or_default(),
        )
    }

    /// The id of a topic; empty when the broker has no topic ids.
    pub fn topic_id(&self, topic: &str, deadline: Duration) -> Result<TopicId, KafkaError> {
        self.read_events();
        let until = Instant::now() + deadline;
        let metadata = self
            .client
            .fetch_metadata(Some(topic), deadline)
            .map_err(|error| {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
                self.failed("topic id", topic, deadline, code)
            })?;
        let Some(broker) = metadata
            .brokers()
            .first()
            .map(rdkafka::metadata::MetadataBroker::id)
        else {
            return Err(self.failed("topic id", topic, deadline, RDKafkaErrorCode::BrokerNotAvailable));
        };
        let left = until.saturating_duration_since(Instant::now());
        // SAFETY: `self.client` lives for the whole call.
        let answer = unsafe { topic_id::describe(self.client.client().native_ptr(), broker, topic, left) };
        match answer {
            Ok(id) => Ok(TopicId(id)),
            // A broker that is too old for the request.
            Err(RDKafkaErrorCode::UnsupportedVersion | RDKafkaErrorCode::UnsupportedFeature) => {
                Ok(TopicId::default())
            }
            Err(code) => Err(self.failed("topic id", topic, deadline, code)),
        }
    }

    fn offsets(
        &self,
        end: End,
        topic: &str,
        partitions: &[PartitionId],
        deadline: Duration,
    ) -> Result<PartitionOffsets, KafkaError> {
        if partitions.is_empty() {
            return Ok(PartitionOffsets::new());
        }
        self.read_events();
        let failed = |error: rdkafka::error::KafkaError| {
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
            self.failed(end.what(), topic, deadline, code)
        };
        let mut question = TopicPartitionList::with_capacity(partitions.len());
        for partition in partitions {
            question
                .add_partition_offset(topic, partition.0, rdkafka::Offset::from_raw(end.time()))
                .map_err(failed)?;
        }
        // One request per broker for all partitions.
        let answer = self
            .client
            .offsets_for_times(question, deadline)
            .map_err(failed)?;
        let mut offsets = PartitionOffsets::new();
        for element in answer.elements() {
            let partition = PartitionId(element.partition());
            if let Err(error) = element.error() {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
                return Err(match code {
                    RDKafkaErrorCode::UnknownPartition | RDKafkaErrorCode::UnknownTopicOrPartition => {
                        KafkaError::UnknownPartition {
                            topic: topic.into(),
                            partition,
                            servers: self.servers.clone(),
                        }
                    }
                    code => self.failed(end.what(), topic, deadline, code),
                });
            }
            match element.offset() {
                rdkafka::Offset::Offset(offset) => offsets.insert(partition, Offset(offset)),
                _ => return Err(self.failed(end.what(), topic, deadline, RDKafkaErrorCode::NoOffset)),
            }
        }
        Ok(offsets)
    }

    /// The client's log and errors; unread they would pile up.
    fn read_events(&self) {
        // A poll does not tell an empty queue from a log line that it has dealt with.
        for _ in 0..EVENTS_AT_ONCE {
            let _ = self.client.poll(Duration::ZERO);
        }
    }

    fn failed(
        &self,
        what: &'static str,
        topic: &str,
        waited: Duration,
        code: RDKafkaErrorCode,
    ) -> KafkaError {
        match code {
            RDKafkaErrorCode::UnknownTopic | RDKafkaErrorCode::UnknownTopicOrPartition => {
                KafkaError::UnknownTopic {
                    topic: topic.into(),
                    servers: self.servers.clone(),
                }
            }
            code => KafkaError::NoAnswer {
                what,
                topic: topic.into(),
                servers: self.servers.clone(),
                waited,
                detail: code.to_string(),
            },
        }
    }
}

/// Between two questions about a topic without leaders.
const RETRY: Duration = Duration::from_millis(100);

impl std::fmt::Debug for Admin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admin")
            .field("servers", &self.servers)
            .finish_non_exhaustive()
    }
}
