//! Replicas: how many, with which tokens, on which runners, and what they still have to be told.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{GroupId, RunnerId, TaskId, TimestampMillis};

use super::settings::after;
use super::{Action, CallError, Change, IdSource, RegisterCall, Supervisor};
use crate::group::{Call, GroupRun, HowToTell, Replica, StopWord, StoredMode, TaskDocument, TaskState};
use crate::mutation::{Mutation, is};
use crate::publish::GroupMode as PublishMode;
use crate::task::{Assignment, Ending, GroupMode, LogEntry, Unknown};

impl Supervisor {
    /// Older groups first: later ones wait for them anyway.
    pub(super) fn staff(&mut self, now: TimestampMillis, ids: &mut impl IdSource) {
        self.each_group(|supervisor, group| {
            if group.creating || group.document.is_over() || group.is_given_up() {
                return;
            }
            supervisor.hire(now, group, ids);
            if group.is_given_up() {
                return;
            }
            supervisor.register(now, group);
            if !group.in_round() {
                supervisor.place(now, group);
                supervisor.tell(now, group);
            }
        });
    }

    fn wanted(&self, group: &GroupRun) -> usize {
        let spec = self.document.specs.get(&group.document.spec_version);
        spec.map_or(1, |spec| spec.replicas as usize)
    }

    /// Makes tasks until there are enough. They wait for a slot with a reason.
    fn hire(&mut self, now: TimestampMillis, group: &mut GroupRun, ids: &mut impl IdSource) {
        let ending = group.in_round() || group.is_committed();
        if ending || now < group.no_task_before || !self.has_looked_after(group.look_after) {
            return;
        }
        if group.reads() {
            group.look_after = None;
        }
        let missing = self.wanted(group).saturating_sub(group.live().count());
        if missing == 0 {
            return;
        }
        if let Some((partition, range)) = self.unreadable_from_start(group) {
            // A new task could not read the group's range any more (B21); others may have it already.
            if group.live().next().is_none() {
                let id = &group.document.id;
                let why = format!("group {id}: partition {partition} lost {range} before it was published");
                self.give_up(now, group, why, StopWord::Replaced);
            }
            return;
        }
        let mut changes = Vec::new();
        for _ in 0..missing {
            let Ok(id) = TaskId::new(format!("{}.{}", group.document.id, group.document.next_task)) else {
                return;
            };
            group.document.next_task += 1;
            let task = TaskDocument {
                id,
                group: group.document.id.clone(),
                supervisor: self.document.id.clone(),
                token: ids.token(),
                runner: None,
                created_at: now,
                end: None,
                counts: Default::default(),
                unknown: Unknown::new(),
            };
            changes.push(Change::PutTask(Box::new(task.clone())));
            group.replicas.insert(task.id.clone(), Replica::new(task));
        }
        changes.push(Change::PutGroup(Box::new(group.document.clone())));
        self.store(changes);
    }

    /// The publisher knows the tokens before any task does; tokens of replaced tasks go.
    fn register(&mut self, now: TimestampMillis, group: &mut GroupRun) {
        let wanted = group.wanted_tokens();
        if group.is_committed() || group.registered.as_ref() == Some(&wanted) || !group.register.is_ready(now)
        {
            return;
        }
        group.register = Call::OnItsWay;
        group.registering.clone_from(&wanted);
        self.registrations += 1;
        self.actions.push(Action::RegisterGroup(RegisterCall {
            supervisor: self.document.id.clone(),
            group: group.document.id.clone(),
            base: group.document.base_sequence_name.clone(),
            generation: group.document.generation,
            start: group.document.start.clone(),
            mode: if group.document.is_checkpointing() {
                PublishMode::Checkpointing
            } else {
                PublishMode::Legacy
            },
            topic: group.document.stream.topic.clone(),
            tokens: wanted,
            revision: self.registrations,
        }));
    }

    pub(super) fn group_registered(
        &mut self,
        now: TimestampMillis,
        id: &GroupId,
        result: Result<(), CallError>,
    ) {
        let retry = self.retry(now);
        let Some(group) = self.group_by_id(id) else {
            return;
        };
        match result {
            Ok(()) => {
                group.register = Call::Idle;
                group.registered = Some(std::mem::take(&mut group.registering));
            }
            Err(error) => {
                group.register = retry;
                self.error(now, format!("registering group {id} at the publisher: {error}"));
            }
        }
    }

