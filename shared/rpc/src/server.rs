//! How every service listens: keep-alive, trace context, health, reflection, graceful end.

use std::future::Future;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::DESCRIPTORS;
use crate::health::Health;
use crate::trace::ExtractLayer;

/// Why a service cannot listen (any more).
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot describe the services for reflection: {0}")]
    Reflection(#[from] tonic_reflection::server::Error),
    #[error("the gRPC server stopped: {0}")]
    Transport(#[from] tonic::transport::Error),
}

/// Serves `routes` with the standard health service and reflection until `shutdown` completes; then lets open
/// calls end, for at most `drain`.
pub async fn serve(
    listener: TcpListener,
    routes: Routes,
    health: &Health,
    drain: Duration,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let routes = routes.add_service(reflection).add_service(health.service());
    let (stopping, stopped) = tokio::sync::oneshot::channel();
    let serving = Server::builder()
        .tcp_nodelay(true)
        .http2_keepalive_interval(Some(Duration::from_secs(20)))
        .http2_keepalive_timeout(Some(Duration::from_secs(10)))
        .layer(ExtractLayer)
        .add_routes(routes)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), async move {
            shutdown.await;
            // The receiver may be gone when the server failed first; then nobody waits.
            let _ = stopping.send(());
        });
    tokio::pin!(serving);
    tokio::select! {
        ended = &mut serving => Ok(ended?),
        _ = stopped => {
            health.not_serving().await;
            // A call that is still open at the deadline is cut: a drain is bounded.
            Ok(tokio::time::timeout(drain, serving).await.unwrap_or(Ok(()))?)
        }
    }
}
