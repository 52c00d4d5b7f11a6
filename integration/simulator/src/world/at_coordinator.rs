//! The coordinator's process: its machine, and its actions carried out one by one.

#![allow(clippy::unnecessary_wraps, reason = "all steps of the world have one shape")]

use rand::Rng as _;
use tidegate_protocol::supervisor::{Action, Change, Discovery, Event, PauseAnswer, Supervisor, TaskAnswer};
use tidegate_protocol::task::{LogEntry, TaskEvent};
use tidegate_types::{BaseSequenceName, GroupId, TaskId};

use super::{Checked, Happening, Kind, StoreCall, TaskCall, World, away};
use crate::Mutant;
use crate::catalog;
use crate::coordinator::{Coordinator, limits, settings, supervisor_id};

impl World {
    pub(super) fn restart_coordinator(&mut self, index: usize) -> Checked {
        let leads = self.leader().is_some();
        let lives = self.coordinators[index].machine.is_some();
        if lives && !leads {
            // Overtaken by one that has crashed since: it must notice before it can lead again.
            self.schedule.after(500, Happening::RestartCoordinator { index });
        }
        if lives || (leads && !self.faults) {
            return Ok(());
        }
        let now = self.schedule.now;
        self.lives += 1;
        let life = self.lives;
        let Self {
            coordinators,
            stored,
            checkpointing,
            ..
        } = self;
        coordinators[index]
            .restart(stored, life, now, *checkpointing)
            .map_err(|error| format!("stored documents cannot be read: {error}"))?;
        self.note(format!("coordinator {index} leads, epoch {}", self.stored.epoch));
        if leads {
            self.coverage.hit("leader overtaken");
        }
        let overtaken = self
            .coordinators
            .iter()
            .filter(|other| other.machine.is_some() && other.life != life);
        let overtaken: Vec<u64> = overtaken.map(|other| other.life).collect();
        for other in overtaken {
            let pause = self.random.random_range(1..6_000);
            self.schedule.after(pause, Happening::Depose { life: other });
        }
        if self.coordinators[index].machine.is_none() {
            let (machine, actions) = Supervisor::submit(
                supervisor_id(),
                settings(self.spec, self.task_duration),
                limits(self.checkpointing),
                now,
            );
            self.coordinators[index].machine = Some(machine);
            self.coordinators[index].todo.extend(actions);
            self.schedule.after(0, Happening::CoordinatorStep { life });
        }
        self.schedule.after(1, Happening::Tick { life });
        Ok(())
    }

    pub(super) fn tick(&mut self, life: u64) -> Checked {
        if self.coordinator(life).is_some() {
            self.schedule.after(200, Happening::Tick { life });
        }
        self.for_coordinator(life, Event::Tick)
    }

    pub(super) fn for_coordinator(&mut self, life: u64, event: Event) -> Checked {
        let now = self.schedule.now;
        let Self {
            coordinators, ids, ..
        } = self;
        let found = coordinators.iter_mut().find(|one| one.life == life);
        let Some(Coordinator {
            machine: Some(machine),
            todo,
            ..
        }) = found
        else {
            return Ok(());
        };
        if !todo.is_empty() {
            // One actor: an event waits until the actions before it are begun.
            self.schedule.after(
                1,
                Happening::ForCoordinator {
                    life,
                    event: Box::new(event),
                },
            );
            return Ok(());
        }
        if let Event::TaskAnswered {
            task,
            answer: TaskAnswer::Paused(Ok(PauseAnswer::Standing(next))),
        } = &event
        {
            self.standing.insert((life, task.clone()), next.clone());
        }
        let actions = machine.on(now, event, ids);
        if let Some(broken) = machine.broken() {
            return Err(format!("I4/I5: {broken}"));
        }
        if !actions.is_empty() {
            todo.extend(actions);
            self.schedule.after(0, Happening::CoordinatorStep { life });
        }
        Ok(())
    }

    pub(super) fn coordinator_step(&mut self, life: u64) -> Checked {
        if self.coordinator(life).is_none_or(|one| one.todo.is_empty()) {
            return Ok(());
        }
        if self.bad_luck(1_500) {
            self.coverage.hit("crashed between two actions");
            self.crash_coordinator(life, "between two actions");
            return Ok(());
        }
        if let Some(action) = self.coordinator(life).and_then(|one| one.todo.pop_front()) {
            self.carry_out(life, action)?;
        }
        if self.coordinator(life).is_some_and(|one| !one.todo.is_empty()) {
            self.schedule.after(0, Happening::CoordinatorStep { life });
        }
        Ok(())
    }

