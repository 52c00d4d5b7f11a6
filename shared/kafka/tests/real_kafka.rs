//! What only a real broker can show: transactions, retention, re-created topics, growth, a broker that dies.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test file; helpers are outside #[test]"
)]

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::{ClientConfig, TopicPartitionList};
use tidegate_kafka::{
    Admin, Closed, ConsumerProperties, OutgoingRecord, Producer, ProducerSettings, Reader, ReaderEvent,
    ReaderSettings, TimestampKind,
};
use tidegate_servers::{Kafka, KafkaOptions, unique_name};
use tidegate_types::{Offset, PartitionId, PartitionOffsets, TopicId};

const LONG: Duration = Duration::from_mins(1);

/// A broker and a topic on it.
struct Bench {
    servers: String,
    topic: String,
    admin: AdminClient<DefaultClientContext>,
}

impl Bench {
    fn shared(partitions: i32) -> Self {
        Self::on(Kafka::shared().unwrap().bootstrap(), partitions, &[])
    }

    fn on(servers: &str, partitions: i32, settings: &[(&str, &str)]) -> Self {
        let admin = ClientConfig::new()
            .set("bootstrap.servers", servers)
            .create()
            .unwrap();
        let bench = Self {
            servers: servers.into(),
            topic: unique_name("reader"),
            admin,
        };
        bench.create(partitions, settings);
        bench
    }

    fn options() -> AdminOptions {
        AdminOptions::new()
            .operation_timeout(Some(LONG))
            .request_timeout(Some(LONG))
    }

    fn create(&self, partitions: i32, settings: &[(&str, &str)]) {
        let mut topic = NewTopic::new(&self.topic, partitions, TopicReplication::Fixed(1));
        for (key, value) in settings {
            topic = topic.set(key, value);
        }
        block_on(self.admin.create_topics(&[topic], &Self::options()))
            .unwrap()
            .remove(0)
            .unwrap();
    }

    fn delete(&self) {
        block_on(self.admin.delete_topics(&[&self.topic], &Self::options()))
            .unwrap()
            .remove(0)
            .unwrap();
    }

    /// Everything below these offsets is gone.
    fn delete_records(&self, below: &[(i32, i64)]) {
        let mut list = TopicPartitionList::new();
        for (partition, offset) in below {
            list.add_partition_offset(&self.topic, *partition, rdkafka::Offset::Offset(*offset))
                .unwrap();
        }
        block_on(self.admin.delete_records(&list, &Self::options())).unwrap();
    }

    fn properties(&self) -> ConsumerProperties {
        ConsumerProperties::from_java([("bootstrap.servers", self.servers.as_str())]).unwrap()
    }

    fn look_ups(&self) -> std::sync::Arc<Admin> {
        Admin::shared(&self.properties()).unwrap()
    }

    fn latest(&self, partitions: &[i32]) -> PartitionOffsets {
        let partitions: Vec<_> = partitions.iter().copied().map(PartitionId).collect();
        self.look_ups().latest(&self.topic, &partitions, LONG).unwrap()
    }

    fn until_latest(&self, wanted: &PartitionOffsets) {
        let until = Instant::now() + LONG;
        loop {
            let latest = self.latest(&[0]);
            if latest == *wanted {
                return;
            }
            assert!(Instant::now() < until, "latest is {latest}, not {wanted}");
        }
    }

    fn producer(&self, transactional_id: Option<String>) -> Producer {
        let settings = ProducerSettings {
            transactional_id,
            ..ProducerSettings::default()
        };
        Producer::new(&self.servers, &settings).unwrap()
    }

    fn transactional(&self) -> Producer {
        let producer = self.producer(Some(unique_name("writer")));
        producer.init_transactions(LONG).unwrap();
        producer
    }

    fn send(&self, producer: &Producer, partition: i32, value: &str) {
        let record = OutgoingRecord {
            partition: PartitionId(partition),
            value: Some(value.as_bytes()),
            ..OutgoingRecord::default()
        };
        producer.send(&self.topic, record, LONG).unwrap();
    }

    fn produce(&self, partition: i32, values: impl IntoIterator<Item = String>) {
        let producer = self.producer(None);
        for value in values {
            self.send(&producer, partition, &value);
        }
        producer.flush(LONG).unwrap();
    }

    fn reader(&self, start: PartitionOffsets) -> Reader {
        Reader::start(&self.properties(), &self.topic, &start, ReaderSettings::default()).unwrap()
    }
}

type Rows = BTreeMap<i32, Vec<(i64, String)>>;