    fn place(&mut self, now: TimestampMillis, group: &mut GroupRun) {
        if group.is_committed() || (group.is_pending() && !self.has_looked_after(group.look_after)) {
            return;
        }
        let tasks: Vec<TaskId> = group.live().map(|replica| replica.document.id.clone()).collect();
        for task in tasks {
            let Some(replica) = group.replicas.get(&task) else {
                continue;
            };
            match replica.document.runner.clone() {
                None => self.find_place(now, group, &task),
                Some(runner) if self.is_gone(&runner, now) => {
                    // Kept until another runner can take over: it may come back and go on where it was.
                    if self.best_runner(now, group, &task).is_ok() {
                        let why = format!("runner {runner} is silent");
                        self.error(now, format!("task {task} is replaced: {why}"));
                        let mut changes = Vec::new();
                        self.end_task(
                            now,
                            group,
                            &task,
                            Ending::Replaced,
                            why,
                            Some(StopWord::Replaced),
                            &mut changes,
                        );
                        self.store(changes);
                        group.look_after = Some(self.later_look());
                    }
                }
                Some(runner) => self.assign(now, group, &task, runner),
            }
        }
    }

    fn find_place(&mut self, now: TimestampMillis, group: &mut GroupRun, task: &TaskId) {
        let found = self.best_runner(now, group, task);
        let Some(replica) = group.replicas.get_mut(task) else {
            return;
        };
        match found {
            Err(why) => {
                replica.waits_for = why;
                replica.lacks_slot = true;
            }
            Ok(runner) => {
                replica.lacks_slot = false;
                let registered = group.registered.as_ref();
                if !registered.is_some_and(|tokens| tokens.contains(&replica.document.token)) {
                    replica.waits_for = "it is being registered at the publisher".into();
                    return;
                }
                replica.waits_for.clear();
                replica.document.runner = Some(runner.clone());
                let change = Change::PutTask(Box::new(replica.document.clone()));
                self.store(vec![change]);
                self.assign(now, group, task, runner);
            }
        }
    }

    /// The runner with the most free slots that holds no other replica of the group; else why there is none.
    fn best_runner(&self, now: TimestampMillis, group: &GroupRun, task: &TaskId) -> Result<RunnerId, String> {
        let taken: BTreeSet<&RunnerId> = group
            .live()
            .filter(|replica| replica.document.id != *task)
            .filter_map(|replica| replica.document.runner.as_ref())
            .collect();
        let refused = group.replicas.get(task).map(|replica| &replica.refused_by);
        let mut best: Option<(u32, &RunnerId)> = None;
        let (mut alive, mut full, mut unable) = (0, 0, 0);
        for (id, seen) in &self.runners {
            let Some(view) = seen
                .view
                .as_ref()
                .filter(|view| !view.draining && !self.is_gone(id, now))
            else {
                continue;
            };
            if group.document.is_checkpointing() && !view.can_checkpoint {
                unable += 1;
                continue;
            }
            alive += 1;
            let free = view
                .slots
                .saturating_sub(view.occupied + self.placed_since(id, seen, Some(group)));
            if free == 0 || refused.is_some_and(|refused| refused.contains(id)) {
                full += 1;
            } else if !taken.contains(id) && best.is_none_or(|(most, _)| free > most) {
                best = Some((free, id));
            }
        }
        best.map(|(_, id)| id.clone()).ok_or_else(|| match (alive, full) {
            (0, _) if unable > 0 => format!(
                "waits for a runner that can publish while reading: {unable} are there that cannot; upgrade them"
            ),
            (0, _) => "waits for a runner: none is registered and answering".into(),
            (alive, full) if alive == full => {
                format!("waits for a slot: all of {alive} runners are full; start more runners, or raise their slots")
            }
            (alive, full) => format!(
                "waits for another runner: replicas of one group run on different ones, and of {alive} runners {full} \
                 are full and the others hold one already"
            ),
        })
    }

    /// Tasks placed on this runner that its last heartbeat did not count yet.
    pub(super) fn placed_since(&self, runner: &RunnerId, seen: &super::Seen, own: Option<&GroupRun>) -> u32 {
        let groups = self.groups.values().chain(own);
        let placed = groups.flat_map(GroupRun::live).filter(|replica| {
            replica.document.runner.as_ref() == Some(runner) && !seen.holds.contains(&replica.document.id)
        });
        u32::try_from(placed.count() + self.prepared_since(runner, seen)).unwrap_or(u32::MAX)
    }

    /// Asks the runner to take the task, again until it has answered: the call is idempotent by task and token.
    fn assign(&mut self, now: TimestampMillis, group: &mut GroupRun, task: &TaskId, runner: RunnerId) {
        let Some(replica) = group.replicas.get(task).filter(|replica| !replica.assigned) else {
            return;
        };
        let known = group
            .registered
            .as_ref()
            .is_some_and(|tokens| tokens.contains(&replica.document.token));
        if !known || !replica.assigning.is_ready(now) {
            return;
        }
        let Some(assignment) = self.assignment(group, replica) else {
            return;
        };
        if let Some(replica) = group.replicas.get_mut(task) {
            replica.assigning = Call::OnItsWay;
        }
        self.actions.push(Action::AssignTask {
            runner,
            assignment: Box::new(assignment),
        });
    }

