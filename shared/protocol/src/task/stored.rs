//! The record as it lies on disk. A legacy task's has the shape of 0.1.0, which must be able to restore it; a
//! checkpointing task's has its parts, and is refused by 0.1.0 by its mode.

use serde::{Deserialize, Serialize};
use tidegate_types::{PartitionOffsets, SequenceId, TimestampMillis};

use super::part::{EndDecision, MergedSegment, Part, Published, StagedObject};
use super::record::{Assignment, Ended, Ending, GroupMode, ReadState, RowCounts, Run, TaskRecord, Unknown};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct StoredRecord {
    assignment: Assignment,
    read: ReadState,
    end: Option<EndDecision>,
    first_read: Option<TimestampMillis>,
    runs: Vec<Run>,
    merged: Option<Vec<MergedSegment>>,
    staged: Vec<StagedObject>,
    may_have_published: bool,
    published: Option<Published>,
    #[serde(default)]
    alert: String,
    #[serde(default)]
    committed: Option<PartitionOffsets>,
    ended: Option<Ended>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<Ending>,
    #[serde(default, skip_serializing_if = "is_nothing")]
    published_counts: RowCounts,
    #[serde(flatten)]
    unknown: Unknown,
}

fn is_nothing(counts: &RowCounts) -> bool {
    *counts == RowCounts::default()
}

impl From<StoredRecord> for TaskRecord {
    fn from(stored: StoredRecord) -> Self {
        let parts = match stored.assignment.mode {
            GroupMode::Checkpointing => stored.parts,
            GroupMode::Legacy => vec![Part {
                end: stored.end,
                is_last: true,
                merged: stored.merged,
                staged: stored.staged,
                may_have_published: stored.may_have_published,
                published: stored.published,
                ..Part::open(SequenceId(0), stored.assignment.start.clone(), TimestampMillis(0))
            }],
        };
        Self {
            assignment: stored.assignment,
            read: stored.read,
            first_read: stored.first_read,
            runs: stored.runs,
            parts,
            outcome: stored.outcome,
            published_counts: stored.published_counts,
            alert: stored.alert,
            committed: stored.committed,
            ended: stored.ended,
            unknown: stored.unknown,
        }
    }
}

impl From<TaskRecord> for StoredRecord {
    fn from(record: TaskRecord) -> Self {
        let stored_rows = record.counts().stored;
        let mut stored = Self {
            assignment: record.assignment,
            read: record.read,
            end: None,
            first_read: record.first_read,
            runs: record.runs,
            merged: None,
            staged: Vec::new(),
            may_have_published: false,
            published: None,
            alert: record.alert,
            committed: record.committed,
            ended: record.ended,
            parts: Vec::new(),
            outcome: record.outcome,
            published_counts: record.published_counts,
            unknown: record.unknown,
        };
        match stored.assignment.mode {
            GroupMode::Checkpointing => stored.parts = record.parts,
            GroupMode::Legacy => {
                stored.read.counts.stored = stored_rows;
                if let Some(part) = record.parts.into_iter().next() {
                    stored.end = part.end;
                    stored.merged = part.merged;
                    stored.staged = part.staged;
                    stored.may_have_published = part.may_have_published;
                    stored.published = part.published;
                }
            }
        }
        stored
    }
}
