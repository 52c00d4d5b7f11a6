//! The columns of a row, in the order in which they are stored: declared dimensions, then metrics. Discovered
//! dimensions come beside them, by name.

use tidegate_spec::{DataSchema, DimensionKind, MetricKind};

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ColumnKind {
    Dimension(DimensionKind),
    Metric(MetricKind),
}

/// One declared column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColumnLayout {
    pub name: String,
    pub kind: ColumnKind,
}

/// The declared columns, and whether more may be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Dimensions in the order of the spec (the sort order behind time), then metrics.
    pub columns: Vec<ColumnLayout>,
    pub rollup: bool,
    /// Discovered dimensions have types of their own instead of being text.
    pub typed_discovery: bool,
}

impl Layout {
    pub fn of(schema: &DataSchema) -> Self {
        let dimensions = schema.dimensions.dimensions.iter().map(|dimension| ColumnLayout {
            name: dimension.name.clone(),
            kind: ColumnKind::Dimension(dimension.kind),
        });
        let metrics = schema.metrics.iter().map(|metric| ColumnLayout {
            name: metric.name.clone(),
            kind: ColumnKind::Metric(metric.kind),
        });
        Self {
            columns: dimensions.chain(metrics).collect(),
            rollup: schema.granularity.rollup,
            typed_discovery: schema.dimensions.typed_discovery,
        }
    }

    pub fn dimensions(&self) -> impl Iterator<Item = &ColumnLayout> {
        self.columns
            .iter()
            .filter(|column| matches!(column.kind, ColumnKind::Dimension(_)))
    }
}
