//! The machine against a small world that can stop it at any action boundary.

mod calls;
mod crashes;
mod finishing;
mod rows;
mod world;
