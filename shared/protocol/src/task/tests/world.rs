//! A topic, a disk, a catalog, and a shell that carries out a task's actions one at a time.

use std::collections::{BTreeMap, VecDeque};

use tidegate_types::{
    AssignmentToken, BaseSequenceName, DataSource, DecodeVersion, EndOffsets, Generation, GroupId, Interval,
    Offset, PartitionId, PartitionOffsets, SegmentId, SegmentVersion, SequenceId, StartOffsets, SupervisorId,
    TaskId, TimestampMillis,
};

use super::super::*;
use crate::sequence::{Progress, Seen, progress};

pub(super) const YEAR: i64 = 31_556_952_000;

/// What a record of the topic holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rec {
    /// A row: year and letter.
    Row(i64, char),
    Unparseable,
    Tombstone,
    OutOfTime,
    /// An offset that is never delivered.
    Gap,
}

/// The record set of the original's tests.
pub(super) fn records() -> BTreeMap<PartitionId, Vec<Rec>> {
    use Rec::{OutOfTime, Row, Tombstone, Unparseable};
    BTreeMap::from([
        (
            PartitionId(0),
            vec![
                Row(2008, 'a'),
                Row(2009, 'b'),
                Row(2010, 'c'),
                Row(2011, 'd'),
                Row(2011, 'e'),
                OutOfTime,
                Unparseable,
                Tombstone,
                Row(2013, 'f'),
            ],
        ),
        (PartitionId(1), vec![Row(2012, 'g'), Row(2011, 'h')]),
    ])
}

/// The durable things outside of the process.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) topic: BTreeMap<PartitionId, Vec<Rec>>,
    pub(super) record: Option<String>,
    pub(super) files: BTreeMap<String, String>,
    pub(super) staged: BTreeMap<String, String>,
    pub(super) committed: PartitionOffsets,
    /// Segment text form to rows, as committed.
    pub(super) catalog: BTreeMap<String, String>,
    pub(super) finished: Vec<(String, EndOffsets)>,
    pub(super) allocations: BTreeMap<(SequenceId, Option<SegmentId>, i64), SegmentId>,
    pub(super) numbers: BTreeMap<i64, u32>,
    pub(super) names: u64,
    pub(super) now: TimestampMillis,
    /// Answers that the publisher gives before it looks.
    pub(super) publisher_says: VecDeque<Outcome>,
    /// True: the publisher commits, and the answer is lost (once).
    pub(super) lose_answer: bool,
    pub(super) serves: bool,
    pub(super) minimum: Option<i64>,
    pub(super) maximum: Option<i64>,
    pub(super) max_rows_per_segment: u64,
    pub(super) persist_every: usize,
    pub(super) parse_limit: Option<u64>,
    pub(super) log: Vec<TaskAction>,
}

/// What a crash loses.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) machine: TaskMachine,
    todo: VecDeque<TaskAction>,
    sinks: Sinks,
    memory: BTreeMap<(SequenceId, SegmentId, u32), String>,
    unpersisted: usize,
    read: ReadState,
    until: Option<EndOffsets>,
    sequences: Vec<crate::sequence::Sequence>,
    pub(super) reads: bool,
    stops_at: Option<TimestampMillis>,
    awaits: Vec<SegmentId>,
    pub(super) gone: bool,
}

pub(super) fn assignment(start: &StartOffsets, name: &str) -> Assignment {
    Assignment {
        task: TaskId::new(format!("{name}_t")).unwrap(),
        token: AssignmentToken::new("token").unwrap(),
        supervisor: SupervisorId::new("wiki").unwrap(),
        group: GroupId::new("g").unwrap(),
        generation: Generation(0),
        base_sequence_name: BaseSequenceName::new(name).unwrap(),
        mode: GroupMode::Legacy,
        stream: Stream {
            topic: "wiki".into(),
            cluster_id: Default::default(),
            topic_id: Default::default(),
        },
        start: start.clone(),
        end: None,
        first_sequence: SequenceId(0),
        log: Vec::new(),
        spec_json: "{}".into(),
        spec_version: 1,
        minimum_message_time: None,
        maximum_message_time: None,
        decode_version: DecodeVersion(1),
        trace_parent: String::new(),
        unknown: Unknown::new(),
    }
}

