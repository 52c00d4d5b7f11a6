//! Bytes to typed columns: one file per format; no per-row heap tree.
