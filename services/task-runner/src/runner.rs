//! All tasks of a runner.
//!
//! Owns: which tasks there are. Promises: every folder of a task is either a running task or is reported as ended
//! and not restorable, until the coordinator has acknowledged it; a crash of the process loses no task.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_protocol::task::{
    Answer, Assignment, LogEntry, Refusal, StopReason, TaskEvent, TaskMachine, TaskRecord, TaskSettings,
};
use tidegate_rpc::convert;
use tidegate_rpc::status::RpcError;
use tidegate_rpc::task_runner::v1 as wire;
use tidegate_rpc::types::v1 as types;
use tidegate_spec::SupervisorSpec;
use tidegate_telemetry::families;
use tidegate_types::{Epoch, PartitionOffsets, TaskId};
use tokio::sync::oneshot;

use crate::error::RunnerError;
use crate::folder::{self, DiskBudget, Found, TaskFolder};
use crate::prepared::Prepared;
use crate::status;
use crate::task::{self, Begin, Shared, TaskHandle};

/// Longest wait of a pause call for the reader to come to a halt.
const PAUSE_PATIENCE: Duration = Duration::from_secs(5);

/// The runner behind the gRPC service.
#[derive(Debug)]
pub(crate) struct Runner {
    shared: Shared,
    disk: Arc<DiskBudget>,
    slots: u32,
    draining: AtomicBool,
    tasks: Mutex<BTreeMap<TaskId, Entry>>,
    /// Assignments take turns: two for the last slot must not both find it free.
    assigning: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
enum Entry {
    Task(Arc<TaskHandle>),
    /// Made ready for a group to come.
    Prepared(Arc<Prepared>),
    /// A folder that cannot be restored: shown as failed until acknowledged.
    Broken {
        status: Box<wire::TaskStatus>,
        folder: TaskFolder,
    },
}

impl Entry {
    fn status(&self) -> wire::TaskStatus {
        match self {
            Self::Task(task) => task.board.status(),
            Self::Prepared(prepared) => prepared.status(),
            Self::Broken { status, .. } => (**status).clone(),
        }
    }
}

/// What a pause call answers.
#[derive(Debug)]
pub(crate) struct Pause {
    pub(crate) paused: bool,
    pub(crate) next: Option<PartitionOffsets>,
}

impl Runner {
    pub(crate) fn new(shared: Shared, disk_limit: u64, slots: u32) -> Self {
        Self {
            shared,
            disk: DiskBudget::new(disk_limit),
            slots,
            draining: AtomicBool::new(false),
            tasks: Mutex::new(BTreeMap::new()),
            assigning: tokio::sync::Mutex::new(()),
        }
    }

    pub(crate) fn slots(&self) -> u32 {
        self.slots
    }
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    fn tasks(&self) -> std::sync::MutexGuard<'_, BTreeMap<TaskId, Entry>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the tasks of an earlier life. They are listed at once and begin with [`Runner::begin`].
    pub(crate) async fn restore(&self) -> Result<(), RunnerError> {
        let tasks = self.shared.work_dir.tasks();
        let failed = |source| RunnerError::WorkDir {
            what: "list",
            path: tasks.display().to_string(),
            source,
        };
        for name in folder::list(&tasks).map_err(failed)? {
            let Ok(id) = TaskId::new(name.clone()) else {
                tracing::warn!(name, "a folder that is no task's is left alone");
                continue;
            };
            let folder = TaskFolder::at(tasks.join(&name), &self.disk);
            let reading = folder.clone();
            let found = tokio::task::spawn_blocking(move || reading.load()).await;
            let found = found.map_err(|error| RunnerError::Background(error.to_string()))?;
            let broken = |why: &str, remains: &serde_json::Value| {
                tracing::error!(task = %id, why, "a task is not restorable");
                let status = Box::new(status::not_restorable(&id, why, remains));
                Entry::Broken {
                    status,
                    folder: folder.clone(),
                }
            };
            let entry = match found {
                Found::Nothing => {
                    let removed = tokio::task::spawn_blocking(move || folder.remove()).await;
                    tracing::debug!(task = %id, ?removed, "an assignment that was never acknowledged is removed");
                    continue;
                }
                Found::NotRestorable { why, remains } => broken(&why, &remains),
                Found::Record(record) if record.assignment.task != id => {
                    broken("its record belongs to another task", &serde_json::Value::Null)
                }
                Found::Record(record) => match task::spec_of(&record.assignment.spec_json) {
                    Ok(spec) => {
                        tracing::info!(task = %id, next = %record.read.next, "a task is restored");
                        let (machine, actions) = TaskMachine::restore(*record, settings(&spec));
                        let task = task::spawn(
                            machine,
                            actions,
                            spec,
                            folder,
                            self.shared.clone(),
                            Begin::WhenTold,
                            None,
                        );
                        Entry::Task(Arc::new(task))
                    }
                    Err(why) => broken(
                        &why,
                        &serde_json::to_value(&record.assignment).unwrap_or_default(),
                    ),
                },
            };
            self.tasks().insert(id, entry);
        }
        Ok(())
    }

