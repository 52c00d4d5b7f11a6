//! What happens to a supervisor, and what it wants done.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{
    AssignmentToken, BaseSequenceName, Generation, GroupId, PartitionId, PartitionOffsets, RunnerId,
    SequenceId, StartOffsets, SupervisorId, TaskId, TimestampMillis,
};

use super::{HistoryLine, KeepOffsets, Publish, ResetTo, Settings, SupervisorDocument};
use crate::group::{GroupDocument, TaskDocument, TaskReport};
use crate::publish::GroupMode as PublishMode;
use crate::task::{Assignment, LogEntry, StopReason, Stream};

/// Where ids that nobody may guess or repeat come from.
pub trait IdSource {
    fn token(&mut self) -> AssignmentToken;
    fn request_key(&mut self) -> String;
}

/// Why a call has no good answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// No answer in time, or the peer is away: the outcome is unknown.
    Unreachable(String),
    /// Understood and refused.
    Refused(String),
    /// The peer does not know what the call is about.
    NotFound(String),
    /// No free slot.
    NoSlot(String),
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "no answer ({why})"),
            Self::Refused(why) => write!(f, "refused ({why})"),
            Self::NotFound(why) => write!(f, "not known there ({why})"),
            Self::NoSlot(why) => write!(f, "no free slot ({why})"),
        }
    }
}

/// The topic, looked up at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    pub stream: Stream,
    /// First record of each partition that the broker still has.
    pub earliest: PartitionOffsets,
    /// Behind the last record of each partition.
    pub latest: PartitionOffsets,
}

impl Discovery {
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.earliest.partitions()
    }
}

/// Committed offsets as the publisher told them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    pub stream: Stream,
    pub offsets: PartitionOffsets,
    pub generation: Generation,
}

/// A runner as its heartbeat described it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerView {
    pub id: RunnerId,
    pub slots: u32,
    /// Tasks of all supervisors that it holds and that have not ended.
    pub occupied: u32,
    pub draining: bool,
    /// It can hold replicas of checkpointing groups.
    pub can_checkpoint: bool,
    /// It can prepare tasks of groups to come.
    pub can_prepare: bool,
}

/// Answer of a task to a pause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PauseAnswer {
    /// It stands still here.
    Standing(PartitionOffsets),
    /// It took the pause; ask again.
    Accepted,
}

/// Answer of a runner to a call about a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskAnswer {
    Assigned(Result<Box<TaskReport>, CallError>),
    Prepared(Result<Box<TaskReport>, CallError>),
    Paused(Result<PauseAnswer, CallError>),
    Resumed(Result<(), CallError>),
    EndTold(Result<(), CallError>),
    Stopped(Result<(), CallError>),
}

/// What happens. Every call among the actions is answered by exactly one event, however late.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Time passed. Sent a few times per second; nothing depends on how often.
    Tick,
    Discovered(Result<Discovery, String>),
    /// What this coordinator and the publisher can do with each other; new groups are made accordingly.
    PeersCan {
        checkpoint: bool,
    },
    /// `None`: the publisher has never had any.
    CommittedAnswered(Result<Option<Committed>, CallError>),
    OffsetsInitialized(Result<Committed, CallError>),
    OffsetsReset(Result<Committed, CallError>),
    /// The documents are stored; `logged`: what the log has for this name already, in order.
    GroupCreated {
        group: GroupId,
        logged: Vec<LogEntry>,
    },
    GroupRegistered {
        group: GroupId,
        result: Result<(), CallError>,
    },
    GroupEnded {
        group: GroupId,
        result: Result<(), CallError>,
    },
    /// What the log holds now: the decision asked for, or the one that was there before it.
    DecisionStored {
        group: GroupId,
        entry: LogEntry,
    },
    /// A runner lives; `tasks`: all tasks of this supervisor that it has, ended ones too.
    Heartbeat {
        runner: RunnerView,
        tasks: Vec<TaskReport>,
    },
    TaskAnswered {
        task: TaskId,
        answer: TaskAnswer,
    },
}

/// One stored change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    PutSupervisor(Box<SupervisorDocument>),
    PutGroup(Box<GroupDocument>),
    DeleteGroup(GroupId),
    PutTask(Box<TaskDocument>),
    DeleteTask(TaskId),
    /// Removes entries of the checkpoint log below this sequence; `None` = all.
    TrimLog {
        base: BaseSequenceName,
        below: Option<SequenceId>,
    },
    AppendHistory(HistoryLine),
}

