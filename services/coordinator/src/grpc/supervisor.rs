//! `SupervisorService`: what data engineers and operators call.

use std::sync::Arc;
use std::time::Duration;

use tidegate_protocol::supervisor::{Command, KeepOffsets, Publish, Refusal, TaskPlace};
use tidegate_rpc::convert;
use tidegate_rpc::coordinator::v1 as api;
use tidegate_rpc::coordinator::v1::supervisor_service_server::SupervisorService;
use tidegate_rpc::publisher::v1 as publisher;
use tidegate_rpc::status::RpcError;
use tidegate_spec::{Parsed, SpecIssue, SupervisorSpec};
use tidegate_types::{SupervisorId, TimestampMillis};
use tonic::{Request, Response, Status};

use super::{checkpoint, reset, status};
use crate::actor::{Gone, Handle, ResetWish, View, now};
use crate::directory::{Directory, SubmitError};
use crate::segments::Segments;
use crate::{settings, store};

/// How long a reset is waited for before its status is answered as it stands.
const RESET_WAIT: Duration = Duration::from_secs(10);
/// Most rows per page.
const PAGE: usize = 1_000;

/// The service.
pub(crate) struct SupervisorApi {
    pub(crate) directory: Arc<Directory>,
    pub(crate) segments: Segments,
}

type Answer<T> = Result<Response<T>, Status>;

pub(super) fn leaving() -> Status {
    let why = "this coordinator is ending; the next one goes on with everything that was answered";
    RpcError::Unavailable(why.into(), Duration::from_secs(1)).into()
}

pub(super) fn refused(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::NoSuchPartition { .. } => RpcError::InvalidArgument(
            refusal.to_string(),
            vec![("partitions".into(), refusal.to_string())],
        ),
        Refusal::Terminated { .. }
        | Refusal::Stopping { .. }
        | Refusal::Resetting { .. }
        | Refusal::NoCheckpoint { .. }
        | Refusal::WouldLose { .. }
        | Refusal::OtherTopic { .. } => RpcError::FailedPrecondition(refusal.to_string()),
        Refusal::NotLooked { .. } => RpcError::Unavailable(refusal.to_string(), Duration::from_secs(1)),
    }
    .into()
}

fn wire_issues(issues: &[SpecIssue]) -> Vec<api::SpecIssue> {
    let number = |position: usize| u32::try_from(position).unwrap_or(u32::MAX);
    issues
        .iter()
        .map(|issue| api::SpecIssue {
            path: issue.path.clone(),
            message: issue.message.clone(),
            line: number(issue.line),
            column: number(issue.column),
        })
        .collect()
}

fn invalid_spec(issues: &[SpecIssue]) -> Status {
    let number = issues.len();
    let plural = if number == 1 { "error" } else { "errors" };
    let first = issues.first().map(ToString::to_string).unwrap_or_default();
    let fields = issues
        .iter()
        .map(|issue| (issue.path.clone(), issue.message.clone()))
        .collect();
    RpcError::InvalidArgument(
        format!("the spec has {number} {plural}; the first: {first}"),
        fields,
    )
    .into()
}

impl SupervisorApi {
    fn handle(&self, id: &str) -> Result<(SupervisorId, Handle), Status> {
        let id: SupervisorId = convert::id("supervisor_id", id)?;
        let handle = self.directory.get(&id).ok_or_else(|| {
            let why =
                format!("there is no supervisor {id}; `tidegate supervisor list` shows those there are");
            Status::from(RpcError::NotFound(why))
        })?;
        Ok((id, handle))
    }

    async fn status_of(&self, id: &SupervisorId, view: &View) -> api::StatusResponse {
        let totals = self.segments.totals(id).await;
        status::response(id, view, totals)
    }

    async fn command(&self, id: &str, command: Command) -> Answer<api::StatusResponse> {
        let (id, handle) = self.handle(id)?;
        handle
            .command(command)
            .await
            .map_err(|Gone| leaving())?
            .map_err(|refusal| refused(&refusal))?;
        Ok(Response::new(self.status_of(&id, &handle.view()).await))
    }

    /// Secrets that came masked are those of the stored spec.
    fn parse(&self, spec_json: &str) -> Result<Parsed, Vec<SpecIssue>> {
        settings::parse(spec_json, |id| {
            let settings = self.directory.get(id)?.view().settings.clone()?;
            let parsed = SupervisorSpec::parse(&settings.spec_json).ok()?;
            Some(parsed.spec)
        })
    }
}

