//! One supervisor at work: an actor that owns the machine, carries its actions out in order, and turns answers
//! into events. Nothing else touches the machine.

mod calls;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_protocol::supervisor::{
    Action, Command, Event, IdSource, Refusal, ResetPlan, ResetTo, RunnerView, Settings, Snapshot, Supervisor,
};
use tidegate_rpc::task_runner::v1::TaskStatus;
use tidegate_rpc::types::v1::ParseError;
use tidegate_spec::SupervisorSpec;
use tidegate_types::{AssignmentToken, PartitionId, PartitionOffsets, SupervisorId, TaskId, TimestampMillis};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::broker::Broker;
use crate::registry::Registry;
use crate::store::{Deposed, Store};
use crate::wire;

pub(crate) use calls::Peers;

/// How often time is told to the machine.
const TICK: Duration = Duration::from_millis(250);
/// Samples of bad records that are kept of ended tasks.
const PARSE_ERRORS: usize = 50;

/// Now, by the clock of this machine.
pub(crate) fn now() -> TimestampMillis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Ids that nobody can guess.
#[derive(Debug, Default)]
pub(crate) struct RandomIds;

impl IdSource for RandomIds {
    fn token(&mut self) -> AssignmentToken {
        loop {
            // A UUID is a valid token; the loop only satisfies the type.
            if let Ok(token) = AssignmentToken::new(uuid::Uuid::new_v4().to_string()) {
                return token;
            }
        }
    }
    fn request_key(&mut self) -> String {
        uuid::Uuid::new_v4().to_string()
    }
}

/// What an actor needs of the world.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) store: Store,
    pub(crate) peers: Peers,
    pub(crate) registry: Arc<Registry>,
    pub(crate) broker: Arc<dyn Broker>,
    /// Longest time for one call to a runner or to the publisher.
    pub(crate) rpc_timeout: Duration,
    pub(crate) stop: CancellationToken,
}

/// What others see of a supervisor, all of one moment.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) snapshot: Snapshot,
    pub(crate) settings: Option<Settings>,
    pub(crate) version: u32,
    pub(crate) live_tasks: BTreeSet<TaskId>,
    /// As runners told last, of tasks that are shown.
    pub(crate) statuses: Arc<BTreeMap<TaskId, TaskStatus>>,
    pub(crate) parse_errors: Vec<ParseError>,
}

/// The answer to a command, once it is durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Done {
    pub(crate) version: u32,
    pub(crate) changed: bool,
}

enum Message {
    Event(Event),
    Heartbeat {
        runner: RunnerView,
        tasks: Vec<TaskStatus>,
    },
    Command {
        command: Command,
        reply: oneshot::Sender<Result<Done, Refusal>>,
    },
    PlanReset {
        wish: ResetWish,
        reply: oneshot::Sender<Result<ResetPlan, Refusal>>,
    },
}

/// Which offsets are to be moved, and where to.
#[derive(Debug)]
pub(crate) struct ResetWish {
    pub(crate) partitions: BTreeSet<PartitionId>,
    pub(crate) offsets: PartitionOffsets,
    pub(crate) to: ResetTo,
}

/// A way to talk to a supervisor's actor.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    sender: mpsc::UnboundedSender<Message>,
    view: watch::Receiver<Arc<View>>,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

/// The actor is gone: the coordinator ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

