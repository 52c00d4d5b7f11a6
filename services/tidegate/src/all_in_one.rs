//! All four services in one process, behind one gRPC address.
//!
//! Owns: the order in which they start and end. Promises: they are the services of their own binaries, with calls in
//! the process where there would be a socket; nothing else differs. Task-runners of other processes may join through
//! the same address.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tidegate_config::{
    CommonConfig, ConfigError, CoordinatorConfig, HandoffConfig, PublisherConfig, RunnerConfig,
};
use tidegate_config::{Settings, Sources};
use tidegate_coordinator::RunningCoordinator;
use tidegate_handoff_checker::RunningHandoffChecker;
use tidegate_metadata::Metadata;
use tidegate_protocol::negotiation::Hello;
use tidegate_publisher::RunningPublisher;
use tidegate_rpc::{Transport, handshake, health::Health, server};
use tidegate_task_runner::RunningRunner;
use tidegate_telemetry::Metrics;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::failure::Failure;

/// Settings of the four services, read from the same sources.
#[derive(Debug, Clone)]
pub(crate) struct AllSettings {
    pub(crate) coordinator: CoordinatorConfig,
    pub(crate) runner: RunnerConfig,
    pub(crate) publisher: PublisherConfig,
    pub(crate) handoff: HandoffConfig,
    /// Every value in force, one a line, secrets masked.
    pub(crate) effective: Vec<String>,
}

impl AllSettings {
    /// Everything that is wrong is told at once.
    pub(crate) fn load(sources: &Sources) -> Result<Self, Failure> {
        let mut problems: Vec<String> = Vec::new();
        let mut effective: Vec<String> = Vec::new();
        let coordinator = one::<CoordinatorConfig>(sources, &mut problems, &mut effective);
        let runner = one::<RunnerConfig>(sources, &mut problems, &mut effective);
        let publisher = one::<PublisherConfig>(sources, &mut problems, &mut effective);
        let handoff = one::<HandoffConfig>(sources, &mut problems, &mut effective);
        match (coordinator, runner, publisher, handoff) {
            (Some(coordinator), Some(runner), Some(publisher), Some(handoff)) => Ok(Self {
                coordinator,
                runner,
                publisher,
                handoff,
                effective,
            }),
            _ => Err(Failure::Other(problems.join("\n"))),
        }
    }

    pub(crate) fn common(&self) -> &CommonConfig {
        &self.coordinator.common
    }
}

fn one<T: Settings>(sources: &Sources, problems: &mut Vec<String>, effective: &mut Vec<String>) -> Option<T> {
    match tidegate_config::load::<T>(sources) {
        Ok(loaded) => {
            for line in loaded.effective.iter().map(|one| {
                let shown = if one.shown.is_empty() {
                    "(absent)"
                } else {
                    &one.shown
                };
                format!("{} = {shown}  ({})", one.key, one.origin)
            }) {
                push_new(effective, line);
            }
            Some(loaded.settings)
        }
        Err(ConfigError { problems: found }) => {
            for problem in &found {
                push_new(problems, problem.to_string());
            }
            None
        }
    }
}

fn push_new(lines: &mut Vec<String>, line: String) {
    if !lines.contains(&line) {
        lines.push(line);
    }
}

/// The four services, going.
pub(crate) struct AllInOne {
    coordinator: RunningCoordinator,
    runner: RunningRunner,
    publisher: RunningPublisher,
    handoff: RunningHandoffChecker,
    health: Health,
    serving: JoinHandle<Result<(), server::ServeError>>,
    stop_serving: CancellationToken,
    address: String,
    drain: Duration,
}

