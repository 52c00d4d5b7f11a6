//! Instants in UTC milliseconds, and the range that is accepted.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TimestampMillis(pub i64);

impl TimestampMillis {
    /// -9998-01-01T00:00:00Z: the first instant of a row that is accepted (B02).
    pub const MIN: Self = Self(-377_673_580_800_000);
    /// 9999-12-30T00:00:00Z: the last instant of a row that is accepted (B02); the margin lets every
    /// granularity and time zone compute its bucket without overflow.
    pub const MAX: Self = Self(253_402_128_000_000);

    /// True for a row time that is accepted.
    pub fn is_in_range(self) -> bool {
        (Self::MIN..=Self::MAX).contains(&self)
    }
}

/// ISO-8601 with milliseconds, e.g. `2015-09-12T00:46:58.771Z`; the number itself when out of range.
impl fmt::Display for TimestampMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(instant) => write!(f, "{instant:.3}"),
            Err(_) => write!(f, "{}ms", self.0),
        }
    }
}
