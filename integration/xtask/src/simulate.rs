//! `cargo xtask simulate`: many schedules of the deterministic simulator, with what they met.

use std::time::Instant;

use anyhow::{Result, bail};
use tidegate_simulator::{Coverage, Mutant, Options, run, run_many};

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Simulate {
    /// Schedules to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// Seed of the first one.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Put this mistake in: the run must fail then.
    #[arg(long)]
    mutant: Option<Mutant>,
}

/// Between two lines of progress.
const LINES: u64 = 250;

impl Simulate {
    /// Fails on the first seed that breaks an invariant; with a mutant, when no seed does.
    pub(crate) fn run(&self) -> Result<()> {
        let options = Options {
            mutant: self.mutant,
            ..Options::default()
        };
        let began = Instant::now();
        let mut coverage = Coverage::default();
        for (done, seed) in (self.from..self.from.saturating_add(self.seeds)).enumerate() {
            match (run(seed, options), self.mutant) {
                (Ok(met), _) => coverage.add(&met),
                (Err(failure), Some(mutant)) => {
                    println!(
                        "{mutant} is found: seed {} at step {}: {}",
                        failure.seed, failure.step, failure.what
                    );
                    return Ok(());
                }
                (Err(failure), None) => bail!("{failure}"),
            }
            let done = done as u64 + 1;
            if done.is_multiple_of(LINES) {
                eprintln!(
                    "{done} of {} schedules, {:.0}/s",
                    self.seeds,
                    done as f64 / began.elapsed().as_secs_f64()
                );
            }
        }
        if let Some(mutant) = self.mutant {
            bail!(
                "{mutant} is not found by the seeds {} to {}",
                self.from,
                self.from + self.seeds
            );
        }
        for (what, times) in &coverage.0 {
            println!("{times:>10} {what}");
        }
        let rate = self.seeds as f64 / began.elapsed().as_secs_f64();
        println!("{} schedules, {rate:.0}/s, every invariant held", self.seeds);
        let missing = coverage.missing();
        if !missing.is_empty() {
            println!("not met (more seeds may): {}", missing.join(", "));
        }
        Ok(())
    }
}

/// Which seeds are tried.
#[derive(Debug, clap::Args)]
pub(crate) struct Mutants {
    /// Seeds within which each must be found.
    #[arg(long, default_value_t = 2_000)]
    seeds: u64,
}

impl Mutants {
    /// Fails when one is not found.
    pub(crate) fn run(&self) -> Result<()> {
        // An assertion inside a machine is a find; its message is told here.
        std::panic::set_hook(Box::new(|_| {}));
        let mut survivors = Vec::new();
        for mutant in Mutant::ALL {
            let options = Options {
                mutant: Some(*mutant),
                ..Options::default()
            };
            match run_many(0, self.seeds, options) {
                Ok(_) => {
                    println!("{mutant:<28} not found");
                    survivors.push(mutant.name());
                }
                Err(failure) => {
                    let what: String = failure.what.chars().take(100).collect();
                    println!("{:<28} seed {:>5}: {what}", mutant.name(), failure.seed);
                }
            }
        }
        let _default = std::panic::take_hook();
        if survivors.is_empty() {
            println!("all {} are found", Mutant::ALL.len());
            return Ok(());
        }
        bail!("not found within {} seeds: {}", self.seeds, survivors.join(", "))
    }
}
