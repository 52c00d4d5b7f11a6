//! A small world around one supervisor: a store, a publisher, a broker and runners that do as they are told,
//! unless a test says otherwise. It checks what must be durable before what at every action.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use tidegate_types::{
    AssignmentToken, BaseSequenceName, ClusterId, DataSource, DecodeVersion, Generation, GroupId, Offset,
    PartitionId, PartitionOffsets, RunnerId, SequenceId, SupervisorId, TaskId, TimestampMillis, TopicId,
};

use super::super::*;
use crate::group::{GroupDocument, TaskPhase, TaskReport, TaskState};
use crate::task::{Assignment, EndDecision, GroupMode, LogEntry, RowCounts, Stream};

#[derive(Default)]
pub(super) struct Numbers(u64);

impl IdSource for Numbers {
    fn token(&mut self) -> AssignmentToken {
        self.0 += 1;
        AssignmentToken::new(format!("token-{}", self.0)).unwrap()
    }
    fn request_key(&mut self) -> String {
        self.0 += 1;
        format!("key-{}", self.0)
    }
}

#[derive(Debug, Default, Clone)]
pub(super) struct Stored {
    pub(super) supervisor: Option<SupervisorDocument>,
    pub(super) groups: BTreeMap<GroupId, GroupDocument>,
    pub(super) tasks: BTreeMap<TaskId, TaskDocument>,
    pub(super) history: Vec<HistoryLine>,
    pub(super) log: BTreeMap<BaseSequenceName, Vec<LogEntry>>,
    /// Every entry that was ever in it.
    pub(super) decided: Vec<LogEntry>,
}

#[derive(Debug, Clone)]
pub(super) struct FakeTask {
    pub(super) assignment: Assignment,
    pub(super) state: TaskState,
    pub(super) phase: TaskPhase,
    pub(super) next: PartitionOffsets,
    pub(super) end: Option<EndDecision>,
    pub(super) first_read: Option<TimestampMillis>,
    pub(super) reason: String,
    pub(super) progress: u64,
    /// Checkpointing mode: ends that it knows, and how many of these sequences are published.
    pub(super) log: Vec<LogEntry>,
    pub(super) published: u32,
    pub(super) wants_checkpoint: bool,
}