/// What is to be done. The order matters: a `Store`, `CreateGroup` or `RecordDecision` is durable before anything
/// behind it is begun; calls are only begun in order, and answered whenever they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// All of it in one transaction.
    Store(Vec<Change>),
    /// Store, then look the name up in the log; answer with [`Event::GroupCreated`].
    CreateGroup {
        group: GroupId,
        base: BaseSequenceName,
        changes: Vec<Change>,
    },
    /// Write the end to the log unless there is one (I5); answer with [`Event::DecisionStored`].
    RecordDecision {
        group: GroupId,
        base: BaseSequenceName,
        entry: LogEntry,
    },
    Discover {
        topic: String,
    },
    GetCommitted {
        topic: String,
    },
    InitializeOffsets {
        stream: Stream,
        start: StartOffsets,
    },
    ResetOffsets(ResetCall),
    /// Before a task is assigned; the tokens replace those registered before.
    RegisterGroup(RegisterCall),
    /// Also the fence: a group that has ended publishes nothing.
    EndGroup {
        supervisor: SupervisorId,
        group: GroupId,
    },
    AssignTask {
        runner: RunnerId,
        assignment: Box<Assignment>,
    },
    /// Connect, own nothing; a later `AssignTask` with the same token begins it.
    PrepareTask(Box<PrepareCall>),
    PauseTask {
        runner: RunnerId,
        task: TaskId,
    },
    ResumeTask {
        runner: RunnerId,
        task: TaskId,
    },
    SetEndOffsets {
        runner: RunnerId,
        task: TaskId,
        entry: LogEntry,
    },
    StopTask {
        runner: RunnerId,
        task: TaskId,
        reason: StopReason,
    },
    /// For the log and for people.
    Alert(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetCall {
    pub topic: String,
    /// Empty = all.
    pub partitions: BTreeSet<PartitionId>,
    pub new_offsets: PartitionOffsets,
    /// What was seen; a difference refuses the reset.
    pub expected: PartitionOffsets,
    pub who: String,
    pub why: String,
    pub key: String,
    /// The stream as it is now; `None` = keep what is stored.
    pub stream: Option<Stream>,
}

/// A task of a group that may come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrepareCall {
    pub runner: RunnerId,
    pub task: TaskId,
    pub token: AssignmentToken,
    pub supervisor: SupervisorId,
    /// The group that it may become a replica of.
    pub group: GroupId,
    pub stream: Stream,
    pub spec_json: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegisterCall {
    pub supervisor: SupervisorId,
    pub group: GroupId,
    pub base: BaseSequenceName,
    pub generation: Generation,
    pub start: StartOffsets,
    pub topic: String,
    pub mode: PublishMode,
    pub tokens: BTreeSet<AssignmentToken>,
    /// Grows with every registration of this life; the epoch orders lives.
    pub revision: u64,
}

/// What people ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// A valid spec.
    Submit(Box<Settings>),
    Suspend,
    Resume,
    /// Closes the open sequence of these reading groups now; empty = of all.
    Checkpoint {
        groups: BTreeSet<GroupId>,
    },
    Terminate {
        publish: Publish,
        offsets: KeepOffsets,
    },
    Reset {
        /// Empty: those with an offset, else all.
        partitions: BTreeSet<PartitionId>,
        offsets: PartitionOffsets,
        to: ResetTo,
        /// Also when records would never be read.
        force: bool,
        who: String,
        why: String,
        key: String,
    },
}

/// A command that is refused; nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("supervisor {id} is terminated; submit its spec again to start it anew")]
    Terminated { id: SupervisorId },
    #[error("supervisor {id} is being terminated; wait until it has ended (status shows it)")]
    Stopping { id: SupervisorId },
    #[error("supervisor {id} is being reset already; wait until that is done (status shows it)")]
    Resetting { id: SupervisorId },
    #[error(
        "supervisor {id} reads topic {from:?}, and its offsets belong to that topic; to read {to:?} instead: \
         `tidegate supervisor terminate {id} --forget-offsets`, then submit this spec again; or give the new \
         spec another \"id\""
    )]
    OtherTopic {
        id: SupervisorId,
        from: String,
        to: String,
    },
    #[error("group {group} is not one of supervisor {id} that reads in checkpointing mode: {why}")]
    NoCheckpoint {
        id: SupervisorId,
        group: String,
        why: String,
    },
    #[error("partition {partition} is not in topic {topic}; it has {known}")]
    NoSuchPartition {
        partition: PartitionId,
        topic: String,
        known: String,
    },
    #[error(
        "the reset would lose data: nobody would read {offsets} offsets ({ranges}); \
         `tidegate supervisor reset {id} --dry-run` shows it all, and --force does it all the same"
    )]
    WouldLose {
        id: SupervisorId,
        offsets: u64,
        ranges: String,
    },
    #[error(
        "topic {topic} of supervisor {id} has not been looked at yet, so nobody knows what a reset would lose; try \
         again, or do it all the same: to given offsets, or as the spec says, with --force"
    )]
    NotLooked { id: SupervisorId, topic: String },
}

/// What is started with after a restart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Loaded {
    pub groups: Vec<GroupDocument>,
    pub tasks: Vec<TaskDocument>,
    /// What the log holds, by name, in order.
    pub log: BTreeMap<BaseSequenceName, Vec<LogEntry>>,
}

/// Limits that do not come from the spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// A runner that was silent for so long is gone.
    pub runner_timeout_millis: u64,
    /// Pause before a failed call is repeated.
    pub retry_millis: u64,
    /// Ended tasks that are kept for people.
    pub ended_tasks_kept: usize,
    /// This coordinator and the publisher can do checkpointing groups.
    pub can_checkpoint: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            runner_timeout_millis: 30_000,
            retry_millis: 1_000,
            ended_tasks_kept: 20,
            can_checkpoint: false,
        }
    }
}

/// An error for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentError {
    pub at: TimestampMillis,
    pub message: String,
}