    /// Lets restored tasks begin.
    pub(crate) fn begin(&self) {
        for entry in self.tasks().values() {
            if let Entry::Task(task) = entry {
                task.begin();
            }
        }
    }

    /// Refuses callers of a lease that is over; raises the fence, durably, for newer ones.
    pub(crate) async fn admit(&self, epoch: Epoch) -> Result<(), RpcError> {
        let work_dir = self.shared.work_dir.clone();
        let admitted = tokio::task::spawn_blocking(move || work_dir.admit(epoch)).await;
        match admitted {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(highest))) => Err(RpcError::FailedPrecondition(format!(
                "the caller's epoch {epoch} is over: epoch {highest} was seen"
            ))),
            Ok(Err(error)) => Err(RpcError::Unavailable(error.to_string(), Duration::from_secs(1))),
            Err(error) => Err(RpcError::Internal(error.to_string())),
        }
    }

    /// Takes a task; the same assignment again is the same answer (I11).
    pub(crate) async fn assign(&self, assignment: Assignment) -> Result<wire::TaskStatus, RpcError> {
        let _turn = self.assigning.lock().await;
        let id = assignment.task.clone();
        let mut reopened = None;
        let mut warm = None;
        if let Some(entry) = self.find(&id) {
            let status = entry.status();
            if status.assignment_token != assignment.token.as_str() {
                return Err(RpcError::AlreadyExists(format!(
                    "task {id} exists with another assignment token"
                )));
            }
            if let Entry::Prepared(prepared) = &entry {
                warm = prepared.take();
            } else {
                match self.kept_record(&entry).await {
                    Some(record) => reopened = Some(record),
                    None => return Ok(status),
                }
            }
        }
        if self.is_draining() {
            let wait = Duration::from_secs(5);
            return Err(RpcError::Unavailable(
                "this runner is draining: assign to another one".into(),
                wait,
            ));
        }
        self.find_slot(&id)?;
        let spec = task::spec_of(&assignment.spec_json)
            .map_err(|why| RpcError::InvalidArgument(why.clone(), vec![("task.spec_json".into(), why)]))?;
        let folder = TaskFolder::at(self.shared.work_dir.tasks().join(id.as_str()), &self.disk);
        let (machine, actions) = match reopened {
            Some(record) => TaskMachine::reopen(record, settings(&spec)),
            None => TaskMachine::assign(assignment, settings(&spec), task::now()),
        };
        let (reply, answer) = oneshot::channel();
        let task = task::spawn(
            machine,
            actions,
            spec,
            folder,
            self.shared.clone(),
            Begin::Now(reply),
            warm,
        );
        let board = task.board.clone();
        self.tasks().insert(id.clone(), Entry::Task(Arc::new(task)));
        match answer.await {
            Ok(Ok(_)) => Ok(board.status()),
            Ok(Err(refusal)) => Err(refused(&refusal)),
            Err(_) => Err(RpcError::Internal(format!(
                "task {id} ended while it was assigned"
            ))),
        }
    }

    /// A slot for this task; one that it has already is its own.
    fn find_slot(&self, id: &TaskId) -> Result<(), RpcError> {
        let takes = |(other, entry): &(&TaskId, &Entry)| *other != id && !status::is_ended(&entry.status());
        if self.tasks().iter().filter(takes).count() < self.slots as usize {
            return Ok(());
        }
        Err(RpcError::ResourceExhausted(format!(
            "all {} slots of this runner are taken",
            self.slots
        )))
    }

    /// Makes a task ready that may begin later; the same request again is the same answer (I11).
    pub(crate) async fn prepare(
        &self,
        request: &wire::PrepareTaskRequest,
    ) -> Result<wire::TaskStatus, RpcError> {
        let _turn = self.assigning.lock().await;
        let id: TaskId = convert::id("task_id", &request.task_id).map_err(RpcError::from)?;
        if let Some(entry) = self.find(&id) {
            let status = entry.status();
            if status.assignment_token == request.assignment_token {
                return Ok(status);
            }
            return Err(RpcError::AlreadyExists(format!(
                "task {id} exists with another assignment token"
            )));
        }
        if self.is_draining() {
            let why = "this runner is draining: prepare on another one".to_owned();
            return Err(RpcError::FailedPrecondition(why));
        }
        self.find_slot(&id)?;
        let invalid = |why: String| RpcError::InvalidArgument(why.clone(), vec![("spec_json".into(), why)]);
        let spec = task::spec_of(&request.spec_json).map_err(invalid)?;
        let (memory, bell) = (self.shared.memory_per_task, self.shared.bell.clone());
        let prepared = Prepared::begin(request, &spec, memory, bell).map_err(invalid)?;
        tracing::info!(task = %id, "a task is prepared");
        let status = prepared.status();
        self.tasks().insert(id, Entry::Prepared(prepared));
        Ok(status)
    }

    /// Prepared tasks that nobody asks for any more go.
    pub(crate) fn drop_forgotten(&self) {
        self.tasks()
            .retain(|_, entry| !matches!(entry, Entry::Prepared(prepared) if prepared.is_forgotten()));
    }

    /// The record of a task that was stopped with its rows kept.
    async fn kept_record(&self, entry: &Entry) -> Option<TaskRecord> {
        let Entry::Task(task) = entry else { return None };
        if task.board.status().state() != wire::TaskState::Stopped {
            return None;
        }
        let folder = task.folder.clone();
        match tokio::task::spawn_blocking(move || folder.load()).await {
            Ok(Found::Record(record)) if record.ended.as_ref().is_some_and(|ended| ended.kept) => {
                Some(*record)
            }
            _ => None,
        }
    }

    fn find(&self, id: &TaskId) -> Option<Entry> {
        self.tasks().get(id).cloned()
    }

    fn task(&self, id: &TaskId) -> Result<Arc<TaskHandle>, RpcError> {
        match self.find(id) {
            Some(Entry::Task(task)) => Ok(task),
            Some(Entry::Broken { status, .. }) => Err(RpcError::FailedPrecondition(status.reason)),
            Some(Entry::Prepared(_)) => Err(RpcError::FailedPrecondition(format!(
                "task {id} is prepared and has not begun"
            ))),
            None => Err(RpcError::NotFound(format!("this runner has no task {id}"))),
        }
    }

    /// Stops at a record boundary; waits a little for it.
    pub(crate) async fn pause(&self, id: &TaskId) -> Result<Pause, RpcError> {
        let task = self.task(id)?;
        let deadline = tokio::time::Instant::now() + PAUSE_PATIENCE.min(self.shared.rpc_timeout / 2);
        let mut turns = task.board.turns();
        loop {
            turns.borrow_and_update();
            match called(&task, TaskEvent::Pause).await? {
                Answer::Paused { next } => {
                    return Ok(Pause {
                        paused: true,
                        next: Some(next),
                    });
                }
                Answer::Accepted | Answer::Done => {}
            }
            if tokio::time::timeout_at(deadline, turns.changed()).await.is_err() {
                return Ok(Pause {
                    paused: false,
                    next: None,
                });
            }
        }
    }

    pub(crate) async fn resume(&self, id: &TaskId) -> Result<wire::TaskStatus, RpcError> {
        let task = self.task(id)?;
        called(&task, TaskEvent::Resume).await?;
        Ok(task.board.status())
    }

    /// Gives the end. A task that reads (it was restarted since the pause) stands still first, so that "not below
    /// next" can be told.
    pub(crate) async fn set_end(&self, id: &TaskId, entry: LogEntry) -> Result<wire::TaskStatus, RpcError> {
        let task = self.task(id)?;
        if !entry.finish && task.board.status().mode() != types::GroupMode::Checkpointing {
            let why = "a legacy task knows no end but the last one: finish must be true";
            return Err(RpcError::FailedPrecondition(why.into()));
        }
        let event = || TaskEvent::SetEndOffsets(entry.clone());
        let mut answer = task.call(event()).await.ok_or_else(|| gone(id))?;
        if answer == Err(Refusal::NotPaused) {
            if !self.pause(id).await?.paused {
                let wait = Duration::from_millis(200);
                return Err(RpcError::Unavailable(
                    format!("task {id} comes to a halt: ask again"),
                    wait,
                ));
            }
            answer = task.call(event()).await.ok_or_else(|| gone(id))?;
            if answer.is_err() {
                // It stood still for this call only.
                let _ = task.call(TaskEvent::Resume).await;
            }
        }
        answer.map_err(|refusal| refused(&refusal))?;
        Ok(task.board.status())
    }

    pub(crate) async fn stop(
        &self,
        id: &TaskId,
        reason: StopReason,
        keep: bool,
    ) -> Result<wire::TaskStatus, RpcError> {
        match self.find(id) {
            Some(Entry::Broken { status, .. }) => Ok(*status),
            Some(Entry::Prepared(prepared)) => {
                self.tasks().remove(id);
                tracing::info!(task = %id, "a prepared task is dropped");
                Ok(prepared.status())
            }
            Some(Entry::Task(task)) => {
                called(&task, TaskEvent::Stop { reason, keep }).await?;
                Ok(task.board.status())
            }
            None => Err(RpcError::NotFound(format!("this runner has no task {id}"))),
        }
    }

    pub(crate) fn status(&self, id: &TaskId) -> Result<wire::TaskStatus, RpcError> {
        let entry = self
            .find(id)
            .ok_or_else(|| RpcError::NotFound(format!("this runner has no task {id}")))?;
        Ok(entry.status())
    }

    /// All tasks, in order of their ids.
    pub(crate) fn statuses(&self) -> Vec<wire::TaskStatus> {
        let entries: Vec<Entry> = self.tasks().values().cloned().collect();
        entries.iter().map(Entry::status).collect()
    }

    /// The coordinator has recorded the end of a task: nothing of it is needed any more.
    pub(crate) async fn forget(&self, id: &TaskId) {
        let folder = {
            let mut tasks = self.tasks();
            let Some(entry) = tasks.get(id) else { return };
            if !status::is_ended(&entry.status()) {
                return; // the acknowledgement is of an earlier life of the same id
            }
            match tasks.remove(id) {
                Some(Entry::Task(task)) => task.folder.clone(),
                Some(Entry::Broken { folder, .. }) => folder,
                Some(Entry::Prepared(_)) | None => return,
            }
        };
        match tokio::task::spawn_blocking(move || folder.remove()).await {
            Ok(Ok(())) => tracing::debug!(task = %id, "a task is forgotten"),
            Ok(Err(error)) => {
                tracing::warn!(task = %id, %error, "the folder of an ended task is left behind");
            }
            Err(error) => tracing::warn!(task = %id, %error, "the folder of an ended task is left behind"),
        }
    }

    /// Takes nothing new; every task persists and is left restorable, for at most `limit`.
    pub(crate) async fn drain(&self, limit: Duration) {
        self.draining.store(true, Ordering::Relaxed);
        self.tasks()
            .retain(|_, entry| !matches!(entry, Entry::Prepared(_)));
        self.shared.bell.notify_one();
        let tasks: Vec<Arc<TaskHandle>> = self
            .tasks()
            .values()
            .filter_map(|entry| match entry {
                Entry::Task(task) => Some(task.clone()),
                Entry::Broken { .. } | Entry::Prepared(_) => None,
            })
            .collect();
        for task in &tasks {
            task.send(TaskEvent::Drain);
        }
        let all = futures::future::join_all(tasks.iter().map(|task| task.wait_until_gone()));
        if tokio::time::timeout(limit, all).await.is_err() {
            // What was not persisted is read again from the last persist.
            tracing::warn!(
                ?limit,
                "some tasks did not persist in time; they go on from their last persist"
            );
        }
    }

    /// Sets the gauges.
    pub(crate) fn measure(&self) {
        let statuses = self.statuses();
        let mut phases: BTreeMap<(String, &'static str), u32> = BTreeMap::new();
        for status in statuses.iter().filter(|status| !status::is_ended(status)) {
            *phases
                .entry((status.supervisor_id.clone(), phase_name(status)))
                .or_default() += 1;
        }
        let supervisors: std::collections::BTreeSet<&str> = statuses
            .iter()
            .map(|status| status.supervisor_id.as_str())
            .collect();
        for supervisor in supervisors {
            for phase in PHASES {
                let count = phases.get(&(supervisor.to_owned(), phase)).copied().unwrap_or(0);
                self.shared
                    .metrics
                    .set(&families::TASKS, [supervisor, phase], f64::from(count));
            }
        }
        let mut bytes: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for entry in self.tasks().values() {
            let Entry::Task(task) = entry else { continue };
            let (memory, disk) = bytes.entry(task.board.status().supervisor_id).or_default();
            *memory += task.board.memory();
            *disk += task.folder.disk().own();
        }
        for (supervisor, (memory, disk)) in bytes {
            // A gauge is a float; sizes up to 2^53 are exact in it.
            #[allow(clippy::cast_precision_loss)]
            let (memory, disk) = (memory as f64, disk as f64);
            self.shared
                .metrics
                .set(&families::MEMORY_BYTES, [&supervisor], memory);
            self.shared
                .metrics
                .set(&families::DISK_BYTES, [&supervisor], disk);
        }
    }
}

