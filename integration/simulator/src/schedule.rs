//! What is under way, in order of time; ties in order of sending.

use std::collections::BTreeMap;

use tidegate_types::TimestampMillis;

/// A queue of things that will happen.
#[derive(Debug)]
pub(crate) struct Schedule<T> {
    queue: BTreeMap<(i64, u64), T>,
    sent: u64,
    pub(crate) now: TimestampMillis,
}

impl<T> Schedule<T> {
    pub(crate) fn new(now: TimestampMillis) -> Self {
        Self {
            queue: BTreeMap::new(),
            sent: 0,
            now,
        }
    }

    pub(crate) fn after(&mut self, millis: i64, what: T) {
        self.sent += 1;
        self.queue.insert((self.now.0 + millis.max(0), self.sent), what);
    }

    /// The next thing; the clock moves to its time.
    pub(crate) fn next(&mut self) -> Option<T> {
        let ((at, _), what) = self.queue.pop_first()?;
        self.now = TimestampMillis(self.now.0.max(at));
        Some(what)
    }
}
