//! The life of a runner in a process: real or all-in-one.

use std::sync::Arc;

use tidegate_config::RunnerConfig;
use tidegate_objects::Objects;
use tidegate_protocol::negotiation::Hello;
use tidegate_rpc::task_runner::v1::task_runner_server::TaskRunnerServer;
use tidegate_rpc::{Transport, clients, handshake, server};
use tidegate_telemetry::Metrics;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::error::RunnerError;
use crate::grpc::Service;
use crate::heartbeat::Heartbeat;
use crate::runner::Runner;
use crate::task::Shared;
use crate::work_dir::WorkDir;

/// How the runner reaches the other services.
#[derive(Debug, Clone)]
pub struct Peers {
    /// The coordinator's runner registry.
    pub coordinator: Transport,
    pub publisher: Transport,
    pub handoff_checker: Transport,
}

impl Peers {
    /// Over TCP, as configured.
    pub fn connect(config: &RunnerConfig) -> Result<Self, RunnerError> {
        let (section, own) = (&config.runner, own_hello(config));
        Ok(Self {
            coordinator: Transport::to_leader(&section.coordinator)?.greet(&own, "coordinator"),
            publisher: Transport::connect(&section.publisher)?.greet(&own, "publisher"),
            handoff_checker: Transport::connect(&section.handoff_checker)?.greet(&own, "handoff-checker"),
        })
    }
}

/// What peers are told of this service.
fn own_hello(config: &RunnerConfig) -> Hello {
    handshake::own("task-runner", config.common.protocol.disabled())
}

/// A runner that is going.
#[derive(Debug)]
pub struct RunningRunner {
    runner: Arc<Runner>,
    beating: JoinHandle<()>,
    stop_beating: CancellationToken,
    work_dir: Arc<WorkDir>,
}

impl RunningRunner {
    /// Locks the work folder, finds its tasks, and begins to tell the coordinator. `address` is where others
    /// reach the service.
    pub async fn start(
        config: &RunnerConfig,
        peers: Peers,
        address: String,
        metrics: Metrics,
    ) -> Result<Self, RunnerError> {
        tidegate_kafka::check_features()?;
        let section = &config.runner;
        let root = section.work_dir.clone();
        let opened = tokio::task::spawn_blocking(move || WorkDir::open(&root)).await;
        let work_dir = Arc::new(opened.map_err(|error| RunnerError::Background(error.to_string()))??);
        let bell = Arc::new(Notify::new());
        let slots = section.slots.max(1);
        let shared = Shared {
            work_dir: work_dir.clone(),
            publisher: clients::publisher(peers.publisher),
            handoff: clients::handoff(peers.handoff_checker),
            objects: Objects::open(&config.objects)?,
            metrics,
            memory_per_task: (section.memory_limit / u64::from(slots)).max(1 << 20),
            rpc_timeout: section.rpc_timeout,
            merges: Arc::new(Semaphore::new(
                std::thread::available_parallelism().map_or(2, usize::from),
            )),
            bell: bell.clone(),
        };
        let runner = Arc::new(Runner::new(shared, section.disk_limit, slots));
        runner.restore().await?;
        let heartbeat = Heartbeat {
            registry: clients::registry(peers.coordinator),
            runner: runner.clone(),
            work_dir: work_dir.clone(),
            address,
            bell,
            timeout: section.rpc_timeout,
            capabilities: own_hello(config).capabilities.into_iter().collect(),
        };
        let stop_beating = CancellationToken::new();
        let beating = tokio::spawn(heartbeat.run(stop_beating.clone()));
        tracing::info!(runner = %work_dir.runner(), slots, "the task-runner is up");
        Ok(Self {
            runner,
            beating,
            stop_beating,
            work_dir,
        })
    }

    /// The gRPC service, for a server or for calls in the process.
    pub fn service(
        &self,
    ) -> TaskRunnerServer<impl tidegate_rpc::task_runner::v1::task_runner_server::TaskRunner + use<>> {
        clients::runner_server(Arc::new(Service(self.runner.clone())))
    }

    /// The instance id on the volume.
    pub fn id(&self) -> &str {
        self.work_dir.runner().as_str()
    }

    /// Stops taking work, persists, leaves every task restorable; bounded by `limit`.
    pub async fn drain(self, limit: std::time::Duration) {
        self.runner.drain(limit).await;
        self.stop_beating.cancel();
        // A heartbeat under way is cut: the coordinator learns of the end by silence or by the next life.
        self.beating.abort();
        self.work_dir.release();
    }
}

/// Runs a runner until `shutdown`, then drains it. Returns when it is out.
pub async fn run(
    config: RunnerConfig,
    peers: Peers,
    metrics: Metrics,
    listener: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), RunnerError> {
    let listen = config.runner.address.listen;
    let bound = listener.local_addr().map_err(|source| RunnerError::Listen {
        address: listen,
        source,
    })?;
    let running =
        RunningRunner::start(&config, peers, config.runner.address.advertised(bound), metrics).await?;
    let health = tidegate_rpc::health::Health::new();
    let routes = Routes::new(running.service()).add_service(handshake::server(own_hello(&config)));
    let drain = config.common.drain_timeout;
    let stopped = CancellationToken::new();
    let serving = {
        let (health, stopped) = (health.clone(), stopped.clone());
        tokio::spawn(async move {
            // Calls are answered until the tasks are out: the coordinator may still ask.
            server::serve(listener, routes, &health, drain / 4, async move {
                stopped.cancelled().await;
            })
            .await
        })
    };
    tokio::pin!(serving);
    let early = tokio::select! {
        () = shutdown.cancelled() => None,
        ended = &mut serving => Some(ended),
    };
    health.not_serving().await;
    running.drain(drain / 2).await;
    stopped.cancel();
    let ended = match early {
        Some(ended) => ended,
        None => serving.await,
    };
    ended.map_err(|error| RunnerError::Background(error.to_string()))??;
    tracing::info!("the task-runner is out");
    Ok(())
}
