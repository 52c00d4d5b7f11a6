//! The columns of a spilled run: time, declared dimensions, discovered dimensions by name, metrics, partition, offset.
//!
//! A run keeps every accepted row. Two runs of a segment may differ in their discovered columns only; [`RunSchema::union`]
//! brings them together.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use tidegate_decode::{ColumnKind, Layout};
use tidegate_spec::{DimensionKind, MetricKind};

use crate::SegmentError;
use crate::typed::Kinds;

/// Names that no dimension can have, for they hold a control character.
pub(crate) const TIME: &str = "\u{1}time";
pub(crate) const PARTITION: &str = "\u{1}partition";
pub(crate) const OFFSET: &str = "\u{1}offset";
/// Mark in front of a discovered column's name, and key of its kinds in the field's metadata.
const FOUND: char = '\u{2}';
const KINDS: &str = "tidegate.kinds";

/// Discovered columns of a run, by name.
pub(crate) type Found = BTreeMap<String, Kinds>;

/// The schema of a run's file, and what its columns are.
#[derive(Debug, Clone)]
pub(crate) struct RunSchema {
    pub(crate) layout: Layout,
    pub(crate) found: Found,
    pub(crate) arrow: SchemaRef,
}

/// Type of a column in runs and (but for typed discovery) in segments.
pub(crate) fn data_type(kind: ColumnKind) -> DataType {
    match kind {
        ColumnKind::Dimension(DimensionKind::String | DimensionKind::Json) => DataType::Utf8,
        ColumnKind::Dimension(DimensionKind::Long)
        | ColumnKind::Metric(
            MetricKind::Count | MetricKind::LongSum | MetricKind::LongMin | MetricKind::LongMax,
        ) => DataType::Int64,
        ColumnKind::Dimension(DimensionKind::Double | DimensionKind::Float)
        | ColumnKind::Metric(
            MetricKind::DoubleSum
            | MetricKind::DoubleMin
            | MetricKind::DoubleMax
            | MetricKind::FloatSum
            | MetricKind::FloatMin
            | MetricKind::FloatMax,
        ) => DataType::Float64,
    }
}

impl RunSchema {
    pub(crate) fn new(layout: Layout, found: Found) -> Self {
        let mut fields = vec![Field::new(TIME, DataType::Int64, false)];
        let declared = |dimension: bool| {
            layout
                .columns
                .iter()
                .filter(move |column| matches!(column.kind, ColumnKind::Dimension(_)) == dimension)
                .map(|column| Field::new(&column.name, data_type(column.kind), true))
        };
        fields.extend(declared(true));
        for (name, kinds) in &found {
            let kinds: String = [(kinds.long, 'l'), (kinds.double, 'd'), (kinds.other, 'o')]
                .iter()
                .filter(|(has, _)| *has)
                .map(|(_, c)| *c)
                .collect();
            let field = Field::new(format!("{FOUND}{name}"), DataType::Utf8, true);
            fields.push(field.with_metadata([(KINDS.to_owned(), kinds)].into()));
        }
        fields.extend(declared(false));
        fields.push(Field::new(PARTITION, DataType::Int32, false));
        fields.push(Field::new(OFFSET, DataType::Int64, false));
        Self {
            layout,
            found,
            arrow: Arc::new(Schema::new(fields)),
        }
    }

    /// What a file's schema says about discovered columns.
    pub(crate) fn found_in(schema: &Schema) -> Found {
        schema
            .fields()
            .iter()
            .filter_map(|field| {
                let name = field.name().strip_prefix(FOUND)?;
                let kinds = field
                    .metadata()
                    .get(KINDS)
                    .map(String::as_str)
                    .unwrap_or_default();
                let kinds = Kinds {
                    long: kinds.contains('l'),
                    double: kinds.contains('d'),
                    other: kinds.contains('o'),
                };
                Some((name.to_owned(), kinds))
            })
            .collect()
    }

    /// One schema for several runs of a segment.
    pub(crate) fn union(layout: &Layout, runs: impl Iterator<Item = Found>) -> Self {
        let mut all = Found::new();
        for (name, kinds) in runs.flatten() {
            let known = all.entry(name).or_default();
            *known = Kinds {
                long: known.long || kinds.long,
                double: known.double || kinds.double,
                other: known.other || kinds.other,
            };
        }
        Self::new(layout.clone(), all)
    }

    /// The batch with exactly these columns; those that it lacks are null.
    pub(crate) fn fit(&self, batch: &RecordBatch) -> Result<RecordBatch, SegmentError> {
        let columns: Vec<ArrayRef> = self
            .arrow
            .fields()
            .iter()
            .map(|field| match batch.column_by_name(field.name()) {
                Some(column) => Arc::clone(column),
                None => new_null_array(field.data_type(), batch.num_rows()),
            })
            .collect();
        Ok(RecordBatch::try_new(Arc::clone(&self.arrow), columns)?)
    }

    pub(crate) fn dimensions(&self) -> usize {
        self.layout.dimensions().count() + self.found.len()
    }

    /// Metrics with their positions.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = (usize, MetricKind)> + '_ {
        let first = 1 + self.dimensions();
        let kinds = self.layout.columns.iter().filter_map(|column| match column.kind {
            ColumnKind::Metric(kind) => Some(kind),
            ColumnKind::Dimension(_) => None,
        });
        kinds.enumerate().map(move |(index, kind)| (first + index, kind))
    }
}
