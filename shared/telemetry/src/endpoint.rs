//! `/metrics` and `/livez`.

use std::net::SocketAddr;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::init::TelemetryError;
use crate::metrics::Metrics;

/// Serves until it is dropped.
#[derive(Debug)]
pub struct MetricsEndpoint {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

impl MetricsEndpoint {
    pub async fn start(address: SocketAddr, metrics: Metrics) -> Result<Self, TelemetryError> {
        let bind = |source| TelemetryError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let text = move || {
            let text = metrics.text();
            async move { ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text) }
        };
        let routes = Router::new()
            .route("/metrics", get(text))
            .route("/livez", get(|| async { "ok\n" }));
        let serving = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::warn!(%error, "the metrics endpoint stopped");
            }
        });
        Ok(Self { address, serving })
    }

    /// Where it listens (useful when port 0 was asked for).
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsEndpoint {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
