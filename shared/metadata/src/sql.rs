//! The ports on a database.

mod coordinator;
mod handoff;
mod publisher;
