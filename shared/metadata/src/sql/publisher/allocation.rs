//! Segment ids: asked for under the data source's lock, given once.

use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter, QuerySelect};
use tidegate_protocol::allocate::{
    AllocationDecision, AllocationRequest, AllocationState, Chunk, Lineage, decide,
};
use tidegate_protocol::publish::Fence;
use tidegate_types::{DataSource, Generation, Interval, SegmentId, SegmentVersion, TimestampMillis};

use super::{Body, groups, refuse};
use crate::StoreError;
use crate::entity::{data_sources, interval_chunks, pending_segments, supervisor_generations};
use crate::publisher::{Allocate, Refusal};
use crate::rows::{Reader, set, signed};

const WHAT: &str = "allocate a segment";

pub(super) async fn allocate<C: ConnectionTrait>(tx: &C, call: &Allocate) -> Body<SegmentId> {
    may_ask(tx, call).await?;
    lock(tx, &call.request.data_source).await?;
    let state = AllocationState {
        answers: answers(tx, call).await?,
        chunks: chunks(tx, &call.request).await?,
    };
    let version = SegmentVersion::new(call.at.to_string()).map_err(|error| StoreError::Fault {
        what: WHAT,
        why: error.to_string(),
    })?;
    match decide(&state, &call.request, &version) {
        AllocationDecision::Existing(id) => Ok(id),
        AllocationDecision::New(id) => {
            store(tx, call, &id).await?;
            Ok(id)
        }
        AllocationDecision::Refused(refusal) => refuse(refusal),
    }
}

/// The fences of a publish, looked at early: one who could not publish needs no id. A reset that comes in
/// between does no harm, since the publish looks again.
async fn may_ask<C: ConnectionTrait>(tx: &C, call: &Allocate) -> Body<()> {
    let row = supervisor_generations::Entity::find_by_id(call.supervisor.as_str())
        .one(tx)
        .await?;
    let held = Generation(row.map_or(0, |row| row.generation.unsigned_abs()));
    if held != call.generation {
        return refuse(Fence::Generation {
            held,
            given: call.generation,
        });
    }
    let group = groups::one::<_, Refusal>(WHAT, tx, &call.supervisor, &call.group).await?;
    let Some(registered) = group else {
        return refuse(Fence::UnknownGroup {
            group: call.group.clone(),
        });
    };
    if registered.ended {
        return refuse(Fence::GroupEnded {
            group: call.group.clone(),
        });
    }
    if registered.generation != call.generation {
        return refuse(Fence::OtherGroup {
            group: call.group.clone(),
        });
    }
    if !registered.tokens.contains(&call.token) {
        return refuse(Fence::Token {
            group: call.group.clone(),
        });
    }
    Ok(())
}

/// One allocation at a time per data source.
async fn lock<C: ConnectionTrait>(tx: &C, data_source: &DataSource) -> Body<()> {
    use data_sources::{ActiveModel, Column, Entity};
    let find = || Entity::find_by_id(data_source.as_str()).lock_exclusive();
    if find().one(tx).await?.is_none() {
        Entity::insert(ActiveModel {
            data_source: set(data_source.as_str()),
        })
        .on_conflict(OnConflict::column(Column::DataSource).do_nothing().to_owned())
        .exec_without_returning(tx)
        .await?;
        find().one(tx).await?;
    }
    Ok(())
}

async fn answers<C: ConnectionTrait>(tx: &C, call: &Allocate) -> Body<Vec<SegmentId>> {
    use pending_segments::{Column, Entity};
    let request = &call.request;
    let of_sequence = Entity::find()
        .filter(Column::SupervisorId.eq(call.supervisor.as_str()))
        .filter(Column::DataSource.eq(request.data_source.as_str()))
        .filter(Column::Generation.eq(signed(call.generation.0)))
        .filter(Column::SequenceName.eq(request.sequence.as_str()));
    let same = match &request.lineage {
        // The key of this lineage does not depend on the interval.
        lineage @ Lineage::After(_) => of_sequence.filter(Column::Lineage.eq(lineage.key(request.preferred))),
        Lineage::ByInterval => of_sequence
            .filter(Column::Lineage.starts_with("in:"))
            .filter(Column::IntervalStart.lt(request.row_bucket.end().0))
            .filter(Column::IntervalEnd.gt(request.row_bucket.start().0)),
    };
    let read = Reader {
        what: WHAT,
        table: "pending_segments",
    };
    let rows = same.all(tx).await?;
    let ids = rows.iter().map(|row| {
        read.segment_id(
            &row.data_source,
            row.interval_start,
            row.interval_end,
            &row.version,
            row.partition_num,
        )
    });
    Ok(ids.collect::<Result<_, _>>()?)
}

async fn chunks<C: ConnectionTrait>(tx: &C, request: &AllocationRequest) -> Body<Vec<Chunk>> {
    use interval_chunks::{Column, Entity};
    let asked = hull(request);
    let rows = Entity::find()
        .filter(Column::DataSource.eq(request.data_source.as_str()))
        .filter(Column::IntervalStart.lt(asked.1.0))
        .filter(Column::IntervalEnd.gt(asked.0.0))
        .all(tx)
        .await?;
    let read = Reader {
        what: WHAT,
        table: "interval_chunks",
    };
    let chunks = rows.iter().map(|row| {
        Ok::<_, StoreError>(Chunk {
            interval: read.interval(row.interval_start, row.interval_end)?,
            version: read.version(&row.version)?,
            next_number: read.number(row.next_number)?,
        })
    });
    Ok(chunks.collect::<Result<_, _>>()?)
}

/// From the first to the last instant that the request is about.
fn hull(request: &AllocationRequest) -> (TimestampMillis, TimestampMillis) {
    let all = [request.row_bucket, request.preferred]
        .into_iter()
        .chain(request.finer.iter().copied());
    let first = |bound: (TimestampMillis, TimestampMillis), next: Interval| {
        (bound.0.min(next.start()), bound.1.max(next.end()))
    };
    all.fold((request.row_bucket.start(), request.row_bucket.end()), first)
}

async fn store<C: ConnectionTrait>(tx: &C, call: &Allocate, id: &SegmentId) -> Body<()> {
    let (start, end) = (id.interval.start().0, id.interval.end().0);
    pending_segments::Entity::insert(pending_segments::ActiveModel {
        data_source: set(id.data_source.as_str()),
        interval_start: set(start),
        interval_end: set(end),
        version: set(id.version.as_str()),
        partition_num: set(id.partition_num),
        supervisor_id: set(call.supervisor.as_str()),
        generation: set(signed(call.generation.0)),
        sequence_name: set(call.request.sequence.as_str()),
        lineage: set(call.request.lineage.key(id.interval)),
        group_id: set(call.group.as_str()),
        created_at: set(call.at.0),
    })
    .exec_without_returning(tx)
    .await?;
    use interval_chunks::{ActiveModel, Column, Entity};
    Entity::insert(ActiveModel {
        data_source: set(id.data_source.as_str()),
        interval_start: set(start),
        interval_end: set(end),
        version: set(id.version.as_str()),
        next_number: set(i64::from(id.partition_num) + 1),
    })
    .on_conflict(
        OnConflict::columns([
            Column::DataSource,
            Column::IntervalStart,
            Column::IntervalEnd,
            Column::Version,
        ])
        .update_column(Column::NextNumber)
        .to_owned(),
    )
    .exec_without_returning(tx)
    .await?;
    Ok(())
}
