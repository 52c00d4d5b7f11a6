//! What is stored of a group and of its tasks. A restarted coordinator goes on from these and from the log.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tidegate_types::{
    AssignmentToken, BaseSequenceName, DecodeVersion, Generation, GroupId, PartitionId, RunnerId, SequenceId,
    StartOffsets, SupervisorId, TaskId, TimestampMillis,
};

use crate::task::{EndDecision, Ending, GroupMode, RowCounts, StopReason, Stream, Unknown};

/// How a group publishes, as stored. A word of a newer version is kept; such a group is given up and made again
/// from the committed offsets, never treated as legacy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StoredMode {
    Known(GroupMode),
    Unknown(Value),
}

/// Where a group stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupState {
    /// Its tasks read; no end is decided.
    Reading,
    /// Its end is decided (I5); its tasks read up to it, publish, and wait for handoff.
    Pending {
        decision: EndDecision,
        /// Given up when nothing got on until then; every progress moves it (B39).
        deadline: TimestampMillis,
        /// True once the catalog has shown that its range is committed.
        committed: bool,
    },
    /// Being given up: fenced at the publisher first, then looked up, for it may have published at the last moment.
    GivingUp {
        decision: Option<EndDecision>,
        why: String,
        /// How its tasks end.
        stop: StopWord,
    },
    /// Published; the publisher is told.
    Done,
    /// Given up without publishing; the publisher is told.
    Lost { why: String },
}

/// [`StopReason`], stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopWord {
    Superseded,
    Replaced,
    Stopped,
}

impl From<StopWord> for StopReason {
    fn from(word: StopWord) -> Self {
        match word {
            StopWord::Superseded => Self::Superseded,
            StopWord::Replaced => Self::Replaced,
            StopWord::Stopped => Self::Stopped,
        }
    }
}

impl StopWord {
    pub(crate) fn ending(self) -> Ending {
        match self {
            Self::Superseded => Ending::Superseded,
            Self::Replaced => Ending::Replaced,
            Self::Stopped => Ending::Stopped,
        }
    }
}

/// One task group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupDocument {
    pub id: GroupId,
    pub supervisor: SupervisorId,
    /// Order of creation within the supervisor, from 1.
    pub ordinal: u64,
    pub generation: Generation,
    pub spec_version: u32,
    pub mode: StoredMode,
    pub decode_version: DecodeVersion,
    pub stream: Stream,
    /// First records of exactly its partitions.
    pub start: StartOffsets,
    /// Inclusive; fixed at creation.
    pub minimum_message_time: Option<TimestampMillis>,
    /// Inclusive; fixed at creation.
    pub maximum_message_time: Option<TimestampMillis>,
    pub base_sequence_name: BaseSequenceName,
    pub created_at: TimestampMillis,
    /// When a task of the group first read: the task duration counts from here.
    pub first_read: Option<TimestampMillis>,
    pub state: GroupState,
    /// Number of the next task, from 1.
    pub next_task: u32,
    /// Why it has this mode, for people.
    #[serde(default)]
    pub mode_reason: String,
    #[serde(flatten)]
    pub unknown: Unknown,
}

impl GroupDocument {
    /// The decided end, if there is one.
    pub fn decision(&self) -> Option<&EndDecision> {
        match &self.state {
            GroupState::Pending { decision, .. } => Some(decision),
            GroupState::GivingUp { decision, .. } => decision.as_ref(),
            GroupState::Reading | GroupState::Done | GroupState::Lost { .. } => None,
        }
    }
    /// Done or lost: it covers no partition any more.
    pub fn is_over(&self) -> bool {
        matches!(self.state, GroupState::Done | GroupState::Lost { .. })
    }
    pub fn has(&self, partition: PartitionId) -> bool {
        self.start.get(partition).is_some()
    }
    /// Id of the decision that ends the group; the same whoever decides.
    pub fn decision_id(&self) -> String {
        format!("{}.finish", self.id)
    }
    /// Id of the decision that ends a sequence in the middle of the group; the same whoever decides.
    pub fn checkpoint_id(&self, sequence: SequenceId) -> String {
        format!("{}.{sequence}", self.id)
    }
    pub fn is_checkpointing(&self) -> bool {
        self.mode == StoredMode::Known(GroupMode::Checkpointing)
    }
}

/// How a task ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnd {
    pub how: Ending,
    pub at: TimestampMillis,
    /// One line for a person; empty when all went well.
    pub why: String,
}

/// One task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskDocument {
    pub id: TaskId,
    pub group: GroupId,
    pub supervisor: SupervisorId,
    pub token: AssignmentToken,
    /// Runner that was asked to hold it; `None` while it waits for a slot.
    pub runner: Option<RunnerId>,
    pub created_at: TimestampMillis,
    pub end: Option<TaskEnd>,
    /// Records by outcome, as told last before it ended.
    #[serde(default)]
    pub counts: RowCounts,
    #[serde(flatten)]
    pub unknown: Unknown,
}
