//! What a task says about itself, on the wire.

use tidegate_protocol::task::{
    Ending, GroupMode, Life, ParseErrorRecord, Part, RowCounts, Step, TaskView, Trigger,
};
use tidegate_rpc::task_runner::v1 as wire;
use tidegate_rpc::types::v1 as types;
use tidegate_types::TaskId;

use crate::live::Live;

/// The status as of the machine's last event; [`refresh`] adds what the reader did since.
pub(crate) fn of(view: &TaskView<'_>) -> wire::TaskStatus {
    let record = view.record;
    let assignment = &record.assignment;
    let topic = &assignment.stream.topic;
    let (state, phase) = state_and_phase(view);
    let starting = matches!(view.life, Life::Starting { .. });
    // The first bad record is shown even when the spec saves none: somebody must be able to find it (B66).
    let read = &record.read;
    let errors = if read.parse_errors.is_empty() {
        read.first_parse_error.as_slice()
    } else {
        &read.parse_errors
    };
    let published = || record.parts.iter().filter_map(|part| part.published.as_ref());
    let is_checkpointing = record.mode() == GroupMode::Checkpointing;
    let unpublished = record.unpublished().next().map(|part| part.id.0);
    wire::TaskStatus {
        task_id: assignment.task.to_string(),
        group_id: assignment.group.to_string(),
        supervisor_id: assignment.supervisor.to_string(),
        state: state.into(),
        phase: phase.into(),
        next: (!starting).then(|| view.next.into()),
        end: record.end().map(|decision| (&decision.end).into()),
        decision_id: record
            .end()
            .map(|decision| decision.decision_id.clone())
            .unwrap_or_default(),
        counts: Some(counts(&record.counts())),
        reason: view.reason.clone(),
        first_read_millis: record.first_read.map_or(0, |first| first.0),
        parse_errors: errors.iter().map(|error| parse_error(topic, error)).collect(),
        published: published()
            .flat_map(|published| &published.segments)
            .map(Into::into)
            .collect(),
        handed_off: published()
            .map(|published| published.handed_off.len() as u32)
            .sum(),
        assignment_token: assignment.token.to_string(),
        alert: view.alert.clone(),
        base_sequence_name: assignment.base_sequence_name.to_string(),
        start: Some((&assignment.start).into()),
        committed: record.committed.as_ref().map(Into::into),
        generation: assignment.generation.0,
        progress: 0,
        mode: crate::task::mode(record.mode()).into(),
        open_sequence_id: record
            .open_part()
            .map(|part| part.id.0)
            .filter(|_| is_checkpointing),
        wants_checkpoint: view.wish.is_some() && view.life == Life::Paused,
        checkpoint_trigger: view.wish.map(trigger_name).unwrap_or_default().to_owned(),
        unpublished_sequence_id: unpublished.filter(|_| is_checkpointing),
        sequences: if is_checkpointing {
            record.parts.iter().map(|part| sequence(view, part)).collect()
        } else {
            Vec::new()
        },
    }
}

/// Replaces numbers by newer ones of the reader.
pub(crate) fn refresh(status: &mut wire::TaskStatus, topic: &str, live: &Live) {
    status.progress = live.progress();
    let Some(reading) = live.get() else { return };
    let stored = status.counts.map_or(0, |counts| counts.stored);
    status.counts = Some(types::RowCounts {
        stored,
        ..counts(&reading.counts)
    });
    status.next = Some((&reading.next).into());
    status.parse_errors = reading
        .parse_errors
        .iter()
        .map(|error| parse_error(topic, error))
        .collect();
}

