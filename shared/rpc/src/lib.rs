//! The wire: generated code, transports, server set-up, conversions, errors as gRPC status.
//!
//! Owns: how a call travels (in-process or gRPC: the same client type), message size limits, keep-alive,
//! deadlines, trace context. Promises: limits and deadlines are set here and nowhere else (B59, B60).
//! Must never: decide anything about the protocol.

pub mod convert;
pub mod follow;
pub mod handshake;
pub mod health;
pub mod server;
pub mod status;
pub mod trace;
mod transport;

pub use transport::{ConnectError, MESSAGE_LIMIT_BYTES, Transport, clients};

/// The descriptor set of all protocol files, for reflection and for compatibility checks.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tidegate.descriptors.bin"));

macro_rules! package {
    ($name:ident, $package:literal) => {
        #[allow(missing_docs, clippy::pedantic, unreachable_pub)]
        pub mod $name {
            pub mod v1 {
                tonic::include_proto!($package);
            }
        }
    };
}

package!(types, "tidegate.types.v1");
package!(handshake_wire, "tidegate.handshake.v1");
package!(coordinator, "tidegate.coordinator.v1");
package!(task_runner, "tidegate.task_runner.v1");
package!(publisher, "tidegate.publisher.v1");
package!(handoff, "tidegate.handoff.v1");
package!(serving, "tidegate.serving.v1");
