//! The supervisor: one topic, cut into task groups that follow one another without gap or overlap.
//!
//! Owns: which groups there are, where each starts, when it ends, which runner holds its replicas, and what is
//! durable before what. Promises: plain data and no clock, so that equal events give equal actions; calls are
//! never waited for, each group has a lane of its own (D20); a partition is read by one group at a time, and the
//! next one starts where the finish decision of the one before it ended, else at the committed offsets (I5); no
//! task's word moves it on, only the catalog's and the log's. Must never: treat "has not answered" as "is dead"
//! before the runner is silent for the whole time-out (D18, B32).
//!
//! [`Supervisor::on`] takes an event, then walks through all rules; every rule looks at the state and does what
//! is missing, so that a restart or a lost answer needs no path of its own.

mod commands;
mod create;
mod document;
mod event;
mod finish;
mod giving_up;
mod pending;
mod prepare;
mod reset;
mod settings;
mod settle;
mod snapshot;
mod staff;
mod stream;
mod tasks;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidegate_types::{OffsetRange, PartitionId, RunnerId, SupervisorId, TaskId, TimestampMillis};

use crate::group::{Call, GroupRun, GroupState, Replica, StoredMode, TaskDocument};
use crate::mutation::{Mutation, is};
use crate::task::{Ending, StopReason};

pub use document::{
    Desired, Fresh, HistoryLine, KeepOffsets, Publish, ResetDocument, ResetKind, SupervisorDocument,
};
pub use event::{
    Action, CallError, Change, Command, Committed, Discovery, Event, IdSource, Limits, Loaded, PauseAnswer,
    PrepareCall, RecentError, Refusal, RegisterCall, ResetCall, RunnerView, TaskAnswer,
};
pub use prepare::PreparationView;
pub use reset::{PartitionReset, ResetPlan, ResetTo};
pub use settings::{FirstStart, OnLostData, Run, Settings};
pub use snapshot::{GroupView, PartitionView, Snapshot, State, TaskPlace, TaskView};

use settings::after;

/// Errors that are kept for people.
const RECENT_ERRORS: usize = 20;

/// A runner that was heard of.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    /// `None`: known from a task's document only.
    view: Option<RunnerView>,
    at: TimestampMillis,
    /// Tasks of this supervisor in its last heartbeat, not ended.
    holds: BTreeSet<TaskId>,
}

/// A task that is being stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stop {
    runner: RunnerId,
    reason: StopReason,
    call: Call,
}

/// The newest look at the committed offsets.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Look {
    /// `None`: the publisher has none.
    committed: Option<Committed>,
    /// Number of the look; 0 = none yet.
    number: u64,
}

/// One supervisor at work.
#[derive(Debug, Clone)]
pub struct Supervisor {
    document: SupervisorDocument,
    limits: Limits,
    /// When this life of the coordinator took it up.
    taken_up_at: TimestampMillis,
    /// By ordinal: order of creation.
    groups: BTreeMap<u64, GroupRun>,
    runners: BTreeMap<RunnerId, Seen>,
    stops: BTreeMap<TaskId, Stop>,
    /// Tasks of the next groups, by lane.
    preparations: BTreeMap<u32, prepare::Preparation>,
    /// How long each lane's roll-over waits for them.
    patience: BTreeMap<u32, prepare::Patience>,
    /// Lanes that roll over in the old order, and why.
    old_order: BTreeMap<u32, String>,
    /// Ended tasks, oldest first, for people.
    ended: VecDeque<TaskDocument>,
    discovery: Option<(Discovery, TimestampMillis)>,
    discover: Call,
    discover_at: TimestampMillis,
    /// What was committed when the look-up now under way began; what is committed later may be ahead of it.
    committed_before: Option<Committed>,
    discovery_failures: u32,
    stream_changed: Option<String>,
    lost: BTreeMap<PartitionId, OffsetRange>,
    look: Look,
    looking: Call,
    looks_sent: u64,
    /// The look on its way began before offsets were changed.
    discard_look: bool,
    look_at: TimestampMillis,
    initialize: Call,
    resetting: Call,
    /// The reset needs a look later than this one, to compare with.
    reset_look: Option<u64>,
    /// Registrations sent in this life.
    registrations: u64,
    /// Tasks that failed one after the other.
    failures: u32,
    errors: VecDeque<RecentError>,
    actions: Vec<Action>,
}

impl Supervisor {
    /// The first version of a supervisor. Its document is among the actions.
    pub fn submit(
        id: SupervisorId,
        settings: Settings,
        limits: Limits,
        now: TimestampMillis,
    ) -> (Self, Vec<Action>) {
        let desired = match settings.run {
            Run::Running => Desired::Running,
            Run::Suspended => Desired::Suspended,
        };
        let line = commands::submitted(now, 1, &settings);
        let document = SupervisorDocument {
            id,
            version: 1,
            specs: [(1, settings)].into(),
            desired,
            submitted_at: now,
            next_group: 1,
            fresh: Fresh::All,
            reset: None,
            done_resets: Vec::new(),
            counts: Default::default(),
            unknown: Default::default(),
        };
        let mut supervisor = Self::from_document(document, limits, now);
        supervisor.store(vec![supervisor.put_supervisor(), Change::AppendHistory(line)]);
        let actions = std::mem::take(&mut supervisor.actions);
        (supervisor, actions)
    }

