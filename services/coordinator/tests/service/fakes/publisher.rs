//! A publisher (and handoff-checker) that keeps offsets, registrations and one segment per publish.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_rpc::handoff::v1 as handoff;
use tidegate_rpc::handoff::v1::handoff_checker_server::HandoffChecker;
use tidegate_rpc::publisher::v1 as wire;
use tidegate_rpc::publisher::v1::publisher_server::Publisher;
use tidegate_rpc::task_runner::v1::TaskAssignment;
use tidegate_rpc::types::v1 as types;
use tonic::{Request, Response, Status};

#[derive(Default)]
pub(crate) struct State {
    /// By (supervisor, topic).
    pub(crate) offsets: BTreeMap<(String, String), BTreeMap<i32, i64>>,
    pub(crate) streams: BTreeMap<(String, String), types::Stream>,
    pub(crate) generation: u64,
    pub(crate) tokens: BTreeMap<String, BTreeSet<String>>,
    pub(crate) ended: BTreeSet<String>,
    pub(crate) segments: Vec<wire::PublishedSegment>,
    pub(crate) served: BTreeSet<u32>,
    pub(crate) epoch: u64,
    pub(crate) resets: BTreeSet<String>,
}

#[derive(Default)]
pub(crate) struct FakePublisher {
    pub(crate) state: Mutex<State>,
    /// Lists are refused as by a connection that is not there.
    pub(crate) is_away: AtomicBool,
}

fn pairs(offsets: Option<&types::PartitionOffsets>) -> BTreeMap<i32, i64> {
    offsets
        .into_iter()
        .flat_map(|offsets| &offsets.offsets)
        .map(|pair| (pair.partition, pair.offset))
        .collect()
}

fn offsets(pairs: &BTreeMap<i32, i64>) -> types::PartitionOffsets {
    super::offsets(
        &pairs
            .iter()
            .map(|(partition, offset)| (*partition, *offset))
            .collect::<Vec<_>>(),
    )
}

impl FakePublisher {
    pub(crate) fn is_registered(&self, group: &str, token: &str) -> bool {
        let state = self.state.lock().unwrap();
        !state.ended.contains(group)
            && state
                .tokens
                .get(group)
                .is_some_and(|tokens| tokens.contains(token))
    }
    /// Compare and swap, with a segment of as many rows as offsets.
    pub(crate) fn publish(&self, assignment: &TaskAssignment, end: &types::PartitionOffsets) -> bool {
        let mut state = self.state.lock().unwrap();
        let key = (
            assignment.supervisor_id.clone(),
            assignment.stream.as_ref().unwrap().topic.clone(),
        );
        let (start, end) = (pairs(assignment.start.as_ref()), pairs(Some(end)));
        let held = state.offsets.entry(key).or_default();
        if end
            .iter()
            .all(|(partition, end)| held.get(partition).is_some_and(|at| at >= end))
        {
            return true;
        }
        if start
            .iter()
            .any(|(partition, start)| held.get(partition) != Some(start))
        {
            return false;
        }
        held.extend(&end);
        let rows = end
            .iter()
            .map(|(partition, end)| u64::try_from(end - start[partition]).unwrap())
            .sum();
        let number = u32::try_from(state.segments.len()).unwrap();
        let id = types::SegmentId {
            data_source: "wiki".into(),
            interval: Some(types::Interval {
                start_millis: 0,
                end_millis: 3_600_000,
            }),
            version: "2026-01-01T00:00:00.000Z".into(),
            partition_num: number,
        };
        let segment = types::Segment {
            id: Some(id),
            rows,
            input_rows: rows,
            size_bytes: rows * 10,
            ..Default::default()
        };
        state.segments.push(wire::PublishedSegment {
            segment: Some(segment),
            supervisor_id: assignment.supervisor_id.clone(),
            published_at_millis: 1,
            used: true,
            promoted: true,
            ordinal: i64::from(number),
        });
        true
    }
    fn admit(&self, epoch: u64) -> Result<(), Status> {
        let mut state = self.state.lock().unwrap();
        state.epoch = state.epoch.max(epoch);
        if epoch < state.epoch {
            Err(Status::failed_precondition("an old epoch"))
        } else {
            Ok(())
        }
    }
    fn answer(&self, supervisor: &str, topic: &str) -> wire::CommittedOffsets {
        let state = self.state.lock().unwrap();
        let key = (supervisor.to_owned(), topic.to_owned());
        wire::CommittedOffsets {
            supervisor_id: supervisor.to_owned(),
            stream: state.streams.get(&key).cloned(),
            offsets: Some(offsets(&state.offsets.get(&key).cloned().unwrap_or_default())),
            generation: state.generation,
        }
    }
}

