//! The handoff-checker service: is each published segment served yet?
//!
//! Owns: the handoff state of published segments, in the store. Promises: every segment of the catalog is followed
//! until the serving tier confirms it, over restarts, whoever asks and whether anybody asks; "served" is durable
//! before it is told; a segment that takes long is an alert and never a failure (I9). Must never: change the
//! catalog, or hold up one segment's check for another's.

mod check;
mod clock;
mod error;
mod follow;
mod grpc;
mod run;
mod watch;

pub use error::HandoffCheckerError;
pub use run::{Peers, RunningHandoffChecker, run};
