//! Checkpoint now: asks the supervisor, then waits until what was asked for has come.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_protocol::group::StoredMode;
use tidegate_protocol::supervisor::{Command, GroupView};
use tidegate_protocol::task::GroupMode;
use tidegate_rpc::convert;
use tidegate_rpc::coordinator::v1 as api;
use tidegate_types::{GroupId, SequenceId};
use tonic::Status;

use super::supervisor::{leaving, refused};
use crate::actor::{Gone, Handle, View};

/// Unless the caller says another one.
const PATIENCE: Duration = Duration::from_mins(1);

pub(super) async fn checkpoint(
    handle: &Handle,
    request: &api::CheckpointRequest,
) -> Result<api::CheckpointResponse, Status> {
    let groups: BTreeSet<GroupId> = request
        .group_ids
        .iter()
        .map(|id| convert::id("group_ids", id))
        .collect::<Result<_, _>>()?;
    // Taken before the call: it closes these sequences or later ones.
    let open: Vec<(GroupId, SequenceId)> = handle
        .view()
        .snapshot
        .groups
        .iter()
        .filter(|group| is_meant(group, &groups))
        .map(|group| (group.id.clone(), group.open))
        .collect();
    handle
        .command(Command::Checkpoint { groups })
        .await
        .map_err(|Gone| leaving())?
        .map_err(|refusal| refused(&refusal))?;
    let patience = match request.timeout_millis {
        0 => PATIENCE,
        millis => Duration::from_millis(millis),
    };
    let begun = tokio::time::Instant::now();
    let decided = |view: &View| open.iter().all(|(id, sequence)| is_decided(view, id, *sequence));
    let view = handle.wait_until(patience, |view| decided(view)).await;
    if !decided(&view) {
        return Err(late("decided", patience));
    }
    let closed: Vec<bool> = open
        .iter()
        .map(|(id, sequence)| is_closed(&view, id, *sequence))
        .collect();
    let asked = || {
        open.iter()
            .zip(&closed)
            .filter(|(_, closed)| **closed)
            .map(|(asked, _)| asked)
    };
    let left = patience.saturating_sub(begun.elapsed());
    let (word, has_come): (_, fn(&View, &GroupId, SequenceId) -> bool) = match request.wait() {
        api::CheckpointWait::Unspecified | api::CheckpointWait::Decided => ("decided", |_, _, _| true),
        api::CheckpointWait::Published => ("published", is_published),
        api::CheckpointWait::HandedOff => ("handed off", is_handed_off),
    };
    let all = |view: &View| asked().all(|(id, sequence)| has_come(view, id, *sequence));
    let view = handle.wait_until(left, |view| all(view)).await;
    if !all(&view) {
        return Err(late(word, patience));
    }
    let result = |((id, sequence), closed): (&(GroupId, SequenceId), &bool)| api::GroupCheckpoint {
        group_id: id.to_string(),
        sequence_id: sequence.0,
        closed: *closed,
    };
    Ok(api::CheckpointResponse {
        groups: open.iter().zip(&closed).map(result).collect(),
    })
}

fn is_meant(group: &GroupView, groups: &BTreeSet<GroupId>) -> bool {
    (groups.is_empty() || groups.contains(&group.id))
        && group.state == "reading"
        && group.mode == StoredMode::Known(GroupMode::Checkpointing)
}

fn find<'a>(view: &'a View, id: &GroupId) -> Option<&'a GroupView> {
    view.snapshot.groups.iter().find(|group| group.id == *id)
}

/// A group that is gone has ended with everything published or given up.
fn is_decided(view: &View, id: &GroupId, sequence: SequenceId) -> bool {
    find(view, id)
        .is_none_or(|group| group.open > sequence || !group.checkpoint_asked || group.state != "reading")
}

fn is_closed(view: &View, id: &GroupId, sequence: SequenceId) -> bool {
    find(view, id).is_none_or(|group| group.open > sequence)
}

fn is_published(view: &View, id: &GroupId, sequence: SequenceId) -> bool {
    find(view, id).is_none_or(|group| group.unpublished > sequence || group.state == "ended")
}

/// The replica that published a sequence keeps it until the serving tier has it.
fn is_handed_off(view: &View, id: &GroupId, sequence: SequenceId) -> bool {
    let is_held = view
        .statuses
        .values()
        .filter(|status| status.group_id == id.as_str())
        .flat_map(|status| &status.sequences)
        .any(|held| held.sequence_id == sequence.0);
    is_published(view, id, sequence) && !is_held
}

fn late(word: &str, patience: Duration) -> Status {
    Status::deadline_exceeded(format!(
        "the checkpoint is not {word} after {} s; it goes on by itself (status shows it)",
        patience.as_secs()
    ))
}
