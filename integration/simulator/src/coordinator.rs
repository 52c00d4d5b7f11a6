//! The coordinators: documents and a log that survive, supervisor machines that do not. One leads by its epoch; one
//! that was overtaken goes on until a write of its own is refused, or it notices.

use std::collections::{BTreeMap, VecDeque};

use tidegate_protocol::group::{GroupDocument, TaskDocument};
use tidegate_protocol::supervisor::{
    Action, Change, FirstStart, IdSource, Limits, Loaded, OnLostData, Run, Settings, Supervisor,
    SupervisorDocument,
};
use tidegate_protocol::task::{LogEntry, Unknown};
use tidegate_types::{
    AssignmentToken, BaseSequenceName, DataSource, DecodeVersion, Epoch, GroupId, SupervisorId, TaskId,
    TimestampMillis,
};

pub(crate) fn limits(can_checkpoint: bool) -> Limits {
    Limits {
        runner_timeout_millis: 5_000,
        retry_millis: 500,
        ended_tasks_kept: 5,
        can_checkpoint,
    }
}

/// Ids that are never given twice, also not after a crash.
#[derive(Debug, Default)]
pub(crate) struct Ids(u64);

impl IdSource for Ids {
    fn token(&mut self) -> AssignmentToken {
        self.0 += 1;
        #[allow(clippy::expect_used, reason = "the text is a valid id")]
        AssignmentToken::new(format!("token-{}", self.0)).expect("a valid id")
    }
    fn request_key(&mut self) -> String {
        self.0 += 1;
        format!("key-{}", self.0)
    }
}

/// What is in the metadata store, each as text.
#[derive(Debug, Default)]
pub(crate) struct Stored {
    supervisor: Option<String>,
    groups: BTreeMap<GroupId, String>,
    tasks: BTreeMap<TaskId, String>,
    pub(crate) log: BTreeMap<BaseSequenceName, Vec<LogEntry>>,
    pub(crate) epoch: Epoch,
}

impl Stored {
    pub(crate) fn write(&mut self, changes: Vec<Change>) -> Result<(), serde_json::Error> {
        for change in changes {
            match change {
                Change::PutSupervisor(document) => self.supervisor = Some(serde_json::to_string(&document)?),
                Change::PutGroup(document) => {
                    self.groups
                        .insert(document.id.clone(), serde_json::to_string(&document)?);
                }
                Change::DeleteGroup(id) => {
                    self.groups.remove(&id);
                }
                Change::PutTask(document) => {
                    self.tasks
                        .insert(document.id.clone(), serde_json::to_string(&document)?);
                }
                Change::DeleteTask(id) => {
                    self.tasks.remove(&id);
                }
                Change::TrimLog { base, below } => {
                    if let Some(log) = self.log.get_mut(&base) {
                        log.retain(|entry| below.is_some_and(|below| entry.sequence >= below));
                    }
                }
                Change::AppendHistory(_) => {}
            }
        }
        Ok(())
    }

    pub(crate) fn load(&self) -> Result<Option<(SupervisorDocument, Loaded)>, serde_json::Error> {
        let Some(text) = &self.supervisor else {
            return Ok(None);
        };
        let groups: Vec<GroupDocument> = self
            .groups
            .values()
            .map(|text| serde_json::from_str(text))
            .collect::<Result<_, _>>()?;
        let tasks: Vec<TaskDocument> = self
            .tasks
            .values()
            .map(|text| serde_json::from_str(text))
            .collect::<Result<_, _>>()?;
        Ok(Some((
            serde_json::from_str(text)?,
            Loaded {
                groups,
                tasks,
                log: self.log.clone(),
            },
        )))
    }
}

/// One process.
#[derive(Debug, Default)]
pub(crate) struct Coordinator {
    pub(crate) machine: Option<Supervisor>,
    /// Number of its process life, never given twice.
    pub(crate) life: u64,
    /// Its lease; writes with an older one than the newest are refused.
    pub(crate) epoch: Epoch,
    pub(crate) todo: VecDeque<Action>,
}

impl Coordinator {
    pub(crate) fn crash(&mut self) {
        self.machine = None;
        self.todo.clear();
    }

    /// Takes the lease and takes up what is stored.
    pub(crate) fn restart(
        &mut self,
        stored: &mut Stored,
        life: u64,
        now: TimestampMillis,
        can_checkpoint: bool,
    ) -> Result<(), serde_json::Error> {
        self.life = life;
        stored.epoch = Epoch(stored.epoch.0 + 1);
        self.epoch = stored.epoch;
        if let Some((document, loaded)) = stored.load()? {
            self.machine = Some(Supervisor::restore(document, loaded, limits(can_checkpoint), now));
        }
        Ok(())
    }
}

#[allow(clippy::expect_used, reason = "the text is a valid id")]
pub(crate) fn supervisor_id() -> SupervisorId {
    SupervisorId::new("ds").expect("a valid id")
}

/// A spec; `variant` changes what tasks depend on, so that it is another one.
#[allow(clippy::expect_used, reason = "the text is a valid name")]
pub(crate) fn settings(
    (replicas, task_count, variant): (u32, u32, u32),
    task_duration_millis: u64,
) -> Settings {
    Settings {
        data_source: DataSource::new("ds").expect("a valid name"),
        topic: "topic".to_owned(),
        spec_json: "{}".to_owned(),
        data_schema: serde_json::json!({ "variant": variant }),
        task_tuning: serde_json::json!({}),
        task_view: serde_json::json!({ "variant": variant, "taskCount": task_count, "replicas": replicas }),
        decode_version: DecodeVersion(1),
        run: Run::Running,
        replicas,
        task_count,
        task_duration_millis,
        start_delay_millis: 0,
        look_up_millis: 1_000,
        completion_timeout_millis: 30_000,
        first_start: FirstStart::Earliest,
        late_message_rejection_millis: None,
        late_message_rejection_start: None,
        early_message_rejection_millis: None,
        on_lost_data: OnLostData::Stop,
        round_millis: 3_000,
        unknown: Unknown::new(),
    }
}
