//! Committed offsets: first ones, reading, resets.

use std::collections::BTreeMap;

use sea_orm::sea_query::OnConflict;
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter, QueryOrder};
use serde::{Deserialize, Serialize};
use tidegate_protocol::publish::{CommittedRow, StreamId};
use tidegate_types::{
    ClusterId, Generation, Offset, PartitionId, PartitionOffsets, SupervisorId, TimestampMillis, TopicId,
};

use super::{Body, fence, lock_supervisor, refuse};
use crate::Document;
use crate::entity::{committed_offsets, offset_resets, supervisor_generations};
use crate::publisher::{CommittedOffsets, InitializeOffsets, Refusal, ResetOffsets};
use crate::rows::{Reader, set, signed};

/// Format of the documents in `offset_resets`.
const FORMAT: u32 = 1;

/// Result of a reset, as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredResult {
    topic: String,
    cluster_id: ClusterId,
    topic_id: TopicId,
    offsets: PartitionOffsets,
    generation: Generation,
}

/// What a reset did to one partition: the ranges that were lost or skipped are between the two.
#[derive(Serialize)]
struct Move {
    partition: PartitionId,
    from: Option<Offset>,
    to: Option<Offset>,
}

pub(super) type Rows = BTreeMap<PartitionId, CommittedRow>;

pub(super) async fn rows<C: ConnectionTrait>(tx: &C, supervisor: &SupervisorId, topic: &str) -> Body<Rows> {
    let read = Reader {
        what: "read committed offsets",
        table: "committed_offsets",
    };
    let rows = committed_offsets::Entity::find()
        .filter(committed_offsets::Column::SupervisorId.eq(supervisor.as_str()))
        .filter(committed_offsets::Column::Topic.eq(topic))
        .all(tx)
        .await?;
    let mut found = Rows::new();
    for row in rows {
        let stream = StreamId {
            topic: row.topic,
            cluster: ClusterId(row.cluster_id),
            incarnation: TopicId(row.topic_id),
        };
        let partition = PartitionId(read.number(row.partition_id)?);
        found.insert(
            partition,
            CommittedRow {
                offset: Offset(row.next_offset),
                stream,
            },
        );
    }
    Ok(found)
}

pub(super) fn offsets_of(rows: &Rows) -> PartitionOffsets {
    rows.iter()
        .map(|(partition, row)| (*partition, row.offset))
        .collect()
}

fn answer(supervisor: &SupervisorId, topic: &str, generation: Generation, rows: &Rows) -> CommittedOffsets {
    let first = rows.values().next().map(|row| row.stream.clone());
    let stream = first.unwrap_or_else(|| StreamId {
        topic: topic.to_owned(),
        ..StreamId::default()
    });
    CommittedOffsets {
        supervisor: supervisor.clone(),
        stream,
        offsets: offsets_of(rows),
        generation,
    }
}

/// Writes one partition's offset, in place of whatever is there.
pub(super) async fn put<C: ConnectionTrait>(
    tx: &C,
    supervisor: &SupervisorId,
    stream: &StreamId,
    generation: Generation,
    (partition, offset): (PartitionId, Offset),
    at: TimestampMillis,
) -> Body<()> {
    use committed_offsets::{ActiveModel, Column, Entity};
    use sea_orm::ExprTrait as _;
    use sea_orm::sea_query::Expr;
    Entity::insert(ActiveModel {
        supervisor_id: set(supervisor.as_str()),
        topic: set(stream.topic.as_str()),
        partition_id: set(partition.0),
        next_offset: set(offset.0),
        generation: set(signed(generation.0)),
        cluster_id: set(stream.cluster.0.as_str()),
        topic_id: set(stream.incarnation.0.as_str()),
        version: set(1_i64),
        updated_at: set(at.0),
    })
    .on_conflict(
        OnConflict::columns([Column::SupervisorId, Column::Topic, Column::PartitionId])
            .update_columns([
                Column::NextOffset,
                Column::Generation,
                Column::ClusterId,
                Column::TopicId,
                Column::UpdatedAt,
            ])
            .value(Column::Version, Expr::col((Entity, Column::Version)).add(1))
            .to_owned(),
    )
    .exec_without_returning(tx)
    .await?;
    Ok(())
}

