//! What a segment file says about itself, and what is said about it.

use std::path::PathBuf;

use parquet::file::metadata::KeyValue;
use tidegate_types::{PartitionOffsets, SegmentId, SequenceName};

/// Version of the code that writes segment files.
pub const WRITER_VERSION: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"));

/// Goes into the file's key-value metadata, each under `tidegate.<name>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentMeta {
    pub id: SegmentId,
    pub sequence: SequenceName,
    /// First accepted row of each partition (inclusive).
    pub first_offsets: PartitionOffsets,
    /// Behind the last accepted row of each partition (exclusive).
    pub end_offsets: PartitionOffsets,
    /// Rows before roll-up.
    pub input_rows: u64,
}

impl SegmentMeta {
    pub(crate) fn key_values(&self, rows: u64) -> Vec<KeyValue> {
        let id = &self.id;
        [
            ("data_source", id.data_source.to_string()),
            ("interval", id.interval.to_string()),
            ("version", id.version.to_string()),
            ("partition_num", id.partition_num.to_string()),
            ("sequence", self.sequence.to_string()),
            ("first_offsets", self.first_offsets.to_string()),
            ("end_offsets", self.end_offsets.to_string()),
            ("rows", rows.to_string()),
            ("input_rows", self.input_rows.to_string()),
            ("writer_version", WRITER_VERSION.to_owned()),
        ]
        .into_iter()
        .map(|(key, value)| KeyValue::new(format!("tidegate.{key}"), value))
        .collect()
    }
}

/// A finished file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFile {
    pub path: PathBuf,
    /// Rows in the file, after roll-up.
    pub rows: u64,
    pub size_bytes: u64,
    /// SHA-256 of the file, lower-case hex.
    pub sha256: String,
}
