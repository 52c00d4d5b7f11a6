//! The reader and the look-ups against the in-process broker.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test file; helpers are outside #[test]"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tidegate_kafka::{
    Admin, Closed, Compression, ConsumerProperties, KafkaError, MockBroker, OutgoingRecord, Producer,
    ProducerSettings, Reader, ReaderEvent, ReaderSettings, TimestampKind,
};
use tidegate_types::{Offset, PartitionId, PartitionOffsets, TimestampMillis, TopicId};

const LONG: Duration = Duration::from_secs(30);
const TOPIC: &str = "events";

fn properties(servers: &str) -> ConsumerProperties {
    ConsumerProperties::from_java([("bootstrap.servers", servers)]).unwrap()
}

fn broker(partitions: i32) -> MockBroker {
    let broker = MockBroker::start(1).unwrap();
    broker.create_topic(TOPIC, partitions).unwrap();
    broker
}

fn produce(broker: &MockBroker, partition: i32, values: impl IntoIterator<Item = String>) {
    let producer = Producer::new(broker.bootstrap_servers(), &ProducerSettings::default()).unwrap();
    for value in values {
        let record = OutgoingRecord {
            partition: PartitionId(partition),
            value: Some(value.as_bytes()),
            ..OutgoingRecord::default()
        };
        producer.send(TOPIC, record, LONG).unwrap();
    }
    producer.flush(LONG).unwrap();
}

fn start(broker: &MockBroker, start: PartitionOffsets, settings: ReaderSettings) -> Reader {
    Reader::start(&properties(broker.bootstrap_servers()), TOPIC, &start, settings).unwrap()
}

/// Values per partition, read until each partition has reached its end.
fn read_until(reader: &mut Reader, ends: &PartitionOffsets) -> BTreeMap<i32, Vec<(i64, String)>> {
    let mut read: BTreeMap<i32, Vec<(i64, String)>> = BTreeMap::new();
    let mut next = PartitionOffsets::new();
    let until = Instant::now() + LONG;
    while !next.reaches(ends) {
        assert!(Instant::now() < until, "at {next} of {ends}");
        match reader.next(Duration::from_secs(1)) {
            Some(ReaderEvent::Batch(batch)) => {
                next.insert(batch.partition(), batch.next_offset().unwrap());
                let rows = read.entry(batch.partition().0).or_default();
                for record in batch.records() {
                    let value = String::from_utf8(batch.value(record).unwrap().to_vec()).unwrap();
                    rows.push((record.offset.0, value));
                }
            }
            Some(ReaderEvent::PartitionEof { partition, offset }) => next.insert(partition, offset),
            Some(ReaderEvent::Trouble(_)) | None => {}
            Some(other) => panic!("{other:?}"),
        }
    }
    read
}

fn numbered(range: std::ops::Range<i64>) -> Vec<(i64, String)> {
    range.map(|n| (n, format!("value {n}"))).collect()
}

fn values(range: std::ops::Range<i64>) -> impl Iterator<Item = String> {
    range.map(|n| format!("value {n}"))
}

#[test]
fn every_record_of_every_partition_comes_once_and_in_order() {
    let broker = broker(3);
    for partition in 0..3 {
        produce(&broker, partition, values(0..5000));
    }
    let settings = ReaderSettings {
        prefetch_bytes: 200_000,
        batch_records: 700,
        ..ReaderSettings::default()
    };
    let mut reader = start(&broker, [(0, 0), (1, 10), (2, 4999)].into(), settings);
    let read = read_until(&mut reader, &[(0, 5000), (1, 5000), (2, 5000)].into());
    assert_eq!(read[&0], numbered(0..5000));
    assert_eq!(read[&1], numbered(10..5000));
    assert_eq!(read[&2], numbered(4999..5000));
    assert_eq!(reader.close(LONG), Closed::Cleanly);
}

#[test]
fn a_tombstone_an_empty_value_and_times_are_told_apart() {
    let broker = broker(1);
    let producer = Producer::new(broker.bootstrap_servers(), &ProducerSettings::default()).unwrap();
    let at = Some(TimestampMillis(1_442_018_818_771));
    for (key, value) in [(Some("k"), None), (None, Some("")), (Some(""), Some("null"))] {
        let record = OutgoingRecord {
            partition: PartitionId(0),
            key: key.map(str::as_bytes),
            value: value.map(str::as_bytes),
            timestamp: at,
        };
        producer.send(TOPIC, record, LONG).unwrap();
    }
    producer.flush(LONG).unwrap();
    let mut reader = start(&broker, [(0, 0)].into(), ReaderSettings::default());
    let mut seen = Vec::new();
    while seen.len() < 3 {
        if let Some(ReaderEvent::Batch(mut batch)) = reader.next(LONG) {
            for record in batch.records() {
                let owned =
                    |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap());
                seen.push((owned(batch.key(record)), owned(batch.value(record))));
                assert_eq!(
                    (record.timestamp, record.timestamp_kind),
                    (at, TimestampKind::Create)
                );
            }
            let (records, mut arena) = batch.parts_mut();
            for record in records {
                assert_eq!(arena.value(record).is_none(), record.offset == Offset(0));
            }
        }
    }
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        seen,
        [(text("k"), None), (None, text("")), (text(""), text("null"))]
    );
}