    /// A supervisor from what is stored, after a restart or a change of leader.
    pub fn restore(
        document: SupervisorDocument,
        loaded: Loaded,
        limits: Limits,
        now: TimestampMillis,
    ) -> Self {
        let mut supervisor = Self::from_document(document, limits, now);
        for stored in loaded.groups {
            let mut logged = loaded
                .log
                .get(&stored.base_sequence_name)
                .cloned()
                .unwrap_or_default();
            if is(Mutation::ForgetLog) {
                logged.clear();
            }
            let finish = logged
                .last()
                .filter(|entry| entry.finish)
                .map(|entry| entry.decision.clone());
            let timeout = supervisor.completion_timeout(stored.spec_version);
            let mut group = GroupRun::new(stored);
            let name = group.document.id.clone();
            match &mut group.document.state {
                state @ GroupState::Reading => {
                    if let StoredMode::Unknown(mode) = &group.document.mode {
                        *state = GroupState::GivingUp {
                            decision: finish,
                            why: format!("group {name} is of mode {mode}, which this version does not know"),
                            stop: crate::group::StopWord::Replaced,
                        };
                    } else if let Some(decision) = finish {
                        // Decided, and the coordinator ended before it could note that (I5).
                        *state = GroupState::Pending {
                            decision,
                            deadline: after(now, timeout),
                            committed: false,
                        };
                    }
                }
                // Nobody could tell progress while the coordinator was away.
                GroupState::Pending { deadline, .. } => *deadline = (*deadline).max(after(now, timeout)),
                GroupState::GivingUp { .. } | GroupState::Done | GroupState::Lost { .. } => {}
            }
            if group.document.is_checkpointing() {
                group.adopt(logged);
            }
            supervisor.groups.insert(group.document.ordinal, group);
        }
        for task in loaded.tasks {
            if let Some(runner) = &task.runner {
                supervisor.runners.entry(runner.clone()).or_insert(Seen {
                    view: None,
                    at: now,
                    holds: BTreeSet::new(),
                });
            }
            let keeps = |end: &Ending| matches!(end, Ending::Published | Ending::Superseded);
            let group = supervisor
                .groups
                .values_mut()
                .find(|group| group.document.id == task.group);
            match (group, &task.end) {
                (Some(group), end) if end.as_ref().is_none_or(|end| keeps(&end.how)) => {
                    group.replicas.insert(task.id.clone(), Replica::new(task));
                }
                _ => supervisor.ended.push_back(task),
            }
        }
        supervisor
    }

    fn from_document(document: SupervisorDocument, limits: Limits, now: TimestampMillis) -> Self {
        Self {
            document,
            limits,
            taken_up_at: now,
            groups: BTreeMap::new(),
            runners: BTreeMap::new(),
            stops: BTreeMap::new(),
            preparations: BTreeMap::new(),
            patience: BTreeMap::new(),
            old_order: BTreeMap::new(),
            ended: VecDeque::new(),
            discovery: None,
            discover: Call::Idle,
            discover_at: now,
            committed_before: None,
            discovery_failures: 0,
            stream_changed: None,
            lost: BTreeMap::new(),
            look: Look::default(),
            looking: Call::Idle,
            looks_sent: 0,
            discard_look: false,
            look_at: now,
            initialize: Call::Idle,
            resetting: Call::Idle,
            reset_look: None,
            registrations: 0,
            failures: 0,
            errors: VecDeque::new(),
            actions: Vec::new(),
        }
    }

    /// The one entry for what happens.
    pub fn on(&mut self, now: TimestampMillis, event: Event, ids: &mut impl IdSource) -> Vec<Action> {
        match event {
            Event::Tick => {}
            Event::PeersCan { checkpoint } => self.limits.can_checkpoint = checkpoint,
            Event::Discovered(result) => self.discovered(now, result),
            Event::CommittedAnswered(result) => self.committed_answered(now, result),
            Event::OffsetsInitialized(result) => self.offsets_initialized(now, result),
            Event::OffsetsReset(result) => self.offsets_reset(now, result),
            Event::GroupCreated { group, logged } => self.group_created(now, &group, logged),
            Event::GroupRegistered { group, result } => self.group_registered(now, &group, result),
            Event::GroupEnded { group, result } => self.group_ended(now, &group, result),
            Event::DecisionStored { group, entry } => self.decision_stored(now, &group, entry),
            Event::Heartbeat { runner, tasks } => self.heartbeat(now, runner, tasks),
            Event::TaskAnswered { task, answer } => self.task_answered(now, &task, answer),
        }
        self.advance(now, ids);
        std::mem::take(&mut self.actions)
    }

