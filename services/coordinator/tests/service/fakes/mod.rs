//! A coordinator among fakes: a publisher that keeps offsets, runners that keep tasks, a broker that is a table.
//! All of it in this process, through the real services.

mod publisher;
mod runner;
mod store;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_config::{ConfigArgs, CoordinatorConfig};
use tidegate_coordinator::{Broker, Peers, RunningCoordinator};
use tidegate_metadata::{CoordinatorStore, Metadata};
use tidegate_protocol::supervisor::Discovery;
use tidegate_protocol::task::Stream;
use tidegate_rpc::Transport;
use tidegate_rpc::clients::{self, RegistryClient, SupervisorClient};
use tidegate_rpc::coordinator::v1 as api;
use tidegate_spec::SupervisorSpec;
use tidegate_telemetry::Metrics;
use tidegate_types::{ClusterId, PartitionOffsets, TopicId};

pub(crate) use publisher::FakePublisher;
pub(crate) use runner::FakeRunner;
pub(crate) use store::HeldStore;

/// A topic by name: (earliest, latest) of each partition.
#[derive(Default)]
pub(crate) struct FakeBroker {
    pub(crate) topics: Mutex<BTreeMap<String, Vec<(i64, i64)>>>,
    /// Questions get no answer at all.
    pub(crate) is_silent: AtomicBool,
}

#[async_trait::async_trait]
impl Broker for FakeBroker {
    async fn discover(&self, spec: &SupervisorSpec) -> Result<Discovery, String> {
        if self.is_silent.load(Ordering::SeqCst) {
            return std::future::pending().await;
        }
        let topics = self.topics.lock().unwrap();
        let bounds = topics
            .get(&spec.io.topic)
            .ok_or_else(|| format!("no topic {}", spec.io.topic))?;
        let offsets = |pick: fn(&(i64, i64)) -> i64| -> PartitionOffsets {
            bounds
                .iter()
                .enumerate()
                .map(|(partition, bound)| {
                    let partition = tidegate_types::PartitionId(i32::try_from(partition).unwrap());
                    (partition, tidegate_types::Offset(pick(bound)))
                })
                .collect()
        };
        let stream = Stream {
            topic: spec.io.topic.clone(),
            cluster_id: ClusterId("cluster".into()),
            topic_id: TopicId(format!("id of {}", spec.io.topic)),
        };
        Ok(Discovery {
            stream,
            earliest: offsets(|bound| bound.0),
            latest: offsets(|bound| bound.1),
        })
    }
}

pub(crate) struct World {
    pub(crate) store: Arc<HeldStore>,
    pub(crate) broker: Arc<FakeBroker>,
    pub(crate) publisher: Arc<FakePublisher>,
    pub(crate) runners: Arc<Mutex<BTreeMap<String, Arc<FakeRunner>>>>,
    pub(crate) coordinator: RunningCoordinator,
    pub(crate) api: SupervisorClient,
    /// Where runners send their heartbeats: the coordinator that leads.
    pub(crate) registry: Arc<Mutex<RegistryClient>>,
}

fn config(lease: Duration) -> CoordinatorConfig {
    let set = [
        "metadata.url=sqlite::memory:".to_owned(),
        "coordinator.runner_timeout=3s".to_owned(),
        "coordinator.heartbeat_interval=100ms".to_owned(),
        format!("coordinator.lease_duration={}ms", lease.as_millis()),
        "coordinator.rpc_timeout=1s".to_owned(),
    ];
    let arguments = ConfigArgs {
        set: set.to_vec(),
        ..ConfigArgs::default()
    };
    tidegate_config::load::<CoordinatorConfig>(&arguments.sources())
        .unwrap()
        .settings
}

