//! The life of a coordinator in a process: real or all-in-one.

use std::sync::Arc;
use std::time::Duration;

use tidegate_config::CoordinatorConfig;
use tidegate_metadata::{CoordinatorStore, Metadata};
use tidegate_rpc::coordinator::v1::runner_registry_server::{RunnerRegistry, RunnerRegistryServer};
use tidegate_rpc::coordinator::v1::supervisor_service_server::{SupervisorService, SupervisorServiceServer};
use tidegate_rpc::{Transport, clients, server};
use tidegate_telemetry::Metrics;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::actor::{self, World, now};
use crate::broker::{Broker, Kafka};
use crate::directory::Directory;
use crate::error::CoordinatorError;
use crate::gauges;
use crate::grpc::{RegistryApi, SupervisorApi};
use crate::registry::{Connector, Registry};
use crate::segments::Segments;
use crate::store::Store;

/// How the coordinator reaches the other services.
#[derive(Clone)]
pub struct Peers {
    pub publisher: Transport,
    pub handoff_checker: Transport,
    /// Makes a transport to the address that a runner tells.
    pub runners: Connector,
}

impl Peers {
    /// Over TCP, as configured.
    pub fn connect(config: &CoordinatorConfig) -> Result<Self, CoordinatorError> {
        Ok(Self {
            publisher: Transport::connect(&config.coordinator.publisher)?,
            handoff_checker: Transport::connect(&config.coordinator.handoff_checker)?,
            runners: over_tcp(),
        })
    }
}

/// Runners by their addresses.
pub fn over_tcp() -> Connector {
    Arc::new(|address: &str| Transport::connect(address).map_err(|error| error.to_string()))
}

/// A coordinator that is going.
pub struct RunningCoordinator {
    directory: Arc<Directory>,
    supervisors: Arc<SupervisorApi>,
    registry: Arc<RegistryApi>,
    stop: CancellationToken,
    deposed: CancellationToken,
}

impl RunningCoordinator {
    /// Takes the lease and takes up every stored supervisor.
    pub async fn start(
        config: &CoordinatorConfig,
        store: Arc<dyn CoordinatorStore>,
        peers: Peers,
        broker: Arc<dyn Broker>,
        metrics: Metrics,
    ) -> Result<Self, CoordinatorError> {
        let section = &config.coordinator;
        let holder = format!("{}@{}", std::process::id(), section.address.listen);
        let epoch = store.raise_epoch(&holder, now()).await?;
        tracing::info!(%epoch, "this coordinator leads");
        let deposed = CancellationToken::new();
        let stop = deposed.child_token();
        let peers = Bound {
            connect: peers.runners,
            actor: actor::Peers {
                publisher: clients::publisher(peers.publisher),
                handoff: clients::handoff(peers.handoff_checker),
            },
        };
        let world = World {
            store: Store {
                port: store,
                epoch,
                deposed: deposed.clone(),
            },
            peers: peers.actor.clone(),
            registry: Arc::new(Registry::new(peers.connect, section.runner_timeout)),
            broker,
            rpc_timeout: section.rpc_timeout,
            stop: stop.clone(),
        };
        let directory = Directory::load(world, section.runner_timeout).await?;
        tokio::spawn(gauges::run(directory.clone(), metrics, stop.clone()));
        tokio::spawn(watch_lease(
            directory.world.store.clone(),
            section.lease_duration / 3,
            stop.clone(),
        ));
        let supervisors = Arc::new(SupervisorApi {
            directory: directory.clone(),
            segments: Segments::new(peers.actor, section.rpc_timeout),
        });
        let registry = Arc::new(RegistryApi {
            directory: directory.clone(),
            interval: section.heartbeat_interval,
        });
        Ok(Self {
            directory,
            supervisors,
            registry,
            stop,
            deposed,
        })
    }

    /// What people call, for a server or for calls in the process.
    pub fn supervisor_service(&self) -> SupervisorServiceServer<impl SupervisorService + use<>> {
        clients::supervisor_server(self.supervisors.clone())
    }
    /// What runners call.
    pub fn registry_service(&self) -> RunnerRegistryServer<impl RunnerRegistry + use<>> {
        clients::registry_server(self.registry.clone())
    }
    /// Cancelled when another coordinator has taken over.
    pub fn deposed(&self) -> CancellationToken {
        self.deposed.clone()
    }
    /// Supervisors that are taken up.
    pub fn supervisors(&self) -> usize {
        self.directory.all().len()
    }
    /// Ends the actors; tasks go on, everything that was answered is stored.
    pub fn stop(&self) {
        self.stop.cancel();
    }
}

impl Drop for RunningCoordinator {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Bound {
    connect: Connector,
    actor: actor::Peers,
}

/// A coordinator with nothing to write would not notice that another one has taken over.
async fn watch_lease(store: Store, period: Duration, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(period.max(Duration::from_millis(100))) => {}
        }
        match store.port.current_epoch().await {
            Ok(held) if held > store.epoch => {
                tracing::error!(%held, own = %store.epoch, "another coordinator has taken over; this one ends");
                store.deposed.cancel();
                return;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the lease cannot be looked at"),
        }
    }
}

/// Runs a coordinator until `shutdown`. Returns when it is out.
pub async fn run(
    config: CoordinatorConfig,
    peers: Peers,
    metrics: Metrics,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), CoordinatorError> {
    let store = Arc::new(Metadata::connect(config.metadata.url.expose()).await?);
    let running = RunningCoordinator::start(&config, store, peers, Arc::new(Kafka), metrics).await?;
    let health = tidegate_rpc::health::Health::new();
    let routes = Routes::new(running.supervisor_service()).add_service(running.registry_service());
    let deposed = running.deposed();
    let end = {
        let deposed = deposed.clone();
        async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = deposed.cancelled() => {}
            }
        }
    };
    server::serve(listener, routes, &health, config.common.drain_timeout / 2, end).await?;
    running.stop();
    tracing::info!("the coordinator is out; tasks go on");
    if deposed.is_cancelled() {
        Err(CoordinatorError::Fenced)
    } else {
        Ok(())
    }
}
