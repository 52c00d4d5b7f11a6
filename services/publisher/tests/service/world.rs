//! A publisher, its stores, and the messages that a coordinator and tasks would send.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tidegate_config::{PublisherConfig, Sources};
use tidegate_metadata::Metadata;
use tidegate_publisher::RunningPublisher;
use tidegate_rpc::clients::{PublisherClient, publisher};
use tidegate_rpc::publisher::v1 as wire;
use tidegate_rpc::types::v1 as types;
use tidegate_telemetry::Metrics;
use tidegate_types::PartitionOffsets;

use crate::faulty_store::FaultyStore;

pub(crate) const HOUR: i64 = 3_600_000;

pub(crate) fn at<const N: usize>(pairs: [(i32, i64); N]) -> PartitionOffsets {
    PartitionOffsets::from(pairs)
}

/// Settings on a folder, with these keys set otherwise.
pub(crate) fn config(folder: &Path, keys: &[(&str, &str)]) -> PublisherConfig {
    let mut sources = Sources::new()
        .program(
            "metadata.url",
            format!("sqlite://{}/metadata.db", folder.display()),
        )
        .program("objects.url", format!("file://{}/objects", folder.display()))
        .program("publisher.sweep_interval", "0");
    for (key, value) in keys {
        sources = sources.program(key, *value);
    }
    tidegate_config::load::<PublisherConfig>(&sources)
        .unwrap()
        .settings
}

pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) store: Arc<FaultyStore>,
    pub(crate) client: PublisherClient,
    running: Option<RunningPublisher>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    pub(crate) async fn with(keys: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = config(folder.path(), keys);
        let metadata = Metadata::connect(config.metadata.url.expose()).await.unwrap();
        let store = Arc::new(FaultyStore::new(metadata));
        let running = RunningPublisher::on(store.clone(), &config, Metrics::new("publisher")).unwrap();
        let client = publisher(running.transport());
        Self {
            folder,
            store,
            client,
            running: Some(running),
        }
    }

    /// The process ends without finishing anything, and another one begins.
    pub(crate) async fn restart(&mut self, keys: &[(&str, &str)]) {
        self.stop().await;
        let config = config(self.folder.path(), keys);
        let running = RunningPublisher::on(self.store.clone(), &config, Metrics::new("publisher")).unwrap();
        self.client = publisher(running.transport());
        self.running = Some(running);
    }

    pub(crate) async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.drain(Duration::from_secs(5)).await;
        }
    }

    pub(crate) fn objects(&self) -> PathBuf {
        self.folder.path().join("objects")
    }

    /// Uploads a Parquet file with so many rows, as a task does.
    pub(crate) fn stage(&self, task: &str, name: &str, rows: i64) -> Staged {
        let key = format!("staging/{task}/{name}.parquet");
        let path = self.objects().join(&key);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let column: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let batch = RecordBatch::try_from_iter([("n", column)]).unwrap();
        let mut bytes = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
        std::fs::write(&path, &bytes).unwrap();
        Staged {
            key,
            path,
            size: bytes.len() as u64,
            sha256: hex::encode(Sha256::digest(&bytes)),
            rows: rows as u64,
        }
    }

    pub(crate) async fn initialize(&mut self, start: PartitionOffsets) {
        let request = wire::InitializeOffsetsRequest {
            supervisor_id: "wiki".into(),
            stream: Some(stream()),
            start: Some((&start).into()),
            coordinator_epoch: 1,
        };
        self.client.initialize_offsets(request).await.unwrap();
    }

    pub(crate) async fn committed(&mut self) -> PartitionOffsets {
        let request = wire::GetCommittedOffsetsRequest {
            supervisor_id: "wiki".into(),
            topic: String::new(),
        };
        let held = self
            .client
            .get_committed_offsets(request)
            .await
            .unwrap()
            .into_inner();
        PartitionOffsets::try_from(&held.offsets.unwrap()).unwrap()
    }

    pub(crate) async fn catalog(&mut self) -> Vec<wire::PublishedSegment> {
        let request = wire::ListSegmentsRequest::default();
        self.client
            .list_segments(request)
            .await
            .unwrap()
            .into_inner()
            .segments
    }

    /// What a reader who globs `segments/**` sees: keys and sizes.
    pub(crate) fn glob(&self) -> BTreeMap<String, u64> {
        files(&self.objects(), "segments")
    }

    pub(crate) fn staging(&self) -> BTreeMap<String, u64> {
        files(&self.objects(), "staging")
    }

    /// Waits until the catalog says that everything is promoted.
    pub(crate) async fn all_promoted(&mut self) {
        eventually(async || self.catalog().await.iter().all(|segment| segment.promoted)).await;
    }
}

/// Asks until it is so; fails after a long time.
pub(crate) async fn eventually(mut is_so: impl AsyncFnMut() -> bool) {
    let asking = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asking)
        .await
        .unwrap();
}

fn files(root: &Path, folder: &str) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.join(folder)];
    while let Some(folder) = open.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else {
            continue;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let key = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
                found.insert(key, std::fs::metadata(&path).unwrap().len());
            }
        }
    }
    found
}

