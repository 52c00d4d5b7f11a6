//! What the coordinator keeps: supervisors and their history, task groups, tasks, runners, the checkpoint log,
//! its lease.
//!
//! Promises: every write carries the writer's epoch and is refused when another one holds (a deposed coordinator
//! writes nothing); writes given together are stored together or not at all; a decision, once made, never
//! changes (I5).

use std::time::Duration;

use async_trait::async_trait;
use tidegate_types::{
    BaseSequenceName, EndOffsets, Epoch, GroupId, RunnerId, SequenceId, SupervisorId, TaskId, TimestampMillis,
};

use crate::{Acquired, Candidate, Document, Lease, StoreError};

/// A supervisor as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct SupervisorRecord {
    pub id: SupervisorId,
    /// Version of its spec, from 1.
    pub version: u32,
    /// A word of the coordinator's; one that a reader does not know is kept.
    pub state: String,
    pub document: Document,
}

/// One thing that was done to a supervisor.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryRecord {
    pub supervisor: SupervisorId,
    pub at: TimestampMillis,
    /// submitted, suspended, resumed, reset, terminated, lost-data.
    pub what: String,
    /// Version of the spec at that time.
    pub version: u32,
    pub document: Document,
}

/// A task group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupRecord {
    pub id: GroupId,
    pub supervisor: SupervisorId,
    /// A word of the coordinator's; one that a reader does not know is kept.
    pub state: String,
    pub document: Document,
}

/// A task.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskRecord {
    pub id: TaskId,
    pub group: GroupId,
    pub supervisor: SupervisorId,
    /// A word of the coordinator's; one that a reader does not know is kept.
    pub state: String,
    pub created_at: TimestampMillis,
    pub document: Document,
}

/// A runner that has registered.
#[derive(Debug, Clone, PartialEq)]
pub struct RunnerRecord {
    pub id: RunnerId,
    pub last_heartbeat: TimestampMillis,
    pub document: Document,
}

/// One change of the coordinator's state. Puts replace the row of the same id.
#[derive(Debug, Clone, PartialEq)]
pub enum CoordinatorChange {
    PutSupervisor(SupervisorRecord),
    DeleteSupervisor(SupervisorId),
    AppendHistory(HistoryRecord),
    PutGroup(GroupRecord),
    DeleteGroup(GroupId),
    PutTask(TaskRecord),
    DeleteTask(TaskId),
    PutRunner(RunnerRecord),
    DeleteRunner(RunnerId),
    /// Removes decisions whose sequences are published: those below `below`, or all.
    TrimLog {
        base: BaseSequenceName,
        below: Option<SequenceId>,
    },
}

/// What a decision is about. A number of a newer version is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DecisionKind {
    /// An end of one sequence in the middle of a group.
    Checkpoint,
    /// The group reads no further than this.
    Finish,
    Unknown(i32),
}

impl DecisionKind {
    pub(crate) fn to_number(self) -> i32 {
        match self {
            Self::Checkpoint => 1,
            Self::Finish => 2,
            Self::Unknown(number) => number,
        }
    }
    pub(crate) fn from_number(number: i32) -> Self {
        match number {
            1 => Self::Checkpoint,
            2 => Self::Finish,
            other => Self::Unknown(other),
        }
    }
}

/// A row of the checkpoint log, keyed by (base sequence name, sequence id). A legacy group has one, with
/// sequence id 0: its finish, for all its partitions.
#[derive(Debug, Clone, PartialEq)]
pub struct DecisionRecord {
    pub base: BaseSequenceName,
    pub sequence_id: SequenceId,
    pub supervisor: SupervisorId,
    pub group: GroupId,
    pub kind: DecisionKind,
    /// Where every partition of the group ends (exclusive).
    pub end: EndOffsets,
    /// Names the decision in calls to tasks, so that they can be repeated (I11).
    pub decision_id: String,
    /// Epoch that decided.
    pub epoch: Epoch,
    pub decided_at: TimestampMillis,
}

