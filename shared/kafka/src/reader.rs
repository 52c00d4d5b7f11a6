//! A reader: some partitions of one topic, read by a thread of its own.
//!
//! Promises: per partition, records come in offset order, each once, from the start offset on; after a seek nothing
//! read before it comes out. It goes on over transaction markers and aborted runs (B17, B18), waits at the end of
//! the log, and never jumps: what is no longer in the log is reported and that partition stands still until a seek.
//! Must never: block longer than asked, or be closed by waiting on a broker (B74).

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_types::{Offset, PartitionId, StartOffsets};

use crate::batch::Batch;
use crate::error::{KafkaError, Trouble};
use crate::handover::Handover;
use crate::properties::ConsumerProperties;
use crate::warm::Warm;
use crate::worker::{self, Command};

/// Bounds and intervals of a reader.
#[derive(Debug, Clone)]
pub struct ReaderSettings {
    /// Bytes of records held at any time, for all partitions together: half in the client's queue, half in batches
    /// that are queued or still held (B70).
    pub prefetch_bytes: usize,
    /// Most records in a batch.
    pub batch_records: usize,
    /// A batch is closed when its values reach this size.
    pub batch_bytes: usize,
    /// With lag and no progress for this long, asked twice, the consumer is rebuilt (B27); doubled after each
    /// rebuild that did not help.
    pub stall_after: Duration,
}

impl Default for ReaderSettings {
    fn default() -> Self {
        Self {
            prefetch_bytes: 32 * 1024 * 1024,
            batch_records: 4096,
            batch_bytes: 1024 * 1024,
            stall_after: Duration::from_secs(30),
        }
    }
}

/// What a reader says.
#[derive(Debug)]
pub enum ReaderEvent {
    /// Records of one partition.
    Batch(Batch),
    /// Everything below `offset` has been handed over, and there was nothing at or above it (as the isolation level
    /// sees it). Comes again whenever the reader catches up at another offset.
    PartitionEof { partition: PartitionId, offset: Offset },
    /// `wanted` is not in the log any more: it begins at `low`. Nothing more comes from this partition until a seek
    /// (B21). A range whose end is at or below `low` is complete, and lost.
    OutOfRange {
        partition: PartitionId,
        wanted: Offset,
        low: Offset,
        high: Offset,
    },
    /// `wanted` is behind the end of the log. The reader waits until it is reached; a topic that was re-created
    /// looks like this too (B23).
    BeyondEnd {
        partition: PartitionId,
        wanted: Offset,
        low: Offset,
        high: Offset,
    },
    /// Something went wrong; unless its kind is fatal the reader keeps trying.
    Trouble(Trouble),
    /// The consumer was silent although there was lag, and was made anew from the application's position (B27).
    Rebuilt { rebuilds: u64 },
    /// The reading thread is gone. Nothing comes after this.
    Ended { why: String },
}

impl ReaderEvent {
    fn partition(&self) -> Option<PartitionId> {
        match self {
            Self::Batch(batch) => Some(batch.partition()),
            Self::PartitionEof { partition, .. }
            | Self::OutOfRange { partition, .. }
            | Self::BeyondEnd { partition, .. } => Some(*partition),
            Self::Trouble(_) | Self::Rebuilt { .. } | Self::Ended { .. } => None,
        }
    }
}

/// How a close ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closed {
    /// Thread and client are gone.
    Cleanly,
    /// The deadline passed first; the client is torn down in the background.
    InBackground,
}

/// Ends the wait in [`Reader::next`], from any thread.
#[derive(Debug, Clone)]
pub struct Nudge(Arc<Handover>);

impl Nudge {
    /// The wait that is under way, or the next one, ends at once.
    pub fn nudge(&self) {
        self.0.nudge();
    }
}

/// The task's end of a reader.
#[derive(Debug)]
pub struct Reader {
    handover: Arc<Handover>,
    commands: mpsc::Sender<Command>,
    gone: mpsc::Receiver<()>,
    rebuilds: Arc<AtomicU64>,
    seeks: u64,
    /// Per partition the last seek that named it: what was produced before is dropped.
    sought: HashMap<PartitionId, u64>,
    /// Where each partition stands by what came out.
    positions: Positions,
}

