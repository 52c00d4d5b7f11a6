//! Several coordinators on one database: one leads, the others name it, and take over.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tidegate_coordinator::{CoordinatorError, RunningCoordinator};
use tidegate_metadata::{CoordinatorStore as _, Document, Metadata, SupervisorRecord};
use tidegate_rpc::coordinator::v1 as api;
use tidegate_rpc::follow::leader_named;
use tidegate_rpc::health::{self, Health};
use tidegate_rpc::status::retry_after;
use tidegate_rpc::{Transport, clients, server};
use tidegate_servers::Postgres;
use tidegate_telemetry::Metrics;
use tidegate_types::{Epoch, SupervisorId, TimestampMillis};
use tokio_util::sync::CancellationToken;
use tonic::Code;

use crate::fakes::{FakeRunner, Fakes, HeldStore, World, now_millis, spec};

/// No test waits for the end of this one.
const LONG: Duration = Duration::from_mins(2);
/// This one is waited for.
const SHORT: Duration = Duration::from_secs(4);
const SERVICES: [&str; 2] = [
    "tidegate.coordinator.v1.SupervisorService",
    "tidegate.coordinator.v1.RunnerRegistry",
];

macro_rules! on_both_databases {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let folder = tempfile::tempdir().unwrap();
                let url = format!("sqlite://{}", folder.path().join("tidegate.db").display());
                super::$test(super::Database { url, _folder: Some(folder) }).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(super::postgres_database().await).await;
            })*
        }
    };
}

on_both_databases!(
    one_leads_and_the_other_refuses_every_call_with_its_address,
    when_the_leader_cannot_renew_it_steps_down_first_and_the_other_goes_on_with_everything,
    a_leader_that_resigns_is_followed_at_once,
    a_leader_of_0_1_0_is_noticed_and_later_followed,
);

struct Database {
    url: String,
    _folder: Option<TempDir>,
}

async fn postgres_database() -> Database {
    // Starting a server blocks.
    let url = tokio::task::spawn_blocking(|| Postgres::shared().unwrap().fresh_database_url().unwrap());
    Database {
        url: url.await.unwrap(),
        _folder: None,
    }
}

impl Database {
    /// A coordinator's own handle.
    async fn store(&self) -> Arc<HeldStore> {
        Arc::new(HeldStore::new(Metadata::connect(&self.url).await.unwrap()))
    }
}

/// A coordinator at an address.
struct Member {
    coordinator: RunningCoordinator,
    store: Arc<HeldStore>,
    address: String,
    stop_serving: CancellationToken,
}

impl Member {
    async fn start(database: &Database, fakes: &Fakes, lease: Duration) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let store = database.store().await;
        let coordinator = fakes.coordinator(&store, &address, lease).await;
        let health = Health::new();
        coordinator.tell_health(&health);
        let routes = tonic::service::Routes::new(coordinator.supervisor_service())
            .add_service(coordinator.registry_service());
        let stop_serving = CancellationToken::new();
        let stopped = stop_serving.clone().cancelled_owned();
        tokio::spawn(async move {
            server::serve(listener, routes, &health, Duration::from_secs(1), stopped).await
        });
        Self {
            coordinator,
            store,
            address,
            stop_serving,
        }
    }
    async fn leads_within(&self, limit: Duration) {
        let leads = self.coordinator.until_leads(true);
        tokio::time::timeout(limit, leads).await.unwrap();
    }
    async fn health(&self) -> [bool; 3] {
        let [supervisors, registry] = SERVICES;
        let mut told = [false; 3];
        for (told, service) in told.iter_mut().zip(["", supervisors, registry]) {
            let transport = Transport::connect(&self.address).unwrap();
            *told = health::check_service(transport, service).await.unwrap();
        }
        told
    }
}

/// Two coordinators, the first of which leads, and a world of two runners that knows only the second one's address.
async fn two(database: &Database, lease: Duration) -> (World, Member) {
    let fakes = Fakes::default();
    fakes
        .broker
        .topics
        .lock()
        .unwrap()
        .insert("edits".into(), vec![(0, 100)]);
    let one = Member::start(database, &fakes, lease).await;
    assert!(one.coordinator.leads());
    let two = Member::start(database, &fakes, lease).await;
    assert!(!two.coordinator.leads());
    let list = format!("{},{}", two.address, one.address);
    let transport = Transport::to_leader(&list).unwrap();
    let Member {
        coordinator, store, ..
    } = one;
    let world = World {
        store,
        broker: fakes.broker,
        publisher: fakes.publisher,
        runners: fakes.runners,
        coordinator,
        api: clients::supervisor(transport.clone()),
        registry: Arc::new(Mutex::new(clients::registry(transport))),
    };
    world.runner("r1", 4);
    world.runner("r2", 4);
    (world, two)
}

