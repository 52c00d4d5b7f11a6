//! Time, by the wall clock and by what this process took of the cores.

use std::time::{Duration, Instant};

use anyhow::Result;

/// How long measuring may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    /// Each stage is run so often; the best run counts, for others use the machine too.
    pub(crate) repetitions: usize,
    /// No repetition is begun once a stage has taken this long.
    pub(crate) per_stage: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            repetitions: 3,
            per_stage: Duration::from_secs(8),
        }
    }
}

/// What some rows took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) rows: usize,
    pub(crate) wall: Duration,
    /// Of all threads of the process; `None` where the system does not tell.
    pub(crate) cpu: Option<Duration>,
}

impl Measured {
    pub(crate) fn per_second(&self) -> f64 {
        rate(self.rows, self.wall)
    }
    pub(crate) fn per_cpu_second(&self) -> Option<f64> {
        self.cpu.map(|cpu| rate(self.rows, cpu))
    }
}

fn rate(rows: usize, time: Duration) -> f64 {
    rows as f64 / time.as_secs_f64().max(1e-9)
}

/// Runs `act` on what `prepare` makes (which is not measured), several times.
pub(crate) fn best<T, R>(
    patience: Patience,
    rows: usize,
    mut prepare: impl FnMut() -> Result<T>,
    mut act: impl FnMut(T) -> Result<R>,
) -> Result<Measured> {
    let began = Instant::now();
    let mut best: Option<Measured> = None;
    for _ in 0..patience.repetitions.max(1) {
        if best.is_some() && began.elapsed() > patience.per_stage {
            break;
        }
        let prepared = prepare()?;
        let (cpu_before, start) = (process_cpu(), Instant::now());
        let made = act(prepared)?;
        let wall = start.elapsed();
        let cpu = process_cpu()
            .zip(cpu_before)
            .map(|(after, before)| after.saturating_sub(before));
        drop(made);
        let (wall, cpu) = match best {
            None => (wall, cpu),
            Some(best) => (wall.min(best.wall), cpu.zip(best.cpu).map(|(a, b)| a.min(b))),
        };
        best = Some(Measured { rows, wall, cpu });
    }
    best.ok_or_else(|| anyhow::anyhow!("nothing was measured"))
}

/// Time that this process has spent on cores, user and system, in steps of 10 ms.
fn process_cpu() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program stands in parentheses and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_repeated_on_fresh_input_until_patience_ends() {
        let (mut prepared, mut acted) = (0, 0);
        let patience = Patience {
            repetitions: 4,
            per_stage: Duration::from_mins(1),
        };
        let measured = best(
            patience,
            10,
            || {
                prepared += 1;
                Ok(prepared)
            },
            |n| {
                acted += n;
                Ok(())
            },
        )
        .unwrap();
        assert_eq!((prepared, acted, measured.rows), (4, 1 + 2 + 3 + 4, 10));
        let none = Patience {
            repetitions: 4,
            per_stage: Duration::ZERO,
        };
        let mut acted = 0;
        best(
            none,
            10,
            || Ok(()),
            |()| {
                acted += 1;
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(acted, 1);
    }

    #[test]
    fn a_rate_is_rows_by_seconds() {
        let measured = Measured {
            rows: 300,
            wall: Duration::from_secs(2),
            cpu: Some(Duration::from_secs(3)),
        };
        assert!((measured.per_second() - 150.0).abs() < 1e-9);
        assert!((measured.per_cpu_second().unwrap() - 100.0).abs() < 1e-9);
    }
}