    pub(super) fn carry_out(&mut self, life: u64, action: Action) -> Checked {
        match &action {
            Action::AssignTask { runner, assignment } => {
                self.note(format!("{} is assigned to {runner}", assignment.task));
            }
            Action::PauseTask { runner, task } => {
                self.note(format!("{task} on {runner} is to pause"));
            }
            Action::SetEndOffsets { runner, task, .. } => {
                self.note(format!("{task} on {runner} is told its end"));
            }
            Action::StopTask { runner, task, reason } => {
                self.note(format!("{task} on {runner} is to stop: {reason:?}"));
            }
            Action::PrepareTask(call) => self.note(format!("{} is prepared on {}", call.task, call.runner)),
            Action::RegisterGroup(call) => self.note(format!("{} is registered", call.group)),
            _ => {}
        }
        if let Action::ResumeTask { task, .. }
        | Action::SetEndOffsets { task, .. }
        | Action::StopTask { task, .. } = &action
        {
            self.standing.remove(&(life, task.clone()));
        }
        let writes = matches!(
            action,
            Action::Store(_) | Action::CreateGroup { .. } | Action::RecordDecision { .. }
        );
        if writes && self.is_fenced(life) {
            self.coverage.hit("a stale leader's write refused");
            self.depose(life);
            return Ok(());
        }
        match action {
            Action::Store(changes) => self.store(changes)?,
            Action::CreateGroup { group, base, changes } => {
                self.coverage.hit("group created");
                self.note(format!("group {group} is created"));
                self.store(changes)?;
                let logged = self.stored.log.get(&base).cloned().unwrap_or_default();
                self.later(life, Event::GroupCreated { group, logged });
            }
            Action::RecordDecision { group, base, entry } => {
                let what = if entry.finish {
                    "decision logged"
                } else {
                    "checkpoint decided"
                };
                self.coverage.hit(what);
                self.check_end(life, &group, &entry)?;
                let entry = self.decide(&base, entry)?;
                let (sequence, end) = (entry.sequence, &entry.decision.end);
                self.note(format!(
                    "{group}: sequence {sequence} ends at {end}, finish {}",
                    entry.finish
                ));
                self.later(life, Event::DecisionStored { group, entry });
            }
            Action::Discover { .. } => {
                let found = Discovery {
                    stream: catalog::stream(),
                    earliest: self.log.earliest(),
                    latest: self.log.latest(),
                };
                let result = if self.bad_luck(30) {
                    Err("no broker".to_owned())
                } else {
                    Ok(found)
                };
                self.later(life, Event::Discovered(result));
            }
            Action::GetCommitted { .. } => {
                let none = Event::CommittedAnswered(Err(away()));
                self.call_publisher(life, StoreCall::Get, none);
            }
            Action::InitializeOffsets { start, .. } => {
                let none = Event::OffsetsInitialized(Err(away()));
                self.call_publisher(life, StoreCall::Initialize(start), none);
            }
            Action::ResetOffsets(call) => {
                let none = Event::OffsetsReset(Err(away()));
                self.call_publisher(life, StoreCall::Reset(Box::new(call)), none);
            }
            Action::RegisterGroup(call) => {
                let none = Event::GroupRegistered {
                    group: call.group.clone(),
                    result: Err(away()),
                };
                self.call_publisher(life, StoreCall::Register(Box::new(call)), none);
            }
            Action::EndGroup { group, .. } => {
                let none = Event::GroupEnded {
                    group: group.clone(),
                    result: Err(away()),
                };
                self.call_publisher(life, StoreCall::End(group), none);
            }
            Action::AssignTask { runner, assignment } => {
                let registered = self.catalog.is_registered(&assignment.group, &assignment.token);
                // One that was overtaken does not know what its successor registered.
                if !registered && !self.is_fenced(life) {
                    return Err(format!(
                        "task {} is assigned before its token is registered",
                        assignment.task
                    ));
                }
                if assignment.task.as_str().ends_with('1') {
                    self.coverage.hit("task assigned");
                } else {
                    self.coverage.hit("task replaced");
                }
                let task = assignment.task.clone();
                self.call_runner(life, runner, task, TaskCall::Assign(assignment));
            }
            Action::PrepareTask(prepare) => {
                self.call_runner(
                    life,
                    prepare.runner,
                    prepare.task,
                    TaskCall::Prepare(prepare.token),
                );
            }
            Action::PauseTask { runner, task } => {
                self.call_runner(life, runner, task, TaskCall::Event(TaskEvent::Pause, Kind::Pause));
            }
            Action::ResumeTask { runner, task } => {
                self.coverage.hit("told to read on");
                self.call_runner(
                    life,
                    runner,
                    task,
                    TaskCall::Event(TaskEvent::Resume, Kind::Resume),
                );
            }
            Action::SetEndOffsets { runner, task, entry } => {
                // I5: what a task hears is or was in the log, to the letter.
                if !self.decisions.values().any(|logged| *logged == entry) {
                    return Err(format!(
                        "I5: {task} is told an end that is not in the log: {}",
                        entry.decision.end
                    ));
                }
                let event = TaskEvent::SetEndOffsets(entry);
                self.call_runner(life, runner, task, TaskCall::Event(event, Kind::SetEnd));
            }
            Action::StopTask { runner, task, reason } => {
                let event = TaskEvent::Stop { reason, keep: false };
                self.call_runner(life, runner, task, TaskCall::Event(event, Kind::Stop));
            }
            Action::Alert(what) => self.note(format!("alert: {what}")),
        }
        Ok(())
    }