    /// What is missing is done, rule by rule.
    fn advance(&mut self, now: TimestampMillis, ids: &mut impl IdSource) {
        self.look_up(now);
        self.find_lost();
        self.prepare(now, ids);
        self.steer(now);
        self.find_lost();
        self.settle(now, ids);
        self.create_groups(now);
        self.staff(now, ids);
        self.send_stops(now);
        debug_assert_eq!(self.broken(), None, "groups of {}", self.document.id);
    }

    pub fn id(&self) -> &SupervisorId {
        &self.document.id
    }
    pub fn document(&self) -> &SupervisorDocument {
        &self.document
    }
    pub fn groups(&self) -> impl Iterator<Item = &GroupRun> {
        self.groups.values()
    }
    /// Tasks that have not ended, as far as is recorded; a runner may forget any other ended one.
    pub fn live_tasks(&self) -> BTreeSet<TaskId> {
        self.groups
            .values()
            .flat_map(GroupRun::live)
            .map(|replica| replica.document.id.clone())
            .collect()
    }

    /// The rule that is broken, if one is: partitions are read by one group at a time, and each group starts where
    /// the one before it ends (I4, I5).
    pub fn broken(&self) -> Option<String> {
        let mut last: BTreeMap<PartitionId, (u64, &GroupRun)> = BTreeMap::new();
        for (ordinal, group) in &self.groups {
            if group.document.is_over() || group.is_given_up() {
                continue;
            }
            for (partition, start) in group.document.start.iter() {
                let Some((number, before)) = last.insert(partition, (*ordinal, group)) else {
                    continue;
                };
                let end = before.end().and_then(|end| end.get(partition));
                // A group between them may be over while an earlier one still waits for its handoff.
                let counts = |group: &GroupRun| !group.document.is_over() && !group.is_given_up();
                let knows_all =
                    (number..*ordinal).all(|between| self.groups.get(&between).is_some_and(counts));
                let fits = match end {
                    Some(end) if knows_all => end == start,
                    Some(end) => end <= start,
                    None => false,
                };
                if !fits {
                    let (a, b) = (&before.document.id, &group.document.id);
                    return Some(format!(
                        "partition {partition}: {a} ends at {end:?}, {b} starts at {start}"
                    ));
                }
            }
        }
        None
    }

    fn topic(&self) -> String {
        self.document
            .settings()
            .map(|settings| settings.topic.clone())
            .unwrap_or_default()
    }
    fn completion_timeout(&self, version: u32) -> u64 {
        let spec = self
            .document
            .specs
            .get(&version)
            .or_else(|| self.document.settings());
        spec.map_or(1_800_000, |settings| settings.completion_timeout_millis)
    }
    fn retry(&self, now: TimestampMillis) -> Call {
        Call::Again(after(now, self.limits.retry_millis))
    }
    /// True once a runner was silent for the whole time-out.
    fn is_gone(&self, runner: &RunnerId, now: TimestampMillis) -> bool {
        let last = self
            .runners
            .get(runner)
            .map_or(self.taken_up_at, |seen| seen.at.max(self.taken_up_at));
        now >= after(last, self.limits.runner_timeout_millis)
    }
    fn group_by_id(&mut self, id: &tidegate_types::GroupId) -> Option<&mut GroupRun> {
        self.groups.values_mut().find(|group| group.document.id == *id)
    }

    fn put_supervisor(&self) -> Change {
        let mut document = self.document.clone();
        let used: BTreeSet<u32> = self
            .groups
            .values()
            .map(|group| group.document.spec_version)
            .collect();
        document
            .specs
            .retain(|version, _| *version == document.version || used.contains(version));
        Change::PutSupervisor(Box::new(document))
    }
    fn store(&mut self, changes: Vec<Change>) {
        self.actions.push(Action::Store(changes));
    }
    /// For people: kept, logged, and never repeated while it is the newest.
    fn error(&mut self, now: TimestampMillis, message: String) {
        if self.errors.back().is_some_and(|last| last.message == message) {
            return;
        }
        if self.errors.len() == RECENT_ERRORS {
            self.errors.pop_front();
        }
        self.errors.push_back(RecentError {
            at: now,
            message: message.clone(),
        });
        self.actions.push(Action::Alert(message));
    }

    /// Runs over all groups in order of creation; each is taken out while it is worked on.
    fn each_group(&mut self, mut work: impl FnMut(&mut Self, &mut GroupRun)) {
        let ordinals: Vec<u64> = self.groups.keys().copied().collect();
        for ordinal in ordinals {
            if let Some(mut group) = self.groups.remove(&ordinal) {
                work(self, &mut group);
                self.groups.insert(ordinal, group);
            }
        }
    }
}
