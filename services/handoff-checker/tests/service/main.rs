//! The handoff-checker as a service: a catalog and a serving tier that answer what a test tells them to.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test file; helpers are outside #[test]"
)]

mod handoffs;
mod world;
