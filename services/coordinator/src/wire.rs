//! Between the wire and the machine's words.

use tidegate_protocol::group::{TaskPhase, TaskReport, TaskState};
use tidegate_protocol::supervisor::{CallError, Committed, State};
use tidegate_protocol::task::{Assignment, GroupMode, RowCounts, StopReason, Stream};
use tidegate_rpc::convert::{self, BadField};
use tidegate_rpc::coordinator::v1 as api;
use tidegate_rpc::publisher::v1 as publisher;
use tidegate_rpc::task_runner::v1 as runner;
use tidegate_rpc::types::v1 as types;
use tidegate_types::{Generation, SequenceId, TimestampMillis};
use tonic::{Code, Status};

/// What a failed call means. An answer that was lost and a peer that is away are the same: unknown outcome.
pub(crate) fn call_error(status: &Status) -> CallError {
    let why = if status.message().is_empty() {
        status.code().to_string()
    } else {
        status.message().to_owned()
    };
    match status.code() {
        Code::NotFound => CallError::NotFound(why),
        Code::ResourceExhausted => CallError::NoSlot(why),
        Code::InvalidArgument
        | Code::FailedPrecondition
        | Code::AlreadyExists
        | Code::OutOfRange
        | Code::PermissionDenied
        | Code::Unauthenticated
        | Code::Unimplemented => CallError::Refused(why),
        Code::Ok
        | Code::Cancelled
        | Code::Unknown
        | Code::DeadlineExceeded
        | Code::Aborted
        | Code::Internal
        | Code::Unavailable
        | Code::DataLoss => CallError::Unreachable(why),
    }
}

/// A message that cannot be understood is as good as none.
pub(crate) fn garbled(bad: &BadField) -> CallError {
    CallError::Unreachable(format!("the answer cannot be understood: {bad}"))
}

pub(crate) fn stream(stream: &Stream) -> types::Stream {
    types::Stream {
        topic: stream.topic.clone(),
        cluster_id: stream.cluster_id.0.clone(),
        topic_id: stream.topic_id.0.clone(),
    }
}

fn stream_from(message: Option<&types::Stream>) -> Stream {
    message.map_or_else(
        || Stream {
            topic: String::new(),
            cluster_id: Default::default(),
            topic_id: Default::default(),
        },
        |stream| Stream {
            topic: stream.topic.clone(),
            cluster_id: stream.cluster(),
            topic_id: stream.incarnation(),
        },
    )
}

pub(crate) fn committed(message: &publisher::CommittedOffsets) -> Result<Committed, BadField> {
    let offsets = convert::optional_offsets("offsets", message.offsets.as_ref())?;
    Ok(Committed {
        stream: stream_from(message.stream.as_ref()),
        offsets: offsets.unwrap_or_default(),
        generation: Generation(message.generation),
    })
}

pub(crate) fn counts_from(message: Option<types::RowCounts>) -> RowCounts {
    let message = message.unwrap_or_default();
    RowCounts {
        accepted: message.accepted,
        stored: message.stored,
        rejected: message.rejected,
        unparseable: message.unparseable,
        filtered: message.filtered,
        tombstones: message.tombstones,
        empty: message.empty,
        oversized: message.oversized,
        bytes: message.bytes,
    }
}

pub(crate) fn counts(counts: &RowCounts) -> types::RowCounts {
    types::RowCounts {
        accepted: counts.accepted,
        stored: counts.stored,
        rejected: counts.rejected,
        unparseable: counts.unparseable,
        filtered: counts.filtered,
        tombstones: counts.tombstones,
        empty: counts.empty,
        oversized: counts.oversized,
        bytes: counts.bytes,
    }
}

/// A task's state. A number that this version does not know, and none at all, mean: running, do nothing (B62).
fn task_state(number: i32) -> TaskState {
    use runner::TaskState as Wire;
    match Wire::try_from(number) {
        Ok(Wire::Starting) => TaskState::Starting,
        Ok(Wire::Reading) => TaskState::Reading,
        Ok(Wire::Paused) => TaskState::Paused,
        Ok(Wire::Finishing) => TaskState::Finishing,
        Ok(Wire::Stopping) => TaskState::Stopping,
        Ok(Wire::Published) => TaskState::Published,
        Ok(Wire::Superseded) => TaskState::Superseded,
        Ok(Wire::Stopped) => TaskState::Stopped,
        Ok(Wire::Replaced) => TaskState::Replaced,
        Ok(Wire::Failed) => TaskState::Failed,
        Ok(Wire::Preparing) => TaskState::Preparing,
        Ok(Wire::Prepared) => TaskState::Prepared,
        Ok(Wire::Unspecified) | Err(_) => TaskState::Unknown(number),
    }
}

pub(crate) fn task_state_number(state: TaskState) -> i32 {
    use runner::TaskState as Wire;
    match state {
        TaskState::Starting => Wire::Starting.into(),
        TaskState::Reading => Wire::Reading.into(),
        TaskState::Paused => Wire::Paused.into(),
        TaskState::Finishing => Wire::Finishing.into(),
        TaskState::Stopping => Wire::Stopping.into(),
        TaskState::Published => Wire::Published.into(),
        TaskState::Superseded => Wire::Superseded.into(),
        TaskState::Stopped => Wire::Stopped.into(),
        TaskState::Replaced => Wire::Replaced.into(),
        TaskState::Failed => Wire::Failed.into(),
        TaskState::Preparing => Wire::Preparing.into(),
        TaskState::Prepared => Wire::Prepared.into(),
        TaskState::Unknown(number) => number,
    }
}

