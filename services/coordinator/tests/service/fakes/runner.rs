//! A runner whose tasks do what they are told and nothing else.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_rpc::coordinator::v1 as api;
use tidegate_rpc::task_runner::v1 as wire;
use tidegate_rpc::task_runner::v1::task_runner_server::TaskRunner;
use tidegate_rpc::types::v1 as types;
use tonic::{Request, Response, Status};

use super::FakePublisher;

#[derive(Debug, Clone)]
pub(crate) struct FakeTask {
    pub(crate) assignment: wire::TaskAssignment,
    pub(crate) state: wire::TaskState,
    pub(crate) next: types::PartitionOffsets,
    pub(crate) end: Option<(String, types::PartitionOffsets)>,
    pub(crate) reason: String,
    pub(crate) parse_errors: Vec<types::ParseError>,
    pub(crate) first_read_millis: i64,
}

impl FakeTask {
    pub(crate) fn status(&self) -> wire::TaskStatus {
        let start: BTreeMap<i32, i64> = self
            .assignment
            .start
            .iter()
            .flat_map(|start| &start.offsets)
            .map(|pair| (pair.partition, pair.offset))
            .collect();
        let read: i64 = self
            .next
            .offsets
            .iter()
            .map(|pair| pair.offset - start[&pair.partition])
            .sum();
        wire::TaskStatus {
            task_id: self.assignment.task_id.clone(),
            group_id: self.assignment.group_id.clone(),
            supervisor_id: self.assignment.supervisor_id.clone(),
            state: self.state.into(),
            next: Some(self.next.clone()),
            end: self.end.as_ref().map(|(_, end)| end.clone()),
            decision_id: self.end.as_ref().map(|(id, _)| id.clone()).unwrap_or_default(),
            counts: Some(types::RowCounts {
                accepted: u64::try_from(read).unwrap(),
                ..Default::default()
            }),
            reason: self.reason.clone(),
            first_read_millis: self.first_read_millis,
            assignment_token: self.assignment.assignment_token.clone(),
            start: self.assignment.start.clone(),
            parse_errors: self.parse_errors.clone(),
            ..Default::default()
        }
    }
    fn is_ended(&self) -> bool {
        self.state as i32 >= wire::TaskState::Published as i32
    }
}

pub(crate) struct FakeRunner {
    name: String,
    slots: u32,
    pub(crate) incarnation: Mutex<String>,
    pub(crate) tasks: Mutex<BTreeMap<String, FakeTask>>,
    publisher: Arc<FakePublisher>,
    off: AtomicBool,
    /// Publish as soon as the end is told.
    pub(crate) publishes: AtomicBool,
    epoch: AtomicU64,
    /// New tasks say that they have read for so long.
    pub(crate) age_millis: AtomicI64,
}

impl FakeRunner {
    pub(crate) fn new(name: &str, slots: u32, publisher: Arc<FakePublisher>) -> Self {
        Self {
            name: name.into(),
            slots,
            incarnation: Mutex::new(format!("first life of {name}")),
            tasks: Mutex::default(),
            publisher,
            off: AtomicBool::new(false),
            publishes: AtomicBool::new(true),
            epoch: AtomicU64::new(0),
            age_millis: AtomicI64::new(0),
        }
    }
    pub(crate) fn address(&self) -> String {
        format!("fake://{}", self.name)
    }
    pub(crate) fn switch_off(&self) {
        self.off.store(true, Ordering::SeqCst);
    }
    pub(crate) fn is_off(&self) -> bool {
        self.off.load(Ordering::SeqCst)
    }
    pub(crate) fn heartbeat(&self) -> api::HeartbeatRequest {
        api::HeartbeatRequest {
            runner_id: self.name.clone(),
            incarnation: self.incarnation.lock().unwrap().clone(),
            address: self.address(),
            slots: self.slots,
            draining: false,
            tasks: self
                .tasks
                .lock()
                .unwrap()
                .values()
                .map(FakeTask::status)
                .collect(),
            software_version: "test".into(),
            capabilities: Vec::new(),
        }
    }
    pub(crate) fn acknowledged(&self, answer: &api::HeartbeatResponse) {
        let mut tasks = self.tasks.lock().unwrap();
        for task in &answer.acknowledged_tasks {
            let removed = tasks.remove(task);
            assert!(
                removed.is_none_or(|task| task.is_ended()),
                "a live task is acknowledged as ended"
            );
        }
    }
    pub(crate) fn live(&self) -> Vec<String> {
        let tasks = self.tasks.lock().unwrap();
        tasks
            .iter()
            .filter(|(_, task)| !task.is_ended())
            .map(|(id, _)| id.clone())
            .collect()
    }
    fn admit(&self, epoch: u64) -> Result<(), Status> {
        if self.is_off() {
            return Err(Status::unavailable("off"));
        }
        let highest = self.epoch.fetch_max(epoch, Ordering::SeqCst).max(epoch);
        if epoch < highest {
            Err(Status::failed_precondition("an old epoch"))
        } else {
            Ok(())
        }
    }
    fn with<T>(
        &self,
        epoch: u64,
        id: &str,
        work: impl FnOnce(&mut FakeTask) -> Result<T, Status>,
    ) -> Result<Response<T>, Status> {
        self.admit(epoch)?;
        let mut tasks = self.tasks.lock().unwrap();
        let task = tasks
            .get_mut(id)
            .ok_or_else(|| Status::not_found("no such task"))?;
        Ok(Response::new(work(task)?))
    }
}

