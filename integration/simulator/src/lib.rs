//! Deterministic simulation of the protocol, in legacy and in checkpointing mode.
//!
//! Owns: a world (a Kafka log, a metadata store with real transaction semantics, an object store, runners' disks) and a
//! seeded scheduler that delays, loses and repeats calls, crashes and restarts processes at every action
//! boundary, and moves the clock. The machines that run in it are the real ones. Promises: a seed gives the
//! same run, always; after each step the invariants I1-I5 and I9 are checked; with faults switched off at the end,
//! everything converges within a bounded number of steps. Must never: sleep, read a clock, or use a map whose order
//! depends on anything but its keys.

mod catalog;
mod coordinator;
mod log;
mod mutant;
mod runner;
mod schedule;
mod world;

use std::collections::BTreeMap;
use std::fmt;
use std::panic;

use tidegate_protocol::mutation;

pub use mutant::{Mutant, UnknownMutant};
pub use world::{Mode, Options};

/// What happened in one seed or in many: how often each transition and each fault was met.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage(pub BTreeMap<&'static str, u64>);

impl Coverage {
    pub(crate) fn hit(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }
    /// Transitions and faults that were never met; a simulation that does not meet them proves nothing about them.
    pub fn missing(&self) -> Vec<&'static str> {
        EXPECTED
            .iter()
            .copied()
            .filter(|what| !self.0.contains_key(what))
            .collect()
    }
}

/// Everything that a run over enough seeds must meet.
pub const EXPECTED: &[&str] = &[
    "coordinator crashed",
    "runner crashed",
    "runner cut off",
    "crashed between two actions",
    "runner silent beyond its time-out",
    "request lost",
    "answer lost",
    "answer of a commit lost",
    "request repeated",
    "publisher away",
    "upload failed",
    "published",
    "already published",
    "not yet",
    "fenced",
    "superseded",
    "group created",
    "decision logged",
    "task restored",
    "task replaced",
    "handoff confirmed",
    "partition added",
    "suspended",
    "resumed",
    "new spec",
    "reset",
    "empty publish",
    "local files lost",
    "checkpoint decided",
    "checkpoint asked by a person",
    "told to read on",
    "published while reading",
    "log trimmed",
    "closed by its period",
    "several sequences behind",
    "leader overtaken",
    "a stale leader's write refused",
    "a stale leader's call refused",
    "task prepared",
    "prepared task begins",
    "prepared task dropped",
];

/// A seed whose run broke an invariant or did not converge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub seed: u64,
    pub step: u64,
    pub what: String,
    /// The last events, oldest first.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        write!(
            f,
            "seed {} failed at step {}: {}",
            self.seed, self.step, self.what
        )
    }
}

impl std::error::Error for Failure {}

/// Runs one seed to its end.
pub fn run(seed: u64, options: Options) -> Result<Coverage, Box<Failure>> {
    mutation::set(options.mutant.and_then(Mutant::inside));
    // A debug assertion inside a machine is a find like any other.
    let result = if options.mutant.is_some() {
        panic::catch_unwind(|| world::World::new(seed, options).run())
    } else {
        Ok(world::World::new(seed, options).run())
    };
    mutation::set(None);
    result.unwrap_or_else(|cause| {
        let text = cause
            .downcast_ref::<String>()
            .cloned()
            .unwrap_or_else(|| "an assertion of a machine".to_owned());
        Err(Box::new(Failure {
            seed,
            step: 0,
            what: text,
            trace: Vec::new(),
        }))
    })
}

/// Runs seeds `from .. from + seeds`; stops at the first failure.
pub fn run_many(from: u64, seeds: u64, options: Options) -> Result<Coverage, Box<Failure>> {
    let mut coverage = Coverage::default();
    for seed in from..from.saturating_add(seeds) {
        coverage.add(&run(seed, options)?);
    }
    Ok(coverage)
}