fn is_reading(status: &api::StatusResponse) -> bool {
    let reads = |task: &api::TaskInfo| {
        task.status.as_ref().unwrap().state() == tidegate_rpc::task_runner::v1::TaskState::Reading
    };
    status.reading.len() == 2 && status.reading.iter().all(reads)
}

async fn one_leads_and_the_other_refuses_every_call_with_its_address(database: Database) {
    let fakes = Fakes::default();
    let one = Member::start(&database, &fakes, LONG).await;
    let two = Member::start(&database, &fakes, LONG).await;
    assert!(one.coordinator.leads() && !two.coordinator.leads());
    let straight = || Transport::connect(&two.address).unwrap();
    let supervisors = clients::supervisor(straight()).list(api::ListRequest {}).await;
    let runner = FakeRunner::new("r1", 1, fakes.publisher.clone());
    let heartbeat = clients::registry(straight()).heartbeat(runner.heartbeat()).await;
    for refused in [supervisors.unwrap_err(), heartbeat.unwrap_err()] {
        assert_eq!(refused.code(), Code::Unavailable);
        assert_eq!(leader_named(&refused), Some(one.address.as_str()));
        assert!(refused.message().contains(&one.address), "{refused}");
        assert!(retry_after(&refused).is_some());
    }
    assert_eq!(one.health().await, [true, true, true]);
    assert_eq!(
        two.health().await,
        [true, false, false],
        "the process is well; its services wait"
    );
    let followed = Transport::to_leader(&two.address).unwrap();
    let answer = clients::registry(followed).heartbeat(runner.heartbeat()).await;
    assert_eq!(answer.unwrap().into_inner().coordinator_epoch, 1);
    one.stop_serving.cancel();
}

