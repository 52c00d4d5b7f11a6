//! Benchmarks of the hot path: stages alone and together, as ratios of one run.
