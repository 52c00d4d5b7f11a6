//! [`CoordinatorStore`] on a database.

use async_trait::async_trait;
use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use tidegate_types::{BaseSequenceName, Epoch, SequenceId, SupervisorId, TimestampMillis};

use crate::coordinator::{
    CoordinatorChange, CoordinatorState, CoordinatorStore, DecisionKind, DecisionRecord, GroupRecord,
    HistoryRecord, RunnerRecord, SupervisorRecord, TaskRecord,
};
use crate::database::{BodyError, in_transaction};
use crate::entity::{checkpoint_log, leases, runners, supervisor_history, supervisors, task_groups, tasks};
use crate::rows::{Reader, json, set, signed};
use crate::{Metadata, StoreError};

/// Name of the coordinator's lease.
const LEASE: &str = "coordinator";

type Body<T> = Result<T, BodyError>;

#[async_trait]
impl CoordinatorStore for Metadata {
    async fn raise_epoch(&self, holder: &str, now: TimestampMillis) -> Result<Epoch, StoreError> {
        let done = in_transaction!(self, Write, "raise the coordinator's epoch", |tx| async {
            let held = lease(&*tx).await?;
            let raised = Epoch(held.0.saturating_add(1));
            leases::Entity::update_many()
                .set(leases::ActiveModel {
                    holder: set(holder),
                    epoch: set(signed(raised.0)),
                    acquired_at: set(now.0),
                    ..Default::default()
                })
                .filter(leases::Column::Name.eq(LEASE))
                .exec(&*tx)
                .await?;
            Body::Ok(raised)
        });
        done.map_err(StoreError::from)
    }

    async fn current_epoch(&self) -> Result<Epoch, StoreError> {
        let what = "read the coordinator's epoch";
        let row = leases::Entity::find_by_id(LEASE).one(self.reader()).await;
        let row = row.map_err(|error| crate::error::failed(what, &error))?;
        Ok(Epoch(row.map_or(0, |row| row.epoch.unsigned_abs())))
    }

    async fn load_all(&self) -> Result<CoordinatorState, StoreError> {
        let done = in_transaction!(self, Snapshot, "load the coordinator's state", |tx| async {
            Body::Ok((
                supervisors::Entity::find().all(&*tx).await?,
                task_groups::Entity::find().all(&*tx).await?,
                tasks::Entity::find().all(&*tx).await?,
                runners::Entity::find().all(&*tx).await?,
            ))
        });
        let (supervisors, groups, tasks, runners) = done.map_err(StoreError::from)?;
        let mut state = CoordinatorState {
            supervisors: supervisors
                .into_iter()
                .map(supervisor)
                .collect::<Result<_, _>>()?,
            groups: groups.into_iter().map(group).collect::<Result<_, _>>()?,
            tasks: tasks.into_iter().map(task).collect::<Result<_, _>>()?,
            runners: runners.into_iter().map(runner).collect::<Result<_, _>>()?,
        };
        // Sorted here, since databases differ in what text order is.
        state.supervisors.sort_by(|a, b| a.id.cmp(&b.id));
        state.groups.sort_by(|a, b| a.id.cmp(&b.id));
        state
            .tasks
            .sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        state.runners.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(state)
    }

    async fn write(&self, epoch: Epoch, changes: &[CoordinatorChange]) -> Result<(), StoreError> {
        let done = in_transaction!(self, Write, "write the coordinator's state", |tx| async {
            check_epoch("write the coordinator's state", &*tx, epoch).await?;
            for change in changes {
                apply(&*tx, epoch, change).await?;
            }
            Body::Ok(())
        });
        done.map_err(StoreError::from)
    }

    async fn history(&self, supervisor: &SupervisorId) -> Result<Vec<HistoryRecord>, StoreError> {
        let what = "read a supervisor's history";
        let rows = supervisor_history::Entity::find()
            .filter(supervisor_history::Column::SupervisorId.eq(supervisor.as_str()))
            .order_by_desc(supervisor_history::Column::Entry)
            .all(self.reader())
            .await
            .map_err(|error| crate::error::failed(what, &error))?;
        let read = Reader {
            what,
            table: "supervisor_history",
        };
        rows.into_iter()
            .map(|row| {
                Ok(HistoryRecord {
                    supervisor: read.id(&row.supervisor_id)?,
                    at: TimestampMillis(row.at),
                    what: row.what,
                    version: read.number(row.version)?,
                    document: read.document(&row.document)?,
                })
            })
            .collect()
    }