#[tonic::async_trait]
impl Publisher for FakePublisher {
    async fn initialize_offsets(
        &self,
        request: Request<wire::InitializeOffsetsRequest>,
    ) -> Result<Response<wire::CommittedOffsets>, Status> {
        let request = request.into_inner();
        self.admit(request.coordinator_epoch)?;
        let stream = request.stream.unwrap();
        let key = (request.supervisor_id.clone(), stream.topic.clone());
        {
            let mut state = self.state.lock().unwrap();
            state.streams.insert(key.clone(), stream.clone());
            let held = state.offsets.entry(key).or_default();
            for (partition, offset) in pairs(request.start.as_ref()) {
                held.entry(partition).or_insert(offset);
            }
        }
        Ok(Response::new(self.answer(&request.supervisor_id, &stream.topic)))
    }
    async fn get_committed_offsets(
        &self,
        request: Request<wire::GetCommittedOffsetsRequest>,
    ) -> Result<Response<wire::CommittedOffsets>, Status> {
        let request = request.into_inner();
        let answer = self.answer(&request.supervisor_id, &request.topic);
        if answer.stream.is_none() {
            return Err(Status::not_found("never had any"));
        }
        Ok(Response::new(answer))
    }
    async fn reset_offsets(
        &self,
        request: Request<wire::ResetOffsetsRequest>,
    ) -> Result<Response<wire::CommittedOffsets>, Status> {
        let request = request.into_inner();
        self.admit(request.coordinator_epoch)?;
        let key = (request.supervisor_id.clone(), request.topic.clone());
        {
            let mut state = self.state.lock().unwrap();
            if !state.resets.insert(request.request_key.clone()) {
                drop(state);
                return Ok(Response::new(self.answer(&request.supervisor_id, &request.topic)));
            }
            let held = state.offsets.entry(key).or_default();
            let concerned =
                |partition: &i32| request.partitions.is_empty() || request.partitions.contains(partition);
            let now: BTreeMap<i32, i64> = held
                .iter()
                .map(|(p, o)| (*p, *o))
                .filter(|(p, _)| concerned(p))
                .collect();
            if now != pairs(request.expected.as_ref()) {
                return Err(Status::failed_precondition("moved"));
            }
            held.retain(|partition, _| !concerned(partition));
            held.extend(pairs(request.new_offsets.as_ref()));
            state.generation += 1;
        }
        Ok(Response::new(self.answer(&request.supervisor_id, &request.topic)))
    }
    async fn register_group(
        &self,
        request: Request<wire::RegisterGroupRequest>,
    ) -> Result<Response<wire::RegisterGroupResponse>, Status> {
        let request = request.into_inner();
        self.admit(request.coordinator_epoch)?;
        let tokens = request.assignment_tokens.into_iter().collect();
        self.state.lock().unwrap().tokens.insert(request.group_id, tokens);
        Ok(Response::new(wire::RegisterGroupResponse {}))
    }
    async fn end_group(
        &self,
        request: Request<wire::EndGroupRequest>,
    ) -> Result<Response<wire::EndGroupResponse>, Status> {
        let request = request.into_inner();
        self.admit(request.coordinator_epoch)?;
        self.state.lock().unwrap().ended.insert(request.group_id);
        Ok(Response::new(wire::EndGroupResponse {}))
    }
    async fn allocate_segment(
        &self,
        _request: Request<wire::AllocateSegmentRequest>,
    ) -> Result<Response<wire::AllocateSegmentResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }
    async fn publish(
        &self,
        _request: Request<wire::PublishRequest>,
    ) -> Result<Response<wire::PublishResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }
    async fn verify(
        &self,
        _: Request<wire::VerifyRequest>,
    ) -> Result<Response<wire::VerifyResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }
    async fn list_segments(
        &self,
        request: Request<wire::ListSegmentsRequest>,
    ) -> Result<Response<wire::ListSegmentsResponse>, Status> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(Status::unavailable("connection refused"));
        }
        let request = request.into_inner();
        let state = self.state.lock().unwrap();
        let size = if request.page_size == 0 {
            1_000
        } else {
            request.page_size as usize
        };
        let from = request.page_token.parse().unwrap_or(-1_i64);
        let mut rows = state.segments.iter().filter(|row| row.ordinal > from);
        let segments: Vec<wire::PublishedSegment> = rows.by_ref().take(size).cloned().collect();
        let more = rows.next().is_some();
        let next_page_token = if more {
            segments.last().unwrap().ordinal.to_string()
        } else {
            String::new()
        };
        Ok(Response::new(wire::ListSegmentsResponse {
            segments,
            next_page_token,
        }))
    }
}

#[tonic::async_trait]
impl HandoffChecker for FakePublisher {
    async fn await_handoff(
        &self,
        request: Request<handoff::AwaitHandoffRequest>,
    ) -> Result<Response<handoff::AwaitHandoffResponse>, Status> {
        let state = self.state.lock().unwrap();
        let one = |id: types::SegmentId| handoff::Handoff {
            state: if state.served.contains(&id.partition_num) {
                handoff::HandoffState::Served.into()
            } else {
                handoff::HandoffState::Pending.into()
            },
            id: Some(id),
            ..Default::default()
        };
        let handoffs = request.into_inner().segments.into_iter().map(one).collect();
        Ok(Response::new(handoff::AwaitHandoffResponse { handoffs }))
    }
    async fn list_handoffs(
        &self,
        _request: Request<handoff::ListHandoffsRequest>,
    ) -> Result<Response<handoff::ListHandoffsResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }
}