impl Handle {
    pub(crate) fn view(&self) -> Arc<View> {
        self.view.borrow().clone()
    }
    pub(crate) fn heartbeat(&self, runner: RunnerView, tasks: Vec<TaskStatus>) {
        // An actor that is gone ends with the whole coordinator; the runner tells it all to the next one.
        let _ = self.sender.send(Message::Heartbeat { runner, tasks });
    }
    /// Carries a command out; answers when it is durable and the view shows it.
    pub(crate) async fn command(&self, command: Command) -> Result<Result<Done, Refusal>, Gone> {
        let (reply, answer) = oneshot::channel();
        self.sender
            .send(Message::Command { command, reply })
            .map_err(|_| Gone)?;
        answer.await.map_err(|_| Gone)
    }
    /// What a reset would do now.
    pub(crate) async fn plan_reset(&self, wish: ResetWish) -> Result<Result<ResetPlan, Refusal>, Gone> {
        let (reply, answer) = oneshot::channel();
        self.sender
            .send(Message::PlanReset { wish, reply })
            .map_err(|_| Gone)?;
        answer.await.map_err(|_| Gone)
    }
    /// Waits until the view is so, for at most this long; the newest view either way.
    pub(crate) async fn wait_until(&self, limit: Duration, so: impl FnMut(&Arc<View>) -> bool) -> Arc<View> {
        let mut view = self.view.clone();
        let _ = tokio::time::timeout(limit, view.wait_for(so)).await;
        self.view()
    }
}

/// Starts an actor. `first` is carried out before anything else, and `ready` is told when that is durable.
pub(crate) fn spawn(
    machine: Supervisor,
    first: Vec<Action>,
    world: World,
) -> (Handle, oneshot::Receiver<()>) {
    let (sender, messages) = mpsc::unbounded_channel();
    let (ready, is_ready) = oneshot::channel();
    let mut actor = Actor {
        id: machine.id().clone(),
        spec: None,
        machine,
        world,
        sender: sender.clone(),
        local: VecDeque::new(),
        statuses: Arc::default(),
        old_parse_errors: VecDeque::new(),
    };
    let (publish, view) = watch::channel(Arc::new(actor.view()));
    tokio::spawn(async move {
        if actor.perform(first).await.is_err() {
            return;
        }
        let _ = ready.send(());
        actor.run(messages, publish).await;
    });
    (Handle { sender, view }, is_ready)
}

struct Actor {
    id: SupervisorId,
    machine: Supervisor,
    world: World,
    sender: mpsc::UnboundedSender<Message>,
    /// Events that answer an action at once.
    local: VecDeque<Event>,
    statuses: Arc<BTreeMap<TaskId, TaskStatus>>,
    old_parse_errors: VecDeque<ParseError>,
    /// The newest spec, by its version.
    spec: Option<(u32, Arc<SupervisorSpec>)>,
}

