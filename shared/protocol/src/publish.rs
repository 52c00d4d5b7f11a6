//! The publish decision: may these sequences be committed now, and if not, why not.
//!
//! Owns: the outcomes of a publish and the comparison behind them. Promises: committed offsets are compared
//! exactly, per partition (a gap is as wrong as an overlap, I2); "no offsets yet" matches nothing; the answer
//! depends on what was stored and asked, on nothing else. Must never: infer that something is published from
//! segments (they may be dropped or replaced since, D39); only the record of published sequences says so.

mod check;
mod decide;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use tidegate_types::{
    AssignmentToken, BaseSequenceName, ClusterId, EndOffsets, Epoch, Generation, GroupId, Offset,
    PartitionId, SegmentId, SequenceName, StartOffsets, SupervisorId, TopicId,
};

use crate::sequence::Sequence;

pub use check::{Malformed, check};
pub use decide::{Fence, Mismatch, PublishDecision, decide};

/// A topic as one incarnation of it. Empty ids are unknown and contradict nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct StreamId {
    pub topic: String,
    pub cluster: ClusterId,
    pub incarnation: TopicId,
}

impl StreamId {
    /// True when both sides know an id and the ids differ: a re-created topic, or another cluster (B23).
    pub fn contradicts(&self, other: &Self) -> bool {
        let differ = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
        self.topic != other.topic
            || differ(&self.cluster.0, &other.cluster.0)
            || differ(&self.incarnation.0, &other.incarnation.0)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |id: &str| {
            if id.is_empty() {
                "unknown".to_owned()
            } else {
                id.to_owned()
            }
        };
        let Self {
            topic,
            cluster,
            incarnation,
        } = self;
        write!(
            f,
            "topic {topic} (topic id {}, cluster {})",
            known(&incarnation.0),
            known(&cluster.0)
        )
    }
}

/// How a group publishes. A number of a newer version is kept, and is never treated as legacy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupMode {
    /// One sequence per Kafka partition, everything in one request.
    Legacy,
    /// One sequence per request, over all partitions of the group.
    Checkpointing,
    Unknown(i32),
}

impl GroupMode {
    /// The number on the wire and in rows.
    pub fn to_number(self) -> i32 {
        match self {
            Self::Legacy => 1,
            Self::Checkpointing => 2,
            Self::Unknown(number) => number,
        }
    }
    pub fn from_number(number: i32) -> Self {
        match number {
            1 => Self::Legacy,
            2 => Self::Checkpointing,
            other => Self::Unknown(other),
        }
    }
}

/// What is said about a segment file: written by the task-runner, checked and stored by the publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFile {
    pub id: SegmentId,
    pub sequence: SequenceName,
    /// Object key: staged while it is asked to be published, final when listed.
    pub key: String,
    pub size_bytes: u64,
    /// SHA-256 of the object, lower-case hex.
    pub sha256: String,
    /// Rows in the file, after roll-up.
    pub rows: u64,
    /// Rows accepted into it, before roll-up.
    pub input_rows: u64,
    /// First accepted row of each partition (inclusive).
    pub first_offsets: StartOffsets,
    /// Behind the last accepted row of each partition (exclusive).
    pub end_offsets: EndOffsets,
    pub writer_version: String,
}

/// A wish to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishRequest {
    pub supervisor: SupervisorId,
    pub group: GroupId,
    pub base: BaseSequenceName,
    pub generation: Generation,
    pub token: AssignmentToken,
    pub mode: GroupMode,
    pub stream: StreamId,
    /// Legacy: all sequences of the group, one per partition. Checkpointing: one.
    pub sequences: Vec<Sequence>,
    /// May be empty: then only the offsets move (D13).
    pub segments: Vec<SegmentFile>,
}

impl PublishRequest {
    /// Start of all sequences together.
    pub fn start(&self) -> StartOffsets {
        self.sequences
            .iter()
            .flat_map(|sequence| sequence.start.iter())
            .collect()
    }
    /// End of all sequences together.
    pub fn end(&self) -> EndOffsets {
        self.sequences
            .iter()
            .flat_map(|sequence| sequence.end.iter())
            .collect()
    }
}

/// A stored committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedRow {
    /// Next record to publish.
    pub offset: Offset,
    /// What it was read from.
    pub stream: StreamId,
}

/// A group as the coordinator registered it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisteredGroup {
    pub id: GroupId,
    pub base: BaseSequenceName,
    pub generation: Generation,
    pub mode: GroupMode,
    pub topic: String,
    /// Where its first sequence starts.
    pub start: StartOffsets,
    /// Tokens of the assignments that may publish.
    pub tokens: Vec<AssignmentToken>,
    /// Epoch that registered it last.
    pub epoch: Epoch,
    /// Of the newest registration within that epoch.
    pub revision: u64,
    /// It publishes nothing any more.
    pub ended: bool,
}

impl RegisteredGroup {
    /// True when this group is still going to publish the record at `committed`: then what lies behind it waits.
    /// A legacy group publishes once, from its start; another one may be in the middle.
    fn claims(&self, partition: PartitionId, committed: Offset) -> bool {
        let Some(start) = self.start.get(partition).filter(|_| !self.ended) else {
            return false;
        };
        match self.mode {
            GroupMode::Legacy => start == committed,
            GroupMode::Checkpointing | GroupMode::Unknown(_) => start <= committed,
        }
    }
}

/// A sequence that is published; never deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedSequence {
    pub generation: Generation,
    pub end: EndOffsets,
}

/// To whom a segment id was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    pub supervisor: SupervisorId,
    pub generation: Generation,
    pub sequence: SequenceName,
}

/// What is stored, as one consistent read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PublishState {
    /// Generation of the supervisor; `None` when nothing was ever initialized.
    pub generation: Option<Generation>,
    /// Committed offsets of the request's topic.
    pub committed: BTreeMap<PartitionId, CommittedRow>,
    /// The request's group.
    pub group: Option<RegisteredGroup>,
    /// Groups of this supervisor and generation that have not ended, the request's own among them or not.
    pub open_groups: Vec<RegisteredGroup>,
    /// Those of the request's sequences that are published, whatever the generation.
    pub published: BTreeMap<SequenceName, PublishedSequence>,
    /// To whom the ids of the request's segments were given.
    pub grants: BTreeMap<SegmentId, Grant>,
}
