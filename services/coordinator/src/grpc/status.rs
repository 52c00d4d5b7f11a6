//! What a person sees of a supervisor, from one view.

use tidegate_protocol::group::StoredMode;
use tidegate_protocol::supervisor::{GroupView, PreparationView, TaskPlace, TaskView};
use tidegate_protocol::task::{Ending, GroupMode};
use tidegate_rpc::coordinator::v1 as api;
use tidegate_rpc::task_runner::v1::{TaskState, TaskStatus};
use tidegate_rpc::types::v1 as types;
use tidegate_types::SupervisorId;

use crate::actor::View;
use crate::segments::Totals;
use crate::wire;

pub(crate) fn summary(id: &SupervisorId, view: &View) -> api::SupervisorSummary {
    let settings = view.settings.as_ref();
    api::SupervisorSummary {
        supervisor_id: id.to_string(),
        data_source: settings
            .map(|settings| settings.data_source.to_string())
            .unwrap_or_default(),
        state: wire::state(view.snapshot.state).into(),
        version: view.version,
        topic: settings
            .map(|settings| settings.topic.clone())
            .unwrap_or_default(),
    }
}

pub(crate) fn response(id: &SupervisorId, view: &View, totals: Totals) -> api::StatusResponse {
    let snapshot = &view.snapshot;
    let partitions: Vec<api::PartitionStatus> = snapshot
        .partitions
        .iter()
        .map(|partition| api::PartitionStatus {
            partition: partition.partition.0,
            current: partition.current.map(|offset| offset.0),
            committed: partition.committed.map(|offset| offset.0),
            latest: partition.latest.map(|offset| offset.0),
            lag: partition.lag,
        })
        .collect();
    let of = |place: TaskPlace| {
        let tasks = snapshot.tasks.iter().filter(move |task| task.place == place);
        tasks.map(|task| task_info(view, task)).collect()
    };
    api::StatusResponse {
        supervisor: Some(summary(id, view)),
        state_detail: snapshot.detail.clone(),
        total_lag: partitions.iter().filter_map(|partition| partition.lag).sum(),
        partitions,
        latest_taken_at_millis: snapshot.latest_taken_at.map_or(0, |at| at.0),
        reading: of(TaskPlace::Reading),
        publishing: of(TaskPlace::Publishing),
        recent_errors: snapshot
            .errors
            .iter()
            .map(|error| api::SupervisorError {
                at_millis: error.at.0,
                message: error.message.clone(),
            })
            .collect(),
        counts: Some(wire::counts(&snapshot.counts)),
        segments: totals.segments,
        segments_handed_off: totals.handed_off,
        generation: snapshot.generation.0,
        parse_errors: view.parse_errors.clone(),
        segment_bytes: totals.bytes,
        segment_rows: totals.rows,
        groups: snapshot
            .groups
            .iter()
            .filter(|group| group.state != "ended")
            .map(group)
            .collect(),
        next_groups: snapshot.next_groups.iter().map(next_group).collect(),
    }
}

fn next_group(next: &PreparationView) -> api::NextGroupStatus {
    let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    api::NextGroupStatus {
        group_id: next.group.as_ref().map(ToString::to_string).unwrap_or_default(),
        partitions: next.partitions.iter().map(|partition| partition.0).collect(),
        tasks: number(next.tasks),
        tasks_ready: number(next.ready),
        old_order: next.old_order.clone(),
    }
}

fn group(group: &GroupView) -> api::GroupStatus {
    let mode = match &group.mode {
        StoredMode::Known(GroupMode::Legacy) => types::GroupMode::Legacy,
        StoredMode::Known(GroupMode::Checkpointing) => types::GroupMode::Checkpointing,
        StoredMode::Unknown(_) => types::GroupMode::Unspecified,
    };
    api::GroupStatus {
        group_id: group.id.to_string(),
        mode: mode.into(),
        mode_reason: group.mode_reason.clone(),
        state: group.state.to_owned(),
        partitions: group.partitions.iter().map(|partition| partition.0).collect(),
        open_sequence_id: group.open.0,
        unpublished_sequence_id: group.unpublished.0,
    }
}

/// A task: as its runner told last, and as the coordinator knows it better (its end, why it waits).
pub(crate) fn task_info(view: &View, task: &TaskView) -> api::TaskInfo {
    let document = &task.document;
    let told = view.statuses.get(&document.id);
    let mut status = told.cloned().unwrap_or_else(|| TaskStatus {
        task_id: document.id.to_string(),
        group_id: document.group.to_string(),
        supervisor_id: document.supervisor.to_string(),
        state: task.state.map_or(0, wire::task_state_number),
        base_sequence_name: task.base_sequence_name.clone().unwrap_or_default(),
        start: task.start.as_ref().map(Into::into),
        generation: task.generation.0,
        ..Default::default()
    });
    // A token is a fence, not for the eyes of everybody.
    status.assignment_token.clear();
    if let Some(end) = &document.end {
        status.state = match end.how {
            Ending::Published => TaskState::Published,
            Ending::Superseded => TaskState::Superseded,
            Ending::Stopped => TaskState::Stopped,
            Ending::Replaced => TaskState::Replaced,
            Ending::Failed => TaskState::Failed,
        }
        .into();
        status.counts = Some(wire::counts(&document.counts));
    }
    if !task.reason.is_empty() {
        status.reason.clone_from(&task.reason);
    }
    api::TaskInfo {
        status: Some(status),
        runner_id: document
            .runner
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        created_at_millis: document.created_at.0,
        remaining_seconds: task.remaining_seconds,
    }
}
