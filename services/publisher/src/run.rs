//! The life of a publisher in a process: real or all-in-one.

use std::sync::Arc;
use std::time::Duration;

use tidegate_config::PublisherConfig;
use tidegate_metadata::{Metadata, PublisherStore};
use tidegate_objects::Objects;
use tidegate_protocol::negotiation::Hello;
use tidegate_rpc::publisher::v1::publisher_server::{Publisher, PublisherServer};
use tidegate_rpc::{Transport, clients, handshake, server};
use tidegate_telemetry::Metrics;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::error::PublisherServiceError;
use crate::grpc::Service;
use crate::promote::Promoter;
use crate::publish::Publishing;
use crate::sweep::Sweeper;
use crate::under_way::UnderWay;
use crate::verified::Verified;
use crate::verify::Verifier;

/// A publisher that is going: its service, and the loops that promote and sweep.
pub struct RunningPublisher {
    service: Arc<Service>,
    loops: JoinSet<()>,
    stop: CancellationToken,
}

impl std::fmt::Debug for RunningPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunningPublisher")
    }
}

impl RunningPublisher {
    /// Connects to the stores (which are migrated) and begins.
    pub async fn start(config: &PublisherConfig, metrics: Metrics) -> Result<Self, PublisherServiceError> {
        let store = Metadata::connect(config.metadata.url.expose()).await?;
        Self::on(Arc::new(store), config, metrics)
    }

    /// On a store that is there already, e.g. one that the services of a process share.
    pub fn on(
        store: Arc<dyn PublisherStore>,
        config: &PublisherConfig,
        metrics: Metrics,
    ) -> Result<Self, PublisherServiceError> {
        let objects = Objects::open(&config.objects)?;
        let verified = Arc::new(Verified::new(objects.clone()));
        let promoter = Arc::new(Promoter {
            store: Arc::clone(&store),
            objects: objects.clone(),
            verified: Arc::clone(&verified),
            bell: Notify::new(),
        });
        let publishing = Arc::new(Publishing {
            store: Arc::clone(&store),
            verified,
            promoter: Arc::clone(&promoter),
            metrics: metrics.clone(),
            moved: watch::Sender::new(0),
        });
        let verifier = Verifier {
            store: Arc::clone(&store),
            objects: objects.clone(),
        };
        let stop = CancellationToken::new();
        let mut loops = JoinSet::new();
        loops.spawn(promoter.run(stop.clone()));
        let section = &config.publisher;
        let sweeper = Sweeper {
            store: Arc::clone(&store),
            objects,
            metrics: metrics.clone(),
            grace: section.sweep_grace,
        };
        loops.spawn(sweeper.run(section.sweep_interval, stop.clone()));
        let service = Service {
            store,
            publishing,
            verifier,
            metrics,
            under_way: UnderWay::new(),
        };
        tracing::info!("the publisher is up");
        Ok(Self {
            service: Arc::new(service),
            loops,
            stop,
        })
    }

    /// The gRPC service, for a server.
    pub fn service(&self) -> PublisherServer<impl Publisher + use<>> {
        clients::publisher_server(Arc::clone(&self.service))
    }

    /// For callers in the same process.
    pub fn transport(&self) -> Transport {
        Transport::in_process(self.service())
    }

    /// Lets publishes under way end, for at most `limit`, and stops the loops. What is cut off is found and done by
    /// the next life.
    pub async fn drain(mut self, limit: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(limit, self.service.under_way.idle())
            .await
            .is_err()
        {
            tracing::warn!(
                left = self.service.under_way.count(),
                "publishes were cut off; their tasks ask again"
            );
        }
        // Between two promotions, or in the middle of one: either can be repeated.
        self.loops.abort_all();
        while self.loops.join_next().await.is_some() {}
    }
}

/// What peers are told of this service.
fn own_hello(config: &PublisherConfig) -> Hello {
    handshake::own("publisher", config.common.protocol.disabled())
}

/// Runs a publisher until `shutdown`, then drains it. Returns when it is out.
pub async fn run(
    config: PublisherConfig,
    metrics: Metrics,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), PublisherServiceError> {
    let running = RunningPublisher::start(&config, metrics).await?;
    let health = tidegate_rpc::health::Health::new();
    let routes = Routes::new(running.service()).add_service(handshake::server(own_hello(&config)));
    let drain = config.common.drain_timeout;
    let served = server::serve(listener, routes, &health, drain / 2, async move {
        shutdown.cancelled().await;
    })
    .await;
    running.drain(drain / 4).await;
    tracing::info!("the publisher is out");
    Ok(served?)
}
