//! The machine against a small world that can stop it at any action boundary.

mod calls;
mod checkpoints;
mod crashes;
mod finishing;
mod rows;
mod world;
