//! The bounds of one reading thread, from the spec and from what the runner grants.

use std::time::Duration;

use tidegate_spec::TuningConfig;

/// Least memory for rows: below this a task would spend its time persisting.
const LEAST_MEMORY: u64 = 4 << 20;
const MOST_PREFETCH: u64 = 32 << 20;
const LEAST_PREFETCH: u64 = 1 << 20;

/// When to persist, and how much to hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Rows in memory that start a persist.
    pub(crate) rows: u64,
    /// Bytes of rows in memory that start a persist.
    pub(crate) bytes: u64,
    /// Persists that may wait behind the one under way before reading waits.
    pub(crate) pending: usize,
    /// Age of the oldest row in memory that starts a persist.
    pub(crate) period: Duration,
    /// Bytes of records that the consumer holds.
    pub(crate) prefetch: usize,
}

impl Bounds {
    /// `granted` = the task's share of the runner's memory. Rows in memory, rows of the persist under way, and rows
    /// of those that wait all fit into it together with the consumer's records (I8). A `maxBytesInMemory` in the
    /// spec is what starts a persist, as in the original, but never takes more than that share.
    pub(crate) fn of(tuning: &TuningConfig, granted: u64) -> Self {
        let prefetch = (granted / 8).clamp(LEAST_PREFETCH, MOST_PREFETCH);
        let generations = u64::from(tuning.max_pending_persists) + 2;
        let share = (granted.saturating_sub(prefetch) / generations).max(LEAST_MEMORY);
        let bytes = match tuning.max_bytes_in_memory {
            0 => share,
            asked => asked.min(share),
        };
        Self {
            rows: tuning.max_rows_in_memory.max(1),
            bytes,
            pending: tuning.max_pending_persists as usize,
            period: Duration::from_millis(tuning.intermediate_persist_period_millis.max(1)),
            prefetch: usize::try_from(prefetch).unwrap_or(usize::MAX),
        }
    }
}
