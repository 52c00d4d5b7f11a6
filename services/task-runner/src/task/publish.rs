//! The publish call.

use std::time::Instant;

use tidegate_protocol::task::{
    GroupMode, MergedSegment, Outcome, Part, PublishAnswer, TaskEvent, TaskRecord,
};
use tidegate_rpc::convert;
use tidegate_rpc::publisher::v1 as wire;
use tidegate_rpc::types::v1 as types;
use tidegate_telemetry::families;
use tidegate_types::{Epoch, SegmentId, SequenceId};

use super::Shared;
use crate::{assignment, status};

/// All sequences of the part in one request.
pub(crate) fn request(record: &TaskRecord, part: &Part, epoch: Epoch) -> wire::PublishRequest {
    let given = &record.assignment;
    let sequences = record
        .sequences_of(part)
        .into_iter()
        .map(|sequence| types::Sequence {
            sequence_id: sequence.id.0,
            sequence_name: sequence.name.to_string(),
            start: Some((&sequence.start).into()),
            end: Some((&sequence.end).into()),
        });
    let merged = part.merged.iter().flatten();
    let segments = merged.filter_map(|merged| segment(record, part, merged));
    wire::PublishRequest {
        supervisor_id: given.supervisor.to_string(),
        group_id: given.group.to_string(),
        base_sequence_name: given.base_sequence_name.to_string(),
        generation: given.generation.0,
        task_id: given.task.to_string(),
        assignment_token: given.token.to_string(),
        coordinator_epoch: epoch.0,
        stream: Some(assignment::stream(&given.stream)),
        sequences: sequences.collect(),
        segments: segments.collect(),
        counts: Some(status::counts(&record.counts_of(part))),
        request_key: uuid::Uuid::new_v4().to_string(),
        mode: mode(record.mode()).into(),
        decode_version: given.decode_version.0,
    }
}

/// The mode on the wire.
pub(crate) fn mode(mode: GroupMode) -> types::GroupMode {
    match mode {
        GroupMode::Legacy => types::GroupMode::Legacy,
        GroupMode::Checkpointing => types::GroupMode::Checkpointing,
    }
}

fn segment(record: &TaskRecord, part: &Part, merged: &MergedSegment) -> Option<types::Segment> {
    let staged = part.staged_object(&merged.segment)?;
    let (first_offsets, end_offsets) = merged.extent.offsets(merged.sequence);
    Some(types::Segment {
        id: Some((&merged.segment).into()),
        sequence_name: record.sequence_name(merged.sequence).to_string(),
        key: staged.key.clone(),
        size_bytes: staged.bytes,
        sha256: staged.sha256.clone(),
        rows: merged.rows,
        input_rows: merged.input_rows,
        first_offsets: Some((&first_offsets).into()),
        end_offsets: Some((&end_offsets).into()),
        writer_version: merged.writer_version.clone(),
    })
}

/// Sends it; an error of the call is an unknown outcome, which is asked again.
pub(crate) async fn send(shared: Shared, part: SequenceId, request: wire::PublishRequest) -> TaskEvent {
    let supervisor = request.supervisor_id.clone();
    let began = Instant::now();
    let mut client = shared.publisher.clone();
    let answer = match client.publish(request).await {
        Ok(response) => from_wire(response.into_inner()),
        Err(status) => PublishAnswer {
            outcome: Outcome::Retryable,
            detail: format!(
                "the publisher's answer is not known ({}: {})",
                status.code(),
                status.message()
            ),
            committed: None,
            segments: Vec::new(),
            retry_after_millis: tidegate_rpc::status::retry_after(&status)
                .map_or(0, |wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
        },
    };
    let name = outcome_name(answer.outcome);
    shared.metrics.count(&families::PUBLISHES, [&supervisor, name], 1);
    shared
        .metrics
        .time(&families::PUBLISH_TIME, [name], began.elapsed());
    tracing::info!(sequence = %part, outcome = name, detail = %answer.detail, "publish");
    TaskEvent::PublishAnswered { part, answer }
}

fn from_wire(response: wire::PublishResponse) -> PublishAnswer {
    use wire::PublishOutcome as Said;
    let outcome = match response.outcome() {
        Said::Published => Outcome::Published,
        Said::AlreadyPublished => Outcome::AlreadyPublished,
        Said::NotYet => Outcome::NotYet,
        Said::PredecessorLost => Outcome::PredecessorLost,
        Said::Mismatch => Outcome::Mismatch,
        Said::Fenced => Outcome::Fenced,
        Said::BadObject => Outcome::BadObject,
        // An outcome that this version does not know: ask again (B62).
        Said::Retryable | Said::Unspecified => Outcome::Retryable,
    };
    PublishAnswer {
        outcome,
        committed: convert::optional_offsets("committed", response.committed.as_ref()).unwrap_or_default(),
        segments: response
            .segments
            .iter()
            .filter_map(|id| SegmentId::try_from(id).ok())
            .collect(),
        detail: response.detail,
        retry_after_millis: response.retry_after_millis,
    }
}

fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Published => "published",
        Outcome::AlreadyPublished => "already_published",
        Outcome::NotYet => "not_yet",
        Outcome::PredecessorLost => "predecessor_lost",
        Outcome::Mismatch => "mismatch",
        Outcome::Retryable => "retryable",
        Outcome::Fenced => "fenced",
        Outcome::BadObject => "bad_object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b62_an_outcome_that_is_not_known_is_asked_again() {
        for outcome in [0, 99, -1] {
            let response = wire::PublishResponse {
                outcome,
                ..Default::default()
            };
            assert_eq!(from_wire(response).outcome, Outcome::Retryable);
        }
    }
}
