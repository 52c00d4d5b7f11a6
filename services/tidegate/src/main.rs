//! The CLI and the all-in-one process.
fn main() {}
