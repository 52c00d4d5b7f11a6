//! What a restored task must know, as one document: it is replaced as a whole, never changed in place (D47).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_types::{
    AssignmentToken, BaseSequenceName, ClusterId, DecodeVersion, Generation, GroupId, Offset, OffsetRange,
    PartitionId, PartitionOffsets, SegmentId, SequenceId, SequenceName, StartOffsets, SupervisorId, TaskId,
    TimestampMillis, TopicId,
};

use super::part::{EndDecision, LogEntry, Part};
use super::sinks::Sink;
use super::stored::StoredRecord;
use crate::sequence::{Sequence, legacy_sequence_id, legacy_sequences};

/// Fields that a newer version wrote; kept and written back.
pub type Unknown = BTreeMap<String, Value>;

/// How a group publishes. A document with another word does not deserialize: the task is replaced, never
/// treated as legacy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupMode {
    /// One sequence per Kafka partition, all published together at the end.
    Legacy,
    /// Sequences over all partitions, published while reading.
    Checkpointing,
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
    /// Legacy mode: set when the group's end was decided before this task was made.
    pub end: Option<EndDecision>,
    /// Checkpointing mode: the sequence that begins at `start`, the group's first unpublished one.
    #[serde(default, skip_serializing_if = "is_first")]
    pub first_sequence: SequenceId,
    /// Checkpointing mode: the checkpoint log from that sequence on, as far as it went when the task was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<LogEntry>,
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

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_first(sequence: &SequenceId) -> bool {
    sequence.0 == 0
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
    /// What was counted since `earlier`.
    #[must_use]
    pub fn minus(&self, earlier: &Self) -> Self {
        Self {
            accepted: self.accepted - earlier.accepted,
            stored: self.stored - earlier.stored,
            rejected: self.rejected - earlier.rejected,
            unparseable: self.unparseable - earlier.unparseable,
            filtered: self.filtered - earlier.filtered,
            tombstones: self.tombstones - earlier.tombstones,
            empty: self.empty - earlier.empty,
            oversized: self.oversized - earlier.oversized,
            bytes: self.bytes - earlier.bytes,
        }
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
    /// Legacy mode: segments that are full.
    #[serde(default)]
    pub full: Vec<Sink>,
    /// Checkpointing mode: what became of the records of this sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<RowCounts>,
}

/// The reader's whole state between two records: rows, lineage, counts and next offsets of one moment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadState {
    /// Next records to read: everything below was accepted into a run, or counted (D3).
    pub next: PartitionOffsets,
    /// By sequence; in legacy mode its id is the Kafka partition.
    pub sequences: BTreeMap<SequenceId, SequenceState>,
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
    pub fn at(start: &StartOffsets, mode: GroupMode) -> Self {
        let one = |partition| (legacy_sequence_id(partition), SequenceState::default());
        Self {
            next: start.clone(),
            sequences: match mode {
                GroupMode::Legacy => start.partitions().map(one).collect(),
                GroupMode::Checkpointing => BTreeMap::new(),
            },
            counts: RowCounts::default(),
            first_parse_error: None,
            parse_errors: Vec::new(),
            lost: Vec::new(),
            unknown: Unknown::new(),
        }
    }
    /// All segments that were given to this task, in order of sequence.
    pub fn segments(&self) -> impl Iterator<Item = (SequenceId, &Sink)> {
        self.sequences.iter().flat_map(|(id, sequence)| {
            sequence
                .full
                .iter()
                .chain(&sequence.sinks)
                .map(|sink| (*id, sink))
        })
    }
}

/// A sorted spilled run of one segment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// In legacy mode the Kafka partition.
    #[serde(rename = "partition")]
    pub sequence: SequenceId,
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
#[serde(from = "StoredRecord", into = "StoredRecord")]
pub struct TaskRecord {
    pub assignment: Assignment,
    /// As of the last persist.
    pub read: ReadState,
    /// When it first read, or was ready to; the task duration counts from here, over restarts.
    pub first_read: Option<TimestampMillis>,
    pub runs: Vec<Run>,
    /// In order; only the last one can be open. In checkpointing mode a part goes when it is handed off.
    pub parts: Vec<Part>,
    /// How the task ends when the handoffs of its parts are over; set when nothing is left to publish.
    pub outcome: Option<Ending>,
    /// Records of the parts that were published and are gone.
    pub published_counts: RowCounts,
    /// An alert that is no failure.
    pub alert: String,
    /// Committed offsets that the publisher named when it refused.
    pub committed: Option<PartitionOffsets>,
    pub ended: Option<Ended>,
    pub unknown: Unknown,
}

