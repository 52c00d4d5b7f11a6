//! The records of a run: spread over partitions, and in batches as a reader hands them over.

use std::ops::Range;

use anyhow::Result;
use tidegate_spec::{
    DataSchema, DimensionKind, DimensionSpec, DimensionsSpec, GranularitySpec, MetricKind, MetricSpec,
    MultiValueHandling, TimestampFormat, TimestampSpec,
};
use tidegate_types::{DataSource, Granularity};

use crate::events;

/// The in-process broker keeps about 5 MB of compressed batches per partition; this many hold all records.
pub(crate) const PARTITIONS: usize = 12;
const BATCH_RECORDS: usize = 4_096;
const BATCH_BYTES: usize = 1 << 20;

const DIMENSIONS: [&str; 16] = [
    "channel",
    "cityName",
    "comment",
    "countryIsoCode",
    "countryName",
    "isAnonymous",
    "isMinor",
    "isNew",
    "isRobot",
    "isUnpatrolled",
    "metroCode",
    "namespace",
    "page",
    "regionIsoCode",
    "regionName",
    "user",
];

/// Records of one partition that lie behind each other.
#[derive(Debug, Clone)]
pub(crate) struct RawBatch {
    pub(crate) partition: usize,
    pub(crate) first_offset: i64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) values: Vec<Range<usize>>,
}

#[derive(Debug)]
pub(crate) struct Workload {
    pub(crate) schema: DataSchema,
    pub(crate) source: &'static str,
    pub(crate) rows: usize,
    events: Vec<String>,
}

impl Workload {
    pub(crate) fn load(rows: usize) -> Result<Self> {
        let events = events::load()?;
        Self::of(events.records, events.source, rows)
    }

    /// The events, repeated to so many rows.
    pub(crate) fn of(events: Vec<String>, source: &'static str, rows: usize) -> Result<Self> {
        Ok(Self {
            schema: schema()?,
            source,
            rows,
            events,
        })
    }

    pub(crate) fn bytes(&self) -> usize {
        (0..self.rows).map(|row| self.record(row).len()).sum()
    }

    /// Rows of a partition.
    pub(crate) fn rows_of(&self, partition: usize) -> usize {
        (partition..self.rows).step_by(PARTITIONS).len()
    }

    /// The records of a partition, by offset.
    pub(crate) fn records_of(&self, partition: usize) -> impl Iterator<Item = &str> {
        (partition..self.rows)
            .step_by(PARTITIONS)
            .map(|row| self.record(row))
    }

    fn record(&self, row: usize) -> &str {
        &self.events[row % self.events.len()]
    }

    /// All records, partitions taking turns.
    pub(crate) fn batches(&self) -> Vec<RawBatch> {
        let mut of_partitions: Vec<_> = (0..PARTITIONS)
            .map(|partition| (partition, 0_i64, self.records_of(partition).peekable()))
            .collect();
        let mut batches = Vec::new();
        loop {
            let before = batches.len();
            for (partition, offset, records) in &mut of_partitions {
                let mut batch = RawBatch {
                    partition: *partition,
                    first_offset: *offset,
                    bytes: Vec::with_capacity(BATCH_BYTES),
                    values: Vec::new(),
                };
                while batch.values.len() < BATCH_RECORDS && batch.bytes.len() < BATCH_BYTES {
                    let Some(record) = records.next() else { break };
                    let start = batch.bytes.len();
                    batch.bytes.extend_from_slice(record.as_bytes());
                    batch.values.push(start..batch.bytes.len());
                }
                *offset += batch.values.len() as i64;
                if !batch.values.is_empty() {
                    batches.push(batch);
                }
            }
            if batches.len() == before {
                return batches;
            }
        }
    }
}

/// Every field is a column; one segment per partition and day, rows as they are.
fn schema() -> Result<DataSchema> {
    let metric = |name: &str, kind| MetricSpec {
        name: name.to_owned(),
        kind,
        field: if kind == MetricKind::Count {
            String::new()
        } else {
            name.to_owned()
        },
    };
    Ok(DataSchema {
        data_source: DataSource::new("wiki")?,
        timestamp: TimestampSpec {
            column: "time".to_owned(),
            format: TimestampFormat::Iso,
            missing_value: None,
        },
        dimensions: DimensionsSpec {
            dimensions: DIMENSIONS
                .iter()
                .map(|name| DimensionSpec {
                    name: (*name).to_owned(),
                    kind: DimensionKind::String,
                    multi_value: MultiValueHandling::SortedArray,
                })
                .collect(),
            discover: false,
            typed_discovery: false,
            exclusions: Vec::new(),
        },
        metrics: vec![
            metric("count", MetricKind::Count),
            metric("added", MetricKind::LongSum),
            metric("deleted", MetricKind::LongSum),
            metric("delta", MetricKind::LongSum),
        ],
        granularity: GranularitySpec {
            segment: Granularity::Day,
            query: Granularity::None,
            rollup: false,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_hold_every_record_once_in_the_order_of_each_partition() {
        let workload = Workload::of(events::generate(700), "generated", 30_001).unwrap();
        let mut seen: Vec<Vec<&[u8]>> = vec![Vec::new(); PARTITIONS];
        let batches = workload.batches();
        for batch in &batches {
            assert_eq!(batch.first_offset as usize, seen[batch.partition].len());
            seen[batch.partition].extend(batch.values.iter().map(|range| &batch.bytes[range.clone()]));
        }
        for (partition, seen) in seen.iter().enumerate() {
            let expected: Vec<&[u8]> = workload.records_of(partition).map(str::as_bytes).collect();
            assert_eq!(*seen, expected);
            assert_eq!(expected.len(), workload.rows_of(partition));
        }
        assert_eq!(seen.iter().map(Vec::len).sum::<usize>(), 30_001);
    }
}
