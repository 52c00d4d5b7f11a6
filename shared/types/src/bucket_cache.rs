//! Buckets for the hot path: rows mostly fall into the bucket of the row before.
//!
//! Promises: the same answers as [`Granularity::bucket`], no allocation, a couple of integer operations for
//! buckets of fixed length and for a repeated bucket of any kind.

use crate::granularity::Granularity;
use crate::interval::Interval;
use crate::time::TimestampMillis;

/// A granularity that remembers its last bucket.
#[derive(Debug, Clone)]
pub struct BucketCache {
    granularity: Granularity,
    /// `(length, anchor)` when flooring is plain arithmetic.
    fixed: Option<(i64, i64)>,
    last: Interval,
}

impl BucketCache {
    pub fn new(granularity: Granularity) -> Self {
        let fixed = granularity.fixed();
        // A bucket of one millisecond that no row can be in.
        let last = Interval::BEFORE_ALL_ROWS;
        Self {
            granularity,
            fixed,
            last,
        }
    }

    pub fn granularity(&self) -> &Granularity {
        &self.granularity
    }

    /// The bucket that holds `instant`, as [`Granularity::bucket`].
    #[inline]
    pub fn bucket(&mut self, instant: TimestampMillis) -> Option<Interval> {
        if self.last.contains(instant) {
            return Some(self.last);
        }
        let bucket = match self.fixed {
            // In range, nothing below can overflow: a bucket is at most 10,000 years long.
            Some((length, anchor)) if instant.is_in_range() => {
                let start = instant.0 - (instant.0 - anchor).rem_euclid(length);
                Interval::new(TimestampMillis(start), TimestampMillis(start + length))
            }
            _ => self.granularity.bucket(instant),
        }?;
        self.last = bucket;
        Some(bucket)
    }
}

/// Segment interval and floored time of a row, by segment and query granularity.
#[derive(Debug, Clone)]
pub struct RowPlacer {
    segment: BucketCache,
    query: BucketCache,
}

/// Where a row belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// Bucket of the segment granularity.
    pub segment: Interval,
    /// Time of the row floored to the query granularity, but never before its segment nor before the first
    /// accepted time (a query granularity of `ALL` floors to the start of the segment).
    pub time: TimestampMillis,
}

impl RowPlacer {
    pub fn new(segment: Granularity, query: Granularity) -> Self {
        Self {
            segment: BucketCache::new(segment),
            query: BucketCache::new(query),
        }
    }

    /// `None` when the time is out of the accepted range.
    #[inline]
    pub fn place(&mut self, instant: TimestampMillis) -> Option<Placed> {
        if !instant.is_in_range() {
            return None;
        }
        let segment = self.segment.bucket(instant)?;
        let floored = match self.query.granularity {
            Granularity::None => instant,
            _ => self.query.bucket(instant)?.start(),
        };
        Some(Placed {
            segment,
            time: floored.max(segment.start()).max(TimestampMillis::MIN),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_bucket_that_begins_before_the_segment_is_cut_at_its_start() {
        let noon: TimestampMillis = "2024-05-05T12:34:56.789Z".parse().unwrap();
        let day: TimestampMillis = "2024-05-05T00:00Z".parse().unwrap();
        for (query, time) in [
            (Granularity::All, "2024-05-05T00:00:00.000Z"),
            (Granularity::Year, "2024-05-05T00:00:00.000Z"),
            (Granularity::Minute, "2024-05-05T12:34:00.000Z"),
            (Granularity::None, "2024-05-05T12:34:56.789Z"),
        ] {
            let placed = RowPlacer::new(Granularity::Day, query).place(noon).unwrap();
            assert_eq!(
                (placed.segment.start(), placed.time.to_string().as_str()),
                (day, time)
            );
        }
        let eternal = RowPlacer::new(Granularity::All, Granularity::All)
            .place(noon)
            .unwrap();
        assert_eq!(eternal.time, TimestampMillis::MIN);
    }

    #[test]
    fn a_row_outside_the_accepted_times_has_no_place() {
        let mut placer = RowPlacer::new(Granularity::Hour, Granularity::None);
        for millis in [
            i64::MIN,
            i64::MAX,
            TimestampMillis::MIN.0 - 1,
            TimestampMillis::MAX.0 + 1,
        ] {
            assert_eq!(placer.place(TimestampMillis(millis)), None);
        }
        assert!(placer.place(TimestampMillis::MIN).is_some());
        assert!(placer.place(TimestampMillis::MAX).is_some());
    }
}
