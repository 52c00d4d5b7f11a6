//! `RunnerRegistry`: what task-runners call.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_rpc::convert;
use tidegate_rpc::coordinator::v1::runner_registry_server::RunnerRegistry;
use tidegate_rpc::coordinator::v1::{HeartbeatRequest, HeartbeatResponse};
use tidegate_rpc::status::RpcError;
use tidegate_rpc::task_runner::v1::{StopReason, StopTaskRequest, TaskState, TaskStatus};
use tidegate_types::{RunnerId, SupervisorId};
use tonic::{Request, Response, Status};

use crate::actor::now;
use crate::directory::Directory;
use crate::registry::Beat;

/// The service.
pub(crate) struct RegistryApi {
    pub(crate) directory: Arc<Directory>,
    pub(crate) interval: Duration,
}

fn is_ended(status: &TaskStatus) -> bool {
    match TaskState::try_from(status.state) {
        Ok(
            TaskState::Published
            | TaskState::Superseded
            | TaskState::Stopped
            | TaskState::Replaced
            | TaskState::Failed,
        ) => true,
        Ok(
            TaskState::Unspecified
            | TaskState::Starting
            | TaskState::Reading
            | TaskState::Paused
            | TaskState::Finishing
            | TaskState::Preparing
            | TaskState::Prepared
            | TaskState::Stopping,
        )
        | Err(_) => false,
    }
}

#[tonic::async_trait]
impl RunnerRegistry for RegistryApi {
    async fn heartbeat(
        &self,
        request: Request<HeartbeatRequest>,
    ) -> Result<Response<HeartbeatResponse>, Status> {
        let request = request.into_inner();
        let runner: RunnerId = convert::id("runner_id", &request.runner_id)?;
        if request.incarnation.is_empty() || request.address.is_empty() {
            return Err(convert::BadField::new("incarnation", "incarnation and address are required").into());
        }
        let used = request.tasks.iter().filter(|status| !is_ended(status)).count();
        let beat = Beat {
            runner: runner.clone(),
            incarnation: request.incarnation,
            address: request.address,
            slots: request.slots,
            used: u32::try_from(used).unwrap_or(u32::MAX),
            draining: request.draining,
            capabilities: request.capabilities,
        };
        let world = &self.directory.world;
        let view = world
            .registry
            .beat(now(), beat, &world.store)
            .await
            .map_err(|twin| Status::from(RpcError::AlreadyExists(twin.to_string())))?;
        let mut by_supervisor: BTreeMap<SupervisorId, Vec<TaskStatus>> = BTreeMap::new();
        let mut acknowledged = Vec::new();
        for status in request.tasks {
            match status.supervisor_id.parse::<SupervisorId>() {
                Ok(supervisor) => by_supervisor.entry(supervisor).or_default().push(status),
                // Of nobody: nothing is lost when it goes.
                Err(_) if is_ended(&status) => acknowledged.push(status.task_id),
                Err(_) => self.stop_stranger(&runner, &status),
            }
        }
        for (id, handle) in self.directory.all() {
            let tasks = by_supervisor.remove(&id).unwrap_or_default();
            let live = &handle.view().live_tasks;
            let recorded = |status: &&TaskStatus| {
                is_ended(status) && !status.task_id.parse().is_ok_and(|task| live.contains(&task))
            };
            acknowledged.extend(tasks.iter().filter(recorded).map(|status| status.task_id.clone()));
            handle.heartbeat(view.clone(), tasks);
        }
        for status in by_supervisor.into_values().flatten() {
            if is_ended(&status) {
                acknowledged.push(status.task_id);
            } else {
                self.stop_stranger(&runner, &status);
            }
        }
        Ok(Response::new(HeartbeatResponse {
            coordinator_epoch: world.store.epoch.0,
            interval_millis: u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX),
            acknowledged_tasks: acknowledged,
        }))
    }
}

impl RegistryApi {
    /// A task of a supervisor that this store has never known.
    fn stop_stranger(&self, runner: &RunnerId, status: &TaskStatus) {
        let (task, supervisor) = (status.task_id.clone(), &status.supervisor_id);
        tracing::warn!(%runner, task, supervisor, "a task of an unknown supervisor is stopped");
        let Some(mut client) = self.directory.world.registry.client(runner) else {
            return;
        };
        let request = StopTaskRequest {
            task_id: task,
            coordinator_epoch: self.directory.world.store.epoch.0,
            reason: StopReason::Replaced.into(),
            keep_state: false,
        };
        let limit = self.directory.world.rpc_timeout;
        tokio::spawn(async move {
            // Repeated with the next heartbeat that reports it.
            let _ = tokio::time::timeout(limit, client.stop_task(request)).await;
        });
    }
}