    async fn decide(&self, decision: &DecisionRecord) -> Result<DecisionRecord, StoreError> {
        let done = in_transaction!(self, Write, "decide in the checkpoint log", |tx| async {
            check_epoch("decide in the checkpoint log", &*tx, decision.epoch).await?;
            let key = (
                decision.base.as_str().to_owned(),
                i64::from(decision.sequence_id.0),
            );
            if let Some(row) = checkpoint_log::Entity::find_by_id(key).one(&*tx).await? {
                return Body::Ok(decision_of("decide in the checkpoint log", row)?);
            }
            checkpoint_log::Entity::insert(checkpoint_log::ActiveModel {
                base_sequence_name: set(decision.base.as_str()),
                sequence_id: set(decision.sequence_id.0),
                supervisor_id: set(decision.supervisor.as_str()),
                group_id: set(decision.group.as_str()),
                kind: set(decision.kind.to_number()),
                end_offsets: set(json(&decision.end)),
                decision_id: set(decision.decision_id.as_str()),
                epoch: set(signed(decision.epoch.0)),
                decided_at: set(decision.decided_at.0),
            })
            .exec_without_returning(&*tx)
            .await?;
            Body::Ok(decision.clone())
        });
        done.map_err(StoreError::from)
    }

    async fn decisions(&self, base: &BaseSequenceName) -> Result<Vec<DecisionRecord>, StoreError> {
        let what = "read the checkpoint log";
        let rows = checkpoint_log::Entity::find()
            .filter(checkpoint_log::Column::BaseSequenceName.eq(base.as_str()))
            .order_by_asc(checkpoint_log::Column::SequenceId)
            .all(self.reader())
            .await
            .map_err(|error| crate::error::failed(what, &error))?;
        rows.into_iter().map(|row| decision_of(what, row)).collect()
    }
}

/// The epoch that holds; the lease's row is locked until the transaction ends, so that nobody raises it meanwhile.
async fn lease<C: ConnectionTrait>(tx: &C) -> Body<Epoch> {
    let row = leases::Entity::find_by_id(LEASE).lock_exclusive().one(tx).await?;
    Ok(Epoch(row.map_or(0, |row| row.epoch.unsigned_abs())))
}

/// A higher epoch than the stored one cannot be: it was not given by this store.
async fn check_epoch<C: ConnectionTrait>(what: &'static str, tx: &C, given: Epoch) -> Body<()> {
    let held = lease(tx).await?;
    if given == held {
        Ok(())
    } else {
        Err(StoreError::Fenced { what, held, given }.into())
    }
}

async fn apply<C: ConnectionTrait>(tx: &C, epoch: Epoch, change: &CoordinatorChange) -> Body<()> {
    let epoch = signed(epoch.0);
    match change {
        CoordinatorChange::PutSupervisor(record) => {
            use supervisors::{ActiveModel, Column, Entity};
            Entity::insert(ActiveModel {
                supervisor_id: set(record.id.as_str()),
                version: set(record.version),
                state: set(record.state.as_str()),
                epoch: set(epoch),
                document: set(record.document.to_text()),
            })
            .on_conflict(
                OnConflict::column(Column::SupervisorId)
                    .update_columns([Column::Version, Column::State, Column::Epoch, Column::Document])
                    .to_owned(),
            )
            .exec_without_returning(tx)
            .await?;
        }
        CoordinatorChange::AppendHistory(record) => append_history(tx, epoch, record).await?,
        CoordinatorChange::PutGroup(record) => {
            use task_groups::{ActiveModel, Column, Entity};
            Entity::insert(ActiveModel {
                group_id: set(record.id.as_str()),
                supervisor_id: set(record.supervisor.as_str()),
                state: set(record.state.as_str()),
                epoch: set(epoch),
                document: set(record.document.to_text()),
            })
            .on_conflict(
                OnConflict::column(Column::GroupId)
                    .update_columns([
                        Column::SupervisorId,
                        Column::State,
                        Column::Epoch,
                        Column::Document,
                    ])
                    .to_owned(),
            )
            .exec_without_returning(tx)
            .await?;
        }
        CoordinatorChange::PutTask(record) => {
            use tasks::{ActiveModel, Column, Entity};
            Entity::insert(ActiveModel {
                task_id: set(record.id.as_str()),
                group_id: set(record.group.as_str()),
                supervisor_id: set(record.supervisor.as_str()),
                state: set(record.state.as_str()),
                created_at: set(record.created_at.0),
                epoch: set(epoch),
                document: set(record.document.to_text()),
            })
            .on_conflict(
                OnConflict::column(Column::TaskId)
                    .update_columns([
                        Column::GroupId,
                        Column::SupervisorId,
                        Column::State,
                        Column::CreatedAt,
                        Column::Epoch,
                        Column::Document,
                    ])
                    .to_owned(),
            )
            .exec_without_returning(tx)
            .await?;
        }
        CoordinatorChange::PutRunner(record) => {
            use runners::{ActiveModel, Column, Entity};
            Entity::insert(ActiveModel {
                runner_id: set(record.id.as_str()),
                last_heartbeat: set(record.last_heartbeat.0),
                epoch: set(epoch),
                document: set(record.document.to_text()),
            })
            .on_conflict(
                OnConflict::column(Column::RunnerId)
                    .update_columns([Column::LastHeartbeat, Column::Epoch, Column::Document])
                    .to_owned(),
            )
            .exec_without_returning(tx)
            .await?;
        }
        CoordinatorChange::DeleteSupervisor(id) => {
            supervisors::Entity::delete_by_id(id.as_str()).exec(tx).await?;
        }
        CoordinatorChange::DeleteGroup(id) => {
            task_groups::Entity::delete_by_id(id.as_str()).exec(tx).await?;
        }
        CoordinatorChange::DeleteTask(id) => {
            tasks::Entity::delete_by_id(id.as_str()).exec(tx).await?;
        }
        CoordinatorChange::TrimLog { base, below } => {
            use checkpoint_log::{Column, Entity};
            let of_base = Entity::delete_many().filter(Column::BaseSequenceName.eq(base.as_str()));
            let below = below.map(|below| Column::SequenceId.lt(i64::from(below.0)));
            match below {
                Some(below) => of_base.filter(below).exec(tx).await?,
                None => of_base.exec(tx).await?,
            };
        }
        CoordinatorChange::DeleteRunner(id) => {
            runners::Entity::delete_by_id(id.as_str()).exec(tx).await?;
        }
    }
    Ok(())
}

