//! Between messages and the store's calls. Every fault names its field.

use tidegate_metadata::{
    Allocate, CatalogSegment, CommittedOffsets, Document, InitializeOffsets, Ordinal, Publish, RegisterGroup,
    ResetOffsets, SegmentFilter,
};
use tidegate_protocol::allocate::{AllocationRequest, Lineage};
use tidegate_protocol::publish::{GroupMode, PublishRequest, SegmentFile, StreamId};
use tidegate_protocol::sequence::Sequence;
use tidegate_rpc::convert::{BadField, id, offsets, optional_offsets, required};
use tidegate_rpc::publisher::v1 as wire;
use tidegate_rpc::types::v1 as types;
use tidegate_types::{
    AssignmentToken, DecodeVersion, Epoch, Generation, Interval, PartitionId, PartitionOffsets, SegmentId,
    SequenceId, TimestampMillis,
};

/// Most segments per page.
pub(crate) const LARGEST_PAGE: u32 = 1000;

/// Format of the document with row counts.
const COUNTS_FORMAT: u32 = 1;

fn stream(message: Option<types::Stream>) -> Result<StreamId, BadField> {
    let message = required("stream", message)?;
    if message.topic.is_empty() {
        return Err(BadField::new("stream.topic", "is empty"));
    }
    Ok(StreamId {
        cluster: message.cluster(),
        incarnation: message.incarnation(),
        topic: message.topic,
    })
}

fn topic(text: String) -> Result<String, BadField> {
    if text.is_empty() {
        Err(BadField::new("topic", "is empty"))
    } else {
        Ok(text)
    }
}

/// Not set or not known: refused, never treated as legacy.
fn mode(number: i32) -> Result<GroupMode, BadField> {
    match GroupMode::from_number(number) {
        GroupMode::Unknown(0) => Err(BadField::new("mode", "is not set")),
        GroupMode::Unknown(_) => Err(BadField::new(
            "mode",
            format!("{number} is not a mode that this version knows; upgrade it"),
        )),
        known @ (GroupMode::Legacy | GroupMode::Checkpointing) => Ok(known),
    }
}

pub(crate) fn initialize(
    message: wire::InitializeOffsetsRequest,
    at: TimestampMillis,
) -> Result<InitializeOffsets, BadField> {
    Ok(InitializeOffsets {
        supervisor: id("supervisor_id", &message.supervisor_id)?,
        start: offsets("start", message.start.as_ref())?,
        stream: stream(message.stream)?,
        epoch: Epoch(message.coordinator_epoch),
        at,
    })
}

pub(crate) fn reset(
    message: wire::ResetOffsetsRequest,
    at: TimestampMillis,
) -> Result<ResetOffsets, BadField> {
    if message.request_key.is_empty() {
        return Err(BadField::new(
            "request_key",
            "is empty: a reset must be repeatable",
        ));
    }
    let partitions: Vec<PartitionId> = message.partitions.into_iter().map(PartitionId).collect();
    let new_offsets = optional_offsets("new_offsets", message.new_offsets.as_ref())?.unwrap_or_default();
    if let Some(stray) = new_offsets
        .partitions()
        .find(|one| !partitions.is_empty() && !partitions.contains(one))
    {
        return Err(BadField::new(
            "new_offsets",
            format!("partition {stray} is not one of those to reset"),
        ));
    }
    let given = message.stream.map(|given| stream(Some(given))).transpose()?;
    let topic = topic(message.topic)?;
    if given.as_ref().is_some_and(|given| given.topic != topic) {
        return Err(BadField::new(
            "stream.topic",
            "is another topic than the one to reset",
        ));
    }
    Ok(ResetOffsets {
        supervisor: id("supervisor_id", &message.supervisor_id)?,
        topic,
        partitions,
        new_offsets,
        expected: optional_offsets("expected", message.expected.as_ref())?,
        who: message.who,
        why: message.why,
        request_key: message.request_key,
        epoch: Epoch(message.coordinator_epoch),
        stream: given,
        at,
    })
}

