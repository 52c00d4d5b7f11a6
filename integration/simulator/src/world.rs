//! The world: processes, the calls between them, and what goes wrong.

#![allow(clippy::unnecessary_wraps, reason = "all steps of the world have one shape")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tidegate_protocol::supervisor::{
    Action, CallError, Change, Command, Committed, Discovery, Event, PauseAnswer, RunnerView, Supervisor,
    TaskAnswer,
};
use tidegate_protocol::task::{
    Answer, Assignment, HandoffSeen, Life, Outcome, PublishAnswer, StagedObject, TaskAction, TaskEvent,
    TaskMachine,
};
use tidegate_types::{Epoch, RunnerId, TaskId, TimestampMillis};

use crate::catalog::{self, Catalog, Publish};
use crate::coordinator::{Coordinator, LIMITS, settings, supervisor_id};
use crate::log::Log;
use crate::runner::{Disk, Runner, SETTINGS, Said, Task};
use crate::schedule::Schedule;
use crate::{Coverage, Failure};

/// How a run is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Steps with faults; after them everything must converge.
    pub faulty_steps: u64,
    /// Steps in which it must have converged.
    pub calm_steps: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            faulty_steps: 4_000,
            calm_steps: 60_000,
        }
    }
}

const CALL_TIMEOUT: i64 = 2_000;
const RUNNERS: usize = 3;

/// What a runner is asked about a task.
#[derive(Debug, Clone)]
enum TaskCall {
    Assign(Box<Assignment>),
    Event(TaskEvent, Kind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Assign,
    Pause,
    Resume,
    SetEnd,
    Stop,
}

/// A call to the publisher by the coordinator.
#[derive(Debug, Clone)]
enum StoreCall {
    Get,
    Initialize(tidegate_types::StartOffsets),
    Reset(Box<tidegate_protocol::supervisor::ResetCall>),
    Register(Box<tidegate_protocol::supervisor::RegisterCall>),
    End(tidegate_types::GroupId),
}

enum Happening {
    Tick {
        life: u64,
    },
    CoordinatorStep {
        life: u64,
    },
    /// An event for the machine, if it still lives the same life.
    ForCoordinator {
        life: u64,
        event: Box<Event>,
    },
    /// The caller gives up, unless the call was answered.
    GiveUp {
        call: u64,
    },
    ToRunner {
        runner: RunnerId,
        task: TaskId,
        call: u64,
        what: TaskCall,
        epoch: Epoch,
    },
    ToPublisher {
        call: u64,
        what: StoreCall,
        epoch: Epoch,
    },
    TaskStep {
        runner: RunnerId,
        life: u64,
        task: TaskId,
    },
    ForTask {
        runner: RunnerId,
        life: u64,
        task: TaskId,
        event: Box<TaskEvent>,
    },
    Upload {
        runner: RunnerId,
        life: u64,
        task: TaskId,
        object: StagedObject,
        rows: Vec<catalog::Row>,
    },
    Publish {
        runner: RunnerId,
        life: u64,
        task: TaskId,
        attempt: u64,
        publish: Box<Publish>,
    },
    PublishTimeout {
        runner: RunnerId,
        life: u64,
        task: TaskId,
        attempt: u64,
    },
    AskHandoff {
        runner: RunnerId,
        life: u64,
        task: TaskId,
    },
    Heartbeat {
        runner: RunnerId,
        life: u64,
    },
    RestartCoordinator,
    RestartRunner {
        runner: RunnerId,
    },
    PublisherUp,
    Trouble,
    Serve,
}

/// Who waits for a call's answer, and what no answer means.
struct Waiting {
    life: u64,
    task: Option<TaskId>,
    unreachable: Event,
}

pub(crate) struct World {
    seed: u64,
    options: Options,
    random: SmallRng,
    schedule: Schedule<Happening>,
    log: Log,
    catalog: Catalog,
    coordinator: Coordinator,
    runners: BTreeMap<RunnerId, Runner>,
    waiting: BTreeMap<u64, Waiting>,
    open_publishes: BTreeSet<u64>,
    calls: u64,
    names: u64,
    faults: bool,
    publisher_is_up: bool,
    /// Runners that the coordinator cannot reach, and until when; they go on reading and publishing.
    cut_off: BTreeMap<RunnerId, TimestampMillis>,
    spec: (u32, u32, u32),
    coverage: Coverage,
    trace: VecDeque<String>,
    step: u64,
}

type Checked = Result<(), String>;

impl World {
    pub(crate) fn new(seed: u64, options: Options) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut log = Log::default();
        for _ in 0..random.random_range(1..4) {
            log.add_partition();
        }
        let spec = (random.random_range(1..3), random.random_range(1..3), 0);
        let mut world = Self {
            seed,
            options,
            schedule: Schedule::new(TimestampMillis(1_700_000_000_000)),
            log,
            catalog: Catalog::default(),
            coordinator: Coordinator::default(),
            runners: (1..=RUNNERS)
                .filter_map(|n| Some((RunnerId::new(format!("r{n}")).ok()?, Runner::default())))
                .collect(),
            waiting: BTreeMap::new(),
            open_publishes: BTreeSet::new(),
            calls: 0,
            names: 0,
            faults: true,
            publisher_is_up: true,
            cut_off: BTreeMap::new(),
            spec,
            coverage: Coverage::default(),
            trace: VecDeque::new(),
            step: 0,
            random,
        };
        let ids: Vec<RunnerId> = world.runners.keys().cloned().collect();
        for runner in ids {
            world.schedule.after(0, Happening::RestartRunner { runner });
        }
        world.schedule.after(0, Happening::RestartCoordinator);
        world.schedule.after(50, Happening::Trouble);
        world.schedule.after(100, Happening::Serve);
        world
    }

