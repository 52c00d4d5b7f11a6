//! The supervisor against a small world: by the names of the original's tests, then the reports of the field.

mod chaos;
mod checkpoints;
mod commands;
mod groups;
mod pending;
mod rollover;
mod rounds;
mod stream;
mod world;
