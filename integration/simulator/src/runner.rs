//! A task-runner: a disk that survives, and tasks that a crash ends. The shell around the real task machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidegate_protocol::group::{TaskPhase, TaskReport, TaskState};
use tidegate_protocol::publish::{GroupMode, PublishRequest, SegmentFile, StreamId};
use tidegate_protocol::sequence::{Progress, Seen, Sequence, progress};
use tidegate_protocol::task::{
    Answer, Ending, GroupMode as TaskMode, Life, LocalState, MergedSegment, Part, ReadState, Route,
    RowCounts, Run, Sinks, Snapshot, Step, TaskAction, TaskEvent, TaskMachine, TaskRecord, TaskSettings,
    Ticket, Trigger, Unknown,
};
use tidegate_types::{
    AssignmentToken, EndOffsets, Epoch, Offset, PartitionId, SegmentId, SequenceId, TaskId, TimestampMillis,
};

use crate::Mutant;
use crate::catalog::{Catalog, Publish, Row};
use crate::log::{HOUR, Log, Record};

/// What a crash leaves of a task.
#[derive(Debug, Clone, Default)]
pub(crate) struct Disk {
    /// The record as text: what does not survive serialization does not survive a crash.
    pub(crate) record: Option<String>,
    pub(crate) files: BTreeMap<String, Vec<Row>>,
}

/// A task in a living process.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) machine: TaskMachine,
    pub(crate) todo: VecDeque<(TaskAction, Option<u64>)>,
    /// Events that came while an earlier one's actions are under way.
    pub(crate) inbox: VecDeque<TaskEvent>,
    sinks: Sinks,
    memory: BTreeMap<(SequenceId, SegmentId, u32), Vec<Row>>,
    read: ReadState,
    until: Option<EndOffsets>,
    sequences: Vec<Sequence>,
    /// The reader was made; it is made once in a life.
    has_begun: bool,
    /// The open sequence has a full segment.
    full: bool,
    /// Segments that this task has published, and the merged files of segments.
    own: BTreeSet<SegmentId>,
    merged: BTreeMap<String, SegmentId>,
    pub(crate) reads: bool,
    pub(crate) wakes_at: Option<TimestampMillis>,
    pub(crate) awaits: Vec<SegmentId>,
    /// A step is under way; one chain of steps per task.
    pub(crate) stepping: bool,
    /// The checker is being asked.
    pub(crate) asking: bool,
    /// Grows with every action: what a finishing task shows as progress.
    pub(crate) progress: u64,
}

impl Task {
    pub(crate) fn new(machine: TaskMachine, actions: Vec<TaskAction>, call: Option<u64>) -> Self {
        let read = machine.record().read.clone();
        let mut task = Self {
            sinks: sinks(machine.record()),
            machine,
            todo: VecDeque::new(),
            inbox: VecDeque::new(),
            memory: BTreeMap::new(),
            read,
            until: None,
            sequences: Vec::new(),
            has_begun: false,
            full: false,
            own: BTreeSet::new(),
            merged: BTreeMap::new(),
            reads: false,
            wakes_at: None,
            awaits: Vec::new(),
            stepping: false,
            asking: false,
            progress: 0,
        };
        task.enqueue(actions, call);
        task
    }

    /// The answer among the actions belongs to this call.
    pub(crate) fn enqueue(&mut self, actions: Vec<TaskAction>, call: Option<u64>) {
        for part in &self.machine.record().parts {
            let merged = part.merged.iter().flatten();
            self.merged
                .extend(merged.map(|merged| (merged.file.clone(), merged.segment.clone())));
            self.own.extend(
                part.published
                    .iter()
                    .flat_map(|published| published.segments.iter().cloned()),
            );
        }
        self.todo.extend(actions.into_iter().map(|action| {
            let call = if matches!(action, TaskAction::Answer(_)) {
                call
            } else {
                None
            };
            (action, call)
        }));
    }