    pub(crate) fn run(mut self) -> Result<Coverage, Box<Failure>> {
        match self.run_steps() {
            Ok(()) => Ok(self.coverage),
            Err(what) => Err(Box::new(Failure {
                seed: self.seed,
                step: self.step,
                what,
                trace: self.trace.into_iter().collect(),
            })),
        }
    }

    fn run_steps(&mut self) -> Checked {
        while self.step < self.options.faulty_steps {
            self.next()?;
        }
        self.note("faults are off".to_owned());
        self.faults = false;
        self.publisher_is_up = true;
        self.cut_off.clear();
        let last = self.step + self.options.calm_steps;
        while self.step < last {
            self.next()?;
            if self.step.is_multiple_of(64) && self.has_converged() {
                return Ok(());
            }
        }
        let committed = self.catalog.offsets();
        if let Some(machine) = &self.coordinator.machine {
            let groups: Vec<String> = machine
                .groups()
                .map(|group| format!("{} {:?}", group.document.id, group.document.state))
                .collect();
            let tasks: Vec<String> = self
                .runners
                .iter()
                .flat_map(|(id, runner)| {
                    runner
                        .tasks
                        .iter()
                        .map(move |(task, found)| format!("{task} on {id}: {:?}", found.machine.life()))
                })
                .collect();
            self.note(format!(
                "wanted: {:?}; groups: {groups:#?}; tasks: {tasks:#?}",
                machine.document().desired
            ));
        }
        Err(format!(
            "does not converge: committed {committed}, the log ends at {}",
            self.log.latest()
        ))
    }

    fn has_converged(&self) -> bool {
        self.catalog.offsets() == self.log.latest()
            && self.catalog.segments.iter().all(|segment| segment.served)
    }

    fn note(&mut self, what: String) {
        if self.trace.len() == 400 {
            self.trace.pop_front();
        }
        self.trace
            .push_back(format!("{:>8} {what}", self.schedule.now.0 - 1_700_000_000_000));
    }

    /// True with a chance of one in `of`, while faults are on.
    fn bad_luck(&mut self, of: u32) -> bool {
        self.faults && self.random.random_ratio(1, of)
    }

