//! The next groups' tasks, made ready before the groups that they follow stand still (I10).
//!
//! Owns: prepared tasks: placed, connected, owning nothing, without offsets or name. Promises: nothing of them is
//! durable but the number of the group that they may become, so that one may be dropped at any time without effect;
//! a reading group waits for them for a bounded time only, and for none that cannot be had: then it is the old
//! order, stop and start. The hand-over is the next group's row: it is stored before any of them is told to begin.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{
    AssignmentToken, GroupId, PartitionId, RunnerId, StartOffsets, TaskId, TimestampMillis,
};

use super::settings::after;
use super::{Action, CallError, Desired, IdSource, PrepareCall, Stop, Supervisor};
use crate::group::{Call, GroupRun, Replica, TaskDocument, TaskReport, TaskState};
use crate::task::{GroupMode, StopReason, Stream, Unknown};

/// Longest time before the end of a task duration at which the next tasks are prepared.
const MOST_LEAD_MILLIS: u64 = 30_000;
/// How long a group that has to end waits for them.
const PATIENCE_MILLIS: u64 = 10_000;
/// How long they are kept when nobody takes them.
const KEEP_MILLIS: u64 = 120_000;
/// How long none are made again after a runner has refused them.
const AGAIN_MILLIS: u64 = 30_000;
/// Heartbeats without a task before it counts as lost: one may have been under way already.
const MISSES: u8 = 2;

/// The tasks of a lane's next group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Preparation {
    /// Of the group that they become.
    ordinal: u64,
    group: GroupId,
    partitions: BTreeSet<PartitionId>,
    spec_version: u32,
    stream: Stream,
    /// Nobody waits for them longer.
    deadline: TimestampMillis,
    /// They go then, if nobody has taken them.
    kept_until: TimestampMillis,
    tasks: BTreeMap<TaskId, PreparedTask>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct PreparedTask {
    document: TaskDocument,
    runner: RunnerId,
    token: AssignmentToken,
    call: Call,
    /// Its runner took it.
    accepted: bool,
    /// It is connected.
    ready: bool,
    /// Heartbeats without it, in a row.
    missed: u8,
}

/// What bounds the attempts of one roll-over of a lane, however often its tasks are refused or vanish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Patience {
    spec_version: u32,
    /// Nobody waits longer, whichever attempt it is.
    deadline: TimestampMillis,
    /// No attempt is made before.
    not_before: TimestampMillis,
}

/// What a person sees of a roll-over that comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparationView {
    pub partitions: Vec<PartitionId>,
    /// The group that follows; `None` = none is prepared.
    pub group: Option<GroupId>,
    pub tasks: usize,
    pub ready: usize,
    /// Why it will be the old order, stop and start; empty = it will not.
    pub old_order: String,
}

impl Preparation {
    fn is_ready(&self) -> bool {
        self.tasks.values().all(|task| task.ready)
    }
}

impl Supervisor {
    /// Lets go what does not fit any more, makes what is needed soon, repeats calls.
    pub(super) fn prepare(&mut self, now: TimestampMillis, ids: &mut impl IdSource) {
        let lanes = self.lanes();
        let wanted = self.wants_preparation(now, &lanes);
        let dropped: Vec<u32> = self
            .preparations
            .iter()
            .filter(|(lane, preparation)| !self.still_fits(now, **lane, preparation, &lanes))
            .map(|(lane, _)| *lane)
            .collect();
        for lane in dropped {
            self.drop_preparation(lane);
        }
        self.old_order.retain(|lane, _| wanted.contains(lane));
        let version = self.document.version;
        self.patience
            .retain(|lane, patience| wanted.contains(lane) && patience.spec_version == version);
        if self.lacks_slot() {
            return;
        }
        for lane in wanted {
            let is_refused = self
                .patience
                .get(&lane)
                .is_some_and(|patience| now < patience.not_before);
            if is_refused || self.preparations.contains_key(&lane) {
                continue;
            }
            if let Some(partitions) = lanes.get(&lane) {
                match self.make_preparation(now, lane, partitions.clone(), ids) {
                    Ok(preparation) => {
                        self.old_order.remove(&lane);
                        self.preparations.insert(lane, preparation);
                    }
                    Err(why) => {
                        self.old_order.insert(lane, why);
                    }
                }
            }
        }
        self.send_prepares(now);
    }