impl FakeTask {
    fn checkpoints(&self) -> bool {
        self.assignment.mode == GroupMode::Checkpointing
    }
    /// The sequence that has no end yet.
    fn open(&self) -> Option<SequenceId> {
        match self.log.last() {
            Some(last) if last.finish => None,
            Some(last) => Some(last.sequence.next()),
            None => Some(self.assignment.first_sequence),
        }
        .filter(|_| self.checkpoints())
    }
    /// Where the first unpublished sequence starts.
    fn base(&self) -> PartitionOffsets {
        let before = self
            .published
            .checked_sub(1)
            .and_then(|last| self.log.get(last as usize));
        before.map_or_else(
            || self.assignment.start.clone(),
            |entry| entry.decision.end.clone(),
        )
    }
    pub(super) fn read(&self) -> u64 {
        self.next
            .iter()
            .map(|(p, next)| u64::try_from(next.0 - self.assignment.start.get(p).unwrap().0).unwrap())
            .sum()
    }
    pub(super) fn report(&self) -> TaskReport {
        TaskReport {
            task: self.assignment.task.clone(),
            group: Some(self.assignment.group.clone()),
            token: Some(self.assignment.token.clone()),
            state: self.state,
            phase: self.phase,
            next: (self.state != TaskState::Starting).then(|| self.next.clone()),
            decision_id: self
                .end
                .as_ref()
                .map(|end| end.decision_id.clone())
                .unwrap_or_default(),
            counts: RowCounts {
                accepted: self.read(),
                ..RowCounts::default()
            },
            reason: self.reason.clone(),
            first_read: self.first_read,
            progress: self.progress,
            alert: String::new(),
            open: self.open(),
            wants_checkpoint: self.wants_checkpoint,
            unpublished: self
                .checkpoints()
                .then_some(SequenceId(self.assignment.first_sequence.0 + self.published)),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct FakeRunner {
    pub(super) slots: u32,
    pub(super) up: bool,
    pub(super) tasks: BTreeMap<TaskId, FakeTask>,
    /// Prepared ones: connected or not.
    pub(super) prepared: BTreeMap<TaskId, (AssignmentToken, bool)>,
}

/// A prepared task as its runner tells it.
fn prepared_report(task: &TaskId, token: &AssignmentToken, ready: bool) -> TaskReport {
    TaskReport {
        task: task.clone(),
        group: None,
        token: Some(token.clone()),
        state: if ready {
            TaskState::Prepared
        } else {
            TaskState::Preparing
        },
        phase: TaskPhase::BeforeCommit,
        next: None,
        decision_id: String::new(),
        counts: RowCounts::default(),
        reason: String::new(),
        first_read: None,
        progress: 0,
        alert: String::new(),
        open: None,
        wants_checkpoint: false,
        unpublished: None,
    }
}

#[derive(Debug, Default)]
pub(super) struct Registered {
    pub(super) tokens: BTreeSet<AssignmentToken>,
    pub(super) ended: bool,
}

/// What a call to a task comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// The call never arrives.
    Lost,
    /// It arrives, the answer does not.
    AnswerLost,
    /// It took a pause and is not standing yet.
    Slow,
}

pub(super) struct World {
    pub(super) now: i64,
    pub(super) ids: Numbers,
    pub(super) supervisor: Supervisor,
    pub(super) stored: Stored,
    pub(super) topic: Discovery,
    pub(super) broker_error: Option<String>,
    pub(super) committed: Option<Committed>,
    pub(super) registered: BTreeMap<GroupId, Registered>,
    pub(super) runners: BTreeMap<RunnerId, FakeRunner>,
    /// Every action so far.
    pub(super) trace: Vec<Action>,
    pub(super) events: VecDeque<Event>,
    /// Faults of calls to tasks, by (task, kind of call); `*` = every task.
    pub(super) faults: BTreeMap<(String, &'static str), Fault>,
    /// Published ranges: (partition, start, end, generation).
    pub(super) published: Vec<(PartitionId, Offset, Offset, Generation)>,
    pub(super) reset_keys: BTreeMap<String, Committed>,
    /// All peers can.
    pub(super) can_checkpoint: bool,
    /// Runners prepare tasks, and are connected with the next heartbeat.
    pub(super) can_prepare: bool,
    pub(super) connects: bool,
    /// Runners refuse to prepare a task.
    pub(super) refuses_to_prepare: bool,
}

pub(super) fn id(text: &str) -> TaskId {
    TaskId::new(text).unwrap()
}

pub(super) fn stream(incarnation: &str) -> Stream {
    Stream {
        topic: "edits".into(),
        cluster_id: ClusterId("c".into()),
        topic_id: TopicId(incarnation.into()),
    }
}

pub(super) fn settings() -> Settings {
    Settings {
        data_source: DataSource::new("wiki").unwrap(),
        topic: "edits".into(),
        spec_json: "{\"v\":1}".into(),
        data_schema: serde_json::json!({"dataSource": "wiki"}),
        task_tuning: serde_json::json!({}),
        task_view: serde_json::json!({"v": 1}),
        decode_version: DecodeVersion(1),
        run: Run::Running,
        replicas: 1,
        task_count: 1,
        task_duration_millis: 3_600_000,
        start_delay_millis: 5_000,
        look_up_millis: 30_000,
        completion_timeout_millis: 1_800_000,
        first_start: FirstStart::Earliest,
        late_message_rejection_millis: None,
        late_message_rejection_start: None,
        early_message_rejection_millis: None,
        on_lost_data: OnLostData::Stop,
        round_millis: 80_000,
        unknown: Default::default(),
    }
}

impl World {
    /// Two runners with four slots each, a topic with these bounds.
    pub(super) fn new<const N: usize>(settings: Settings, bounds: [(i32, i64, i64); N]) -> Self {
        Self::with(settings, bounds, false)
    }
    /// The same in checkpointing mode, with its first groups.
    pub(super) fn checkpointing<const N: usize>(settings: Settings, bounds: [(i32, i64, i64); N]) -> Self {
        let mut world = Self::with(settings, bounds, true);
        world.pass(6_000);
        world
    }
    fn limits(can_checkpoint: bool) -> Limits {
        Limits {
            can_checkpoint,
            ..Limits::default()
        }
    }
    fn with<const N: usize>(settings: Settings, bounds: [(i32, i64, i64); N], can_checkpoint: bool) -> Self {
        let now = 1_000_000;
        let (supervisor, actions) = Supervisor::submit(
            SupervisorId::new("wiki").unwrap(),
            settings,
            Self::limits(can_checkpoint),
            TimestampMillis(now),
        );
        let mut world = Self {
            now,
            ids: Numbers::default(),
            supervisor,
            stored: Stored::default(),
            topic: Discovery {
                stream: stream("t1"),
                earliest: PartitionOffsets::new(),
                latest: PartitionOffsets::new(),
            },
            broker_error: None,
            committed: None,
            registered: BTreeMap::new(),
            runners: BTreeMap::new(),
            trace: Vec::new(),
            events: VecDeque::new(),
            faults: BTreeMap::new(),
            published: Vec::new(),
            reset_keys: BTreeMap::new(),
            can_checkpoint,
            can_prepare: false,
            connects: true,
            refuses_to_prepare: false,
        };
        for (partition, earliest, latest) in bounds {
            world.bounds(partition, earliest, latest);
        }
        world.runner("r1", 4);
        world.runner("r2", 4);
        world.execute(actions);
        world
    }
    pub(super) fn started<const N: usize>(settings: Settings, bounds: [(i32, i64, i64); N]) -> Self {
        let mut world = Self::new(settings, bounds);
        world.pass(6_000);
        world
    }
    pub(super) fn bounds(&mut self, partition: i32, earliest: i64, latest: i64) {
        self.topic
            .earliest
            .insert(PartitionId(partition), Offset(earliest));
        self.topic.latest.insert(PartitionId(partition), Offset(latest));
    }
    pub(super) fn runner(&mut self, name: &str, slots: u32) {
        self.runners.insert(
            RunnerId::new(name).unwrap(),
            FakeRunner {
                slots,
                up: true,
                ..FakeRunner::default()
            },
        );
    }
    pub(super) fn time(&self) -> TimestampMillis {
        TimestampMillis(self.now)
    }
    pub(super) fn up(&mut self, runner: &str, up: bool) {
        self.runners.get_mut(&RunnerId::new(runner).unwrap()).unwrap().up = up;
    }

    /// Time passes in steps of a second, with heartbeats.
    pub(super) fn pass(&mut self, millis: i64) {
        for _ in 0..(millis / 1_000).max(1) {
            self.now += 1_000;
            self.heartbeats();
            self.events.push_back(Event::Tick);
            self.run();
        }
    }
    pub(super) fn heartbeats(&mut self) {
        let now = self.time();
        for (id, runner) in self.runners.iter_mut().filter(|(_, runner)| runner.up) {
            for task in runner
                .tasks
                .values_mut()
                .filter(|task| task.state == TaskState::Starting)
            {
                task.state = if task.end.is_some() {
                    TaskState::Finishing
                } else {
                    TaskState::Reading
                };
                task.first_read = task.first_read.or(Some(now));
            }
            if self.connects {
                for (_, ready) in runner.prepared.values_mut() {
                    *ready = true;
                }
            }
            let occupied = runner
                .tasks
                .values()
                .filter(|task| !task.state.is_ended())
                .count()
                + runner.prepared.len();
            let view = RunnerView {
                id: id.clone(),
                slots: runner.slots,
                occupied: u32::try_from(occupied).unwrap(),
                draining: false,
                can_checkpoint: self.can_checkpoint,
                can_prepare: self.can_prepare,
            };
            let prepared = runner.prepared.iter();
            let prepared = prepared.map(|(id, (token, ready))| prepared_report(id, token, *ready));
            let tasks = runner
                .tasks
                .values()
                .map(FakeTask::report)
                .chain(prepared)
                .collect();
            self.events.push_back(Event::Heartbeat { runner: view, tasks });
        }
    }
    pub(super) fn run(&mut self) {
        let mut rounds = 0;
        while let Some(event) = self.events.pop_front() {
            rounds += 1;
            assert!(rounds < 2_000, "no rest: {event:?}");
            let actions = self
                .supervisor
                .on(TimestampMillis(self.now), event, &mut self.ids);
            self.execute(actions);
        }
    }
    pub(super) fn command(&mut self, command: Command) -> Result<(), Refusal> {
        let actions = self
            .supervisor
            .command(TimestampMillis(self.now), command, &mut self.ids)?;
        self.execute(actions);
        self.run();
        Ok(())
    }
    /// The coordinator ends and another life of it begins, from what is stored.
    pub(super) fn restart(&mut self) {
        self.events.clear();
        let document = self.stored.supervisor.clone().unwrap();
        let loaded = Loaded {
            groups: self.stored.groups.values().cloned().collect(),
            tasks: self.stored.tasks.values().cloned().collect(),
            log: self.stored.log.clone(),
        };
        self.supervisor =
            Supervisor::restore(document, loaded, Self::limits(self.can_checkpoint), self.time());
    }

    pub(super) fn execute(&mut self, actions: Vec<Action>) {
        for action in actions {
            self.trace.push(action.clone());
            self.perform(action);
        }
    }
    pub(super) fn perform(&mut self, action: Action) {
        match action {
            Action::Store(changes) => self.store(changes),
            Action::CreateGroup { group, base, changes } => {
                self.store(changes);
                let logged = self.stored.log.get(&base).cloned().unwrap_or_default();
                self.events.push_back(Event::GroupCreated { group, logged });
            }
            Action::RecordDecision { group, base, entry } => {
                let log = self.stored.log.entry(base).or_default();
                let held = log.iter().find(|held| held.sequence == entry.sequence).cloned();
                let entry = held.unwrap_or_else(|| {
                    log.push(entry.clone());
                    entry
                });
                self.stored.decided.push(entry.clone());
                self.events.push_back(Event::DecisionStored { group, entry });
            }
            Action::Discover { .. } => {
                let answer = self
                    .broker_error
                    .clone()
                    .map_or_else(|| Ok(self.topic.clone()), Err);
                self.events.push_back(Event::Discovered(answer));
            }
            Action::GetCommitted { .. } => {
                self.events
                    .push_back(Event::CommittedAnswered(Ok(self.committed.clone())));
            }
            Action::InitializeOffsets { stream, start } => {
                let held = self.committed.get_or_insert_with(|| Committed {
                    stream: stream.clone(),
                    offsets: PartitionOffsets::new(),
                    generation: Generation(0),
                });
                held.stream = stream;
                held.offsets = start.plus(&held.offsets);
                self.events.push_back(Event::OffsetsInitialized(Ok(held.clone())));
            }
            Action::ResetOffsets(call) => self.reset(call),
            Action::RegisterGroup(call) => {
                let entry = self.registered.entry(call.group.clone()).or_default();
                assert!(!entry.ended, "{} registered after its end", call.group);
                entry.tokens = call.tokens;
                self.events.push_back(Event::GroupRegistered {
                    group: call.group,
                    result: Ok(()),
                });
            }
            Action::EndGroup { group, .. } => {
                self.registered.entry(group.clone()).or_default().ended = true;
                self.events.push_back(Event::GroupEnded {
                    group,
                    result: Ok(()),
                });
            }
            Action::AssignTask { runner, assignment } => self.assign(runner, *assignment),
            Action::PrepareTask(call) => self.prepare(*call),
            Action::PauseTask { runner, task } => {
                let answer = self.call(&runner, &task, "pause", |task| match task.state {
                    TaskState::Starting => Ok(PauseAnswer::Accepted),
                    TaskState::Reading | TaskState::Paused => {
                        task.state = TaskState::Paused;
                        Ok(PauseAnswer::Standing(task.next.clone()))
                    }
                    _ => Err(CallError::Refused("finishing".into())),
                });
                let slow = self.fault(&task, "pause") == Some(Fault::Slow);
                let answer = if slow { Ok(PauseAnswer::Accepted) } else { answer };
                self.events.push_back(Event::TaskAnswered {
                    task,
                    answer: TaskAnswer::Paused(answer),
                });
            }
            Action::ResumeTask { runner, task } => {
                let answer = self.call(&runner, &task, "resume", |task| {
                    if task.state == TaskState::Paused {
                        task.state = TaskState::Reading;
                    }
                    Ok(())
                });
                self.events.push_back(Event::TaskAnswered {
                    task,
                    answer: TaskAnswer::Resumed(answer),
                });
            }
            Action::SetEndOffsets { runner, task, entry } => self.set_end(&runner, task, entry),
            Action::StopTask { runner, task, reason } => {
                let host = self.runners.get_mut(&runner).unwrap();
                if host.up && host.prepared.remove(&task).is_some() {
                    return self.events.push_back(Event::TaskAnswered {
                        task,
                        answer: TaskAnswer::Stopped(Ok(())),
                    });
                }
                let answer = self.call(&runner, &task, "stop", |task| {
                    if !task.state.is_ended() {
                        task.state = match reason {
                            StopReason::Superseded => TaskState::Superseded,
                            StopReason::Replaced => TaskState::Replaced,
                            StopReason::Stopped => TaskState::Stopped,
                        };
                    }
                    Ok(())
                });
                self.events.push_back(Event::TaskAnswered {
                    task,
                    answer: TaskAnswer::Stopped(answer),
                });
            }
            Action::Alert(_) => {}
        }
    }
    fn set_end(&mut self, runner: &RunnerId, task: TaskId, entry: LogEntry) {
        let mut log = self.stored.log.values().flatten().chain(&self.stored.decided);
        let logged = log.any(|logged| *logged == entry);
        assert!(logged, "I5: {task} hears of {entry:?} before it is in the log");
        let decision = entry.decision.clone();
        let answer = self.call(runner, &task, "end", |task| {
            let too_far = |(partition, end)| task.next.get(partition).is_some_and(|next| next > end);
            if task.end.is_none() && task.state == TaskState::Reading {
                return Err(CallError::Refused("pause it first".into()));
            }
            if task.end.is_none() && decision.end.iter().any(too_far) {
                return Err(CallError::Refused("it has read too far".into()));
            }
            if task.checkpoints() {
                match task.open() {
                    Some(open) if open == entry.sequence => task.log.push(entry.clone()),
                    Some(open) if open < entry.sequence => {
                        return Err(CallError::Refused("tell the one before first".into()));
                    }
                    _ => return Ok(()),
                }
                task.wants_checkpoint = false;
                if !entry.finish {
                    task.state = TaskState::Reading;
                    return Ok(());
                }
            }
            task.end = Some(decision);
            if task.state == TaskState::Paused {
                task.state = TaskState::Finishing;
            }
            Ok(())
        });
        self.events.push_back(Event::TaskAnswered {
            task,
            answer: TaskAnswer::EndTold(answer),
        });
    }
    fn prepare(&mut self, call: PrepareCall) {
        let numbered = self.stored.supervisor.as_ref().unwrap().next_group;
        let number: u64 = call.group.as_str().rsplit('.').next().unwrap().parse().unwrap();
        assert!(
            number < numbered,
            "the number of {} is not taken for good",
            call.group
        );
        let host = self.runners.get_mut(&call.runner).unwrap();
        let result = if self.refuses_to_prepare {
            Err(CallError::Refused("no such secret".into()))
        } else if host.up {
            let (token, ready) = host
                .prepared
                .entry(call.task.clone())
                .or_insert((call.token, false));
            Ok(Box::new(prepared_report(&call.task, token, *ready)))
        } else {
            Err(CallError::Unreachable("away".into()))
        };
        self.events.push_back(Event::TaskAnswered {
            task: call.task,
            answer: TaskAnswer::Prepared(result),
        });
    }
    fn assign(&mut self, runner: RunnerId, assignment: Assignment) {
        let task = assignment.task.clone();
        let group = &self.registered[&assignment.group];
        assert!(
            group.tokens.contains(&assignment.token),
            "{task} is assigned before its token is registered"
        );
        assert_eq!(
            self.stored.tasks[&task].runner.as_ref(),
            Some(&runner),
            "{task}: its place is not stored"
        );
        assert!(
            assignment.start.iter().all(|(p, _)| self
                .committed
                .as_ref()
                .is_some_and(|c| c.offsets.get(p).is_some())),
            "I2: {task} is assigned before its start is committed"
        );
        let host = self.runners.get_mut(&runner).unwrap();
        host.prepared.remove(&task);
        let used = host.tasks.values().filter(|task| !task.state.is_ended()).count() + host.prepared.len();
        if host.up && !host.tasks.contains_key(&task) {
            if used >= host.slots as usize {
                let answer = TaskAnswer::Assigned(Err(CallError::NoSlot("full".into())));
                return self.events.push_back(Event::TaskAnswered { task, answer });
            }
            if self.faults.get(&("*".into(), "assign")) != Some(&Fault::Lost) {
                let fake = FakeTask {
                    state: TaskState::Starting,
                    phase: TaskPhase::BeforeCommit,
                    next: assignment.start.clone(),
                    end: match assignment.log.last() {
                        Some(last) if last.finish => Some(last.decision.clone()),
                        _ => assignment.end.clone(),
                    },
                    log: assignment.log.clone(),
                    published: 0,
                    wants_checkpoint: false,
                    assignment,
                    first_read: None,
                    reason: String::new(),
                    progress: 0,
                };
                self.runners
                    .get_mut(&runner)
                    .unwrap()
                    .tasks
                    .insert(task.clone(), fake);
            }
        }
        let answer = self.call(&runner, &task, "assign", |task| Ok(Box::new(task.report())));
        self.events.push_back(Event::TaskAnswered {
            task,
            answer: TaskAnswer::Assigned(answer),
        });
    }
    pub(super) fn fault(&self, task: &TaskId, kind: &'static str) -> Option<Fault> {
        let own = self.faults.get(&(task.to_string(), kind));
        own.or_else(|| self.faults.get(&("*".into(), kind))).copied()
    }
    fn call<T>(
        &mut self,
        runner: &RunnerId,
        task: &TaskId,
        kind: &'static str,
        work: impl FnOnce(&mut FakeTask) -> Result<T, CallError>,
    ) -> Result<T, CallError> {
        let fault = self.fault(task, kind);
        let away = || CallError::Unreachable("away".into());
        let host = self.runners.get_mut(runner).unwrap();
        if !host.up || matches!(fault, Some(Fault::Lost | Fault::Slow)) {
            return Err(away());
        }
        let found = host
            .tasks
            .get_mut(task)
            .ok_or_else(|| CallError::NotFound(task.to_string()))?;
        let answer = work(found);
        if fault == Some(Fault::AnswerLost) {
            Err(away())
        } else {
            answer
        }
    }
    fn reset(&mut self, call: ResetCall) {
        if let Some(done) = self.reset_keys.get(&call.key) {
            return self.events.push_back(Event::OffsetsReset(Ok(done.clone())));
        }
        let held = self.committed.clone().unwrap_or(Committed {
            stream: stream("t1"),
            offsets: PartitionOffsets::new(),
            generation: Generation(0),
        });
        let concerned =
            |partition: &PartitionId| call.partitions.is_empty() || call.partitions.contains(partition);
        let now: PartitionOffsets = held
            .offsets
            .iter()
            .filter(|(partition, _)| concerned(partition))
            .collect();
        if now != call.expected {
            return self
                .events
                .push_back(Event::OffsetsReset(Err(CallError::Refused("moved".into()))));
        }
        let kept: PartitionOffsets = held
            .offsets
            .iter()
            .filter(|(partition, _)| !concerned(partition))
            .collect();
        let after = Committed {
            stream: call.stream.unwrap_or(held.stream),
            offsets: kept.plus(&call.new_offsets),
            generation: held.generation.next(),
        };
        self.committed = Some(after.clone());
        self.reset_keys.insert(call.key, after.clone());
        self.events.push_back(Event::OffsetsReset(Ok(after)));
    }
    fn store(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                // Through text, as in a database.
                Change::PutSupervisor(document) => {
                    let text = serde_json::to_string(&document).unwrap();
                    self.stored.supervisor = Some(serde_json::from_str(&text).unwrap());
                }
                Change::PutGroup(group) => {
                    let text = serde_json::to_string(&group).unwrap();
                    self.stored
                        .groups
                        .insert(group.id.clone(), serde_json::from_str(&text).unwrap());
                }
                Change::DeleteGroup(group) => drop(self.stored.groups.remove(&group)),
                Change::PutTask(task) => {
                    let text = serde_json::to_string(&task).unwrap();
                    self.stored
                        .tasks
                        .insert(task.id.clone(), serde_json::from_str(&text).unwrap());
                }
                Change::DeleteTask(task) => drop(self.stored.tasks.remove(&task)),
                Change::TrimLog { base, below } => {
                    if let Some(log) = self.stored.log.get_mut(&base) {
                        log.retain(|entry| below.is_some_and(|below| entry.sequence >= below));
                    }
                }
                Change::AppendHistory(line) => self.stored.history.push(line),
            }
        }
    }

    pub(super) fn task(&mut self, task: &str) -> &mut FakeTask {
        let tasks = self
            .runners
            .values_mut()
            .flat_map(|runner| runner.tasks.iter_mut());
        tasks
            .into_iter()
            .find(|(id, _)| id.as_str() == task)
            .unwrap_or_else(|| panic!("no runner has {task}"))
            .1
    }
    pub(super) fn live(&self) -> Vec<String> {
        let all = self.runners.values().flat_map(|runner| runner.tasks.iter());
        all.filter(|(_, task)| !task.state.is_ended())
            .map(|(id, _)| id.to_string())
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect()
    }
    pub(super) fn read(&mut self, task: &str, partition: i32, next: i64) {
        self.task(task).next.insert(PartitionId(partition), Offset(next));
    }
    /// The task stands still and asks for a checkpoint.
    pub(super) fn trigger(&mut self, task: &str) {
        let fake = self.task(task);
        fake.state = TaskState::Paused;
        fake.wants_checkpoint = true;
    }
    /// The task publishes its next sequence; `false` = refused. Another's commit counts as its own.
    pub(super) fn publish_part(&mut self, task: &str) -> bool {
        let fake = self.task(task).clone();
        let entry = fake.log[fake.published as usize].clone();
        let end = entry.decision.end.clone();
        let held = self.committed.clone().unwrap();
        if !held.offsets.reaches(&end) {
            let group = &self.registered[&fake.assignment.group];
            let may = !group.ended
                && group.tokens.contains(&fake.assignment.token)
                && held.generation == fake.assignment.generation
                && held.offsets.matches(&fake.base());
            if !may {
                return false;
            }
            for (partition, end) in end.iter() {
                let start = fake.base().get(partition).unwrap();
                self.published.push((partition, start, end, held.generation));
                self.committed.as_mut().unwrap().offsets.insert(partition, end);
            }
        }
        let fake = self.task(task);
        fake.next = PartitionOffsets::max(&fake.next, &end);
        fake.published += 1;
        if entry.finish {
            fake.state = TaskState::Published;
        }
        true
    }
    /// The task reads to its end and publishes, as the publisher allows; `false` = refused.
    pub(super) fn publish(&mut self, task: &str) -> bool {
        let fake = self.task(task).clone();
        let end = fake.end.clone().expect("no end yet").end;
        let held = self.committed.clone().unwrap();
        let assignment = &fake.assignment;
        let already = held.generation == assignment.generation
            && end
                .iter()
                .all(|(partition, end)| held.offsets.get(partition).is_some_and(|at| at >= end));
        if !already {
            let group = &self.registered[&assignment.group];
            let may = !group.ended
                && group.tokens.contains(&assignment.token)
                && held.generation == assignment.generation
                && assignment
                    .start
                    .iter()
                    .all(|(partition, start)| held.offsets.get(partition) == Some(start));
            if !may {
                return false;
            }
            for (partition, end) in end.iter() {
                let start = assignment.start.get(partition).unwrap();
                self.published.push((partition, start, end, held.generation));
                self.committed.as_mut().unwrap().offsets.insert(partition, end);
            }
        }
        let fake = self.task(task);
        fake.next = end;
        fake.state = if already {
            TaskState::Superseded
        } else {
            TaskState::Published
        };
        true
    }
    pub(super) fn state(&self) -> State {
        self.supervisor.snapshot(self.time()).state
    }
    pub(super) fn errors(&self) -> Vec<String> {
        self.supervisor
            .snapshot(self.time())
            .errors
            .into_iter()
            .map(|error| error.message)
            .collect()
    }
    pub(super) fn history(&self) -> Vec<String> {
        self.stored
            .history
            .iter()
            .map(|line| format!("{} {}", line.what, line.detail).trim().to_owned())
            .collect()
    }
}
