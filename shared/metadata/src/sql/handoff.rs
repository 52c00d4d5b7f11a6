//! [`HandoffStore`] on a database.

use async_trait::async_trait;
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{
    ColumnTrait, Condition, EntityTrait, ExprTrait, PaginatorTrait, QueryFilter, QueryOrder, QuerySelect,
};
use tidegate_types::{SegmentId, TimestampMillis};

use crate::database::{BodyError, in_transaction};
use crate::entity::{handoff_cursor, handoffs};
use crate::handoff::{HandoffFilter, HandoffRecord, HandoffState, HandoffStore, Ordinal};
use crate::rows::{Reader, set};
use crate::{Metadata, StoreError};

type Body<T> = Result<T, BodyError>;

/// Rows per INSERT, well below both databases' limit of parameters.
const BATCH: usize = 500;

#[async_trait]
impl HandoffStore for Metadata {
    async fn cursor(&self) -> Result<Ordinal, StoreError> {
        let row = handoff_cursor::Entity::find_by_id(1).one(self.reader()).await;
        let row = row.map_err(|error| crate::error::failed("read the handoff cursor", &error))?;
        Ok(Ordinal(row.map_or(0, |row| row.ordinal)))
    }

    async fn upsert(&self, records: &[HandoffRecord], cursor: Option<Ordinal>) -> Result<(), StoreError> {
        let done = in_transaction!(self, Write, "register handoffs", |tx| async {
            for batch in records.chunks(BATCH) {
                handoffs::Entity::insert_many(batch.iter().map(row_of))
                    .on_conflict(
                        OnConflict::columns([
                            handoffs::Column::DataSource,
                            handoffs::Column::IntervalStart,
                            handoffs::Column::IntervalEnd,
                            handoffs::Column::Version,
                            handoffs::Column::PartitionNum,
                        ])
                        .do_nothing()
                        .to_owned(),
                    )
                    .exec_without_returning(&*tx)
                    .await?;
            }
            if let Some(Ordinal(cursor)) = cursor {
                handoff_cursor::Entity::update_many()
                    .col_expr(handoff_cursor::Column::Ordinal, Expr::value(cursor))
                    .filter(handoff_cursor::Column::Id.eq(1))
                    .filter(handoff_cursor::Column::Ordinal.lt(cursor))
                    .exec(&*tx)
                    .await?;
            }
            Body::Ok(())
        });
        done.map_err(StoreError::from)
    }

    async fn pending(&self, after: Ordinal, limit: u32) -> Result<Vec<HandoffRecord>, StoreError> {
        let filter = HandoffFilter {
            data_source: None,
            pending_only: true,
        };
        self.list(&filter, after, limit).await
    }

    async fn get(&self, segments: &[SegmentId]) -> Result<Vec<Option<HandoffRecord>>, StoreError> {
        let what = "read handoffs";
        let mut found = Vec::with_capacity(segments.len());
        // A condition of ids would be long and plan badly; the primary key is cheap.
        for segment in segments {
            let row = handoffs::Entity::find_by_id(key(segment))
                .one(self.reader())
                .await;
            let row = row.map_err(|error| crate::error::failed(what, &error))?;
            found.push(row.map(|row| record(what, row)).transpose()?);
        }
        Ok(found)
    }

    async fn record_attempt(&self, segment: &SegmentId, detail: &str) -> Result<(), StoreError> {
        let done = in_transaction!(self, Write, "record a handoff check", |tx| async {
            handoffs::Entity::update_many()
                .col_expr(
                    handoffs::Column::Attempts,
                    Expr::col(handoffs::Column::Attempts).add(1),
                )
                .col_expr(handoffs::Column::Detail, Expr::value(detail))
                .filter(is(segment))
                .filter(handoffs::Column::State.ne(HandoffState::Served.to_number()))
                .exec(&*tx)
                .await?;
            Body::Ok(())
        });
        done.map_err(StoreError::from)
    }