#[tonic::async_trait]
impl TaskRunner for FakeRunner {
    async fn assign_task(
        &self,
        request: Request<wire::AssignTaskRequest>,
    ) -> Result<Response<wire::AssignTaskResponse>, Status> {
        let request = request.into_inner();
        self.admit(request.coordinator_epoch)?;
        let assignment = request.task.unwrap();
        assert!(
            self.publisher
                .is_registered(&assignment.group_id, &assignment.assignment_token),
            "registered first"
        );
        let age = self.age_millis.load(Ordering::SeqCst);
        let mut tasks = self.tasks.lock().unwrap();
        let used = tasks.values().filter(|task| !task.is_ended()).count();
        if !tasks.contains_key(&assignment.task_id) && used >= self.slots as usize {
            return Err(Status::resource_exhausted("full"));
        }
        let task = tasks
            .entry(assignment.task_id.clone())
            .or_insert_with(|| FakeTask {
                state: if assignment.end.is_some() {
                    wire::TaskState::Finishing
                } else {
                    wire::TaskState::Reading
                },
                next: assignment.start.clone().unwrap(),
                end: assignment
                    .end
                    .clone()
                    .map(|end| (assignment.decision_id.clone(), end)),
                reason: String::new(),
                parse_errors: Vec::new(),
                first_read_millis: super::now_millis() - age,
                assignment,
            });
        Ok(Response::new(wire::AssignTaskResponse {
            status: Some(task.status()),
        }))
    }
    async fn prepare_task(
        &self,
        _request: Request<wire::PrepareTaskRequest>,
    ) -> Result<Response<wire::TaskStatus>, Status> {
        // It advertises no capability, so nobody should ask.
        Err(Status::unimplemented("prepared tasks"))
    }
    async fn pause_task(
        &self,
        request: Request<wire::PauseTaskRequest>,
    ) -> Result<Response<wire::PauseTaskResponse>, Status> {
        let request = request.into_inner();
        self.with(request.coordinator_epoch, &request.task_id, |task| {
            task.state = wire::TaskState::Paused;
            Ok(wire::PauseTaskResponse {
                paused: true,
                next: Some(task.next.clone()),
            })
        })
    }
    async fn resume_task(
        &self,
        request: Request<wire::ResumeTaskRequest>,
    ) -> Result<Response<wire::TaskStatus>, Status> {
        let request = request.into_inner();
        self.with(request.coordinator_epoch, &request.task_id, |task| {
            task.state = wire::TaskState::Reading;
            Ok(task.status())
        })
    }
    async fn set_end_offsets(
        &self,
        request: Request<wire::SetEndOffsetsRequest>,
    ) -> Result<Response<wire::TaskStatus>, Status> {
        let request = request.into_inner();
        assert!(request.finish && !request.decision_id.is_empty());
        let publishes = self.publishes.load(Ordering::SeqCst);
        let publisher = self.publisher.clone();
        self.with(request.coordinator_epoch, &request.task_id, |task| {
            let end = request.end.clone().unwrap();
            task.end = Some((request.decision_id.clone(), end.clone()));
            task.state = wire::TaskState::Finishing;
            if publishes && publisher.publish(&task.assignment, &end) {
                task.next = end;
                task.state = wire::TaskState::Published;
            }
            Ok(task.status())
        })
    }
    async fn stop_task(
        &self,
        request: Request<wire::StopTaskRequest>,
    ) -> Result<Response<wire::TaskStatus>, Status> {
        let request = request.into_inner();
        self.with(request.coordinator_epoch, &request.task_id, |task| {
            if !task.is_ended() {
                task.state = match request.reason() {
                    wire::StopReason::Superseded => wire::TaskState::Superseded,
                    wire::StopReason::Stopped => wire::TaskState::Stopped,
                    wire::StopReason::Replaced | wire::StopReason::Unspecified => wire::TaskState::Replaced,
                };
            }
            Ok(task.status())
        })
    }
    async fn get_task(
        &self,
        request: Request<wire::GetTaskRequest>,
    ) -> Result<Response<wire::TaskStatus>, Status> {
        self.with(u64::MAX, &request.into_inner().task_id, |task| Ok(task.status()))
    }
    async fn list_tasks(
        &self,
        _request: Request<wire::ListTasksRequest>,
    ) -> Result<Response<wire::ListTasksResponse>, Status> {
        let tasks = self
            .tasks
            .lock()
            .unwrap()
            .values()
            .map(FakeTask::status)
            .collect();
        Ok(Response::new(wire::ListTasksResponse { tasks }))
    }
}
