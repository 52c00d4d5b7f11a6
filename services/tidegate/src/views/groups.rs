//! Task groups: those at work, and those to come.

use serde::Serialize;
use tidegate_rpc::coordinator::v1::{GroupStatus, NextGroupStatus};
use tidegate_rpc::types::v1::GroupMode;

use crate::report::table;

#[derive(Debug, Serialize)]
pub(crate) struct GroupView {
    id: String,
    mode: String,
    mode_reason: String,
    state: String,
    partitions: Vec<i32>,
    /// Checkpointing mode only.
    open_sequence: Option<u32>,
    unpublished_sequence: Option<u32>,
}

impl From<GroupStatus> for GroupView {
    fn from(status: GroupStatus) -> Self {
        let checkpointing = status.mode() == GroupMode::Checkpointing;
        Self {
            mode: match status.mode() {
                GroupMode::Legacy => "legacy".into(),
                GroupMode::Checkpointing => "checkpointing".into(),
                GroupMode::Unspecified => format!("unknown ({})", status.mode),
            },
            id: status.group_id,
            mode_reason: status.mode_reason,
            state: status.state,
            partitions: status.partitions,
            open_sequence: checkpointing.then_some(status.open_sequence_id),
            unpublished_sequence: checkpointing.then_some(status.unpublished_sequence_id),
        }
    }
}

/// A group that is to take over.
#[derive(Debug, Serialize)]
pub(crate) struct NextGroupView {
    id: Option<String>,
    partitions: Vec<i32>,
    tasks: u32,
    tasks_ready: u32,
    old_order: Option<String>,
}

impl From<NextGroupStatus> for NextGroupView {
    fn from(status: NextGroupStatus) -> Self {
        Self {
            id: (!status.group_id.is_empty()).then_some(status.group_id),
            partitions: status.partitions,
            tasks: status.tasks,
            tasks_ready: status.tasks_ready,
            old_order: (!status.old_order.is_empty()).then_some(status.old_order),
        }
    }
}

fn list(partitions: &[i32]) -> String {
    let texts: Vec<String> = partitions.iter().map(ToString::to_string).collect();
    texts.join(", ")
}

pub(crate) fn group_table(groups: &[GroupView]) -> String {
    let number = |number: Option<u32>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let rows = groups
        .iter()
        .map(|group| {
            vec![
                group.id.clone(),
                group.state.clone(),
                list(&group.partitions),
                group.mode.clone(),
                number(group.open_sequence),
                number(group.unpublished_sequence),
                group.mode_reason.clone(),
            ]
        })
        .collect();
    table(
        &[
            "group",
            "state",
            "partitions",
            "mode",
            "open sequence",
            "unpublished from",
            "why this mode",
        ],
        rows,
        "no groups",
    )
}

/// One line about a roll-over that comes.
pub(crate) fn next_group_line(group: &NextGroupView) -> String {
    let partitions = list(&group.partitions);
    match (&group.id, &group.old_order) {
        (Some(id), _) => format!(
            "next: group {id} takes partitions {partitions} over; {} of {} tasks are connected",
            group.tasks_ready, group.tasks
        ),
        (None, Some(why)) => format!("next: partitions {partitions} stop before they start again: {why}"),
        (None, None) => format!("next: partitions {partitions}"),
    }
}
