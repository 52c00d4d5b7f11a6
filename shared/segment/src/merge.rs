//! Merge: sorted runs to one segment, with a bounded number of runs at a time, in as many passes as that takes.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, Float64Array, Int64Array, RecordBatch};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use arrow::ipc::reader::StreamReader;
use arrow::row::{RowConverter, Rows, SortField};
use tidegate_decode::Layout;
use tidegate_spec::{MetricKind, SegmentWriterSpec};

use crate::aggregate;
use crate::persist::{BATCH_ROWS, RunWriter};
use crate::run_schema::RunSchema;
use crate::writer::SegmentWriter;
use crate::{SegmentError, SegmentFile, SegmentMeta};

/// Bytes of a sort key that (partition, offset) take at its end: a mark and 4, a mark and 8.
const TIE_BYTES: usize = 14;

/// How a segment is merged and written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeSettings {
    /// Runs that are open at the same time.
    pub fan_in: usize,
    pub zstd_level: i32,
    pub row_group_rows: usize,
    /// Columns with a bloom filter.
    pub bloom_filter: Vec<String>,
}

impl MergeSettings {
    pub fn new(writer: &SegmentWriterSpec, fan_in: u32) -> Self {
        Self {
            fan_in: fan_in as usize,
            zstd_level: writer.zstd_level,
            row_group_rows: usize::try_from(writer.row_group_rows).unwrap_or(usize::MAX),
            bloom_filter: writer.bloom_filter.clone(),
        }
    }
}

/// Merges the runs of one segment into the Parquet file `out`. Intermediate runs lie beside it and are removed. The
/// runs themselves are left.
pub fn merge(
    runs: &[PathBuf],
    layout: &Layout,
    meta: &SegmentMeta,
    settings: &MergeSettings,
    out: &Path,
) -> Result<SegmentFile, SegmentError> {
    let fan_in = settings.fan_in.max(2);
    let mut waiting: VecDeque<(PathBuf, Kept)> = runs.iter().map(|run| (run.clone(), Kept::Yes)).collect();
    let mut pass = 0;
    while waiting.len() > fan_in {
        // Only as many as needed, so that the last pass is full.
        let count = fan_in.min(waiting.len() - fan_in + 1);
        let group: Vec<(PathBuf, Kept)> = waiting.drain(..count).collect();
        let path = out.with_extension(format!("pass-{pass}"));
        pass += 1;
        let mut cursors = Merging::open(&paths(&group), layout)?;
        let mut writer = RunWriter::create(&path, &cursors.schema)?;
        cursors.each_chunk(&mut Plain::new(|columns: &[ArrayRef], schema: &RunSchema| {
            writer.write(&RecordBatch::try_new(
                Arc::clone(&schema.arrow),
                columns.to_vec(),
            )?)
        }))?;
        drop(cursors);
        writer.finish()?;
        remove(&group)?;
        waiting.push_back((path, Kept::No));
    }
    let group: Vec<(PathBuf, Kept)> = waiting.into();
    let mut cursors = Merging::open(&paths(&group), layout)?;
    let mut writer = SegmentWriter::create(out, &cursors.schema, meta, settings)?;
    if layout.rollup {
        let mut rolled = RollUp::new(&cursors.schema, |columns: &[ArrayRef]| writer.write(columns));
        cursors.each_chunk(&mut rolled)?;
        rolled.finish()?;
    } else {
        cursors.each_chunk(&mut Plain::new(|columns: &[ArrayRef], _: &RunSchema| {
            writer.write(columns)
        }))?;
    }
    drop(cursors);
    let file = writer.finish()?;
    remove(&group)?;
    Ok(file)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Yes,
    No,
}

fn paths(group: &[(PathBuf, Kept)]) -> Vec<PathBuf> {
    group.iter().map(|(path, _)| path.clone()).collect()
}

fn remove(group: &[(PathBuf, Kept)]) -> Result<(), SegmentError> {
    for (path, _) in group.iter().filter(|(_, kept)| *kept == Kept::No) {
        fs::remove_file(path).map_err(SegmentError::io("remove", path))?;
    }
    Ok(())
}

