//! Tasks in a runner's process: one action at a time, one event at a time.

#![allow(clippy::unnecessary_wraps, reason = "all steps of the world have one shape")]

use rand::Rng as _;
use tidegate_protocol::task::{Ending, StagedObject, TaskAction, TaskEvent, Trigger};
use tidegate_types::{RunnerId, TaskId};

use super::{CALL_TIMEOUT, Checked, Happening, World};
use crate::runner::Task;

impl World {
    /// The task's next step, unless one is under way.
    pub(super) fn step_later(&mut self, runner: &RunnerId, life: u64, task: &TaskId, delay: i64) {
        let found = self
            .runners
            .get_mut(runner)
            .and_then(|runner| runner.tasks.get_mut(task));
        if let Some(found) = found.filter(|found| !found.stepping) {
            found.stepping = true;
            self.schedule.after(
                delay,
                Happening::TaskStep {
                    runner: runner.clone(),
                    life,
                    task: task.clone(),
                },
            );
        }
    }

    pub(super) fn ask_later(&mut self, runner: &RunnerId, life: u64, task: &TaskId, delay: i64) {
        let found = self
            .runners
            .get_mut(runner)
            .and_then(|runner| runner.tasks.get_mut(task));
        if let Some(found) = found.filter(|found| !found.asking) {
            found.asking = true;
            self.schedule.after(
                delay,
                Happening::AskHandoff {
                    runner: runner.clone(),
                    life,
                    task: task.clone(),
                },
            );
        }
    }

    pub(super) fn task_step(&mut self, runner: &RunnerId, life: u64, id: &TaskId) -> Checked {
        let crash = self.bad_luck(4_000);
        let Some(found) = self
            .runners
            .get_mut(runner)
            .filter(|found| found.up && found.life == life)
        else {
            return Ok(());
        };
        let Some(task) = found.tasks.get_mut(id) else {
            return Ok(());
        };
        task.stepping = false;
        if crash {
            self.coverage.hit("crashed between two actions");
            self.crash_runner(runner, "between two actions");
            return Ok(());
        }
        if let Some((action, call)) = task.todo.pop_front() {
            task.progress += 1;
            self.carry_out_task(runner, life, id, action, call)?;
            self.step_later(runner, life, id, 0);
            return Ok(());
        }
        if let Some(event) = task.inbox.pop_front() {
            self.take_event(runner, life, id, event)?;
            self.step_later(runner, life, id, 0);
            return Ok(());
        }
        if task.reads {
            self.read(runner, life, id);
        }
        Ok(())
    }

    pub(super) fn read(&mut self, runner: &RunnerId, life: u64, id: &TaskId) {
        let choice = self.random.random_range(0..8_usize);
        let spill = self.random.random_ratio(1, 12);
        let now = self.schedule.now;
        let Some(found) = self.runners.get_mut(runner) else {
            return;
        };
        let (Some(task), Some(disk)) = (found.tasks.get_mut(id), found.disks.get_mut(id)) else {
            return;
        };
        let read = task.read_one(&self.log, &mut self.catalog, self.publisher_is_up, now, choice);
        let mut events = Vec::new();
        let triggered = read.as_ref().is_some_and(|_| task.is_full());
        let pause = if read.is_some() { 3 } else { 40 };
        if spill && task.rows_in_memory() > 0 {
            events.push(task.persist(disk, None, &mut self.names, self.options.mutant));
        }
        events.extend(read);
        if triggered {
            events.push(task.trigger());
        }
        for event in events {
            // One thread each for rows and for persists: what it says arrives in the order in which it was said.
            self.schedule.after(
                1,
                Happening::ForTask {
                    runner: runner.clone(),
                    life,
                    task: id.clone(),
                    event: Box::new(event),
                },
            );
        }
        self.step_later(runner, life, id, pause);
    }

    pub(super) fn for_task(
        &mut self,
        runner: &RunnerId,
        life: u64,
        id: &TaskId,
        event: TaskEvent,
    ) -> Checked {
        let now = self.schedule.now;
        let Some(found) = self
            .runners
            .get_mut(runner)
            .filter(|found| found.up && found.life == life)
        else {
            return Ok(());
        };
        let Some(task) = found.tasks.get_mut(id) else {
            return Ok(());
        };
        if matches!(event, TaskEvent::Wake) && task.wakes_at.is_none_or(|at| at > now) {
            return Ok(());
        }
        if !task.todo.is_empty() || !task.inbox.is_empty() {
            // One event at a time, as in the actor: what comes meanwhile waits its turn.
            task.inbox.push_back(event);
            self.step_later(runner, life, id, 0);
            return Ok(());
        }
        self.take_event(runner, life, id, event)
    }

    fn take_event(&mut self, runner: &RunnerId, life: u64, id: &TaskId, event: TaskEvent) -> Checked {
        let now = self.schedule.now;
        let Some(task) = self
            .runners
            .get_mut(runner)
            .and_then(|found| found.tasks.get_mut(id))
        else {
            return Ok(());
        };
        if matches!(event, TaskEvent::Wake) {
            task.wakes_at = None;
        }
        if let TaskEvent::HandoffAnswered(seen) = &event {
            task.awaits
                .retain(|segment| !seen.iter().any(|seen| seen.segment == *segment && seen.served));
        }
        if let Ok(actions) = task.machine.on(now, event) {
            task.enqueue(actions, None);
        }
        if task.machine.view().wish == Some(Trigger::Period) {
            self.coverage.hit("closed by its period");
        }
        let awaits = !task.awaits.is_empty();
        self.step_later(runner, life, id, 0);
        if awaits {
            self.ask_later(runner, life, id, 300);
        }
        Ok(())
    }

