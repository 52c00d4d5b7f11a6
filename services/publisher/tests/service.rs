//! The publisher over its RPCs, on SQLite and a local folder, with faults where a crash or an outage would be.

#![allow(clippy::unwrap_used)] // a failed step is a failed test

#[path = "service/calls.rs"]
mod calls;
#[path = "service/faulty_store.rs"]
mod faulty_store;
#[path = "service/loops.rs"]
mod loops;
#[path = "service/proofs.rs"]
mod proofs;
#[path = "service/publishing.rs"]
mod publishing;
#[path = "service/world.rs"]
mod world;
