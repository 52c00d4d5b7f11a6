//! The publisher service: the catalog and the committed offsets.
//!
//! Owns: how a publish runs (verify, commit, promote), the loops that promote what a crash left and sweep what
//! nobody claims, the gRPC face of [`tidegate_metadata::PublisherStore`]. Promises: what is answered as published is
//! durable; a call can be repeated (I11); a key below `segments/` is only ever written for a segment that is
//! committed, so that one who reads the folder by a glob meets no uncommitted and no doubled row. Must never:
//! delete an object that a transaction refers to or may still claim.

mod clock;
mod error;
mod grpc;
mod promote;
mod publish;
mod run;
mod sweep;
mod under_way;
mod verified;
mod verify;
mod wire;

pub use error::PublisherServiceError;
pub use run::{RunningPublisher, run};