const PHASES: [&str; 9] = [
    "prepared",
    "starting",
    "reading",
    "paused",
    "merging",
    "uploading",
    "publishing",
    "handoff",
    "stopping",
];

fn phase_name(status: &wire::TaskStatus) -> &'static str {
    match (status.state(), status.phase()) {
        (wire::TaskState::Preparing | wire::TaskState::Prepared, _) => "prepared",
        (wire::TaskState::Starting, _) => "starting",
        (wire::TaskState::Paused, _) => "paused",
        (wire::TaskState::Stopping, _) => "stopping",
        (_, wire::TaskPhase::Merging) => "merging",
        (_, wire::TaskPhase::Uploading) => "uploading",
        (_, wire::TaskPhase::Publishing) => "publishing",
        (_, wire::TaskPhase::Handoff) => "handoff",
        (_, wire::TaskPhase::Reading | wire::TaskPhase::Unspecified) => "reading",
    }
}

fn settings(spec: &SupervisorSpec) -> TaskSettings {
    TaskSettings {
        handoff_timeout_millis: spec.tuning.handoff_condition_timeout_millis,
        handoff_period_millis: spec.tuning.intermediate_handoff_period_millis,
    }
}

async fn called(task: &TaskHandle, event: TaskEvent) -> Result<Answer, RpcError> {
    task.call(event)
        .await
        .ok_or_else(|| gone(&task.id))?
        .map_err(|refusal| refused(&refusal))
}

fn gone(id: &TaskId) -> RpcError {
    RpcError::Unavailable(
        format!("task {id} is left to the next process"),
        Duration::from_secs(1),
    )
}

fn refused(refusal: &Refusal) -> RpcError {
    RpcError::FailedPrecondition(refusal.to_string())
}
