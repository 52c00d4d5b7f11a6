//! Benchmarks of the hot path: stages alone and together, as ratios of one run.

use anyhow::{Result, bail};
use serde_json::Value;

/// Measures every stage alone and all together; the rates of each.
pub fn run() -> Result<Value> {
    bail!("there is no benchmark yet")
}