/// What came out of a reader, held against its promise. A batch that is missing or out of order would be lost
/// without a trace: gaps between records are normal, so nobody behind the reader could tell.
#[derive(Debug)]
struct Positions {
    next: HashMap<PartitionId, Offset>,
    broken: Option<String>,
}

impl Positions {
    fn at(start: &StartOffsets) -> Self {
        Self {
            next: start.iter().collect(),
            broken: None,
        }
    }

    /// Moves a partition by an event that begins at `begins`; false when it stands elsewhere.
    fn advance(&mut self, begins: Offset, event: &ReaderEvent) -> bool {
        let (partition, behind) = match event {
            ReaderEvent::Batch(batch) => (batch.partition(), batch.next_offset().unwrap_or(begins)),
            ReaderEvent::PartitionEof { partition, offset } => (*partition, *offset),
            _ => return true,
        };
        let stands = self.next.insert(partition, behind);
        if stands == Some(begins) {
            return true;
        }
        let stands = stands.map_or_else(|| "nowhere".to_owned(), |next| format!("at offset {next}"));
        self.broken = Some(format!(
            "records of partition {partition} from offset {begins} on came out while it stood {stands}"
        ));
        false
    }
}

impl Reader {
    /// Starts reading `topic` at `start`. Fails only on properties that the client refuses: a broker that is away
    /// is reported by an event and waited for.
    pub fn start(
        properties: &ConsumerProperties,
        topic: &str,
        start: &StartOffsets,
        settings: ReaderSettings,
    ) -> Result<Self, KafkaError> {
        Self::start_with(None, properties, topic, start, settings)
    }

    /// The same with a client that is connected already, made with the same properties and settings.
    ///
    /// # Errors
    /// As [`Reader::start`].
    pub fn start_with(
        warm: Option<Warm>,
        properties: &ConsumerProperties,
        topic: &str,
        start: &StartOffsets,
        settings: ReaderSettings,
    ) -> Result<Self, KafkaError> {
        let handover = Handover::new((settings.prefetch_bytes / 2).max(1));
        let rebuilds = Arc::new(AtomicU64::new(0));
        let (commands, inbox) = mpsc::channel();
        let (started, outcome) = mpsc::channel();
        let (alive, gone) = mpsc::channel::<()>();
        let seed = worker::Seed {
            properties: properties.clone(),
            topic: topic.into(),
            start: start.clone(),
            settings,
            handover: handover.clone(),
            rebuilds: rebuilds.clone(),
            inbox,
        };
        thread::Builder::new()
            .name(format!("kafka {}", topic.chars().take(9).collect::<String>()))
            .spawn(move || {
                let _alive = alive; // dropped when the thread is over
                worker::run(seed, warm, &started);
            })
            .map_err(|error| KafkaError::Client {
                what: "starting a reader's thread".into(),
                detail: error.to_string(),
            })?;
        outcome.recv().unwrap_or_else(|_| {
            Err(KafkaError::Client {
                what: "starting a reader".into(),
                detail: "its thread ended at once".into(),
            })
        })?;
        Ok(Self {
            handover,
            commands,
            gone,
            rebuilds,
            seeks: 0,
            sought: HashMap::new(),
            positions: Positions::at(start),
        })
    }

    /// The next event; `None` when there is none within `wait` or after a nudge. Blocks: call it from a thread, not
    /// from a future.
    ///
    /// A reader that breaks its promise ends: one that is made anew where the task stands loses nothing.
    pub fn next(&mut self, wait: Duration) -> Option<ReaderEvent> {
        let deadline = Instant::now() + wait;
        loop {
            if let Some(why) = self.positions.broken.clone() {
                return Some(ReaderEvent::Ended { why });
            }
            let stamped = self
                .handover
                .take(deadline.saturating_duration_since(Instant::now()))?;
            let stale = stamped
                .event
                .partition()
                .and_then(|partition| self.sought.get(&partition))
                .is_some_and(|seek| stamped.seeks_seen < *seek);
            let begins = stamped.begins;
            if !stale && begins.is_none_or(|begins| self.positions.advance(begins, &stamped.event)) {
                return Some(stamped.event);
            }
        }
    }

