//! The ingestion spec: parse, validate (all errors at once), typed form.

pub mod model;

pub use model::*;