    pub(super) fn is_fenced(&mut self, life: u64) -> bool {
        let held = self.stored.epoch;
        let own = self.coordinator(life).map(|one| one.epoch);
        own.is_some_and(|own| own < held) && !self.is(Mutant::NoEpochFence)
    }

    /// It does not lead any more, and stops.
    pub(super) fn depose(&mut self, life: u64) {
        if let Some(one) = self.coordinator(life) {
            one.crash();
            self.note("a coordinator that was overtaken stops".to_owned());
        }
    }

    /// An end lies at or behind every replica that this coordinator was told to stand there.
    fn check_end(&mut self, life: u64, group: &GroupId, entry: &LogEntry) -> Checked {
        let machine = self.coordinator(life).and_then(|one| one.machine.as_ref());
        let live = machine.map(Supervisor::live_tasks).unwrap_or_default();
        let of_group = |task: &TaskId| {
            task.as_str()
                .rsplit_once('.')
                .is_some_and(|(name, _)| name == group.as_str())
        };
        for ((heard, task), next) in &self.standing {
            let beyond = |(partition, end)| next.get(partition).is_some_and(|next| next > end);
            if *heard == life
                && live.contains(task)
                && of_group(task)
                && entry.decision.end.iter().any(beyond)
            {
                return Err(format!(
                    "{group}: the end {} lies before {next}, where {task} stands",
                    entry.decision.end
                ));
            }
        }
        Ok(())
    }

    /// Writes a decision unless there is one. I5: it never changes, not even after it was trimmed.
    fn decide(&mut self, base: &BaseSequenceName, entry: LogEntry) -> Result<LogEntry, String> {
        let log = self.stored.log.entry(base.clone()).or_default();
        let held = log.iter().find(|held| held.sequence == entry.sequence).cloned();
        let entry = held.unwrap_or_else(|| {
            log.push(entry.clone());
            entry
        });
        let key = (base.clone(), entry.sequence);
        let first = self.decisions.entry(key).or_insert_with(|| entry.clone());
        if *first != entry {
            return Err(format!(
                "I5: sequence {} of {base} is decided twice: {first:?}, {entry:?}",
                entry.sequence
            ));
        }
        Ok(entry)
    }

    pub(super) fn store(&mut self, changes: Vec<Change>) -> Checked {
        if changes
            .iter()
            .any(|change| matches!(change, Change::TrimLog { below: Some(_), .. }))
        {
            self.coverage.hit("log trimmed");
        }
        self.stored
            .write(changes)
            .map_err(|error| format!("a document cannot be stored: {error}"))
    }

    pub(super) fn later(&mut self, life: u64, event: Event) {
        let delay = self.random.random_range(1..60);
        self.schedule.after(
            delay,
            Happening::ForCoordinator {
                life,
                event: Box::new(event),
            },
        );
    }
}
