//! [`PublisherStore`] on a database.
//!
//! Locks are always taken in this order, so that no two transactions wait for each other: the supervisor's
//! generation, the coordinator's epoch, the data source, the catalog's clock.

mod allocation;
mod catalog;
mod evidence;
mod groups;
mod offsets;
mod publish;

use async_trait::async_trait;
use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter, QuerySelect};
use tidegate_protocol::publish::{PublishRequest, RegisteredGroup};
use tidegate_protocol::verify::{Evidence, PublishedRange};
use tidegate_types::{DataSource, Epoch, Generation, GroupId, SegmentId, SupervisorId, TimestampMillis};

use crate::database::{BodyError, Failed, in_transaction};
use crate::entity::{coordinator_epoch, supervisor_generations};
use crate::publisher::{
    Allocate, CatalogSegment, CommittedOffsets, InitializeOffsets, Publish, PublishAnswer, PublisherError,
    PublisherStore, Refusal, RegisterGroup, ResetOffsets, SegmentFilter, Used,
};
use crate::rows::{set, signed};
use crate::{Metadata, Ordinal, StoreError};

/// The body of a transaction that may refuse.
type Body<T> = Result<T, BodyError<Refusal>>;

fn refuse<T>(refusal: impl Into<Refusal>) -> Body<T> {
    Err(BodyError::Refused(refusal.into()))
}

impl From<Failed<Refusal>> for PublisherError {
    fn from(failed: Failed<Refusal>) -> Self {
        match failed {
            Failed::Store(error) => Self::Store(error),
            Failed::Refused(refusal) => Self::Refused(refusal),
        }
    }
}

/// For calls that never refuse: their refusals are answers.
fn no_refusal(failed: Failed<Refusal>) -> StoreError {
    match failed {
        Failed::Store(error) => error,
        Failed::Refused(refusal) => StoreError::Fault {
            what: "publish",
            why: refusal.to_string(),
        },
    }
}

#[async_trait]
impl PublisherStore for Metadata {
    async fn initialize_offsets(&self, call: &InitializeOffsets) -> Result<CommittedOffsets, PublisherError> {
        in_transaction!(self, Write, "initialize offsets", |tx| offsets::initialize(
            &*tx, call
        ))
        .map_err(Into::into)
    }

    async fn committed_offsets(
        &self,
        supervisor: &SupervisorId,
        topic: &str,
    ) -> Result<Option<CommittedOffsets>, StoreError> {
        in_transaction!(self, Snapshot, "read committed offsets", |tx| offsets::read(
            &*tx, supervisor, topic
        ))
        .map_err(no_refusal)
    }

    async fn reset_offsets(&self, call: &ResetOffsets) -> Result<CommittedOffsets, PublisherError> {
        in_transaction!(self, Write, "reset offsets", |tx| offsets::reset(&*tx, call)).map_err(Into::into)
    }

    async fn register_group(&self, call: &RegisterGroup) -> Result<(), PublisherError> {
        in_transaction!(self, Write, "register a group", |tx| groups::register(&*tx, call))
            .map_err(Into::into)
    }

    async fn end_group(
        &self,
        supervisor: &SupervisorId,
        group: &GroupId,
        epoch: Epoch,
        at: TimestampMillis,
    ) -> Result<(), PublisherError> {
        in_transaction!(self, Write, "end a group", |tx| groups::end(
            &*tx, supervisor, group, epoch, at
        ))
        .map_err(Into::into)
    }

    async fn group(
        &self,
        supervisor: &SupervisorId,
        group: &GroupId,
    ) -> Result<Option<RegisteredGroup>, StoreError> {
        groups::one::<_, std::convert::Infallible>("read a group", self.reader(), supervisor, group)
            .await
            .map_err(|error| match error {
                BodyError::Database(error) => crate::error::failed("read a group", &error),
                BodyError::Store(error) => error,
                BodyError::Refused(never) => match never {},
            })
    }

    async fn allocate(&self, call: &Allocate) -> Result<SegmentId, PublisherError> {
        in_transaction!(self, Write, "allocate a segment", |tx| allocation::allocate(
            &*tx, call
        ))
        .map_err(Into::into)
    }

    async fn publish(&self, call: &Publish) -> Result<PublishAnswer, StoreError> {
        in_transaction!(self, Write, "publish", |tx| publish::publish(&*tx, call)).map_err(no_refusal)
    }

    async fn preview(&self, request: &PublishRequest) -> Result<PublishAnswer, StoreError> {
        in_transaction!(self, Snapshot, "preview a publish", |tx| publish::preview(
            &*tx, request
        ))
        .map_err(no_refusal)
    }

