//! The life of a handoff-checker in a process: real or all-in-one.

use std::sync::Arc;
use std::time::Duration;

use tidegate_config::{HandoffConfig, ServingKind};
use tidegate_metadata::{HandoffStore, Metadata, Ordinal};
use tidegate_objects::Objects;
use tidegate_protocol::handoff::HandoffLimits;
use tidegate_protocol::negotiation::Hello;
use tidegate_rpc::handoff::v1::handoff_checker_server::{HandoffChecker, HandoffCheckerServer};
use tidegate_rpc::{Transport, clients, handshake, server};
use tidegate_serving::{Druid, Grpc, ObjectStore, ServingTier};
use tidegate_telemetry::Metrics;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::check::Checker;
use crate::error::HandoffCheckerError;
use crate::follow::Follower;
use crate::grpc::Service;
use crate::watch::{self as watching, Pending};

/// Checks at a time.
const CHECKS_AT_ONCE: usize = 16;
/// A check without an answer for so long counts as failed; the object-store tier reads whole objects.
const CHECK_TIMEOUT: Duration = Duration::from_mins(2);
/// Pending handoffs that are read at a time at the start.
const PAGE: u32 = 1000;

/// How the handoff-checker reaches the other services.
#[derive(Debug, Clone)]
pub struct Peers {
    /// Whose catalog is followed.
    pub publisher: Transport,
}

impl Peers {
    /// Over TCP, as configured.
    pub fn connect(config: &HandoffConfig) -> Result<Self, HandoffCheckerError> {
        Ok(Self {
            publisher: Transport::connect(&config.handoff.publisher)?.greet(&own_hello(config), "publisher"),
        })
    }
}

/// What peers are told of this service.
fn own_hello(config: &HandoffConfig) -> Hello {
    handshake::own("handoff-checker", config.common.protocol.disabled())
}

/// A handoff-checker that is going: its service, the checks, and the loop that follows the catalog.
pub struct RunningHandoffChecker {
    service: Arc<Service>,
    stop: CancellationToken,
}

impl std::fmt::Debug for RunningHandoffChecker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RunningHandoffChecker")
    }
}

impl RunningHandoffChecker {
    /// Connects to the store (which is migrated) and begins.
    pub async fn start(
        config: &HandoffConfig,
        peers: Peers,
        metrics: Metrics,
    ) -> Result<Self, HandoffCheckerError> {
        let store = Metadata::connect(config.metadata.url.expose()).await?;
        Self::on(Arc::new(store), config, peers, metrics).await
    }

    /// On a store that is there already, e.g. one that the services of a process share. Goes on with every handoff
    /// that an earlier life left pending.
    pub async fn on(
        store: Arc<dyn HandoffStore>,
        config: &HandoffConfig,
        peers: Peers,
        metrics: Metrics,
    ) -> Result<Self, HandoffCheckerError> {
        Self::with(tier(config)?, store, config, peers, metrics).await
    }

    /// With a serving tier of the caller's.
    pub async fn with(
        tier: Arc<dyn ServingTier>,
        store: Arc<dyn HandoffStore>,
        config: &HandoffConfig,
        peers: Peers,
        metrics: Metrics,
    ) -> Result<Self, HandoffCheckerError> {
        let section = &config.handoff;
        let limits = HandoffLimits {
            first_wait: section.poll_interval,
            longest_wait: section.max_backoff.max(section.poll_interval),
            check_timeout: CHECK_TIMEOUT,
            alert_after: (!section.alert_after.is_zero()).then_some(section.alert_after),
            checks_at_once: CHECKS_AT_ONCE,
        };
        let publisher = clients::publisher(peers.publisher);
        let checker = Checker {
            publisher: publisher.clone(),
            tier,
        };
        let stop = CancellationToken::new();
        let watch = watching::spawn(limits, Arc::clone(&store), checker, metrics, stop.clone());
        let mut after = Ordinal::default();
        let mut left = 0;
        loop {
            let pending = store.pending(after, PAGE).await?;
            let Some(last) = pending.last() else { break };
            after = last.ordinal;
            left += pending.len();
            watch.register(pending.iter().map(Pending::from).collect());
        }
        let bell = Arc::new(Notify::new());
        let (readings, read) = watch::channel(0);
        let follower = Follower {
            store: Arc::clone(&store),
            publisher,
            watch: watch.clone(),
            bell: Arc::clone(&bell),
            readings,
            interval: section.poll_interval.max(Duration::from_millis(10)),
        };
        tokio::spawn(follower.run(stop.clone()));
        tracing::info!(pending = left, "the handoff-checker is up");
        let service = Service {
            store,
            watch,
            bell,
            readings: read,
        };
        Ok(Self {
            service: Arc::new(service),
            stop,
        })
    }

    /// The gRPC service, for a server.
    pub fn service(&self) -> HandoffCheckerServer<impl HandoffChecker + use<>> {
        clients::handoff_server(Arc::clone(&self.service))
    }

    /// For callers in the same process.
    pub fn transport(&self) -> Transport {
        Transport::in_process(self.service())
    }

    /// Ends the loops. A check that is cut off is made again by the next life.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

impl Drop for RunningHandoffChecker {
    fn drop(&mut self) {
        self.stop();
    }
}

fn tier(config: &HandoffConfig) -> Result<Arc<dyn ServingTier>, HandoffCheckerError> {
    let section = &config.handoff;
    Ok(match section.serving {
        ServingKind::ObjectStore => Arc::new(ObjectStore::new(Objects::open(&config.objects)?)),
        ServingKind::Druid => {
            let missing = HandoffCheckerError::NoAddress {
                serving: "druid",
                key: "handoff.druid_url",
            };
            Arc::new(Druid::new(section.druid_url.as_deref().ok_or(missing)?)?)
        }
        ServingKind::Grpc => {
            let missing = HandoffCheckerError::NoAddress {
                serving: "grpc",
                key: "handoff.grpc_url",
            };
            Arc::new(Grpc::new(section.grpc_url.as_deref().ok_or(missing)?)?)
        }
    })
}

/// Runs a handoff-checker until `shutdown`. Returns when it is out.
pub async fn run(
    config: HandoffConfig,
    peers: Peers,
    metrics: Metrics,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), HandoffCheckerError> {
    let running = RunningHandoffChecker::start(&config, peers, metrics).await?;
    let health = tidegate_rpc::health::Health::new();
    let routes = Routes::new(running.service()).add_service(handshake::server(own_hello(&config)));
    let drain = config.common.drain_timeout;
    let served = server::serve(listener, routes, &health, drain / 2, async move {
        shutdown.cancelled().await;
    })
    .await;
    running.stop();
    tracing::info!("the handoff-checker is out");
    Ok(served?)
}