pub(super) async fn initialize<C: ConnectionTrait>(
    tx: &C,
    call: &InitializeOffsets,
) -> Body<CommittedOffsets> {
    for (partition, offset) in call.start.iter() {
        if offset.is_open() || offset.0 < 0 {
            // An open end taken for a start would skip the log (D10).
            return refuse(Refusal::NoStart { partition, offset });
        }
    }
    let generation = lock_supervisor(tx, &call.supervisor).await?;
    fence(tx, call.epoch).await?;
    let mut held = rows(tx, &call.supervisor, &call.stream.topic).await?;
    let missing: Vec<_> = call
        .start
        .iter()
        .filter(|(partition, _)| !held.contains_key(partition))
        .collect();
    if let Some(other) = held
        .values()
        .find(|row| !missing.is_empty() && row.stream.contradicts(&call.stream))
    {
        return refuse(Refusal::OtherStream {
            supervisor: call.supervisor.clone(),
            committed: Box::new(other.stream.clone()),
            given: Box::new(call.stream.clone()),
        });
    }
    for (partition, offset) in missing {
        put(
            tx,
            &call.supervisor,
            &call.stream,
            generation,
            (partition, offset),
            call.at,
        )
        .await?;
        held.insert(
            partition,
            CommittedRow {
                offset,
                stream: call.stream.clone(),
            },
        );
    }
    Ok(answer(&call.supervisor, &call.stream.topic, generation, &held))
}

pub(super) async fn read<C: ConnectionTrait>(
    tx: &C,
    supervisor: &SupervisorId,
    topic: &str,
) -> Body<Option<CommittedOffsets>> {
    let Some(row) = supervisor_generations::Entity::find_by_id(supervisor.as_str())
        .one(tx)
        .await?
    else {
        return Ok(None);
    };
    let generation = Generation(row.generation.unsigned_abs());
    let mut topic = topic.to_owned();
    if topic.is_empty() {
        let any = committed_offsets::Entity::find()
            .filter(committed_offsets::Column::SupervisorId.eq(supervisor.as_str()))
            .order_by_asc(committed_offsets::Column::Topic)
            .one(tx)
            .await?;
        topic = any.map(|row| row.topic).unwrap_or_default();
    }
    let held = rows(tx, supervisor, &topic).await?;
    if held.is_empty() && generation == Generation::default() {
        return Ok(None);
    }
    Ok(Some(answer(supervisor, &topic, generation, &held)))
}

pub(super) async fn reset<C: ConnectionTrait>(tx: &C, call: &ResetOffsets) -> Body<CommittedOffsets> {
    if let Some((partition, offset)) = call
        .new_offsets
        .iter()
        .find(|(_, offset)| offset.is_open() || offset.0 < 0)
    {
        return refuse(Refusal::NoStart { partition, offset });
    }
    let generation = lock_supervisor(tx, &call.supervisor).await?;
    fence(tx, call.epoch).await?;
    if let Some(before) = result_before(tx, call).await? {
        return Ok(before);
    }
    let held = rows(tx, &call.supervisor, &call.topic).await?;
    if let Some(expected) = &call.expected {
        let concerned: PartitionOffsets = match call.partitions.as_slice() {
            [] => offsets_of(&held),
            some => offsets_of(&held)
                .iter()
                .filter(|(partition, _)| some.contains(partition))
                .collect(),
        };
        if concerned != *expected {
            return refuse(Refusal::OffsetsDiffer {
                committed: concerned,
                expected: expected.clone(),
            });
        }
    }
    let raised = generation.next();
    supervisor_generations::Entity::update_many()
        .set(supervisor_generations::ActiveModel {
            generation: set(signed(raised.0)),
            ..Default::default()
        })
        .filter(supervisor_generations::Column::SupervisorId.eq(call.supervisor.as_str()))
        .exec(tx)
        .await?;
    let moves = move_rows(tx, call, &held, raised).await?;
    let held = rows(tx, &call.supervisor, &call.topic).await?;
    let result = answer(&call.supervisor, &call.topic, raised, &held);
    record(tx, call, &moves, &result).await?;
    Ok(result)
}

