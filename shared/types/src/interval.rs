//! Half-open time intervals in UTC milliseconds.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::time::TimestampMillis;

/// `[start, end)` in UTC milliseconds. Never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Interval {
    start: TimestampMillis,
    end: TimestampMillis,
}

impl Interval {
    /// `None` when the interval would be empty or backwards.
    pub fn new(start: TimestampMillis, end: TimestampMillis) -> Option<Self> {
        (start < end).then_some(Self { start, end })
    }
    pub fn start(self) -> TimestampMillis {
        self.start
    }
    pub fn end(self) -> TimestampMillis {
        self.end
    }
    pub fn contains(self, instant: TimestampMillis) -> bool {
        self.start <= instant && instant < self.end
    }
    pub fn encloses(self, other: Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }
}

/// ISO-8601 `start/end`.
impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.start, self.end)
    }
}