    pub(crate) fn report(&self) -> TaskReport {
        let view = self.machine.view();
        let record = view.record;
        let state = match view.life {
            Life::Starting { .. } => TaskState::Starting,
            Life::Reading { .. } => TaskState::Reading,
            Life::Paused => TaskState::Paused,
            Life::Finishing => TaskState::Finishing,
            Life::Stopping { .. } | Life::Left => TaskState::Stopping,
            Life::Ended(Ending::Published) => TaskState::Published,
            Life::Ended(Ending::Superseded) => TaskState::Superseded,
            Life::Ended(Ending::Stopped) => TaskState::Stopped,
            Life::Ended(Ending::Replaced) => TaskState::Replaced,
            Life::Ended(Ending::Failed) => TaskState::Failed,
        };
        let checkpoints = record.mode() == TaskMode::Checkpointing;
        let phase = match (view.life, view.step) {
            (Life::Finishing, Step::Handoff) => TaskPhase::Handoff,
            _ => TaskPhase::BeforeCommit,
        };
        TaskReport {
            task: record.assignment.task.clone(),
            group: Some(record.assignment.group.clone()),
            token: Some(record.assignment.token.clone()),
            state,
            phase,
            next: Some(view.next.clone()),
            decision_id: record
                .end()
                .map(|end| end.decision_id.clone())
                .unwrap_or_default(),
            counts: RowCounts::default(),
            reason: view.reason,
            first_read: record.first_read,
            progress: self.progress,
            alert: view.alert,
            open: record.open_part().map(|part| part.id).filter(|_| checkpoints),
            wants_checkpoint: view.wish.is_some() && view.life == Life::Paused,
            unpublished: record
                .unpublished()
                .next()
                .map(|part| part.id)
                .filter(|_| checkpoints),
        }
    }

