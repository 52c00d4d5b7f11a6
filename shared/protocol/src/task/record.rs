//! What a restored task must know, as one document: it is replaced as a whole, never changed in place (D47).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_types::{
    AssignmentToken, BaseSequenceName, ClusterId, DecodeVersion, EndOffsets, Generation, GroupId, Offset,
    OffsetRange, PartitionId, PartitionOffsets, SegmentId, SequenceName, StartOffsets, SupervisorId, TaskId,
    TimestampMillis, TopicId,
};

use super::sinks::Sink;
use crate::sequence::{Sequence, legacy_sequence_name, legacy_sequences};

/// Fields that a newer version wrote; kept and written back.
pub type Unknown = BTreeMap<String, Value>;

/// How a group publishes. A document with another word does not deserialize: the task is replaced, never
/// treated as legacy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupMode {
    Legacy,
}

/// One incarnation of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    pub topic: String,
    #[serde(default)]
    pub cluster_id: ClusterId,
    #[serde(default)]
    pub topic_id: TopicId,
}

/// Everything that a task was told when it was made; frozen for its life (I3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub task: TaskId,
    pub token: AssignmentToken,
    pub supervisor: SupervisorId,
    pub group: GroupId,
    pub generation: Generation,
    pub base_sequence_name: BaseSequenceName,
    pub mode: GroupMode,
    pub stream: Stream,
    pub start: StartOffsets,
    /// Set when the group's end was decided before this task was made.
    pub end: Option<EndDecision>,
    /// The normalized spec.
    pub spec_json: String,
    pub spec_version: u32,
    /// Inclusive.
    pub minimum_message_time: Option<TimestampMillis>,
    /// Inclusive.
    pub maximum_message_time: Option<TimestampMillis>,
    pub decode_version: DecodeVersion,
    #[serde(default)]
    pub trace_parent: String,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// The end of a group, as decided in the checkpoint log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndDecision {
    pub decision_id: String,
    pub end: EndOffsets,
}

/// What became of the records that were read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RowCounts {
    pub accepted: u64,
    /// After roll-up; known when merged.
    pub stored: u64,
    pub rejected: u64,
    pub unparseable: u64,
    pub filtered: u64,
    pub tombstones: u64,
    pub empty: u64,
    pub oversized: u64,
    pub bytes: u64,
}

impl RowCounts {
    /// Records of all outcomes together.
    pub fn records(&self) -> u64 {
        self.accepted
            + self.rejected
            + self.unparseable
            + self.filtered
            + self.tombstones
            + self.empty
            + self.oversized
    }
    pub fn add(&mut self, other: &Self) {
        self.accepted += other.accepted;
        self.stored += other.stored;
        self.rejected += other.rejected;
        self.unparseable += other.unparseable;
        self.filtered += other.filtered;
        self.tombstones += other.tombstones;
        self.empty += other.empty;
        self.oversized += other.oversized;
        self.bytes += other.bytes;
    }
}

/// One record that gave no row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParseErrorRecord {
    pub partition: PartitionId,
    pub offset: Offset,
    /// Empty when it is the whole record.
    pub field: String,
    pub reason: String,
    /// A bounded piece of the record as text.
    pub sample: String,
    pub at: TimestampMillis,
}

/// One sequence as far as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceState {
    /// The last segment id that this sequence was given: the lineage of the next request.
    pub last_segment: Option<SegmentId>,
    /// Segments that still take rows, in order of their intervals.
    #[serde(default)]
    pub sinks: Vec<Sink>,
    /// Segments that are full.
    #[serde(default)]
    pub full: Vec<Sink>,
}

