//! Each stage alone, on events that are already in memory.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use simd_json::{Buffers, Tape};
use tempfile::TempDir;
use tidegate_decode::Outcome;
use tidegate_segment::Index;
use tidegate_types::{Offset, PartitionId};

use crate::layout::{self, ROWS_IN_MEMORY};
use crate::timing::Measured;

/// Parsing to a tape and nothing else.
pub(crate) fn parse(records: &[&[u8]]) -> Result<Measured> {
    let mut arena = Arena::default();
    let mut buffers = Buffers::default();
    let mut took = Duration::ZERO;
    for records in records.chunks(Arena::RECORDS) {
        arena.fill(records);
        let start = Instant::now();
        let mut tape = Tape(Vec::new()).reset();
        arena.each(|record| {
            let mut filled = std::mem::replace(&mut tape, Tape(Vec::new())).reset();
            let parsed = simd_json::fill_tape(record, &mut buffers, &mut filled);
            tape = filled.reset();
            parsed.context("parsing an event")
        })?;
        took += start.elapsed();
    }
    Ok(Measured {
        rows: records.len(),
        took,
    })
}

/// Bytes to the columns of an index, which is emptied when it is full.
pub(crate) fn decode_and_build(records: &[&[u8]]) -> Result<Measured> {
    build(records, |_| Ok(Duration::ZERO))
}

/// Sorting full indexes and writing them to disk; decoding is not counted.
pub(crate) fn persist(records: &[&[u8]]) -> Result<Measured> {
    let folder = tempfile::tempdir()?;
    let mut took = Duration::ZERO;
    build(records, |index| {
        let run = index.take();
        let start = Instant::now();
        tidegate_segment::persist(&run, &folder.path().join("run"))?;
        took += start.elapsed();
        Ok(Duration::ZERO)
    })?;
    Ok(Measured {
        rows: records.len(),
        took,
    })
}

/// Appends all records, and hands over the index each time that it is full; that time is not counted.
fn build(records: &[&[u8]], mut full: impl FnMut(&mut Index) -> Result<Duration>) -> Result<Measured> {
    let mut decoder = layout::decoder()?;
    let mut index = Index::new(decoder.layout().clone());
    let mut arena = Arena::default();
    let mut took = Duration::ZERO;
    let mut offset = 0;
    for records in records.chunks(Arena::RECORDS) {
        arena.fill(records);
        let start = Instant::now();
        arena.each(|record| {
            let outcome = decoder.decode(Some(record), |row| {
                index.append(PartitionId(0), Offset(offset), &row);
            });
            offset += 1;
            ensure!(outcome == Outcome::Accepted, "an event was not accepted: {outcome:?}");
            Ok(())
        })?;
        took += start.elapsed();
        if index.rows() >= ROWS_IN_MEMORY {
            full(&mut index)?;
            index.take();
        }
    }
    full(&mut index)?;
    Ok(Measured {
        rows: records.len(),
        took,
    })
}

/// Records of a batch, as the reader hands them over: parsers write into them.
#[derive(Default)]
struct Arena {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Arena {
    const RECORDS: usize = 2_048;

    fn fill(&mut self, records: &[&[u8]]) {
        self.bytes.clear();
        self.ends.clear();
        for record in records {
            self.bytes.extend_from_slice(record);
            self.ends.push(self.bytes.len());
        }
    }

    fn each(&mut self, mut take: impl FnMut(&mut [u8]) -> Result<()>) -> Result<()> {
        let mut start = 0;
        for end in &self.ends {
            take(&mut self.bytes[start..*end])?;
            start = *end;
        }
        Ok(())
    }
}

/// All events as runs on disk.
pub(crate) struct Spilled {
    folder: TempDir,
    runs: Vec<PathBuf>,
    rows: usize,
}

impl Spilled {
    pub(crate) fn of(records: &[&[u8]]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut runs = Vec::new();
        build(records, |index| {
            let path = folder.path().join(format!("run-{}", runs.len()));
            tidegate_segment::persist(&index.take(), &path)?;
            runs.push(path);
            Ok(Duration::ZERO)
        })?;
        Ok(Self {
            folder,
            runs,
            rows: records.len(),
        })
    }

    /// Merging the runs into a segment file.
    pub(crate) fn merge(&self) -> Result<Measured> {
        let layout = layout::decoder()?.layout().clone();
        let start = Instant::now();
        let file = tidegate_segment::merge(
            &self.runs,
            &layout,
            &layout::meta()?,
            &layout::settings(),
            &self.segment(),
        )?;
        let measured = Measured::since(start, self.rows);
        ensure!(file.rows == self.rows as u64, "{} rows of {}", file.rows, self.rows);
        Ok(measured)
    }

    fn segment(&self) -> PathBuf {
        self.folder.path().join("segment.parquet")
    }
}

/// The rows of a segment in no order, and in order: what the bare library sorts and writes.
pub(crate) struct Unsorted {
    shuffled: Vec<RecordBatch>,
    sorted: Vec<RecordBatch>,
    rows: usize,
}

impl Unsorted {
    pub(crate) fn of(spilled: &Spilled) -> Result<Self> {
        let reader =
            ParquetRecordBatchReaderBuilder::try_new(File::open(spilled.segment())?)?.with_batch_size(8_192);
        let sorted: Vec<RecordBatch> = reader.build()?.collect::<Result<_, _>>()?;
        let all = concat_batches(&sorted[0].schema(), &sorted)?;
        let mut order: Vec<u32> = (0..all.num_rows() as u32).collect();
        order.shuffle(&mut SmallRng::seed_from_u64(1));
        let shuffled = order
            .chunks(8_192)
            .map(|rows| take_record_batch(&all, &UInt32Array::from(rows.to_vec())))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            shuffled,
            sorted,
            rows: all.num_rows(),
        })
    }

    /// The bare library's sort by time and the first dimension, a spill's worth of rows at a time.
    pub(crate) fn sort(&self) -> Result<Measured> {
        let start = Instant::now();
        for batches in self.shuffled.chunks(ROWS_IN_MEMORY / 8_192) {
            let all = concat_batches(&batches[0].schema(), batches)?;
            let keys: Vec<SortColumn> = (0..2)
                .map(|column| SortColumn {
                    values: Arc::clone(all.column(column)),
                    options: None,
                })
                .collect();
            let order = lexsort_to_indices(&keys, None)?;
            std::hint::black_box(take_record_batch(&all, &order)?);
        }
        Ok(Measured::since(start, self.rows))
    }

    /// The bare library's Parquet writer, into memory.
    pub(crate) fn write(&self) -> Result<Measured> {
        let start = Instant::now();
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(layout::settings().zstd_level)?))
            .build();
        let mut writer = ArrowWriter::try_new(Vec::new(), self.sorted[0].schema(), Some(properties))?;
        for batch in &self.sorted {
            writer.write(batch)?;
        }
        std::hint::black_box(writer.into_inner()?);
        Ok(Measured::since(start, self.rows))
    }
}
