//! Coordinator, publisher and handoff-checker, as far as a runner sees them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;

use tidegate_rpc::coordinator::v1 as coordinator;
use tidegate_rpc::coordinator::v1::runner_registry_server::RunnerRegistry;
use tidegate_rpc::handoff::v1 as handoff;
use tidegate_rpc::handoff::v1::handoff_checker_server::HandoffChecker;
use tidegate_rpc::publisher::v1 as publisher;
use tidegate_rpc::publisher::v1::publisher_server::Publisher;
use tidegate_rpc::types::v1 as types;
use tonic::{Request, Response, Status};

#[derive(Default)]
pub(crate) struct State {
    /// No call of the publisher is answered.
    pub(crate) publisher_is_away: bool,
    /// Allocations that were asked while it was away.
    pub(crate) turned_away: u64,
    /// (sequence, previous) → the answer, always the same.
    pub(crate) allocated: BTreeMap<(String, String), types::SegmentId>,
    /// Outcomes of the next publishes; then all are published.
    pub(crate) outcomes: VecDeque<publisher::PublishOutcome>,
    pub(crate) publishes: Vec<publisher::PublishRequest>,
    pub(crate) serves: bool,
    /// Ended tasks that the coordinator says it has recorded.
    pub(crate) acknowledges: bool,
    pub(crate) beats: u64,
    pub(crate) last_beat: Option<coordinator::HeartbeatRequest>,
    pub(crate) recorded: BTreeSet<String>,
}

#[derive(Default)]
pub(crate) struct Peers(pub(crate) Mutex<State>);

fn unused<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("no business of a runner"))
}

#[tonic::async_trait]
impl Publisher for Peers {
    async fn initialize_offsets(
        &self,
        _: Request<publisher::InitializeOffsetsRequest>,
    ) -> Result<Response<publisher::CommittedOffsets>, Status> {
        unused()
    }
    async fn get_committed_offsets(
        &self,
        _: Request<publisher::GetCommittedOffsetsRequest>,
    ) -> Result<Response<publisher::CommittedOffsets>, Status> {
        unused()
    }
    async fn reset_offsets(
        &self,
        _: Request<publisher::ResetOffsetsRequest>,
    ) -> Result<Response<publisher::CommittedOffsets>, Status> {
        unused()
    }
    async fn register_group(
        &self,
        _: Request<publisher::RegisterGroupRequest>,
    ) -> Result<Response<publisher::RegisterGroupResponse>, Status> {
        unused()
    }
    async fn end_group(
        &self,
        _: Request<publisher::EndGroupRequest>,
    ) -> Result<Response<publisher::EndGroupResponse>, Status> {
        unused()
    }
    async fn verify(
        &self,
        _: Request<publisher::VerifyRequest>,
    ) -> Result<Response<publisher::VerifyResponse>, Status> {
        unused()
    }
    async fn list_segments(
        &self,
        _: Request<publisher::ListSegmentsRequest>,
    ) -> Result<Response<publisher::ListSegmentsResponse>, Status> {
        unused()
    }

    async fn allocate_segment(
        &self,
        request: Request<publisher::AllocateSegmentRequest>,
    ) -> Result<Response<publisher::AllocateSegmentResponse>, Status> {
        let request = request.into_inner();
        let mut state = self.0.lock().unwrap();
        if state.publisher_is_away {
            state.turned_away += 1;
            return Err(Status::unavailable("away"));
        }
        let key = (request.sequence_name.clone(), request.previous_segment_id.clone());
        let same = |id: &&types::SegmentId| id.interval == request.preferred;
        let number = state.allocated.values().filter(same).count();
        let id = types::SegmentId {
            data_source: request.data_source.clone(),
            interval: request.preferred,
            version: "2026-01-01T00:00:00.000Z".into(),
            partition_num: u32::try_from(number).unwrap(),
        };
        let id = state.allocated.entry(key).or_insert(id).clone();
        Ok(Response::new(publisher::AllocateSegmentResponse { id: Some(id) }))
    }

    async fn publish(
        &self,
        request: Request<publisher::PublishRequest>,
    ) -> Result<Response<publisher::PublishResponse>, Status> {
        let request = request.into_inner();
        let mut state = self.0.lock().unwrap();
        if state.publisher_is_away {
            return Err(Status::unavailable("away"));
        }
        let outcome = state
            .outcomes
            .pop_front()
            .unwrap_or(publisher::PublishOutcome::Published);
        let segments = request
            .segments
            .iter()
            .filter_map(|segment| segment.id.clone())
            .collect();
        state.publishes.push(request);
        Ok(Response::new(publisher::PublishResponse {
            outcome: outcome.into(),
            segments,
            retry_after_millis: 1,
            detail: "as told".into(),
            ..Default::default()
        }))
    }
}

#[tonic::async_trait]
impl HandoffChecker for Peers {
    async fn await_handoff(
        &self,
        request: Request<handoff::AwaitHandoffRequest>,
    ) -> Result<Response<handoff::AwaitHandoffResponse>, Status> {
        let state = if self.0.lock().unwrap().serves {
            handoff::HandoffState::Served
        } else {
            handoff::HandoffState::Pending
        };
        let one = |id| handoff::Handoff {
            id: Some(id),
            state: state.into(),
            ..Default::default()
        };
        let handoffs = request.into_inner().segments.into_iter().map(one).collect();
        Ok(Response::new(handoff::AwaitHandoffResponse { handoffs }))
    }
    async fn list_handoffs(
        &self,
        _: Request<handoff::ListHandoffsRequest>,
    ) -> Result<Response<handoff::ListHandoffsResponse>, Status> {
        unused()
    }
}

#[tonic::async_trait]
impl RunnerRegistry for Peers {
    async fn heartbeat(
        &self,
        request: Request<coordinator::HeartbeatRequest>,
    ) -> Result<Response<coordinator::HeartbeatResponse>, Status> {
        use tidegate_rpc::task_runner::v1::TaskState as State;
        let request = request.into_inner();
        let mut state = self.0.lock().unwrap();
        state.beats += 1;
        let is_over = |task: &&tidegate_rpc::task_runner::v1::TaskStatus| {
            matches!(
                task.state(),
                State::Published | State::Superseded | State::Stopped | State::Replaced | State::Failed
            )
        };
        let mut acknowledged = Vec::new();
        if state.acknowledges {
            acknowledged = request
                .tasks
                .iter()
                .filter(is_over)
                .map(|task| task.task_id.clone())
                .collect();
            state.recorded.extend(acknowledged.iter().cloned());
        }
        state.last_beat = Some(request);
        Ok(Response::new(coordinator::HeartbeatResponse {
            coordinator_epoch: 1,
            interval_millis: 50,
            acknowledged_tasks: acknowledged,
        }))
    }
}
