//! How a partition's next offset moves, and when its range is complete.
//!
//! A range is complete when a record at or behind its end is delivered, when the log's end is reported at or
//! behind it, or when the broker has nothing older than it any more (then it is a lost range). The number of
//! delivered records says nothing: logs have gaps, and transaction markers are offsets that are never
//! delivered (D48, B17, B18).

use tidegate_types::{Offset, OffsetRange};

/// What a consumer reports about one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// A record with this offset was delivered.
    Record(Offset),
    /// Everything below this offset was delivered or will never be (aborted, compacted, markers).
    EndOfLog(Offset),
    /// The broker keeps nothing below this offset.
    LowWatermark(Offset),
}

/// What that means for the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Take the record; the next offset is the given one.
    Take { next: Offset },
    /// A record that was taken before (the consumer was put back): leave it.
    Behind,
    /// The next offset moved without a record.
    Moved { next: Offset },
    /// The range is complete. With `lost`, these offsets were never seen and never will be.
    Complete { next: Offset, lost: Option<OffsetRange> },
    /// These offsets are gone, and the range goes on behind them: stand still, say so (B21).
    Expired { lost: OffsetRange },
    /// Nothing to do.
    Same,
}

/// What `seen` means for a partition that was read up to `next`, with an end or (`None`) without one.
pub fn progress(next: Offset, end: Option<Offset>, seen: Seen) -> Progress {
    let end = end.unwrap_or(Offset::OPEN);
    let is_at_end = |offset: Offset| !end.is_open() && offset >= end;
    if is_at_end(next) {
        return Progress::Complete { next, lost: None };
    }
    match seen {
        Seen::Record(offset) if offset < next => Progress::Behind,
        Seen::Record(offset) if is_at_end(offset) => Progress::Complete {
            next: end,
            lost: None,
        },
        Seen::Record(offset) => Progress::Take { next: offset.next() },
        Seen::EndOfLog(offset) if is_at_end(offset) => Progress::Complete {
            next: end,
            lost: None,
        },
        Seen::EndOfLog(offset) if offset > next => Progress::Moved { next: offset },
        Seen::LowWatermark(low) if is_at_end(low) => Progress::Complete {
            next: end,
            lost: Some(OffsetRange { start: next, end }),
        },
        Seen::LowWatermark(low) if low > next => Progress::Expired {
            lost: OffsetRange {
                start: next,
                end: low,
            },
        },
        Seen::EndOfLog(_) | Seen::LowWatermark(_) => Progress::Same,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b17_b18_a_range_is_complete_by_what_the_consumer_passed_not_by_what_it_delivered() {
        let (low, high) = (Offset(3), Offset(9));
        let lost = OffsetRange {
            start: Offset(5),
            end: high,
        };
        for (next, end, seen, expected) in [
            (
                5,
                Some(9),
                Seen::Record(Offset(5)),
                Progress::Take { next: Offset(6) },
            ),
            (
                5,
                Some(9),
                Seen::Record(Offset(7)),
                Progress::Take { next: Offset(8) },
            ),
            (5, Some(9), Seen::Record(Offset(4)), Progress::Behind),
            (
                5,
                Some(9),
                Seen::Record(Offset(9)),
                Progress::Complete {
                    next: high,
                    lost: None,
                },
            ),
            (
                5,
                Some(9),
                Seen::Record(Offset(20)),
                Progress::Complete {
                    next: high,
                    lost: None,
                },
            ),
            (
                5,
                Some(9),
                Seen::EndOfLog(Offset(9)),
                Progress::Complete {
                    next: high,
                    lost: None,
                },
            ),
            (
                5,
                Some(9),
                Seen::EndOfLog(Offset(12)),
                Progress::Complete {
                    next: high,
                    lost: None,
                },
            ),
            (
                5,
                Some(9),
                Seen::EndOfLog(Offset(8)),
                Progress::Moved { next: Offset(8) },
            ),
            (
                5,
                None,
                Seen::EndOfLog(Offset(12)),
                Progress::Moved { next: Offset(12) },
            ),
            (5, None, Seen::EndOfLog(low), Progress::Same),
            (
                5,
                Some(9),
                Seen::LowWatermark(Offset(9)),
                Progress::Complete {
                    next: high,
                    lost: Some(lost),
                },
            ),
            (5, Some(9), Seen::LowWatermark(Offset(5)), Progress::Same),
            (
                9,
                Some(9),
                Seen::LowWatermark(Offset(0)),
                Progress::Complete {
                    next: high,
                    lost: None,
                },
            ),
        ] {
            assert_eq!(
                progress(Offset(next), end.map(Offset), seen),
                expected,
                "{next} {end:?} {seen:?}"
            );
        }
    }

    #[test]
    fn b21_expired_records_before_the_end_are_never_jumped_over() {
        let lost = OffsetRange {
            start: Offset(5),
            end: Offset(7),
        };
        for end in [None, Some(Offset(9)), Some(Offset::OPEN)] {
            assert_eq!(
                progress(Offset(5), end, Seen::LowWatermark(Offset(7))),
                Progress::Expired { lost }
            );
        }
    }
}
