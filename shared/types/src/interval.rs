//! Half-open time intervals in UTC milliseconds.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::time::{NotATime, TimestampMillis};

/// `[start, end)` in UTC milliseconds. Never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "Borders", into = "Borders")]
pub struct Interval {
    start: TimestampMillis,
    end: TimestampMillis,
}

/// The stored form of an interval, not yet checked.
#[derive(Serialize, Deserialize)]
struct Borders {
    start: TimestampMillis,
    end: TimestampMillis,
}

impl Interval {
    /// All time: the bucket of granularity `ALL`, with the borders that the original uses. It holds every bucket
    /// of every granularity, and its length still fits in an `i64`.
    pub const ETERNITY: Self = Self {
        start: TimestampMillis(i64::MIN / 2),
        end: TimestampMillis(i64::MAX / 2),
    };

    pub(crate) const BEFORE_ALL_ROWS: Self = Self {
        start: TimestampMillis(i64::MIN),
        end: TimestampMillis(i64::MIN + 1),
    };

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

/// A text that is no interval.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAnInterval {
    #[error("{0:?} is not an interval: write start/end, e.g. 2024-01-01/2024-01-02")]
    NoSlash(String),
    #[error(transparent)]
    Time(#[from] NotATime),
    #[error("interval {0:?} is empty or backwards: its end must lie behind its start")]
    Empty(String),
}

/// Reads what `Display` writes, and every other ISO-8601 form of the two times.
impl FromStr for Interval {
    type Err = NotAnInterval;

    fn from_str(text: &str) -> Result<Self, NotAnInterval> {
        let shown = || text.chars().take(64).collect();
        let (start, end) = text
            .split_once('/')
            .ok_or_else(|| NotAnInterval::NoSlash(shown()))?;
        Self::new(start.parse()?, end.parse()?).ok_or_else(|| NotAnInterval::Empty(shown()))
    }
}

impl TryFrom<Borders> for Interval {
    type Error = NotAnInterval;

    fn try_from(Borders { start, end }: Borders) -> Result<Self, NotAnInterval> {
        Self::new(start, end).ok_or_else(|| NotAnInterval::Empty(format!("{start}/{end}")))
    }
}

impl From<Interval> for Borders {
    fn from(Interval { start, end }: Interval) -> Self {
        Self { start, end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_reads_back_from_its_text_and_from_its_document() {
        let day: Interval = "2015-09-12/2015-09-13".parse().unwrap();
        assert_eq!(
            day.to_string(),
            "2015-09-12T00:00:00.000Z/2015-09-13T00:00:00.000Z"
        );
        for interval in [day, Interval::ETERNITY] {
            assert_eq!(interval.to_string().parse(), Ok(interval));
            let document = serde_json::to_string(&interval).unwrap();
            assert_eq!(serde_json::from_str::<Interval>(&document).unwrap(), interval);
        }
        assert_eq!(
            Interval::ETERNITY.to_string(),
            "-146136543-09-08T08:23:32.096Z/146140482-04-24T15:36:27.903Z"
        );
    }

    #[test]
    fn an_empty_interval_cannot_be_read_from_anywhere() {
        assert!(serde_json::from_str::<Interval>(r#"{"start":5,"end":5}"#).is_err());
        for text in ["2015/2015", "2016/2015", "2015", "2015/x", "/"] {
            assert!(text.parse::<Interval>().is_err(), "{text}");
        }
    }
}