/// Reads until every end is reached: by a record, or by the end of the partition.
fn read_until(reader: &mut Reader, ends: &PartitionOffsets) -> (Rows, PartitionOffsets) {
    let mut rows = Rows::new();
    let mut next = PartitionOffsets::new();
    let until = Instant::now() + LONG;
    while !next.reaches(ends) {
        assert!(Instant::now() < until, "at {next} of {ends}");
        match reader.next(Duration::from_secs(1)) {
            Some(ReaderEvent::Batch(batch)) => {
                next.insert(batch.partition(), batch.next_offset().unwrap());
                let of_partition = rows.entry(batch.partition().0).or_default();
                for record in batch.records() {
                    let value = String::from_utf8(batch.value(record).unwrap().to_vec()).unwrap();
                    of_partition.push((record.offset.0, value));
                }
            }
            Some(ReaderEvent::PartitionEof { partition, offset }) => next.insert(partition, offset),
            Some(ReaderEvent::Trouble(_) | ReaderEvent::Rebuilt { .. }) | None => {}
            Some(other) => panic!("{other:?}"),
        }
    }
    (rows, next)
}

fn texts(rows: &Rows, partition: i32) -> Vec<&str> {
    rows.get(&partition)
        .into_iter()
        .flatten()
        .map(|(_, value)| value.as_str())
        .collect()
}

fn values(range: std::ops::Range<i64>) -> impl Iterator<Item = String> {
    range.map(|n| format!("value {n}"))
}

/// About a thousand bytes that no two records share.
fn noise(n: u64) -> String {
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = String::new();
    while text.len() < 1000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text += &state.to_string();
    }
    text
}

fn numbered(range: std::ops::Range<i64>) -> Vec<(i64, String)> {
    range.clone().zip(values(range)).collect()
}

#[test]
fn b17_a_run_of_aborted_transactions_is_passed_in_the_middle_and_at_the_end() {
    let bench = Bench::shared(1);
    let producer = bench.transactional();
    let aborted = || {
        for _ in 0..100 {
            producer.begin().unwrap();
            (0..1000).for_each(|_| bench.send(&producer, 0, "aborted"));
            producer.abort(LONG).unwrap();
        }
    };
    aborted();
    producer.begin().unwrap();
    (0..10).for_each(|n| bench.send(&producer, 0, &format!("committed {n}")));
    producer.commit(LONG).unwrap();
    aborted();
    let latest = bench.latest(&[0]);
    assert!(latest.get(PartitionId(0)).unwrap() > Offset(200_000), "{latest}");
    let mut reader = bench.reader([(0, 0)].into());
    let (rows, next) = read_until(&mut reader, &latest);
    let wanted: Vec<String> = (0..10).map(|n| format!("committed {n}")).collect();
    assert_eq!(texts(&rows, 0), wanted);
    // Position is behind the aborted tail, so that lag is zero and the range is complete.
    assert_eq!(next, latest);
}

#[test]
fn b18_an_end_that_is_a_transaction_marker_is_reached_and_an_open_transaction_is_waited_for() {
    let bench = Bench::shared(1);
    let producer = bench.transactional();
    let mut reader = bench.reader([(0, 0)].into());
    let mut next = PartitionOffsets::from([(0, 0)]);
    for size in [1_i64, 2, 7] {
        producer.begin().unwrap();
        (0..size).for_each(|n| bench.send(&producer, 0, &format!("{size}.{n}")));
        producer.flush(LONG).unwrap();
        // While the transaction is open the end is where it begins; the broker works that out, and what a commit
        // changes, a moment after it has answered.
        bench.until_latest(&next);
        producer.commit(LONG).unwrap();
        let marker = next.get(PartitionId(0)).unwrap().0 + size;
        let end = [(0, marker + 1)].into();
        bench.until_latest(&end);
        let (rows, reached) = read_until(&mut reader, &end);
        assert_eq!(texts(&rows, 0).len() as i64, size, "{rows:?}");
        assert_eq!(reached, end);
        next = end;
    }
    assert_eq!(next, [(0, 13)].into(), "ten records and three markers");
}

#[test]
fn b21_expired_offsets_are_reported_per_partition_and_the_others_go_on() {
    let bench = Bench::shared(2);
    bench.produce(0, values(0..1000));
    bench.produce(1, values(0..1000));
    bench.delete_records(&[(0, 600)]);
    let mut reader = bench.reader([(0, 100), (1, 0)].into());
    let (mut lost, mut other) = (None, 0);
    while lost.is_none() || other < 1000 {
        match reader.next(LONG).expect("an event") {
            ReaderEvent::OutOfRange {
                partition,
                wanted,
                low,
                high,
            } => {
                lost = Some((partition.0, wanted.0, low.0, high.0));
            }
            ReaderEvent::Batch(batch) => {
                assert_eq!(
                    batch.partition(),
                    PartitionId(1),
                    "nothing of the lost partition before a decision"
                );
                other += batch.len();
            }
            _ => {}
        }
    }
    assert_eq!(lost, Some((0, 100, 600, 1000)));
    reader.seek(&[(0, 600)].into());
    assert_eq!(
        read_until(&mut reader, &[(0, 1000)].into()).0[&0],
        numbered(600..1000)
    );
}