    fn next(&mut self) -> Checked {
        self.step += 1;
        let Some(happening) = self.schedule.next() else {
            return Err("nothing is under way any more".to_owned());
        };
        match happening {
            Happening::Tick { life } => self.tick(life),
            Happening::CoordinatorStep { life } => self.coordinator_step(life),
            Happening::ForCoordinator { life, event } => self.for_coordinator(life, *event),
            Happening::GiveUp { call } => match self.waiting.remove(&call) {
                Some(waiting) => self.for_coordinator(waiting.life, waiting.unreachable),
                None => Ok(()),
            },
            Happening::ToRunner {
                runner,
                task,
                call,
                what,
                epoch,
            } => self.at_runner(&runner, task, call, what, epoch),
            Happening::ToPublisher { call, what, epoch } => self.at_publisher(call, what, epoch),
            Happening::TaskStep { runner, life, task } => self.task_step(&runner, life, &task),
            Happening::ForTask {
                runner,
                life,
                task,
                event,
            } => self.for_task(&runner, life, &task, *event),
            Happening::Upload {
                runner,
                life,
                task,
                object,
                rows,
            } => self.upload(&runner, life, task, object, rows),
            Happening::Publish {
                runner,
                life,
                task,
                attempt,
                publish,
            } => self.publish(&runner, life, task, attempt, &publish),
            Happening::PublishTimeout {
                runner,
                life,
                task,
                attempt,
            } => {
                if !self.open_publishes.remove(&attempt) {
                    return Ok(());
                }
                let answer = PublishAnswer {
                    outcome: Outcome::Retryable,
                    detail: "no answer".to_owned(),
                    committed: None,
                    segments: Vec::new(),
                    retry_after_millis: 0,
                };
                self.for_task(&runner, life, &task, TaskEvent::PublishAnswered(answer))
            }
            Happening::AskHandoff { runner, life, task } => self.ask_handoff(&runner, life, &task),
            Happening::Heartbeat { runner, life } => self.heartbeat(&runner, life),
            Happening::RestartCoordinator => self.restart_coordinator(),
            Happening::RestartRunner { runner } => {
                if let Some(found) = self.runners.get_mut(&runner).filter(|found| !found.up) {
                    found.restart();
                    let life = found.life;
                    let tasks: Vec<TaskId> = found.tasks.keys().cloned().collect();
                    self.note(format!("{runner} starts with {} tasks", tasks.len()));
                    for task in tasks {
                        self.coverage.hit("task restored");
                        self.step_later(&runner, life, &task, 1);
                    }
                    self.schedule.after(10, Happening::Heartbeat { runner, life });
                }
                Ok(())
            }
            Happening::PublisherUp => {
                self.publisher_is_up = true;
                Ok(())
            }
            Happening::Trouble => self.trouble(),
            Happening::Serve => {
                self.catalog.serve_one();
                let pause = self.random.random_range(20..400);
                self.schedule.after(pause, Happening::Serve);
                Ok(())
            }
        }
    }

    // ---- what goes wrong, and what people do ----

    fn trouble(&mut self) -> Checked {
        if self.faults {
            // Quiet times between busy ones, so that groups without a record end too.
            if self.schedule.now.0.div_euclid(15_000) % 2 == 0 {
                self.log.produce(&mut self.random);
            }
            match self.random.random_range(0..600) {
                0..=4 => self.crash_coordinator("at any time"),
                5..=12 => {
                    let runner = self.any_runner();
                    self.crash_runner(&runner, "at any time");
                }
                13..=15 => {
                    self.coverage.hit("publisher away");
                    self.note("the publisher is away".to_owned());
                    self.publisher_is_up = false;
                    let pause = self.random.random_range(100..6_000);
                    self.schedule.after(pause, Happening::PublisherUp);
                }
                23..=26 => {
                    let runner = self.any_runner();
                    let until = self.schedule.now.0 + self.random.random_range(500..15_000);
                    self.coverage.hit("runner cut off");
                    self.note(format!("{runner} is cut off from the coordinator"));
                    self.cut_off.insert(runner, TimestampMillis(until));
                }
                16 if self.log.partitions.len() < 5 => {
                    self.coverage.hit("partition added");
                    self.log.add_partition();
                }
                17 => self.command("suspended", Command::Suspend)?,
                18..=20 => self.command("resumed", Command::Resume)?,
                21 => {
                    self.spec = (
                        self.random.random_range(1..3),
                        self.random.random_range(1..4),
                        self.spec.2 + 1,
                    );
                    let (replicas, task_count, variant) = self.spec;
                    let spec = Box::new(settings(replicas, task_count, variant));
                    self.command("new spec", Command::Submit(spec))?;
                }
                22 => {
                    let key = format!("reset-{}", self.step);
                    let command = Command::Reset {
                        partitions: Default::default(),
                        offsets: self.catalog.offsets(),
                        who: "simulator".to_owned(),
                        why: "a jump to where it stands".to_owned(),
                        key,
                    };
                    self.command("reset", command)?;
                }
                _ => {}
            }
        } else if self.step.is_multiple_of(7) {
            self.command("resumed", Command::Resume)?;
        }
        let pause = self.random.random_range(10..120);
        self.schedule.after(pause, Happening::Trouble);
        Ok(())
    }

