//! Generated events into the in-process broker, in step with the reader.
//!
//! That broker keeps about 5 MB (as compressed batches) per partition and drops the oldest silently. So no partition
//! gets further ahead of its reader than fits, and the beginning of the log is watched for what was lost.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_kafka::{Admin, Compression, ConsumerProperties, OutgoingRecord, Producer, ProducerSettings};
use tidegate_types::{Offset, PartitionId, PartitionOffsets};
use tokio::task::JoinHandle;

use super::PATIENCE;
use crate::failure::Failure;
use crate::generator::{Generator, GeneratorSettings, Totals};

/// Uncompressed bytes that a partition may be ahead of its reader. The events shrink to a third at most with lz4
/// (a test holds that), which leaves a margin below the 5 MB.
const AHEAD_BYTES: u64 = 12 * 1024 * 1024;
/// Offsets are compared with the reader's after so many records of a partition.
const STRIDE: u64 = 256;
const DEADLINE: Duration = Duration::from_secs(30);

/// Producing, on a thread of its own.
pub(super) struct Producing {
    /// Where the reader is; told by the one who watches the status.
    pub(super) read: Arc<Mutex<PartitionOffsets>>,
    pub(super) done: JoinHandle<Result<Totals, Failure>>,
}

pub(super) fn start(servers: String, topic: String, settings: GeneratorSettings) -> Producing {
    let read = Arc::new(Mutex::new(PartitionOffsets::new()));
    let told = read.clone();
    let done = tokio::task::spawn_blocking(move || produce(&servers, &topic, settings, &told));
    Producing { read, done }
}

fn produce(
    servers: &str,
    topic: &str,
    settings: GeneratorSettings,
    read: &Mutex<PartitionOffsets>,
) -> Result<Totals, Failure> {
    let failed = |error: tidegate_kafka::KafkaError| Failure::Other(error.to_string());
    let producer = Producer::new(
        servers,
        &ProducerSettings {
            compression: Compression::Lz4,
            ..ProducerSettings::default()
        },
    )
    .map_err(failed)?;
    let properties = ConsumerProperties::from_java([("bootstrap.servers", servers)]).map_err(failed)?;
    let admin = Admin::shared(&properties).map_err(failed)?;
    let mut ahead: BTreeMap<PartitionId, Ahead> = BTreeMap::new();
    let mut generator = Generator::new(settings);
    for record in generator.by_ref() {
        let outgoing = OutgoingRecord {
            partition: record.partition,
            key: Some(&record.key),
            value: record.value.as_deref(),
            timestamp: Some(record.timestamp),
        };
        producer.send(topic, outgoing, DEADLINE).map_err(failed)?;
        let size = (record.key.len() + record.value.as_ref().map_or(0, Vec::len) + 16) as u64;
        let of_partition = ahead.entry(record.partition).or_default();
        if of_partition.add(size) {
            wait_for_reader(record.partition, of_partition, read)?;
            nothing_lost(&admin, topic, record.partition, read)?;
        }
    }
    producer.flush(DEADLINE).map_err(failed)?;
    for partition in ahead.keys() {
        nothing_lost(&admin, topic, *partition, read)?;
    }
    Ok(generator.totals().clone())
}

/// How many bytes stand below which offset.
#[derive(Debug, Default)]
struct Ahead {
    records: u64,
    bytes: u64,
    /// Bytes below each multiple of the stride.
    below: Vec<u64>,
}

impl Ahead {
    /// True at each stride.
    fn add(&mut self, size: u64) -> bool {
        if self.records.is_multiple_of(STRIDE) {
            self.below.push(self.bytes);
        }
        self.records += 1;
        self.bytes += size;
        self.records.is_multiple_of(STRIDE)
    }

    /// Bytes at or above an offset, at most.
    fn from(&self, offset: Offset) -> u64 {
        let stride = u64::try_from(offset.0).unwrap_or(0) / STRIDE;
        self.bytes - self.below.get(stride as usize).copied().unwrap_or(self.bytes)
    }
}

fn position(read: &Mutex<PartitionOffsets>, partition: PartitionId) -> Offset {
    read.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .get(partition)
        .unwrap_or_default()
}

fn wait_for_reader(
    partition: PartitionId,
    ahead: &Ahead,
    read: &Mutex<PartitionOffsets>,
) -> Result<(), Failure> {
    let mut at = position(read, partition);
    let mut moved = Instant::now();
    while ahead.from(at) > AHEAD_BYTES {
        std::thread::sleep(Duration::from_millis(20));
        let now = position(read, partition);
        if now > at {
            (at, moved) = (now, Instant::now());
        } else if moved.elapsed() > PATIENCE {
            return Err(Failure::Other(format!(
                "partition {partition} has not been read beyond offset {at} for {PATIENCE:?}"
            )));
        }
    }
    Ok(())
}

fn nothing_lost(
    admin: &Admin,
    topic: &str,
    partition: PartitionId,
    read: &Mutex<PartitionOffsets>,
) -> Result<(), Failure> {
    // Before the question: the reader only moves on.
    let at = position(read, partition);
    let earliest = admin
        .earliest(topic, &[partition], DEADLINE)
        .map_err(|error| Failure::Other(error.to_string()))?
        .get(partition)
        .unwrap_or_default();
    if earliest > at && earliest > position(read, partition) {
        return Err(Failure::Other(format!(
            "the in-process broker dropped records of partition {partition} below offset {earliest}, read up to {at}"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tidegate_kafka::MockBroker;

    use super::*;

    #[test]
    fn what_a_partition_may_be_ahead_fits_the_in_process_broker() {
        let broker = MockBroker::start(1).unwrap();
        broker.create_topic("t", 1).unwrap();
        let read = Mutex::new(PartitionOffsets::new());
        let settings = GeneratorSettings {
            events: 1_000_000,
            partitions: 1,
            ..GeneratorSettings::default()
        };
        let producer = Producer::new(broker.bootstrap_servers(), &ProducerSettings::default()).unwrap();
        let mut ahead = Ahead::default();
        for record in Generator::new(settings) {
            let outgoing = OutgoingRecord {
                partition: PartitionId(0),
                key: Some(&record.key),
                value: record.value.as_deref(),
                timestamp: None,
            };
            producer.send("t", outgoing, DEADLINE).unwrap();
            ahead.add((record.key.len() + record.value.as_ref().map_or(0, Vec::len) + 16) as u64);
            if ahead.from(Offset(0)) > AHEAD_BYTES {
                break;
            }
        }
        producer.flush(DEADLINE).unwrap();
        let properties =
            ConsumerProperties::from_java([("bootstrap.servers", broker.bootstrap_servers())]).unwrap();
        nothing_lost(&Admin::shared(&properties).unwrap(), "t", PartitionId(0), &read).unwrap();
    }

    #[test]
    fn bytes_ahead_are_counted_from_the_stride_below_the_reader() {
        let mut ahead = Ahead::default();
        (0..1000).for_each(|_| {
            ahead.add(10);
        });
        assert_eq!(ahead.from(Offset(0)), 10_000);
        assert_eq!(ahead.from(Offset(300)), 10_000 - 2_560);
        assert_eq!(ahead.from(Offset(999)), 10_000 - 7_680);
    }
}