#[test]
fn b21_offsets_that_expire_under_a_slow_reader_leave_no_unreported_gap() {
    let bench = Bench::shared(1);
    // Values that do not shrink: else one fetch brings them all.
    bench.produce(0, (0..3000).map(noise));
    let settings = ReaderSettings {
        prefetch_bytes: 256 * 1024,
        batch_records: 20,
        ..ReaderSettings::default()
    };
    let mut reader = Reader::start(&bench.properties(), &bench.topic, &[(0, 0)].into(), settings).unwrap();
    let Some(ReaderEvent::Batch(first)) = reader.next(LONG) else {
        panic!("a batch comes first")
    };
    let mut next = first.next_offset().unwrap();
    bench.delete_records(&[(0, 2500)]);
    drop(first);
    loop {
        match reader.next(LONG).expect("an event") {
            ReaderEvent::Batch(batch) => {
                assert_eq!(batch.first_offset(), Some(next));
                next = batch.next_offset().unwrap();
            }
            ReaderEvent::OutOfRange { wanted, low, .. } => {
                assert_eq!((wanted, low), (next, Offset(2500)));
                break;
            }
            _ => {}
        }
    }
}

#[test]
fn b21_many_partitions_that_expire_at_once_recover_in_one_pass() {
    let bench = Bench::shared(64);
    let producer = bench.producer(None);
    for partition in 0..64 {
        (0..10).for_each(|n| bench.send(&producer, partition, &format!("value {n}")));
    }
    producer.flush(LONG).unwrap();
    bench.delete_records(&(0..64).map(|partition| (partition, 5)).collect::<Vec<_>>());
    let mut reader = bench.reader(
        (0..64)
            .map(|partition| (PartitionId(partition), Offset(0)))
            .collect(),
    );
    let mut lost = PartitionOffsets::new();
    while lost.len() < 64 {
        if let ReaderEvent::OutOfRange { partition, low, .. } = reader.next(LONG).expect("an event") {
            lost.insert(partition, low);
        }
    }
    reader.seek(&lost);
    let ends = (0..64)
        .map(|partition| (PartitionId(partition), Offset(10)))
        .collect();
    let (rows, _) = read_until(&mut reader, &ends);
    assert!(rows.values().all(|rows| *rows == numbered(5..10)), "{rows:?}");
}

#[test]
fn b23_a_topic_made_again_has_another_id_and_the_old_offset_is_behind_its_end() {
    let bench = Bench::shared(1);
    bench.produce(0, values(0..1000));
    let before = bench.look_ups().topic_id(&bench.topic, LONG).unwrap();
    assert_ne!(before, TopicId::default());
    bench.delete();
    let until = Instant::now() + LONG;
    // The broker forgets it in its own time.
    while bench.look_ups().topic_id(&bench.topic, LONG).is_ok() && Instant::now() < until {
        std::thread::yield_now();
    }
    bench.create(1, &[]);
    bench.produce(0, values(0..10));
    let after = bench.look_ups().topic_id(&bench.topic, LONG).unwrap();
    assert!(
        after != before && after != TopicId::default(),
        "{before:?} {after:?}"
    );
    let mut reader = bench.reader([(0, 1000)].into());
    loop {
        match reader.next(LONG).expect("an event") {
            ReaderEvent::BeyondEnd { wanted, high, .. } => {
                assert_eq!((wanted, high), (Offset(1000), Offset(10)));
                return;
            }
            ReaderEvent::Batch(batch) => panic!("jumped to {:?}", batch.first_offset()),
            _ => {}
        }
    }
}

