//! The ingestion spec: parse, validate (all errors at once), typed form.
//!
//! Owns: what an operator may write, with every default ([`fields`] is the one table, `docs/spec.md` its print), the
//! normalized form that is stored and shown, and which values are secrets. Promises: every error of a document is
//! reported in one go, each with its path, line and column; no text makes it panic; a field that is not known, or
//! known and not supported yet, is an error that names it, never silence.
//! Must never: resolve secrets by itself, talk to Kafka, or change a spec that was given.

mod digest;
mod document;
pub mod fields;
mod issue;
pub mod model;
mod normalized;
mod parse;
mod path;
mod reader;
pub mod secrets;
mod suggest;

pub use digest::DigestParts;
pub use document::from_commented;
pub use issue::{Parsed, SpecErrors, SpecIssue};
pub use model::*;
pub use parse::parse;
