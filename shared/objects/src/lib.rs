//! Object stores: staged upload, verification, promotion, orphan sweep.
//!
//! Owns: bytes in a local folder, S3, GCS or Azure, and the names of objects. Promises: an object that
//! [`Objects::upload_staged`] or [`Objects::promote`] answered for is complete and durable; an object is never
//! seen half-written at its key; memory is bounded by `part_size` × `upload_concurrency`; a failed upload is
//! begun anew under another key, never patched (B52). Must never: decide what is published. That an object
//! "already exists" decides nothing here: the catalog, size and checksum do.

mod backoff;
mod error;
#[cfg(test)]
mod faults;
mod key;
mod layout;
mod local;
mod remote;
mod store;
mod sweep;
mod upload;
mod verify;

pub use backoff::Backoff;
pub use error::{ErrorKind, ObjectsError};
pub use key::{InvalidKey, Key};
pub use layout::{STAGING, final_key, is_staged, staging_folder};
pub use store::{Head, Objects, Promoted};
pub use sweep::SweepReport;
pub use tidegate_config::ObjectsConfig;
pub use upload::Uploaded;
pub use verify::{Difference, VerifyError};