    /// Partitions of each lane as they would be cut now.
    fn lanes(&self) -> BTreeMap<u32, BTreeSet<PartitionId>> {
        let mut lanes: BTreeMap<u32, BTreeSet<PartitionId>> = BTreeMap::new();
        if let Some((discovery, _)) = &self.discovery {
            for partition in discovery.partitions() {
                lanes.entry(self.lane(partition)).or_default().insert(partition);
            }
        }
        lanes
    }

    /// Lanes of groups that roll over now or soon, if they may follow on without a gap.
    fn wants_preparation(
        &self,
        now: TimestampMillis,
        lanes: &BTreeMap<u32, BTreeSet<PartitionId>>,
    ) -> BTreeSet<u32> {
        let Some(settings) = self.document.settings() else {
            return BTreeSet::new();
        };
        let mode = self.mode(now).0;
        if !self.may_create(now) || !self.lost.is_empty() || mode != GroupMode::Checkpointing {
            return BTreeSet::new();
        }
        let lead = (settings.task_duration_millis / 4).min(MOST_LEAD_MILLIS);
        let soon = settings.task_duration_millis.saturating_sub(lead);
        let rolls = |group: &&GroupRun| {
            let is_new = self
                .document
                .specs
                .get(&group.document.spec_version)
                .is_none_or(|own| own.task_view != settings.task_view);
            let is_old = group
                .document
                .first_read
                .is_some_and(|first| now >= after(first, soon));
            group.reads() && group.document.first_read.is_some() && (is_new || is_old)
        };
        let rolling: BTreeSet<PartitionId> = self
            .groups
            .values()
            .filter(rolls)
            .flat_map(GroupRun::partitions)
            .collect();
        let has_rolling = |partitions: &BTreeSet<PartitionId>| !partitions.is_disjoint(&rolling);
        lanes
            .iter()
            .filter(|(_, partitions)| has_rolling(partitions))
            .map(|(lane, _)| *lane)
            .collect()
    }

    /// A task that works now comes before one that may work later.
    fn lacks_slot(&self) -> bool {
        self.groups
            .values()
            .flat_map(GroupRun::live)
            .any(|replica| replica.lacks_slot)
    }

    fn still_fits(
        &self,
        now: TimestampMillis,
        lane: u32,
        preparation: &Preparation,
        lanes: &BTreeMap<u32, BTreeSet<PartitionId>>,
    ) -> bool {
        let stream = self.discovery.as_ref().map(|(discovery, _)| &discovery.stream);
        self.document.desired == Desired::Running
            && self.document.reset.is_none()
            && !self.lacks_slot()
            && lanes.get(&lane) == Some(&preparation.partitions)
            && self.document.version == preparation.spec_version
            && stream == Some(&preparation.stream)
            && now < preparation.kept_until
            && preparation
                .tasks
                .values()
                .all(|task| task.missed < MISSES && !self.is_gone(&task.runner, now))
    }

    fn make_preparation(
        &mut self,
        now: TimestampMillis,
        lane: u32,
        partitions: BTreeSet<PartitionId>,
        ids: &mut impl IdSource,
    ) -> Result<Preparation, String> {
        let (Some(settings), Some((discovery, _))) = (self.document.settings(), &self.discovery) else {
            return Err("the topic is not known yet".into());
        };
        let replicas = settings.replicas as usize;
        let stream = discovery.stream.clone();
        let runners = self.runners_to_prepare(now, replicas)?;
        let ordinal = self.document.next_group;
        let named = |error: tidegate_types::InvalidId| format!("a task cannot be named: {error}");
        let group = self.group_id(ordinal).map_err(named)?;
        let mut tasks = BTreeMap::new();
        for (number, runner) in (1_u32..).zip(runners) {
            let id = TaskId::new(format!("{group}.{number}")).map_err(named)?;
            let token = ids.token();
            let document = TaskDocument {
                id: id.clone(),
                group: group.clone(),
                supervisor: self.document.id.clone(),
                token: token.clone(),
                runner: Some(runner.clone()),
                created_at: now,
                end: None,
                counts: Default::default(),
                unknown: Unknown::new(),
            };
            let task = PreparedTask {
                document,
                runner,
                token,
                call: Call::Idle,
                accepted: false,
                ready: false,
                missed: 0,
            };
            tasks.insert(id, task);
        }
        // The number is taken for good before any runner hears of it: no other task ever has these names.
        self.document.next_group = ordinal + 1;
        let change = self.put_supervisor();
        self.store(vec![change]);
        let patience = self.patience.entry(lane).or_insert(Patience {
            spec_version: self.document.version,
            deadline: after(now, PATIENCE_MILLIS),
            not_before: now,
        });
        Ok(Preparation {
            ordinal,
            group,
            partitions,
            spec_version: self.document.version,
            stream,
            deadline: patience.deadline,
            kept_until: after(now, PATIENCE_MILLIS + KEEP_MILLIS),
            tasks,
        })
    }