/// The reader's whole state between two records: rows, lineage, counts and next offsets of one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadState {
    /// Next records to read: everything below was accepted into a run, or counted (D3).
    pub next: PartitionOffsets,
    pub sequences: BTreeMap<PartitionId, SequenceState>,
    pub counts: RowCounts,
    /// The first bad record of the task's life, kept whatever is saved (B05, B66).
    #[serde(default)]
    pub first_parse_error: Option<ParseErrorRecord>,
    /// The newest ones, as many as the spec asks for.
    #[serde(default)]
    pub parse_errors: Vec<ParseErrorRecord>,
    /// Ranges that the broker had dropped before they were read.
    #[serde(default)]
    pub lost: Vec<LostRange>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// Offsets that can never be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRange {
    pub partition: PartitionId,
    pub range: OffsetRange,
}

impl ReadState {
    /// Nothing read yet.
    pub fn at(start: &StartOffsets) -> Self {
        Self {
            next: start.clone(),
            sequences: start
                .partitions()
                .map(|partition| (partition, SequenceState::default()))
                .collect(),
            counts: RowCounts::default(),
            first_parse_error: None,
            parse_errors: Vec::new(),
            lost: Vec::new(),
            unknown: Unknown::new(),
        }
    }
    /// All segments that were given to this task, in order of sequence.
    pub fn segments(&self) -> impl Iterator<Item = (PartitionId, &Sink)> {
        self.sequences.iter().flat_map(|(partition, sequence)| {
            sequence
                .full
                .iter()
                .chain(&sequence.sinks)
                .map(|sink| (*partition, sink))
        })
    }
}

/// A sorted spilled run of one segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub partition: PartitionId,
    pub segment: SegmentId,
    /// Which of its sequence and interval's segments this is, from 0.
    pub ordinal: u32,
    /// File name in the task's folder.
    pub file: String,
    pub bytes: u64,
    /// Lower-case hex.
    pub sha256: String,
    pub rows: u64,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// What one persist made durable: all rows below `read.next` that no earlier run held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub read: ReadState,
    pub runs: Vec<Run>,
}

/// A finished segment file in the task's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedSegment {
    pub partition: PartitionId,
    pub segment: SegmentId,
    /// File name in the task's folder.
    pub file: String,
    pub bytes: u64,
    /// Lower-case hex.
    pub sha256: String,
    /// After roll-up.
    pub rows: u64,
    /// Before roll-up.
    pub input_rows: u64,
    /// First accepted record.
    pub first: Offset,
    /// Behind the last accepted record.
    pub end: Offset,
    #[serde(default)]
    pub writer_version: String,
    #[serde(flatten)]
    pub unknown: Unknown,
}

/// A segment's upload that stands complete in the object store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedObject {
    pub segment: SegmentId,
    pub key: String,
    pub bytes: u64,
    pub sha256: String,
}

/// The commit is known; what is left is the handoff (D11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// All segments that this task published.
    pub segments: Vec<SegmentId>,
    /// Positions in `segments` of those that the serving tier has.
    #[serde(default)]
    pub handed_off: BTreeSet<usize>,
    /// When the commit became known; the handoff time-out counts from here.
    pub at: TimestampMillis,
}

impl Published {
    /// Segments that nobody serves yet.
    pub fn waiting(&self) -> Vec<SegmentId> {
        let is_waiting =
            |(index, id): (usize, &SegmentId)| (!self.handed_off.contains(&index)).then(|| id.clone());
        self.segments.iter().enumerate().filter_map(is_waiting).collect()
    }
}

/// How a task ended (D29).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Its rows are in the catalog, by its own commit.
    Published,
    /// Its rows are in the catalog, by another replica.
    Superseded,
    /// On request, without publishing.
    Stopped,
    /// Another task takes its place.
    Replaced,
    /// By an error.
    Failed,
}

/// The last thing that a record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    pub ending: Ending,
    /// One line for a person; empty when all is well.
    pub reason: String,
    pub at: TimestampMillis,
    /// True: the local rows were persisted and kept; an equal assignment opens the task again.
    pub kept: bool,
}