/// One open run, standing at a row.
struct Cursor {
    reader: StreamReader<BufReader<File>>,
    path: PathBuf,
    keys: Rows,
    /// Position of the current batch among those of the chunk.
    batch: usize,
    row: usize,
    rows: usize,
}

/// Several runs, read in the order of their rows.
struct Merging {
    schema: RunSchema,
    converter: RowConverter,
    cursors: Vec<Cursor>,
    /// Cursors in the order of their rows; the first is next.
    order: VecDeque<usize>,
    batches: Vec<RecordBatch>,
}

/// What becomes of rows in order.
trait Chunks {
    /// The next row; its sort key without (partition, offset), and where it is.
    fn row(&mut self, key: &[u8], batches: &[RecordBatch], at: (usize, usize));
    fn is_full(&self) -> bool;
    /// Writes what has come so far; afterwards batches may go away.
    fn flush(&mut self, batches: &[RecordBatch], schema: &RunSchema) -> Result<(), SegmentError>;
}

impl Merging {
    fn open(paths: &[PathBuf], layout: &Layout) -> Result<Self, SegmentError> {
        let mut readers = Vec::new();
        for path in paths {
            let file = File::open(path).map_err(SegmentError::io("open", path))?;
            let reader = StreamReader::try_new(BufReader::with_capacity(1 << 16, file), None)
                .map_err(SegmentError::arrow("read", path))?;
            readers.push((reader, path.clone()));
        }
        let schema = RunSchema::union(
            layout,
            readers
                .iter()
                .map(|(reader, _)| RunSchema::found_in(&reader.schema())),
        );
        let fields = schema
            .sort_columns()
            .into_iter()
            .map(|column| SortField::new(schema.arrow.field(column).data_type().clone()))
            .collect();
        let converter = RowConverter::new(fields)?;
        let mut merging = Self {
            schema,
            converter,
            cursors: Vec::new(),
            order: VecDeque::new(),
            batches: Vec::new(),
        };
        for (reader, path) in readers {
            let keys = merging.converter.empty_rows(0, 0);
            merging.cursors.push(Cursor {
                reader,
                path,
                keys,
                batch: 0,
                row: 0,
                rows: 0,
            });
            let index = merging.cursors.len() - 1;
            if merging.load(index)? {
                merging.insert(index, 0);
            }
        }
        Ok(merging)
    }

    /// The next batch of a run; false at its end.
    fn load(&mut self, index: usize) -> Result<bool, SegmentError> {
        loop {
            let cursor = &mut self.cursors[index];
            let Some(batch) = cursor.reader.next() else {
                return Ok(false);
            };
            let batch = batch.map_err(SegmentError::arrow("read", &cursor.path))?;
            if batch.num_rows() == 0 {
                continue;
            }
            let batch = self.schema.fit(&batch)?;
            let columns: Vec<ArrayRef> = self
                .schema
                .sort_columns()
                .into_iter()
                .map(|column| Arc::clone(batch.column(column)))
                .collect();
            cursor.keys = self.converter.convert_columns(&columns)?;
            (cursor.row, cursor.rows, cursor.batch) = (0, batch.num_rows(), self.batches.len());
            self.batches.push(batch);
            return Ok(true);
        }
    }

    /// Puts a cursor to its place among those from `from` on.
    fn insert(&mut self, index: usize, from: usize) {
        let cursors = &self.cursors;
        let key = |index: usize| cursors[index].keys.row(cursors[index].row);
        let mut place = from;
        while self
            .order
            .get(place)
            .is_some_and(|other| key(*other) < key(index))
        {
            place += 1;
        }
        self.order.insert(place, index);
    }

