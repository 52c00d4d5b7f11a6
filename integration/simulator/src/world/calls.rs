//! Calls between processes: delayed, lost, repeated, answered late.

#![allow(clippy::unnecessary_wraps, reason = "all steps of the world have one shape")]

use rand::Rng as _;
use tidegate_protocol::supervisor::{CallError, Committed, Event, TaskAnswer};
use tidegate_protocol::task::{Answer, TaskMachine};
use tidegate_types::{Epoch, RunnerId, TaskId, TimestampMillis};

use super::{
    CALL_TIMEOUT, CONNECTING, Checked, Happening, Kind, SLOTS, StoreCall, TaskCall, Waiting, World, away,
    task_answer,
};
use crate::Mutant;
use crate::runner::{Disk, Said, Task, prepared_report};

impl World {
    /// Registers a call: it is answered once, or given up.
    pub(super) fn open_call(&mut self, life: u64, task: Option<TaskId>, unreachable: Event) -> u64 {
        self.calls += 1;
        self.waiting.insert(
            self.calls,
            Waiting {
                life,
                task,
                unreachable,
            },
        );
        if !self.is(Mutant::CallNeverGivenUp) {
            self.schedule
                .after(CALL_TIMEOUT, Happening::GiveUp { call: self.calls });
        }
        self.calls
    }

    pub(super) fn answer(&mut self, call: u64, event: Event) {
        if self.bad_luck(60) {
            self.coverage.hit("answer lost");
            return;
        }
        if let Some(waiting) = self.waiting.remove(&call) {
            self.later(waiting.life, event);
        }
    }

    /// Sends it with a delay; it may be lost, or arrive twice.
    pub(super) fn send(&mut self, make: impl Fn() -> Happening) {
        if self.bad_luck(60) {
            self.coverage.hit("request lost");
            return;
        }
        let delay = self.random.random_range(1..80);
        self.schedule.after(delay, make());
        if self.bad_luck(80) {
            self.coverage.hit("request repeated");
            let delay = self.random.random_range(1..4_000);
            self.schedule.after(delay, make());
        }
    }

    pub(super) fn call_publisher(&mut self, life: u64, what: StoreCall, unreachable: Event) {
        let call = self.open_call(life, None, unreachable);
        let epoch = self.coordinator(life).map(|one| one.epoch).unwrap_or_default();
        self.send(|| Happening::ToPublisher {
            call,
            what: what.clone(),
            epoch,
        });
    }

    pub(super) fn at_publisher(&mut self, call: u64, what: StoreCall, epoch: Epoch) -> Checked {
        if !self.publisher_is_up {
            return Ok(());
        }
        let refused = |why: String| CallError::Refused(why);
        if !matches!(what, StoreCall::Get) && !self.catalog.admit(epoch) {
            self.coverage.hit("a stale leader's call refused");
            self.answer(call, refuse(&what));
            return Ok(());
        }
        let event = match what {
            StoreCall::Get => Event::CommittedAnswered(Ok(self.catalog.committed())),
            StoreCall::Initialize(start) => Event::OffsetsInitialized(Ok(self.catalog.initialize(&start))),
            StoreCall::Reset(reset) => {
                let result: Result<Committed, CallError> = self.catalog.reset(&reset).map_err(refused);
                self.note(format!("reset: {result:?}"));
                Event::OffsetsReset(result)
            }
            StoreCall::Register(register) => {
                let result = self.catalog.register(&register, epoch).map_err(refused);
                Event::GroupRegistered {
                    group: register.group,
                    result,
                }
            }
            StoreCall::End(group) => {
                self.catalog.end_group(&group);
                Event::GroupEnded {
                    group,
                    result: Ok(()),
                }
            }
        };
        self.answer(call, event);
        Ok(())
    }

    pub(super) fn call_runner(&mut self, life: u64, runner: RunnerId, task: TaskId, what: TaskCall) {
        let unreachable = match &what {
            TaskCall::Assign(_) => task_answer(&task, Kind::Assign, Err(away())),
            TaskCall::Prepare(_) => task_answer(&task, Kind::Prepare, Err(away())),
            TaskCall::Event(_, kind) => task_answer(&task, *kind, Err(away())),
        };
        let call = self.open_call(life, Some(task.clone()), unreachable);
        let epoch = self.coordinator(life).map(|one| one.epoch).unwrap_or_default();
        self.send(|| Happening::ToRunner {
            runner: runner.clone(),
            task: task.clone(),
            call,
            what: what.clone(),
            epoch,
        });
    }

    // ---- a runner's shell ----

    pub(super) fn is_cut_off(&self, runner: &RunnerId) -> bool {
        self.cut_off
            .get(runner)
            .is_some_and(|until| *until > self.schedule.now)
    }

