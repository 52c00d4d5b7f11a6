//! Waiting between tries: doubles up to a bound. No randomness here; a shell may add some.

/// Milliseconds to wait before the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    first: u64,
    longest: u64,
    next: u64,
}

impl Backoff {
    pub fn new(first_millis: u64, longest_millis: u64) -> Self {
        Self {
            first: first_millis,
            longest: longest_millis,
            next: first_millis,
        }
    }
    /// The wait before the next try.
    pub fn wait(&mut self) -> u64 {
        let wait = self.next.min(self.longest);
        self.next = wait.saturating_mul(2).max(1);
        wait
    }
    /// Something succeeded: the next wait is short again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}
