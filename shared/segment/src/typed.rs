//! Discovered columns with types: each value keeps its own type until the whole segment is known, so the column's
//! type does not depend on the order of rows or on where spills were cut (B12).
//!
//! Until then a value is text with a mark in front: `l` long, `d` double, `s` text, `j` nested JSON.
//! Widening: only longs = Int64; longs and doubles = Float64; anything else = text (a number as its JSON text).

use std::fmt::Write as _;

use tidegate_decode::Value;

/// Kinds of values that a column has met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    pub(crate) long: bool,
    pub(crate) double: bool,
    pub(crate) other: bool,
}

/// Type of a finished column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Widened {
    Long,
    Double,
    Text,
}

impl Kinds {
    pub(crate) fn add(&mut self, marked: &str) {
        match marked.as_bytes().first() {
            Some(b'l') => self.long = true,
            Some(b'd') => self.double = true,
            _ => self.other = true,
        }
    }
    pub(crate) fn widened(self) -> Widened {
        match (self.other, self.double) {
            (true, _) => Widened::Text,
            (false, true) => Widened::Double,
            (false, false) => Widened::Long,
        }
    }
}

/// Writes a value with its mark.
pub(crate) fn mark(value: Value<'_>, out: &mut String) {
    out.clear();
    // Writing to a String does not fail.
    let _ = match value {
        Value::Null => Ok(()),
        Value::Long(value) => write!(out, "l{value}"),
        Value::Double(value) => write!(out, "d{value:?}"),
        Value::Text(value) => write!(out, "s{value}"),
        Value::Json(value) => write!(out, "j{value}"),
    };
}

/// The value without its mark, as text.
pub(crate) fn text(marked: &str) -> &str {
    marked.get(1..).unwrap_or_default()
}
