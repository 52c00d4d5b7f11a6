//! The coordinator through its public API, among fakes that do what a test tells them to.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test file; helpers are outside #[test]"
)]

mod api;
mod election;
mod fakes;
mod supervision;
