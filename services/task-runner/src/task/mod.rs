//! One running task: an actor around the machine.
//!
//! Owns: the machine, the task's folder, its reading thread and whatever work is under way. Promises: one event at
//! a time; actions are carried out in their order, and a save is durable before the next one begins. Must never:
//! decide anything that the machine decides.

mod actor;
mod handoff;
mod merge;
mod publish;
mod upload;

use std::sync::{Arc, Mutex, PoisonError};

use tidegate_objects::Objects;
use tidegate_protocol::task::{Answer, Refusal, TaskEvent};
use tidegate_rpc::clients::{HandoffClient, PublisherClient};
use tidegate_rpc::task_runner::v1 as wire;
use tidegate_spec::SupervisorSpec;
use tidegate_telemetry::Metrics;
use tidegate_types::{TaskId, TimestampMillis};
use tokio::sync::{mpsc, oneshot, watch};

pub(crate) use actor::{Begin, spawn};
pub(crate) use publish::mode;

use crate::live::Live;
use crate::work_dir::WorkDir;

/// What every task of a runner shares.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) work_dir: Arc<WorkDir>,
    pub(crate) publisher: PublisherClient,
    pub(crate) handoff: HandoffClient,
    pub(crate) objects: Objects,
    pub(crate) metrics: Metrics,
    /// Bytes of rows that one task holds in memory when its spec says nothing.
    pub(crate) memory_per_task: u64,
    pub(crate) rpc_timeout: std::time::Duration,
    /// Merges of all tasks at a time.
    pub(crate) merges: Arc<tokio::sync::Semaphore>,
    /// Rung when a task has something to report.
    pub(crate) bell: Arc<tokio::sync::Notify>,
}

/// What reaches a task.
#[derive(Debug)]
pub(crate) enum Input {
    /// The restored task may begin.
    Begin,
    Event(TaskEvent),
    Call(TaskEvent, oneshot::Sender<Result<Answer, Refusal>>),
}

/// Sends events to a task from anywhere; a task that is gone takes none.
#[derive(Debug, Clone)]
pub(crate) struct Inbox(mpsc::UnboundedSender<Input>);

impl Inbox {
    pub(crate) fn send(&self, event: TaskEvent) {
        let _ = self.0.send(Input::Event(event));
    }
}

/// The last word of a task, for status calls and heartbeats.
#[derive(Debug)]
pub(crate) struct Board {
    status: Mutex<wire::TaskStatus>,
    topic: String,
    live: Arc<Live>,
    /// Counts the machine's events, so that a call can wait for the next one.
    turns: watch::Sender<u64>,
}

impl Board {
    pub(crate) fn new(status: wire::TaskStatus, topic: &str, live: Arc<Live>) -> Arc<Self> {
        Arc::new(Self {
            status: Mutex::new(status),
            topic: topic.to_owned(),
            live,
            turns: watch::Sender::new(0),
        })
    }
    fn set(&self, status: wire::TaskStatus) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
        self.turns.send_modify(|turns| *turns += 1);
    }
    /// The status now, with the reader's newest numbers.
    pub(crate) fn status(&self) -> wire::TaskStatus {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner).clone();
        crate::status::refresh(&mut status, &self.topic, &self.live);
        status
    }
    /// Bytes of rows in memory.
    pub(crate) fn memory(&self) -> u64 {
        self.live.memory()
    }
    pub(crate) fn turns(&self) -> watch::Receiver<u64> {
        self.turns.subscribe()
    }
}

/// The runner's end of a task.
#[derive(Debug)]
pub(crate) struct TaskHandle {
    pub(crate) id: TaskId,
    pub(crate) board: Arc<Board>,
    pub(crate) folder: crate::folder::TaskFolder,
    inbox: mpsc::UnboundedSender<Input>,
    /// Closed when the actor is gone.
    pub(crate) gone: watch::Receiver<()>,
}

impl TaskHandle {
    /// One call; `None` when the task is gone.
    pub(crate) async fn call(&self, event: TaskEvent) -> Option<Result<Answer, Refusal>> {
        let (reply, answer) = oneshot::channel();
        self.inbox.send(Input::Call(event, reply)).ok()?;
        answer.await.ok()
    }
    pub(crate) fn begin(&self) {
        let _ = self.inbox.send(Input::Begin);
    }
    pub(crate) fn send(&self, event: TaskEvent) {
        let _ = self.inbox.send(Input::Event(event));
    }
    pub(crate) async fn wait_until_gone(&self) {
        let mut gone = self.gone.clone();
        while gone.changed().await.is_ok() {}
    }
}

/// The wall clock.
pub(crate) fn now() -> TimestampMillis {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    TimestampMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// The typed spec of an assignment.
pub(crate) fn spec_of(spec_json: &str) -> Result<SupervisorSpec, String> {
    crate::spec::parse(spec_json)
}