pub(crate) fn register(
    message: wire::RegisterGroupRequest,
    at: TimestampMillis,
) -> Result<RegisterGroup, BadField> {
    let tokens = message
        .assignment_tokens
        .iter()
        .map(|token| id("assignment_tokens", token));
    Ok(RegisterGroup {
        supervisor: id("supervisor_id", &message.supervisor_id)?,
        group: id("group_id", &message.group_id)?,
        base: id("base_sequence_name", &message.base_sequence_name)?,
        generation: Generation(message.generation),
        start: offsets("start", message.start.as_ref())?,
        tokens: tokens.collect::<Result<Vec<AssignmentToken>, _>>()?,
        epoch: Epoch(message.coordinator_epoch),
        revision: message.revision,
        mode: mode(message.mode)?,
        topic: topic(message.topic)?,
        at,
    })
}

fn interval(field: &'static str, message: Option<types::Interval>) -> Result<Interval, BadField> {
    Interval::try_from(&required(field, message)?).map_err(|bad| BadField::new(field, bad.reason))
}

pub(crate) fn allocate(
    message: wire::AllocateSegmentRequest,
    at: TimestampMillis,
) -> Result<Allocate, BadField> {
    let finer = message
        .finer
        .into_iter()
        .map(|finer| interval("finer", Some(finer)));
    let previous = (!message.previous_segment_id.is_empty()).then_some(message.previous_segment_id);
    Ok(Allocate {
        supervisor: id("supervisor_id", &message.supervisor_id)?,
        group: id("group_id", &message.group_id)?,
        generation: Generation(message.generation),
        token: id("assignment_token", &message.assignment_token)?,
        request: AllocationRequest {
            data_source: id("data_source", &message.data_source)?,
            sequence: id("sequence_name", &message.sequence_name)?,
            lineage: if message.by_interval {
                Lineage::ByInterval
            } else {
                Lineage::After(previous)
            },
            row: TimestampMillis(message.row_millis),
            row_bucket: interval("row_bucket", message.row_bucket)?,
            preferred: interval("preferred", message.preferred)?,
            finer: finer.collect::<Result<_, _>>()?,
        },
        at,
    })
}

pub(crate) fn publish(message: wire::PublishRequest, at: TimestampMillis) -> Result<Publish, BadField> {
    let sequences = message.sequences.iter().map(sequence).collect::<Result<_, _>>()?;
    let segments = message
        .segments
        .into_iter()
        .map(segment_file)
        .collect::<Result<_, _>>()?;
    Ok(Publish {
        request: PublishRequest {
            supervisor: id("supervisor_id", &message.supervisor_id)?,
            group: id("group_id", &message.group_id)?,
            base: id("base_sequence_name", &message.base_sequence_name)?,
            generation: Generation(message.generation),
            token: id("assignment_token", &message.assignment_token)?,
            // An unknown mode is told as a fault of the request, with all its other faults.
            mode: GroupMode::from_number(message.mode),
            stream: stream(message.stream)?,
            sequences,
            segments,
        },
        task: id("task_id", &message.task_id)?,
        epoch: Epoch(message.coordinator_epoch),
        counts: counts(&message.counts.unwrap_or_default())?,
        request_key: message.request_key,
        decode_version: DecodeVersion(message.decode_version),
        at,
    })
}

fn sequence(message: &types::Sequence) -> Result<Sequence, BadField> {
    Ok(Sequence {
        id: SequenceId(message.sequence_id),
        name: id("sequences.sequence_name", &message.sequence_name)?,
        start: offsets("sequences.start", message.start.as_ref())?,
        end: offsets("sequences.end", message.end.as_ref())?,
    })
}