impl TaskRecord {
    /// The record of a task that has done nothing yet.
    pub fn new(assignment: Assignment, now: TimestampMillis) -> Self {
        Self {
            read: ReadState::at(&assignment.start, assignment.mode),
            parts: first_parts(&assignment, now),
            assignment,
            first_read: None,
            runs: Vec::new(),
            outcome: None,
            published_counts: RowCounts::default(),
            alert: String::new(),
            committed: None,
            ended: None,
            unknown: Unknown::new(),
        }
    }

    pub fn mode(&self) -> GroupMode {
        self.assignment.mode
    }
    pub fn part(&self, id: SequenceId) -> Option<&Part> {
        self.parts.iter().find(|part| part.id == id)
    }
    pub(super) fn part_mut(&mut self, id: SequenceId) -> Option<&mut Part> {
        self.parts.iter_mut().find(|part| part.id == id)
    }
    /// The part that has no end yet.
    pub fn open_part(&self) -> Option<&Part> {
        self.parts.last().filter(|part| part.end.is_none())
    }
    /// Parts whose commit is not known yet, in order.
    pub fn unpublished(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| !part.is_published())
    }
    /// The end behind which nothing is read, once it is known.
    pub fn end(&self) -> Option<&EndDecision> {
        self.parts.last().filter(|part| part.is_last)?.end.as_ref()
    }
    /// Nothing more is read or published: its end is set, or its last part is gone already.
    pub fn is_finishing(&self) -> bool {
        self.outcome.is_some() || self.end().is_some()
    }

    /// Forgets every row that is not published: reading begins again at the first part that is not (B56). Ends
    /// that were acknowledged and commits that are known stay.
    pub fn forget_rows(&mut self) {
        let first = self.unpublished().next().map(|part| part.start.clone());
        let start = first.unwrap_or_else(|| self.assignment.start.clone());
        self.read = ReadState {
            counts: self.published_counts,
            ..ReadState::at(&start, self.assignment.mode)
        };
        self.runs.clear();
        for part in self.parts.iter_mut().filter(|part| !part.is_published()) {
            part.forget_files();
        }
    }

    /// The sequences of one part.
    pub fn sequences_of(&self, part: &Part) -> Vec<Sequence> {
        let base = &self.assignment.base_sequence_name;
        let end = part.end.as_ref().map(|decision| &decision.end);
        match self.assignment.mode {
            GroupMode::Legacy => legacy_sequences(base, &part.start, end),
            GroupMode::Checkpointing => vec![Sequence {
                id: part.id,
                name: base.sequence(part.id),
                start: part.start.clone(),
                end: end.cloned().unwrap_or_else(|| {
                    part.start
                        .partitions()
                        .map(|partition| (partition, Offset::OPEN))
                        .collect()
                }),
            }],
        }
    }

    /// All sequences whose records may still have to be read, in order.
    pub fn sequences(&self) -> Vec<Sequence> {
        self.unpublished()
            .flat_map(|part| self.sequences_of(part))
            .collect()
    }

    pub fn sequence_name(&self, sequence: SequenceId) -> SequenceName {
        self.assignment.base_sequence_name.sequence(sequence)
    }

    /// True when these rows belong to the part.
    pub fn is_of(&self, part: &Part, sequence: SequenceId) -> bool {
        match self.assignment.mode {
            GroupMode::Legacy => true,
            GroupMode::Checkpointing => part.id == sequence,
        }
    }
    pub fn runs_of<'a>(&'a self, part: &'a Part) -> impl Iterator<Item = &'a Run> {
        self.runs.iter().filter(|run| self.is_of(part, run.sequence))
    }
    /// Segments of one part, as far as they were filled at the last persist.
    pub fn segments_of<'a>(&'a self, part: &'a Part) -> impl Iterator<Item = (SequenceId, &'a Sink)> {
        self.read
            .segments()
            .filter(|(sequence, _)| self.is_of(part, *sequence))
    }
    /// Files that the task still needs, with size and checksum; runs first.
    pub fn files(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        let runs = self
            .runs
            .iter()
            .map(|run| (run.file.as_str(), run.bytes, run.sha256.as_str()));
        runs.chain(self.merged_files())
    }
    /// Merged files among them.
    pub fn merged_files(&self) -> impl Iterator<Item = (&str, u64, &str)> {
        let merged = self.parts.iter().flat_map(|part| part.merged.iter().flatten());
        merged.map(|segment| (segment.file.as_str(), segment.bytes, segment.sha256.as_str()))
    }

    /// True when every record of the part is in a run or counted.
    pub fn is_read(&self, part: &Part) -> bool {
        part.end
            .as_ref()
            .is_some_and(|decision| self.read.next.reaches(&decision.end))
    }
    /// True when every record below the last end is.
    pub fn is_all_read(&self) -> bool {
        self.outcome.is_some()
            || self
                .end()
                .is_some_and(|decision| self.read.next.reaches(&decision.end))
    }

    /// Records by outcome, of the task's whole life.
    pub fn counts(&self) -> RowCounts {
        let in_parts: u64 = self
            .parts
            .iter()
            .filter(|part| !part.is_published() || self.assignment.mode == GroupMode::Legacy)
            .map(Part::stored)
            .sum();
        RowCounts {
            stored: self.published_counts.stored + in_parts,
            ..self.read.counts
        }
    }
    /// Records of one part.
    pub fn counts_of(&self, part: &Part) -> RowCounts {
        let counts = match self.assignment.mode {
            GroupMode::Legacy => self.read.counts,
            GroupMode::Checkpointing => {
                let state = self.read.sequences.get(&part.id);
                state.and_then(|state| state.counts).unwrap_or_default()
            }
        };
        RowCounts {
            stored: part.stored(),
            ..counts
        }
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
        if self.parts.is_empty() && self.outcome.is_none() && self.ended.is_none() {
            return Some("nothing is left to do, and it has not ended".to_owned());
        }
        let first = self.unpublished().next().map(|part| &part.start);
        for (partition, next) in read.next.iter() {
            let start = first.unwrap_or(&assignment.start).get(partition);
            if start.is_some_and(|start| next < start) {
                return Some(format!("partition {partition} stands before its start: {next}"));
            }
            let end = self.end().and_then(|decision| decision.end.get(partition));
            if end.is_some_and(|end| next > end) {
                return Some(format!("partition {partition} was read beyond its end: {next}"));
            }
        }
        let unpublished: Vec<&Part> = self.unpublished().collect();
        for pair in unpublished.windows(2) {
            let end = pair[0].end.as_ref().map(|decision| &decision.end);
            if end != Some(&pair[1].start) || pair[1].id != pair[0].id.next() || pair[0].is_last {
                return Some(format!("sequence {} does not follow {}", pair[1].id, pair[0].id));
            }
        }
        for part in &self.parts {
            if part.merged.is_some() && !part.is_published() && !self.is_read(part) {
                return Some(format!("part {} was merged before it was read", part.id));
            }
            if part.is_published() && part.end.is_none() {
                return Some(format!("part {} was published without an end", part.id));
            }
        }
        let known: BTreeSet<&SegmentId> = read.segments().map(|(_, sink)| &sink.segment).collect();
        let stray = self.runs.iter().find(|run| !known.contains(&run.segment));
        stray.map(|run| format!("run {} has no segment", run.file))
    }
}

/// What the log gave, and an open part behind it unless it ended the group.
fn first_parts(assignment: &Assignment, now: TimestampMillis) -> Vec<Part> {
    if assignment.mode == GroupMode::Legacy {
        return vec![Part {
            end: assignment.end.clone(),
            is_last: true,
            ..Part::open(SequenceId(0), assignment.start.clone(), TimestampMillis(0))
        }];
    }
    let mut parts = vec![Part::open(
        assignment.first_sequence,
        assignment.start.clone(),
        now,
    )];
    for entry in &assignment.log {
        close_last(&mut parts, entry, now);
    }
    parts
}

/// Ends the open part, and opens the next one unless that was the last.
pub(super) fn close_last(parts: &mut Vec<Part>, entry: &LogEntry, now: TimestampMillis) {
    let Some(open) = parts
        .last_mut()
        .filter(|part| part.end.is_none() && part.id == entry.sequence)
    else {
        return;
    };
    open.end = Some(entry.decision.clone());
    open.is_last = entry.finish;
    if !entry.finish {
        parts.push(Part::open(entry.sequence.next(), entry.decision.end.clone(), now));
    }
}