    /// As many different runners with a free slot as there are replicas; else why not.
    fn runners_to_prepare(&self, now: TimestampMillis, replicas: usize) -> Result<Vec<RunnerId>, String> {
        let mut free: Vec<(u32, &RunnerId)> = Vec::new();
        let mut unable = 0;
        for (id, seen) in &self.runners {
            let Some(view) = seen
                .view
                .as_ref()
                .filter(|view| !view.draining && !self.is_gone(id, now))
            else {
                continue;
            };
            if !(view.can_checkpoint && view.can_prepare) {
                unable += 1;
                continue;
            }
            let placed = view.occupied + self.placed_since(id, seen, None);
            match view.slots.saturating_sub(placed) {
                0 => {}
                slots => free.push((slots, id)),
            }
        }
        if free.len() < replicas {
            let able = free.len();
            return Err(if unable > 0 && able == 0 {
                "the runners with free slots cannot prepare tasks; upgrade them".to_owned()
            } else {
                format!(
                    "{replicas} runners with a free slot are needed to prepare the next tasks, there are {able}: \
                     raise runner.slots or start more runners"
                )
            });
        }
        free.sort_by(|(a, _), (b, _)| b.cmp(a));
        Ok(free
            .into_iter()
            .take(replicas)
            .map(|(_, id)| id.clone())
            .collect())
    }

    /// Prepared tasks on this runner that its last heartbeat did not count yet.
    pub(super) fn prepared_since(&self, runner: &RunnerId, seen: &super::Seen) -> usize {
        let tasks = self.preparations.values().flat_map(|one| &one.tasks);
        tasks
            .filter(|(id, task)| task.runner == *runner && !seen.holds.contains(*id))
            .count()
    }

    fn send_prepares(&mut self, now: TimestampMillis) {
        let supervisor = self.document.id.clone();
        let specs = &self.document.specs;
        for preparation in self.preparations.values_mut() {
            let Some(settings) = specs.get(&preparation.spec_version) else {
                continue;
            };
            for (id, task) in &mut preparation.tasks {
                if task.accepted || !task.call.is_ready(now) {
                    continue;
                }
                task.call = Call::OnItsWay;
                self.actions.push(Action::PrepareTask(Box::new(PrepareCall {
                    runner: task.runner.clone(),
                    task: id.clone(),
                    token: task.token.clone(),
                    supervisor: supervisor.clone(),
                    group: preparation.group.clone(),
                    stream: preparation.stream.clone(),
                    spec_json: settings.spec_json.clone(),
                })));
            }
        }
    }

    fn preparation_of(&mut self, task: &TaskId) -> Option<(u32, &mut PreparedTask)> {
        self.preparations
            .iter_mut()
            .find_map(|(lane, one)| Some((*lane, one.tasks.get_mut(task)?)))
    }

    pub(super) fn prepare_answered(
        &mut self,
        now: TimestampMillis,
        task: &TaskId,
        result: Result<Box<TaskReport>, CallError>,
    ) {
        let retry = self.retry(now);
        let Some((lane, prepared)) = self.preparation_of(task) else {
            return;
        };
        match result {
            Ok(report) => {
                prepared.call = Call::Idle;
                prepared.accepted = true;
                prepared.missed = 0;
                prepared.ready |= report.state == TaskState::Prepared;
            }
            Err(CallError::Unreachable(_)) => prepared.call = retry,
            Err(error) => {
                let why = format!("runner {} does not prepare it: {error}", prepared.runner);
                self.error(now, format!("task {task}: {why}"));
                self.refused(now, lane, why);
            }
        }
    }

