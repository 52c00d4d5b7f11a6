//! The life of a coordinator in a process: real or all-in-one.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use tidegate_config::{CoordinatorConfig, CoordinatorSection, ListenConfig};
use tidegate_metadata::{Candidate, CoordinatorStore, Metadata};
use tidegate_protocol::negotiation::{Hello, INCREMENTAL_HANDOFF};
use tidegate_rpc::health::Health;
use tidegate_rpc::{Transport, clients, handshake, server};
use tidegate_telemetry::Metrics;
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tower::Service;

use crate::actor::{self, World};
use crate::broker::{Broker, Kafka};
use crate::directory::Directory;
use crate::election::{Election, TakeUp, Term};
use crate::error::CoordinatorError;
use crate::gauges;
use crate::grpc::{RegistryApi, SupervisorApi};
use crate::registry::{Connector, Registry};
use crate::seat::{Elected, Led, Seat};
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
        let own = own_hello(config);
        Ok(Self {
            publisher: Transport::connect(&config.coordinator.publisher)?.greet(&own, "publisher"),
            handoff_checker: Transport::connect(&config.coordinator.handoff_checker)?
                .greet(&own, "handoff-checker"),
            runners: over_tcp(own),
        })
    }
}

/// Runners by their addresses.
pub fn over_tcp(own: Hello) -> Connector {
    Arc::new(move |address: &str| {
        let transport = Transport::connect(address).map_err(|error| error.to_string())?;
        Ok(transport.greet(&own, "task-runner"))
    })
}

/// What peers are told of this service.
pub fn own_hello(config: &CoordinatorConfig) -> Hello {
    handshake::own("coordinator", config.common.protocol.disabled())
}

/// Longest time for stepping down in order.
const STEP_DOWN: Duration = Duration::from_secs(5);

/// A coordinator that is going: it leads, or stands by until it can.
pub struct RunningCoordinator {
    seat: watch::Receiver<Seat>,
    stop: CancellationToken,
    election: Option<JoinHandle<()>>,
}

impl RunningCoordinator {
    /// Takes part in the election; returns when it leads, with every stored supervisor taken up, or stands by.
    /// `address` is where others call this coordinator; empty when they cannot be told.
    pub async fn start(
        config: &CoordinatorConfig,
        address: String,
        store: Arc<dyn CoordinatorStore>,
        peers: Peers,
        broker: Arc<dyn Broker>,
        metrics: Metrics,
    ) -> Result<Self, CoordinatorError> {
        let section = &config.coordinator;
        let name = if address.is_empty() {
            section.address.listen.to_string()
        } else {
            address.clone()
        };
        let candidate = Candidate {
            holder: format!("{} at {name}", uuid::Uuid::new_v4()),
            address,
            lasts: section.lease_duration,
        };
        let (seat, seated) = watch::channel(Seat::StandingBy(None));
        let stop = CancellationToken::new();
        let office = Office {
            port: store.clone(),
            connect: peers.runners,
            peers: actor::Peers {
                can_checkpoint: own_hello(config).can(INCREMENTAL_HANDOFF),
                to_publisher: peers.publisher.clone(),
                publisher: clients::publisher(peers.publisher),
                handoff: clients::handoff(peers.handoff_checker),
            },
            broker,
            metrics: metrics.clone(),
            section: section.clone(),
        };
        let election = Election {
            port: store,
            candidate,
            take_up: Box::new(office),
            seat,
            metrics,
            stop: stop.clone(),
        };
        let (settled, is_settled) = oneshot::channel();
        let running = Self {
            seat: seated,
            stop,
            election: Some(tokio::spawn(election.run(settled))),
        };
        let ended = |_| CoordinatorError::Background("the election ended before it began".into());
        is_settled.await.map_err(ended)??;
        Ok(running)
    }

