//! The publish transaction.
//!
//! Where it may die, and what the next call finds: before COMMIT: nothing has changed, the call is made again.
//! During or after COMMIT, answer lost: either nothing has changed, or everything has and the next call finds the
//! sequences published (B43). There is no state between.

use std::collections::BTreeMap;

use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter};
use tidegate_protocol::publish::{
    Grant, PublishDecision, PublishRequest, PublishState, PublishedSequence, decide,
};
use tidegate_types::{Generation, PartitionOffsets, SegmentId, SequenceName};

use super::{Body, catalog, groups, lock_supervisor, observe, offsets};
use crate::entity::{pending_segments, published_sequences, publishes, supervisor_generations};
use crate::publisher::{Publish, PublishAnswer};
use crate::rows::{Reader, json, set, signed};

const WHAT: &str = "publish";

/// Rows per INSERT, well below both databases' limit of parameters.
const BATCH: usize = 500;

pub(super) async fn publish<C: ConnectionTrait>(tx: &C, call: &Publish) -> Body<PublishAnswer> {
    // The lock comes first: what is read below stays true until the commit.
    let generation = lock_supervisor(tx, &call.request.supervisor).await?;
    observe(tx, call.epoch).await?;
    let state = state(tx, &call.request, generation).await?;
    let decision = decide(&state, &call.request);
    if let PublishDecision::Publish { offsets } = &decision {
        commit(tx, call, offsets).await?;
    }
    answer(tx, &call.request, decision).await
}

pub(super) async fn preview<C: ConnectionTrait>(tx: &C, request: &PublishRequest) -> Body<PublishAnswer> {
    let row = supervisor_generations::Entity::find_by_id(request.supervisor.as_str())
        .one(tx)
        .await?;
    let generation = Generation(row.map_or(0, |row| row.generation.unsigned_abs()));
    let state = state(tx, request, generation).await?;
    let decision = decide(&state, request);
    answer(tx, request, decision).await
}

async fn answer<C: ConnectionTrait>(
    tx: &C,
    request: &PublishRequest,
    decision: PublishDecision,
) -> Body<PublishAnswer> {
    let held = offsets::rows(tx, &request.supervisor, &request.stream.topic).await?;
    let asked = request.start();
    let committed = offsets::offsets_of(&held)
        .iter()
        .filter(|(partition, _)| asked.get(*partition).is_some())
        .collect();
    let segments = match decision {
        PublishDecision::Publish { .. } | PublishDecision::AlreadyPublished => {
            let names: Vec<&SequenceName> = request.sequences.iter().map(|sequence| &sequence.name).collect();
            catalog::of_sequences(tx, &request.supervisor, request.generation, &names).await?
        }
        PublishDecision::NotYet { .. }
        | PublishDecision::PredecessorLost { .. }
        | PublishDecision::Mismatch(_)
        | PublishDecision::Fenced(_)
        | PublishDecision::Malformed(_) => Vec::new(),
    };
    Ok(PublishAnswer {
        decision,
        committed,
        segments,
    })
}

async fn state<C: ConnectionTrait>(
    tx: &C,
    request: &PublishRequest,
    generation: Generation,
) -> Body<PublishState> {
    Ok(PublishState {
        generation: Some(generation),
        committed: offsets::rows(tx, &request.supervisor, &request.stream.topic).await?,
        group: groups::one(WHAT, tx, &request.supervisor, &request.group).await?,
        open_groups: groups::open(tx, &request.supervisor, generation).await?,
        published: published(tx, request).await?,
        grants: grants(tx, request).await?,
    })
}

