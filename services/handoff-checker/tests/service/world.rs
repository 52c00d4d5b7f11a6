//! A checker on a SQLite file, a catalog, a serving tier.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate_config::{HandoffConfig, Sources};
use tidegate_handoff_checker::{Peers, RunningHandoffChecker};
use tidegate_metadata::Metadata;
use tidegate_rpc::Transport;
use tidegate_rpc::clients::{self, HandoffClient};
use tidegate_rpc::handoff::v1 as handoff;
use tidegate_rpc::publisher::v1 as wire;
use tidegate_rpc::publisher::v1::publisher_server::Publisher;
use tidegate_rpc::types::v1 as types;
use tidegate_serving::{PublishedObject, Served, ServingError, ServingTier};
use tidegate_telemetry::Metrics;
use tonic::{Request, Response, Status};

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) catalog: Vec<wire::PublishedSegment>,
    pub(crate) publisher_is_away: bool,
    /// Partition numbers of segments that the tier has.
    pub(crate) served: BTreeSet<u32>,
    /// The tier never answers about these.
    pub(crate) stuck: BTreeSet<u32>,
    pub(crate) checks: BTreeMap<u32, u32>,
    pub(crate) keys: BTreeMap<u32, String>,
}

/// Catalog and tier.
#[derive(Debug, Clone, Default)]
pub(crate) struct Outside(Arc<Mutex<State>>);

#[async_trait::async_trait]
impl ServingTier for Outside {
    async fn check(&self, segment: &PublishedObject) -> Result<Served, ServingError> {
        let number = segment.id.partition_num;
        let (is_stuck, is_served) = {
            let mut state = self.0.lock().unwrap();
            *state.checks.entry(number).or_default() += 1;
            state.keys.insert(number, segment.key.clone());
            let is_served = state.served.contains(&number) && segment.promoted;
            (state.stuck.contains(&number), is_served)
        };
        if is_stuck {
            std::future::pending::<()>().await;
        }
        Ok(if is_served {
            Served::Yes("the tier has it".to_owned())
        } else {
            Served::NotYet("the tier does not have it".to_owned())
        })
    }
}

fn unused<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("no business of a checker"))
}

#[tonic::async_trait]
impl Publisher for Outside {
    async fn initialize_offsets(
        &self,
        _: Request<wire::InitializeOffsetsRequest>,
    ) -> Result<Response<wire::CommittedOffsets>, Status> {
        unused()
    }
    async fn get_committed_offsets(
        &self,
        _: Request<wire::GetCommittedOffsetsRequest>,
    ) -> Result<Response<wire::CommittedOffsets>, Status> {
        unused()
    }
    async fn reset_offsets(
        &self,
        _: Request<wire::ResetOffsetsRequest>,
    ) -> Result<Response<wire::CommittedOffsets>, Status> {
        unused()
    }
    async fn register_group(
        &self,
        _: Request<wire::RegisterGroupRequest>,
    ) -> Result<Response<wire::RegisterGroupResponse>, Status> {
        unused()
    }
    async fn end_group(
        &self,
        _: Request<wire::EndGroupRequest>,
    ) -> Result<Response<wire::EndGroupResponse>, Status> {
        unused()
    }
    async fn allocate_segment(
        &self,
        _: Request<wire::AllocateSegmentRequest>,
    ) -> Result<Response<wire::AllocateSegmentResponse>, Status> {
        unused()
    }
    async fn publish(
        &self,
        _: Request<wire::PublishRequest>,
    ) -> Result<Response<wire::PublishResponse>, Status> {
        unused()
    }
    async fn verify(
        &self,
        _: Request<wire::VerifyRequest>,
    ) -> Result<Response<wire::VerifyResponse>, Status> {
        unused()
    }
    async fn list_segments(
        &self,
        request: Request<wire::ListSegmentsRequest>,
    ) -> Result<Response<wire::ListSegmentsResponse>, Status> {
        let request = request.into_inner();
        let state = self.0.lock().unwrap();
        if state.publisher_is_away {
            return Err(Status::unavailable("away"));
        }
        let after = request.page_token.parse().unwrap_or(0);
        let behind = state.catalog.iter().filter(|segment| segment.ordinal > after);
        let all: Vec<_> = behind.cloned().collect();
        let page: Vec<_> = all.iter().take(request.page_size as usize).cloned().collect();
        let next = page.last().filter(|_| page.len() < all.len());
        Ok(Response::new(wire::ListSegmentsResponse {
            next_page_token: next.map(|last| last.ordinal.to_string()).unwrap_or_default(),
            segments: page,
        }))
    }
}

