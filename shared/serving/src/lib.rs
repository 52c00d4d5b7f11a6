//! Serving tiers: who says that a published segment can be queried.
//!
//! Owns: the question "is this segment served?" in the words of each tier. Promises: one answer per question, within
//! a deadline; an answer that is not understood is never taken for "served" (I9). Must never: decide what a missing
//! answer means (that is the handoff machine's), or change anything at the tier.

mod druid;
mod error;
mod grpc;
mod object_store;
mod tier;

pub use druid::Druid;
pub use error::ServingError;
pub use grpc::Grpc;
pub use object_store::ObjectStore;
pub use tier::{PublishedObject, Served, ServingTier};
