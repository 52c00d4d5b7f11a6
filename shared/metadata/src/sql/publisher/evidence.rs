//! What was recorded when it was published, for those who verify it.

use std::collections::{BTreeSet, HashMap};

use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, ConnectionTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect};
use tidegate_protocol::verify::{Evidence, PublishSums, PublishedRange};
use tidegate_types::{DataSource, Generation, Offset, PartitionId, SupervisorId};

use super::Body;
use crate::entity::{committed_offsets, offset_resets, published_sequences, publishes, segments};
use crate::publisher::CatalogSegment;
use crate::rows::{Reader, signed};

const WHAT: &str = "read what was published";
/// Names per condition, well below both databases' limit of parameters.
const BATCH: usize = 250;
/// Format of the counts of a publish.
const FORMAT: u32 = 1;

/// Of the counts of a publish.
#[derive(serde::Deserialize)]
struct Counts {
    accepted: u64,
}

pub(super) async fn publishers_of<C: ConnectionTrait>(tx: &C, of: &DataSource) -> Body<Vec<SupervisorId>> {
    let read = Reader {
        what: WHAT,
        table: "segments",
    };
    let found: Vec<String> = segments::Entity::find()
        .select_only()
        .column(segments::Column::SupervisorId)
        .distinct()
        .filter(segments::Column::DataSource.eq(of.as_str()))
        .order_by_asc(segments::Column::SupervisorId)
        .into_tuple()
        .all(tx)
        .await?;
    let mut supervisors = Vec::new();
    for supervisor in found {
        supervisors.push(read.id(&supervisor)?);
    }
    Ok(supervisors)
}

pub(super) async fn of_supervisor<C: ConnectionTrait>(
    tx: &C,
    supervisor: &SupervisorId,
) -> Body<(String, Evidence)> {
    let read = Reader {
        what: WHAT,
        table: "published_sequences",
    };
    let mut evidence = Evidence::default();
    let rows = committed_offsets::Entity::find()
        .filter(committed_offsets::Column::SupervisorId.eq(supervisor.as_str()))
        .order_by_desc(committed_offsets::Column::UpdatedAt)
        .all(tx)
        .await?;
    // Of several topics the one that is read now.
    let topic = rows.first().map(|row| row.topic.clone()).unwrap_or_default();
    for row in rows.into_iter().filter(|row| row.topic == topic) {
        let generation = Generation(row.generation.unsigned_abs());
        let partition = PartitionId(read.number(row.partition_id)?);
        evidence
            .committed
            .insert(partition, (Offset(row.next_offset), generation));
    }
    let resets = offset_resets::Entity::find()
        .filter(offset_resets::Column::SupervisorId.eq(supervisor.as_str()))
        .all(tx)
        .await?;
    evidence.resets = resets
        .iter()
        .map(|row| Generation(row.generation.unsigned_abs()))
        .collect();
    let sequences = published_sequences::Entity::find()
        .filter(published_sequences::Column::SupervisorId.eq(supervisor.as_str()))
        .all(tx)
        .await?;
    for row in sequences {
        evidence.ranges.push(range(read, row)?);
    }
    evidence.publishes = sums(tx, supervisor).await?;
    Ok((topic, evidence))
}

async fn sums<C: ConnectionTrait>(tx: &C, supervisor: &SupervisorId) -> Body<Vec<PublishSums>> {
    let read = Reader {
        what: WHAT,
        table: "publishes",
    };
    // A sum is a decimal number in one database and a whole one in the other.
    let found: Vec<(String, i64, i64)> = segments::Entity::find()
        .select_only()
        .column(segments::Column::PublishId)
        .column_as(Expr::cust("COUNT(*)"), "found_segments")
        .column_as(Expr::cust("CAST(SUM(input_rows) AS BIGINT)"), "found_rows")
        .filter(segments::Column::SupervisorId.eq(supervisor.as_str()))
        .group_by(segments::Column::PublishId)
        .into_tuple()
        .all(tx)
        .await?;
    let found: HashMap<String, (i64, i64)> = found
        .into_iter()
        .map(|(publish, segments, rows)| (publish, (segments, rows)))
        .collect();
    let rows = publishes::Entity::find()
        .filter(publishes::Column::SupervisorId.eq(supervisor.as_str()))
        .order_by_asc(publishes::Column::PublishId)
        .all(tx)
        .await?;
    let mut sums = Vec::with_capacity(rows.len());
    for row in rows {
        let counts: Counts = read.content(&row.counts, FORMAT)?;
        let (segments, input_rows) = found.get(&row.publish_id).copied().unwrap_or_default();
        sums.push(PublishSums {
            publish: row.publish_id,
            said_segments: read.number(row.segment_count)?,
            said_rows: counts.accepted,
            found_segments: read.number(segments)?,
            found_rows: read.number(input_rows)?,
        });
    }
    Ok(sums)
}

/// The ranges of these segments, in their order.
pub(super) async fn of_segments<C: ConnectionTrait>(
    tx: &C,
    segments: &[CatalogSegment],
) -> Body<Vec<Option<PublishedRange>>> {
    use published_sequences::{Column, Entity};
    let read = Reader {
        what: WHAT,
        table: "published_sequences",
    };
    let mut found = HashMap::new();
    for batch in segments.chunks(BATCH) {
        // By the key's first columns too, or every page would read the whole table.
        let supervisors: BTreeSet<&str> = batch.iter().map(|one| one.supervisor.as_str()).collect();
        let generations: BTreeSet<i64> = batch.iter().map(|one| signed(one.generation.0)).collect();
        let names: BTreeSet<&str> = batch.iter().map(|one| one.file.sequence.as_str()).collect();
        let rows = Entity::find()
            .filter(Column::SupervisorId.is_in(supervisors))
            .filter(Column::Generation.is_in(generations))
            .filter(Column::SequenceName.is_in(names))
            .all(tx)
            .await?;
        for row in rows {
            let key = (
                row.supervisor_id.clone(),
                row.generation,
                row.sequence_name.clone(),
            );
            found.insert(key, range(read, row)?);
        }
    }
    let of = |segment: &CatalogSegment| {
        let key = (
            segment.supervisor.to_string(),
            signed(segment.generation.0),
            segment.file.sequence.to_string(),
        );
        found.get(&key).cloned()
    };
    Ok(segments.iter().map(of).collect())
}

fn range(read: Reader, row: published_sequences::Model) -> Body<PublishedRange> {
    Ok(PublishedRange {
        generation: Generation(row.generation.unsigned_abs()),
        sequence: read.id(&row.sequence_name)?,
        start: read.json(&row.start_offsets)?,
        end: read.json(&row.end_offsets)?,
    })
}
