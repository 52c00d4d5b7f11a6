//! The segment catalog.

use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DatabaseConnection, EntityTrait, QueryFilter, QueryOrder,
    QuerySelect,
};
use tidegate_protocol::publish::SegmentFile;
use tidegate_types::{Generation, SegmentId, SequenceName, SupervisorId, TimestampMillis};

use super::Body;
use crate::entity::{catalog_clock, segments};
use crate::publisher::{CatalogSegment, Publish, SegmentFilter, Used};
use crate::rows::{Reader, json, set, signed};
use crate::{Ordinal, StoreError};

/// Rows per INSERT and names per condition, well below both databases' limit of parameters.
const BATCH: usize = 500;

/// Adds the segments of a publish. Last thing before the commit: the clock's lock makes other publishes wait,
/// so that ordinals become visible in their order.
pub(super) async fn insert<C: ConnectionTrait>(tx: &C, call: &Publish, publish_id: &str) -> Body<()> {
    let request = &call.request;
    if request.segments.is_empty() {
        return Ok(());
    }
    let last = catalog_clock::Entity::find_by_id(1)
        .lock_exclusive()
        .one(tx)
        .await?;
    let last = last.map_or(0, |row| row.last_ordinal);
    let rows: Vec<segments::ActiveModel> = request
        .segments
        .iter()
        .zip(last + 1..)
        .map(|(file, ordinal)| segments::ActiveModel {
            ordinal: set(ordinal),
            data_source: set(file.id.data_source.as_str()),
            interval_start: set(file.id.interval.start().0),
            interval_end: set(file.id.interval.end().0),
            version: set(file.id.version.as_str()),
            partition_num: set(file.id.partition_num),
            supervisor_id: set(request.supervisor.as_str()),
            group_id: set(request.group.as_str()),
            generation: set(signed(request.generation.0)),
            sequence_name: set(file.sequence.as_str()),
            publish_id: set(publish_id),
            object_key: set(file.key.as_str()),
            size_bytes: set(signed(file.size_bytes)),
            sha256: set(file.sha256.as_str()),
            row_count: set(signed(file.rows)),
            input_rows: set(signed(file.input_rows)),
            first_offsets: set(json(&file.first_offsets)),
            end_offsets: set(json(&file.end_offsets)),
            writer_version: set(file.writer_version.as_str()),
            published_at: set(call.at.0),
            used: set(true),
            promoted: set(false),
        })
        .collect();
    for batch in rows.chunks(BATCH) {
        segments::Entity::insert_many(batch.iter().cloned())
            .exec_without_returning(tx)
            .await?;
    }
    catalog_clock::Entity::update_many()
        .col_expr(
            catalog_clock::Column::LastOrdinal,
            Expr::value(last + signed(rows.len() as u64)),
        )
        .filter(catalog_clock::Column::Id.eq(1))
        .exec(tx)
        .await?;
    Ok(())
}

pub(super) async fn of_sequences<C: ConnectionTrait>(
    tx: &C,
    supervisor: &SupervisorId,
    generation: Generation,
    names: &[&SequenceName],
) -> Body<Vec<CatalogSegment>> {
    let mut found = Vec::new();
    for batch in names.chunks(BATCH) {
        let rows = segments::Entity::find()
            .filter(segments::Column::SupervisorId.eq(supervisor.as_str()))
            .filter(segments::Column::Generation.eq(signed(generation.0)))
            .filter(segments::Column::SequenceName.is_in(batch.iter().map(|name| name.as_str())))
            .order_by_asc(segments::Column::Ordinal)
            .all(tx)
            .await?;
        for row in rows {
            found.push(segment("read published segments", row)?);
        }
    }
    Ok(found)
}

pub(super) async fn list(
    db: &DatabaseConnection,
    filter: &SegmentFilter,
    after: Ordinal,
    limit: u32,
) -> Result<Vec<CatalogSegment>, StoreError> {
    let mut condition = Condition::all().add(segments::Column::Ordinal.gt(after.0));
    if let Some(data_source) = &filter.data_source {
        condition = condition.add(segments::Column::DataSource.eq(data_source.as_str()));
    }
    if let Some(supervisor) = &filter.supervisor {
        condition = condition.add(segments::Column::SupervisorId.eq(supervisor.as_str()));
    }
    page("list segments", db, condition, limit).await
}

