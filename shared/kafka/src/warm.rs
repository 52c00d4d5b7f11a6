//! A consumer that is connected before it is known what it will read.
//!
//! Owns: one client that has no assignment. Promises: it has talked to the cluster (resolved, connected, logged in,
//! knows the topic's leaders), so that a reader made with it begins without that; it fetches nothing.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::client::Quiet;
use crate::error::KafkaError;
use crate::properties::ConsumerProperties;
use crate::reader::ReaderSettings;

/// A connected client.
pub struct Warm {
    consumer: BaseConsumer<Quiet>,
}

impl std::fmt::Debug for Warm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Warm")
    }
}

impl Warm {
    /// Blocks until the cluster has answered, `deadline` at most.
    ///
    /// # Errors
    /// Properties that the client refuses, or no answer in time.
    pub fn connect(
        properties: &ConsumerProperties,
        topic: &str,
        settings: &ReaderSettings,
        deadline: Duration,
    ) -> Result<Self, KafkaError> {
        let failed = |detail: String| KafkaError::Client {
            what: format!(
                "connecting a consumer of topic {topic:?} to {}",
                properties.servers()
            ),
            detail,
        };
        let consumer = client(properties, settings).map_err(|error| failed(error.to_string()))?;
        let metadata = consumer
            .fetch_metadata(Some(topic), deadline)
            .map_err(|error| failed(error.to_string()))?;
        let leaders: std::collections::BTreeSet<i32> = metadata
            .topics()
            .iter()
            .flat_map(rdkafka::metadata::MetadataTopic::partitions)
            .map(rdkafka::metadata::MetadataPartition::leader)
            .collect();
        tracing::debug!(topic, ?leaders, "a consumer is connected and waits");
        drop(metadata);
        Ok(Self { consumer })
    }

    pub(crate) fn into_client(self) -> BaseConsumer<Quiet> {
        self.consumer
    }
}

/// A client as readers use it.
pub(crate) fn client(
    properties: &ConsumerProperties,
    settings: &ReaderSettings,
) -> Result<BaseConsumer<Quiet>, rdkafka::error::KafkaError> {
    properties
        .for_reader(settings.prefetch_bytes / 2)
        .create_with_context(Quiet)
}
