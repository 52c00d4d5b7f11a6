//! The in-memory index of one segment: columns, dictionary-coded early.

use std::collections::BTreeMap;

use tidegate_decode::{Layout, Row, Value};
use tidegate_types::{Offset, PartitionId};

use crate::column::Column;

/// Rows of one (sequence, interval) that are not spilled yet. All rows of it go into one segment.
#[derive(Debug)]
pub struct Index {
    layout: Layout,
    rows: Rows,
    /// Discovered columns by the decoder's number for them.
    by_number: Vec<Option<usize>>,
    scratch: String,
}

#[derive(Debug, Default)]
pub(crate) struct Rows {
    pub(crate) times: Vec<i64>,
    pub(crate) partitions: Vec<i32>,
    pub(crate) offsets: Vec<i64>,
    /// Declared columns, in the order of the layout.
    pub(crate) columns: Vec<Column>,
    pub(crate) discovered: Vec<Column>,
    /// Name to place in `discovered`.
    pub(crate) names: BTreeMap<String, usize>,
}

/// Rows that are about to be spilled, immutable.
#[derive(Debug)]
pub struct MemRun {
    pub(crate) layout: Layout,
    pub(crate) rows: Rows,
}

impl MemRun {
    pub fn rows(&self) -> usize {
        self.rows.times.len()
    }
    /// As [`Index::bytes`].
    pub fn bytes(&self) -> usize {
        self.rows.bytes()
    }
}

impl Rows {
    fn of(layout: &Layout) -> Self {
        Self {
            columns: layout
                .columns
                .iter()
                .map(|column| Column::of(column.kind))
                .collect(),
            ..Self::default()
        }
    }

    fn bytes(&self) -> usize {
        let fixed = self.times.capacity() * 8 + self.partitions.capacity() * 4 + self.offsets.capacity() * 8;
        fixed
            + self
                .columns
                .iter()
                .chain(&self.discovered)
                .map(Column::bytes)
                .sum::<usize>()
    }
}

impl Index {
    pub fn new(layout: Layout) -> Self {
        Self {
            rows: Rows::of(&layout),
            layout,
            by_number: Vec::new(),
            scratch: String::new(),
        }
    }

    /// Adds an accepted row.
    #[inline]
    pub fn append(&mut self, partition: PartitionId, offset: Offset, row: &Row<'_>) {
        self.rows.times.push(row.time.0);
        self.rows.partitions.push(partition.0);
        self.rows.offsets.push(offset.0);
        for (number, column) in self.rows.columns.iter_mut().enumerate() {
            column.push(row.value(number));
        }
        for (number, name, value) in row.discovered() {
            self.discovered(number, name, value);
        }
    }

    fn discovered(&mut self, number: usize, name: &str, value: Value<'_>) {
        if self.by_number.len() <= number {
            self.by_number.resize(number + 1, None);
        }
        let place = if let Some(place) = self.by_number[number] {
            place
        } else {
            let place = self.rows.discovered.len();
            self.rows.discovered.push(Column::text());
            self.rows.names.insert(name.to_owned(), place);
            self.by_number[number] = Some(place);
            place
        };
        let before = self.rows.times.len() - 1;
        let column = &mut self.rows.discovered[place];
        column.fill(before);
        if self.layout.typed_discovery {
            column.push_marked(value, &mut self.scratch);
        } else {
            column.push(value);
        }
    }

    pub fn rows(&self) -> usize {
        self.rows.times.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.times.is_empty()
    }

    /// Bytes of memory that the rows take, capacity included.
    pub fn bytes(&self) -> usize {
        self.rows.bytes()
    }

    /// Takes all rows out; the index is empty afterwards and may be used again.
    pub fn take(&mut self) -> MemRun {
        let empty = Rows::of(&self.layout);
        let mut rows = std::mem::replace(&mut self.rows, empty);
        self.by_number.clear();
        let count = rows.times.len();
        for column in &mut rows.discovered {
            column.fill(count);
        }
        MemRun {
            layout: self.layout.clone(),
            rows,
        }
    }
}
