//! Registered groups.

use sea_orm::sea_query::{Expr, IntoCondition as _, OnConflict, Query};
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, ExprTrait, QueryFilter, QueryOrder};
use tidegate_protocol::publish::{GroupMode, RegisteredGroup};
use tidegate_types::{Epoch, Generation, GroupId, SupervisorId, TimestampMillis};

use super::{Body, fence, lock_supervisor, refuse};
use crate::StoreError;
use crate::database::BodyError;
use crate::entity::{registered_groups, supervisor_generations};
use crate::publisher::{Refusal, RegisterGroup};
use crate::rows::{Reader, json, set, signed};

pub(super) async fn register<C: ConnectionTrait>(tx: &C, call: &RegisterGroup) -> Body<()> {
    use registered_groups::{ActiveModel, Column, Entity};
    let held = lock_supervisor(tx, &call.supervisor).await?;
    fence(tx, call.epoch).await?;
    if held != call.generation {
        let (supervisor, given) = (call.supervisor.clone(), call.generation);
        return refuse(Refusal::StaleGeneration {
            supervisor,
            held,
            given,
        });
    }
    if let Some(group) = one::<_, Refusal>("register a group", tx, &call.supervisor, &call.group).await? {
        if let Some(what) = difference(&group, call) {
            return refuse(Refusal::OtherGroup {
                group: group.id,
                what,
            });
        }
        if group.ended {
            return refuse(Refusal::GroupEnded { group: group.id });
        }
        // It was overtaken by a newer one: the tokens that it names may have been replaced.
        if group.epoch == call.epoch && call.revision < group.revision {
            return refuse(Refusal::Overtaken { group: group.id });
        }
    }
    Entity::insert(ActiveModel {
        supervisor_id: set(call.supervisor.as_str()),
        group_id: set(call.group.as_str()),
        base_sequence_name: set(call.base.as_str()),
        generation: set(signed(call.generation.0)),
        topic: set(call.topic.as_str()),
        mode: set(call.mode.to_number()),
        start_offsets: set(json(&call.start)),
        tokens: set(json(&call.tokens)),
        epoch: set(signed(call.epoch.0)),
        revision: set(signed(call.revision)),
        ended: set(false),
        registered_at: set(call.at.0),
        ended_at: set(None::<i64>),
    })
    .on_conflict(
        OnConflict::columns([Column::SupervisorId, Column::GroupId])
            .update_columns([Column::Tokens, Column::Epoch, Column::Revision])
            .to_owned(),
    )
    .exec_without_returning(tx)
    .await?;
    Ok(())
}

/// A group is what it was first registered as; only its tokens change.
fn difference(group: &RegisteredGroup, call: &RegisterGroup) -> Option<&'static str> {
    [
        (group.base != call.base, "the base sequence name"),
        (group.generation != call.generation, "the generation"),
        (group.mode != call.mode, "the mode"),
        (group.topic != call.topic, "the topic"),
        (group.start != call.start, "the start"),
    ]
    .into_iter()
    .find_map(|(differs, what)| differs.then_some(what))
}

pub(super) async fn end<C: ConnectionTrait>(
    tx: &C,
    supervisor: &SupervisorId,
    group: &GroupId,
    epoch: Epoch,
    at: TimestampMillis,
) -> Body<()> {
    use registered_groups::{Column, Entity};
    lock_supervisor(tx, supervisor).await?;
    fence(tx, epoch).await?;
    Entity::update_many()
        .col_expr(Column::Ended, Expr::value(true))
        .col_expr(Column::EndedAt, Expr::value(at.0))
        .col_expr(Column::Epoch, Expr::value(signed(epoch.0)))
        .filter(Column::SupervisorId.eq(supervisor.as_str()))
        .filter(Column::GroupId.eq(group.as_str()))
        .filter(Column::Ended.eq(false))
        .exec(tx)
        .await?;
    Ok(())
}

/// One group. Generic over the refusal, so that reads outside a transaction need none.
pub(super) async fn one<C: ConnectionTrait, R>(
    what: &'static str,
    tx: &C,
    supervisor: &SupervisorId,
    group: &GroupId,
) -> Result<Option<RegisteredGroup>, BodyError<R>> {
    let key = (supervisor.as_str().to_owned(), group.as_str().to_owned());
    let row = registered_groups::Entity::find_by_id(key).one(tx).await?;
    Ok(row.map(|row| registered(what, &row)).transpose()?)
}

/// Groups of a supervisor and generation that have not ended.
pub(super) async fn open<C: ConnectionTrait>(
    tx: &C,
    supervisor: &SupervisorId,
    generation: Generation,
) -> Body<Vec<RegisteredGroup>> {
    let rows = registered_groups::Entity::find()
        .filter(registered_groups::Column::SupervisorId.eq(supervisor.as_str()))
        .filter(registered_groups::Column::Ended.eq(false))
        .filter(registered_groups::Column::Generation.eq(signed(generation.0)))
        .all(tx)
        .await?;
    Ok(rows
        .iter()
        .map(|row| registered("read open groups", row))
        .collect::<Result<_, _>>()?)
}

/// Groups of a past generation can publish nothing, whether they were told to end or not.
pub(super) async fn oldest_open(
    db: &sea_orm::DatabaseConnection,
) -> Result<Option<TimestampMillis>, StoreError> {
    use registered_groups::{Column, Entity};
    let current = Query::select()
        .column(supervisor_generations::Column::Generation)
        .from(supervisor_generations::Entity)
        .and_where(
            Expr::col((
                supervisor_generations::Entity,
                supervisor_generations::Column::SupervisorId,
            ))
            .equals((Entity, Column::SupervisorId)),
        )
        .to_owned();
    let row = Entity::find()
        .filter(Column::Ended.eq(false))
        .filter(Column::Generation.in_subquery(current).into_condition())
        .order_by_asc(Column::RegisteredAt)
        .one(db)
        .await
        .map_err(|error| crate::error::failed("find the oldest open group", &error))?;
    Ok(row.map(|row| TimestampMillis(row.registered_at)))
}

fn registered(what: &'static str, row: &registered_groups::Model) -> Result<RegisteredGroup, StoreError> {
    let read = Reader {
        what,
        table: "registered_groups",
    };
    Ok(RegisteredGroup {
        id: read.id(&row.group_id)?,
        base: read.id(&row.base_sequence_name)?,
        generation: Generation(row.generation.unsigned_abs()),
        mode: GroupMode::from_number(read.number(row.mode)?),
        topic: row.topic.clone(),
        start: read.json(&row.start_offsets)?,
        tokens: read.json(&row.tokens)?,
        epoch: Epoch(row.epoch.unsigned_abs()),
        revision: row.revision.unsigned_abs(),
        ended: row.ended,
    })
}