pub(super) fn decision(end: &EndOffsets) -> EndDecision {
    EndDecision {
        decision_id: "d1".into(),
        end: end.clone(),
    }
}

pub(super) fn order(id: &str, end: EndOffsets) -> TaskEvent {
    TaskEvent::SetEndOffsets(LogEntry {
        sequence: SequenceId(0),
        decision: EndDecision {
            decision_id: id.into(),
            end,
        },
        finish: true,
    })
}

pub(super) const SETTINGS: TaskSettings = TaskSettings {
    handoff_timeout_millis: 1000,
    handoff_period_millis: None,
};

impl World {
    pub(super) fn new(committed: &StartOffsets) -> Self {
        Self {
            topic: records(),
            record: None,
            files: BTreeMap::new(),
            staged: BTreeMap::new(),
            committed: committed.clone(),
            catalog: BTreeMap::new(),
            finished: Vec::new(),
            allocations: BTreeMap::new(),
            numbers: BTreeMap::new(),
            names: 0,
            now: TimestampMillis(1_000_000),
            publisher_says: VecDeque::new(),
            lose_answer: false,
            serves: true,
            minimum: None,
            maximum: None,
            max_rows_per_segment: 5_000_000,
            persist_every: usize::MAX,
            parse_limit: None,
            log: Vec::new(),
        }
    }

    pub(super) fn start(&self, assignment: Assignment) -> Process {
        let (machine, actions) = TaskMachine::assign(assignment, SETTINGS, self.now);
        self.process(machine, actions)
    }

    /// After a crash: whatever the disk says; a task whose record was never saved is assigned again.
    pub(super) fn restart(&self, assignment: &Assignment) -> Process {
        match &self.record {
            None => self.start(assignment.clone()),
            Some(text) => {
                let (machine, actions) = TaskMachine::restore(serde_json::from_str(text).unwrap(), SETTINGS);
                self.process(machine, actions)
            }
        }
    }

    pub(super) fn process(&self, machine: TaskMachine, actions: Vec<TaskAction>) -> Process {
        let read = machine.record().read.clone();
        Process {
            sinks: sinks(
                &machine.record().read,
                machine.record().mode(),
                self.max_rows_per_segment,
            ),
            gone: false,
            machine,
            todo: actions.into(),
            memory: BTreeMap::new(),
            unpersisted: 0,
            read,
            until: None,
            sequences: Vec::new(),
            reads: false,
            stops_at: None,
            awaits: Vec::new(),
        }
    }

    fn name(&mut self, what: &str) -> String {
        self.names += 1;
        format!("{what}{}", self.names)
    }

    fn allocate(&mut self, request: &AllocationRequest) -> SegmentId {
        let year = request.row.0.div_euclid(YEAR);
        let interval = if request.by_interval { year } else { 0 };
        let key = (request.sequence, request.previous.clone(), interval);
        let numbers = &mut self.numbers;
        self.allocations
            .entry(key)
            .or_insert_with(|| {
                let number = numbers.entry(year).or_default();
                *number += 1;
                SegmentId {
                    data_source: DataSource::new("wiki").unwrap(),
                    interval: Interval::new(TimestampMillis(year * YEAR), TimestampMillis((year + 1) * YEAR))
                        .unwrap(),
                    version: SegmentVersion::new("v").unwrap(),
                    partition_num: *number - 1,
                }
            })
            .clone()
    }

