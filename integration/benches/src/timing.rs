//! Rows per second.

use std::time::{Duration, Instant};

use anyhow::Result;

#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Rate(pub(crate) f64);

/// How much work took how long.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) rows: usize,
    pub(crate) took: Duration,
}

impl Measured {
    pub(crate) fn since(start: Instant, rows: usize) -> Self {
        Self {
            rows,
            took: start.elapsed(),
        }
    }
}

impl Rate {
    pub(crate) fn best_of(times: usize, mut measure: impl FnMut() -> Result<Measured>) -> Result<Self> {
        let mut best = Self(0.0);
        for _ in 0..times {
            let Measured { rows, took } = measure()?;
            let rate = rows as f64 / took.as_secs_f64().max(1e-9);
            best = Self(best.0.max(rate));
        }
        Ok(best)
    }

    pub(crate) fn rounded(self) -> u64 {
        self.0.round() as u64
    }
}

/// The rate of one worker that does these one after the other.
pub(crate) fn in_series(rates: &[Rate]) -> Rate {
    Rate(1.0 / rates.iter().map(|rate| 1.0 / rate.0).sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_equal_stages_in_series_are_half_as_fast() {
        assert_eq!(in_series(&[Rate(4.0), Rate(4.0)]), Rate(2.0));
    }

    #[test]
    fn the_best_of_several_counts() {
        let mut took = [4_u64, 1, 2].into_iter();
        let rate = Rate::best_of(3, || {
            Ok(Measured {
                rows: 8,
                took: Duration::from_secs(took.next().unwrap()),
            })
        });
        assert_eq!(rate.unwrap(), Rate(8.0));
    }
}
