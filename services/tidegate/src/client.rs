//! The coordinator's public API, as the commands use it.

use tidegate_rpc::clients::{self, SupervisorClient};
use tidegate_rpc::coordinator::v1::{ListSegmentsRequest, ListTasksRequest, SegmentInfo, TaskInfo};
use tidegate_rpc::publisher::v1::{VerifyRequest, VerifyResponse};
use tidegate_rpc::{Transport, handshake};

use crate::failure::Failure;

/// A client of the coordinator that leads, found by way of one or more addresses; it remembers whom it calls, for messages.
#[derive(Debug, Clone)]
pub struct Coordinator {
    pub(crate) server: String,
    pub(crate) api: SupervisorClient,
}

impl Coordinator {
    /// Connects on first use.
    pub fn at(server: &str) -> Result<Self, Failure> {
        let transport = Transport::to_leader(server)
            .map_err(|error| Failure::Other(error.to_string()))?
            .greet(&handshake::own("cli", []), "coordinator");
        Ok(Self {
            server: server.to_owned(),
            api: clients::supervisor(transport),
        })
    }

    /// All tasks, page by page.
    pub async fn tasks(&mut self, supervisor: &str, include_ended: bool) -> Result<Vec<TaskInfo>, Failure> {
        let mut request = ListTasksRequest {
            supervisor_id: supervisor.into(),
            include_ended,
            ..ListTasksRequest::default()
        };
        let mut tasks = Vec::new();
        loop {
            let page = self
                .api
                .list_tasks(request.clone())
                .await
                .map_err(Failure::rpc(&self.server))?
                .into_inner();
            tasks.extend(page.tasks);
            if page.next_page_token.is_empty() {
                return Ok(tasks);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// All segments, page by page.
    pub async fn segments(
        &mut self,
        data_source: &str,
        supervisor: &str,
    ) -> Result<Vec<SegmentInfo>, Failure> {
        let mut request = ListSegmentsRequest {
            data_source: data_source.into(),
            supervisor_id: supervisor.into(),
            ..ListSegmentsRequest::default()
        };
        let mut segments = Vec::new();
        loop {
            let page = self
                .api
                .list_segments(request.clone())
                .await
                .map_err(Failure::rpc(&self.server))?
                .into_inner();
            segments.extend(page.segments);
            if page.next_page_token.is_empty() {
                return Ok(segments);
            }
            request.page_token = page.next_page_token;
        }
    }

    /// One page of a proof.
    pub async fn verify(&mut self, request: VerifyRequest) -> Result<VerifyResponse, Failure> {
        let answer = self.api.verify(request).await;
        Ok(answer.map_err(Failure::rpc(&self.server))?.into_inner())
    }
}