    fn publish(&mut self, record: &TaskRecord, part: &Part) -> PublishAnswer {
        let end = part.end.clone().unwrap().end;
        let name = format!("{}_{}", record.assignment.base_sequence_name, part.id);
        let outcome = if let Some(said) = self.publisher_says.pop_front() {
            said
        } else if self.finished.contains(&(name.clone(), end.clone())) {
            Outcome::AlreadyPublished
        } else if part
            .staged
            .iter()
            .any(|object| self.staged.get(&object.key) != Some(&object.sha256))
        {
            Outcome::BadObject
        } else if part
            .start
            .iter()
            .all(|(p, offset)| self.committed.get(p) == Some(offset))
        {
            self.committed = self.committed.plus(&end);
            for object in &part.staged {
                self.catalog
                    .insert(year_and_number(&object.segment), object.sha256.clone());
            }
            self.finished.push((name, end));
            if std::mem::take(&mut self.lose_answer) {
                Outcome::Retryable
            } else {
                Outcome::Published
            }
        } else {
            Outcome::Mismatch
        };
        PublishAnswer {
            outcome,
            detail: "said so".into(),
            committed: Some(self.committed.clone()),
            segments: Vec::new(),
            retry_after_millis: 0,
        }
    }
}

fn sinks(read: &ReadState, mode: GroupMode, max_rows: u64) -> Sinks {
    Sinks::restore(read, (mode == GroupMode::Legacy).then_some(max_rows))
}

/// `2011#0`.
pub(super) fn year_and_number(id: &SegmentId) -> String {
    format!("{}#{}", id.interval.start().0 / YEAR, id.partition_num)
}

impl Process {
    pub(super) fn on(&mut self, world: &World, event: TaskEvent) -> Result<Vec<TaskAction>, Refusal> {
        let actions = self.machine.on(world.now, event)?;
        self.todo.extend(actions.clone());
        Ok(actions)
    }

    fn tell(&mut self, world: &World, event: TaskEvent) {
        if let Ok(actions) = self.machine.on(world.now, event) {
            self.todo.extend(actions);
        }
    }

    /// One action, or one record, or one wait; false when there is nothing to do.
    pub(super) fn step(&mut self, world: &mut World) -> bool {
        if self.gone {
            return false;
        }
        if let Some(action) = self.todo.pop_front() {
            world.log.push(action.clone());
            self.carry_out(world, action);
            return true;
        }
        if self.reads && self.read_one(world) {
            return true;
        }
        if !self.awaits.is_empty() && world.serves {
            let seen = std::mem::take(&mut self.awaits);
            let seen = seen
                .into_iter()
                .map(|segment| HandoffSeen {
                    segment,
                    served: true,
                })
                .collect();
            self.tell(world, TaskEvent::HandoffAnswered(seen));
            return true;
        }
        if let Some(at) = self.stops_at.take() {
            world.now = world.now.max(at);
            self.tell(world, TaskEvent::Wake);
            return true;
        }
        false
    }

    /// An action or a record, but no wait.
    pub(super) fn step_reading(&mut self, world: &mut World) -> bool {
        let waits = (std::mem::take(&mut self.awaits), self.stops_at.take());
        let stepped = self.step(world);
        if self.awaits.is_empty() {
            self.awaits = waits.0;
        }
        self.stops_at = self.stops_at.or(waits.1);
        stepped
    }

    pub(super) fn run(&mut self, world: &mut World) {
        for _ in 0..10_000 {
            if !self.step(world) {
                return;
            }
        }
        panic!("the task does not come to rest: {:?}", self.machine.life());
    }

