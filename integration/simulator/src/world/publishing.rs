//! What a task asks of others: uploads, publishes, handoffs, heartbeats.

#![allow(clippy::unnecessary_wraps, reason = "all steps of the world have one shape")]

use rand::Rng as _;
use tidegate_protocol::group::{TaskReport, TaskState};
use tidegate_protocol::supervisor::{Event, RunnerView, TaskAnswer};
use tidegate_protocol::task::{Answer, HandoffSeen, Life, Outcome, StagedObject, TaskEvent};
use tidegate_types::{RunnerId, SequenceId, TaskId};

use super::{Checked, Happening, Kind, LONGEST_STAND, SLOTS, World, kind_of};
use crate::Mutant;
use crate::catalog;
use crate::catalog::Publish;
use crate::coordinator::Coordinator;
use crate::runner::Said;

impl World {
    pub(super) fn answer_task(
        &mut self,
        call: u64,
        task: &TaskId,
        answer: &Answer,
        report: tidegate_protocol::group::TaskReport,
    ) {
        let Some(waiting) = self.waiting.get(&call) else {
            return;
        };
        if waiting.task.as_ref() != Some(task) {
            return;
        }
        let kind = match &waiting.unreachable {
            Event::TaskAnswered { answer, .. } => kind_of(answer),
            _ => return,
        };
        if kind == Kind::Assign {
            let answer = TaskAnswer::Assigned(Ok(Box::new(report)));
            self.answer(
                call,
                Event::TaskAnswered {
                    task: task.clone(),
                    answer,
                },
            );
        } else {
            self.said(call, task, kind, &Said::Answer(answer.clone()));
        }
    }

    pub(super) fn upload(
        &mut self,
        runner: &RunnerId,
        life: u64,
        task: TaskId,
        part: SequenceId,
        object: StagedObject,
        rows: Vec<catalog::Row>,
    ) -> Checked {
        if !self
            .runners
            .get(runner)
            .is_some_and(|found| found.up && found.life == life)
        {
            return Ok(());
        }
        if self.bad_luck(25) {
            self.coverage.hit("upload failed");
            // The whole object again, under another key.
            self.names += 1;
            let object = StagedObject {
                key: format!("staging/{task}/{}", self.names),
                ..object
            };
            self.schedule.after(
                400,
                Happening::Upload {
                    runner: runner.clone(),
                    life,
                    task,
                    part,
                    object,
                    rows,
                },
            );
            return Ok(());
        }
        self.catalog.objects.insert(object.key.clone(), rows);
        self.for_task(runner, life, &task, TaskEvent::Uploaded { part, object })
    }

    pub(super) fn publish(
        &mut self,
        runner: &RunnerId,
        life: u64,
        task: TaskId,
        part: SequenceId,
        attempt: u64,
        publish: &Publish,
    ) -> Checked {
        if !self.publisher_is_up {
            return Ok(());
        }
        let (answer, what) = self.catalog.publish(publish, &self.log)?;
        self.coverage.hit(what);
        let reads = self
            .runners
            .get(runner)
            .and_then(|found| found.tasks.get(&task))
            .is_some_and(|found| matches!(found.machine.life(), Life::Reading { .. }));
        if reads && answer.outcome == Outcome::Published {
            self.coverage.hit("published while reading");
        }
        self.note(format!("{task}: part {part}: {what} ({})", answer.detail));
        if self.bad_luck(15) {
            self.coverage.hit("answer of a commit lost");
            return Ok(());
        }
        if self.open_publishes.remove(&attempt) {
            let event = Box::new(TaskEvent::PublishAnswered { part, answer });
            self.schedule.after(
                5,
                Happening::ForTask {
                    runner: runner.clone(),
                    life,
                    task,
                    event,
                },
            );
        }
        Ok(())
    }