    /// What a runner has refused it refuses again: it is the old order, unless a later attempt is in time.
    fn refused(&mut self, now: TimestampMillis, lane: u32, why: String) {
        if let Some(patience) = self.patience.get_mut(&lane) {
            patience.not_before = after(now, AGAIN_MILLIS);
        }
        self.old_order.insert(lane, why);
        self.drop_preparation(lane);
    }

    /// A report about a prepared task. False: it is none.
    pub(super) fn prepared_reported(&mut self, now: TimestampMillis, report: &TaskReport) -> bool {
        let Some((lane, prepared)) = self.preparation_of(&report.task) else {
            return false;
        };
        if report
            .token
            .as_ref()
            .is_some_and(|token| *token != prepared.token)
        {
            return false;
        }
        match report.state {
            TaskState::Preparing => prepared.ready = false,
            TaskState::Prepared => prepared.ready = true,
            state if state.is_ended() => {
                let why = format!("runner {} has ended it: {}", prepared.runner, report.reason);
                self.refused(now, lane, why);
            }
            _ => {}
        }
        true
    }

    /// What this runner does not have any more.
    pub(super) fn prepared_missing(&mut self, runner: &RunnerId, reported: &BTreeSet<TaskId>) {
        let tasks = self.preparations.values_mut().flat_map(|one| &mut one.tasks);
        for (id, task) in tasks.filter(|(_, task)| task.runner == *runner && task.accepted) {
            task.missed = if reported.contains(id) { 0 } else { task.missed + 1 };
        }
    }

    /// They go without effect.
    fn drop_preparation(&mut self, lane: u32) {
        let Some(preparation) = self.preparations.remove(&lane) else {
            return;
        };
        for (id, task) in preparation.tasks {
            let stop = Stop {
                runner: task.runner,
                reason: StopReason::Replaced,
                call: Call::Idle,
            };
            self.stops.insert(id, stop);
        }
    }

    /// A group that rolls over waits: its followers are about to be ready.
    pub(super) fn waits_for_followers(&self, now: TimestampMillis, group: &GroupRun) -> bool {
        group.partitions().any(|partition| {
            self.preparations
                .get(&self.lane(partition))
                .is_some_and(|preparation| !preparation.is_ready() && now < preparation.deadline)
        })
    }

    /// The prepared tasks of the group that begins with these offsets, if there are any that fit.
    pub(super) fn take_preparation(
        &mut self,
        lane: u32,
        start: &StartOffsets,
        mode: GroupMode,
    ) -> Option<(u64, Vec<Replica>)> {
        let preparation = self.preparations.get(&lane)?;
        let overtaken = self.groups.values().any(|group| {
            group.document.ordinal > preparation.ordinal
                && group
                    .partitions()
                    .any(|partition| preparation.partitions.contains(&partition))
        });
        let partitions: BTreeSet<PartitionId> = start.partitions().collect();
        if overtaken || mode != GroupMode::Checkpointing || partitions != preparation.partitions {
            self.drop_preparation(lane);
            return None;
        }
        let preparation = self.preparations.remove(&lane)?;
        self.patience.remove(&lane);
        let replicas = preparation
            .tasks
            .into_values()
            .map(|task| Replica::new(task.document))
            .collect();
        Some((preparation.ordinal, replicas))
    }

    pub(super) fn preparation_views(&self) -> Vec<PreparationView> {
        let made = self.preparations.values().map(|one| PreparationView {
            partitions: one.partitions.iter().copied().collect(),
            group: Some(one.group.clone()),
            tasks: one.tasks.len(),
            ready: one.tasks.values().filter(|task| task.ready).count(),
            old_order: String::new(),
        });
        let lanes = self.lanes();
        let not_made = self.old_order.iter().filter_map(|(lane, why)| {
            Some(PreparationView {
                partitions: lanes.get(lane)?.iter().copied().collect(),
                group: None,
                tasks: 0,
                ready: 0,
                old_order: why.clone(),
            })
        });
        made.chain(not_made).collect()
    }
}