/// The durable record of a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    pub assignment: Assignment,
    /// As of the last persist.
    pub read: ReadState,
    /// Acknowledged end (D28).
    pub end: Option<EndDecision>,
    /// When it first read, or was ready to; the task duration counts from here, over restarts.
    pub first_read: Option<TimestampMillis>,
    pub runs: Vec<Run>,
    /// Set when everything was merged.
    pub merged: Option<Vec<MergedSegment>>,
    pub staged: Vec<StagedObject>,
    /// A publish was sent whose outcome is not known: an "already published" may be our own.
    pub may_have_published: bool,
    pub published: Option<Published>,
    /// An alert that is no failure.
    #[serde(default)]
    pub alert: String,
    /// Committed offsets that the publisher named when it refused.
    #[serde(default)]
    pub committed: Option<PartitionOffsets>,
    pub ended: Option<Ended>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl TaskRecord {
    /// The record of a task that has done nothing yet.
    pub fn new(assignment: Assignment) -> Self {
        Self {
            read: ReadState::at(&assignment.start),
            end: assignment.end.clone(),
            assignment,
            first_read: None,
            runs: Vec::new(),
            merged: None,
            staged: Vec::new(),
            may_have_published: false,
            published: None,
            alert: String::new(),
            committed: None,
            ended: None,
            unknown: Unknown::new(),
        }
    }

    /// Forgets every row: reading begins again at the start of the assignment (B56). The end that was
    /// acknowledged and a commit that is known stay.
    pub fn forget_rows(&mut self) {
        self.read = ReadState::at(&self.assignment.start);
        self.runs.clear();
        self.merged = None;
        self.staged.clear();
    }

    /// The sequences of this task.
    pub fn sequences(&self) -> Vec<Sequence> {
        let end = self.end.as_ref().map(|decision| &decision.end);
        legacy_sequences(&self.assignment.base_sequence_name, &self.assignment.start, end)
    }

    /// The name of a partition's sequence.
    pub fn sequence_name(&self, partition: PartitionId) -> SequenceName {
        legacy_sequence_name(&self.assignment.base_sequence_name, partition)
    }

    /// True when every record below the acknowledged end is in a run or counted.
    pub fn is_read(&self) -> bool {
        self.end
            .as_ref()
            .is_some_and(|decision| self.read.next.reaches(&decision.end))
    }

    /// The staged object of a merged segment.
    pub fn staged_object(&self, segment: &SegmentId) -> Option<&StagedObject> {
        self.staged.iter().find(|object| object.segment == *segment)
    }

    /// True when every merged segment stands in the object store.
    pub fn is_staged(&self) -> bool {
        self.merged.as_ref().is_some_and(|merged| {
            merged
                .iter()
                .all(|segment| self.staged_object(&segment.segment).is_some())
        })
    }

    /// What must hold between two events; the text of the first thing that does not.
    pub fn broken(&self) -> Option<String> {
        let Self { read, assignment, .. } = self;
        if !read.next.same_partitions(&assignment.start) {
            return Some(format!(
                "next {} and start {} name other partitions",
                read.next, assignment.start
            ));
        }
        for (partition, next) in read.next.iter() {
            if assignment.start.get(partition).is_some_and(|start| next < start) {
                return Some(format!("partition {partition} stands before its start: {next}"));
            }
            let end = self.end.as_ref().and_then(|decision| decision.end.get(partition));
            if end.is_some_and(|end| next > end) {
                return Some(format!("partition {partition} was read beyond its end: {next}"));
            }
        }
        if self.merged.is_some() && !self.is_read() {
            return Some("merged before everything was read".to_owned());
        }
        if self.published.is_some() && self.end.is_none() {
            return Some("published without an end".to_owned());
        }
        let known: BTreeSet<&SegmentId> = read.segments().map(|(_, sink)| &sink.segment).collect();
        let stray = self.runs.iter().find(|run| !known.contains(&run.segment));
        stray.map(|run| format!("run {} has no segment", run.file))
    }
}
