//! Why a coordinator cannot start, or has to end.

use std::net::SocketAddr;

use tidegate_metadata::{DocumentError, StoreError};
use tidegate_rpc::ConnectError;

/// Why a coordinator cannot start, or has to end.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    #[error("the metadata store: {0}")]
    Store(#[from] StoreError),
    #[error("stored {what} {id} cannot be read: {why}")]
    Unreadable {
        what: &'static str,
        id: String,
        why: DocumentError,
    },
    #[error("cannot listen on {address}: {source}; set coordinator.listen")]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error("the gRPC server: {0}")]
    Serve(#[from] tidegate_rpc::server::ServeError),
    #[error("a background task of the coordinator ended: {0}")]
    Background(String),
}
