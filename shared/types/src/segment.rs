//! Segment ids.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{DataSource, InvalidId};
use crate::interval::Interval;

/// Version of an interval's segments: an ISO-8601 instant with milliseconds, so that text order is time order.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SegmentVersion(String);

impl SegmentVersion {
    /// Any text that is safe in an object key; allocation gives it the instant of the interval's first one.
    pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
        // The same rules as every text id; a version is part of a key too.
        DataSource::new(text)
            .map(|id| Self(id.into()))
            .map_err(|error| InvalidId {
                kind: "segment version",
                ..error
            })
    }
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SegmentVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// (data source, interval, version, partition number): one segment. Numbers grow by one within
/// (interval, version) and are never used again (D40).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SegmentId {
    pub data_source: DataSource,
    pub interval: Interval,
    pub version: SegmentVersion,
    pub partition_num: u32,
}

/// `<data source>_<start>_<end>_<version>` with `_<n>` only when n > 0 (the field's usual text form).
impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}_{}_{}_{}",
            self.data_source,
            self.interval.start(),
            self.interval.end(),
            self.version
        )?;
        if self.partition_num > 0 {
            write!(f, "_{}", self.partition_num)
        } else {
            Ok(())
        }
    }
}