    fn carry_out(&mut self, world: &mut World, action: TaskAction) {
        match action {
            TaskAction::Save => world.record = Some(serde_json::to_string(self.machine.record()).unwrap()),
            TaskAction::Answer(_) | TaskAction::Report => {}
            TaskAction::Open => {
                let record = self.machine.record();
                world
                    .files
                    .retain(|file, _| record.files().any(|(named, ..)| named == file));
                let lost = self
                    .machine
                    .record()
                    .runs
                    .iter()
                    .find(|run| world.files.get(&run.file) != Some(&run.sha256));
                let state = lost.map_or(LocalState::Intact, |run| LocalState::Lost(run.file.clone()));
                self.tell(world, TaskEvent::Opened(state));
            }
            TaskAction::Read { until, sequences } => {
                if !self.reads && self.until.is_none() && self.unpersisted == 0 && self.memory.is_empty() {
                    self.read = self.machine.record().read.clone();
                    self.read.next = self.machine.next().clone();
                    self.sinks = sinks(
                        &self.machine.record().read,
                        self.machine.record().mode(),
                        world.max_rows_per_segment,
                    );
                }
                self.sinks
                    .retain(|id| sequences.iter().any(|sequence| sequence.id == id));
                self.sequences = sequences;
                self.until = until;
                self.reads = true;
            }
            TaskAction::StopReading => self.reads = false,
            TaskAction::StandStill { ticket } => {
                self.reads = false;
                self.tell(
                    world,
                    TaskEvent::StoodStill {
                        ticket,
                        next: self.read.next.clone(),
                    },
                );
            }
            TaskAction::Persist { ticket } => self.persist(world, Some(ticket)),
            TaskAction::Merge { part } => {
                let segments = self.merge(world, part);
                self.tell(world, TaskEvent::Merged { part, segments });
            }
            TaskAction::Upload { part, segments } => {
                for segment in segments {
                    let key = world.name("staging/");
                    world.staged.insert(key.clone(), segment.sha256.clone());
                    let object = StagedObject {
                        segment: segment.segment,
                        key,
                        bytes: segment.bytes,
                        sha256: segment.sha256,
                    };
                    self.tell(world, TaskEvent::Uploaded { part, object });
                }
            }
            TaskAction::Publish { part, .. } => {
                let saved: TaskRecord = serde_json::from_str(world.record.as_ref().unwrap()).unwrap();
                let saved_part = saved.part(part).unwrap();
                assert!(saved_part.may_have_published, "durable before it is sent");
                let answer = world.publish(&saved, saved_part);
                self.tell(world, TaskEvent::PublishAnswered { part, answer });
            }
            TaskAction::DropFiles { files } => world.files.retain(|file, _| !files.contains(file)),
            TaskAction::AwaitHandoff { segments } => self.awaits = segments,
            TaskAction::WakeAt(at) => self.stops_at = Some(at),
            TaskAction::StopWork => {
                self.reads = false;
                self.awaits.clear();
                self.stops_at = None;
            }
            TaskAction::DiscardRows | TaskAction::DropLocal => world.files.clear(),
            TaskAction::End(_) | TaskAction::Leave => self.gone = true,
        }
    }

    fn persist(&mut self, world: &mut World, ticket: Option<Ticket>) {
        self.read.sequences = self.sinks.sequences().clone();
        let mut runs = Vec::new();
        for ((sequence, segment, ordinal), rows) in std::mem::take(&mut self.memory) {
            let file = world.name("run");
            world.files.insert(file.clone(), rows.clone());
            runs.push(Run {
                sequence,
                segment,
                ordinal,
                file,
                bytes: rows.len() as u64,
                rows: rows.len() as u64,
                sha256: rows,
                unknown: Unknown::new(),
            });
        }
        self.unpersisted = 0;
        let snapshot = Box::new(Snapshot {
            read: self.read.clone(),
            runs,
        });
        self.tell(world, TaskEvent::Persisted { ticket, snapshot });
    }

    fn merge(&self, world: &mut World, part: SequenceId) -> Vec<MergedSegment> {
        let record = self.machine.record();
        let part = record.part(part).unwrap();
        let mut merged = Vec::new();
        for (sequence, sink) in record.segments_of(part) {
            let runs = record.runs_of(part).filter(|run| run.segment == sink.segment);
            let rows: String = runs.map(|run| world.files[&run.file].as_str()).collect();
            let file = world.name("merged");
            world.files.insert(file.clone(), rows.clone());
            merged.push(MergedSegment {
                sequence,
                segment: sink.segment.clone(),
                file,
                bytes: rows.len() as u64,
                rows: rows.len() as u64,
                input_rows: sink.rows,
                extent: sink.extent.clone(),
                sha256: rows,
                writer_version: String::new(),
                unknown: Unknown::new(),
            });
        }
        merged
    }