    fn command(&mut self, what: &'static str, command: Command) -> Checked {
        let now = self.schedule.now;
        let life = self.coordinator.life;
        let Coordinator {
            machine: Some(machine),
            ids,
            todo,
            ..
        } = &mut self.coordinator
        else {
            return Ok(());
        };
        if let Ok(actions) = machine.command(now, command, ids) {
            let idle = todo.is_empty();
            todo.extend(actions);
            self.coverage.hit(what);
            if self.faults {
                self.note(format!("somebody asks: {what}"));
            }
            if idle {
                self.schedule.after(0, Happening::CoordinatorStep { life });
            }
        }
        Ok(())
    }

    fn any_runner(&mut self) -> RunnerId {
        let chosen = self.random.random_range(0..self.runners.len());
        self.runners
            .keys()
            .nth(chosen)
            .cloned()
            .unwrap_or_else(|| unreachable!("there are runners"))
    }

    fn crash_coordinator(&mut self, when: &str) {
        if self.coordinator.machine.is_some() {
            self.note(format!("the coordinator crashes {when}"));
            self.coverage.hit("coordinator crashed");
            self.coordinator.crash();
            let pause = self.random.random_range(10..8_000);
            self.schedule.after(pause, Happening::RestartCoordinator);
        }
    }

    fn crash_runner(&mut self, runner: &RunnerId, when: &str) {
        let Some(found) = self.runners.get_mut(runner).filter(|found| found.up) else {
            return;
        };
        found.crash();
        self.coverage.hit("runner crashed");
        let long = self.random.random_ratio(1, 4);
        let pause = if long {
            self.random.random_range(6_000..20_000)
        } else {
            self.random.random_range(10..2_000)
        };
        if long {
            self.coverage.hit("runner silent beyond its time-out");
        }
        if self.random.random_ratio(1, 12)
            && let Some(disk) = self
                .runners
                .get_mut(runner)
                .and_then(|found| found.disks.values_mut().next())
        {
            self.coverage.hit("local files lost");
            disk.files.clear();
        }
        self.note(format!("{runner} crashes {when}, back in {pause} ms"));
        self.schedule.after(
            pause,
            Happening::RestartRunner {
                runner: runner.clone(),
            },
        );
    }

    // ---- the coordinator's shell ----