async fn when_the_leader_cannot_renew_it_steps_down_first_and_the_other_goes_on_with_everything(
    database: Database,
) {
    let (world, two) = two(&database, SHORT).await;
    world.submit(&spec(r#""replicas":2"#)).await.unwrap();
    let before = world.until("two tasks read", is_reading).await;
    assert_eq!(two.coordinator.supervisors(), 0);
    world.store.cut_off();
    tokio::time::timeout(SHORT * 2, world.coordinator.until_leads(false))
        .await
        .unwrap();
    assert!(!two.coordinator.leads(), "the old one ends first");
    two.leads_within(SHORT * 4).await;
    let at = now_millis();
    assert_eq!(two.coordinator.supervisors(), 1);
    // The same tasks, told by the heartbeats of their runners.
    let after = world.until("two tasks read", is_reading).await;
    let ids = |status: &api::StatusResponse| {
        let id = |task: &api::TaskInfo| task.status.as_ref().unwrap().task_id.clone();
        status.reading.iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&after), ids(&before));
    let mut are_heard = false;
    for _ in 0..1_200 {
        let runners = world.api.clone().list_runners(api::ListRunnersRequest {}).await;
        let runners = runners.unwrap().into_inner().runners;
        let is_heard = |one: &api::RunnerInfo| one.last_heartbeat_millis > at && one.available;
        are_heard = runners.len() == 2 && runners.iter().all(is_heard);
        if are_heard {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert!(are_heard, "both runners tell the new leader");
    // The first one finds out who leads when its store answers again, and does not take the lead back.
    world.store.heal();
    let straight = Transport::in_process(world.coordinator.supervisor_service());
    let mut named = String::new();
    for _ in 0..1_200 {
        let refused = clients::supervisor(straight.clone())
            .list(api::ListRequest {})
            .await;
        leader_named(&refused.unwrap_err())
            .unwrap()
            .clone_into(&mut named);
        if named == two.address {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(named, two.address);
    assert!(two.coordinator.leads());
    let lease = two.store.lease().await.unwrap();
    assert_eq!((lease.address, lease.epoch), (two.address.clone(), Epoch(2)));
    world.submit(&spec(r#""replicas":1"#)).await.unwrap();
}

async fn a_leader_that_resigns_is_followed_at_once(database: Database) {
    let (world, two) = two(&database, LONG).await;
    let World { coordinator, .. } = world;
    coordinator.resign().await;
    // Nothing runs out within the time of this test.
    two.leads_within(Duration::from_secs(20)).await;
}

async fn a_leader_of_0_1_0_is_noticed_and_later_followed(database: Database) {
    let short = Duration::from_millis(900);
    let fakes = Fakes::default();
    let one = Member::start(&database, &fakes, short).await;
    let old = database.store().await;
    let epoch = old
        .raise_epoch("17@127.0.0.1:7100", TimestampMillis(now_millis()))
        .await;
    let since = std::time::Instant::now();
    let epoch = epoch.unwrap();
    tokio::time::timeout(Duration::from_secs(20), one.coordinator.until_leads(false))
        .await
        .unwrap();
    one.leads_within(Duration::from_secs(30)).await;
    assert!(since.elapsed() >= short * 4, "it is left in peace for a while");
    assert!(one.store.current_epoch().await.unwrap() > epoch);
}

#[tokio::test]
async fn a_process_that_starts_again_at_its_address_leads_at_once() {
    let fakes = Fakes::default();
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("tidegate.db").display());
    let database = Database {
        url,
        _folder: Some(folder),
    };
    let killed = database.store().await;
    let first = fakes.coordinator(&killed, "http://127.0.0.1:7100", LONG).await;
    assert!(first.leads());
    // It gives nothing back.
    killed.cut_off();
    let elsewhere = database.store().await;
    let elsewhere = fakes.coordinator(&elsewhere, "http://127.0.0.1:7110", LONG).await;
    assert!(!elsewhere.leads(), "another address has to wait");
    let again = database.store().await;
    let again = fakes.coordinator(&again, "http://127.0.0.1:7100", LONG).await;
    assert!(again.leads());
}

#[tokio::test]
async fn what_cannot_be_taken_up_stops_the_start_and_leaves_the_lease_to_others() {
    let store = Metadata::in_memory().await.unwrap();
    let epoch = store.raise_epoch("17@old", TimestampMillis(1)).await.unwrap();
    let newer = SupervisorRecord {
        id: SupervisorId::new("wiki").unwrap(),
        version: 1,
        state: "running".into(),
        document: Document::of(99, 99, &0).unwrap(),
    };
    store.put_supervisor(epoch, newer).await.unwrap();
    let store = Arc::new(HeldStore::new(store));
    let fakes = Fakes::default();
    let begun = fakes.try_coordinator(&store, "", LONG, Metrics::new("coordinator"));
    let refused = begun.await.err().unwrap();
    assert!(
        matches!(&refused, CoordinatorError::Unreadable { id, .. } if id == "wiki"),
        "{refused}"
    );
    assert!(store.lease().await.unwrap().is_free());
}

#[tokio::test]
async fn metrics_tell_who_leads_with_which_epoch_and_how_often_that_changed() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("tidegate.db").display());
    let database = Database {
        url,
        _folder: Some(folder),
    };
    let fakes = Fakes::default();
    let (one, two) = (Metrics::new("coordinator"), Metrics::new("coordinator"));
    let stores = (database.store().await, database.store().await);
    let leader = fakes.try_coordinator(&stores.0, "http://h:1", LONG, one.clone());
    let leader = leader.await.unwrap();
    let standby = fakes.try_coordinator(&stores.1, "http://h:2", LONG, two.clone());
    let standby = standby.await.unwrap();
    let tells = |metrics: &Metrics, name: &str, value: &str| {
        let text = metrics.text();
        let line = text.lines().find(|line| line.starts_with(name));
        assert!(
            line.is_some_and(|line| line.ends_with(value)),
            "{name} {value}\n{text}"
        );
    };
    tells(&one, "tidegate_coordinator_leader{", " 1");
    tells(&one, "tidegate_coordinator_epoch{", " 1");
    tells(&two, "tidegate_coordinator_leader{", " 0");
    tells(&two, "tidegate_coordinator_epoch{", " 1");
    leader.resign().await;
    tells(&one, "tidegate_coordinator_leader{", " 0");
    tokio::time::timeout(Duration::from_secs(20), standby.until_leads(true))
        .await
        .unwrap();
    tells(&two, "tidegate_coordinator_leader{", " 1");
    tells(&two, "tidegate_coordinator_epoch{", " 3");
    let text = one.text();
    let changes: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("tidegate_coordinator_leader_changes_total"))
        .collect();
    assert!(
        changes.len() == 2 && changes.iter().all(|line| line.ends_with(" 1")),
        "{changes:?}"
    );
    assert!(
        !text.contains("tidegate_supervisors{"),
        "the leader measures that:\n{text}"
    );
}
