//! The whole: Kafka's threads read, one thread decodes into the indexes, persists and merges go on beside it.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use tidegate_decode::Layout;
use tidegate_kafka::{
    Batch, ConsumerProperties, MockBroker, OutgoingRecord, Producer, ProducerSettings, Reader, ReaderEvent,
    ReaderSettings,
};
use tidegate_types::{Offset, PartitionId, PartitionOffsets};

use crate::task::{self, Spill, Task};
use crate::workload::{PARTITIONS, Workload};

const TOPIC: &str = "wiki";
const DEADLINE: Duration = Duration::from_mins(1);
/// Spills that wait for a worker before reading waits for them.
const PENDING: usize = PARTITIONS;

/// An in-process broker that holds the records.
pub(crate) struct Broker {
    broker: MockBroker,
}

impl Broker {
    pub(crate) fn with(workload: &Workload) -> Result<Self> {
        let broker = MockBroker::start(1)?;
        broker.create_topic(TOPIC, PARTITIONS as i32)?;
        let producer = Producer::new(broker.bootstrap_servers(), &ProducerSettings::default())?;
        for partition in 0..PARTITIONS {
            for record in workload.records_of(partition) {
                let outgoing = OutgoingRecord {
                    partition: PartitionId(partition as i32),
                    value: Some(record.as_bytes()),
                    ..OutgoingRecord::default()
                };
                producer.send(TOPIC, outgoing, DEADLINE)?;
            }
        }
        producer.flush(DEADLINE)?;
        Ok(Self { broker })
    }

    /// Reads `rows` records from the start.
    pub(crate) fn read(&self, rows: usize, mut take: impl FnMut(Batch) -> Result<()>) -> Result<Reader> {
        let properties =
            ConsumerProperties::from_java([("bootstrap.servers", self.broker.bootstrap_servers())])?;
        let start: PartitionOffsets = (0..PARTITIONS)
            .map(|partition| (PartitionId(partition as i32), Offset(0)))
            .collect();
        let mut reader = Reader::start(&properties, TOPIC, &start, ReaderSettings::default())?;
        let (until, mut read) = (Instant::now() + DEADLINE, 0);
        while read < rows {
            ensure!(
                Instant::now() < until,
                "only {read} of {rows} records came within {DEADLINE:?}"
            );
            match reader.next(Duration::from_secs(1)) {
                Some(ReaderEvent::Batch(batch)) => {
                    read += batch.len();
                    take(batch)?;
                }
                Some(event @ (ReaderEvent::OutOfRange { .. } | ReaderEvent::Ended { .. })) => {
                    bail!("the in-process broker lost records: {event:?}")
                }
                Some(
                    ReaderEvent::PartitionEof { .. }
                    | ReaderEvent::BeyondEnd { .. }
                    | ReaderEvent::Trouble(_)
                    | ReaderEvent::Rebuilt { .. },
                )
                | None => {}
            }
        }
        ensure!(read == rows, "{read} records came, {rows} were produced");
        Ok(reader)
    }
}

/// From the broker to the segments. Whatever was read must stand in them.
pub(crate) fn run(workload: &Workload, broker: &Broker, folder: &Path) -> Result<()> {
    let layout = Layout::of(&workload.schema);
    let workers = std::thread::available_parallelism().map_or(2, usize::from);
    let (give, spills) = mpsc::sync_channel::<Spill>(PENDING);
    let spills = Mutex::new(spills);
    let runs = std::thread::scope(|scope| {
        let persisting: Vec<_> = (0..workers)
            .map(|_| scope.spawn(|| persist_all(&spills, folder)))
            .collect();
        let mut task = Task::new(&workload.schema)?;
        let hand_over = |task: &mut Task| -> Result<()> {
            for spill in task.spill() {
                give.send(spill)
                    .map_err(|_| anyhow!("the threads that persist are gone"))?;
            }
            Ok(())
        };
        let read = broker
            .read(workload.rows, |mut batch| {
                let partition = batch.partition().0 as usize;
                let (records, mut arena) = batch.parts_mut();
                for record in records {
                    task.record(partition, record.offset.0, arena.value(record))?;
                }
                if task.is_full() {
                    hand_over(&mut task)
                } else {
                    Ok(())
                }
            })
            .and_then(|reader| hand_over(&mut task).map(|()| reader));
        drop(give);
        let mut runs: Vec<(usize, PathBuf)> = Vec::new();
        for worker in persisting {
            runs.extend(joined(worker)?);
        }
        // An error of a worker says more than that it is gone.
        read?;
        anyhow::Ok(runs)
    })?;
    let todo = Mutex::new((0..PARTITIONS).rev().collect::<Vec<_>>());
    let rows = std::thread::scope(|scope| {
        let merging: Vec<_> = (0..workers)
            .map(|_| scope.spawn(|| merge_all(workload, &layout, &todo, &runs, folder)))
            .collect();
        merging.into_iter().map(joined).sum::<Result<u64>>()
    })?;
    ensure!(
        rows == workload.rows as u64,
        "{rows} of {} rows are in segments",
        workload.rows
    );
    Ok(())
}

fn joined<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(anyhow!("a thread panicked")))
}

fn persist_all(spills: &Mutex<Receiver<Spill>>, folder: &Path) -> Result<Vec<(usize, PathBuf)>> {
    let mut runs = Vec::new();
    loop {
        let next = spills.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(spill) = next else {
            return Ok(runs);
        };
        let path = spill.path(folder);
        tidegate_segment::persist(&spill.run, &path)?;
        runs.push((spill.partition, path));
    }
}

fn merge_all(
    workload: &Workload,
    layout: &Layout,
    todo: &Mutex<Vec<usize>>,
    runs: &[(usize, PathBuf)],
    folder: &Path,
) -> Result<u64> {
    let mut rows = 0;
    loop {
        let next = todo.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(partition) = next else {
            return Ok(rows);
        };
        let runs = task::runs_of(partition, runs);
        rows += task::merge(workload, layout, partition, &runs, folder)
            .with_context(|| format!("cannot merge partition {partition}"))?;
    }
}
