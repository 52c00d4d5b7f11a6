//! The coordinator: supervisors, their task groups and tasks, the checkpoint log, the runner registry.
//!
//! Owns: the shell around the machine of `tidegate_protocol::supervisor`: one actor per supervisor that carries its
//! actions out in order, the registry of runners, and the two gRPC services. Promises: what the machine calls
//! durable is in the store before anything behind it begins; calls to tasks are concurrent, with deadlines, and
//! come back as events; a coordinator that does not lead writes nothing and names the leader. Must never: decide
//! anything that the machine decides, or keep state that a restart could not rebuild.

mod actor;
mod broker;
mod directory;
mod election;
mod error;
mod gauges;
mod grpc;
mod registry;
mod run;
mod seat;
mod segments;
mod settings;
mod store;
mod wire;

pub use broker::{Broker, Kafka};
pub use error::CoordinatorError;
pub use registry::Connector;
pub use run::{Peers, RunningCoordinator, over_tcp, own_address, own_hello, run};