    fn assignment(&self, group: &GroupRun, replica: &Replica) -> Option<Assignment> {
        let StoredMode::Known(mode) = &group.document.mode else {
            return None;
        };
        let version = group.document.spec_version;
        let settings = self.document.specs.get(&version)?;
        let (first, mut start) = group.first_unpublished();
        if is(Mutation::StartAtGroupStart) {
            start = &group.document.start;
        }
        Some(Assignment {
            task: replica.document.id.clone(),
            token: replica.document.token.clone(),
            supervisor: self.document.id.clone(),
            group: group.document.id.clone(),
            generation: group.document.generation,
            base_sequence_name: group.document.base_sequence_name.clone(),
            mode: *mode,
            stream: group.document.stream.clone(),
            start: start.clone(),
            end: match mode {
                GroupMode::Legacy => group.document.decision().cloned(),
                GroupMode::Checkpointing => None,
            },
            first_sequence: first,
            log: group.log.clone(),
            spec_json: settings.spec_json.clone(),
            spec_version: version,
            minimum_message_time: group.document.minimum_message_time,
            maximum_message_time: group.document.maximum_message_time,
            decode_version: group.document.decode_version,
            trace_parent: String::new(),
            unknown: Unknown::new(),
        })
    }

    /// Ends that were not heard of, in order, and tasks that stand still without need (D35, B32). Those of a group
    /// that is committed too: its last sequence may have been empty, and nobody ends before it knows its end.
    fn tell(&mut self, now: TimestampMillis, group: &mut GroupRun) {
        let reads = group.reads();
        let (open, _) = group.open_sequence();
        let untold: BTreeMap<TaskId, LogEntry> = group
            .live()
            .filter_map(|replica| Some((replica.document.id.clone(), group.untold(replica)?)))
            .collect();
        for replica in group
            .replicas
            .values_mut()
            .filter(|replica| replica.lives() && replica.assigned)
        {
            let Some(runner) = replica.document.runner.clone() else {
                continue;
            };
            if !replica.telling.is_ready(now) || self.is_gone(&runner, now) {
                continue;
            }
            let task = replica.document.id.clone();
            let stands = replica.stands || replica.state() == Some(TaskState::Paused);
            let action = match untold.get(&task) {
                Some(_) if replica.how_to_tell == HowToTell::PauseFirst => Action::PauseTask { runner, task },
                Some(entry) => {
                    replica.telling_end_of = Some(entry.sequence);
                    Action::SetEndOffsets {
                        runner,
                        task,
                        entry: entry.clone(),
                    }
                }
                // One that asks for an end is answered by a round.
                None if reads && stands && !replica.wants_end_of(open) && !is(Mutation::NeverResume) => {
                    Action::ResumeTask { runner, task }
                }
                None => continue,
            };
            replica.telling = Call::OnItsWay;
            self.actions.push(action);
        }
    }

    /// Ends a task on record. `stop`: its runner is told, again until it has answered.
    #[expect(
        clippy::too_many_arguments,
        reason = "one place where a task ends; the parts have no common name"
    )]
    pub(super) fn end_task(
        &mut self,
        now: TimestampMillis,
        group: &mut GroupRun,
        task: &TaskId,
        how: Ending,
        why: String,
        stop: Option<StopWord>,
        changes: &mut Vec<Change>,
    ) {
        let Some(replica) = group.replicas.get_mut(task).filter(|replica| replica.lives()) else {
            return;
        };
        if let Some(report) = &replica.report
            && report.counts.records() >= replica.document.counts.records()
        {
            replica.document.counts = report.counts;
        }
        replica.document.end = Some(crate::group::TaskEnd { how, at: now, why });
        changes.push(Change::PutTask(Box::new(replica.document.clone())));
        if let (Some(stop), Some(runner)) = (stop, &replica.document.runner) {
            let stop = super::Stop {
                runner: runner.clone(),
                reason: stop.into(),
                call: Call::Idle,
            };
            self.stops.insert(task.clone(), stop);
        }
        // A task that says it has published is looked at until the catalog has spoken.
        let claims = matches!(how, Ending::Published | Ending::Superseded);
        if !claims && let Some(replica) = group.replicas.remove(task) {
            self.keep_ended(replica.document, changes);
        }
    }

    /// Backoff of replacements: tasks that fail one after the other are not made in a tight loop.
    pub(super) fn back_off(&self, now: TimestampMillis) -> TimestampMillis {
        let longest = self
            .document
            .settings()
            .map_or(30_000, |settings| settings.look_up_millis);
        let wait = self.limits.retry_millis.saturating_mul(1 << self.failures.min(6));
        after(now, wait.min(longest))
    }
}