pub(crate) fn id(number: u32) -> types::SegmentId {
    types::SegmentId {
        data_source: "wiki".into(),
        interval: Some(types::Interval {
            start_millis: 0,
            end_millis: 86_400_000,
        }),
        version: "2026-01-01T00:00:00.000Z".into(),
        partition_num: number,
    }
}

pub(crate) struct World {
    folder: TempDir,
    pub(crate) outside: Outside,
    pub(crate) metrics: Metrics,
    pub(crate) client: HandoffClient,
    keys: Vec<(&'static str, &'static str)>,
    running: Option<RunningHandoffChecker>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(&[]).await
    }

    pub(crate) async fn with(keys: &[(&'static str, &'static str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let outside = Outside::default();
        let metrics = Metrics::new("handoff-checker");
        let running = start(&folder, &outside, &metrics, keys).await;
        Self {
            client: clients::handoff(running.transport()),
            folder,
            outside,
            metrics,
            keys: keys.to_vec(),
            running: Some(running),
        }
    }

    pub(crate) fn stop(&mut self) {
        self.running = None;
    }
    pub(crate) async fn start(&mut self) {
        let running = start(&self.folder, &self.outside, &self.metrics, &self.keys).await;
        self.client = clients::handoff(running.transport());
        self.running = Some(running);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.outside.0.lock().unwrap()
    }

    /// Publishes segments with these partition numbers.
    pub(crate) fn publish(&self, numbers: impl IntoIterator<Item = u32>) {
        let mut state = self.state();
        for number in numbers {
            let ordinal = i64::try_from(state.catalog.len()).unwrap() + 1;
            state.catalog.push(wire::PublishedSegment {
                segment: Some(types::Segment {
                    id: Some(id(number)),
                    key: format!("segments/{number}"),
                    size_bytes: 10,
                    sha256: "00".into(),
                    rows: 1,
                    ..Default::default()
                }),
                supervisor_id: "wiki".into(),
                published_at_millis: 1,
                used: true,
                promoted: true,
                ordinal,
            });
        }
    }

    pub(crate) async fn ask(&mut self, numbers: &[u32], wait: Duration) -> Vec<handoff::HandoffState> {
        let request = handoff::AwaitHandoffRequest {
            segments: numbers.iter().copied().map(id).collect(),
            wait_millis: u64::try_from(wait.as_millis()).unwrap(),
        };
        let answer = self.client.await_handoff(request).await.unwrap().into_inner();
        let ids: Vec<_> = answer
            .handoffs
            .iter()
            .map(|handoff| handoff.id.clone().unwrap().partition_num)
            .collect();
        assert_eq!(ids, numbers, "in the order of the question");
        answer.handoffs.iter().map(handoff::Handoff::state).collect()
    }

    pub(crate) async fn list(&mut self, pending_only: bool) -> Vec<handoff::Handoff> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = handoff::ListHandoffsRequest {
                data_source: "wiki".into(),
                pending_only,
                page_size: 2,
                page_token,
            };
            let page = self.client.list_handoffs(request).await.unwrap().into_inner();
            assert!(page.handoffs.len() <= 2);
            all.extend(page.handoffs);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return all;
            }
        }
    }
}

pub(crate) async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds().await {
        assert!(Instant::now() < deadline, "it did not come to hold");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn start(
    folder: &TempDir,
    outside: &Outside,
    metrics: &Metrics,
    keys: &[(&'static str, &'static str)],
) -> RunningHandoffChecker {
    let root = folder.path().display();
    let mut sources = Sources::new()
        .program("metadata.url", format!("sqlite://{root}/metadata.db"))
        .program("objects.url", format!("{root}/objects"))
        .program("handoff.poll_interval", "10ms")
        .program("handoff.max_backoff", "50ms");
    for (key, value) in keys {
        sources = sources.program(key, *value);
    }
    let config = tidegate_config::load::<HandoffConfig>(&sources).unwrap().settings;
    let store = Metadata::connect(config.metadata.url.expose()).await.unwrap();
    let peers = Peers {
        publisher: Transport::in_process(clients::publisher_server(Arc::new(outside.clone()))),
    };
    let tier = Arc::new(outside.clone());
    RunningHandoffChecker::with(tier, Arc::new(store), &config, peers, metrics.clone())
        .await
        .unwrap()
}