    /// A handle for whoever wants the reading thread's attention.
    pub fn nudge(&self) -> Nudge {
        Nudge(self.handover.clone())
    }

    /// Reads these partitions from these offsets on; partitions that were not read before are added.
    pub fn seek(&mut self, offsets: &StartOffsets) {
        self.seeks += 1;
        for (partition, next) in offsets.iter() {
            self.sought.insert(partition, self.seeks);
            self.positions.next.insert(partition, next);
        }
        self.send(Command::Seek {
            number: self.seeks,
            offsets: offsets.clone(),
        });
    }

    /// Fetches nothing more of these partitions; what is queued still comes.
    pub fn pause(&self, partitions: &[PartitionId]) {
        self.send(Command::Pause(partitions.to_vec()));
    }

    /// Goes on with these partitions where they were paused.
    pub fn resume(&self, partitions: &[PartitionId]) {
        self.send(Command::Resume(partitions.to_vec()));
    }

    /// How often the consumer was made anew because it was silent (B27).
    pub fn rebuilds(&self) -> u64 {
        self.rebuilds.load(Ordering::Relaxed)
    }

    /// Stops, waiting at most `deadline` for the client to go (B74).
    pub fn close(self, deadline: Duration) -> Closed {
        self.send(Command::Close);
        self.handover.clear();
        match self.gone.recv_timeout(deadline) {
            Err(mpsc::RecvTimeoutError::Timeout) => Closed::InBackground,
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => Closed::Cleanly,
        }
    }

    // A thread that is gone says so by `Ended`, so a command to it may be lost.
    fn send(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

/// Tells the thread to stop and does not wait for it.
impl Drop for Reader {
    fn drop(&mut self) {
        self.send(Command::Close);
        self.handover.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{Buffers, Record, TimestampKind};

    const PARTITION: PartitionId = PartitionId(3);

    fn batch(begins: i64, offsets: &[i64]) -> (Offset, ReaderEvent) {
        let record = |offset: &i64| Record {
            offset: Offset(*offset),
            timestamp: None,
            timestamp_kind: TimestampKind::Missing,
            key: None,
            value: None,
        };
        let buffers = Buffers {
            bytes: Vec::new(),
            records: offsets.iter().map(record).collect(),
        };
        let batch = Batch::new(PARTITION, Offset(begins), buffers);
        (Offset(begins), ReaderEvent::Batch(batch))
    }
    fn end(begins: i64, offset: i64) -> (Offset, ReaderEvent) {
        let event = ReaderEvent::PartitionEof {
            partition: PARTITION,
            offset: Offset(offset),
        };
        (Offset(begins), event)
    }

    /// Whether each of these is let out by a reader that began at 4.
    fn let_out(events: Vec<(Offset, ReaderEvent)>) -> Vec<bool> {
        let mut positions = Positions::at(&[(PARTITION, Offset(4))].into_iter().collect());
        let advance = |(begins, event): (Offset, ReaderEvent)| positions.advance(begins, &event);
        events.into_iter().map(advance).collect()
    }

    #[test]
    fn i1_gaps_in_the_log_are_normal_and_a_missing_batch_is_not() {
        assert_eq!(
            let_out(vec![batch(4, &[5, 9]), end(10, 12), batch(12, &[12, 13])]),
            [true, true, true]
        );
        assert_eq!(let_out(vec![batch(4, &[5, 9]), batch(12, &[12])]), [true, false]);
        assert_eq!(let_out(vec![batch(4, &[5, 9]), end(12, 14)]), [true, false]);
        assert_eq!(
            let_out(vec![batch(8, &[8, 9]), batch(4, &[4, 5])]),
            [false, false]
        );
    }
}