fn segment_file(message: types::Segment) -> Result<SegmentFile, BadField> {
    let key = tidegate_objects::Key::parse(&message.key);
    let key = key.map_err(|error| BadField::new("segments.key", error.to_string()))?;
    if !tidegate_objects::is_staged(&key) {
        // The final key is the publisher's to give, and a staged one is deleted after the promotion.
        return Err(BadField::new(
            "segments.key",
            format!("{key} is not a staged object"),
        ));
    }
    Ok(SegmentFile {
        id: SegmentId::try_from(&required("segments.id", message.id)?)?,
        sequence: id("segments.sequence_name", &message.sequence_name)?,
        key: message.key,
        size_bytes: message.size_bytes,
        sha256: message.sha256,
        rows: message.rows,
        input_rows: message.input_rows,
        first_offsets: offsets("segments.first_offsets", message.first_offsets.as_ref())?,
        end_offsets: offsets("segments.end_offsets", message.end_offsets.as_ref())?,
        writer_version: message.writer_version,
    })
}

fn counts(counts: &types::RowCounts) -> Result<Document, BadField> {
    let body = serde_json::json!({
        "accepted": counts.accepted,
        "stored": counts.stored,
        "rejected": counts.rejected,
        "unparseable": counts.unparseable,
        "filtered": counts.filtered,
        "tombstones": counts.tombstones,
        "empty": counts.empty,
        "oversized": counts.oversized,
        "bytes": counts.bytes,
    });
    Document::of(COUNTS_FORMAT, COUNTS_FORMAT, &body)
        .map_err(|error| BadField::new("counts", error.to_string()))
}

pub(crate) fn committed(held: &CommittedOffsets) -> wire::CommittedOffsets {
    wire::CommittedOffsets {
        supervisor_id: held.supervisor.to_string(),
        stream: Some(types::Stream {
            topic: held.stream.topic.clone(),
            cluster_id: held.stream.cluster.0.clone(),
            topic_id: held.stream.incarnation.0.clone(),
        }),
        offsets: Some((&held.offsets).into()),
        generation: held.generation.0,
    }
}

/// Filter, where the page begins, and how many rows it has.
pub(crate) fn listing(
    message: &wire::ListSegmentsRequest,
) -> Result<(SegmentFilter, Ordinal, u32), BadField> {
    let present = |text: &str| !text.is_empty();
    let filter = SegmentFilter {
        data_source: present(&message.data_source)
            .then(|| id("data_source", &message.data_source))
            .transpose()?,
        supervisor: present(&message.supervisor_id)
            .then(|| id("supervisor_id", &message.supervisor_id))
            .transpose()?,
    };
    // A token is the ordinal behind which the page begins: one who has kept an ordinal can go on from it.
    let after = match message.page_token.as_str() {
        "" => Ordinal(0),
        token => Ordinal(
            token
                .parse()
                .map_err(|_| BadField::new("page_token", "is not one that was given"))?,
        ),
    };
    let size = if message.page_size == 0 {
        LARGEST_PAGE
    } else {
        message.page_size.min(LARGEST_PAGE)
    };
    Ok((filter, after, size))
}

pub(crate) fn published(segment: &CatalogSegment) -> wire::PublishedSegment {
    let file = &segment.file;
    wire::PublishedSegment {
        segment: Some(types::Segment {
            id: Some((&file.id).into()),
            sequence_name: file.sequence.to_string(),
            key: file.key.clone(),
            size_bytes: file.size_bytes,
            sha256: file.sha256.clone(),
            rows: file.rows,
            input_rows: file.input_rows,
            first_offsets: Some((&file.first_offsets).into()),
            end_offsets: Some((&file.end_offsets).into()),
            writer_version: file.writer_version.clone(),
        }),
        supervisor_id: segment.supervisor.to_string(),
        published_at_millis: segment.published_at.0,
        used: segment.used,
        promoted: segment.promoted,
        ordinal: segment.ordinal.0,
    }
}

/// The message of an outcome.
pub(crate) fn outcome(
    outcome: wire::PublishOutcome,
    detail: String,
    committed: Option<&PartitionOffsets>,
) -> wire::PublishResponse {
    wire::PublishResponse {
        outcome: outcome.into(),
        detail,
        committed: committed.map(Into::into),
        segments: Vec::new(),
        retry_after_millis: 0,
    }
}
