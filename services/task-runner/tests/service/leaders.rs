//! Heartbeats reach the coordinator that leads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_config::{RunnerConfig, Sources};
use tidegate_rpc::follow::not_leading;
use tidegate_rpc::health::Health;
use tidegate_rpc::{Transport, clients, server};
use tidegate_task_runner::{Peers as Transports, RunningRunner};
use tidegate_telemetry::Metrics;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;

use crate::peers::Peers;
use crate::world::LONG;

/// A coordinator that leads or names another one.
struct Coordinator {
    registry: Arc<Peers>,
    leads: Arc<AtomicBool>,
    other: Arc<Mutex<String>>,
    address: String,
    killed: CancellationToken,
}

impl Coordinator {
    async fn start(is_leader: bool) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let registry = Arc::new(Peers::default());
        let (leads, other) = (Arc::new(AtomicBool::new(is_leader)), Arc::new(Mutex::default()));
        let (decides, names): (_, Arc<Mutex<String>>) = (leads.clone(), other.clone());
        let service = InterceptedService::new(clients::registry_server(registry.clone()), move |request| {
            if decides.load(Ordering::SeqCst) {
                Ok(request)
            } else {
                Err(not_leading(Some(&names.lock().unwrap())))
            }
        });
        let killed = CancellationToken::new();
        let end = killed.clone().cancelled_owned();
        tokio::spawn(async move {
            server::serve(
                listener,
                Routes::new(service),
                &Health::new(),
                Duration::from_millis(10),
                end,
            )
            .await
        });
        Self {
            registry,
            leads,
            other,
            address,
            killed,
        }
    }
    /// Waits for three more heartbeats.
    async fn is_told(&self) {
        let before = self.registry.0.lock().unwrap().beats;
        for _ in 0..3_000 {
            if self.registry.0.lock().unwrap().beats >= before + 3 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("no heartbeats within 30 s");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_follow_the_lead_wherever_it_goes_and_outlive_the_coordinator_that_told_them() {
    let folder = tempfile::tempdir().unwrap();
    let (one, two) = (Coordinator::start(true).await, Coordinator::start(false).await);
    one.other.lock().unwrap().clone_from(&two.address);
    two.other.lock().unwrap().clone_from(&one.address);
    let root = folder.path().display();
    let sources = Sources::new()
        .program("objects.url", format!("file://{root}/objects"))
        .program("runner.work_dir", format!("{root}/work"))
        .program("runner.coordinator", format!("{}, {}", two.address, one.address));
    let config = tidegate_config::load::<RunnerConfig>(&sources).unwrap().settings;
    let unused = Arc::new(Peers::default());
    let transports = Transports {
        publisher: Transport::in_process(clients::publisher_server(unused.clone())),
        handoff_checker: Transport::in_process(clients::handoff_server(unused)),
        ..Transports::connect(&config).unwrap()
    };
    let address = "http://127.0.0.1:1".to_owned();
    let runner = RunningRunner::start(&config, transports, address, Metrics::new("task-runner"));
    let runner = runner.await.unwrap();
    one.is_told().await;
    assert_eq!(
        two.registry.0.lock().unwrap().beats,
        0,
        "who stands by records nothing"
    );

    one.leads.store(false, Ordering::SeqCst);
    two.leads.store(true, Ordering::SeqCst);
    two.is_told().await;
    one.leads.store(true, Ordering::SeqCst);
    two.leads.store(false, Ordering::SeqCst);
    one.is_told().await;

    // The leader is gone, and nobody is left there to name the next one.
    one.killed.cancel();
    two.leads.store(true, Ordering::SeqCst);
    two.is_told().await;
    runner.drain(LONG).await;
}
