//! What a runner says about a task, as far as the coordinator's machines look at it.

use tidegate_types::{AssignmentToken, GroupId, PartitionOffsets, SequenceId, TaskId, TimestampMillis};

use crate::task::RowCounts;

/// Where a task stands. A number that this version does not know means "running, do nothing to it" (B62).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskState {
    Starting,
    Reading,
    Paused,
    Finishing,
    Stopping,
    Published,
    Superseded,
    Stopped,
    Replaced,
    Failed,
    /// Prepared for a group to come, not connected yet.
    Preparing,
    /// Prepared and connected.
    Prepared,
    Unknown(i32),
}

impl TaskState {
    pub fn is_ended(self) -> bool {
        match self {
            Self::Published | Self::Superseded | Self::Stopped | Self::Replaced | Self::Failed => true,
            Self::Starting
            | Self::Reading
            | Self::Paused
            | Self::Finishing
            | Self::Stopping
            | Self::Preparing
            | Self::Prepared
            | Self::Unknown(_) => false,
        }
    }
    /// It owns nothing yet: it was prepared, and has not heard that it begins.
    pub fn is_prepared(self) -> bool {
        matches!(self, Self::Preparing | Self::Prepared)
    }
    /// True when the task says that its rows are in the catalog. Only a claim: the catalog decides.
    pub fn claims_published(self) -> bool {
        matches!(self, Self::Published | Self::Superseded)
    }
}

/// What a finishing task does, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskPhase {
    /// Reading, merging, uploading or publishing, or a phase that this version does not know.
    BeforeCommit,
    /// Published, waiting for the serving tier.
    Handoff,
}

/// One task as its runner tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskReport {
    pub task: TaskId,
    pub group: Option<GroupId>,
    pub token: Option<AssignmentToken>,
    pub state: TaskState,
    pub phase: TaskPhase,
    /// Next offsets; absent before it has restored.
    pub next: Option<PartitionOffsets>,
    /// Decision that set its end; empty = none yet.
    pub decision_id: String,
    pub counts: RowCounts,
    /// Why it failed or waits.
    pub reason: String,
    /// When it first read, or was ready to.
    pub first_read: Option<TimestampMillis>,
    /// Grows whenever a finishing task gets on.
    pub progress: u64,
    /// Alert that is no failure; empty = none.
    pub alert: String,
    /// Checkpointing mode: the sequence that has no end yet, as far as this task knows.
    pub open: Option<SequenceId>,
    /// It stands still and wants that sequence to be closed.
    pub wants_checkpoint: bool,
    /// Checkpointing mode: its first sequence that it does not know to be published.
    pub unpublished: Option<SequenceId>,
}

impl TaskReport {
    /// True once the task has committed, as it says.
    pub fn claims_published(&self) -> bool {
        self.state.claims_published() || self.phase == TaskPhase::Handoff
    }
}
