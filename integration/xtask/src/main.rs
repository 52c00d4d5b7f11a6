//! One entry for every chore: cargo xtask.
fn main() {}
