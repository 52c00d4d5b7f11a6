//! What the coordinator asks of Kafka, and the answer by way of librdkafka.

use std::time::Duration;

use async_trait::async_trait;
use tidegate_kafka::{Admin, ConsumerProperties};
use tidegate_protocol::supervisor::Discovery;
use tidegate_protocol::task::Stream;
use tidegate_spec::SupervisorSpec;

/// Longest time of one look-up; a broker that is away longer is asked again later.
const DEADLINE: Duration = Duration::from_secs(10);

/// Looks topics up. Says what was tried when it fails.
#[async_trait]
pub trait Broker: Send + Sync {
    /// Partitions, bounds and identity of the spec's topic, taken together.
    async fn discover(&self, spec: &SupervisorSpec) -> Result<Discovery, String>;
}

/// Apache Kafka, and what speaks its protocol.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kafka;

#[async_trait]
impl Broker for Kafka {
    async fn discover(&self, spec: &SupervisorSpec) -> Result<Discovery, String> {
        let properties = spec.io.consumer_properties.clone();
        let topic = spec.io.topic.clone();
        // librdkafka's questions block.
        let asked = tokio::task::spawn_blocking(move || look_up(&properties, &topic));
        asked
            .await
            .map_err(|error| format!("the look-up was cut off: {error}"))?
    }
}

fn look_up(
    properties: &std::collections::BTreeMap<String, String>,
    topic: &str,
) -> Result<Discovery, String> {
    let resolved =
        tidegate_spec::secrets::resolve_properties(properties).map_err(|error| error.to_string())?;
    let properties = ConsumerProperties::from_java(&resolved).map_err(|error| error.to_string())?;
    let admin = Admin::shared(&properties).map_err(|error| error.to_string())?;
    let partitions = admin
        .partitions(topic, DEADLINE)
        .map_err(|error| error.to_string())?;
    let topic_id = admin
        .topic_id(topic, DEADLINE)
        .map_err(|error| error.to_string())?;
    let earliest = admin
        .earliest(topic, &partitions, DEADLINE)
        .map_err(|error| error.to_string())?;
    let latest = admin
        .latest(topic, &partitions, DEADLINE)
        .map_err(|error| error.to_string())?;
    let cluster_id = admin.cluster_id(DEADLINE);
    Ok(Discovery {
        stream: Stream {
            topic: topic.to_owned(),
            cluster_id,
            topic_id,
        },
        earliest,
        latest,
    })
}