#[test]
fn b24_new_partitions_are_seen_and_read_from_their_beginning() {
    let bench = Bench::shared(2);
    let admin = bench.look_ups();
    assert_eq!(admin.partitions(&bench.topic, LONG).unwrap().len(), 2);
    let mut reader = bench.reader([(0, 0), (1, 0)].into());
    block_on(
        bench
            .admin
            .create_partitions(&[NewPartitions::new(&bench.topic, 5)], &Bench::options()),
    )
    .unwrap()
    .remove(0)
    .unwrap();
    let until = Instant::now() + LONG;
    while admin.partitions(&bench.topic, LONG).unwrap().len() < 5 {
        assert!(Instant::now() < until);
    }
    (2..5).for_each(|partition| bench.produce(partition, values(0..100)));
    let new = [PartitionId(2), PartitionId(3), PartitionId(4)];
    let earliest = admin.earliest(&bench.topic, &new, LONG).unwrap();
    reader.seek(&earliest);
    let (rows, _) = read_until(&mut reader, &[(2, 100), (3, 100), (4, 100)].into());
    assert!((2..5).all(|partition| rows[&partition] == numbered(0..100)));
}

#[test]
fn b28_a_topic_that_stamps_records_itself_says_so() {
    let servers = Kafka::shared().unwrap().bootstrap();
    let bench = Bench::on(servers, 1, &[("message.timestamp.type", "LogAppendTime")]);
    bench.produce(0, values(0..1));
    let mut reader = bench.reader([(0, 0)].into());
    let batch = loop {
        if let ReaderEvent::Batch(batch) = reader.next(LONG).expect("an event") {
            break batch;
        }
    };
    let record = &batch.records()[0];
    assert_eq!(record.timestamp_kind, TimestampKind::LogAppend);
    assert!(record.timestamp.unwrap().0 > 1_600_000_000_000, "{record:?}");
}

#[test]
fn b25_a_record_larger_than_the_fetch_limits_is_read() {
    let servers = Kafka::shared().unwrap().bootstrap();
    let bench = Bench::on(servers, 1, &[("max.message.bytes", "20000000")]);
    let settings = ProducerSettings {
        most_bytes: 20_000_000,
        ..ProducerSettings::default()
    };
    let producer = Producer::new(&bench.servers, &settings).unwrap();
    let sizes = [1_000, 900_000, 5_000_000, 15_000_000, 1_000];
    for (n, size) in sizes.into_iter().enumerate() {
        // Not to be compressed away: the limits are about bytes on the wire.
        let mut seed = n as u64 + 1;
        let value: String = std::iter::repeat_with(|| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            char::from(b' ' + ((seed >> 33) % 95) as u8)
        })
        .take(size)
        .collect();
        bench.send(&producer, 0, &value);
        producer.flush(LONG).unwrap();
    }
    let settings = ReaderSettings {
        prefetch_bytes: 4 * 1024 * 1024,
        ..ReaderSettings::default()
    };
    let mut reader = Reader::start(&bench.properties(), &bench.topic, &[(0, 0)].into(), settings).unwrap();
    let (rows, _) = read_until(&mut reader, &[(0, 5)].into());
    assert_eq!(
        rows[&0].iter().map(|(_, value)| value.len()).collect::<Vec<_>>(),
        sizes
    );
}

#[test]
fn b27_the_only_broker_killed_again_and_again_costs_no_row_and_doubles_none() {
    let mut kafka = Kafka::start_own(KafkaOptions::nodes(1)).unwrap();
    let bench = Bench::on(kafka.bootstrap(), 2, &[]);
    let mut reader = bench.reader([(0, 0), (1, 0)].into());
    for round in 0..3 {
        let range = round * 5000..(round + 1) * 5000;
        bench.produce(0, values(range.clone()));
        bench.produce(1, values(range.clone()));
        // Some of it is read before the broker dies, the rest after it is back.
        let mut rows = read_until(&mut reader, &[(0, range.start + 1), (1, range.start + 1)].into()).0;
        kafka.kill9().unwrap();
        kafka.start_again().unwrap();
        let have = |rows: &Rows, partition| rows.get(&partition).map_or(0, Vec::len);
        while have(&rows, 0) < 5000 || have(&rows, 1) < 5000 {
            match reader.next(LONG).expect("an event") {
                ReaderEvent::Batch(batch) => {
                    for record in batch.records() {
                        let value = String::from_utf8(batch.value(record).unwrap().to_vec()).unwrap();
                        rows.entry(batch.partition().0)
                            .or_default()
                            .push((record.offset.0, value));
                    }
                }
                other => assert!(!matches!(other, ReaderEvent::OutOfRange { .. }), "{other:?}"),
            }
        }
        assert_eq!(rows[&0], numbered(range.clone()));
        assert_eq!(rows[&1], numbered(range));
    }
    kafka.kill9().unwrap();
    // With the broker gone for good, closing is bounded (B74).
    let before = Instant::now();
    assert!(matches!(
        reader.close(Duration::from_secs(10)),
        Closed::Cleanly | Closed::InBackground
    ));
    assert!(before.elapsed() < Duration::from_secs(11));
}