/// Entries are numbered under the lease's lock, so two never get the same number.
async fn append_history<C: ConnectionTrait>(tx: &C, epoch: i64, record: &HistoryRecord) -> Body<()> {
    use supervisor_history::{ActiveModel, Column, Entity};
    let last = Entity::find()
        .filter(Column::SupervisorId.eq(record.supervisor.as_str()))
        .order_by_desc(Column::Entry)
        .one(tx)
        .await?;
    Entity::insert(ActiveModel {
        supervisor_id: set(record.supervisor.as_str()),
        entry: set(last.map_or(1, |row| row.entry + 1)),
        at: set(record.at.0),
        what: set(record.what.as_str()),
        version: set(record.version),
        epoch: set(epoch),
        document: set(record.document.to_text()),
    })
    .exec_without_returning(tx)
    .await?;
    Ok(())
}

const LOADED: &str = "load the coordinator's state";

fn supervisor(row: supervisors::Model) -> Result<SupervisorRecord, StoreError> {
    let read = Reader {
        what: LOADED,
        table: "supervisors",
    };
    Ok(SupervisorRecord {
        id: read.id(&row.supervisor_id)?,
        version: read.number(row.version)?,
        state: row.state,
        document: read.document(&row.document)?,
    })
}

fn group(row: task_groups::Model) -> Result<GroupRecord, StoreError> {
    let read = Reader {
        what: LOADED,
        table: "task_groups",
    };
    Ok(GroupRecord {
        id: read.id(&row.group_id)?,
        supervisor: read.id(&row.supervisor_id)?,
        state: row.state,
        document: read.document(&row.document)?,
    })
}

fn task(row: tasks::Model) -> Result<TaskRecord, StoreError> {
    let read = Reader {
        what: LOADED,
        table: "tasks",
    };
    Ok(TaskRecord {
        id: read.id(&row.task_id)?,
        group: read.id(&row.group_id)?,
        supervisor: read.id(&row.supervisor_id)?,
        state: row.state,
        created_at: TimestampMillis(row.created_at),
        document: read.document(&row.document)?,
    })
}

fn runner(row: runners::Model) -> Result<RunnerRecord, StoreError> {
    let read = Reader {
        what: LOADED,
        table: "runners",
    };
    Ok(RunnerRecord {
        id: read.id(&row.runner_id)?,
        last_heartbeat: TimestampMillis(row.last_heartbeat),
        document: read.document(&row.document)?,
    })
}

fn decision_of(what: &'static str, row: checkpoint_log::Model) -> Result<DecisionRecord, StoreError> {
    let read = Reader {
        what,
        table: "checkpoint_log",
    };
    Ok(DecisionRecord {
        base: read.id(&row.base_sequence_name)?,
        sequence_id: SequenceId(read.number(row.sequence_id)?),
        supervisor: read.id(&row.supervisor_id)?,
        group: read.id(&row.group_id)?,
        kind: DecisionKind::from_number(read.number(row.kind)?),
        end: read.json(&row.end_offsets)?,
        decision_id: row.decision_id,
        epoch: Epoch(row.epoch.unsigned_abs()),
        decided_at: TimestampMillis(row.decided_at),
    })
}
