//! When the open sequence has grown enough to be closed.

use tidegate_protocol::task::{Filled, Trigger};
use tidegate_spec::TuningConfig;

/// The bounds of the spec.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Thresholds {
    rows: u64,
    total_rows: u64,
    bytes: u64,
}

impl Thresholds {
    pub(crate) fn of(tuning: &TuningConfig) -> Self {
        Self {
            rows: tuning.max_rows_per_segment.max(1),
            total_rows: tuning.max_total_rows.unwrap_or(u64::MAX),
            bytes: tuning.max_bytes_per_segment.unwrap_or(u64::MAX),
        }
    }

    /// After a record: `filled` is the segment that it went to, `in_sequence` the rows of the whole sequence.
    pub(crate) fn reached(self, filled: Filled, in_sequence: u64) -> Option<Trigger> {
        if filled.rows >= self.rows {
            Some(Trigger::Rows)
        } else if in_sequence >= self.total_rows {
            Some(Trigger::TotalRows)
        } else if filled.bytes >= self.bytes {
            Some(Trigger::Bytes)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whichever_bound_is_reached_first_closes_the_sequence() {
        let bounds = Thresholds {
            rows: 10,
            total_rows: 15,
            bytes: 1_000,
        };
        let filled = |rows, bytes| Filled { rows, bytes };
        for (segment, in_sequence, expected) in [
            (filled(9, 999), 14, None),
            (filled(10, 0), 10, Some(Trigger::Rows)),
            (filled(9, 0), 15, Some(Trigger::TotalRows)),
            (filled(1, 1_000), 1, Some(Trigger::Bytes)),
            (filled(0, 0), 0, None),
        ] {
            assert_eq!(bounds.reached(segment, in_sequence), expected);
        }
    }
}
