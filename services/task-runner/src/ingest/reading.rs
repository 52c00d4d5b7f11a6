//! The reading thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use tidegate_kafka::{ConsumerProperties, Reader, ReaderEvent, ReaderSettings, Trouble, TroubleKind, Warm};
use tidegate_protocol::task::{Assignment, GroupMode, RowCounts, TaskEvent, Ticket, Trigger};
use tidegate_spec::SupervisorSpec;
use tidegate_telemetry::{Metrics, families};
use tidegate_types::{EndOffsets, Offset, OffsetRange, PartitionId, SequenceId, StartOffsets};

use super::allocate::{Allocator, NoSegment};
use super::memory::{Halt, Memory};
use super::persist::{Job, Persister, PersisterSeed};
use super::settings::Bounds;
use super::{Attention, Command, IngestSeed};
use crate::folder::DiskUse;
use crate::live::{Live, Reading as LiveReading};
use crate::task::Inbox;

/// Longest wait of one turn; whatever is urgent ends it.
const TURN: Duration = Duration::from_millis(500);
/// While a persist must end first.
const PERSIST_TURN: Duration = Duration::from_millis(5);
/// How often the numbers are shown.
const TELL: Duration = Duration::from_millis(100);
/// Pause before a consumer that ended is made anew.
const ANEW: Duration = Duration::from_secs(1);
/// How long the thread waits for its consumer to go.
const CLOSE: Duration = Duration::from_secs(5);

struct Reading {
    commands: mpsc::Receiver<Command>,
    attention: Attention,
    inbox: Inbox,
    live: Arc<Live>,
    metrics: Metrics,
    disk: Arc<DiskUse>,
    assignment: Assignment,
    spec: Arc<SupervisorSpec>,
    bounds: Bounds,
    properties: ConsumerProperties,
    memory: Memory,
    allocator: Allocator,
    persister: Persister,
    reader: Option<Reader>,
    /// For the first reader.
    warm: Option<Warm>,
    /// No consumer is made before.
    anew_at: Instant,
    until: Option<EndOffsets>,
    reads: bool,
    /// What is left of a batch in which the open sequence became full.
    left: Option<tidegate_kafka::Batch>,
    /// Since when the reader stands because of a checkpoint.
    stands_since: Option<Instant>,
    /// Sequences that the machine was told are read to their end.
    told_complete: Vec<SequenceId>,
    /// The disk was full and has not become much emptier since.
    was_full: bool,
    /// The task was told of an error that ends it.
    is_over: bool,
    is_due: bool,
    tickets: VecDeque<Ticket>,
    /// Rows that left memory and found the persister busy.
    waiting: Option<Box<Job>>,
    is_hindered: bool,
    told: Instant,
    counted: RowCounts,
}

/// Starts the thread, and the one that persists.
pub(crate) fn spawn(
    seed: IngestSeed,
    commands: mpsc::Receiver<Command>,
    attention: Attention,
) -> Result<(), String> {
    let IngestSeed {
        record,
        spec,
        shared,
        folder,
        inbox,
        live,
        warm,
    } = seed;
    let properties = tidegate_spec::secrets::resolve_properties(&spec.io.consumer_properties)
        .map_err(|error| format!("ioConfig.consumerProperties: {error}"))?;
    let properties = ConsumerProperties::from_java(&properties).map_err(|error| error.to_string())?;
    let memory = Memory::restore(&record, &spec)?;
    let bounds = Bounds::of(&spec.tuning, shared.memory_per_task);
    let assignment = record.assignment;
    let persister = Persister::start(
        PersisterSeed {
            folder: folder.rows(),
            disk: folder.disk().clone(),
            inbox: inbox.clone(),
            live: live.clone(),
            metrics: shared.metrics.clone(),
            supervisor: assignment.supervisor.clone(),
            stop: attention.stop.clone(),
        },
        bounds.pending,
    )?;
    let allocator = Allocator::new(
        tokio::runtime::Handle::current(),
        shared.publisher.clone(),
        attention.clone(),
        inbox.clone(),
        assignment.clone(),
        &spec,
    );
    let now = Instant::now();
    let reading = Reading {
        commands,
        attention,
        inbox,
        live,
        metrics: shared.metrics,
        disk: folder.disk().clone(),
        counted: memory.read().counts,
        assignment,
        spec,
        bounds,
        properties,
        memory,
        allocator,
        persister,
        reader: None,
        warm,
        anew_at: now,
        until: None,
        reads: false,
        left: None,
        stands_since: None,
        told_complete: Vec::new(),
        was_full: false,
        is_over: false,
        is_due: false,
        tickets: VecDeque::new(),
        waiting: None,
        is_hindered: false,
        told: now,
    };
    let span = tracing::Span::current();
    thread::Builder::new()
        .name("ingest".to_owned())
        .spawn(move || span.in_scope(|| reading.run()))
        .map(drop)
        .map_err(|error| format!("the reading thread cannot be started: {error}"))
}

