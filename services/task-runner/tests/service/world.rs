//! One runner on a folder, a topic of a broker in the process, and what ended up in staged files.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use arrow::array::AsArray as _;
use arrow::datatypes::Int64Type;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidegate_config::{RunnerConfig, Sources};
use tidegate_kafka::{MockBroker, OutgoingRecord, Producer, ProducerSettings};
use tidegate_rpc::clients::{self, RunnerClient};
use tidegate_rpc::publisher::v1::PublishRequest;
use tidegate_rpc::task_runner::v1::{self as wire, TaskState};
use tidegate_rpc::types::v1 as types;
use tidegate_rpc::{Transport, status};
use tidegate_task_runner::{Peers as Transports, RunningRunner};
use tidegate_telemetry::Metrics;
use tidegate_types::PartitionId;

use crate::peers::{Peers, State};

pub(crate) const TOPIC: &str = "events";
pub(crate) const LONG: Duration = Duration::from_secs(30);
const HOUR: i64 = 3_600_000;

pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) broker: MockBroker,
    pub(crate) peers: Arc<Peers>,
    settings: Vec<(&'static str, String)>,
    running: Option<RunningRunner>,
    pub(crate) client: RunnerClient,
}

impl World {
    pub(crate) async fn new(partitions: i32) -> Self {
        Self::with(partitions, &[]).await
    }

    pub(crate) async fn with(partitions: i32, settings: &[(&'static str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let broker = MockBroker::start(1).unwrap();
        broker.create_topic(TOPIC, partitions).unwrap();
        let peers = Arc::new(Peers::default());
        peers.0.lock().unwrap().serves = true;
        let settings: Vec<_> = settings
            .iter()
            .map(|(key, value)| (*key, (*value).to_owned()))
            .collect();
        let running = start(&folder, &peers, &settings).await;
        let client = clients::runner(Transport::in_process(running.service()));
        Self {
            folder,
            broker,
            peers,
            settings,
            running: Some(running),
            client,
        }
    }

    /// The runner drains, and another one begins on the same folder.
    pub(crate) async fn restart(&mut self) {
        self.stop().await;
        self.start().await;
    }
    pub(crate) async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.drain(LONG).await;
        }
    }
    pub(crate) async fn start(&mut self) {
        let running = start(&self.folder, &self.peers, &self.settings).await;
        self.client = clients::runner(Transport::in_process(running.service()));
        self.running = Some(running);
    }

