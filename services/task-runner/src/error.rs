//! What can fail in the shell of the runner.

use std::io;

/// Why the runner cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    #[error(
        "the work folder {path} is in use by another process: give each runner a folder of its own (runner.work_dir)"
    )]
    Locked { path: String },
    #[error("cannot {what} the work folder {path}: {source}; check runner.work_dir and its rights")]
    WorkDir {
        what: &'static str,
        path: String,
        source: io::Error,
    },
    #[error("{path} is damaged ({reason}): restore it, or start with an empty runner.work_dir")]
    Document { path: String, reason: String },
    #[error("cannot listen on {address}: {source}; set runner.listen")]
    Listen {
        address: std::net::SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Connect(#[from] tidegate_rpc::ConnectError),
    #[error(transparent)]
    Objects(#[from] tidegate_objects::ObjectsError),
    #[error(transparent)]
    Kafka(#[from] tidegate_kafka::KafkaError),
    #[error(transparent)]
    Serve(#[from] tidegate_rpc::server::ServeError),
    #[error("a background part of the runner ended by itself: {0}")]
    Background(String),
}
