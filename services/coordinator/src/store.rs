//! The machine's documents in the store, and back after a restart.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_metadata::{
    CoordinatorChange, CoordinatorState, CoordinatorStore, DecisionKind, DecisionRecord, Document,
    DocumentError, GroupRecord, HistoryRecord, StoreError, SupervisorRecord, TaskRecord,
};
use tidegate_protocol::group::{GroupDocument, GroupState, TaskDocument};
use tidegate_protocol::supervisor::{Change, Desired, HistoryLine, Loaded, SupervisorDocument};
use tidegate_protocol::task::{EndDecision, LogEntry};
use tidegate_types::{BaseSequenceName, Epoch, GroupId, SupervisorId, TimestampMillis};
use tokio_util::sync::CancellationToken;

use crate::error::CoordinatorError;

/// Format of our documents, and the oldest reader that may read them.
const FORMAT: u32 = 1;
/// Pauses between attempts while the store is away.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The store with our epoch. Waits while the store is away: nothing may happen that is not durable.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) port: Arc<dyn CoordinatorStore>,
    pub(crate) epoch: Epoch,
    /// Cancelled when another coordinator holds the lease.
    pub(crate) deposed: CancellationToken,
}

/// This coordinator does not hold the lease any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deposed;

impl Store {
    /// Repeats until it is done. Only another coordinator's lease ends it.
    async fn insist<T, F>(&self, what: &str, mut attempt: impl FnMut() -> F) -> Result<T, Deposed>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let mut pause = FIRST_PAUSE;
        loop {
            match attempt().await {
                Ok(done) => return Ok(done),
                Err(StoreError::Fenced { held, given, .. }) => {
                    tracing::warn!(%held, %given, what, "the lease is not ours any more; this was not written");
                    self.deposed.cancel();
                    return Err(Deposed);
                }
                Err(error) => tracing::warn!(%error, what, "the store failed; it is tried again"),
            }
            tokio::select! {
                () = self.deposed.cancelled() => return Err(Deposed),
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    }

    /// One transaction.
    pub(crate) async fn write(&self, supervisor: &SupervisorId, changes: Vec<Change>) -> Result<(), Deposed> {
        let changes: Vec<CoordinatorChange> = changes
            .into_iter()
            .filter_map(|change| record(supervisor, change))
            .collect();
        let may_double = changes
            .iter()
            .any(|change| matches!(change, CoordinatorChange::AppendHistory(_)));
        let changes = std::sync::Mutex::new(changes);
        self.insist("writing documents", || async {
            let now = changes
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .clone();
            let result = self.port.write(self.epoch, &now).await;
            if may_double && let Err(StoreError::UnknownOutcome { .. }) = &result {
                // It may have happened: a line of the history must not be written twice.
                let there = self.port.history(supervisor).await?;
                let left = now.into_iter().filter(|change| match change {
                    CoordinatorChange::AppendHistory(line) => !there.contains(line),
                    _ => true,
                });
                *changes.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = left.collect();
            }
            result
        })
        .await
    }

    /// What the log has for a name, in order.
    pub(crate) async fn logged(&self, base: &BaseSequenceName) -> Result<Vec<LogEntry>, Deposed> {
        let decisions = self
            .insist("reading the checkpoint log", || self.port.decisions(base))
            .await?;
        Ok(decisions.into_iter().map(entry).collect())
    }

    /// Writes an end unless there is one; what is stored is what counts (I5).
    pub(crate) async fn decide(
        &self,
        supervisor: &SupervisorId,
        group: &GroupId,
        base: &BaseSequenceName,
        wanted: LogEntry,
        now: TimestampMillis,
    ) -> Result<LogEntry, Deposed> {
        let record = DecisionRecord {
            base: base.clone(),
            sequence_id: wanted.sequence,
            supervisor: supervisor.clone(),
            group: group.clone(),
            kind: if wanted.finish {
                DecisionKind::Finish
            } else {
                DecisionKind::Checkpoint
            },
            end: wanted.decision.end,
            decision_id: wanted.decision.decision_id,
            epoch: self.epoch,
            decided_at: now,
        };
        self.insist("writing a decision", || self.port.decide(&record))
            .await
            .map(entry)
    }
}

/// A kind that this version does not know ends the group: nothing is read behind an end that is not understood.
fn entry(record: DecisionRecord) -> LogEntry {
    LogEntry {
        sequence: record.sequence_id,
        decision: EndDecision {
            decision_id: record.decision_id,
            end: record.end,
        },
        finish: record.kind != DecisionKind::Checkpoint,
    }
}

fn document<T: Serialize>(value: &T) -> Option<Document> {
    // Our documents are plain data with text keys: they always become JSON.
    Document::of(FORMAT, FORMAT, value)
        .inspect_err(|error| tracing::error!(%error, "a document cannot be written"))
        .ok()
}

fn record(supervisor: &SupervisorId, change: Change) -> Option<CoordinatorChange> {
    Some(match change {
        Change::PutSupervisor(stored) => CoordinatorChange::PutSupervisor(SupervisorRecord {
            id: stored.id.clone(),
            version: stored.version,
            state: match stored.desired {
                Desired::Running => "running",
                Desired::Suspended => "suspended",
                Desired::Stopping { .. } => "stopping",
                Desired::Terminated => "terminated",
            }
            .into(),
            document: document(&stored)?,
        }),
        Change::PutGroup(stored) => CoordinatorChange::PutGroup(GroupRecord {
            id: stored.id.clone(),
            supervisor: supervisor.clone(),
            state: match stored.state {
                GroupState::Reading => "reading",
                GroupState::Pending { .. } => "pending",
                GroupState::GivingUp { .. } => "giving-up",
                GroupState::Done => "done",
                GroupState::Lost { .. } => "lost",
            }
            .into(),
            document: document(&stored)?,
        }),
        Change::DeleteGroup(id) => CoordinatorChange::DeleteGroup(id),
        Change::PutTask(stored) => CoordinatorChange::PutTask(TaskRecord {
            id: stored.id.clone(),
            group: stored.group.clone(),
            supervisor: supervisor.clone(),
            state: match (&stored.end, &stored.runner) {
                (Some(_), _) => "ended",
                (None, Some(_)) => "placed",
                (None, None) => "waiting",
            }
            .into(),
            created_at: stored.created_at,
            document: document(&stored)?,
        }),
        Change::DeleteTask(id) => CoordinatorChange::DeleteTask(id),
        Change::TrimLog { base, below } => CoordinatorChange::TrimLog { base, below },
        Change::AppendHistory(line) => CoordinatorChange::AppendHistory(HistoryRecord {
            supervisor: supervisor.clone(),
            at: line.at,
            what: line.what.clone(),
            version: line.version,
            document: document(&line)?,
        }),
    })
}

/// A line of the history from its record; one that a newer version wrote shows what can be read.
pub(crate) fn history_line(record: HistoryRecord) -> HistoryLine {
    let HistoryRecord {
        at,
        what,
        version,
        document,
        ..
    } = record;
    document
        .read(FORMAT)
        .unwrap_or_else(|error: DocumentError| HistoryLine {
            at,
            what,
            version,
            detail: error.to_string(),
            spec_json: String::new(),
        })
}

fn read<T: DeserializeOwned>(
    what: &'static str,
    id: &str,
    document: &Document,
) -> Result<T, CoordinatorError> {
    document.read(FORMAT).map_err(|why| CoordinatorError::Unreadable {
        what,
        id: id.to_owned(),
        why,
    })
}

/// Everything that the supervisors go on from. A supervisor that cannot be read stops the start, by name: it
/// must not be silently without tasks.
pub(crate) async fn load(
    port: &dyn CoordinatorStore,
    state: &CoordinatorState,
) -> Result<Vec<(SupervisorDocument, Loaded)>, CoordinatorError> {
    let mut all = BTreeMap::new();
    for record in &state.supervisors {
        let document: SupervisorDocument = read("supervisor", record.id.as_str(), &record.document)?;
        all.insert(record.id.clone(), (document, Loaded::default()));
    }
    for record in &state.groups {
        let Some((_, loaded)) = all.get_mut(&record.supervisor) else {
            continue;
        };
        let group: GroupDocument = read("task group", record.id.as_str(), &record.document)?;
        let decisions = port.decisions(&group.base_sequence_name).await?;
        loaded.log.insert(
            group.base_sequence_name.clone(),
            decisions.into_iter().map(entry).collect(),
        );
        loaded.groups.push(group);
    }
    for record in &state.tasks {
        if let Some((_, loaded)) = all.get_mut(&record.supervisor) {
            let task: TaskDocument = read("task", record.id.as_str(), &record.document)?;
            loaded.tasks.push(task);
        }
    }
    Ok(all.into_values().collect())
}
