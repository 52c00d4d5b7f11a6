//! Several runs, read as one in the order of their rows. What is held: the batch that each run stands in, and those
//! that were read since the last flush, whose number is bounded too (I8).

use std::collections::VecDeque;
use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::interleave;
use arrow::ipc::reader::StreamReader;
use tidegate_decode::Layout;

use crate::SegmentError;
use crate::row_order::SortKeys;
use crate::run_schema::RunSchema;

/// Batches beyond one per run that may be held before what was picked from them is written.
const BATCHES_AHEAD: usize = 16;

/// One open run, standing at a row.
struct Cursor {
    reader: StreamReader<BufReader<File>>,
    path: PathBuf,
    /// Of the current batch; `None` before the first.
    keys: Option<Arc<SortKeys>>,
    /// Position of the current batch among those of the chunk.
    batch: usize,
    row: usize,
    rows: usize,
}

/// Rows of one batch that come next, one after the other.
pub(crate) struct Stretch<'m> {
    pub(crate) keys: &'m Arc<SortKeys>,
    pub(crate) batches: &'m [RecordBatch],
    pub(crate) batch: usize,
    pub(crate) rows: Range<usize>,
}

/// What becomes of rows in order.
pub(crate) trait Chunks {
    /// The next rows, at most [`Chunks::room`] of them.
    fn take(&mut self, stretch: Stretch<'_>);
    /// Rows that may come before a flush.
    fn room(&self) -> usize;
    /// Writes what has come so far; afterwards batches may go away.
    fn flush(&mut self, batches: &[RecordBatch], schema: &RunSchema) -> Result<(), SegmentError>;
}

pub(crate) struct Merging {
    pub(crate) schema: RunSchema,
    cursors: Vec<Cursor>,
    /// Cursors in the order of their rows; the first is next.
    order: VecDeque<usize>,
    batches: Vec<RecordBatch>,
}

impl Merging {
    pub(crate) fn open(paths: &[PathBuf], layout: &Layout) -> Result<Self, SegmentError> {
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
        let mut merging = Self {
            schema,
            cursors: Vec::new(),
            order: VecDeque::new(),
            batches: Vec::new(),
        };
        for (reader, path) in readers {
            merging.cursors.push(Cursor {
                reader,
                path,
                keys: None,
                batch: 0,
                row: 0,
                rows: 0,
            });
            let index = merging.cursors.len() - 1;
            if merging.load(index)? {
                merging.insert(index);
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
            cursor.keys = Some(Arc::new(SortKeys::of(&batch, &self.schema)));
            (cursor.row, cursor.rows, cursor.batch) = (0, batch.num_rows(), self.batches.len());
            self.batches.push(batch);
            return Ok(true);
        }
    }

    /// True when `row` of cursor `a` comes before the row that cursor `b` stands at.
    #[inline]
    fn is_before(&self, a: usize, row: usize, b: usize) -> bool {
        let (a, b) = (&self.cursors[a], &self.cursors[b]);
        match (&a.keys, &b.keys) {
            (Some(keys), Some(other)) => keys.compare(row, other, b.row).is_lt(),
            _ => false,
        }
    }

    /// Puts a cursor to its place in the order.
    fn insert(&mut self, index: usize) {
        let place = self
            .order
            .iter()
            .position(|other| !self.is_before(*other, self.cursors[*other].row, index))
            .unwrap_or(self.order.len());
        self.order.insert(place, index);
    }

    /// Where the rows of the first cursor end that come before the next one's: found by steps that double, then by
    /// halving, for runs were mostly spilled one after the other and overlap little.
    fn stretch_end(&self, front: usize, room: usize) -> usize {
        let cursor = &self.cursors[front];
        let end = cursor.rows.min(cursor.row.saturating_add(room.max(1)));
        let Some(next) = self.order.get(1) else {
            return end;
        };
        let (mut low, mut high, mut step) = (cursor.row + 1, end, 1);
        while low < high {
            let probe = (low + step - 1).min(high - 1);
            if self.is_before(front, probe, *next) {
                low = probe + 1;
                step *= 2;
            } else {
                high = probe;
                break;
            }
        }
        while low < high {
            let middle = low + (high - low) / 2;
            if self.is_before(front, middle, *next) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    pub(crate) fn each_chunk(&mut self, chunks: &mut impl Chunks) -> Result<(), SegmentError> {
        while let Some(index) = self.order.front().copied() {
            let end = self.stretch_end(index, chunks.room());
            let cursor = &mut self.cursors[index];
            if let Some(keys) = &cursor.keys {
                chunks.take(Stretch {
                    keys,
                    batches: &self.batches,
                    batch: cursor.batch,
                    rows: cursor.row..end,
                });
            }
            cursor.row = end;
            let is_done = cursor.row == cursor.rows && !self.load(index)?;
            self.order.pop_front();
            if !is_done {
                self.insert(index);
            }
            if chunks.room() == 0 || self.batches.len() >= self.cursors.len() + BATCHES_AHEAD {
                chunks.flush(&self.batches, &self.schema)?;
                self.forget_read_batches();
            }
        }
        chunks.flush(&self.batches, &self.schema)?;
        self.batches.clear();
        Ok(())
    }

    /// Keeps only the batch that each cursor stands in.
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

/// A column of the picked rows.
pub(crate) fn gather(
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