    /// What people call, for a server or for calls in the process.
    pub fn supervisor_service(
        &self,
    ) -> impl Service<
        Request<Body>,
        Response = Response<Body>,
        Error = Infallible,
        Future = BoxFuture<'static, Result<Response<Body>, Infallible>>,
    > + NamedService
    + Clone
    + Send
    + Sync
    + use<> {
        Elected {
            seat: self.seat.clone(),
            pick: |led| clients::supervisor_server(led.supervisors.clone()),
        }
    }
    /// What runners call.
    pub fn registry_service(
        &self,
    ) -> impl Service<
        Request<Body>,
        Response = Response<Body>,
        Error = Infallible,
        Future = BoxFuture<'static, Result<Response<Body>, Infallible>>,
    > + NamedService
    + Clone
    + Send
    + Sync
    + use<> {
        Elected {
            seat: self.seat.clone(),
            pick: |led| clients::registry_server(led.registry.clone()),
        }
    }
    /// True while this coordinator leads.
    pub fn leads(&self) -> bool {
        self.seat.borrow().led().is_some()
    }
    /// Waits until it leads, or until it does not.
    pub async fn until_leads(&self, leads: bool) {
        let mut seat = self.seat.clone();
        // Without an election nothing changes any more.
        let _ = seat.wait_for(|seat| seat.led().is_some() == leads).await;
    }
    /// Supervisors that are taken up.
    pub fn supervisors(&self) -> usize {
        self.seat
            .borrow()
            .led()
            .map_or(0, |led| led.directory.all().len())
    }
    /// Keeps the health of the two services true: they serve while this coordinator leads. The process's own health
    /// is not touched: standing by is what it is for.
    pub fn tell_health(&self, health: &Health) {
        let (mut seat, health) = (self.seat.clone(), health.clone());
        let services = [
            service_name(&self.supervisor_service()),
            service_name(&self.registry_service()),
        ];
        tokio::spawn(async move {
            loop {
                let leads = seat.borrow_and_update().led().is_some();
                for service in services {
                    health.set(service, leads).await;
                }
                if seat.changed().await.is_err() {
                    return;
                }
            }
        });
    }
    /// Ends the actors and gives the lease back, in the background; tasks go on, everything that was answered is
    /// stored.
    pub fn stop(&self) {
        self.stop.cancel();
    }
    /// The same, and waits until another one may lead.
    pub async fn resign(mut self) {
        self.stop();
        if let Some(election) = self.election.take()
            && tokio::time::timeout(STEP_DOWN, election).await.is_err()
        {
            tracing::warn!("stepping down took too long; the lease runs out");
        }
    }
}

impl Drop for RunningCoordinator {
    fn drop(&mut self) {
        self.stop();
    }
}

fn service_name<S: NamedService>(_service: &S) -> &'static str {
    S::NAME
}

/// What a leader needs to take up what is stored.
struct Office {
    port: Arc<dyn CoordinatorStore>,
    connect: Connector,
    peers: actor::Peers,
    broker: Arc<dyn Broker>,
    metrics: Metrics,
    section: CoordinatorSection,
}

#[async_trait::async_trait]
impl TakeUp for Office {
    async fn take_up(&self, term: &Term) -> Result<Arc<Led>, CoordinatorError> {
        let section = &self.section;
        let world = World {
            store: Store {
                port: self.port.clone(),
                epoch: term.epoch,
                deposed: term.deposed.clone(),
            },
            peers: self.peers.clone(),
            registry: Arc::new(Registry::new(self.connect.clone(), section.runner_timeout)),
            broker: self.broker.clone(),
            rpc_timeout: section.rpc_timeout,
            stop: term.stop.clone(),
        };
        let directory = Directory::load(world, section.runner_timeout).await?;
        tokio::spawn(gauges::run(
            directory.clone(),
            self.metrics.clone(),
            term.stop.clone(),
        ));
        Ok(Arc::new(Led {
            supervisors: Arc::new(SupervisorApi {
                directory: directory.clone(),
                segments: Segments::new(self.peers.clone(), section.rpc_timeout),
            }),
            registry: Arc::new(RegistryApi {
                directory: directory.clone(),
                interval: section.heartbeat_interval,
            }),
            directory,
        }))
    }
}

/// Where others call a coordinator that listens at `bound`; empty when they cannot be told.
pub fn own_address(listen: &ListenConfig, bound: SocketAddr) -> String {
    if listen.advertise.is_none() && bound.ip().is_unspecified() {
        tracing::warn!(
            "coordinator.advertise is not set and every interface is bound: a coordinator that stands by cannot name \
             this one to clients"
        );
        return String::new();
    }
    listen.advertised(bound)
}

/// Runs a coordinator until `shutdown`. Returns when it is out.
pub async fn run(
    config: CoordinatorConfig,
    peers: Peers,
    metrics: Metrics,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), CoordinatorError> {
    let listen = &config.coordinator.address;
    let bound = listener.local_addr().map_err(|source| CoordinatorError::Listen {
        address: listen.listen,
        source,
    })?;
    let address = own_address(listen, bound);
    let store = Arc::new(Metadata::connect(config.metadata.url.expose()).await?);
    let running = RunningCoordinator::start(&config, address, store, peers, Arc::new(Kafka), metrics).await?;
    let health = Health::new();
    running.tell_health(&health);
    let routes = Routes::new(running.supervisor_service())
        .add_service(running.registry_service())
        .add_service(handshake::server(own_hello(&config)));
    let drain = config.common.drain_timeout / 2;
    let end = shutdown.cancelled_owned();
    server::serve(listener, routes, &health, drain, end).await?;
    running.resign().await;
    tracing::info!("the coordinator is out; tasks go on");
    Ok(())
}