    pub(super) fn at_runner(
        &mut self,
        runner: &RunnerId,
        task: TaskId,
        call: u64,
        what: TaskCall,
        epoch: Epoch,
    ) -> Checked {
        let now = self.schedule.now;
        if self.is_cut_off(runner) {
            return Ok(());
        }
        let Some(found) = self.runners.get_mut(runner).filter(|found| found.up) else {
            return Ok(());
        };
        let life = found.life;
        if epoch < found.epoch && self.options.mutant != Some(Mutant::NoEpochFence) {
            self.coverage.hit("a stale leader's call refused");
            let kind = match &what {
                TaskCall::Assign(_) => Kind::Assign,
                TaskCall::Prepare(_) => Kind::Prepare,
                TaskCall::Event(_, kind) => *kind,
            };
            self.said(call, &task, kind, &Said::Refused("the lease is over".to_owned()));
            return Ok(());
        }
        found.epoch = found.epoch.max(epoch);
        match what {
            TaskCall::Prepare(token) => {
                let connected = TimestampMillis(now.0 + CONNECTING);
                let full = found.occupied() >= SLOTS;
                let (_, connected) = match found.prepared.get(&task) {
                    Some(known) => known.clone(),
                    None if full || found.tasks.contains_key(&task) => {
                        self.said(call, &task, Kind::Prepare, &Said::Refused("full".to_owned()));
                        return Ok(());
                    }
                    None => found
                        .prepared
                        .entry(task.clone())
                        .or_insert((token.clone(), connected))
                        .clone(),
                };
                self.coverage.hit("task prepared");
                let report = prepared_report(&task, &token, connected <= now);
                let answer = TaskAnswer::Prepared(Ok(Box::new(report)));
                self.answer(call, Event::TaskAnswered { task, answer });
            }
            TaskCall::Assign(assignment) => {
                if let Some(known) = found.tasks.get(&task) {
                    let report = known.report();
                    self.answer(
                        call,
                        Event::TaskAnswered {
                            task,
                            answer: TaskAnswer::Assigned(Ok(Box::new(report))),
                        },
                    );
                    return Ok(());
                }
                if assignment.log.len() > 1 {
                    self.coverage.hit("several sequences behind");
                }
                let connected = match found.prepared.remove(&task) {
                    Some((token, connected)) if token == assignment.token => {
                        self.coverage.hit("prepared task begins");
                        connected.0
                    }
                    _ => now.0 + CONNECTING,
                };
                let (machine, actions) = TaskMachine::assign(*assignment, self.task_settings, now);
                found.disks.insert(task.clone(), Disk::default());
                found
                    .tasks
                    .insert(task.clone(), Task::new(machine, actions, Some(call)));
                self.step_later(runner, life, &task, (connected - now.0).max(0));
            }
            TaskCall::Event(event, kind) => {
                if matches!(kind, Kind::Stop) && found.prepared.remove(&task).is_some() {
                    self.coverage.hit("prepared task dropped");
                    self.said(call, &task, kind, &Said::Answer(Answer::Done));
                    return Ok(());
                }
                let Some(known) = found.tasks.get_mut(&task) else {
                    self.said(call, &task, kind, &Said::Unknown);
                    return Ok(());
                };
                if !known.todo.is_empty() {
                    let what = TaskCall::Event(event, kind);
                    let again = Happening::ToRunner {
                        runner: runner.clone(),
                        task,
                        call,
                        what,
                        epoch,
                    };
                    self.schedule.after(1, again);
                    return Ok(());
                }
                match known.machine.on(now, event) {
                    Ok(actions) => {
                        known.enqueue(actions, Some(call));
                        self.step_later(runner, life, &task, 0);
                    }
                    Err(refusal) => self.said(call, &task, kind, &Said::Refused(refusal.to_string())),
                }
            }
        }
        Ok(())
    }

    /// The answer to a call about a task, in the coordinator's words.
    pub(super) fn said(&mut self, call: u64, task: &TaskId, kind: Kind, said: &Said) {
        let result = match said {
            Said::Answer(answer) => Ok(answer.clone()),
            Said::Refused(why) => Err(CallError::Refused(why.clone())),
            Said::Unknown => Err(CallError::NotFound("no such task".to_owned())),
        };
        self.answer(call, task_answer(task, kind, result));
    }
}

/// A stale leader's call is understood and refused.
fn refuse(what: &StoreCall) -> Event {
    let refused = || CallError::Refused("the lease is over".to_owned());
    match what {
        StoreCall::Get => Event::CommittedAnswered(Err(refused())),
        StoreCall::Initialize(_) => Event::OffsetsInitialized(Err(refused())),
        StoreCall::Reset(_) => Event::OffsetsReset(Err(refused())),
        StoreCall::Register(register) => Event::GroupRegistered {
            group: register.group.clone(),
            result: Err(refused()),
        },
        StoreCall::End(group) => Event::GroupEnded {
            group: group.clone(),
            result: Err(refused()),
        },
    }
}
