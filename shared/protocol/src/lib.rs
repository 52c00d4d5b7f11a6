//! The pure machines: sequence, task, group, supervisor, publish, allocate, handoff.
//!
//! Owns: what may happen, in which order. Every machine is `fn on(&mut self, event, now) -> Vec<Action>` or a
//! pure function; a shell executes the actions in the order given. Promises: no I/O, no clock, no randomness,
//! no `async`; an impossible event is a typed refusal, never a panic. Must never: know tonic, tokio, Kafka
//! clients or SQL.

pub mod allocate;
pub mod group;
pub mod handoff;
pub mod mutation;
pub mod negotiation;
pub mod publish;
pub mod sequence;
pub mod supervisor;
pub mod task;
pub mod verify;