    pub(crate) fn begin_reading(&mut self, until: Option<EndOffsets>, sequences: Vec<Sequence>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.read = self.machine.record().read.clone();
            self.read.next = self.machine.next().clone();
            self.sinks = sinks(self.machine.record());
        }
        self.sinks
            .retain(|id| sequences.iter().any(|sequence| sequence.id == id));
        self.memory
            .retain(|(id, ..), _| sequences.iter().any(|sequence| sequence.id == *id));
        self.sequences = sequences;
        self.full = false;
        self.until = until;
        self.reads = true;
    }

    pub(crate) fn stand_still(&mut self, ticket: Ticket) -> TaskEvent {
        self.reads = false;
        let next = if self.has_begun {
            self.read.next.clone()
        } else {
            self.machine.next().clone()
        };
        TaskEvent::StoodStill { ticket, next }
    }

    /// Spills what is in memory; the files are written before the record says so.
    pub(crate) fn persist(
        &mut self,
        disk: &mut Disk,
        ticket: Option<Ticket>,
        names: &mut u64,
        mutant: Option<Mutant>,
    ) -> TaskEvent {
        if !self.has_begun {
            let read = self.machine.record().read.clone();
            return TaskEvent::Persisted {
                ticket,
                snapshot: Box::new(Snapshot {
                    read,
                    runs: Vec::new(),
                }),
            };
        }
        self.read.sequences = self.sinks.sequences().clone();
        let mut runs = Vec::new();
        for ((sequence, segment, ordinal), mut rows) in std::mem::take(&mut self.memory) {
            if mutant == Some(Mutant::SpillLosesRow) && rows.len() > 1 {
                rows.pop();
            }
            *names += 1;
            let file = format!("run-{names}");
            runs.push(Run {
                sequence,
                segment,
                ordinal,
                file: file.clone(),
                bytes: rows.len() as u64,
                rows: rows.len() as u64,
                sha256: file.clone(),
                unknown: Unknown::new(),
            });
            disk.files.insert(file, rows);
        }
        let mut read = self.read.clone();
        if mutant == Some(Mutant::OffsetsBehindSpill) && ticket.is_none() {
            let start = &self.machine.record().assignment.start;
            for (partition, next) in self.read.next.iter() {
                if start.get(partition).is_some_and(|start| start < next) {
                    read.next.insert(partition, Offset(next.0 - 1));
                }
            }
        }
        TaskEvent::Persisted {
            ticket,
            snapshot: Box::new(Snapshot { read, runs }),
        }
    }

    pub(crate) fn merge(
        &self,
        id: SequenceId,
        disk: &mut Disk,
        names: &mut u64,
        mutant: Option<Mutant>,
    ) -> TaskEvent {
        let record = self.machine.record();
        let mut merged = Vec::new();
        let segments = record
            .part(id)
            .into_iter()
            .flat_map(|part| record.segments_of(part));
        for (sequence, sink) in segments {
            let rows: Vec<Row> = record
                .runs
                .iter()
                .filter(|run| run.segment == sink.segment)
                .rev()
                .take(if mutant == Some(Mutant::MergeTakesNewestRun) {
                    1
                } else {
                    usize::MAX
                })
                .flat_map(|run| disk.files.get(&run.file).cloned().unwrap_or_default())
                .collect();
            *names += 1;
            let file = format!("merged-{names}");
            merged.push(MergedSegment {
                sequence,
                segment: sink.segment.clone(),
                file: file.clone(),
                bytes: rows.len() as u64,
                sha256: file.clone(),
                rows: rows.len() as u64,
                input_rows: sink.rows,
                extent: sink.extent.clone(),
                writer_version: String::new(),
                unknown: Unknown::new(),
            });
            disk.files.insert(file, rows);
        }
        TaskEvent::Merged {
            part: id,
            segments: merged,
        }
    }

    /// Is every file of the record there? Files that no record names are removed.
    pub(crate) fn open(&self, disk: &mut Disk, mutant: Option<Mutant>) -> TaskEvent {
        let record = self.machine.record();
        let merged = record.unpublished().flat_map(|part| part.merged.iter().flatten());
        let known: BTreeSet<&str> = record.files().map(|(file, ..)| file).collect();
        disk.files.retain(|file, _| known.contains(file.as_str()));
        if mutant == Some(Mutant::RestoredWithoutRows) {
            disk.files.values_mut().for_each(Vec::clear);
        }
        let is_blind = mutant == Some(Mutant::MissingFilesUnnoticed);
        let missing = |file: &String| !is_blind && !disk.files.contains_key(file);
        let state = if let Some(run) = record.runs.iter().find(|run| missing(&run.file)) {
            LocalState::Lost(run.file.clone())
        } else if { merged }.any(|segment| missing(&segment.file)) {
            LocalState::MergedLost
        } else {
            LocalState::Intact
        };
        TaskEvent::Opened(state)
    }

    /// The publish of what is durable.
    pub(crate) fn publish(record: &TaskRecord, part: &Part) -> Publish {
        let assignment = &record.assignment;
        let stream = StreamId {
            topic: assignment.stream.topic.clone(),
            cluster: assignment.stream.cluster_id.clone(),
            incarnation: assignment.stream.topic_id.clone(),
        };
        let segments = part
            .merged
            .iter()
            .flatten()
            .filter_map(|merged| {
                let staged = part.staged_object(&merged.segment)?;
                let (first_offsets, end_offsets) = merged.extent.offsets(merged.sequence);
                Some(SegmentFile {
                    id: merged.segment.clone(),
                    sequence: record.sequence_name(merged.sequence),
                    key: staged.key.clone(),
                    size_bytes: staged.bytes,
                    sha256: staged.sha256.clone(),
                    rows: merged.rows,
                    input_rows: merged.input_rows,
                    first_offsets,
                    end_offsets,
                    writer_version: String::new(),
                })
            })
            .collect();
        Publish {
            request: PublishRequest {
                supervisor: assignment.supervisor.clone(),
                group: assignment.group.clone(),
                base: assignment.base_sequence_name.clone(),
                generation: assignment.generation,
                token: assignment.token.clone(),
                mode: match record.mode() {
                    TaskMode::Legacy => GroupMode::Legacy,
                    TaskMode::Checkpointing => GroupMode::Checkpointing,
                },
                stream,
                sequences: record.sequences_of(part),
                segments,
            },
        }
    }

    /// Reads one record of one partition; `Ok(None)` when nothing can be read now, `Err` when no segment could be
    /// allocated.
    pub(crate) fn read_one(
        &mut self,
        log: &Log,
        catalog: &mut Catalog,
        publisher_is_up: bool,
        now: TimestampMillis,
        choice: usize,
    ) -> Option<TaskEvent> {
        let partitions: Vec<(PartitionId, Offset)> = self.read.next.iter().collect();
        for turn in 0..partitions.len() {
            let (partition, next) = partitions[(choice + turn) % partitions.len()];
            let end = self.until.as_ref().and_then(|end| end.get(partition));
            if end.is_some_and(|end| next >= end) {
                continue;
            }
            let last = log.end(partition);
            let found = (next.0..last.0)
                .map(Offset)
                .find(|offset| log.at(partition, *offset) != Some(Record::Gap));
            let seen = found.map_or(Seen::EndOfLog(last), Seen::Record);
            let (next, taken) = match progress(next, end, seen) {
                Progress::Take { next } => (next, found),
                Progress::Moved { next } | Progress::Complete { next, .. } => (next, None),
                Progress::Behind | Progress::Same | Progress::Expired { .. } => continue,
            };
            if let Some(offset) = taken
                && !self.take(partition, offset, log, catalog, publisher_is_up, now)
            {
                continue;
            }
            self.read.next.insert(partition, next);
            return Some(TaskEvent::ReadUpTo(self.read.next.clone()));
        }
        None
    }

    fn take(
        &mut self,
        partition: PartitionId,
        offset: Offset,
        log: &Log,
        catalog: &mut Catalog,
        publisher_is_up: bool,
        now: TimestampMillis,
    ) -> bool {
        match log.at(partition, offset) {
            Some(Record::Row { hour }) => {
                let time = TimestampMillis(hour * HOUR + 1);
                let holds = |sequence: &&Sequence| sequence.contains(partition, offset);
                let Some((sequence, is_open)) = self
                    .sequences
                    .iter()
                    .find(holds)
                    .map(|sequence| (sequence.id, sequence.is_open()))
                else {
                    return false;
                };
                let key = loop {
                    match self.sinks.route(sequence, time) {
                        Route::To(key) => break key,
                        Route::Allocate(request) => {
                            let record = self.machine.record();
                            let name = record.sequence_name(sequence);
                            let generation = record.assignment.generation;
                            let id = publisher_is_up
                                .then(|| catalog.allocate(&name, &request, generation, now))
                                .flatten();
                            let Some(id) = id else {
                                return false;
                            };
                            self.sinks.open(sequence, id, offset);
                        }
                    }
                };
                let filled = self.sinks.take(key, partition, offset, 1);
                let checkpoints = self.machine.record().mode() == TaskMode::Checkpointing;
                self.full |= checkpoints && is_open && filled.rows >= MAX_ROWS;
                if let Some(segment) = self.sinks.segment(key).cloned() {
                    self.memory
                        .entry((sequence, segment, key.ordinal))
                        .or_default()
                        .push((partition, offset));
                }
                self.read.counts.accepted += 1;
            }
            Some(Record::Unparseable) => self.read.counts.unparseable += 1,
            Some(Record::Tombstone) => self.read.counts.tombstones += 1,
            Some(Record::Gap) | None => {}
        }
        true
    }

    pub(crate) fn rows_in_memory(&self) -> usize {
        self.memory.values().map(Vec::len).sum()
    }

    /// The open sequence is to be closed.
    pub(crate) fn is_full(&self) -> bool {
        self.full && self.until.is_none()
    }
    pub(crate) fn trigger(&mut self) -> TaskEvent {
        self.reads = false;
        TaskEvent::Triggered {
            trigger: Trigger::Rows,
            next: self.read.next.clone(),
        }
    }

    /// I9: a segment that this task has published and that nobody serves, when the task ends well with it.
    pub(crate) fn drops_unserved(&self, catalog: &Catalog) -> Option<SegmentId> {
        let record = self.machine.record();
        let ended = record.ended.as_ref()?;
        if ended.ending != Ending::Published || !record.alert.is_empty() {
            return None;
        }
        self.own
            .iter()
            .find(|segment| !catalog.is_served(segment))
            .cloned()
    }
    /// The same when files of a part go.
    pub(crate) fn drops_unserved_files(&self, files: &[String], catalog: &Catalog) -> Option<SegmentId> {
        files
            .iter()
            .filter_map(|file| self.merged.get(file))
            .find(|segment| self.own.contains(segment) && !catalog.is_served(segment))
            .cloned()
    }
}

