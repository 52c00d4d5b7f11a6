//! The `TaskRunner` service: checks, fences, hands over.

use std::sync::Arc;

use tidegate_protocol::task::{EndDecision, LogEntry, StopReason};
use tidegate_rpc::convert;
use tidegate_rpc::status::RpcError;
use tidegate_rpc::task_runner::v1 as wire;
use tidegate_rpc::task_runner::v1::task_runner_server::TaskRunner;
use tidegate_types::{Epoch, SequenceId, TaskId};
use tonic::{Request, Response, Status};

use crate::assignment;
use crate::runner::Runner;

/// The service of one runner.
#[derive(Debug)]
pub(crate) struct Service(pub(crate) Arc<Runner>);

fn task_id(text: &str) -> Result<TaskId, Status> {
    Ok(convert::id("task_id", text)?)
}

#[tonic::async_trait]
impl TaskRunner for Service {
    async fn assign_task(
        &self,
        request: Request<wire::AssignTaskRequest>,
    ) -> Result<Response<wire::AssignTaskResponse>, Status> {
        let request = request.into_inner();
        self.0.admit(Epoch(request.coordinator_epoch)).await?;
        let task = convert::required("task", request.task.as_ref()).map_err(RpcError::from)?;
        let assignment = assignment::from_wire(task).map_err(RpcError::from)?;
        let status = self.0.assign(assignment).await?;
        Ok(Response::new(wire::AssignTaskResponse { status: Some(status) }))
    }

    async fn prepare_task(
        &self,
        request: Request<wire::PrepareTaskRequest>,
    ) -> Result<Response<wire::TaskStatus>, Status> {
        let request = request.into_inner();
        self.0.admit(Epoch(request.coordinator_epoch)).await?;
        Ok(Response::new(self.0.prepare(&request).await?))
    }

    async fn pause_task(
        &self,
        request: Request<wire::PauseTaskRequest>,
    ) -> Result<Response<wire::PauseTaskResponse>, Status> {
        let request = request.into_inner();
        self.0.admit(Epoch(request.coordinator_epoch)).await?;
        let pause = self.0.pause(&task_id(&request.task_id)?).await?;
        let next = pause.next.as_ref().map(Into::into);
        Ok(Response::new(wire::PauseTaskResponse {
            paused: pause.paused,
            next,
        }))
    }

    async fn resume_task(
        &self,
        request: Request<wire::ResumeTaskRequest>,
    ) -> Result<Response<wire::TaskStatus>, Status> {
        let request = request.into_inner();
        self.0.admit(Epoch(request.coordinator_epoch)).await?;
        Ok(Response::new(self.0.resume(&task_id(&request.task_id)?).await?))
    }

    async fn set_end_offsets(
        &self,
        request: Request<wire::SetEndOffsetsRequest>,
    ) -> Result<Response<wire::TaskStatus>, Status> {
        let request = request.into_inner();
        self.0.admit(Epoch(request.coordinator_epoch)).await?;
        let end = convert::offsets("end", request.end.as_ref()).map_err(RpcError::from)?;
        if request.decision_id.is_empty() {
            return Err(convert::BadField::new("decision_id", "is required").into());
        }
        let id = task_id(&request.task_id)?;
        let entry = LogEntry {
            sequence: SequenceId(request.sequence_id),
            decision: EndDecision {
                decision_id: request.decision_id,
                end,
            },
            finish: request.finish,
        };
        Ok(Response::new(self.0.set_end(&id, entry).await?))
    }

    async fn stop_task(
        &self,
        request: Request<wire::StopTaskRequest>,
    ) -> Result<Response<wire::TaskStatus>, Status> {
        let request = request.into_inner();
        self.0.admit(Epoch(request.coordinator_epoch)).await?;
        let reason = match request.reason() {
            wire::StopReason::Superseded => StopReason::Superseded,
            wire::StopReason::Stopped => StopReason::Stopped,
            wire::StopReason::Replaced | wire::StopReason::Unspecified => StopReason::Replaced,
        };
        let id = task_id(&request.task_id)?;
        Ok(Response::new(self.0.stop(&id, reason, request.keep_state).await?))
    }

    async fn get_task(
        &self,
        request: Request<wire::GetTaskRequest>,
    ) -> Result<Response<wire::TaskStatus>, Status> {
        Ok(Response::new(
            self.0.status(&task_id(&request.into_inner().task_id)?)?,
        ))
    }

    async fn list_tasks(
        &self,
        _request: Request<wire::ListTasksRequest>,
    ) -> Result<Response<wire::ListTasksResponse>, Status> {
        Ok(Response::new(wire::ListTasksResponse {
            tasks: self.0.statuses(),
        }))
    }
}