    fn restart_coordinator(&mut self) -> Checked {
        if self.coordinator.machine.is_some() {
            return Ok(());
        }
        let now = self.schedule.now;
        self.coordinator
            .restart(now)
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
                LIMITS,
                now,
            );
            self.coordinator.machine = Some(machine);
            self.coordinator.todo.extend(actions);
            self.schedule.after(0, Happening::CoordinatorStep { life });
        }
        self.schedule.after(1, Happening::Tick { life });
        Ok(())
    }

    fn tick(&mut self, life: u64) -> Checked {
        if life == self.coordinator.life {
            self.schedule.after(200, Happening::Tick { life });
        }
        self.for_coordinator(life, Event::Tick)
    }

    fn for_coordinator(&mut self, life: u64, event: Event) -> Checked {
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

    fn coordinator_step(&mut self, life: u64) -> Checked {
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

    fn carry_out(&mut self, life: u64, action: Action) -> Checked {
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
                let logged = self.coordinator.stored.log.get(&base).cloned();
                self.later(life, Event::GroupCreated { group, logged });
            }
            Action::RecordDecision {
                group,
                base,
                decision,
            } => {
                self.coverage.hit("decision logged");
                let stored = self
                    .coordinator
                    .stored
                    .log
                    .entry(base)
                    .or_insert(decision)
                    .clone();
                self.note(format!("{group} ends at {}", stored.end));
                self.later(
                    life,
                    Event::DecisionStored {
                        group,
                        decision: stored,
                    },
                );
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
                self.call_runner(
                    life,
                    runner,
                    task,
                    TaskCall::Event(TaskEvent::Resume, Kind::Resume),
                );
            }
            Action::SetEndOffsets {
                runner,
                task,
                decision,
            } => {
                // I5: what a task hears is in the log, to the letter.
                if !self
                    .coordinator
                    .stored
                    .log
                    .values()
                    .any(|logged| *logged == decision)
                {
                    return Err(format!(
                        "I5: {task} is told an end that is not in the log: {}",
                        decision.end
                    ));
                }
                let event = TaskEvent::SetEndOffsets {
                    decision_id: decision.decision_id,
                    end: decision.end,
                };
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

    fn store(&mut self, changes: Vec<Change>) -> Checked {
        self.coordinator
            .stored
            .write(changes)
            .map_err(|error| format!("a document cannot be stored: {error}"))
    }

    fn later(&mut self, life: u64, event: Event) {
        let delay = self.random.random_range(1..60);
        self.schedule.after(
            delay,
            Happening::ForCoordinator {
                life,
                event: Box::new(event),
            },
        );
    }

    /// Registers a call: it is answered once, or given up.
    fn open_call(&mut self, life: u64, task: Option<TaskId>, unreachable: Event) -> u64 {
        self.calls += 1;
        self.waiting.insert(
            self.calls,
            Waiting {
                life,
                task,
                unreachable,
            },
        );
        self.schedule
            .after(CALL_TIMEOUT, Happening::GiveUp { call: self.calls });
        self.calls
    }

    fn answer(&mut self, call: u64, event: Event) {
        if self.bad_luck(60) {
            self.coverage.hit("answer lost");
            return;
        }
        if let Some(waiting) = self.waiting.remove(&call) {
            self.later(waiting.life, event);
        }
    }

    /// Sends it with a delay; it may be lost, or arrive twice.
    fn send(&mut self, make: impl Fn() -> Happening) {
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

    fn call_publisher(&mut self, life: u64, what: StoreCall, unreachable: Event) {
        let call = self.open_call(life, None, unreachable);
        let epoch = self.coordinator.stored.epoch;
        self.send(|| Happening::ToPublisher {
            call,
            what: what.clone(),
            epoch,
        });
    }

    fn at_publisher(&mut self, call: u64, what: StoreCall, epoch: Epoch) -> Checked {
        if !self.publisher_is_up {
            return Ok(());
        }
        let refused = |why: String| CallError::Refused(why);
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

    fn call_runner(&mut self, life: u64, runner: RunnerId, task: TaskId, what: TaskCall) {
        let unreachable = match &what {
            TaskCall::Assign(_) => task_answer(&task, Kind::Assign, Err(away())),
            TaskCall::Event(_, kind) => task_answer(&task, *kind, Err(away())),
        };
        let call = self.open_call(life, Some(task.clone()), unreachable);
        let epoch = self.coordinator.stored.epoch;
        self.send(|| Happening::ToRunner {
            runner: runner.clone(),
            task: task.clone(),
            call,
            what: what.clone(),
            epoch,
        });
    }

    // ---- a runner's shell ----

    fn is_cut_off(&self, runner: &RunnerId) -> bool {
        self.cut_off
            .get(runner)
            .is_some_and(|until| *until > self.schedule.now)
    }

    fn at_runner(
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
        match what {
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
                let (machine, actions) = TaskMachine::assign(*assignment, SETTINGS);
                found.disks.insert(task.clone(), Disk::default());
                found
                    .tasks
                    .insert(task.clone(), Task::new(machine, actions, Some(call)));
                self.step_later(runner, life, &task, 0);
            }
            TaskCall::Event(event, kind) => {
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
    fn said(&mut self, call: u64, task: &TaskId, kind: Kind, said: &Said) {
        let result = match said {
            Said::Answer(answer) => Ok(answer.clone()),
            Said::Refused(why) => Err(CallError::Refused(why.clone())),
            Said::Unknown => Err(CallError::NotFound("no such task".to_owned())),
        };
        self.answer(call, task_answer(task, kind, result));
    }

    /// The task's next step, unless one is under way.
    fn step_later(&mut self, runner: &RunnerId, life: u64, task: &TaskId, delay: i64) {
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

    fn ask_later(&mut self, runner: &RunnerId, life: u64, task: &TaskId, delay: i64) {
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

    fn task_step(&mut self, runner: &RunnerId, life: u64, id: &TaskId) -> Checked {
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
            self.for_task(runner, life, id, event)?;
            self.step_later(runner, life, id, 0);
            return Ok(());
        }
        if task.reads {
            self.read(runner, life, id);
        }
        Ok(())
    }

    fn read(&mut self, runner: &RunnerId, life: u64, id: &TaskId) {
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
        let pause = if read.is_some() { 3 } else { 40 };
        if spill && task.rows_in_memory() > 0 {
            events.push(task.persist(disk, None, &mut self.names));
        }
        events.extend(read);
        for event in events {
            if let Ok(actions) = task.machine.on(now, event) {
                task.enqueue(actions, None);
            }
        }
        self.step_later(runner, life, id, pause);
    }

    fn for_task(&mut self, runner: &RunnerId, life: u64, id: &TaskId, event: TaskEvent) -> Checked {
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
        if !task.todo.is_empty() {
            // One event at a time, as in the actor: what comes meanwhile waits its turn.
            task.inbox.push_back(event);
            self.step_later(runner, life, id, 0);
            return Ok(());
        }
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
        let awaits = !task.awaits.is_empty();
        self.step_later(runner, life, id, 0);
        if awaits {
            self.ask_later(runner, life, id, 300);
        }
        Ok(())
    }

    fn carry_out_task(
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
                let event = task.open(disk);
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
            TaskAction::Read { until } => task.begin_reading(until),
            TaskAction::StandStill { ticket } => {
                let event = task.stand_still(ticket);
                self.schedule.after(1, later(id, event));
            }
            TaskAction::Persist { ticket } => {
                let event = task.persist(disk, Some(ticket), &mut self.names);
                self.schedule.after(1, later(id, event));
            }
            TaskAction::Merge => {
                let event = task.merge(disk, &mut self.names);
                self.schedule.after(1, later(id, event));
            }
            TaskAction::Upload { segments } => {
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
                            object,
                            rows,
                        },
                    );
                }
            }
            TaskAction::Publish { .. } => {
                // What is sent is what is durable.
                let saved = disk
                    .record
                    .as_ref()
                    .and_then(|text| serde_json::from_str(text).ok());
                let saved: tidegate_protocol::task::TaskRecord = saved.ok_or("a publish without a record")?;
                if !saved.may_have_published {
                    return Err(format!("{id} publishes before it is noted that it may have"));
                }
                self.calls += 1;
                let attempt = self.calls;
                self.open_publishes.insert(attempt);
                let publish = Box::new(Task::publish(&saved));
                let (runner, task) = (runner.clone(), id.clone());
                self.schedule.after(
                    CALL_TIMEOUT,
                    Happening::PublishTimeout {
                        runner: runner.clone(),
                        life,
                        task: task.clone(),
                        attempt,
                    },
                );
                self.send(|| Happening::Publish {
                    runner: runner.clone(),
                    life,
                    task: task.clone(),
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
            TaskAction::End(_) | TaskAction::Leave => {}
        }
        Ok(())
    }

    fn answer_task(
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

    fn upload(
        &mut self,
        runner: &RunnerId,
        life: u64,
        task: TaskId,
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
                    object,
                    rows,
                },
            );
            return Ok(());
        }
        self.catalog.objects.insert(object.key.clone(), rows);
        self.for_task(runner, life, &task, TaskEvent::Uploaded(object))
    }

    fn publish(
        &mut self,
        runner: &RunnerId,
        life: u64,
        task: TaskId,
        attempt: u64,
        publish: &Publish,
    ) -> Checked {
        if !self.publisher_is_up {
            return Ok(());
        }
        let (answer, what) = self.catalog.publish(publish, &self.log)?;
        self.coverage.hit(what);
        self.note(format!("{task}: {what} ({})", answer.detail));
        if self.bad_luck(15) {
            self.coverage.hit("answer of a commit lost");
            return Ok(());
        }
        if self.open_publishes.remove(&attempt) {
            let event = Box::new(TaskEvent::PublishAnswered(answer));
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

    fn ask_handoff(&mut self, runner: &RunnerId, life: u64, id: &TaskId) -> Checked {
        let Some(found) = self
            .runners
            .get_mut(runner)
            .filter(|found| found.up && found.life == life)
        else {
            return Ok(());
        };
        if let Some(task) = found.tasks.get_mut(id) {
            task.asking = false;
        }
        let Some(task) = found.tasks.get(id).filter(|task| !task.awaits.is_empty()) else {
            return Ok(());
        };
        let seen: Vec<HandoffSeen> = task
            .awaits
            .iter()
            .map(|segment| HandoffSeen {
                segment: segment.clone(),
                served: self.catalog.is_served(segment),
            })
            .collect();
        if seen.iter().any(|seen| seen.served) {
            self.coverage.hit("handoff confirmed");
        }
        self.for_task(runner, life, id, TaskEvent::HandoffAnswered(seen))
    }

    /// A runner tells all its tasks; ended ones that the coordinator has recorded are forgotten.
    fn heartbeat(&mut self, runner: &RunnerId, life: u64) -> Checked {
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
        let tasks: Vec<_> = found.tasks.values().map(Task::report).collect();
        if tasks
            .iter()
            .any(|task| task.state == tidegate_protocol::group::TaskState::Superseded)
        {
            self.coverage.hit("superseded");
        }
        let view = RunnerView {
            id: runner.clone(),
            slots: 6,
            occupied: found.occupied(),
            draining: false,
        };
        if lost {
            return Ok(());
        }
        if let Some(machine) = &self.coordinator.machine {
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
        let coordinator = self.coordinator.life;
        self.later(coordinator, Event::Heartbeat { runner: view, tasks });
        Ok(())
    }
}

fn away() -> CallError {
    CallError::Unreachable("no answer in time".to_owned())
}

fn kind_of(answer: &TaskAnswer) -> Kind {
    match answer {
        TaskAnswer::Assigned(_) => Kind::Assign,
        TaskAnswer::Paused(_) => Kind::Pause,
        TaskAnswer::Resumed(_) => Kind::Resume,
        TaskAnswer::EndTold(_) => Kind::SetEnd,
        TaskAnswer::Stopped(_) => Kind::Stop,
    }
}

fn task_answer(task: &TaskId, kind: Kind, result: Result<Answer, CallError>) -> Event {
    let done = |result: Result<Answer, CallError>| result.map(|_| ());
    let answer = match kind {
        // A report is made by the runner; here only a failure comes along.
        Kind::Assign => match result {
            Err(error) => TaskAnswer::Assigned(Err(error)),
            Ok(_) => TaskAnswer::Assigned(Err(away())),
        },
        Kind::Pause => TaskAnswer::Paused(result.map(|answer| match answer {
            Answer::Paused { next } => PauseAnswer::Standing(next),
            Answer::Done | Answer::Accepted => PauseAnswer::Accepted,
        })),
        Kind::Resume => TaskAnswer::Resumed(done(result)),
        Kind::SetEnd => TaskAnswer::EndTold(done(result)),
        Kind::Stop => TaskAnswer::Stopped(done(result)),
    };
    Event::TaskAnswered {
        task: task.clone(),
        answer,
    }
}
