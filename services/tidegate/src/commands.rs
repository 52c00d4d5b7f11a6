//! The commands that ask a running coordinator: one call of the public API each, printed.

use std::io::Read as _;
use std::path::Path;

use indicatif::ProgressBar;
use tidegate_rpc::Transport;
use tidegate_rpc::coordinator::v1 as api;
use tidegate_rpc::publisher::v1::VerifyRequest;
use tidegate_rpc::types::v1::{PartitionOffset, PartitionOffsets};

use crate::cli::{
    Output, ResetPlace, RunnerCommand, SegmentCommand, SupervisorCommand, TaskCommand, WaitFor,
};
use crate::client::Coordinator;
use crate::failure::Failure;
use crate::plain_json::plain_json;
use crate::report::{grouped, print};
use crate::views::{
    CheckpointView, HealthView, HistoryView, IssuesView, ProofView, ResetPlanView, RunnersView, SegmentsView,
    SpecView, StatusView, SubmittedView, SupervisorsView, TasksView,
};

/// How a command that failed nowhere ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Good,
    /// The answer was printed, and it is a "no": an invalid spec, a service that is not serving.
    Bad,
}

pub(crate) async fn supervisor(
    mut to: Coordinator,
    output: Output,
    command: SupervisorCommand,
) -> Result<Outcome, Failure> {
    let server = to.server.clone();
    let failed = Failure::rpc(&server);
    match command {
        SupervisorCommand::Submit { spec } => {
            let request = api::SubmitRequest {
                spec_json: read_spec(&spec)?,
            };
            let answer = to.api.submit(request).await.map_err(failed)?.into_inner();
            print(output, &SubmittedView::from(answer))?;
        }
        SupervisorCommand::Validate { spec } => {
            let request = api::ValidateRequest {
                spec_json: read_spec(&spec)?,
            };
            let view = IssuesView::from(to.api.validate(request).await.map_err(failed)?.into_inner());
            print(output, &view)?;
            return Ok(if view.valid { Outcome::Good } else { Outcome::Bad });
        }
        SupervisorCommand::Get { id } => {
            let answer = to
                .api
                .get(api::GetRequest { supervisor_id: id })
                .await
                .map_err(failed)?
                .into_inner();
            print(output, &SpecView::from(answer))?;
        }
        SupervisorCommand::List => {
            let answer = to
                .api
                .list(api::ListRequest {})
                .await
                .map_err(failed)?
                .into_inner();
            print(output, &SupervisorsView::from(answer))?;
        }
        SupervisorCommand::History { id } => {
            let request = api::HistoryRequest { supervisor_id: id };
            let answer = to.api.history(request).await.map_err(failed)?.into_inner();
            print(output, &HistoryView::from(answer))?;
        }
        SupervisorCommand::Status { id } => {
            let answer = to.api.status(api::StatusRequest { supervisor_id: id }).await;
            print(output, &StatusView::from(answer.map_err(failed)?.into_inner()))?;
        }
        SupervisorCommand::Suspend { id } => {
            let answer = to.api.suspend(api::SuspendRequest { supervisor_id: id }).await;
            print(output, &StatusView::from(answer.map_err(failed)?.into_inner()))?;
        }
        SupervisorCommand::Resume { id } => {
            let answer = to.api.resume(api::ResumeRequest { supervisor_id: id }).await;
            print(output, &StatusView::from(answer.map_err(failed)?.into_inner()))?;
        }
        SupervisorCommand::Terminate {
            id,
            now,
            forget_offsets,
        } => {
            let request = api::TerminateRequest {
                supervisor_id: id,
                now,
                forget_offsets,
            };
            let answer = to.api.terminate(request).await;
            print(output, &StatusView::from(answer.map_err(failed)?.into_inner()))?;
        }
        SupervisorCommand::Checkpoint {
            id,
            groups,
            wait,
            timeout,
        } => {
            let request = api::CheckpointRequest {
                supervisor_id: id,
                group_ids: groups,
                wait: match wait {
                    WaitFor::Decided => api::CheckpointWait::Decided,
                    WaitFor::Published => api::CheckpointWait::Published,
                    WaitFor::HandedOff => api::CheckpointWait::HandedOff,
                }
                .into(),
                timeout_millis: timeout.saturating_mul(1_000),
            };
            let answer = to.api.checkpoint(request).await.map_err(failed)?.into_inner();
            print(output, &CheckpointView::from(answer))?;
        }
        SupervisorCommand::Reset {
            id,
            partitions,
            offsets,
            to: place,
            dry_run,
            force,
            why,
        } => {
            let mut request = reset_request(id, partitions, offsets, why)?;
            request.force = force;
            request.to = match place {
                None => api::ResetTo::Unspecified,
                Some(ResetPlace::Earliest) => api::ResetTo::Earliest,
                Some(ResetPlace::Latest) => api::ResetTo::Latest,
            }
            .into();
            // An older coordinator would not see `to` and put partitions elsewhere: it does not know this call.
            if dry_run || place.is_some() {
                let plan = to
                    .api
                    .plan_reset(request.clone())
                    .await
                    .map_err(Failure::rpc(&server))?;
                if dry_run {
                    print(output, &ResetPlanView::from(plan.into_inner()))?;
                    return Ok(Outcome::Good);
                }
            }
            let answer = to.api.reset(request).await;
            print(output, &StatusView::from(answer.map_err(failed)?.into_inner()))?;
        }
    }
    Ok(Outcome::Good)
}

