//! Reads the segments of the catalog back, with a Parquet reader only, and adds them up.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, ensure};
use arrow::array::{Array as _, AsArray as _};
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidegate_rpc::coordinator::v1::SegmentInfo;

use crate::events::Totals;

/// What the segments of one data source hold.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) totals: Totals,
    /// Sum of the metric `count`: rows before roll-up.
    pub(crate) counted: i64,
    /// (hour, channel) → rows, to see that roll-up left one each per segment set.
    pub(crate) cells: BTreeMap<(i64, String), u64>,
}

/// Downloads (by `fetch`) and reads each segment; every file must hold as many rows as its catalog row says.
pub(crate) fn read(segments: &[SegmentInfo], fetch: impl Fn(&str) -> Result<Vec<u8>>) -> Result<Held> {
    let mut held = Held::default();
    let mut hours = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for info in segments {
        let segment = info.segment.as_ref().context("a catalog row without a segment")?;
        ensure!(
            keys.insert(segment.key.clone()),
            "{} stands twice in the catalog",
            segment.key
        );
        let bytes = bytes::Bytes::from(fetch(&segment.key)?);
        ensure!(
            bytes.len() as u64 == segment.size_bytes,
            "{} has {} bytes",
            segment.key,
            bytes.len()
        );
        let mut rows = 0;
        for batch in ParquetRecordBatchReaderBuilder::try_new(bytes)?.build()? {
            let batch = batch?;
            rows += batch.num_rows() as u64;
            let time = batch.column_by_name("__time").context("no __time")?;
            let time = time.as_primitive::<TimestampMillisecondType>();
            let long = |name: &str| {
                batch
                    .column_by_name(name)
                    .map(|column| column.as_primitive::<Int64Type>().clone())
            };
            let text: Vec<_> = batch
                .columns()
                .iter()
                .filter_map(|column| column.as_string_opt::<i32>())
                .collect();
            let channel = batch
                .column_by_name("channel")
                .and_then(|column| column.as_string_opt::<i32>());
            let (added, deleted, delta, count) =
                (long("added"), long("deleted"), long("delta"), long("count"));
            let value = |column: &Option<arrow::array::Int64Array>, row: usize| {
                column
                    .as_ref()
                    .filter(|column| column.is_valid(row))
                    .map_or(0, |column| column.value(row))
            };
            for row in 0..batch.num_rows() {
                let hour = time.value(row).div_euclid(3_600_000);
                hours.insert(hour);
                held.totals.added += value(&added, row);
                held.totals.deleted += value(&deleted, row);
                held.totals.delta += value(&delta, row);
                held.counted += value(&count, row);
                let odd = text
                    .iter()
                    .any(|column| column.is_valid(row) && !column.value(row).is_ascii());
                held.totals.non_ascii += u64::from(odd);
                if let Some(channel) = channel {
                    *held
                        .cells
                        .entry((hour, channel.value(row).to_owned()))
                        .or_default() += 1;
                }
            }
        }
        ensure!(
            rows == segment.rows,
            "{} holds {rows} rows, its catalog row says {}",
            segment.key,
            segment.rows
        );
        held.totals.rows += rows;
    }
    held.totals.intervals = hours.len();
    Ok(held)
}