/// Everything that a coordinator needs to go on after a restart. The log is read per group, by `decisions`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CoordinatorState {
    /// In order of their ids.
    pub supervisors: Vec<SupervisorRecord>,
    /// In order of their ids.
    pub groups: Vec<GroupRecord>,
    /// In order of creation, then id.
    pub tasks: Vec<TaskRecord>,
    /// In order of their ids.
    pub runners: Vec<RunnerRecord>,
}

/// The coordinator's port.
#[async_trait]
pub trait CoordinatorStore: Send + Sync {
    /// The lease as it is now.
    async fn lease(&self) -> Result<Lease, StoreError>;

    /// Gives the lease to a candidate when nobody holds it, or when it is still exactly `over`: the one that the
    /// candidate has seen and takes to be over. The epoch is raised: the holder before writes nothing more.
    /// `now` is for people who look at the row; nothing is decided by it.
    async fn acquire_lease(
        &self,
        candidate: &Candidate,
        over: Option<&Lease>,
        now: TimestampMillis,
    ) -> Result<Acquired, StoreError>;

    /// Shows the others that the holder lives. Refused ([`StoreError::Fenced`]) when the epoch is over.
    async fn renew_lease(
        &self,
        epoch: Epoch,
        lasts: Duration,
        now: TimestampMillis,
    ) -> Result<(), StoreError>;

    /// Gives the lease back: the epoch is over, and a candidate may lead at once. Refused when it was over before.
    async fn release_lease(&self, epoch: Epoch) -> Result<(), StoreError>;

    /// Takes the lease whoever holds it, as coordinators of 0.1.0 do: raises the epoch by one and returns it.
    /// Writes with a lower epoch are refused from then on.
    async fn raise_epoch(&self, holder: &str, now: TimestampMillis) -> Result<Epoch, StoreError>;

    /// The epoch that holds; 0 before the first `raise_epoch`.
    async fn current_epoch(&self) -> Result<Epoch, StoreError>;

    /// Everything, in one consistent read.
    async fn load_all(&self) -> Result<CoordinatorState, StoreError>;

    /// All of these changes, in this order, in one transaction.
    async fn write(&self, epoch: Epoch, changes: &[CoordinatorChange]) -> Result<(), StoreError>;

    /// History of a supervisor, newest first.
    async fn history(&self, supervisor: &SupervisorId) -> Result<Vec<HistoryRecord>, StoreError>;

    /// Writes a decision unless there is one for its (base sequence name, sequence id), and returns the stored
    /// one: the first wins, whoever made it (I5). `decision.epoch` must be the one that holds.
    async fn decide(&self, decision: &DecisionRecord) -> Result<DecisionRecord, StoreError>;

    /// The log of a group, in order of sequence ids.
    async fn decisions(&self, base: &BaseSequenceName) -> Result<Vec<DecisionRecord>, StoreError>;

    async fn put_supervisor(&self, epoch: Epoch, record: SupervisorRecord) -> Result<(), StoreError> {
        self.write(epoch, &[CoordinatorChange::PutSupervisor(record)])
            .await
    }
    async fn append_history(&self, epoch: Epoch, record: HistoryRecord) -> Result<(), StoreError> {
        self.write(epoch, &[CoordinatorChange::AppendHistory(record)])
            .await
    }
    async fn put_group(&self, epoch: Epoch, record: GroupRecord) -> Result<(), StoreError> {
        self.write(epoch, &[CoordinatorChange::PutGroup(record)]).await
    }
    async fn put_task(&self, epoch: Epoch, record: TaskRecord) -> Result<(), StoreError> {
        self.write(epoch, &[CoordinatorChange::PutTask(record)]).await
    }
    async fn put_runner(&self, epoch: Epoch, record: RunnerRecord) -> Result<(), StoreError> {
        self.write(epoch, &[CoordinatorChange::PutRunner(record)]).await
    }
}
