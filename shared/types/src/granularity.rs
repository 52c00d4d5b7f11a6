//! Time buckets: named granularities, ISO periods, time zones.

use crate::interval::Interval;
use crate::time::TimestampMillis;

/// How time is cut into buckets.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Granularity {
    /// No cut at all: every instant is its own bucket.
    None,
    /// One bucket for all time.
    All,
}

impl Granularity {
    /// The bucket that holds `instant`; `None` when its borders cannot be represented.
    pub fn bucket(&self, instant: TimestampMillis) -> Option<Interval> {
        let end = TimestampMillis(instant.0.checked_add(1)?);
        match self {
            Self::None => Interval::new(instant, end),
            Self::All => Interval::new(TimestampMillis::MIN, TimestampMillis::MAX),
        }
    }
}