    pub(crate) fn peers(&self) -> MutexGuard<'_, State> {
        self.peers.0.lock().unwrap()
    }

    pub(crate) fn produce<B: AsRef<[u8]>>(
        &self,
        partition: i32,
        values: impl IntoIterator<Item = Option<B>>,
    ) {
        let producer = Producer::new(self.broker.bootstrap_servers(), &ProducerSettings::default()).unwrap();
        for value in values {
            let record = OutgoingRecord {
                partition: PartitionId(partition),
                value: value.as_ref().map(AsRef::as_ref),
                ..OutgoingRecord::default()
            };
            producer.send(TOPIC, record, LONG).unwrap();
        }
        producer.flush(LONG).unwrap();
    }

    /// Events with the numbers of `range`, in hours of a day by turns.
    pub(crate) fn produce_events(&self, partition: i32, range: std::ops::Range<i64>) {
        let event =
            |n: i64| Some(json!({"time": n % 24 * HOUR, "page": format!("page {n}"), "n": n}).to_string());
        self.produce(partition, range.map(event));
    }

    /// A spec with these changes at JSON pointers.
    pub(crate) fn spec(&self, changes: &[(&str, Value)]) -> String {
        let mut spec = json!({
            "type": "kafka",
            "spec": {
                "dataSchema": {
                    "dataSource": "events",
                    "timestampSpec": {"column": "time", "format": "millis"},
                    "dimensionsSpec": {"dimensions": ["page", {"type": "long", "name": "n"}]},
                    "metricsSpec": [],
                    "granularitySpec": {"segmentGranularity": "DAY", "queryGranularity": "NONE", "rollup": false}
                },
                "ioConfig": {
                    "topic": TOPIC,
                    "inputFormat": {"type": "json"},
                    "consumerProperties": {"bootstrap.servers": self.broker.bootstrap_servers()}
                },
                "tuningConfig": {"type": "kafka"}
            }
        });
        for (pointer, value) in changes {
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            let parent = spec.pointer_mut(&format!("/spec{parent}")).unwrap();
            parent[name] = value.clone();
        }
        tidegate_spec::parse(&spec.to_string())
            .unwrap()
            .spec
            .to_normalized_json()
            .to_string()
    }

    pub(crate) async fn assign(&mut self, task: wire::TaskAssignment) -> wire::TaskStatus {
        let request = wire::AssignTaskRequest {
            task: Some(task),
            coordinator_epoch: 1,
        };
        let answer = self.client.assign_task(request).await.unwrap();
        answer.into_inner().status.unwrap()
    }

    pub(crate) async fn status(&mut self, task: &str) -> wire::TaskStatus {
        let request = wire::GetTaskRequest { task_id: task.into() };
        self.client.get_task(request).await.unwrap().into_inner()
    }

    /// Asks until `holds`.
    pub(crate) async fn until(
        &mut self,
        task: &str,
        holds: impl Fn(&wire::TaskStatus) -> bool,
    ) -> wire::TaskStatus {
        let deadline = Instant::now() + LONG;
        loop {
            let status = self.status(task).await;
            if holds(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "it stays at {status:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn until_read(&mut self, task: &str, next: &[(i32, i64)]) -> wire::TaskStatus {
        let wanted = offsets(next);
        self.until(task, |status| status.next.as_ref() == Some(&wanted))
            .await
    }

    pub(crate) async fn until_state(&mut self, task: &str, state: TaskState) -> wire::TaskStatus {
        self.until(task, |status| status.state() == state).await
    }

    pub(crate) async fn until_rows_are_dropped(&self, task: &str) {
        let deadline = Instant::now() + LONG;
        let rows = self.task_folder(task).join("rows");
        while std::fs::read_dir(&rows).map_or(0, Iterator::count) > 0 {
            assert!(Instant::now() < deadline, "rows are left in {}", rows.display());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn pause(&mut self, task: &str) -> types::PartitionOffsets {
        loop {
            let request = wire::PauseTaskRequest {
                task_id: task.into(),
                coordinator_epoch: 1,
            };
            let answer = self.client.pause_task(request).await.unwrap().into_inner();
            if answer.paused {
                return answer.next.unwrap();
            }
        }
    }

    pub(crate) async fn set_end(&mut self, task: &str, end: types::PartitionOffsets) {
        loop {
            let request = wire::SetEndOffsetsRequest {
                task_id: task.into(),
                coordinator_epoch: 1,
                sequence_id: 0,
                decision_id: "decision".into(),
                end: Some(end.clone()),
                finish: true,
            };
            match self.client.set_end_offsets(request).await {
                Ok(_) => return,
                Err(error) => assert!(status::is_retryable(&error), "{error}"),
            }
        }
    }

    /// Pauses where it is, ends it there, and waits until it is published and handed off.
    pub(crate) async fn finish(&mut self, task: &str) -> PublishRequest {
        let end = self.pause(task).await;
        self.set_end(task, end).await;
        self.until_state(task, TaskState::Published).await;
        self.last_publish()
    }

    pub(crate) fn last_publish(&self) -> PublishRequest {
        self.peers().publishes.last().unwrap().clone()
    }

    /// How often each number stands in the staged files of a publish, and that they are what was said of them.
    pub(crate) fn numbers(&self, publish: &PublishRequest) -> BTreeMap<i64, u32> {
        let mut numbers = BTreeMap::new();
        for segment in &publish.segments {
            let path = self.objects().join(&segment.key);
            assert_eq!(std::fs::metadata(&path).unwrap().len(), segment.size_bytes);
            let file = std::fs::File::open(&path).unwrap();
            let mut rows = 0;
            for batch in ParquetRecordBatchReaderBuilder::try_new(file)
                .unwrap()
                .build()
                .unwrap()
            {
                let batch = batch.unwrap();
                rows += batch.num_rows() as u64;
                let column = batch
                    .column_by_name("n")
                    .unwrap()
                    .as_primitive::<Int64Type>()
                    .clone();
                for n in column.iter().flatten() {
                    *numbers.entry(n).or_default() += 1;
                }
            }
            assert_eq!((rows, rows), (segment.rows, segment.input_rows));
        }
        numbers
    }

    pub(crate) fn objects(&self) -> PathBuf {
        self.folder.path().join("objects")
    }
    pub(crate) fn task_folder(&self, task: &str) -> PathBuf {
        self.folder.path().join("work/tasks").join(task)
    }
}

pub(crate) fn assignment(task: &str, spec: String, start: &[(i32, i64)]) -> wire::TaskAssignment {
    wire::TaskAssignment {
        task_id: task.into(),
        assignment_token: format!("token of {task}"),
        supervisor_id: "events".into(),
        group_id: "group".into(),
        base_sequence_name: "index_kafka_events_base".into(),
        mode: types::GroupMode::Legacy.into(),
        stream: Some(types::Stream {
            topic: TOPIC.into(),
            ..Default::default()
        }),
        start: Some(offsets(start)),
        spec_json: spec,
        spec_version: 1,
        decode_version: 1,
        ..Default::default()
    }
}

/// Each number of the range once.
pub(crate) fn once(range: std::ops::Range<i64>) -> BTreeMap<i64, u32> {
    range.map(|n| (n, 1)).collect()
}

pub(crate) fn offsets(pairs: &[(i32, i64)]) -> types::PartitionOffsets {
    let pair = |(partition, offset): &(i32, i64)| types::PartitionOffset {
        partition: *partition,
        offset: *offset,
    };
    types::PartitionOffsets {
        offsets: pairs.iter().map(pair).collect(),
    }
}

async fn start(folder: &TempDir, peers: &Arc<Peers>, settings: &[(&'static str, String)]) -> RunningRunner {
    let root = folder.path().display();
    let mut sources = Sources::new()
        .program("objects.url", format!("file://{root}/objects"))
        .program("runner.work_dir", format!("{root}/work"));
    for (key, value) in settings {
        sources = sources.program(key, value.clone());
    }
    let config = tidegate_config::load::<RunnerConfig>(&sources).unwrap().settings;
    let transports = Transports {
        coordinator: Transport::in_process(clients::registry_server(peers.clone())),
        publisher: Transport::in_process(clients::publisher_server(peers.clone())),
        handoff_checker: Transport::in_process(clients::handoff_server(peers.clone())),
    };
    let address = "http://127.0.0.1:1".to_owned();
    RunningRunner::start(&config, transports, address, Metrics::new("task-runner"))
        .await
        .unwrap()
}
