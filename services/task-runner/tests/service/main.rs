//! The runner as a service: a broker in the process, and others that answer what a test tells them to.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test file; helpers are outside #[test]"
)]

mod leaders;
mod peers;
mod publishing;
mod reading;
mod restarts;
mod world;