    async fn list_segments(
        &self,
        filter: &SegmentFilter,
        after: Ordinal,
        limit: u32,
    ) -> Result<Vec<CatalogSegment>, StoreError> {
        catalog::list(self.reader(), filter, after, limit).await
    }

    async fn unpromoted(&self, after: Ordinal, limit: u32) -> Result<Vec<CatalogSegment>, StoreError> {
        catalog::unpromoted(self.reader(), after, limit).await
    }

    async fn mark_promoted(&self, ordinal: Ordinal, key: &str) -> Result<(), StoreError> {
        in_transaction!(self, Write, "mark a segment as promoted", |tx| {
            catalog::mark_promoted(&*tx, ordinal, key)
        })
        .map_err(no_refusal)
    }

    async fn mark_used(&self, segments: &[SegmentId], used: Used) -> Result<(), StoreError> {
        in_transaction!(self, Write, "mark segments", |tx| catalog::mark_used(
            &*tx, segments, used
        ))
        .map_err(no_refusal)
    }

    async fn referenced_keys(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        catalog::referenced_keys(self.reader(), keys).await
    }

    async fn publishers_of(&self, data_source: &DataSource) -> Result<Vec<SupervisorId>, StoreError> {
        in_transaction!(self, Snapshot, "find publishers", |tx| evidence::publishers_of(
            &*tx,
            data_source
        ))
        .map_err(no_refusal)
    }

    async fn evidence(&self, supervisor: &SupervisorId) -> Result<(String, Evidence), StoreError> {
        in_transaction!(self, Snapshot, "read what was published", |tx| {
            evidence::of_supervisor(&*tx, supervisor)
        })
        .map_err(no_refusal)
    }

    async fn ranges_of(
        &self,
        segments: &[CatalogSegment],
    ) -> Result<Vec<Option<PublishedRange>>, StoreError> {
        in_transaction!(self, Snapshot, "read ranges of segments", |tx| {
            evidence::of_segments(&*tx, segments)
        })
        .map_err(no_refusal)
    }

    async fn oldest_open_group(&self) -> Result<Option<TimestampMillis>, StoreError> {
        groups::oldest_open(self.reader()).await
    }
}

/// The generation that holds, locked until the transaction ends: one at a time changes a supervisor's offsets
/// and groups. A supervisor that is not known gets its first generation.
async fn lock_supervisor<C: ConnectionTrait>(tx: &C, supervisor: &SupervisorId) -> Body<Generation> {
    use supervisor_generations::{ActiveModel, Column, Entity};
    let find = || Entity::find_by_id(supervisor.as_str()).lock_exclusive();
    if let Some(row) = find().one(tx).await? {
        return Ok(Generation(row.generation.unsigned_abs()));
    }
    Entity::insert(ActiveModel {
        supervisor_id: set(supervisor.as_str()),
        generation: set(0_i64),
    })
    .on_conflict(OnConflict::column(Column::SupervisorId).do_nothing().to_owned())
    .exec_without_returning(tx)
    .await?;
    let row = find().one(tx).await?;
    Ok(Generation(row.map_or(0, |row| row.generation.unsigned_abs())))
}

/// Refuses a lower epoch than the highest seen, and raises the fence to this one. The row is locked until the
/// transaction ends: what an old coordinator writes is written before a new one raises the fence, or not at all.
async fn fence<C: ConnectionTrait>(tx: &C, given: Epoch) -> Body<()> {
    coordinator_epoch::Entity::find_by_id(1)
        .lock_exclusive()
        .one(tx)
        .await?;
    let held = observe(tx, given).await?;
    if given < held {
        refuse(Refusal::StaleEpoch { held, given })
    } else {
        Ok(())
    }
}

/// Raises the fence, if it is lower. The epoch that held before.
async fn observe<C: ConnectionTrait>(tx: &C, seen: Epoch) -> Body<Epoch> {
    use coordinator_epoch::{ActiveModel, Column, Entity};
    let row = Entity::find_by_id(1).one(tx).await?;
    let held = Epoch(row.map_or(0, |row| row.epoch.unsigned_abs()));
    if seen > held {
        // Only ever upwards, also when another transaction raises it at the same time.
        Entity::update_many()
            .set(ActiveModel {
                epoch: set(signed(seen.0)),
                ..Default::default()
            })
            .filter(Column::Id.eq(1))
            .filter(Column::Epoch.lt(signed(seen.0)))
            .exec(tx)
            .await?;
    }
    Ok(held)
}