/// A partition with a new offset is one of those that are reset.
fn reset_request(
    id: String,
    mut partitions: Vec<i32>,
    mut offsets: Vec<(i32, i64)>,
    why: String,
) -> Result<api::ResetRequest, Failure> {
    offsets.sort_unstable();
    if let Some(twice) = offsets.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Failure::Other(format!(
            "--offset names partition {} twice",
            twice[0].0
        )));
    }
    // Without --partition and with --offset, only the named ones: a reset of all others would be a surprise.
    partitions.extend(offsets.iter().map(|(partition, _)| *partition));
    partitions.sort_unstable();
    partitions.dedup();
    let offsets = offsets
        .into_iter()
        .map(|(partition, offset)| PartitionOffset { partition, offset })
        .collect::<Vec<_>>();
    Ok(api::ResetRequest {
        supervisor_id: id,
        partitions,
        offsets: (!offsets.is_empty()).then_some(PartitionOffsets { offsets }),
        why,
        ..api::ResetRequest::default()
    })
}

pub(crate) async fn task(
    mut to: Coordinator,
    output: Output,
    command: TaskCommand,
) -> Result<Outcome, Failure> {
    let TaskCommand::List { supervisor, all } = command;
    let tasks = to.tasks(supervisor.as_deref().unwrap_or_default(), all).await?;
    print(output, &TasksView::from(tasks))?;
    Ok(Outcome::Good)
}

pub(crate) async fn segment(
    mut to: Coordinator,
    output: Output,
    command: SegmentCommand,
) -> Result<Outcome, Failure> {
    let SegmentCommand::List {
        data_source,
        supervisor,
    } = command;
    let segments = to
        .segments(
            data_source.as_deref().unwrap_or_default(),
            supervisor.as_deref().unwrap_or_default(),
        )
        .await?;
    print(output, &SegmentsView::from(segments))?;
    Ok(Outcome::Good)
}

/// Reads a proof to its last page; what is read so far is shown to a person who waits.
pub(crate) async fn verify(
    mut to: Coordinator,
    output: Output,
    data_source: String,
    deep: bool,
) -> Result<Outcome, Failure> {
    let mut view = ProofView::new(data_source.clone(), deep);
    let progress = ProgressBar::new_spinner();
    let mut request = VerifyRequest {
        data_source,
        deep,
        ..VerifyRequest::default()
    };
    loop {
        let page = to.verify(request.clone()).await?;
        request.page_token.clone_from(&page.next_page_token);
        view.add(page);
        if request.page_token.is_empty() {
            break;
        }
        progress.set_message(format!(
            "{} segments, {} bytes of objects read",
            grouped(view.segments),
            grouped(view.bytes_read)
        ));
        progress.tick();
    }
    progress.finish_and_clear();
    print(output, &view)?;
    Ok(if view.ok { Outcome::Good } else { Outcome::Bad })
}

pub(crate) async fn runner(
    mut to: Coordinator,
    output: Output,
    command: RunnerCommand,
) -> Result<Outcome, Failure> {
    let RunnerCommand::List = command;
    let server = to.server.clone();
    let answer = to
        .api
        .list_runners(api::ListRunnersRequest {})
        .await
        .map_err(Failure::rpc(&server))?
        .into_inner();
    print(output, &RunnersView::from(answer))?;
    Ok(Outcome::Good)
}

pub(crate) async fn health(output: Output, address: String) -> Result<Outcome, Failure> {
    let transport = Transport::connect(&address).map_err(|error| Failure::Other(error.to_string()))?;
    let serving = tidegate_rpc::health::check(transport)
        .await
        .map_err(Failure::rpc(&address))?;
    print(output, &HealthView { address, serving })?;
    Ok(if serving { Outcome::Good } else { Outcome::Bad })
}

/// The text of a spec, from a file or from standard input (`-`), without comments.
fn read_spec(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map(drop)
    } else {
        std::fs::read_to_string(path).map(|read| text = read)
    };
    read.map_err(|error| Failure::Other(format!("cannot read the spec from {}: {error}", path.display())))?;
    Ok(plain_json(&text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_of_a_reset_names_its_partition() {
        let request = reset_request("s".into(), vec![3], vec![(1, 10), (0, 5)], String::new()).unwrap();
        assert_eq!(request.partitions, [0, 1, 3]);
        let offsets: Vec<_> = request
            .offsets
            .unwrap()
            .offsets
            .iter()
            .map(|o| (o.partition, o.offset))
            .collect();
        assert_eq!(offsets, [(0, 5), (1, 10)]);
        let all = reset_request("s".into(), vec![], vec![], String::new()).unwrap();
        assert!(all.partitions.is_empty() && all.offsets.is_none());
        assert!(reset_request("s".into(), vec![], vec![(1, 10), (1, 11)], String::new()).is_err());
    }
}