#[tonic::async_trait]
impl SupervisorService for SupervisorApi {
    async fn submit(&self, request: Request<api::SubmitRequest>) -> Answer<api::SubmitResponse> {
        let request = request.into_inner();
        let parsed = self
            .parse(&request.spec_json)
            .map_err(|issues| invalid_spec(&issues))?;
        let id = parsed.spec.id.clone();
        let done = match self
            .directory
            .submit(id.clone(), settings::of(&parsed.spec))
            .await
        {
            Ok(done) => done,
            Err(SubmitError::Refused(refusal)) => return Err(refused(&refusal)),
            Err(SubmitError::Gone) => return Err(leaving()),
        };
        tracing::info!(supervisor = %id, version = done.version, changed = done.changed, "a spec was submitted");
        Ok(Response::new(api::SubmitResponse {
            supervisor_id: id.to_string(),
            version: done.version,
            changed: done.changed,
            warnings: wire_issues(&parsed.warnings),
        }))
    }

    async fn validate(&self, request: Request<api::ValidateRequest>) -> Answer<api::ValidateResponse> {
        let (errors, warnings) = match self.parse(&request.into_inner().spec_json) {
            Ok(parsed) => (Vec::new(), wire_issues(&parsed.warnings)),
            Err(issues) => (wire_issues(&issues), Vec::new()),
        };
        Ok(Response::new(api::ValidateResponse { errors, warnings }))
    }

    async fn get(&self, request: Request<api::GetRequest>) -> Answer<api::GetResponse> {
        let (id, handle) = self.handle(&request.into_inner().supervisor_id)?;
        let view = handle.view();
        let spec = view
            .settings
            .as_ref()
            .map(|settings| settings::masked(&settings.spec_json));
        Ok(Response::new(api::GetResponse {
            supervisor_id: id.to_string(),
            spec_json: spec.unwrap_or_default(),
            version: view.version,
        }))
    }

    async fn list(&self, _request: Request<api::ListRequest>) -> Answer<api::ListResponse> {
        let all = self.directory.all();
        let supervisors = all
            .iter()
            .map(|(id, handle)| status::summary(id, &handle.view()))
            .collect();
        Ok(Response::new(api::ListResponse { supervisors }))
    }

    async fn status(&self, request: Request<api::StatusRequest>) -> Answer<api::StatusResponse> {
        let (id, handle) = self.handle(&request.into_inner().supervisor_id)?;
        Ok(Response::new(self.status_of(&id, &handle.view()).await))
    }

    async fn suspend(&self, request: Request<api::SuspendRequest>) -> Answer<api::StatusResponse> {
        self.command(&request.into_inner().supervisor_id, Command::Suspend)
            .await
    }

    async fn resume(&self, request: Request<api::ResumeRequest>) -> Answer<api::StatusResponse> {
        self.command(&request.into_inner().supervisor_id, Command::Resume)
            .await
    }

    async fn terminate(&self, request: Request<api::TerminateRequest>) -> Answer<api::StatusResponse> {
        let request = request.into_inner();
        let command = Command::Terminate {
            publish: if request.now { Publish::No } else { Publish::Yes },
            offsets: if request.forget_offsets {
                KeepOffsets::Forget
            } else {
                KeepOffsets::Keep
            },
        };
        self.command(&request.supervisor_id, command).await
    }

    async fn plan_reset(&self, request: Request<api::ResetRequest>) -> Answer<api::PlanResetResponse> {
        let request = request.into_inner();
        let (_, handle) = self.handle(&request.supervisor_id)?;
        let wish = reset::wish(&request)?;
        let plan = handle
            .plan_reset(wish)
            .await
            .map_err(|Gone| leaving())?
            .map_err(|refusal| refused(&refusal))?;
        Ok(Response::new(reset::plan(&plan)))
    }

    async fn reset(&self, request: Request<api::ResetRequest>) -> Answer<api::StatusResponse> {
        let request = request.into_inner();
        let ResetWish {
            partitions,
            offsets,
            to,
        } = reset::wish(&request)?;
        let key = if request.request_key.is_empty() {
            uuid::Uuid::new_v4().to_string()
        } else {
            request.request_key
        };
        let command = Command::Reset {
            partitions,
            offsets,
            to,
            force: request.force,
            who: "operator".into(),
            why: request.why,
            key,
        };
        let (id, handle) = self.handle(&request.supervisor_id)?;
        handle
            .command(command)
            .await
            .map_err(|Gone| leaving())?
            .map_err(|refusal| refused(&refusal))?;
        let done = |view: &Arc<View>| !view.snapshot.is_resetting;
        let view = handle.wait_until(RESET_WAIT, done).await;
        Ok(Response::new(self.status_of(&id, &view).await))
    }

    async fn checkpoint(&self, request: Request<api::CheckpointRequest>) -> Answer<api::CheckpointResponse> {
        let request = request.into_inner();
        let (_, handle) = self.handle(&request.supervisor_id)?;
        checkpoint::checkpoint(&handle, &request).await.map(Response::new)
    }

