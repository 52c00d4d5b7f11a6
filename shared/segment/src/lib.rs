//! In-memory index, persist (sorted spilled runs), bounded fan-in merge with roll-up, Parquet.