    async fn mark_served(
        &self,
        segment: &SegmentId,
        at: TimestampMillis,
        detail: &str,
    ) -> Result<(), StoreError> {
        let done = in_transaction!(self, Write, "mark a handoff as served", |tx| async {
            handoffs::Entity::update_many()
                .col_expr(
                    handoffs::Column::Attempts,
                    Expr::col(handoffs::Column::Attempts).add(1),
                )
                .col_expr(handoffs::Column::Detail, Expr::value(detail))
                .col_expr(
                    handoffs::Column::State,
                    Expr::value(i64::from(HandoffState::Served.to_number())),
                )
                .col_expr(handoffs::Column::ServedAt, Expr::value(at.0))
                .filter(is(segment))
                .filter(handoffs::Column::State.ne(HandoffState::Served.to_number()))
                .exec(&*tx)
                .await?;
            Body::Ok(())
        });
        done.map_err(StoreError::from)
    }

    async fn list(
        &self,
        filter: &HandoffFilter,
        after: Ordinal,
        limit: u32,
    ) -> Result<Vec<HandoffRecord>, StoreError> {
        let what = "list handoffs";
        let rows = handoffs::Entity::find()
            .filter(condition(filter).add(handoffs::Column::Ordinal.gt(after.0)))
            .order_by_asc(handoffs::Column::Ordinal)
            .limit(u64::from(limit))
            .all(self.reader())
            .await
            .map_err(|error| crate::error::failed(what, &error))?;
        rows.into_iter().map(|row| record(what, row)).collect()
    }

    async fn pending_count(&self) -> Result<u64, StoreError> {
        let filter = HandoffFilter {
            data_source: None,
            pending_only: true,
        };
        let count = handoffs::Entity::find()
            .filter(condition(&filter))
            .count(self.reader())
            .await;
        count.map_err(|error| crate::error::failed("count pending handoffs", &error))
    }
}

type Key = (String, i64, i64, String, i64);

fn key(segment: &SegmentId) -> Key {
    (
        segment.data_source.as_str().to_owned(),
        segment.interval.start().0,
        segment.interval.end().0,
        segment.version.as_str().to_owned(),
        i64::from(segment.partition_num),
    )
}

fn is(segment: &SegmentId) -> Condition {
    use handoffs::Column;
    let (data_source, start, end, version, number) = key(segment);
    Condition::all()
        .add(Column::DataSource.eq(data_source))
        .add(Column::IntervalStart.eq(start))
        .add(Column::IntervalEnd.eq(end))
        .add(Column::Version.eq(version))
        .add(Column::PartitionNum.eq(number))
}

fn condition(filter: &HandoffFilter) -> Condition {
    let mut condition = Condition::all();
    if let Some(data_source) = &filter.data_source {
        condition = condition.add(handoffs::Column::DataSource.eq(data_source.as_str()));
    }
    if filter.pending_only {
        condition = condition.add(handoffs::Column::State.ne(HandoffState::Served.to_number()));
    }
    condition
}

fn row_of(record: &HandoffRecord) -> handoffs::ActiveModel {
    let (data_source, start, end, version, number) = key(&record.segment);
    handoffs::ActiveModel {
        data_source: set(data_source),
        interval_start: set(start),
        interval_end: set(end),
        version: set(version),
        partition_num: set(number),
        ordinal: set(record.ordinal.0),
        state: set(record.state.to_number()),
        detail: set(record.detail.as_str()),
        attempts: set(record.attempts),
        since: set(record.since.0),
        served_at: set(record.served_at.map(|at| at.0)),
        document: set(record.document.to_text()),
    }
}

fn record(what: &'static str, row: handoffs::Model) -> Result<HandoffRecord, StoreError> {
    let read = Reader {
        what,
        table: "handoffs",
    };
    Ok(HandoffRecord {
        segment: read.segment_id(
            &row.data_source,
            row.interval_start,
            row.interval_end,
            &row.version,
            row.partition_num,
        )?,
        ordinal: Ordinal(row.ordinal),
        state: HandoffState::from_number(read.number(row.state)?),
        detail: row.detail,
        attempts: read.number(row.attempts)?,
        since: TimestampMillis(row.since),
        served_at: row.served_at.map(TimestampMillis),
        document: read.document(&row.document)?,
    })
}