pub(crate) fn stream() -> types::Stream {
    types::Stream {
        topic: "wiki".into(),
        cluster_id: "c1".into(),
        topic_id: "t1".into(),
    }
}

/// An uploaded file.
#[derive(Clone)]
pub(crate) struct Staged {
    pub(crate) key: String,
    pub(crate) path: PathBuf,
    pub(crate) size: u64,
    pub(crate) sha256: String,
    pub(crate) rows: u64,
}

/// A group of one partition.
#[derive(Clone)]
pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) start: i64,
    pub(crate) end: i64,
}

impl Group {
    pub(crate) fn new(name: &str, start: i64, end: i64) -> Self {
        Self {
            name: name.into(),
            start,
            end,
        }
    }
    pub(crate) fn base(&self) -> String {
        format!("base_{}", self.name)
    }
    pub(crate) fn sequence(&self) -> String {
        format!("{}_0", self.base())
    }
    pub(crate) fn registration(&self) -> wire::RegisterGroupRequest {
        wire::RegisterGroupRequest {
            supervisor_id: "wiki".into(),
            group_id: self.name.clone(),
            base_sequence_name: self.base(),
            generation: 0,
            start: Some((&at([(0, self.start)])).into()),
            assignment_tokens: vec![format!("{}-0", self.name), format!("{}-1", self.name)],
            coordinator_epoch: 1,
            mode: types::GroupMode::Legacy.into(),
            topic: "wiki".into(),
            revision: 0,
        }
    }
    pub(crate) async fn register(&self, world: &mut World) {
        world.client.register_group(self.registration()).await.unwrap();
    }
    pub(crate) async fn end(&self, world: &mut World) {
        let request = wire::EndGroupRequest {
            supervisor_id: "wiki".into(),
            group_id: self.name.clone(),
            coordinator_epoch: 1,
        };
        world.client.end_group(request).await.unwrap();
    }
    pub(crate) fn allocation(&self) -> wire::AllocateSegmentRequest {
        let interval = |start, end| {
            Some(types::Interval {
                start_millis: start,
                end_millis: end,
            })
        };
        wire::AllocateSegmentRequest {
            supervisor_id: "wiki".into(),
            data_source: "wiki".into(),
            row_millis: 0,
            preferred: interval(0, HOUR),
            sequence_name: self.sequence(),
            previous_segment_id: String::new(),
            by_interval: false,
            assignment_token: format!("{}-0", self.name),
            generation: 0,
            group_id: self.name.clone(),
            finer: vec![],
            row_bucket: interval(0, 1),
        }
    }
    pub(crate) async fn allocate(&self, world: &mut World) -> types::SegmentId {
        world
            .client
            .allocate_segment(self.allocation())
            .await
            .unwrap()
            .into_inner()
            .id
            .unwrap()
    }
    pub(crate) fn segment(&self, id: types::SegmentId, staged: &Staged) -> types::Segment {
        types::Segment {
            id: Some(id),
            sequence_name: self.sequence(),
            key: staged.key.clone(),
            size_bytes: staged.size,
            sha256: staged.sha256.clone(),
            rows: staged.rows,
            input_rows: staged.rows,
            first_offsets: Some((&at([(0, self.start)])).into()),
            end_offsets: Some((&at([(0, self.end)])).into()),
            writer_version: "0.1.0".into(),
        }
    }
    pub(crate) fn wish(&self, replica: u32, segments: Vec<types::Segment>) -> wire::PublishRequest {
        wire::PublishRequest {
            supervisor_id: "wiki".into(),
            group_id: self.name.clone(),
            base_sequence_name: self.base(),
            generation: 0,
            task_id: format!("{}-task-{replica}", self.name),
            assignment_token: format!("{}-{replica}", self.name),
            coordinator_epoch: 1,
            stream: Some(stream()),
            sequences: vec![types::Sequence {
                sequence_id: 0,
                sequence_name: self.sequence(),
                start: Some((&at([(0, self.start)])).into()),
                end: Some((&at([(0, self.end)])).into()),
            }],
            segments,
            counts: Some(types::RowCounts {
                accepted: 3,
                stored: 3,
                ..Default::default()
            }),
            request_key: format!("{}-{replica}", self.name),
            mode: types::GroupMode::Legacy.into(),
            decode_version: 1,
        }
    }
    /// Allocates, uploads, and wishes to publish.
    pub(crate) async fn ready(&self, world: &mut World, replica: u32) -> (wire::PublishRequest, Staged) {
        let id = self.allocate(world).await;
        let staged = world.stage(&format!("{}-task-{replica}", self.name), "a", 3);
        (self.wish(replica, vec![self.segment(id, &staged)]), staged)
    }
}

pub(crate) async fn publish(
    world: &mut World,
    wish: &wire::PublishRequest,
) -> (wire::PublishOutcome, wire::PublishResponse) {
    let response = world.client.publish(wish.clone()).await.unwrap().into_inner();
    (response.outcome(), response)
}
