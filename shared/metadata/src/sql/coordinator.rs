//! [`CoordinatorStore`] on a database.

use std::time::Duration;

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
use crate::{Acquired, Candidate, Lease, Metadata, StoreError};

/// Name of the coordinator's lease.
const LEASE: &str = "coordinator";

type Body<T> = Result<T, BodyError>;

#[async_trait]
impl CoordinatorStore for Metadata {
    async fn lease(&self) -> Result<Lease, StoreError> {
        let row = leases::Entity::find_by_id(LEASE).one(self.reader()).await;
        let row = row.map_err(|error| crate::error::failed("read the coordinator's lease", &error))?;
        Ok(lease_of(row))
    }

    async fn acquire_lease(
        &self,
        candidate: &Candidate,
        over: Option<&Lease>,
        now: TimestampMillis,
    ) -> Result<Acquired, StoreError> {
        let lasts = millis(candidate.lasts);
        let done = in_transaction!(self, Write, "acquire the coordinator's lease", |tx| async {
            let held = locked(&*tx).await?;
            if !held.is_free() && over != Some(&held) {
                return Body::Ok(Acquired::Held(held));
            }
            let epoch = Epoch(held.epoch.0.saturating_add(1));
            let row = leases::ActiveModel {
                holder: set(candidate.holder.as_str()),
                epoch: set(signed(epoch.0)),
                acquired_at: set(now.0),
                expires_at: set(now.0.saturating_add(lasts)),
                address: set(candidate.address.as_str()),
                leased_epoch: set(signed(epoch.0)),
                renewal: set(0),
                lasts_millis: set(lasts),
                ..Default::default()
            };
            put_lease(&*tx, row).await?;
            Body::Ok(Acquired::Acquired { epoch })
        });
        done.map_err(StoreError::from)
    }

    async fn renew_lease(
        &self,
        epoch: Epoch,
        lasts: Duration,
        now: TimestampMillis,
    ) -> Result<(), StoreError> {
        const WHAT: &str = "renew the coordinator's lease";
        let lasts = millis(lasts);
        let done = in_transaction!(self, Write, "renew the coordinator's lease", |tx| async {
            let held = locked(&*tx).await?;
            if held.epoch != epoch {
                return Body::Err(fenced(WHAT, held.epoch, epoch));
            }
            let row = leases::ActiveModel {
                expires_at: set(now.0.saturating_add(lasts)),
                renewal: set(signed(held.renewal.saturating_add(1))),
                lasts_millis: set(lasts),
                ..Default::default()
            };
            put_lease(&*tx, row).await
        });
        done.map_err(StoreError::from)
    }

    async fn release_lease(&self, epoch: Epoch) -> Result<(), StoreError> {
        const WHAT: &str = "release the coordinator's lease";
        let done = in_transaction!(self, Write, "release the coordinator's lease", |tx| async {
            let held = locked(&*tx).await?;
            if held.epoch != epoch {
                return Body::Err(fenced(WHAT, held.epoch, epoch));
            }
            let over = signed(epoch.0.saturating_add(1));
            let row = leases::ActiveModel {
                holder: set(""),
                epoch: set(over),
                expires_at: set(0),
                address: set(""),
                leased_epoch: set(over),
                renewal: set(0),
                ..Default::default()
            };
            put_lease(&*tx, row).await
        });
        done.map_err(StoreError::from)
    }

    async fn raise_epoch(&self, holder: &str, now: TimestampMillis) -> Result<Epoch, StoreError> {
        let done = in_transaction!(self, Write, "raise the coordinator's epoch", |tx| async {
            let held = locked(&*tx).await?;
            let raised = Epoch(held.epoch.0.saturating_add(1));
            // These columns and no others, as 0.1.0 does.
            let row = leases::ActiveModel {
                holder: set(holder),
                epoch: set(signed(raised.0)),
                acquired_at: set(now.0),
                ..Default::default()
            };
            put_lease(&*tx, row).await?;
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

/// The lease; its row is locked until the transaction ends, so that nobody raises the epoch meanwhile.
async fn locked<C: ConnectionTrait>(tx: &C) -> Body<Lease> {
    let row = leases::Entity::find_by_id(LEASE).lock_exclusive().one(tx).await?;
    Ok(lease_of(row))
}

async fn put_lease<C: ConnectionTrait>(tx: &C, row: leases::ActiveModel) -> Body<()> {
    leases::Entity::update_many()
        .set(row)
        .filter(leases::Column::Name.eq(LEASE))
        .exec(tx)
        .await?;
    Ok(())
}

fn lease_of(row: Option<leases::Model>) -> Lease {
    let Some(row) = row else {
        return Lease {
            holder: String::new(),
            address: String::new(),
            epoch: Epoch(0),
            renewal: 0,
            lasts: None,
        };
    };
    // What 0.1.0 does not write is of the holder before it.
    let is_whole = row.leased_epoch == row.epoch;
    let lasts = Duration::from_millis(row.lasts_millis.unsigned_abs());
    Lease {
        holder: row.holder,
        address: if is_whole { row.address } else { String::new() },
        epoch: Epoch(row.epoch.unsigned_abs()),
        renewal: if is_whole { row.renewal.unsigned_abs() } else { 0 },
        lasts: is_whole.then_some(lasts),
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn fenced(what: &'static str, held: Epoch, given: Epoch) -> BodyError {
    StoreError::Fenced { what, held, given }.into()
}

/// A higher epoch than the stored one cannot be: it was not given by this store.
async fn check_epoch<C: ConnectionTrait>(what: &'static str, tx: &C, given: Epoch) -> Body<()> {
    let held = locked(tx).await?.epoch;
    if given == held {
        Ok(())
    } else {
        Err(fenced(what, held, given))
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
