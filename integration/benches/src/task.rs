//! The rows of a task, as the task-runner holds them: one index per partition, spilled together when full.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use tidegate_decode::{Decoder, Layout, Outcome, TimeBounds};
use tidegate_segment::{Index, MemRun, MergeSettings, SegmentMeta};
use tidegate_spec::{DataSchema, InputFormat, JsonFormat};
use tidegate_types::{
    DataSource, Granularity, Offset, PartitionId, PartitionOffsets, SegmentId, SegmentVersion, SequenceName,
    TimestampMillis,
};

use crate::workload::{PARTITIONS, Workload};

/// Rows in memory of a task before they are spilled (the default of `maxRowsInMemory`).
const ROWS_IN_MEMORY: usize = 150_000;
const LONGEST_RECORD: usize = 10_000_000;
const DAY: TimestampMillis = TimestampMillis(1_442_016_000_000);

/// Rows that are to become a run.
#[derive(Debug)]
pub(crate) struct Spill {
    pub(crate) partition: usize,
    pub(crate) number: usize,
    pub(crate) run: MemRun,
}

impl Spill {
    pub(crate) fn path(&self, folder: &Path) -> PathBuf {
        folder.join(format!("run-{}-{}", self.partition, self.number))
    }
}

pub(crate) struct Task {
    decoder: Decoder,
    indexes: Vec<Index>,
    rows_in_memory: usize,
    spills: usize,
}

impl Task {
    pub(crate) fn new(schema: &DataSchema) -> Result<Self> {
        let decoder = Decoder::new(
            schema,
            &InputFormat::Json(JsonFormat::default()),
            TimeBounds::default(),
            LONGEST_RECORD,
        )?;
        let indexes = (0..PARTITIONS)
            .map(|_| Index::new(decoder.layout().clone()))
            .collect();
        Ok(Self {
            decoder,
            indexes,
            rows_in_memory: 0,
            spills: 0,
        })
    }

    /// Takes one record.
    #[inline]
    pub(crate) fn record(&mut self, partition: usize, offset: i64, value: Option<&mut [u8]>) -> Result<()> {
        let index = &mut self.indexes[partition];
        let outcome = self.decoder.decode(value, |row| {
            index.append(PartitionId(partition as i32), Offset(offset), &row);
        });
        ensure!(
            outcome == Outcome::Accepted,
            "a record of the benchmark is no row: {outcome:?}"
        );
        self.rows_in_memory += 1;
        Ok(())
    }

    pub(crate) fn is_full(&self) -> bool {
        self.rows_in_memory >= ROWS_IN_MEMORY
    }

    /// All rows in memory, out of it.
    pub(crate) fn spill(&mut self) -> Vec<Spill> {
        self.rows_in_memory = 0;
        self.spills += 1;
        let number = self.spills;
        self.indexes
            .iter_mut()
            .enumerate()
            .filter(|(_, index)| !index.is_empty())
            .map(|(partition, index)| Spill {
                partition,
                number,
                run: index.take(),
            })
            .collect()
    }
}

/// Merges the runs of a partition; the rows of the segment.
pub(crate) fn merge(
    workload: &Workload,
    layout: &Layout,
    partition: usize,
    runs: &[PathBuf],
    folder: &Path,
) -> Result<u64> {
    let out = folder.join(format!("segment-{partition}.parquet"));
    let rows = workload.rows_of(partition);
    let meta = SegmentMeta {
        id: SegmentId {
            data_source: DataSource::new("wiki")?,
            interval: Granularity::Day
                .bucket(DAY)
                .ok_or_else(|| anyhow::anyhow!("the day of the events is out of range"))?,
            version: SegmentVersion::new("2024-05-01T00:00:00.000Z")?,
            partition_num: partition as u32,
        },
        sequence: SequenceName::new(format!("index_kafka_wiki_{partition}"))?,
        first_offsets: PartitionOffsets::from([(partition as i32, 0)]),
        end_offsets: PartitionOffsets::from([(partition as i32, rows as i64)]),
        input_rows: rows as u64,
    };
    // The defaults of tuningConfig.
    let settings = MergeSettings {
        fan_in: 16,
        zstd_level: 1,
        row_group_rows: 262_144,
        bloom_filter: Vec::new(),
    };
    Ok(tidegate_segment::merge(runs, layout, &meta, &settings, &out)?.rows)
}

/// The files of a partition among all runs, in order of spills whichever thread wrote them.
pub(crate) fn runs_of(partition: usize, runs: &[(usize, PathBuf)]) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = runs
        .iter()
        .filter(|(of, _)| *of == partition)
        .map(|(_, path)| path.clone())
        .collect();
    paths.sort_unstable();
    paths
}
