//! Every row as it is, in order.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::concat;

use crate::SegmentError;
use crate::merging::{Chunks, Stretch, gather};
use crate::persist::BATCH_ROWS;
use crate::run_schema::RunSchema;

/// Stretches at least this long on average are copied as a whole.
const WORTH_COPYING_WHOLE: usize = 32;

pub(crate) struct Plain<W> {
    stretches: Vec<(usize, Range<usize>)>,
    rows: usize,
    write: W,
}

impl<W> Plain<W> {
    pub(crate) fn new(write: W) -> Self {
        Self {
            stretches: Vec::new(),
            rows: 0,
            write,
        }
    }
}

impl<W: FnMut(&[ArrayRef], &RunSchema) -> Result<(), SegmentError>> Chunks for Plain<W> {
    fn take(&mut self, stretch: Stretch<'_>) {
        self.rows += stretch.rows.len();
        match self.stretches.last_mut() {
            Some((batch, rows)) if *batch == stretch.batch && rows.end == stretch.rows.start => {
                rows.end = stretch.rows.end;
            }
            _ => self.stretches.push((stretch.batch, stretch.rows)),
        }
    }

    fn room(&self) -> usize {
        BATCH_ROWS.saturating_sub(self.rows)
    }

    fn flush(&mut self, batches: &[RecordBatch], schema: &RunSchema) -> Result<(), SegmentError> {
        if self.rows == 0 {
            return Ok(());
        }
        let whole = self.stretches.len() * WORTH_COPYING_WHOLE <= self.rows;
        let picks: Vec<(usize, usize)> = if whole {
            Vec::new()
        } else {
            let rows = |(batch, rows): &(usize, Range<usize>)| {
                let batch = *batch;
                rows.clone().map(move |row| (batch, row))
            };
            self.stretches.iter().flat_map(rows).collect()
        };
        let columns: Vec<ArrayRef> = (0..schema.arrow.fields().len())
            .map(|column| match self.stretches.as_slice() {
                // A run that stands alone goes through uncopied.
                [(batch, rows)] => Ok(batches[*batch].column(column).slice(rows.start, rows.len())),
                stretches if whole => {
                    let pieces: Vec<ArrayRef> = stretches
                        .iter()
                        .map(|(batch, rows)| batches[*batch].column(column).slice(rows.start, rows.len()))
                        .collect();
                    let pieces: Vec<&dyn Array> = pieces.iter().map(AsRef::as_ref).collect();
                    Ok(concat(&pieces)?)
                }
                _ => gather(batches, &picks, column),
            })
            .collect::<Result<_, SegmentError>>()?;
        self.stretches.clear();
        self.rows = 0;
        (self.write)(&columns, schema)
    }
}