impl AllInOne {
    /// Starts everything; returns when the address answers.
    pub(crate) async fn start(
        settings: &AllSettings,
        listener: TcpListener,
        metrics: &Metrics,
    ) -> Result<Self, Failure> {
        let bound = listener
            .local_addr()
            .map_err(|error| failed("listening", error))?;
        let address = settings.coordinator.coordinator.address.advertised(bound);
        let url = settings.coordinator.metadata.url.expose();
        let store = Metadata::connect(url)
            .await
            .map_err(|error| failed("opening the metadata store", error))?;
        let store = Arc::new(store);
        let publisher = RunningPublisher::on(store.clone(), &settings.publisher, metrics.of("publisher"))
            .map_err(|error| failed("starting the publisher", error))?;
        let handoff = RunningHandoffChecker::on(
            store.clone(),
            &settings.handoff,
            tidegate_handoff_checker::Peers {
                publisher: publisher.transport(),
            },
            metrics.of("handoff-checker"),
        )
        .await
        .map_err(|error| failed("starting the handoff-checker", error))?;
        let own_runner: Arc<OnceLock<Transport>> = Arc::default();
        let peers = tidegate_coordinator::Peers {
            publisher: publisher.transport(),
            handoff_checker: handoff.transport(),
            runners: to_runners(
                address.clone(),
                own_runner.clone(),
                tidegate_coordinator::own_hello(&settings.coordinator),
            ),
        };
        let own_address = tidegate_coordinator::own_address(&settings.coordinator.coordinator.address, bound);
        let coordinator = RunningCoordinator::start(
            &settings.coordinator,
            own_address,
            store,
            peers,
            Arc::new(tidegate_coordinator::Kafka),
            metrics.of("coordinator"),
        )
        .await
        .map_err(|error| failed("starting the coordinator", error))?;
        let peers = tidegate_task_runner::Peers {
            // Should another process on the same store lead, its heartbeats go there.
            coordinator: Transport::to_leader_by(
                &address,
                Transport::in_process(coordinator.registry_service()),
            ),
            publisher: publisher.transport(),
            handoff_checker: handoff.transport(),
        };
        let runner = RunningRunner::start(
            &settings.runner,
            peers,
            address.clone(),
            metrics.of("task-runner"),
        )
        .await
        .map_err(|error| failed("starting the task-runner", error))?;
        // Until it is set the coordinator finds the runner over the socket, which answers the same.
        let _ = own_runner.set(Transport::in_process(runner.service()));
        let health = Health::new();
        coordinator.tell_health(&health);
        let routes = Routes::new(coordinator.supervisor_service())
            .add_service(coordinator.registry_service())
            .add_service(publisher.service())
            .add_service(handoff.service())
            .add_service(runner.service())
            .add_service(handshake::server(handshake::own(
                "all-in-one",
                settings.common().protocol.disabled(),
            )));
        let drain = settings.common().drain_timeout;
        let stop_serving = CancellationToken::new();
        let serving = {
            let (health, stopped) = (health.clone(), stop_serving.clone());
            tokio::spawn(async move {
                server::serve(listener, routes, &health, drain / 4, async move {
                    stopped.cancelled().await;
                })
                .await
            })
        };
        Ok(Self {
            coordinator,
            runner,
            publisher,
            handoff,
            health,
            serving,
            stop_serving,
            address,
            drain,
        })
    }

    /// Where it answers.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Waits until the server ends by itself, which it should not.
    pub(crate) async fn ended(&mut self) -> Failure {
        match (&mut self.serving).await {
            Ok(Ok(())) => Failure::Other("the gRPC server stopped".into()),
            Ok(Err(error)) => failed("serving", error),
            Err(error) => failed("serving", error),
        }
    }

    /// Stops taking work, persists, leaves tasks restorable; bounded by the drain time-out.
    pub(crate) async fn drain(self) {
        self.health.not_serving().await;
        self.runner.drain(self.drain / 2).await;
        self.coordinator.resign().await;
        self.handoff.stop();
        self.publisher.drain(self.drain / 4).await;
        self.stop_serving.cancel();
        if let Ok(Err(error)) = self.serving.await {
            tracing::warn!(%error, "the gRPC server did not end in order");
        }
    }
}

/// The runner of this process by a call, all others by their addresses.
fn to_runners(
    own: String,
    transport: Arc<OnceLock<Transport>>,
    hello: Hello,
) -> tidegate_coordinator::Connector {
    let over_tcp = tidegate_coordinator::over_tcp(hello);
    Arc::new(move |address: &str| match transport.get() {
        Some(transport) if address == own => Ok(transport.clone()),
        _ => over_tcp(address),
    })
}

fn failed(what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::Other(format!("{what}: {error}"))
}