    async fn history(&self, request: Request<api::HistoryRequest>) -> Answer<api::HistoryResponse> {
        let (id, _handle) = self.handle(&request.into_inner().supervisor_id)?;
        let records = self
            .directory
            .world
            .store
            .port
            .history(&id)
            .await
            .map_err(|error| {
                if error.is_retryable() {
                    RpcError::Unavailable(error.to_string(), Duration::from_secs(1))
                } else {
                    RpcError::Internal(error.to_string())
                }
            });
        let entry = |record| {
            let line = store::history_line(record);
            let spec_json = if line.spec_json.is_empty() {
                String::new()
            } else {
                settings::masked(&line.spec_json)
            };
            api::HistoryEntry {
                at_millis: line.at.0,
                what: line.what,
                version: line.version,
                detail: line.detail,
                spec_json,
            }
        };
        let entries = records.map_err(Status::from)?.into_iter().map(entry).collect();
        Ok(Response::new(api::HistoryResponse { entries }))
    }

    async fn list_tasks(&self, request: Request<api::ListTasksRequest>) -> Answer<api::ListTasksResponse> {
        let request = request.into_inner();
        let supervisors = if request.supervisor_id.is_empty() {
            self.directory.all()
        } else {
            vec![self.handle(&request.supervisor_id)?]
        };
        let mut tasks: Vec<((TimestampMillis, String), api::TaskInfo)> = Vec::new();
        for (_, handle) in supervisors {
            let view = handle.view();
            let shown = view.snapshot.tasks.iter();
            let shown = shown.filter(|task| request.include_ended || task.place != TaskPlace::Ended);
            tasks.extend(shown.map(|task| {
                let key = (task.document.created_at, task.document.id.to_string());
                (key, status::task_info(&view, task))
            }));
        }
        tasks.sort_by(|(left, _), (right, _)| left.cmp(right));
        let after = page_key(&request.page_token)?;
        let mut page = tasks
            .into_iter()
            .filter(|(key, _)| after.as_ref().is_none_or(|after| key > after));
        let size = page_size(request.page_size);
        let mut shown = Vec::new();
        let mut last = None;
        for (key, task) in page.by_ref().take(size) {
            last = Some(key);
            shown.push(task);
        }
        let next_page_token = match (page.next(), last) {
            (Some(_), Some((at, id))) => format!("{}/{id}", at.0),
            _ => String::new(),
        };
        Ok(Response::new(api::ListTasksResponse {
            tasks: shown,
            next_page_token,
        }))
    }

    async fn list_segments(
        &self,
        request: Request<api::ListSegmentsRequest>,
    ) -> Answer<api::ListSegmentsResponse> {
        let request = request.into_inner();
        if !request.supervisor_id.is_empty() {
            self.handle(&request.supervisor_id)?;
        }
        let page = self
            .segments
            .page(publisher::ListSegmentsRequest {
                data_source: request.data_source,
                supervisor_id: request.supervisor_id,
                page_size: request.page_size,
                page_token: request.page_token,
            })
            .await?;
        let ids = page
            .segments
            .iter()
            .filter_map(|row| row.segment.as_ref()?.id.clone())
            .collect::<Vec<_>>();
        let served = if ids.len() == page.segments.len() {
            self.segments.served(ids).await
        } else {
            vec![false; page.segments.len()]
        };
        let segments = page
            .segments
            .into_iter()
            .zip(served)
            .map(|(row, handed_off)| api::SegmentInfo {
                segment: row.segment,
                supervisor_id: row.supervisor_id,
                published_at_millis: row.published_at_millis,
                handed_off,
                used: row.used,
            });
        let next_page_token = page.next_page_token;
        Ok(Response::new(api::ListSegmentsResponse {
            segments: segments.collect(),
            next_page_token,
        }))
    }

    async fn verify(&self, request: Request<publisher::VerifyRequest>) -> Answer<publisher::VerifyResponse> {
        Ok(Response::new(self.segments.verify(request.into_inner()).await?))
    }

    async fn list_runners(
        &self,
        _request: Request<api::ListRunnersRequest>,
    ) -> Answer<api::ListRunnersResponse> {
        let all = self.directory.world.registry.all(now());
        let runners = all.into_iter().map(|(runner, available)| api::RunnerInfo {
            runner_id: runner.id.to_string(),
            address: runner.address,
            slots: runner.slots,
            used_slots: runner.used,
            last_heartbeat_millis: runner.last_heartbeat.0,
            available,
        });
        Ok(Response::new(api::ListRunnersResponse {
            runners: runners.collect(),
        }))
    }
}

fn page_size(asked: u32) -> usize {
    if asked == 0 {
        PAGE
    } else {
        PAGE.min(asked as usize)
    }
}

/// `<created at>/<task id>` of the last task of the page before.
fn page_key(token: &str) -> Result<Option<(TimestampMillis, String)>, Status> {
    if token.is_empty() {
        return Ok(None);
    }
    let parts = token
        .split_once('/')
        .and_then(|(at, id)| Some((TimestampMillis(at.parse().ok()?), id.to_owned())));
    let bad = || {
        convert::BadField::new(
            "page_token",
            "is not one that this service gave; start with an empty one",
        )
    };
    parts.map(Some).ok_or_else(|| bad().into())
}
