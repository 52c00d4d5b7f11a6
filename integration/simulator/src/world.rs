//! The world: processes, the calls between them, and what goes wrong.

#![allow(clippy::unnecessary_wraps, reason = "all steps of the world have one shape")]

mod at_coordinator;
mod calls;
mod publishing;
mod tasks;
mod trouble;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tidegate_protocol::group::GroupState;
use tidegate_protocol::supervisor::{CallError, Event, PauseAnswer, TaskAnswer};
use tidegate_protocol::task::{
    Answer, Assignment, LogEntry, Outcome, PublishAnswer, StagedObject, TaskEvent, TaskSettings,
};
use tidegate_types::{
    AssignmentToken, BaseSequenceName, Epoch, PartitionOffsets, RunnerId, SequenceId, TaskId, TimestampMillis,
};

use crate::catalog::{self, Catalog, Publish};
use crate::coordinator::{Coordinator, Ids, Stored};
use crate::log::Log;
use crate::runner::Runner;
use crate::schedule::Schedule;
use crate::{Coverage, Failure, Mutant};

/// How a run is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Steps with faults; after them everything must converge.
    pub faulty_steps: u64,
    /// Steps in which it must have converged.
    pub calm_steps: u64,
    /// A mistake that is to be found.
    pub mutant: Option<Mutant>,
    pub mode: Mode,
}

/// How groups publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Odd seeds in checkpointing mode, even ones in legacy mode.
    BySeed,
    Legacy,
    Checkpointing,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            faulty_steps: 4_000,
            calm_steps: 60_000,
            mutant: None,
            mode: Mode::BySeed,
        }
    }
}

const CALL_TIMEOUT: i64 = 2_000;
/// How long a consumer takes to connect.
const CONNECTING: i64 = 400;
/// Longest time in which a task may stand when nothing goes wrong: some rounds, one after the other.
const LONGEST_STAND: i64 = 20_000;
/// Tasks that a runner holds at a time.
const SLOTS: u32 = 6;
const RUNNERS: usize = 3;
const COORDINATORS: usize = 2;

/// What a runner is asked about a task.
#[derive(Debug, Clone)]
enum TaskCall {
    Assign(Box<Assignment>),
    Prepare(AssignmentToken),
    Event(TaskEvent, Kind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Assign,
    Prepare,
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
        part: SequenceId,
        object: StagedObject,
        rows: Vec<catalog::Row>,
    },
    Publish {
        runner: RunnerId,
        life: u64,
        task: TaskId,
        part: SequenceId,
        attempt: u64,
        publish: Box<Publish>,
    },
    PublishTimeout {
        runner: RunnerId,
        life: u64,
        task: TaskId,
        part: SequenceId,
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
    RestartCoordinator {
        index: usize,
    },
    /// A coordinator notices that another one leads.
    Depose {
        life: u64,
    },
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
    coordinators: Vec<Coordinator>,
    /// What the coordinators keep in the metadata store.
    stored: Stored,
    ids: Ids,
    /// Process lives of coordinators so far.
    lives: u64,
    /// Where replicas stand still, as coordinators heard, until they are told something.
    standing: BTreeMap<(u64, TaskId), PartitionOffsets>,
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
    /// Milliseconds.
    task_duration: u64,
    /// Since when tasks stand, once faults are off.
    stand_since: BTreeMap<TaskId, TimestampMillis>,
    checkpointing: bool,
    /// Runners prepare tasks of groups to come.
    prepares: bool,
    /// What every task of this run is made with.
    task_settings: TaskSettings,
    /// Every decision that was ever made.
    decisions: BTreeMap<(BaseSequenceName, SequenceId), LogEntry>,
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
        let checkpointing = match options.mode {
            Mode::BySeed => seed % 2 == 1,
            Mode::Legacy => false,
            Mode::Checkpointing => true,
        };
        let task_settings = TaskSettings {
            handoff_timeout_millis: 0,
            // Sometimes sooner than rows can fill a segment.
            handoff_period_millis: (checkpointing && seed.is_multiple_of(3)).then_some(1_500),
        };
        let mut world = Self {
            seed,
            options,
            schedule: Schedule::new(TimestampMillis(1_700_000_000_000)),
            log,
            catalog: Catalog::with(options.mutant),
            coordinators: (0..COORDINATORS).map(|_| Coordinator::default()).collect(),
            stored: Stored::default(),
            ids: Ids::default(),
            lives: 0,
            standing: BTreeMap::new(),
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
            // Sometimes longer than anybody may stand: then no end of a group hides one that does.
            task_duration: if seed % 8 == 5 { 40_000 } else { 8_000 },
            stand_since: BTreeMap::new(),
            checkpointing,
            prepares: seed % 4 != 3,
            task_settings,
            decisions: BTreeMap::new(),
            coverage: Coverage::default(),
            trace: VecDeque::new(),
            step: 0,
            random,
        };
        let ids: Vec<RunnerId> = world.runners.keys().cloned().collect();
        for runner in ids {
            world.schedule.after(0, Happening::RestartRunner { runner });
        }
        world
            .schedule
            .after(0, Happening::RestartCoordinator { index: 0 });
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
                return self.catalog.check(&self.log);
            }
        }
        let committed = self.catalog.offsets();
        if let Some(machine) = self.leader().and_then(|leader| leader.machine.as_ref()) {
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
        let machine = self.leader().and_then(|leader| leader.machine.as_ref());
        let nobody_waits = machine.is_some_and(|machine| {
            let mut groups = machine.groups();
            groups.all(|group| matches!(group.document.state, GroupState::Reading | GroupState::Done))
        });
        nobody_waits
            && self.catalog.offsets() == self.log.latest()
            && self.catalog.segments.iter().all(|segment| segment.served)
    }

    /// The coordinator whose writes are taken.
    fn leader(&self) -> Option<&Coordinator> {
        let leads = |one: &&Coordinator| one.machine.is_some() && one.epoch == self.stored.epoch;
        self.coordinators.iter().find(leads)
    }

    /// The coordinator that lives this life still.
    fn coordinator(&mut self, life: u64) -> Option<&mut Coordinator> {
        self.coordinators
            .iter_mut()
            .find(|one| one.life == life && one.machine.is_some())
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.options.mutant == Some(mutant)
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
                part,
                object,
                rows,
            } => self.upload(&runner, life, task, part, object, rows),
            Happening::Publish {
                runner,
                life,
                task,
                part,
                attempt,
                publish,
            } => self.publish(&runner, life, task, part, attempt, &publish),
            Happening::PublishTimeout {
                runner,
                life,
                task,
                part,
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
                self.for_task(&runner, life, &task, TaskEvent::PublishAnswered { part, answer })
            }
            Happening::AskHandoff { runner, life, task } => self.ask_handoff(&runner, life, &task),
            Happening::Heartbeat { runner, life } => self.heartbeat(&runner, life),
            Happening::RestartCoordinator { index } => self.restart_coordinator(index),
            Happening::Depose { life } => {
                self.depose(life);
                Ok(())
            }
            Happening::RestartRunner { runner } => {
                if let Some(found) = self.runners.get_mut(&runner).filter(|found| !found.up) {
                    found.restart(self.task_settings);
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
}

fn away() -> CallError {
    CallError::Unreachable("no answer in time".to_owned())
}

fn kind_of(answer: &TaskAnswer) -> Kind {
    match answer {
        TaskAnswer::Assigned(_) => Kind::Assign,
        TaskAnswer::Prepared(_) => Kind::Prepare,
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
        Kind::Prepare => TaskAnswer::Prepared(Err(result.err().unwrap_or_else(away))),
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