impl Actor {
    async fn run(
        mut self,
        mut messages: mpsc::UnboundedReceiver<Message>,
        publish: watch::Sender<Arc<View>>,
    ) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let stop = self.world.stop.clone();
        loop {
            let message = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                message = messages.recv() => message,
                _ = tick.tick() => Some(Message::Event(Event::Tick)),
            };
            let Some(message) = message else {
                break;
            };
            let taken = match message {
                Message::Command { command, reply } => self.command(command, reply, &publish).await,
                Message::PlanReset { wish, reply } => {
                    let plan = self.machine.plan_reset(&wish.partitions, &wish.offsets, wish.to);
                    // The caller may have gone away; nothing was changed.
                    let _ = reply.send(plan);
                    Ok(())
                }
                Message::Event(event) => {
                    self.local.push_back(event);
                    self.drain_local().await
                }
                Message::Heartbeat { runner, tasks } => {
                    self.heartbeat(runner, tasks);
                    self.drain_local().await
                }
            };
            if taken.is_err() {
                break;
            }
            publish.send_replace(Arc::new(self.view()));
        }
        tracing::debug!(supervisor = %self.id, "the supervisor's actor ends; its tasks go on");
    }

    async fn command(
        &mut self,
        command: Command,
        reply: oneshot::Sender<Result<Done, Refusal>>,
        publish: &watch::Sender<Arc<View>>,
    ) -> Result<(), Deposed> {
        let before = self.machine.document().version;
        let changed = !matches!(&command, Command::Submit(settings) if self.machine.has_spec(settings));
        let answer = match self.machine.command(now(), command, &mut RandomIds) {
            Ok(actions) => {
                self.perform(actions).await?;
                self.drain_local().await?;
                let version = self.machine.document().version;
                tracing::info!(supervisor = %self.id, version, before, "a command was carried out");
                Ok(Done { version, changed })
            }
            Err(refusal) => Err(refusal),
        };
        // Before the answer: who was answered sees what was done.
        publish.send_replace(Arc::new(self.view()));
        // The caller may have gone away; the command stands.
        let _ = reply.send(answer);
        Ok(())
    }

    async fn drain_local(&mut self) -> Result<(), Deposed> {
        while let Some(event) = self.local.pop_front() {
            let actions = self.machine.on(now(), event, &mut RandomIds);
            self.perform(actions).await?;
        }
        Ok(())
    }

    fn heartbeat(&mut self, runner: RunnerView, tasks: Vec<TaskStatus>) {
        let mut reports = Vec::with_capacity(tasks.len());
        let statuses = Arc::make_mut(&mut self.statuses);
        for status in tasks {
            match wire::report(&status) {
                Ok(report) => {
                    statuses.insert(report.task.clone(), status);
                    reports.push(report);
                }
                Err(bad) => {
                    tracing::warn!(runner = %runner.id, task = status.task_id, %bad, "a task's report is not understood");
                }
            }
        }
        self.local.push_back(Event::Heartbeat {
            runner,
            tasks: reports,
        });
    }

    /// Statuses of tasks that are not shown any more go; their bad records stay, up to a number.
    fn forget_statuses(&mut self, snapshot: &Snapshot) {
        let shown: BTreeSet<&TaskId> = snapshot.tasks.iter().map(|task| &task.document.id).collect();
        if self.statuses.keys().all(|task| shown.contains(task)) {
            return;
        }
        let old = std::mem::take(Arc::make_mut(&mut self.statuses));
        for (task, status) in old {
            if shown.contains(&task) {
                Arc::make_mut(&mut self.statuses).insert(task, status);
            } else {
                self.old_parse_errors.extend(status.parse_errors);
            }
        }
        while self.old_parse_errors.len() > PARSE_ERRORS {
            self.old_parse_errors.pop_front();
        }
    }

    fn view(&mut self) -> View {
        let snapshot = self.machine.snapshot(now());
        self.forget_statuses(&snapshot);
        let document = self.machine.document();
        View {
            settings: document.settings().cloned(),
            version: document.version,
            live_tasks: self.machine.live_tasks(),
            statuses: self.statuses.clone(),
            parse_errors: self.parse_errors(),
            snapshot,
        }
    }

    fn parse_errors(&self) -> Vec<ParseError> {
        let mut all: Vec<ParseError> = self.old_parse_errors.iter().cloned().collect();
        for error in self.statuses.values().flat_map(|status| &status.parse_errors) {
            // Replicas meet the same records.
            let same =
                |other: &ParseError| other.partition == error.partition && other.offset == error.offset;
            if !all.iter().any(same) {
                all.push(error.clone());
            }
        }
        all.sort_by_key(|error| error.at_millis);
        all.split_off(all.len().saturating_sub(PARSE_ERRORS))
    }

    /// The spec of the newest version, typed.
    fn spec(&mut self) -> Result<Arc<SupervisorSpec>, String> {
        let document = self.machine.document();
        let version = document.version;
        if let Some((known, spec)) = &self.spec
            && *known == version
        {
            return Ok(spec.clone());
        }
        let text = document
            .settings()
            .map(|settings| settings.spec_json.as_str())
            .unwrap_or_default();
        let parsed = SupervisorSpec::parse(text).map_err(|issues| {
            let first = issues.first().map(ToString::to_string).unwrap_or_default();
            format!("the stored spec cannot be read by this version ({first}); submit it again")
        })?;
        let spec = Arc::new(parsed.spec);
        self.spec = Some((version, spec.clone()));
        Ok(spec)
    }
}