pub(super) async fn unpromoted(
    db: &DatabaseConnection,
    after: Ordinal,
    limit: u32,
) -> Result<Vec<CatalogSegment>, StoreError> {
    let condition = Condition::all()
        .add(segments::Column::Promoted.eq(false))
        .add(segments::Column::Ordinal.gt(after.0));
    page("find segments to promote", db, condition, limit).await
}

async fn page(
    what: &'static str,
    db: &DatabaseConnection,
    condition: Condition,
    limit: u32,
) -> Result<Vec<CatalogSegment>, StoreError> {
    let rows = segments::Entity::find()
        .filter(condition)
        .order_by_asc(segments::Column::Ordinal)
        .limit(u64::from(limit))
        .all(db)
        .await
        .map_err(|error| crate::error::failed(what, &error))?;
    rows.into_iter().map(|row| segment(what, row)).collect()
}

pub(super) async fn mark_promoted<C: ConnectionTrait>(tx: &C, ordinal: Ordinal, key: &str) -> Body<()> {
    segments::Entity::update_many()
        .col_expr(segments::Column::ObjectKey, Expr::value(key))
        .col_expr(segments::Column::Promoted, Expr::value(true))
        .filter(segments::Column::Ordinal.eq(ordinal.0))
        .exec(tx)
        .await?;
    Ok(())
}

pub(super) async fn mark_used<C: ConnectionTrait>(tx: &C, ids: &[SegmentId], used: Used) -> Body<()> {
    use segments::Column;
    for id in ids {
        segments::Entity::update_many()
            .col_expr(Column::Used, Expr::value(used == Used::Yes))
            .filter(Column::DataSource.eq(id.data_source.as_str()))
            .filter(Column::IntervalStart.eq(id.interval.start().0))
            .filter(Column::IntervalEnd.eq(id.interval.end().0))
            .filter(Column::Version.eq(id.version.as_str()))
            .filter(Column::PartitionNum.eq(i64::from(id.partition_num)))
            .exec(tx)
            .await?;
    }
    Ok(())
}

pub(super) async fn referenced_keys(
    db: &DatabaseConnection,
    keys: &[String],
) -> Result<Vec<String>, StoreError> {
    let mut found = Vec::new();
    for batch in keys.chunks(BATCH) {
        let rows: Vec<String> = segments::Entity::find()
            .select_only()
            .column(segments::Column::ObjectKey)
            .filter(segments::Column::ObjectKey.is_in(batch.iter().map(String::as_str)))
            .into_tuple()
            .all(db)
            .await
            .map_err(|error| crate::error::failed("find referenced objects", &error))?;
        found.extend(rows);
    }
    Ok(found)
}

fn segment(what: &'static str, row: segments::Model) -> Result<CatalogSegment, StoreError> {
    let read = Reader {
        what,
        table: "segments",
    };
    Ok(CatalogSegment {
        ordinal: Ordinal(row.ordinal),
        file: SegmentFile {
            id: read.segment_id(
                &row.data_source,
                row.interval_start,
                row.interval_end,
                &row.version,
                row.partition_num,
            )?,
            sequence: read.id(&row.sequence_name)?,
            key: row.object_key,
            size_bytes: read.number(row.size_bytes)?,
            sha256: row.sha256,
            rows: read.number(row.row_count)?,
            input_rows: read.number(row.input_rows)?,
            first_offsets: read.json(&row.first_offsets)?,
            end_offsets: read.json(&row.end_offsets)?,
            writer_version: row.writer_version,
        },
        supervisor: read.id(&row.supervisor_id)?,
        group: read.id(&row.group_id)?,
        generation: Generation(row.generation.unsigned_abs()),
        published_at: TimestampMillis(row.published_at),
        used: row.used,
        promoted: row.promoted,
    })
}