    pub(super) fn ask_handoff(&mut self, runner: &RunnerId, life: u64, id: &TaskId) -> Checked {
        let Some(found) = self
            .runners
            .get_mut(runner)
            .filter(|found| found.up && found.life == life)
        else {
            return Ok(());
        };
        if let Some(task) = found.tasks.get_mut(id) {
            task.asking = self.options.mutant == Some(Mutant::HandoffAskedOnce);
        }
        let Some(task) = found.tasks.get(id).filter(|task| !task.awaits.is_empty()) else {
            return Ok(());
        };
        let told_early = self.options.mutant == Some(Mutant::HandoffToldEarly);
        let seen: Vec<HandoffSeen> = task
            .awaits
            .iter()
            .map(|segment| HandoffSeen {
                segment: segment.clone(),
                served: self.catalog.is_served(segment) || told_early,
            })
            .collect();
        if seen.iter().any(|seen| seen.served) {
            self.coverage.hit("handoff confirmed");
        }
        self.for_task(runner, life, id, TaskEvent::HandoffAnswered(seen))
    }

    /// B01: while nothing goes wrong, nobody stands for long.
    fn check_standing(&mut self, tasks: &[TaskReport]) -> Checked {
        let now = self.schedule.now;
        for task in tasks.iter().filter(|_| !self.faults) {
            if task.state != TaskState::Paused {
                self.stand_since.remove(&task.task);
                continue;
            }
            let stands = now.0 - self.stand_since.entry(task.task.clone()).or_insert(now).0;
            if stands > LONGEST_STAND {
                return Err(format!("B01: {} stands since {stands} ms", task.task));
            }
        }
        Ok(())
    }

    /// A runner tells all its tasks; ended ones that the coordinator has recorded are forgotten.
    pub(super) fn heartbeat(&mut self, runner: &RunnerId, life: u64) -> Checked {
        let lost = self.bad_luck(20) || self.is_cut_off(runner);
        let Some(found) = self.runners.get_mut(runner).filter(|found| found.up) else {
            return Ok(());
        };
        if life != u64::MAX {
            if life != found.life {
                return Ok(());
            }
            self.schedule.after(
                500,
                Happening::Heartbeat {
                    runner: runner.clone(),
                    life,
                },
            );
        }
        let tasks: Vec<_> = found.reports(self.schedule.now);
        if tasks.iter().any(|task| task.state == TaskState::Superseded) {
            self.coverage.hit("superseded");
        }
        let view = RunnerView {
            id: runner.clone(),
            slots: SLOTS,
            occupied: found.occupied(),
            draining: false,
            can_checkpoint: self.checkpointing,
            can_prepare: self.checkpointing && self.prepares,
        };
        self.check_standing(&tasks)?;
        if lost {
            return Ok(());
        }
        // A runner talks to one coordinator, which may have been overtaken.
        let chosen = self.random.random_range(0..self.coordinators.len());
        let hears = |one: &Coordinator| one.machine.is_some();
        let index = if hears(&self.coordinators[chosen]) {
            Some(chosen)
        } else {
            self.coordinators.iter().position(hears)
        };
        let Some(coordinator) = index.map(|index| &self.coordinators[index]) else {
            return Ok(());
        };
        let life = coordinator.life;
        let Some(found) = self.runners.get_mut(runner) else {
            return Ok(());
        };
        if coordinator.epoch < found.epoch {
            return Ok(()); // its answer tells that its lease is over
        }
        found.epoch = coordinator.epoch;
        if let Some(machine) = &coordinator.machine {
            let live = machine.live_tasks();
            let forget: Vec<TaskId> = found
                .tasks
                .iter()
                .filter(|(id, task)| matches!(task.machine.life(), Life::Ended(_)) && !live.contains(id))
                .map(|(id, _)| id.clone())
                .collect();
            for id in forget {
                found.tasks.remove(&id);
                found.disks.remove(&id);
            }
        }
        self.later(life, Event::Heartbeat { runner: view, tasks });
        Ok(())
    }
}
