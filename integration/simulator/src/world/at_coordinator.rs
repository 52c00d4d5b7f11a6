//! The coordinator's process: its machine, and its actions carried out one by one.

#![allow(clippy::unnecessary_wraps, reason = "all steps of the world have one shape")]

use rand::Rng as _;
use tidegate_protocol::supervisor::{Action, Change, Discovery, Event, Supervisor};
use tidegate_protocol::task::{LogEntry, TaskEvent};
use tidegate_types::BaseSequenceName;

use super::{Checked, Happening, Kind, StoreCall, TaskCall, World, away};
use crate::catalog;
use crate::coordinator::{Coordinator, limits, settings, supervisor_id};

impl World {
    pub(super) fn restart_coordinator(&mut self) -> Checked {
        if self.coordinator.machine.is_some() {
            return Ok(());
        }
        let now = self.schedule.now;
        self.coordinator
            .restart(now, self.checkpointing)
            .map_err(|error| format!("stored documents cannot be read: {error}"))?;
        self.note(format!(
            "the coordinator starts, epoch {}",
            self.coordinator.stored.epoch
        ));
        let life = self.coordinator.life;
        if self.coordinator.machine.is_none() {
            let (replicas, task_count, variant) = self.spec;
            let (machine, actions) = Supervisor::submit(
                supervisor_id(),
                settings(replicas, task_count, variant),
                limits(self.checkpointing),
                now,
            );
            self.coordinator.machine = Some(machine);
            self.coordinator.todo.extend(actions);
            self.schedule.after(0, Happening::CoordinatorStep { life });
        }
        self.schedule.after(1, Happening::Tick { life });
        Ok(())
    }

    pub(super) fn tick(&mut self, life: u64) -> Checked {
        if life == self.coordinator.life {
            self.schedule.after(200, Happening::Tick { life });
        }
        self.for_coordinator(life, Event::Tick)
    }

    pub(super) fn for_coordinator(&mut self, life: u64, event: Event) -> Checked {
        let now = self.schedule.now;
        let Coordinator {
            machine: Some(machine),
            life: current,
            todo,
            ids,
            ..
        } = &mut self.coordinator
        else {
            return Ok(());
        };
        if *current != life {
            return Ok(());
        }
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
        if life != self.coordinator.life || self.coordinator.todo.is_empty() {
            return Ok(());
        }
        if self.bad_luck(1_500) {
            self.coverage.hit("crashed between two actions");
            self.crash_coordinator("between two actions");
            return Ok(());
        }
        if let Some(action) = self.coordinator.todo.pop_front() {
            self.carry_out(life, action)?;
        }
        if !self.coordinator.todo.is_empty() {
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
            Action::RegisterGroup(call) => self.note(format!("{} is registered", call.group)),
            _ => {}
        }
        match action {
            Action::Store(changes) => self.store(changes)?,
            Action::CreateGroup { group, base, changes } => {
                self.coverage.hit("group created");
                self.note(format!("group {group} is created"));
                self.store(changes)?;
                let logged = self
                    .coordinator
                    .stored
                    .log
                    .get(&base)
                    .cloned()
                    .unwrap_or_default();
                self.later(life, Event::GroupCreated { group, logged });
            }
            Action::RecordDecision { group, base, entry } => {
                let what = if entry.finish {
                    "decision logged"
                } else {
                    "checkpoint decided"
                };
                self.coverage.hit(what);
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
                if !registered {
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
                // I5: what a task hears is in the log, to the letter.
                if !self
                    .coordinator
                    .stored
                    .log
                    .values()
                    .flatten()
                    .any(|logged| *logged == entry)
                {
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

    /// Writes a decision unless there is one. I5: it never changes, not even after it was trimmed.
    fn decide(&mut self, base: &BaseSequenceName, entry: LogEntry) -> Result<LogEntry, String> {
        let log = self.coordinator.stored.log.entry(base.clone()).or_default();
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
        self.coordinator
            .stored
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
