//! Rows with equal (time, dimensions) become one.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, Float64Array, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use tidegate_spec::MetricKind;

use crate::SegmentError;
use crate::aggregate;
use crate::merging::{Chunks, Stretch, gather};
use crate::persist::BATCH_ROWS;
use crate::row_order::SortKeys;
use crate::run_schema::RunSchema;

/// A metric while rows of a cell come.
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

pub(crate) struct RollUp<W> {
    /// First row of each cell.
    picks: Vec<(usize, usize)>,
    metrics: Vec<Rolled>,
    /// The last row that came.
    last: Option<(Arc<SortKeys>, usize)>,
    /// The cell under way, moved out of a flushed chunk: its columns (of one row) and its metrics.
    carried: Option<(Vec<ArrayRef>, Vec<Rolled>)>,
    /// For each row of a stretch whether a cell begins there.
    begins: Vec<bool>,
    write: W,
}

impl<W: FnMut(&[ArrayRef]) -> Result<(), SegmentError>> RollUp<W> {
    pub(crate) fn new(schema: &RunSchema, write: W) -> Self {
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
            last: None,
            carried: None,
            begins: Vec::new(),
            write,
        }
    }

    pub(crate) fn finish(mut self) -> Result<(), SegmentError> {
        match self.carried.take() {
            Some((columns, metrics)) => self.emit(columns, metrics),
            None => Ok(()),
        }
    }

    fn emit(&mut self, mut columns: Vec<ArrayRef>, metrics: Vec<Rolled>) -> Result<(), SegmentError> {
        for metric in metrics {
            match metric {
                Rolled::Long { column, values, .. } => columns[column] = Arc::new(Int64Array::from(values)),
                Rolled::Double { column, values, .. } => {
                    columns[column] = Arc::new(Float64Array::from(values));
                }
            }
        }
        (self.write)(&columns)
    }
}

/// Rows in order into cells: a new one where one begins, else into the last.
fn fold<T>(
    cells: &mut Vec<Option<T>>,
    values: impl Iterator<Item = Option<T>>,
    begins: &[bool],
    add: impl Fn(Option<T>, Option<T>) -> Option<T>,
) {
    for (value, begins) in values.zip(begins) {
        match cells.last_mut() {
            Some(last) if !begins => *last = add(last.take(), value),
            _ => cells.push(value),
        }
    }
}

impl Rolled {
    /// Takes the values of rows from `start` on, one for each of `begins`.
    fn take(&mut self, batch: &RecordBatch, start: usize, begins: &[bool]) {
        let rows = start..start + begins.len();
        match self {
            Self::Long { kind, column, values } => {
                let array = batch.column(*column).as_primitive::<Int64Type>();
                let new = rows.map(|row| array.is_valid(row).then(|| array.value(row)));
                fold(values, new, begins, |so_far, value| {
                    aggregate::long(*kind, so_far, value)
                });
            }
            Self::Double { kind, column, values } => {
                let array = batch.column(*column).as_primitive::<Float64Type>();
                let new = rows.map(|row| array.is_valid(row).then(|| array.value(row)));
                fold(values, new, begins, |so_far, value| {
                    aggregate::double(*kind, so_far, value)
                });
            }
        }
    }

    /// The same metric with the last cell only, which is taken out of this one.
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
    fn take(&mut self, stretch: Stretch<'_>) {
        let Stretch {
            keys,
            batches,
            batch,
            rows,
        } = stretch;
        self.begins.clear();
        let mut before = self.last.as_ref().map(|(keys, row)| (keys, *row));
        for row in rows.clone() {
            self.begins
                .push(!before.is_some_and(|(other, last)| keys.same_cell(row, other, last)));
            before = Some((keys, row));
        }
        let has_begun = !self.picks.is_empty();
        let begun = rows.clone().zip(&self.begins).filter(|(_, begins)| **begins);
        self.picks.extend(begun.map(|(row, _)| (batch, row)));
        // Rows before the first beginning belong to the cell under way, which may have been moved out.
        let first = self
            .begins
            .iter()
            .position(|begins| *begins)
            .unwrap_or(self.begins.len());
        let carried = match &mut self.carried {
            Some((_, metrics)) if !has_begun => {
                for metric in metrics {
                    metric.take(&batches[batch], rows.start, &self.begins[..first]);
                }
                first
            }
            _ => 0,
        };
        for metric in &mut self.metrics {
            metric.take(&batches[batch], rows.start + carried, &self.begins[carried..]);
        }
        if let Some(last) = rows.last() {
            self.last = Some((Arc::clone(keys), last));
        }
    }

    fn room(&self) -> usize {
        BATCH_ROWS.saturating_sub(self.picks.len())
    }

    fn flush(&mut self, batches: &[RecordBatch], schema: &RunSchema) -> Result<(), SegmentError> {
        let Some(last) = self.picks.pop() else {
            return Ok(());
        };
        if let Some((columns, metrics)) = self.carried.take() {
            self.emit(columns, metrics)?;
        }
        let width = schema.arrow.fields().len();
        let picked = |picks: &[(usize, usize)]| -> Result<Vec<ArrayRef>, SegmentError> {
            (0..width).map(|column| gather(batches, picks, column)).collect()
        };
        let last_metrics: Vec<Rolled> = self.metrics.iter_mut().map(Rolled::split_last).collect();
        if !self.picks.is_empty() {
            let columns = picked(&self.picks)?;
            let metrics = self.metrics.iter_mut().map(Rolled::take_all).collect();
            self.picks.clear();
            self.emit(columns, metrics)?;
        }
        self.carried = Some((picked(&[last])?, last_metrics));
        Ok(())
    }
}
