//! Rows to segments: in-memory index, sorted spilled runs, bounded fan-in merge with roll-up, Parquet.
//!
//! Owns: the layout of a run on disk and of a segment file, and the roll-up rules. Promises: a segment's logical rows
//! are a function of its input rows alone — not of their order in memory, of where spills were cut, or of how many
//! merge passes there were (I3); memory is accounted for and bounded; nothing here fails on content. Must never:
//! know about tasks, Kafka or object stores.
//!
//! The walk: [`Index::append`] → [`Index::take`] → [`persist`] → [`merge`].

mod aggregate;
mod column;
mod dictionary;
mod error;
mod index;
mod merge;
mod merging;
mod meta;
mod persist;
mod plain;
mod roll_up;
mod row_order;
mod run_schema;
mod typed;
mod writer;

pub use error::SegmentError;
pub use index::{Index, MemRun};
pub use merge::{MergeSettings, merge};
pub use meta::{SegmentFile, SegmentMeta, WRITER_VERSION};
pub use persist::{RunInfo, persist, verify};