async fn published<C: ConnectionTrait>(
    tx: &C,
    request: &PublishRequest,
) -> Body<BTreeMap<SequenceName, PublishedSequence>> {
    use published_sequences::{Column, Entity};
    let read = Reader {
        what: WHAT,
        table: "published_sequences",
    };
    let mut found = BTreeMap::new();
    for batch in request.sequences.chunks(BATCH) {
        let rows = Entity::find()
            .filter(Column::SupervisorId.eq(request.supervisor.as_str()))
            .filter(Column::Generation.eq(signed(request.generation.0)))
            .filter(Column::SequenceName.is_in(batch.iter().map(|sequence| sequence.name.as_str())))
            .all(tx)
            .await?;
        for row in rows {
            let end = read.json(&row.end_offsets)?;
            let generation = Generation(row.generation.unsigned_abs());
            found.insert(
                read.id(&row.sequence_name)?,
                PublishedSequence { generation, end },
            );
        }
    }
    Ok(found)
}

/// To whom the ids of the request's segments were given: all that its sequences were given.
async fn grants<C: ConnectionTrait>(tx: &C, request: &PublishRequest) -> Body<BTreeMap<SegmentId, Grant>> {
    use pending_segments::{Column, Entity};
    let Some(first) = request.segments.first() else {
        return Ok(BTreeMap::new());
    };
    let read = Reader {
        what: WHAT,
        table: "pending_segments",
    };
    let mut found = BTreeMap::new();
    for batch in request.sequences.chunks(BATCH) {
        let rows = Entity::find()
            .filter(Column::SupervisorId.eq(request.supervisor.as_str()))
            .filter(Column::DataSource.eq(first.id.data_source.as_str()))
            .filter(Column::Generation.eq(signed(request.generation.0)))
            .filter(Column::SequenceName.is_in(batch.iter().map(|sequence| sequence.name.as_str())))
            .all(tx)
            .await?;
        for row in rows {
            let id = read.segment_id(
                &row.data_source,
                row.interval_start,
                row.interval_end,
                &row.version,
                row.partition_num,
            )?;
            let grant = Grant {
                supervisor: read.id(&row.supervisor_id)?,
                generation: Generation(row.generation.unsigned_abs()),
                sequence: read.id(&row.sequence_name)?,
            };
            found.insert(id, grant);
        }
    }
    Ok(found)
}

async fn commit<C: ConnectionTrait>(tx: &C, call: &Publish, moved: &PartitionOffsets) -> Body<()> {
    let request = &call.request;
    let publish_id = uuid::Uuid::now_v7().to_string();
    for to in moved.iter() {
        offsets::put(
            tx,
            &request.supervisor,
            &request.stream,
            request.generation,
            to,
            call.at,
        )
        .await?;
    }
    publishes::Entity::insert(publishes::ActiveModel {
        publish_id: set(publish_id.as_str()),
        supervisor_id: set(request.supervisor.as_str()),
        group_id: set(request.group.as_str()),
        base_sequence_name: set(request.base.as_str()),
        generation: set(signed(request.generation.0)),
        task_id: set(call.task.as_str()),
        request_key: set(call.request_key.as_str()),
        mode: set(request.mode.to_number()),
        decode_version: set(call.decode_version.0),
        segment_count: set(signed(request.segments.len() as u64)),
        counts: set(call.counts.to_text()),
        published_at: set(call.at.0),
    })
    .exec_without_returning(tx)
    .await?;
    for batch in request.sequences.chunks(BATCH) {
        let rows = batch.iter().map(|sequence| published_sequences::ActiveModel {
            supervisor_id: set(request.supervisor.as_str()),
            generation: set(signed(request.generation.0)),
            sequence_name: set(sequence.name.as_str()),
            sequence_id: set(sequence.id.0),
            group_id: set(request.group.as_str()),
            start_offsets: set(json(&sequence.start)),
            end_offsets: set(json(&sequence.end)),
            publish_id: set(publish_id.as_str()),
            published_at: set(call.at.0),
        });
        published_sequences::Entity::insert_many(rows)
            .exec_without_returning(tx)
            .await?;
    }
    catalog::insert(tx, call, &publish_id).await
}
