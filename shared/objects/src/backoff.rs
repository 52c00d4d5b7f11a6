//! Waiting between attempts.

use std::time::Duration;

/// Exponential waits with full jitter: each is uniform between half of the step and the step, so that many
/// uploaders that failed together do not come back together.
#[derive(Debug, Clone)]
pub struct Backoff {
    step: Duration,
    longest: Duration,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { step: first, longest }
    }

    /// How long to wait before the next attempt.
    pub fn next_wait(&mut self) -> Duration {
        let step = self.step.min(self.longest);
        self.step = step.saturating_mul(2);
        step.mul_f64(rand::random_range(0.5..=1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_one_and_are_never_less_than_half() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        for step in [100, 200, 350, 350] {
            let wait = backoff.next_wait();
            assert!(
                wait >= Duration::from_millis(step / 2) && wait <= Duration::from_millis(step),
                "{wait:?} {step}"
            );
        }
    }
}
