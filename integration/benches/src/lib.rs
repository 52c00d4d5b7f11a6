//! Benchmarks of the hot path: stages alone and together, as ratios of one run.
//!
//! Owns: what is measured, on what data, and how it is told. Promises: every stage and the whole see the same
//! records; a run whose rows do not all end in segments is an error, not a number; it ends within two minutes.
//! Must never: change what it measures; absolute figures depend on the machine, ratios are what counts.

mod events;
mod measure;
mod report;
mod stages;
mod task;
mod together;
mod workload;

use anyhow::Result;
use serde_json::Value;

use crate::measure::Patience;
use crate::workload::Workload;

/// The real file holds 39,244 events; it is repeated.
const ROWS: usize = 400_000;

/// Measures every stage alone and all together; the rates of each. A table for people goes to standard error.
pub fn run() -> Result<Value> {
    let report = stages::measure(&Workload::load(ROWS)?, Patience::default())?;
    eprint!("{}", report.table());
    Ok(report.to_json())
}

/// One stage over and over, for a profiler: `decode`, `persist` or `merge`.
pub fn repeat(stage: &str, times: usize) -> Result<()> {
    stages::repeat(stage, times, &Workload::load(ROWS)?)
}