impl Reading {
    fn run(mut self) {
        while !self.attention.stop.is_cancelled() {
            self.attention.heard();
            while let Ok(command) = self.commands.try_recv() {
                self.obey(command);
            }
            self.persist();
            if self.may_read() {
                let is_idle = if let Some(batch) = self.left.take() {
                    self.take(batch);
                    false
                } else {
                    let event = self.reader.as_mut().and_then(|reader| reader.next(TURN));
                    let is_idle = event.is_none();
                    if let Some(event) = event {
                        self.on(event);
                    }
                    is_idle
                };
                let completed = self.has_completed();
                self.tell(is_idle || completed);
            } else {
                self.tell(true);
                let wait = if self.waiting.is_some() {
                    PERSIST_TURN
                } else {
                    TURN
                };
                match self.commands.recv_timeout(wait) {
                    Ok(command) => self.obey(command),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        }
        self.live.set_memory(0);
        if let Some(reader) = self.reader.take() {
            let closed = reader.close(CLOSE);
            tracing::debug!(?closed, "the consumer is gone");
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Read { until, sequences } => {
                self.until = until;
                self.memory.set_sequences(sequences);
                self.reads = true;
                if let Some(since) = self.stands_since.take() {
                    let supervisor = self.assignment.supervisor.as_str();
                    self.metrics
                        .time(&families::CHECKPOINT_STALL, [supervisor], since.elapsed());
                }
                self.has_completed();
                self.tell(true);
            }
            Command::StandStill { ticket } => {
                self.stand();
                self.tell(true);
                self.inbox.send(TaskEvent::StoodStill {
                    ticket,
                    next: self.memory.read().next.clone(),
                });
            }
            Command::Persist { ticket } => self.tickets.push_back(ticket),
        }
    }

    fn stand(&mut self) {
        self.reads = false;
        if self.is_checkpointing() {
            self.stands_since.get_or_insert_with(Instant::now);
        }
    }

    fn is_checkpointing(&self) -> bool {
        self.assignment.mode == GroupMode::Checkpointing
    }

    /// Stops by itself and asks for an end of the open sequence.
    fn trigger(&mut self, trigger: Trigger) {
        self.stand();
        self.tell(true);
        let (supervisor, name) = (
            self.assignment.supervisor.as_str(),
            crate::status::trigger_name(trigger),
        );
        self.metrics
            .count(&families::CHECKPOINTS_WANTED, [supervisor, name], 1);
        tracing::debug!(?trigger, next = %self.memory.read().next, "a checkpoint is wanted");
        self.inbox.send(TaskEvent::Triggered {
            trigger,
            next: self.memory.read().next.clone(),
        });
    }

    /// True when a sequence has just been read to its end: what follows must not wait for the next look.
    fn has_completed(&mut self) -> bool {
        if !self.is_checkpointing() {
            return false;
        }
        let complete: Vec<SequenceId> = self.memory.complete().collect();
        let is_new = complete.iter().any(|id| !self.told_complete.contains(id));
        self.told_complete = complete;
        is_new
    }

    fn end_of(&self, partition: PartitionId) -> Option<Offset> {
        self.until.as_ref().and_then(|until| until.get(partition))
    }

    fn is_done(&self) -> bool {
        self.until
            .as_ref()
            .is_some_and(|until| self.memory.read().next.reaches(until))
    }

    /// Makes the consumer when one is needed.
    fn may_read(&mut self) -> bool {
        if !self.reads || self.is_over || self.waiting.is_some() || self.is_done() || self.is_disk_full() {
            return false;
        }
        if self.reader.is_some() {
            return true;
        }
        if Instant::now() < self.anew_at {
            return false;
        }
        let next = &self.memory.read().next;
        let is_left =
            |(partition, next): &(PartitionId, Offset)| self.end_of(*partition).is_none_or(|end| *next < end);
        let start: StartOffsets = next.iter().filter(is_left).collect();
        let settings = ReaderSettings {
            prefetch_bytes: self.bounds.prefetch,
            ..ReaderSettings::default()
        };
        let topic = &self.assignment.stream.topic;
        match Reader::start_with(self.warm.take(), &self.properties, topic, &start, settings) {
            Ok(reader) => {
                self.attention.wait_on(reader.nudge());
                self.reader = Some(reader);
                true
            }
            Err(error) => {
                self.fail(TaskEvent::Failed {
                    detail: error.to_string(),
                });
                false
            }
        }
    }

    /// A task that must get to its end reads on: what it holds is freed only then.
    fn is_disk_full(&mut self) -> bool {
        if self.until.is_some() {
            return false;
        }
        let (used, limit) = self.disk.budget().used_and_limit();
        let is_full = limit > 0 && (used >= limit || (self.was_full && used > limit / 4 * 3));
        // Only published parts make room, which a legacy task has not before its end.
        self.was_full = is_full && self.is_checkpointing();
        if is_full && self.memory.has_progress() {
            self.trigger(Trigger::Disk);
            return true;
        }
        match is_full.then_some((used, limit)) {
            Some((used, limit)) => {
                self.hinder(format!(
                    "reading waits for room on the disk: spilled rows and unpublished segments take {used} of {limit} \
                     bytes (runner.disk_limit)"
                ));
                true
            }
            None => false,
        }
    }

    fn on(&mut self, event: ReaderEvent) {
        match event {
            ReaderEvent::Batch(batch) => self.take(batch),
            ReaderEvent::PartitionEof { partition, offset } => {
                self.memory.advance(partition, offset, self.end_of(partition));
                self.unhinder();
            }
            ReaderEvent::OutOfRange {
                partition,
                wanted,
                low,
                ..
            } => self.out_of_range(partition, wanted, low),
            ReaderEvent::BeyondEnd {
                partition,
                wanted,
                high,
                ..
            } => {
                self.inbox.send(TaskEvent::BeyondEnd {
                    partition,
                    next: wanted,
                    high,
                });
            }
            ReaderEvent::Trouble(Trouble {
                kind: TroubleKind::Fatal,
                detail,
                ..
            }) => self.make_anew(&detail),
            ReaderEvent::Trouble(trouble) => {
                tracing::warn!(%trouble, "the consumer meets trouble");
                self.hinder(trouble.to_string());
            }
            ReaderEvent::Rebuilt { rebuilds } => {
                tracing::warn!(
                    rebuilds,
                    "the consumer was silent in spite of lag and is made anew"
                );
                self.metrics.count(
                    &families::CONSUMER_REBUILDS,
                    [self.assignment.supervisor.as_str()],
                    1,
                );
            }
            ReaderEvent::Ended { why } => self.make_anew(&why),
        }
    }

    fn make_anew(&mut self, why: &str) {
        tracing::warn!(why, "the consumer ended and is made anew");
        self.metrics.count(
            &families::CONSUMER_REBUILDS,
            [self.assignment.supervisor.as_str()],
            1,
        );
        self.hinder(format!("the Kafka client ended and is made anew: {why}"));
        self.reader = None;
        self.anew_at = Instant::now() + ANEW;
    }

    fn take(&mut self, mut batch: tidegate_kafka::Batch) {
        self.unhinder();
        let partition = batch.partition();
        let end = self.end_of(partition);
        // The reader vouches for what it hands out; this also holds for what the task did with it. Gaps between
        // records are normal, one before a batch is not: its records would be lost without a trace.
        let stands = self.memory.next(partition);
        if let Some(next) = stands.filter(|next| batch.begins() > *next)
            && end.is_none_or(|end| next < end)
        {
            let begins = batch.begins();
            self.make_anew(&format!(
                "records of partition {partition} from offset {begins} on came while {next} is next"
            ));
            return;
        }
        let records = batch.len();
        let taken = self.memory.take(&mut batch, end, &self.allocator);
        self.live.advance(records as u64);
        match taken {
            Ok(()) => {}
            Err(Halt::NoSegment(NoSegment::Interrupted)) => {
                // Decoding works in place: what was not taken is read again.
                if let (Some(reader), Some(next)) = (&mut self.reader, self.memory.next(partition)) {
                    reader.seek(&[(partition, next)].into_iter().collect());
                }
            }
            Err(Halt::Trigger(trigger)) => {
                self.left = Some(batch);
                self.trigger(trigger);
            }
            Err(Halt::NoSegment(NoSegment::Refused(detail))) => self.fail(TaskEvent::Failed { detail }),
            Err(Halt::Budget(detail)) => self.fail(TaskEvent::ParseBudgetExceeded { detail }),
        }
        if let (Some(end), Some(next), Some(reader)) = (end, self.memory.next(partition), &self.reader)
            && next >= end
        {
            reader.pause(&[partition]);
        }
        self.is_due |= self.memory.rows() >= self.bounds.rows || self.memory.bytes() >= self.bounds.bytes;
    }

    /// B21: never a jump that nobody asked for.
    fn out_of_range(&mut self, partition: PartitionId, wanted: Offset, low: Offset) {
        let end = self.end_of(partition);
        if self.spec.tuning.reset_offset_automatically {
            tracing::error!(%partition, %wanted, %low, "records were dropped by the broker before they were read");
            self.memory.skip_lost(partition, low, end);
            if let (Some(reader), Some(next)) = (&mut self.reader, self.memory.next(partition))
                && end.is_none_or(|end| next < end)
            {
                reader.seek(&[(partition, next)].into_iter().collect());
            }
            self.is_due = true; // the loss is durable before more is read
        } else {
            let lost = OffsetRange {
                start: wanted,
                end: low,
            };
            self.inbox.send(TaskEvent::OutOfRange { partition, lost });
        }
    }

    fn fail(&mut self, event: TaskEvent) {
        self.is_over = true;
        self.tell(true);
        self.inbox.send(event);
    }

    fn hinder(&mut self, what: String) {
        if !self.is_hindered {
            self.is_hindered = true;
            self.inbox.send(TaskEvent::Hindered(what));
        }
    }

    fn unhinder(&mut self) {
        if self.is_hindered {
            self.is_hindered = false;
            self.inbox.send(TaskEvent::Hindered(String::new()));
        }
    }

    /// Hands rows to the persister. While it is busy, nothing is read.
    fn persist(&mut self) {
        self.is_due |= self
            .memory
            .since()
            .is_some_and(|since| since.elapsed() >= self.bounds.period);
        loop {
            if self.waiting.is_none() {
                let ticket = self.tickets.pop_front();
                if ticket.is_none() && !self.is_due {
                    return;
                }
                self.is_due = false;
                self.waiting = Some(Box::new(self.memory.spill(ticket)));
                // Busy is told once per persist that waits, not per look.
                if let Some(job) = self.waiting.take()
                    && let Err(job) = self.persister.offer(*job)
                {
                    self.metrics
                        .count(&families::PERSIST_WAITS, [self.assignment.supervisor.as_str()], 1);
                    self.waiting = Some(job);
                    return;
                }
            } else if let Some(job) = self.waiting.take()
                && let Err(job) = self.persister.offer(*job)
            {
                self.waiting = Some(job);
                return;
            }
        }
    }

    /// Shows the numbers, now and then or at once.
    fn tell(&mut self, at_once: bool) {
        let is_done = self.is_done();
        if !at_once && !is_done && self.told.elapsed() < TELL {
            return;
        }
        self.told = Instant::now();
        self.live.set_memory(self.memory.bytes() + self.persister.bytes());
        let read = self.memory.read();
        let changed = self
            .live
            .get()
            .is_none_or(|shown| shown.next != read.next || shown.counts != read.counts);
        if changed {
            self.live.set(LiveReading {
                next: read.next.clone(),
                counts: read.counts,
                parse_errors: read.parse_errors.clone(),
            });
        }
        if changed || is_done {
            self.inbox.send(TaskEvent::ReadUpTo(read.next.clone()));
        }
        self.count();
    }

    fn count(&mut self) {
        let (now, before) = (self.memory.read().counts, self.counted);
        let supervisor = self.assignment.supervisor.as_str();
        for (outcome, by) in [
            ("accepted", now.accepted - before.accepted),
            ("rejected", now.rejected - before.rejected),
            ("unparseable", now.unparseable - before.unparseable),
            ("tombstone", now.tombstones - before.tombstones),
            ("empty", now.empty - before.empty),
            ("oversized", now.oversized - before.oversized),
        ] {
            if by > 0 {
                self.metrics.count(&families::ROWS, [supervisor, outcome], by);
            }
        }
        if now.bytes > before.bytes {
            self.metrics
                .count(&families::RECORD_BYTES, [supervisor], now.bytes - before.bytes);
        }
        self.counted = now;
    }
}
