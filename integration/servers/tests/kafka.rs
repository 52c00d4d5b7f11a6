//! Real Kafka: one node, three nodes, and what a kill leaves.
#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

use std::time::{Duration, Instant};

use rdkafka::Message;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tidegate_servers::{Kafka, KafkaOptions, unique_name};

const LIMIT: Duration = Duration::from_mins(1);

fn client(kafka: &Kafka) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.bootstrap());
    config
}

async fn create_topic(kafka: &Kafka, partitions: i32, replicas: i32) -> String {
    let topic = unique_name("servers");
    let admin: AdminClient<DefaultClientContext> = client(kafka).create().unwrap();
    let wanted = NewTopic::new(&topic, partitions, TopicReplication::Fixed(replicas));
    let results = admin
        .create_topics([&wanted], &AdminOptions::new().operation_timeout(Some(LIMIT)))
        .await
        .unwrap();
    assert_eq!(results, [Ok(topic.clone())]);
    topic
}

async fn produce(kafka: &Kafka, topic: &str, values: &[&str]) {
    let producer: FutureProducer = client(kafka).set("acks", "all").create().unwrap();
    for value in values {
        producer
            .send(
                FutureRecord::<(), str>::to(topic).payload(value).partition(0),
                LIMIT,
            )
            .await
            .unwrap();
    }
}

/// The first `count` values of partition 0.
fn consume(kafka: &Kafka, topic: &str, count: usize) -> Vec<String> {
    let consumer: BaseConsumer = client(kafka)
        .set("group.id", unique_name("servers"))
        .create()
        .unwrap();
    let mut from_start = TopicPartitionList::new();
    from_start
        .add_partition_offset(topic, 0, Offset::Beginning)
        .unwrap();
    consumer.assign(&from_start).unwrap();
    let deadline = Instant::now() + LIMIT;
    let mut values = Vec::new();
    while values.len() < count {
        assert!(Instant::now() < deadline, "only {values:?} of {count} came");
        if let Some(Ok(message)) = consumer.poll(Duration::from_millis(200)) {
            values.push(String::from_utf8(message.payload().unwrap().to_vec()).unwrap());
        }
    }
    values
}

#[tokio::test]
async fn one_node_keeps_its_topic_and_port_over_a_kill_and_a_restart() {
    let mut kafka = Kafka::start_own(KafkaOptions::default()).unwrap();
    let address = kafka.bootstrap().to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let topic = create_topic(&kafka, 4, 1).await;
    produce(&kafka, &topic, &["one", "två", "三"]).await;
    kafka.kill9().unwrap();
    assert_eq!(kafka.brokers_alive(), 0);
    kafka.start_again().unwrap();
    produce(&kafka, &topic, &["four"]).await;
    kafka.restart().unwrap();
    assert_eq!(kafka.bootstrap(), address);
    assert_eq!(consume(&kafka, &topic, 4), ["one", "två", "三", "four"]);
}

#[tokio::test]
async fn three_nodes_serve_while_one_is_killed_and_take_it_in_again() {
    let mut kafka = Kafka::start_own(KafkaOptions::nodes(3)).unwrap();
    assert_eq!(kafka.bootstrap().split(',').count(), 3);
    assert_eq!(kafka.brokers_alive(), 3);
    let topic = create_topic(&kafka, 1, 3).await;
    produce(&kafka, &topic, &["one"]).await;
    kafka.kill9_node(0).unwrap();
    produce(&kafka, &topic, &["two"]).await;
    kafka.start_again().unwrap();
    assert_eq!(kafka.brokers_alive(), 3);
    assert_eq!(consume(&kafka, &topic, 2), ["one", "two"]);
}

#[test]
fn a_shared_kafka_is_the_same_for_all_and_a_missing_topic_is_not_made() {
    let first = Kafka::shared().unwrap();
    assert!(std::ptr::eq(first, Kafka::shared().unwrap()));
    let consumer: BaseConsumer = client(first).set("group.id", "servers").create().unwrap();
    let missing = unique_name("missing");
    let metadata = consumer.fetch_metadata(Some(&missing), LIMIT).unwrap();
    assert!(
        metadata
            .topics()
            .iter()
            .all(|topic| topic.partitions().is_empty())
    );
}