fn sinks(record: &TaskRecord) -> Sinks {
    let full_at = (record.mode() == TaskMode::Legacy).then_some(MAX_ROWS);
    Sinks::restore(&record.read, full_at)
}

/// Small, so that segments are moved out all the time.
const MAX_ROWS: u64 = 7;

/// One runner.
#[derive(Debug, Default)]
pub(crate) struct Runner {
    pub(crate) up: bool,
    /// Number of its process life; what was sent to an earlier one is not for this one.
    pub(crate) life: u64,
    /// The highest epoch that it has seen; durable.
    pub(crate) epoch: Epoch,
    pub(crate) tasks: BTreeMap<TaskId, Task>,
    pub(crate) disks: BTreeMap<TaskId, Disk>,
    /// Tasks made ready for a group to come, and since when they are connected.
    pub(crate) prepared: BTreeMap<TaskId, (AssignmentToken, TimestampMillis)>,
}

impl Runner {
    /// Every task whose record is readable is restored.
    pub(crate) fn restart(&mut self, settings: TaskSettings) {
        self.up = true;
        self.life += 1;
        for (id, disk) in &self.disks {
            let Some(record) = disk
                .record
                .as_ref()
                .and_then(|text| serde_json::from_str::<TaskRecord>(text).ok())
            else {
                continue;
            };
            let (machine, actions) = TaskMachine::restore(record, settings);
            self.tasks.insert(id.clone(), Task::new(machine, actions, None));
        }
        self.disks.retain(|_, disk| disk.record.is_some());
    }

