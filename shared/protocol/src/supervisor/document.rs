//! What is stored of a supervisor.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tidegate_types::{Offset, OffsetRange, PartitionId, PartitionOffsets, SupervisorId, TimestampMillis};

use super::Settings;
use crate::task::{RowCounts, Unknown};

/// What is wanted of a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Desired {
    Running,
    Suspended,
    Stopping { publish: Publish, offsets: KeepOffsets },
    Terminated,
}

/// Whether what was read is published on the way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Publish {
    Yes,
    No,
}

/// Whether the committed offsets outlive the supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepOffsets {
    Keep,
    Forget,
}

/// Which partitions start as the spec says when they are met without a committed offset. All others were found
/// later and start at earliest, whatever the spec says (B24, D45).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fresh {
    All,
    These(BTreeSet<PartitionId>),
}

impl Fresh {
    pub fn has(&self, partition: PartitionId) -> bool {
        match self {
            Self::All => true,
            Self::These(partitions) => partitions.contains(&partition),
        }
    }
}

/// Why offsets are being changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResetKind {
    /// Somebody asked.
    Asked,
    /// The broker had dropped these ranges (B21).
    SkipLost {
        ranges: BTreeMap<PartitionId, OffsetRange>,
    },
    /// The supervisor is terminated and its offsets are forgotten.
    Forget,
}

/// A change of committed offsets that is under way. Durable before anything is done for it, and repeated with
/// the same key until it has an answer (I11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetDocument {
    pub key: String,
    pub kind: ResetKind,
    /// Empty = all.
    pub partitions: BTreeSet<PartitionId>,
    /// New offsets; a partition of the reset without one starts as the spec says.
    pub offsets: PartitionOffsets,
    pub who: String,
    pub why: String,
    pub at: TimestampMillis,
}

impl ResetDocument {
    pub fn concerns(&self, partition: PartitionId) -> bool {
        self.partitions.is_empty() || self.partitions.contains(&partition)
    }
}

/// One supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SupervisorDocument {
    pub id: SupervisorId,
    /// Version of the newest spec, from 1.
    pub version: u32,
    /// The newest spec and those that groups still use.
    pub specs: BTreeMap<u32, Settings>,
    pub desired: Desired,
    pub submitted_at: TimestampMillis,
    /// Ordinal of the next group; never goes back, so that ids are never used again.
    pub next_group: u64,
    pub fresh: Fresh,
    pub reset: Option<ResetDocument>,
    /// Keys of the newest resets that are done: the same call again does nothing (I11).
    #[serde(default)]
    pub done_resets: Vec<String>,
    /// Records by outcome of all groups that are published; a group is added in the transaction that ends it.
    pub counts: RowCounts,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl SupervisorDocument {
    /// The newest spec. `None` only for a document that was tampered with.
    pub fn settings(&self) -> Option<&Settings> {
        self.specs.get(&self.version)
    }
}

/// A line of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    pub at: TimestampMillis,
    /// submitted, suspended, resumed, reset, terminated, lost-data.
    pub what: String,
    pub version: u32,
    pub detail: String,
    /// The spec, secrets included; only for `submitted`.
    #[serde(default)]
    pub spec_json: String,
}

/// Offsets as `partition p: a → b` for a person.
pub(crate) fn moves(from: &PartitionOffsets, to: &PartitionOffsets, all: &BTreeSet<PartitionId>) -> String {
    let word = |offset: Option<Offset>| {
        offset.map_or_else(|| "as the spec says".to_owned(), |offset| offset.to_string())
    };
    let one = |partition: &PartitionId| {
        let before = from
            .get(*partition)
            .map_or_else(|| "none".to_owned(), |offset| offset.to_string());
        format!("partition {partition}: {before} → {}", word(to.get(*partition)))
    };
    all.iter().map(one).collect::<Vec<_>>().join(", ")
}
