//! The order of rows in a run and in a segment: time, dimensions, partition, offset; null before any value.
//!
//! Compared in place, column by column, the first difference decides: mostly that is time, and no other column is
//! touched. The order is the one that `persist` sorts by.

use std::cmp::Ordering;

use arrow::array::{
    Array as _, AsArray as _, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
};
use arrow::datatypes::{DataType, Float64Type, Int32Type, Int64Type};

use crate::run_schema::RunSchema;

/// The columns of a batch that its rows are ordered by.
#[derive(Debug)]
pub(crate) struct SortKeys {
    times: Int64Array,
    dimensions: Vec<Key>,
    partitions: Int32Array,
    offsets: Int64Array,
}

#[derive(Debug)]
enum Key {
    Text(StringArray),
    Long(Int64Array),
    Double(Float64Array),
}

impl SortKeys {
    /// `batch` has the columns of `schema`.
    pub(crate) fn of(batch: &RecordBatch, schema: &RunSchema) -> Self {
        let last = batch.num_columns() - 1;
        let dimensions = (1..=schema.dimensions()).map(|column| {
            let column = batch.column(column);
            match column.data_type() {
                DataType::Int64 => Key::Long(column.as_primitive::<Int64Type>().clone()),
                DataType::Float64 => Key::Double(column.as_primitive::<Float64Type>().clone()),
                _ => Key::Text(column.as_string::<i32>().clone()),
            }
        });
        Self {
            times: batch.column(0).as_primitive::<Int64Type>().clone(),
            dimensions: dimensions.collect(),
            partitions: batch.column(last - 1).as_primitive::<Int32Type>().clone(),
            offsets: batch.column(last).as_primitive::<Int64Type>().clone(),
        }
    }

    /// The whole order. No two rows of a segment are equal in it.
    #[inline]
    pub(crate) fn compare(&self, row: usize, other: &Self, other_row: usize) -> Ordering {
        self.times
            .value(row)
            .cmp(&other.times.value(other_row))
            .then_with(|| self.compare_dimensions(row, other, other_row))
            .then_with(|| self.place(row).cmp(&other.place(other_row)))
    }

    /// True for rows that roll-up makes one of.
    #[inline]
    pub(crate) fn same_cell(&self, row: usize, other: &Self, other_row: usize) -> bool {
        self.times.value(row) == other.times.value(other_row)
            && self.compare_dimensions(row, other, other_row).is_eq()
    }

    fn compare_dimensions(&self, row: usize, other: &Self, other_row: usize) -> Ordering {
        self.dimensions
            .iter()
            .zip(&other.dimensions)
            .map(|(a, b)| a.compare(row, b, other_row))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    fn place(&self, row: usize) -> (i32, i64) {
        (self.partitions.value(row), self.offsets.value(row))
    }
}

impl Key {
    fn compare(&self, row: usize, other: &Self, other_row: usize) -> Ordering {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => {
                let a = a.is_valid(row).then(|| a.value(row).as_bytes());
                a.cmp(&b.is_valid(other_row).then(|| b.value(other_row).as_bytes()))
            }
            (Self::Long(a), Self::Long(b)) => {
                let a = a.is_valid(row).then(|| a.value(row));
                a.cmp(&b.is_valid(other_row).then(|| b.value(other_row)))
            }
            (Self::Double(a), Self::Double(b)) => match (a.is_valid(row), b.is_valid(other_row)) {
                (true, true) => a.value(row).total_cmp(&b.value(other_row)),
                (valid, other_valid) => valid.cmp(&other_valid),
            },
            // Batches of one merge have one schema.
            (Self::Text(_) | Self::Long(_) | Self::Double(_), _) => Ordering::Equal,
        }
    }
}
