//! What can fail, and how it is told on the wire.

use std::time::Duration;

use tidegate_metadata::StoreError;
use tidegate_rpc::status::RpcError;

/// Why the handoff-checker cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum HandoffCheckerError {
    #[error("{0}; check metadata.url")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Objects(#[from] tidegate_objects::ObjectsError),
    #[error(transparent)]
    Serving(#[from] tidegate_serving::ServingError),
    #[error(transparent)]
    Connect(#[from] tidegate_rpc::ConnectError),
    #[error(transparent)]
    Serve(#[from] tidegate_rpc::server::ServeError),
    #[error("handoff.serving = {serving} needs {key}")]
    NoAddress {
        serving: &'static str,
        key: &'static str,
    },
}

pub(crate) fn of_store(error: &StoreError) -> RpcError {
    if error.is_retryable() {
        RpcError::Unavailable(error.to_string(), Duration::from_secs(1))
    } else {
        tracing::error!(%error, "the metadata store failed");
        RpcError::Internal(error.to_string())
    }
}
