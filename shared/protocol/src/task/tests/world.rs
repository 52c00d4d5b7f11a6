//! A topic, a disk, a catalog, and a shell that carries out a task's actions one at a time.

use std::collections::{BTreeMap, VecDeque};

use tidegate_types::{
    AssignmentToken, BaseSequenceName, DataSource, DecodeVersion, EndOffsets, Generation, GroupId, Interval,
    Offset, PartitionId, PartitionOffsets, SegmentId, SegmentVersion, StartOffsets, SupervisorId, TaskId,
    TimestampMillis,
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
    pub(super) allocations: BTreeMap<(PartitionId, Option<SegmentId>), SegmentId>,
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
    memory: BTreeMap<(PartitionId, SegmentId, u32), String>,
    unpersisted: usize,
    read: ReadState,
    until: Option<EndOffsets>,
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

pub(super) const SETTINGS: TaskSettings = TaskSettings {
    handoff_timeout_millis: 1000,
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
        let (machine, actions) = TaskMachine::assign(assignment, SETTINGS);
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

    fn process(&self, machine: TaskMachine, actions: Vec<TaskAction>) -> Process {
        let read = machine.record().read.clone();
        Process {
            sinks: Sinks::restore(&read, self.max_rows_per_segment),
            gone: false,
            machine,
            todo: actions.into(),
            memory: BTreeMap::new(),
            unpersisted: 0,
            read,
            until: None,
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
        let key = (request.partition, request.previous.clone());
        let year = request.row.0.div_euclid(YEAR);
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

    fn publish(&mut self, record: &TaskRecord) -> PublishAnswer {
        let end = record.end.clone().unwrap().end;
        let name = record.assignment.base_sequence_name.to_string();
        let outcome = if let Some(said) = self.publisher_says.pop_front() {
            said
        } else if self.finished.contains(&(name.clone(), end.clone())) {
            Outcome::AlreadyPublished
        } else if record
            .staged
            .iter()
            .any(|object| self.staged.get(&object.key) != Some(&object.sha256))
        {
            Outcome::BadObject
        } else if record
            .assignment
            .start
            .iter()
            .all(|(p, offset)| self.committed.get(p) == Some(offset))
        {
            self.committed = self.committed.plus(&end);
            for object in &record.staged {
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
                    .retain(|file, _| record.runs.iter().any(|run| run.file == *file));
                let lost = self
                    .machine
                    .record()
                    .runs
                    .iter()
                    .find(|run| world.files.get(&run.file) != Some(&run.sha256));
                let state = lost.map_or(LocalState::Intact, |run| LocalState::Lost(run.file.clone()));
                self.tell(world, TaskEvent::Opened(state));
            }
            TaskAction::Read { until } => {
                if !self.reads && self.until.is_none() && self.unpersisted == 0 && self.memory.is_empty() {
                    self.read = self.machine.record().read.clone();
                    self.read.next = self.machine.next().clone();
                    self.sinks = Sinks::restore(&self.machine.record().read, world.max_rows_per_segment);
                }
                self.until = until;
                self.reads = true;
            }
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
            TaskAction::Merge => {
                let merged = self.merge(world);
                self.tell(world, TaskEvent::Merged(merged));
            }
            TaskAction::Upload { segments } => {
                for segment in segments {
                    let key = world.name("staging/");
                    world.staged.insert(key.clone(), segment.sha256.clone());
                    let object = StagedObject {
                        segment: segment.segment,
                        key,
                        bytes: segment.bytes,
                        sha256: segment.sha256,
                    };
                    self.tell(world, TaskEvent::Uploaded(object));
                }
            }
            TaskAction::Publish { .. } => {
                let saved: TaskRecord = serde_json::from_str(world.record.as_ref().unwrap()).unwrap();
                assert!(saved.may_have_published, "durable before it is sent");
                let answer = world.publish(&saved);
                self.tell(world, TaskEvent::PublishAnswered(answer));
            }
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
        for ((partition, segment, ordinal), rows) in std::mem::take(&mut self.memory) {
            let file = world.name("run");
            world.files.insert(file.clone(), rows.clone());
            runs.push(Run {
                partition,
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

    fn merge(&self, world: &World) -> Vec<MergedSegment> {
        let record = self.machine.record();
        let one = |(partition, sink): (PartitionId, &Sink)| {
            let runs = record.runs.iter().filter(|run| run.segment == sink.segment);
            let rows: String = runs.map(|run| world.files[&run.file].as_str()).collect();
            MergedSegment {
                partition,
                segment: sink.segment.clone(),
                file: "m".into(),
                bytes: rows.len() as u64,
                rows: rows.len() as u64,
                input_rows: sink.rows,
                first: sink.first,
                end: sink.end,
                sha256: rows,
                writer_version: String::new(),
                unknown: Unknown::new(),
            }
        };
        record.read.segments().map(one).collect()
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
                    let key = loop {
                        match self.sinks.route(partition, time) {
                            Route::To(key) => break key,
                            Route::Allocate(request) => {
                                let id = world.allocate(&request);
                                self.sinks.open(partition, id, offset);
                            }
                        }
                    };
                    self.sinks.take(key, offset);
                    let segment = self.sinks.segment(key).unwrap().clone();
                    self.memory
                        .entry((partition, segment, key.ordinal))
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
        true
    }
}