    pub(crate) fn crash(&mut self) {
        self.up = false;
        self.life += 1;
        self.tasks.clear();
        self.prepared.clear();
    }

    /// Everything that it says, prepared tasks too.
    pub(crate) fn reports(&self, now: TimestampMillis) -> Vec<TaskReport> {
        let prepared = self
            .prepared
            .iter()
            .map(|(task, (token, connected))| prepared_report(task, token, *connected <= now));
        self.tasks.values().map(Task::report).chain(prepared).collect()
    }

    pub(crate) fn occupied(&self) -> u32 {
        self.tasks
            .values()
            .filter(|task| !matches!(task.machine.life(), Life::Ended(_)))
            .count() as u32
            + self.prepared.len() as u32
    }
}

/// A prepared task as its runner tells it.
pub(crate) fn prepared_report(task: &TaskId, token: &AssignmentToken, connected: bool) -> TaskReport {
    TaskReport {
        task: task.clone(),
        group: None,
        token: Some(token.clone()),
        state: if connected {
            TaskState::Prepared
        } else {
            TaskState::Preparing
        },
        phase: TaskPhase::BeforeCommit,
        next: None,
        decision_id: String::new(),
        counts: RowCounts::default(),
        reason: String::new(),
        first_read: None,
        progress: 0,
        alert: String::new(),
        open: None,
        wants_checkpoint: false,
        unpublished: None,
    }
}

/// What a call to a task is answered with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    Answer(Answer),
    Refused(String),
    Unknown,
}