    fn read_one(&mut self, world: &mut World) -> bool {
        let ready = self.read.next.iter().find_map(|(partition, next)| {
            let end = self.until.as_ref().and_then(|end| end.get(partition));
            if end.is_some_and(|end| next >= end) {
                return None;
            }
            let log = &world.topic[&partition];
            let found = (usize::try_from(next.0).unwrap()..log.len()).find(|at| log[*at] != Rec::Gap);
            let seen = match found {
                Some(at) => Seen::Record(Offset(at as i64)),
                None => Seen::EndOfLog(Offset(log.len() as i64)),
            };
            match progress(next, end, seen) {
                Progress::Take { next } => Some((partition, next, found)),
                Progress::Moved { next } | Progress::Complete { next, .. } => Some((partition, next, None)),
                Progress::Behind | Progress::Same | Progress::Expired { .. } => None,
            }
        });
        let Some((partition, next, found)) = ready else {
            return false;
        };
        let mut filled = 0;
        if let Some(at) = found {
            let offset = Offset(at as i64);
            match world.topic[&partition][at] {
                Rec::Row(year, _) if world.minimum.is_some_and(|minimum| year < minimum) => {
                    self.read.counts.rejected += 1;
                }
                Rec::Row(year, _) if world.maximum.is_some_and(|maximum| year > maximum) => {
                    self.read.counts.rejected += 1;
                }
                Rec::Row(year, letter) => {
                    let time = TimestampMillis(year * YEAR + 1);
                    let holds = |sequence: &&crate::sequence::Sequence| sequence.contains(partition, offset);
                    let sequence = self.sequences.iter().find(holds).unwrap().id;
                    let key = loop {
                        match self.sinks.route(sequence, time) {
                            Route::To(key) => break key,
                            Route::Allocate(request) => {
                                let id = world.allocate(&request);
                                self.sinks.open(sequence, id, offset);
                            }
                        }
                    };
                    filled = self.sinks.take(key, partition, offset, 1).rows;
                    if self.machine.record().mode() == GroupMode::Checkpointing {
                        let counts = &mut self.sinks.sequence_mut(sequence).counts;
                        counts.get_or_insert_default().accepted += 1;
                    }
                    let segment = self.sinks.segment(key).unwrap().clone();
                    self.memory
                        .entry((sequence, segment, key.ordinal))
                        .or_default()
                        .push(letter);
                    self.read.counts.accepted += 1;
                }
                Rec::Tombstone => self.read.counts.tombstones += 1,
                Rec::Unparseable | Rec::OutOfTime => {
                    self.read.counts.unparseable += 1;
                    if world
                        .parse_limit
                        .is_some_and(|limit| self.read.counts.unparseable > limit)
                    {
                        let detail = format!("partition {partition} offset {offset} is not parseable");
                        self.tell(world, TaskEvent::ParseBudgetExceeded { detail });
                        return true;
                    }
                }
                Rec::Gap => {}
            }
        }
        self.read.next.insert(partition, next);
        self.unpersisted += 1;
        if self.unpersisted >= world.persist_every {
            self.persist(world, None);
        }
        self.tell(world, TaskEvent::ReadUpTo(self.read.next.clone()));
        let is_checkpointing = self.machine.record().mode() == GroupMode::Checkpointing;
        if is_checkpointing && filled >= world.max_rows_per_segment && self.until.is_none() {
            self.reads = false;
            let event = TaskEvent::Triggered {
                trigger: Trigger::Rows,
                next: self.read.next.clone(),
            };
            self.tell(world, event);
        }
        true
    }
}
