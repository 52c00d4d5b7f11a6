//! A column of the in-memory index.

use std::cell::{Cell, OnceCell};
use std::cmp::Ordering;

use tidegate_decode::{ColumnKind, Value};
use tidegate_spec::{DimensionKind, MetricKind};

use crate::dictionary::{Dictionary, NULL};
use crate::typed;

/// One value per row, filled up with nulls for rows that had none.
#[derive(Debug)]
pub(crate) enum Column {
    Text { codes: Vec<u32>, values: Dictionary },
    Long { values: Vec<i64>, valid: Vec<bool> },
    Double { values: Vec<f64>, valid: Vec<bool> },
}

impl Column {
    pub(crate) fn of(kind: ColumnKind) -> Self {
        match kind {
            ColumnKind::Dimension(DimensionKind::String | DimensionKind::Json) => Self::text(),
            ColumnKind::Dimension(DimensionKind::Long)
            | ColumnKind::Metric(
                MetricKind::Count | MetricKind::LongSum | MetricKind::LongMin | MetricKind::LongMax,
            ) => Self::Long {
                values: Vec::new(),
                valid: Vec::new(),
            },
            ColumnKind::Dimension(DimensionKind::Float | DimensionKind::Double)
            | ColumnKind::Metric(
                MetricKind::DoubleSum
                | MetricKind::DoubleMin
                | MetricKind::DoubleMax
                | MetricKind::FloatSum
                | MetricKind::FloatMin
                | MetricKind::FloatMax,
            ) => Self::Double {
                values: Vec::new(),
                valid: Vec::new(),
            },
        }
    }

    pub(crate) fn text() -> Self {
        Self::Text {
            codes: Vec::new(),
            values: Dictionary::default(),
        }
    }

    #[inline]
    pub(crate) fn push(&mut self, value: Value<'_>) {
        match (self, value) {
            (Self::Text { codes, values }, Value::Text(text) | Value::Json(text)) => {
                codes.push(values.code(text));
            }
            (Self::Text { codes, .. }, Value::Null | Value::Long(_) | Value::Double(_)) => codes.push(NULL),
            (Self::Long { values, valid }, Value::Long(value)) => {
                values.push(value);
                valid.push(true);
            }
            (
                Self::Long { values, valid },
                Value::Null | Value::Double(_) | Value::Text(_) | Value::Json(_),
            ) => {
                values.push(0);
                valid.push(false);
            }
            (Self::Double { values, valid }, Value::Double(value)) => {
                values.push(value);
                valid.push(true);
            }
            (
                Self::Double { values, valid },
                Value::Null | Value::Long(_) | Value::Text(_) | Value::Json(_),
            ) => {
                values.push(0.0);
                valid.push(false);
            }
        }
    }

    /// A value of a discovered column with a type of its own.
    pub(crate) fn push_marked(&mut self, value: Value<'_>, scratch: &mut String) {
        typed::mark(value, scratch);
        self.push(if value == Value::Null {
            Value::Null
        } else {
            Value::Text(scratch)
        });
    }

    /// Nulls up to so many rows.
    pub(crate) fn fill(&mut self, rows: usize) {
        match self {
            Self::Text { codes, .. } => codes.resize(rows, NULL),
            Self::Long { values, valid } => {
                values.resize(rows, 0);
                valid.resize(rows, false);
            }
            Self::Double { values, valid } => {
                values.resize(rows, 0.0);
                valid.resize(rows, false);
            }
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Text { codes, values } => codes.capacity() * 4 + values.bytes(),
            Self::Long { values, valid } => values.capacity() * 8 + valid.capacity(),
            Self::Double { values, valid } => values.capacity() * 8 + valid.capacity(),
        }
    }

    /// What rows of this column are compared by; null comes first.
    pub(crate) fn order(&self) -> Order<'_> {
        match self {
            Self::Text { codes, values } => Order::Text {
                codes,
                values,
                ranks: OnceCell::new(),
                compared: Cell::new(0),
            },
            Self::Long { values, valid } => Order::Long { values, valid },
            Self::Double { values, valid } => Order::Double { values, valid },
        }
    }
}

/// See [`Column::order`].
pub(crate) enum Order<'c> {
    Text {
        codes: &'c [u32],
        values: &'c Dictionary,
        /// Ranks cost a sort of all values. Time decides mostly, so they are made only once more texts have been
        /// compared than there are.
        ranks: OnceCell<Vec<u32>>,
        compared: Cell<usize>,
    },
    Long {
        values: &'c [i64],
        valid: &'c [bool],
    },
    Double {
        values: &'c [f64],
        valid: &'c [bool],
    },
}

impl Order<'_> {
    #[inline]
    pub(crate) fn compare(&self, a: usize, b: usize) -> Ordering {
        match self {
            Self::Text {
                codes,
                values,
                ranks,
                compared,
            } => {
                let (a, b) = (codes[a], codes[b]);
                if a == b {
                    return Ordering::Equal;
                }
                if ranks.get().is_none() && compared.replace(compared.get() + 1) < values.len() {
                    return values.compare(a, b);
                }
                let ranks = ranks.get_or_init(|| values.ranks());
                ranks[a as usize].cmp(&ranks[b as usize])
            }
            Self::Long { values, valid } => valid[a].cmp(&valid[b]).then_with(|| values[a].cmp(&values[b])),
            Self::Double { values, valid } => valid[a]
                .cmp(&valid[b])
                .then_with(|| values[a].total_cmp(&values[b])),
        }
    }
}
