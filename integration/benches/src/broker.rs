//! The in-process broker with the events in it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tidegate_kafka::{
    Batch, ConsumerProperties, MockBroker, OutgoingRecord, Producer, ProducerSettings, Reader, ReaderEvent,
    ReaderSettings,
};
use tidegate_types::{Offset, PartitionId, StartOffsets};

use crate::timing::Measured;

const TOPIC: &str = "wikipedia";
/// So many that no partition gets more than the mock broker keeps (about 5 MB compressed).
const PARTITIONS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Filled {
    broker: MockBroker,
    records: usize,
}

impl Filled {
    pub(crate) fn with(records: &[&[u8]]) -> Result<Self> {
        let broker = MockBroker::start(1)?;
        broker.create_topic(TOPIC, PARTITIONS as i32)?;
        let producer = Producer::new(broker.bootstrap_servers(), &ProducerSettings::default())?;
        // A partition at a time: batches of one partition compress as a busy topic's do.
        let share = records.len().div_ceil(PARTITIONS).max(1);
        for (partition, records) in records.chunks(share).enumerate() {
            for record in records {
                let outgoing = OutgoingRecord {
                    partition: PartitionId(partition as i32),
                    value: Some(record),
                    ..OutgoingRecord::default()
                };
                producer.send(TOPIC, outgoing, PATIENCE)?;
            }
        }
        producer.flush(PATIENCE)?;
        Ok(Self {
            broker,
            records: records.len(),
        })
    }

    /// Reads every record once, batch by batch.
    pub(crate) fn read(&self, mut take: impl FnMut(Batch) -> Result<()>) -> Result<usize> {
        let properties =
            ConsumerProperties::from_java([("bootstrap.servers", self.broker.bootstrap_servers())])?;
        let start = StartOffsets::from_iter((0..PARTITIONS as i32).map(|partition| (PartitionId(partition), Offset(0))));
        let mut reader = Reader::start(&properties, TOPIC, &start, ReaderSettings::default())?;
        let mut seen = 0;
        while seen < self.records {
            match reader.next(PATIENCE).context("the broker has gone silent")? {
                ReaderEvent::Batch(batch) => {
                    seen += batch.len();
                    take(batch)?;
                }
                ReaderEvent::PartitionEof { .. } => {}
                other => bail!("reading from the in-process broker: {other:?}"),
            }
        }
        reader.close(PATIENCE);
        Ok(seen)
    }

    /// Reading and nothing else.
    pub(crate) fn consume(&self) -> Result<Measured> {
        let start = Instant::now();
        let rows = self.read(|_| Ok(()))?;
        Ok(Measured::since(start, rows))
    }
}