    fn each_chunk(&mut self, chunks: &mut impl Chunks) -> Result<(), SegmentError> {
        while let Some(index) = self.order.front().copied() {
            let cursor = &mut self.cursors[index];
            let key = cursor.keys.row(cursor.row);
            let key: &[u8] = key.as_ref();
            chunks.row(
                &key[..key.len().saturating_sub(TIE_BYTES)],
                &self.batches,
                (cursor.batch, cursor.row),
            );
            cursor.row += 1;
            let mut is_done = false;
            if cursor.row == cursor.rows {
                is_done = !self.load(index)?;
            }
            self.order.pop_front();
            if !is_done {
                self.insert(index, 0);
            }
            if chunks.is_full() {
                chunks.flush(&self.batches, &self.schema)?;
                self.forget_read_batches();
            }
        }
        chunks.flush(&self.batches, &self.schema)?;
        self.batches.clear();
        Ok(())
    }

    /// Keeps only the batch that each cursor stands in: memory is bounded by the fan-in.
    fn forget_read_batches(&mut self) {
        let mut kept = Vec::new();
        for index in &self.order {
            let cursor = &mut self.cursors[*index];
            kept.push(self.batches[cursor.batch].clone());
            cursor.batch = kept.len() - 1;
        }
        self.batches = kept;
    }
}

/// Columns of the picked rows.
fn gather(
    batches: &[RecordBatch],
    picks: &[(usize, usize)],
    column: usize,
) -> Result<ArrayRef, SegmentError> {
    let arrays: Vec<&dyn arrow::array::Array> = batches
        .iter()
        .map(|batch| batch.column(column).as_ref())
        .collect();
    Ok(interleave(&arrays, picks)?)
}

/// Every row as it is.
struct Plain<W> {
    picks: Vec<(usize, usize)>,
    write: W,
}

impl<W> Plain<W> {
    fn new(write: W) -> Self {
        Self {
            picks: Vec::with_capacity(BATCH_ROWS),
            write,
        }
    }
}

impl<W: FnMut(&[ArrayRef], &RunSchema) -> Result<(), SegmentError>> Chunks for Plain<W> {
    fn row(&mut self, _: &[u8], _: &[RecordBatch], at: (usize, usize)) {
        self.picks.push(at);
    }
    fn is_full(&self) -> bool {
        self.picks.len() >= BATCH_ROWS
    }
    fn flush(&mut self, batches: &[RecordBatch], schema: &RunSchema) -> Result<(), SegmentError> {
        if self.picks.is_empty() {
            return Ok(());
        }
        let columns: Vec<ArrayRef> = (0..schema.arrow.fields().len())
            .map(|column| gather(batches, &self.picks, column))
            .collect::<Result<_, _>>()?;
        self.picks.clear();
        (self.write)(&columns, schema)
    }
}

/// A metric while rows of one key come.
enum Rolled {
    Long {
        kind: MetricKind,
        column: usize,
        values: Vec<Option<i64>>,
    },
    Double {
        kind: MetricKind,
        column: usize,
        values: Vec<Option<f64>>,
    },
}

/// Rows with equal (time, dimensions) become one.
struct RollUp<W> {
    picks: Vec<(usize, usize)>,
    metrics: Vec<Rolled>,
    /// Key of the last row of `picks`; empty before the first.
    key: Vec<u8>,
    /// The row under way, moved out of a flushed chunk: its columns (of one row) and its metrics.
    carried: Option<(Vec<ArrayRef>, Vec<Rolled>)>,
    write: W,
}

impl<W: FnMut(&[ArrayRef]) -> Result<(), SegmentError>> RollUp<W> {
    fn new(schema: &RunSchema, write: W) -> Self {
        let metrics = schema
            .metrics()
            .map(|(column, kind)| match schema.arrow.field(column).data_type() {
                DataType::Float64 => Rolled::Double {
                    kind,
                    column,
                    values: Vec::new(),
                },
                _ => Rolled::Long {
                    kind,
                    column,
                    values: Vec::new(),
                },
            })
            .collect();
        Self {
            picks: Vec::new(),
            metrics,
            key: Vec::new(),
            carried: None,
            write,
        }
    }

    fn finish(self) -> Result<(), SegmentError> {
        match self.carried {
            Some((columns, metrics)) => Self::emit(columns, metrics, self.write),
            None => Ok(()),
        }
    }