/// A folder that cannot be used, as an ended task: it is replaced, without loss (B56).
pub(crate) fn not_restorable(task: &TaskId, why: &str, remains: &serde_json::Value) -> wire::TaskStatus {
    let text = |field: &str| {
        remains
            .get(field)
            .and_then(serde_json::Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    wire::TaskStatus {
        task_id: task.to_string(),
        group_id: text("group"),
        supervisor_id: text("supervisor"),
        assignment_token: text("token"),
        base_sequence_name: text("base_sequence_name"),
        state: wire::TaskState::Failed.into(),
        reason: format!("not restorable: {why}; the task is replaced from the committed offsets"),
        ..Default::default()
    }
}

fn state_and_phase(view: &TaskView<'_>) -> (wire::TaskState, wire::TaskPhase) {
    use wire::{TaskPhase as Phase, TaskState as State};
    match view.life {
        // The end is known: a new spec must not stop it any more (D27).
        Life::Starting { .. } if view.record.is_finishing() => (State::Finishing, Phase::Reading),
        Life::Starting { .. } => (State::Starting, Phase::Unspecified),
        Life::Reading { .. } => (State::Reading, Phase::Reading),
        Life::Paused => (State::Paused, Phase::Reading),
        Life::Finishing => (State::Finishing, phase(view.step)),
        Life::Stopping { .. } | Life::Left => (State::Stopping, Phase::Unspecified),
        Life::Ended(ending) => (
            match ending {
                Ending::Published => State::Published,
                Ending::Superseded => State::Superseded,
                Ending::Stopped => State::Stopped,
                Ending::Replaced => State::Replaced,
                Ending::Failed => State::Failed,
            },
            Phase::Unspecified,
        ),
    }
}

fn phase(step: Step) -> wire::TaskPhase {
    use wire::TaskPhase as Phase;
    match step {
        Step::Reading => Phase::Reading,
        Step::Merging => Phase::Merging,
        Step::Uploading | Step::WaitingToUpload { .. } => Phase::Uploading,
        Step::Ready | Step::Publishing | Step::WaitingToPublish { .. } => Phase::Publishing,
        Step::Handoff => Phase::Handoff,
    }
}

fn sequence(view: &TaskView<'_>, part: &Part) -> wire::SequenceStatus {
    let published = part.published.as_ref();
    wire::SequenceStatus {
        sequence_id: part.id.0,
        start: Some((&part.start).into()),
        end: part.end.as_ref().map(|decision| (&decision.end).into()),
        phase: phase(view.step_of(part.id)).into(),
        published: published.map_or(0, |published| published.segments.len() as u32),
        handed_off: published.map_or(0, |published| published.handed_off.len() as u32),
    }
}

/// The name of a trigger on the wire and in metrics.
pub(crate) fn trigger_name(trigger: Trigger) -> &'static str {
    match trigger {
        Trigger::Rows => "rows",
        Trigger::TotalRows => "total-rows",
        Trigger::Bytes => "bytes",
        Trigger::Period => "period",
        Trigger::Disk => "disk",
    }
}

/// Row counts on the wire.
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

fn parse_error(topic: &str, error: &ParseErrorRecord) -> types::ParseError {
    types::ParseError {
        topic: topic.to_owned(),
        partition: error.partition.0,
        offset: error.offset.0,
        field: error.field.clone(),
        reason: error.reason.clone(),
        sample: error.sample.clone(),
        at_millis: error.at.0,
    }
}

/// The name of an ending in metrics.
pub(crate) fn ending_name(ending: Ending) -> &'static str {
    match ending {
        Ending::Published => "published",
        Ending::Superseded => "superseded",
        Ending::Stopped => "stopped",
        Ending::Replaced => "replaced",
        Ending::Failed => "failed",
    }
}

/// True for a state that nothing follows.
pub(crate) fn is_ended(status: &wire::TaskStatus) -> bool {
    use wire::TaskState as State;
    match status.state() {
        State::Published | State::Superseded | State::Stopped | State::Replaced | State::Failed => true,
        State::Unspecified
        | State::Starting
        | State::Reading
        | State::Paused
        | State::Finishing
        | State::Preparing
        | State::Prepared
        | State::Stopping => false,
    }
}