#[test]
fn b15_every_codec_is_read() {
    let broker = broker(1);
    let codecs = [
        Compression::None,
        Compression::Gzip,
        Compression::Snappy,
        Compression::Lz4,
        Compression::Zstd,
    ];
    for (round, compression) in codecs.into_iter().enumerate() {
        let settings = ProducerSettings {
            compression,
            ..ProducerSettings::default()
        };
        let producer = Producer::new(broker.bootstrap_servers(), &settings).unwrap();
        for n in 0..100 {
            let value = format!("value {}", round * 100 + n);
            let record = OutgoingRecord {
                value: Some(value.as_bytes()),
                ..OutgoingRecord::default()
            };
            producer.send(TOPIC, record, LONG).unwrap();
        }
        producer.flush(LONG).unwrap();
    }
    let mut reader = start(&broker, [(0, 0)].into(), ReaderSettings::default());
    assert_eq!(read_until(&mut reader, &[(0, 500)].into())[&0], numbered(0..500));
}

#[test]
fn after_a_seek_nothing_read_before_it_comes_out() {
    let broker = broker(2);
    produce(&broker, 0, values(0..1000));
    produce(&broker, 1, values(0..1000));
    let mut reader = start(&broker, [(0, 0), (1, 0)].into(), ReaderSettings::default());
    read_until(&mut reader, &[(0, 1000)].into());
    reader.seek(&[(0, 990), (1, 0)].into());
    let read = read_until(&mut reader, &[(0, 1000), (1, 1000)].into());
    assert_eq!(read[&0], numbered(990..1000));
    assert_eq!(read[&1], numbered(0..1000));
}

#[test]
fn b30_a_paused_partition_stands_still_and_goes_on_where_it_was() {
    let broker = broker(2);
    produce(&broker, 0, values(0..10));
    let mut reader = start(&broker, [(0, 0), (1, 0)].into(), ReaderSettings::default());
    assert_eq!(read_until(&mut reader, &[(0, 10)].into())[&0].len(), 10);
    reader.pause(&[PartitionId(0)]);
    produce(&broker, 0, values(10..20));
    produce(&broker, 1, values(0..10));
    let meanwhile = read_until(&mut reader, &[(1, 10)].into());
    assert!(!meanwhile.contains_key(&0), "{meanwhile:?}");
    reader.resume(&[PartitionId(0)]);
    assert_eq!(read_until(&mut reader, &[(0, 20)].into())[&0], numbered(10..20));
}

#[test]
fn b70_what_the_task_holds_bounds_what_is_handed_over() {
    let broker = broker(1);
    produce(&broker, 0, (0..2000).map(|_| "x".repeat(1000)));
    let settings = ReaderSettings {
        prefetch_bytes: 200_000,
        batch_records: 50,
        ..ReaderSettings::default()
    };
    let mut reader = start(&broker, [(0, 0)].into(), settings);
    let mut held = Vec::new();
    let mut rows = 0;
    while let Some(event) = reader.next(Duration::from_secs(2)) {
        if let ReaderEvent::Batch(batch) = event {
            rows += batch.len();
            held.push(batch);
        }
    }
    assert!(rows > 0 && rows * 1000 <= 100_000, "{rows} rows are held");
    while rows < 2000 {
        held.clear();
        if let Some(ReaderEvent::Batch(batch)) = reader.next(LONG) {
            rows += batch.len();
            held.push(batch);
        }
    }
}

#[test]
fn b21_offsets_behind_both_ends_of_the_log_are_reported_and_never_jumped() {
    let broker = broker(2);
    produce(&broker, 0, values(0..10));
    produce(&broker, 1, values(0..10));
    let mut reader = start(&broker, [(0, 500), (1, 0)].into(), ReaderSettings::default());
    let mut beyond = None;
    let mut other = 0;
    while beyond.is_none() || other < 10 {
        match reader.next(LONG).expect("an event") {
            ReaderEvent::BeyondEnd {
                partition,
                wanted,
                low,
                high,
            } => {
                beyond = Some((partition.0, wanted.0, low.0, high.0));
            }
            ReaderEvent::Batch(batch) => {
                assert_eq!(batch.partition(), PartitionId(1));
                other += batch.len();
            }
            _ => {}
        }
    }
    assert_eq!(beyond, Some((0, 500, 0, 10)));
    // It waits for the log to get there, and then reads on from exactly that offset.
    produce(&broker, 0, values(10..510));
    assert_eq!(
        read_until(&mut reader, &[(0, 510)].into())[&0],
        numbered(500..510)
    );
}