    fn emit(mut columns: Vec<ArrayRef>, metrics: Vec<Rolled>, mut write: W) -> Result<(), SegmentError> {
        put(&mut columns, metrics);
        write(&columns)
    }
}

fn put(columns: &mut [ArrayRef], metrics: Vec<Rolled>) {
    for metric in metrics {
        match metric {
            Rolled::Long { column, values, .. } => columns[column] = Arc::new(Int64Array::from(values)),
            Rolled::Double { column, values, .. } => columns[column] = Arc::new(Float64Array::from(values)),
        }
    }
}

impl Rolled {
    /// Takes a row's value: into a new row, or into the last one.
    fn take(&mut self, batch: &RecordBatch, row: usize, is_new: bool) {
        match self {
            Self::Long { kind, column, values } => {
                let array = batch.column(*column).as_primitive::<Int64Type>();
                let value = array.is_valid(row).then(|| array.value(row));
                match values.last_mut().filter(|_| !is_new) {
                    Some(last) => *last = aggregate::long(*kind, *last, value),
                    None => values.push(value),
                }
            }
            Self::Double { kind, column, values } => {
                let array = batch.column(*column).as_primitive::<Float64Type>();
                let value = array.is_valid(row).then(|| array.value(row));
                match values.last_mut().filter(|_| !is_new) {
                    Some(last) => *last = aggregate::double(*kind, *last, value),
                    None => values.push(value),
                }
            }
        }
    }

    /// The same metric with the last row only, which is taken out of this one.
    fn split_last(&mut self) -> Self {
        match self {
            Self::Long { kind, column, values } => Self::Long {
                kind: *kind,
                column: *column,
                values: values.pop().into_iter().collect(),
            },
            Self::Double { kind, column, values } => Self::Double {
                kind: *kind,
                column: *column,
                values: values.pop().into_iter().collect(),
            },
        }
    }

    fn take_all(&mut self) -> Self {
        match self {
            Self::Long { kind, column, values } => Self::Long {
                kind: *kind,
                column: *column,
                values: std::mem::take(values),
            },
            Self::Double { kind, column, values } => Self::Double {
                kind: *kind,
                column: *column,
                values: std::mem::take(values),
            },
        }
    }
}

impl<W: FnMut(&[ArrayRef]) -> Result<(), SegmentError>> Chunks for RollUp<W> {
    fn row(&mut self, key: &[u8], batches: &[RecordBatch], at: (usize, usize)) {
        let is_new = self.key != key || (self.picks.is_empty() && self.carried.is_none());
        if is_new {
            self.key.clear();
            self.key.extend_from_slice(key);
            self.picks.push(at);
        }
        let under_way = match &mut self.carried {
            Some((_, carried)) if self.picks.is_empty() => carried,
            _ => &mut self.metrics,
        };
        for metric in under_way {
            metric.take(&batches[at.0], at.1, is_new);
        }
    }

    fn is_full(&self) -> bool {
        self.picks.len() >= BATCH_ROWS
    }

    fn flush(&mut self, batches: &[RecordBatch], schema: &RunSchema) -> Result<(), SegmentError> {
        let Some(last) = self.picks.pop() else {
            return Ok(());
        };
        if let Some((mut columns, metrics)) = self.carried.take() {
            put(&mut columns, metrics);
            (self.write)(&columns)?;
        }
        let width = schema.arrow.fields().len();
        let last_metrics: Vec<Rolled> = self.metrics.iter_mut().map(Rolled::split_last).collect();
        let last_columns = (0..width)
            .map(|column| gather(batches, &[last], column))
            .collect::<Result<_, _>>()?;
        if !self.picks.is_empty() {
            let mut columns: Vec<ArrayRef> = (0..width)
                .map(|column| gather(batches, &self.picks, column))
                .collect::<Result<_, _>>()?;
            put(
                &mut columns,
                self.metrics.iter_mut().map(Rolled::take_all).collect(),
            );
            (self.write)(&columns)?;
            self.picks.clear();
        }
        self.carried = Some((last_columns, last_metrics));
        Ok(())
    }
}