/// The first result of this request key.
async fn result_before<C: ConnectionTrait>(tx: &C, call: &ResetOffsets) -> Body<Option<CommittedOffsets>> {
    let key = (call.supervisor.as_str().to_owned(), call.request_key.clone());
    let Some(row) = offset_resets::Entity::find_by_id(key).one(tx).await? else {
        return Ok(None);
    };
    let read = Reader {
        what: "reset offsets",
        table: "offset_resets",
    };
    let stored: StoredResult = read.content(&row.result, FORMAT)?;
    Ok(Some(CommittedOffsets {
        supervisor: call.supervisor.clone(),
        stream: StreamId {
            topic: stored.topic,
            cluster: stored.cluster_id,
            incarnation: stored.topic_id,
        },
        offsets: stored.offsets,
        generation: stored.generation,
    }))
}

async fn move_rows<C: ConnectionTrait>(
    tx: &C,
    call: &ResetOffsets,
    held: &Rows,
    raised: Generation,
) -> Body<Vec<Move>> {
    let concerned: Vec<PartitionId> = match call.partitions.as_slice() {
        [] => offsets_of(held).plus(&call.new_offsets).partitions().collect(),
        some => some.to_vec(),
    };
    let mut moves = Vec::new();
    for partition in concerned {
        let row = held.get(&partition);
        let from = row.map(|row| row.offset);
        let to = call.new_offsets.get(partition);
        moves.push(Move { partition, from, to });
        if let Some(to) = to {
            let kept = || row.map(|row| row.stream.clone());
            let stream = call.stream.clone().or_else(kept);
            let stream = stream.unwrap_or_else(|| StreamId {
                topic: call.topic.clone(),
                ..StreamId::default()
            });
            put(tx, &call.supervisor, &stream, raised, (partition, to), call.at).await?;
        } else if from.is_some() {
            let key = (
                call.supervisor.as_str().to_owned(),
                call.topic.clone(),
                i64::from(partition.0),
            );
            committed_offsets::Entity::delete_by_id(key).exec(tx).await?;
        }
    }
    Ok(moves)
}

async fn record<C: ConnectionTrait>(
    tx: &C,
    call: &ResetOffsets,
    moves: &[Move],
    result: &CommittedOffsets,
) -> Body<()> {
    let stored = StoredResult {
        topic: result.stream.topic.clone(),
        cluster_id: result.stream.cluster.clone(),
        topic_id: result.stream.incarnation.clone(),
        offsets: result.offsets.clone(),
        generation: result.generation,
    };
    let text = |document: Result<Document, crate::DocumentError>| {
        document
            .map(|document| document.to_text())
            .map_err(|error| crate::StoreError::unreadable("reset offsets", "offset_resets", error))
    };
    offset_resets::Entity::insert(offset_resets::ActiveModel {
        supervisor_id: set(call.supervisor.as_str()),
        request_key: set(call.request_key.as_str()),
        topic: set(call.topic.as_str()),
        who: set(call.who.as_str()),
        why: set(call.why.as_str()),
        generation: set(signed(result.generation.0)),
        moves: set(text(Document::of(FORMAT, FORMAT, &moves))?),
        result: set(text(Document::of(FORMAT, FORMAT, &stored))?),
        reset_at: set(call.at.0),
    })
    .exec_without_returning(tx)
    .await?;
    Ok(())
}