#[test]
fn b74_closing_is_bounded_when_the_broker_is_gone() {
    let broker = broker(1);
    produce(&broker, 0, values(0..10));
    let mut reader = start(&broker, [(0, 0)].into(), ReaderSettings::default());
    read_until(&mut reader, &[(0, 10)].into());
    broker.broker_down(1).unwrap();
    let before = Instant::now();
    reader.close(Duration::from_secs(5));
    assert!(
        before.elapsed() < Duration::from_secs(6),
        "{:?}",
        before.elapsed()
    );
}

#[test]
fn b27_reading_goes_on_after_the_broker_was_away_without_loss_or_doubles() {
    let broker = broker(1);
    produce(&broker, 0, values(0..100));
    let mut reader = start(&broker, [(0, 0)].into(), ReaderSettings::default());
    assert_eq!(read_until(&mut reader, &[(0, 100)].into())[&0], numbered(0..100));
    for round in 1..4 {
        broker.broker_down(1).unwrap();
        broker.broker_up(1).unwrap();
        produce(&broker, 0, values(round * 100..(round + 1) * 100));
        let read = read_until(&mut reader, &[(0, (round + 1) * 100)].into());
        assert_eq!(read[&0], numbered(round * 100..(round + 1) * 100));
    }
}

#[test]
fn look_ups_answer_what_the_broker_has() {
    let broker = broker(3);
    produce(&broker, 1, values(0..7));
    let admin = Admin::shared(&properties(broker.bootstrap_servers())).unwrap();
    let partitions = admin.partitions(TOPIC, LONG).unwrap();
    assert_eq!(partitions, [PartitionId(0), PartitionId(1), PartitionId(2)]);
    assert_eq!(
        admin.earliest(TOPIC, &partitions, LONG).unwrap(),
        [(0, 0), (1, 0), (2, 0)].into()
    );
    assert_eq!(
        admin.latest(TOPIC, &partitions, LONG).unwrap(),
        [(0, 0), (1, 7), (2, 0)].into()
    );
    assert!(!admin.cluster_id(LONG).0.is_empty());
    broker.create_topic("other", 1).unwrap();
    let ids = [
        admin.topic_id(TOPIC, LONG).unwrap(),
        admin.topic_id("other", LONG).unwrap(),
    ];
    assert!(ids[0] != ids[1] && ids[0] != TopicId::default(), "{ids:?}");
    assert!(std::sync::Arc::ptr_eq(
        &admin,
        &Admin::shared(&properties(broker.bootstrap_servers())).unwrap()
    ));
}

#[test]
fn a_broker_that_does_not_answer_is_named_within_the_deadline() {
    let admin = Admin::shared(&properties("127.0.0.1:1")).unwrap();
    let before = Instant::now();
    let error = admin.partitions(TOPIC, Duration::from_millis(500)).unwrap_err();
    assert!(matches!(error, KafkaError::NoAnswer { .. }), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    assert!(before.elapsed() < Duration::from_secs(5));
}

#[test]
fn the_mock_broker_drops_the_oldest_and_the_reader_says_so() {
    let broker = broker(1);
    // 8 MB that no codec makes smaller, in batches; the broker keeps about 5 MB.
    let settings = ProducerSettings {
        compression: Compression::None,
        ..ProducerSettings::default()
    };
    let producer = Producer::new(broker.bootstrap_servers(), &settings).unwrap();
    for n in 0..8000 {
        let value = format!("{n:01000}");
        let record = OutgoingRecord {
            value: Some(value.as_bytes()),
            ..OutgoingRecord::default()
        };
        producer.send(TOPIC, record, LONG).unwrap();
    }
    producer.flush(LONG).unwrap();
    let mut reader = start(&broker, [(0, 0)].into(), ReaderSettings::default());
    loop {
        match reader.next(LONG).expect("an event") {
            ReaderEvent::OutOfRange {
                partition,
                wanted,
                low,
                high,
            } => {
                assert_eq!(
                    (partition, wanted, high),
                    (PartitionId(0), Offset(0), Offset(8000))
                );
                assert!(low > Offset(0));
                reader.seek(&PartitionOffsets::from([(0, low.0)]));
                let read = read_until(&mut reader, &[(0, 8000)].into());
                assert_eq!(
                    read[&0],
                    (low.0..8000)
                        .map(|n| (n, format!("{n:01000}")))
                        .collect::<Vec<_>>()
                );
                return;
            }
            ReaderEvent::Batch(batch) => panic!("jumped to {:?}", batch.first_offset()),
            _ => {}
        }
    }
}
