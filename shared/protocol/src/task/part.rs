//! A part of a task's rows: what is published in one transaction. In checkpointing mode that is one sequence; in
//! legacy mode there is one part, with all sequences of the group.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tidegate_types::{
    EndOffsets, Offset, OffsetRange, PartitionId, PartitionOffsets, SegmentId, SequenceId, StartOffsets,
    TimestampMillis,
};

use super::record::Unknown;

/// An end, as decided in the checkpoint log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndDecision {
    pub decision_id: String,
    pub end: EndOffsets,
}

/// One line of the checkpoint log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
    /// The sequence that ends; 0 for a legacy group, whose sequences end together.
    pub sequence: SequenceId,
    pub decision: EndDecision,
    /// Nothing follows: the group reads no further.
    pub finish: bool,
}

/// Which offsets the rows of a segment come from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredExtent", into = "StoredExtent")]
pub enum Extent {
    /// Of the one partition of a legacy sequence: first accepted record, and behind the last one.
    One { first: Offset, end: Offset },
    /// Per partition, in ascending order.
    Many { ranges: Vec<(PartitionId, OffsetRange)> },
}

/// The fields of both shapes; those of a legacy task are those of 0.1.0.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct StoredExtent {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first: Option<Offset>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<Offset>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ranges: Option<Vec<(PartitionId, OffsetRange)>>,
}

impl TryFrom<StoredExtent> for Extent {
    type Error = &'static str;

    fn try_from(stored: StoredExtent) -> Result<Self, Self::Error> {
        match stored {
            StoredExtent {
                ranges: Some(ranges), ..
            } => Ok(Self::Many { ranges }),
            StoredExtent {
                first: Some(first),
                end: Some(end),
                ..
            } => Ok(Self::One { first, end }),
            StoredExtent { .. } => Err("neither \"first\" and \"end\" nor \"ranges\""),
        }
    }
}

impl From<Extent> for StoredExtent {
    fn from(extent: Extent) -> Self {
        match extent {
            Extent::One { first, end } => Self {
                first: Some(first),
                end: Some(end),
                ranges: None,
            },
            Extent::Many { ranges } => Self {
                ranges: Some(ranges),
                ..Self::default()
            },
        }
    }
}

impl Extent {
    /// One record of one row.
    pub fn note(&mut self, partition: PartitionId, offset: Offset) {
        match self {
            Self::One { end, .. } => *end = offset.next(),
            Self::Many { ranges } => {
                match ranges.binary_search_by_key(&partition, |(partition, _)| *partition) {
                    Ok(at) => ranges[at].1.end = offset.next(),
                    Err(at) => {
                        let range = OffsetRange {
                            start: offset,
                            end: offset.next(),
                        };
                        ranges.insert(at, (partition, range));
                    }
                }
            }
        }
    }
    /// First offsets and ends, per partition. `sequence` names the partition of a legacy sequence.
    pub fn offsets(&self, sequence: SequenceId) -> (StartOffsets, EndOffsets) {
        match self {
            Self::One { first, end } => {
                let partition = PartitionId(i32::try_from(sequence.0).unwrap_or(i32::MAX));
                let one = |offset| std::iter::once((partition, offset)).collect::<PartitionOffsets>();
                (one(*first), one(*end))
            }
            Self::Many { ranges } => (
                ranges
                    .iter()
                    .map(|(partition, range)| (*partition, range.start))
                    .collect(),
                ranges
                    .iter()
                    .map(|(partition, range)| (*partition, range.end))
                    .collect(),
            ),
        }
    }
}

/// A finished segment file in the task's folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedSegment {
    /// In legacy mode the Kafka partition.
    #[serde(rename = "partition")]
    pub sequence: SequenceId,
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
    #[serde(flatten)]
    pub extent: Extent,
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
    /// All segments that were published with it.
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

/// One part and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// The sequence; 0 in legacy mode.
    pub id: SequenceId,
    pub start: StartOffsets,
    /// Acknowledged end (D28); `None` while it is open.
    pub end: Option<EndDecision>,
    /// No part follows. In legacy mode always.
    pub is_last: bool,
    /// When it was opened; its time trigger counts from here.
    pub opened_at: TimestampMillis,
    /// Set when everything was merged.
    #[serde(default)]
    pub merged: Option<Vec<MergedSegment>>,
    #[serde(default)]
    pub staged: Vec<StagedObject>,
    /// A publish was sent whose outcome is not known: an "already published" may be our own.
    #[serde(default)]
    pub may_have_published: bool,
    #[serde(default)]
    pub published: Option<Published>,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl Part {
    /// A part without an end.
    pub fn open(id: SequenceId, start: StartOffsets, now: TimestampMillis) -> Self {
        Self {
            id,
            start,
            end: None,
            is_last: false,
            opened_at: now,
            merged: None,
            staged: Vec::new(),
            may_have_published: false,
            published: None,
            unknown: Unknown::new(),
        }
    }
    pub fn is_published(&self) -> bool {
        self.published.is_some()
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
    /// Forgets what was made from rows.
    pub(super) fn forget_files(&mut self) {
        self.merged = None;
        self.staged.clear();
    }
    /// Rows after roll-up; 0 before the merge.
    pub fn stored(&self) -> u64 {
        self.merged.iter().flatten().map(|segment| segment.rows).sum()
    }
}