/// What the machine looks at in a task's status.
pub(crate) fn report(status: &runner::TaskStatus) -> Result<TaskReport, BadField> {
    let phase = match runner::TaskPhase::try_from(status.phase) {
        Ok(runner::TaskPhase::Handoff) => TaskPhase::Handoff,
        Ok(
            runner::TaskPhase::Unspecified
            | runner::TaskPhase::Reading
            | runner::TaskPhase::Merging
            | runner::TaskPhase::Uploading
            | runner::TaskPhase::Publishing,
        )
        | Err(_) => TaskPhase::BeforeCommit,
    };
    Ok(TaskReport {
        task: convert::id("task_id", &status.task_id)?,
        group: status.group_id.parse().ok(),
        token: status.assignment_token.parse().ok(),
        state: task_state(status.state),
        phase,
        next: convert::optional_offsets("next", status.next.as_ref())?,
        decision_id: status.decision_id.clone(),
        counts: counts_from(status.counts),
        reason: status.reason.clone(),
        first_read: (status.first_read_millis != 0).then_some(TimestampMillis(status.first_read_millis)),
        progress: status.progress.wrapping_add(u64::from(status.handed_off)),
        alert: status.alert.clone(),
        open: status.open_sequence_id.map(SequenceId),
        wants_checkpoint: status.wants_checkpoint,
        unpublished: status.unpublished_sequence_id.map(SequenceId),
    })
}

pub(crate) fn assignment(assignment: &Assignment) -> runner::TaskAssignment {
    let end = assignment.end.as_ref();
    runner::TaskAssignment {
        task_id: assignment.task.to_string(),
        assignment_token: assignment.token.to_string(),
        supervisor_id: assignment.supervisor.to_string(),
        group_id: assignment.group.to_string(),
        generation: assignment.generation.0,
        base_sequence_name: assignment.base_sequence_name.to_string(),
        mode: match assignment.mode {
            GroupMode::Legacy => types::GroupMode::Legacy.into(),
            GroupMode::Checkpointing => types::GroupMode::Checkpointing.into(),
        },
        stream: Some(stream(&assignment.stream)),
        start: Some((&assignment.start).into()),
        end: end.map(|decision| (&decision.end).into()),
        decision_id: end
            .map(|decision| decision.decision_id.clone())
            .unwrap_or_default(),
        spec_json: assignment.spec_json.clone(),
        spec_version: assignment.spec_version,
        minimum_message_millis: assignment.minimum_message_time.map(|time| time.0),
        maximum_message_millis: assignment.maximum_message_time.map(|time| time.0),
        decode_version: assignment.decode_version.0,
        trace_parent: assignment.trace_parent.clone(),
        first_sequence_id: assignment.first_sequence.0,
        log: assignment
            .log
            .iter()
            .map(|entry| runner::LogEntry {
                sequence_id: entry.sequence.0,
                decision_id: entry.decision.decision_id.clone(),
                end: Some((&entry.decision.end).into()),
                finish: entry.finish,
            })
            .collect(),
    }
}

pub(crate) fn stop_reason(reason: StopReason) -> runner::StopReason {
    match reason {
        StopReason::Superseded => runner::StopReason::Superseded,
        StopReason::Replaced => runner::StopReason::Replaced,
        StopReason::Stopped => runner::StopReason::Stopped,
    }
}

pub(crate) fn state(state: State) -> api::SupervisorState {
    match state {
        State::Pending => api::SupervisorState::Pending,
        State::Running => api::SupervisorState::Running,
        State::Suspended => api::SupervisorState::Suspended,
        State::Stopping => api::SupervisorState::Stopping,
        State::Terminated => api::SupervisorState::Terminated,
        State::UnhealthySupervisor => api::SupervisorState::UnhealthySupervisor,
        State::UnhealthyTasks => api::SupervisorState::UnhealthyTasks,
        State::LostData => api::SupervisorState::LostData,
        State::StreamChanged => api::SupervisorState::StreamChanged,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b62_a_state_of_a_newer_runner_means_running() {
        let status = runner::TaskStatus {
            task_id: "t".into(),
            state: 99,
            phase: 99,
            ..Default::default()
        };
        let report = report(&status).unwrap();
        assert_eq!(
            (report.state, report.phase),
            (TaskState::Unknown(99), TaskPhase::BeforeCommit)
        );
        assert_eq!(task_state_number(report.state), 99);
        assert!(!report.state.is_ended());
    }

    #[test]
    fn a_lost_answer_is_an_unknown_outcome_and_a_refusal_is_none() {
        for (code, unknown) in [
            (Code::Unavailable, true),
            (Code::DeadlineExceeded, true),
            (Code::Internal, true),
            (Code::FailedPrecondition, false),
            (Code::Unimplemented, false),
        ] {
            let error = call_error(&Status::new(code, "x"));
            assert_eq!(matches!(error, CallError::Unreachable(_)), unknown, "{code}");
        }
    }
}
