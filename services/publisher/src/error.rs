//! What can fail, and how it is told on the wire.

use std::io;
use std::time::Duration;

use tidegate_metadata::{PublisherError, Refusal, StoreError};
use tidegate_protocol::allocate::AllocationRefusal;
use tidegate_rpc::status::RpcError;

/// Why the publisher cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum PublisherServiceError {
    #[error("cannot listen on {address}: {source}; set publisher.listen")]
    Listen {
        address: std::net::SocketAddr,
        source: io::Error,
    },
    #[error("{0}; check metadata.url")]
    Store(#[from] StoreError),
    #[error(transparent)]
    Objects(#[from] tidegate_objects::ObjectsError),
    #[error(transparent)]
    Serve(#[from] tidegate_rpc::server::ServeError),
}

/// How long a caller is asked to wait when the store is away or busy.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_secs(1);

pub(crate) fn of_store(error: &StoreError) -> RpcError {
    if error.is_retryable() {
        return RpcError::Unavailable(error.to_string(), RETRY_PAUSE);
    }
    tracing::error!(%error, "the metadata store failed");
    match error {
        StoreError::Fenced { .. } => RpcError::FailedPrecondition(error.to_string()),
        _ => RpcError::Internal(error.to_string()),
    }
}

pub(crate) fn of_call(error: &PublisherError) -> RpcError {
    let refusal = match error {
        PublisherError::Store(error) => return of_store(error),
        PublisherError::Refused(refusal) => refusal,
    };
    let text = refusal.to_string();
    match refusal {
        Refusal::NoStart { .. } => RpcError::InvalidArgument(text.clone(), vec![("start".into(), text)]),
        Refusal::Allocation(AllocationRefusal::RowOutside { .. }) => {
            RpcError::InvalidArgument(text.clone(), vec![("row_millis".into(), text)])
        }
        Refusal::Allocation(AllocationRefusal::NoNumberLeft { .. }) => RpcError::ResourceExhausted(text),
        Refusal::StaleEpoch { .. }
        | Refusal::Overtaken { .. }
        | Refusal::StaleGeneration { .. }
        | Refusal::OtherStream { .. }
        | Refusal::OffsetsDiffer { .. }
        | Refusal::OtherGroup { .. }
        | Refusal::GroupEnded { .. }
        | Refusal::Fenced(_)
        | Refusal::Allocation(
            AllocationRefusal::CoarserQueryGranularity { .. }
            | AllocationRefusal::Forked { .. }
            | AllocationRefusal::NoFreeBucket { .. },
        ) => RpcError::FailedPrecondition(text),
    }
}
