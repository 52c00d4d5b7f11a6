//! Instants in UTC milliseconds, and the range that is accepted.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::civil::{DAY, HOUR, MINUTE, SECOND, civil_from_days};
use crate::iso::parse_iso;

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

/// ISO-8601 with milliseconds, e.g. `2015-09-12T00:46:58.771Z`. Every instant has a text that reads back; years
/// beyond four digits are written out (`10000-01-01…`, `-9998-01-01…`).
impl fmt::Display for TimestampMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(self.0.div_euclid(DAY));
        let of_day = self.0.rem_euclid(DAY);
        let sign = if year < 0 { "-" } else { "" };
        write!(
            f,
            "{sign}{:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
            year.abs(),
            of_day / HOUR,
            of_day / MINUTE % 60,
            of_day / SECOND % 60,
            of_day % SECOND
        )
    }
}

/// A text that is no ISO-8601 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an ISO-8601 time, e.g. 2015-09-12T00:46:58.771Z")]
pub struct NotATime(pub String);

/// Every ISO-8601 form; without a zone it is UTC. The range is not checked.
impl FromStr for TimestampMillis {
    type Err = NotATime;

    fn from_str(text: &str) -> Result<Self, NotATime> {
        parse_iso(text.trim().as_bytes())
            .map(Self)
            .ok_or_else(|| NotATime(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_borders_are_the_instants_their_comments_say() {
        assert_eq!(TimestampMillis::MIN.to_string(), "-9998-01-01T00:00:00.000Z");
        assert_eq!(TimestampMillis::MAX.to_string(), "9999-12-30T00:00:00.000Z");
        assert!(TimestampMillis::MIN.is_in_range() && TimestampMillis::MAX.is_in_range());
        assert!(!TimestampMillis(TimestampMillis::MIN.0 - 1).is_in_range());
        assert!(!TimestampMillis(TimestampMillis::MAX.0 + 1).is_in_range());
    }

    #[test]
    fn every_instant_has_a_text_that_reads_back() {
        for millis in [
            i64::MIN,
            i64::MIN / 2,
            -1,
            0,
            1,
            1_442_018_818_771,
            253_402_300_800_000,
            i64::MAX,
        ] {
            let text = TimestampMillis(millis).to_string();
            assert_eq!(text.parse(), Ok(TimestampMillis(millis)), "{text}");
        }
        assert_eq!(
            TimestampMillis(1_442_018_818_771).to_string(),
            "2015-09-12T00:46:58.771Z"
        );
        assert_eq!(TimestampMillis(-1).to_string(), "1969-12-31T23:59:59.999Z");
    }
}
