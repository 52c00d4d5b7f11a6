//! One suite per port, run against SQLite (a file, as in service) and PostgreSQL (a real server).

#![allow(clippy::unwrap_used)] // a failed step is a failed test

#[path = "conformance/allocation.rs"]
mod allocation;
#[path = "conformance/coordinator.rs"]
mod coordinator;
#[path = "conformance/databases.rs"]
mod databases;
#[path = "conformance/handoff.rs"]
mod handoff;
#[path = "conformance/lease.rs"]
mod lease;
#[path = "conformance/lost_answers.rs"]
mod lost_answers;
#[path = "conformance/offsets.rs"]
mod offsets;
#[path = "conformance/publish.rs"]
mod publish;
#[path = "conformance/world.rs"]
mod world;