impl World {
    /// One topic `edits` with these bounds, two runners with four slots each.
    pub(crate) async fn start(bounds: &[(i64, i64)]) -> Self {
        let store = Arc::new(HeldStore::new(Metadata::in_memory().await.unwrap()));
        let broker = Arc::new(FakeBroker::default());
        broker
            .topics
            .lock()
            .unwrap()
            .insert("edits".into(), bounds.to_vec());
        let publisher = Arc::new(FakePublisher::default());
        let runners = Arc::new(Mutex::new(BTreeMap::new()));
        let fakes = Fakes {
            broker: broker.clone(),
            publisher: publisher.clone(),
            runners: runners.clone(),
        };
        let coordinator = fakes.coordinator(&store, ADDRESS, LEASE).await;
        let api = clients::supervisor(Transport::in_process(coordinator.supervisor_service()));
        let registry = clients::registry(Transport::in_process(coordinator.registry_service()));
        let world = Self {
            store,
            broker,
            publisher,
            runners,
            coordinator,
            api,
            registry: Arc::new(Mutex::new(registry)),
        };
        world.runner("r1", 4);
        world.runner("r2", 4);
        world
    }

    /// A runner that tells itself every 50 ms until it is switched off.
    pub(crate) fn runner(&self, name: &str, slots: u32) -> Arc<FakeRunner> {
        let runner = Arc::new(FakeRunner::new(name, slots, self.publisher.clone()));
        self.runners
            .lock()
            .unwrap()
            .insert(runner.address(), runner.clone());
        let (beating, registry) = (runner.clone(), self.registry.clone());
        tokio::spawn(async move {
            while !beating.is_off() {
                let mut client = registry.lock().unwrap().clone();
                if let Ok(answer) = client.heartbeat(beating.heartbeat()).await {
                    beating.acknowledged(&answer.into_inner());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        runner
    }

    pub(crate) fn find_runner(&self, name: &str) -> Arc<FakeRunner> {
        self.runners.lock().unwrap()[&format!("fake://{name}")].clone()
    }

    /// Another life of the coordinator, on the same store.
    pub(crate) async fn restart(&mut self) {
        self.coordinator.stop();
        self.coordinator = self.fakes().coordinator(&self.store, ADDRESS, LEASE).await;
        self.api = clients::supervisor(Transport::in_process(self.coordinator.supervisor_service()));
        *self.registry.lock().unwrap() =
            clients::registry(Transport::in_process(self.coordinator.registry_service()));
    }

    pub(crate) fn fakes(&self) -> Fakes {
        Fakes {
            broker: self.broker.clone(),
            publisher: self.publisher.clone(),
            runners: self.runners.clone(),
        }
    }

    pub(crate) fn registry(&self) -> RegistryClient {
        self.registry.lock().unwrap().clone()
    }

    pub(crate) async fn submit(&self, spec: &str) -> Result<api::SubmitResponse, tonic::Status> {
        let request = api::SubmitRequest {
            spec_json: spec.to_owned(),
        };
        Ok(self.api.clone().submit(request).await?.into_inner())
    }
    pub(crate) async fn status(&self) -> api::StatusResponse {
        let request = api::StatusRequest {
            supervisor_id: "wiki".into(),
        };
        self.api.clone().status(request).await.unwrap().into_inner()
    }
    /// The status, once it is so; what it was last otherwise.
    pub(crate) async fn until(
        &self,
        what: &str,
        so: impl Fn(&api::StatusResponse) -> bool,
    ) -> api::StatusResponse {
        for _ in 0..1_200 {
            let status = self.status().await;
            if so(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        panic!(
            "not within 30 s: {what}; the status is {:#?}",
            self.status().await
        );
    }
    pub(crate) async fn history(&self) -> Vec<api::HistoryEntry> {
        let request = api::HistoryRequest {
            supervisor_id: "wiki".into(),
        };
        self.api
            .clone()
            .history(request)
            .await
            .unwrap()
            .into_inner()
            .entries
    }
    /// Ids of the tasks that runners hold and that have not ended.
    pub(crate) fn held(&self) -> Vec<String> {
        let runners = self.runners.lock().unwrap();
        let mut held: Vec<String> = runners.values().flat_map(|runner| runner.live()).collect();
        held.sort();
        held
    }
    pub(crate) fn read(&self, id: &str, next: &[(i32, i64)]) {
        self.with_task(id, |task| task.next = offsets(next));
    }
    pub(crate) fn with_task<T>(&self, id: &str, work: impl FnOnce(&mut runner::FakeTask) -> T) -> T {
        let runners: Vec<_> = self.runners.lock().unwrap().values().cloned().collect();
        let runner = runners
            .iter()
            .find(|runner| runner.tasks.lock().unwrap().contains_key(id));
        let runner = runner.unwrap_or_else(|| panic!("no runner has {id}"));
        let mut tasks = runner.tasks.lock().unwrap();
        work(tasks.get_mut(id).unwrap())
    }
}

/// Of one coordinator that nobody disturbs.
const ADDRESS: &str = "http://127.0.0.1:7100";
const LEASE: Duration = Duration::from_secs(15);

/// What coordinators have around them.
#[derive(Clone, Default)]
pub(crate) struct Fakes {
    pub(crate) broker: Arc<FakeBroker>,
    pub(crate) publisher: Arc<FakePublisher>,
    pub(crate) runners: Arc<Mutex<BTreeMap<String, Arc<FakeRunner>>>>,
}

impl Fakes {
    /// A coordinator that leads, or stands by.
    pub(crate) async fn coordinator(
        &self,
        store: &Arc<HeldStore>,
        address: &str,
        lease: Duration,
    ) -> RunningCoordinator {
        let begun = self.try_coordinator(store, address, lease, Metrics::new("coordinator"));
        begun.await.unwrap()
    }

    pub(crate) async fn try_coordinator(
        &self,
        store: &Arc<HeldStore>,
        address: &str,
        lease: Duration,
        metrics: Metrics,
    ) -> Result<RunningCoordinator, tidegate_coordinator::CoordinatorError> {
        let known = self.runners.clone();
        let peers = Peers {
            publisher: Transport::in_process(clients::publisher_server(self.publisher.clone())),
            handoff_checker: Transport::in_process(clients::handoff_server(self.publisher.clone())),
            runners: Arc::new(move |address: &str| {
                let runner = known.lock().unwrap().get(address).cloned();
                let runner = runner.ok_or_else(|| format!("nobody is at {address}"))?;
                Ok(Transport::in_process(clients::runner_server(runner)))
            }),
        };
        let (config, address) = (config(lease), address.to_owned());
        let store: Arc<dyn CoordinatorStore> = store.clone();
        RunningCoordinator::start(&config, address, store, peers, self.broker.clone(), metrics).await
    }
}

pub(crate) fn offsets(pairs: &[(i32, i64)]) -> tidegate_rpc::types::v1::PartitionOffsets {
    let offsets = pairs
        .iter()
        .map(|(partition, offset)| tidegate_rpc::types::v1::PartitionOffset {
            partition: *partition,
            offset: *offset,
        });
    tidegate_rpc::types::v1::PartitionOffsets {
        offsets: offsets.collect(),
    }
}

pub(crate) fn now_millis() -> i64 {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

pub(crate) const SECRET: &str = "marker-4711";

/// A spec of supervisor `wiki` with more of an ioConfig.
pub(crate) fn spec(extra: &str) -> String {
    let comma = if extra.is_empty() { "" } else { "," };
    format!(
        r#"{{"type":"kafka","spec":{{"dataSchema":{{"dataSource":"wiki","timestampSpec":{{"column":"time","format":"iso"}},
        "dimensionsSpec":{{"dimensions":["page"]}},"granularitySpec":{{"segmentGranularity":"HOUR"}}}},
        "ioConfig":{{"topic":"edits","inputFormat":{{"type":"json"}},"useEarliestOffset":true,"startDelay":"PT0S",
        "period":"PT1S","consumerProperties":{{"bootstrap.servers":"h:9092","sasl.password":"{SECRET}"}}{comma}{extra}}},
        "tuningConfig":{{"type":"kafka"}}}}}}"#
    )
}
