//! The task-runner service: reads Kafka, builds segments, publishes them through the publisher.
//!
//! Owns: the local state of its tasks (folders below `runner.work_dir`). Promises: a task goes on after any crash
//! from its last persist, or is reported as not restorable; nothing is acknowledged before it is durable; drain is
//! bounded. Must never: decide what the task machine (`tidegate_protocol::task`) decides, or write the catalog.
//!
//! The walk of a record: [`ingest`](crate) reads and routes it on a thread of its own, a persist spills it, the
//! actor of its task saves the record, and after the end is set merges, uploads, publishes and waits for handoff.

mod assignment;
mod durable;
mod error;
mod folder;
mod grpc;
mod heartbeat;
mod ingest;
mod live;
mod prepared;
mod run;
mod runner;
mod spec;
mod status;
mod task;
mod work_dir;

pub use error::RunnerError;
pub use run::{Peers, RunningRunner, run};
