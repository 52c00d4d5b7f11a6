//! Bytes to rows of typed columns: no per-row heap tree.
//!
//! Owns: the rules by which a record becomes a row, or does not (`docs/decoding.md` states them). Promises: each
//! record is decoded from a clean state and ends in exactly one [`Outcome`]; whatever can fail on its content
//! fails here, so nothing behind this can (B06); a failure leaves no value, no half row and no half-registered
//! column behind (B04); no bytes make it panic. Must never: keep a reference into a record after its turn.

mod convert;
mod decoder;
mod fields;
mod json_text;
mod layout;
mod path;

pub use decoder::{Decoder, Outcome, Row, TimeBounds, Unparseable};
pub use layout::{ColumnKind, ColumnLayout, Layout};

/// Version of these rules. Frozen per task group: a group's rows are a function of its offsets and of this (I3).
pub const DECODE_VERSION: u32 = 1;

/// The spec asks for something that this decoder cannot do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecoderError {
    #[error("timestampSpec.format {pattern:?} is not a pattern: {reason}")]
    Pattern { pattern: String, reason: String },
}

/// A value of a row; text borrows from the record or from the decoder, until the next record.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    Null,
    Text(&'a str),
    Long(i64),
    Double(f64),
    /// A nested value as JSON text (typed discovery only; a declared json column has [`Value::Text`]).
    Json(&'a str),
}