    pub(super) fn carry_out_task(
        &mut self,
        runner: &RunnerId,
        life: u64,
        id: &TaskId,
        action: TaskAction,
        call: Option<u64>,
    ) -> Checked {
        let now = self.schedule.now;
        let later = |task: &TaskId, event: TaskEvent| Happening::ForTask {
            runner: runner.clone(),
            life,
            task: task.clone(),
            event: Box::new(event),
        };
        let Some(found) = self.runners.get_mut(runner) else {
            return Ok(());
        };
        let (Some(task), Some(disk)) = (found.tasks.get_mut(id), found.disks.get_mut(id)) else {
            return Ok(());
        };
        match action {
            TaskAction::Save => {
                let record = task.machine.record();
                if let Some(broken) = record.broken() {
                    return Err(format!("the record of {id} is broken: {broken}"));
                }
                disk.record = Some(serde_json::to_string(record).map_err(|error| error.to_string())?);
            }
            TaskAction::Answer(answer) => {
                if let Some(call) = call {
                    let report = task.report();
                    self.answer_task(call, id, &answer, report);
                }
            }
            TaskAction::Report => self.schedule.after(
                5,
                Happening::Heartbeat {
                    runner: runner.clone(),
                    life: u64::MAX,
                },
            ),
            TaskAction::Open => {
                let event = task.open(disk, self.options.mutant);
                self.schedule.after(1, later(id, event));
            }
            TaskAction::DiscardRows | TaskAction::DropLocal => {
                if action == TaskAction::DropLocal
                    && let Some(segment) = task.drops_unserved(&self.catalog)
                {
                    return Err(format!("I9: {id} drops {segment}, which nobody serves"));
                }
                disk.files.clear();
            }
            TaskAction::Read { until, sequences } => task.begin_reading(until, sequences),
            TaskAction::StopReading => task.reads = false,
            TaskAction::DropFiles { files } => {
                if let Some(segment) = task.drops_unserved_files(&files, &self.catalog) {
                    return Err(format!("I9: {id} drops {segment}, which nobody serves"));
                }
                disk.files.retain(|file, _| !files.contains(file));
            }
            TaskAction::StandStill { ticket } => {
                let event = task.stand_still(ticket);
                self.schedule.after(1, later(id, event));
            }
            TaskAction::Persist { ticket } => {
                let event = task.persist(disk, Some(ticket), &mut self.names, self.options.mutant);
                self.schedule.after(1, later(id, event));
            }
            TaskAction::Merge { part } => {
                let event = task.merge(part, disk, &mut self.names, self.options.mutant);
                self.schedule.after(1, later(id, event));
            }
            TaskAction::Upload { part, segments } => {
                for segment in segments {
                    self.names += 1;
                    let rows = disk.files.get(&segment.file).cloned().unwrap_or_default();
                    let object = StagedObject {
                        segment: segment.segment,
                        key: format!("staging/{id}/{}", self.names),
                        bytes: segment.bytes,
                        sha256: segment.sha256,
                    };
                    let slow = self.faults && self.random.random_ratio(1, 8);
                    let delay = if slow {
                        self.random.random_range(4_000..25_000)
                    } else {
                        self.random.random_range(5..800)
                    };
                    let (runner, task) = (runner.clone(), id.clone());
                    self.schedule.after(
                        delay,
                        Happening::Upload {
                            runner,
                            life,
                            task,
                            part,
                            object,
                            rows,
                        },
                    );
                }
            }
            TaskAction::Publish { part, .. } => {
                // What is sent is what is durable.
                let saved = disk
                    .record
                    .as_ref()
                    .and_then(|text| serde_json::from_str(text).ok());
                let saved: tidegate_protocol::task::TaskRecord = saved.ok_or("a publish without a record")?;
                let saved_part = saved.part(part).ok_or("a publish of a part that is not saved")?;
                if !saved_part.may_have_published {
                    return Err(format!("{id} publishes before it is noted that it may have"));
                }
                self.calls += 1;
                let attempt = self.calls;
                self.open_publishes.insert(attempt);
                let publish = Box::new(Task::publish(&saved, saved_part));
                let (runner, task) = (runner.clone(), id.clone());
                self.schedule.after(
                    CALL_TIMEOUT,
                    Happening::PublishTimeout {
                        runner: runner.clone(),
                        life,
                        task: task.clone(),
                        part,
                        attempt,
                    },
                );
                self.send(|| Happening::Publish {
                    runner: runner.clone(),
                    life,
                    task: task.clone(),
                    part,
                    attempt,
                    publish: publish.clone(),
                });
            }
            TaskAction::AwaitHandoff { segments } => {
                task.awaits = segments;
                self.ask_later(runner, life, id, 50);
            }
            TaskAction::WakeAt(at) => {
                task.wakes_at = Some(at);
                self.schedule.after(at.0 - now.0, later(id, TaskEvent::Wake));
            }
            TaskAction::StopWork => {
                task.reads = false;
                task.awaits.clear();
                task.wakes_at = None;
            }
            TaskAction::End(Ending::Failed) => {
                // Nothing that goes wrong here is a fault of the task.
                let why = &task.machine.view().reason;
                return Err(format!("{id} failed: {why}"));
            }
            TaskAction::End(_) | TaskAction::Leave => {}
        }
        Ok(())
    }
}
