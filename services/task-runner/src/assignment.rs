//! A task's assignment, between the wire and the machine.

use tidegate_protocol::task::{Assignment, EndDecision, GroupMode, LogEntry, Stream, Unknown};
use tidegate_rpc::convert::{self, BadField};
use tidegate_rpc::task_runner::v1 as wire;
use tidegate_rpc::types::v1 as types;
use tidegate_types::{DecodeVersion, EndOffsets, Generation, SequenceId, StartOffsets, TimestampMillis};

/// The rules for turning bytes into rows that this version has.
pub(crate) const DECODE_VERSION: DecodeVersion = DecodeVersion(tidegate_decode::DECODE_VERSION);

/// Checks an assignment. An unknown mode or decode version is refused: the task goes to another runner.
pub(crate) fn from_wire(task: &wire::TaskAssignment) -> Result<Assignment, BadField> {
    let mode = match types::GroupMode::try_from(task.mode) {
        Ok(types::GroupMode::Legacy) => GroupMode::Legacy,
        Ok(types::GroupMode::Checkpointing) => GroupMode::Checkpointing,
        Ok(types::GroupMode::Unspecified) | Err(_) => {
            return Err(BadField::new(
                "task.mode",
                format!(
                    "mode {} is not one of this version's (1 = legacy, 2 = checkpointing)",
                    task.mode
                ),
            ));
        }
    };
    if task.decode_version != DECODE_VERSION.0 {
        return Err(BadField::new(
            "task.decode_version",
            format!(
                "version {} is not this runner's ({DECODE_VERSION})",
                task.decode_version
            ),
        ));
    }
    let stream = convert::required("task.stream", task.stream.as_ref())?;
    let start = convert::offsets("task.start", task.start.as_ref())?;
    if start.is_empty() {
        return Err(BadField::new("task.start", "it names no partition"));
    }
    if let Some((partition, _)) = start.iter().find(|(_, offset)| offset.is_open()) {
        return Err(BadField::new(
            "task.start",
            format!("partition {partition} has no start (D10)"),
        ));
    }
    let end = convert::optional_offsets("task.end", task.end.as_ref())?;
    if let Some(end) = &end {
        tidegate_protocol::sequence::check_end(&start, end)
            .map_err(|error| BadField::new("task.end", error.to_string()))?;
    }
    let first_sequence = SequenceId(task.first_sequence_id);
    let log = log_from_wire(&task.log, first_sequence, &start)?;
    Ok(Assignment {
        task: convert::id("task.task_id", &task.task_id)?,
        token: convert::id("task.assignment_token", &task.assignment_token)?,
        supervisor: convert::id("task.supervisor_id", &task.supervisor_id)?,
        group: convert::id("task.group_id", &task.group_id)?,
        generation: Generation(task.generation),
        base_sequence_name: convert::id("task.base_sequence_name", &task.base_sequence_name)?,
        mode,
        stream: Stream {
            topic: stream.topic.clone(),
            cluster_id: stream.cluster(),
            topic_id: stream.incarnation(),
        },
        start,
        end: end.map(|end| EndDecision {
            decision_id: task.decision_id.clone(),
            end,
        }),
        first_sequence,
        log,
        spec_json: task.spec_json.clone(),
        spec_version: task.spec_version,
        minimum_message_time: task.minimum_message_millis.map(TimestampMillis),
        maximum_message_time: task.maximum_message_millis.map(TimestampMillis),
        decode_version: DecodeVersion(task.decode_version),
        trace_parent: task.trace_parent.clone(),
        unknown: Unknown::new(),
    })
}

/// Entries that follow one another without a gap, from the first sequence of the task on.
fn log_from_wire(
    entries: &[wire::LogEntry],
    first: SequenceId,
    start: &StartOffsets,
) -> Result<Vec<LogEntry>, BadField> {
    let bad = |why: String| BadField::new("task.log", why);
    let mut log = Vec::with_capacity(entries.len());
    let (mut expected, mut begins): (SequenceId, EndOffsets) = (first, start.clone());
    for (at, entry) in entries.iter().enumerate() {
        let end = convert::offsets("task.log.end", entry.end.as_ref())?;
        if entry.sequence_id != expected.0 {
            return Err(bad(format!(
                "entry {at} is of sequence {}, sequence {expected} is next",
                entry.sequence_id
            )));
        }
        tidegate_protocol::sequence::check_end(&begins, &end)
            .map_err(|error| bad(format!("entry {at}: {error}")))?;
        if entry.finish && at + 1 < entries.len() {
            return Err(bad(format!("entry {at} finishes the group, and others follow")));
        }
        begins.clone_from(&end);
        log.push(LogEntry {
            sequence: expected,
            decision: EndDecision {
                decision_id: entry.decision_id.clone(),
                end,
            },
            finish: entry.finish,
        });
        expected = expected.next();
    }
    Ok(log)
}

/// The stream as it is said to others.
pub(crate) fn stream(stream: &Stream) -> types::Stream {
    types::Stream {
        topic: stream.topic.clone(),
        cluster_id: stream.cluster_id.0.clone(),
        topic_id: stream.topic_id.0.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tidegate_types::{DataSource, Interval, SegmentId, SegmentVersion};

    pub(crate) fn wire_assignment() -> wire::TaskAssignment {
        let offsets = |offset| types::PartitionOffsets {
            offsets: vec![types::PartitionOffset { partition: 0, offset }],
        };
        wire::TaskAssignment {
            task_id: "t".into(),
            assignment_token: "token".into(),
            supervisor_id: "wiki".into(),
            group_id: "g".into(),
            base_sequence_name: "base".into(),
            mode: types::GroupMode::Legacy.into(),
            stream: Some(types::Stream {
                topic: "topic".into(),
                ..Default::default()
            }),
            start: Some(offsets(2)),
            spec_json: "{}".into(),
            decode_version: 1,
            ..Default::default()
        }
    }

    pub(crate) fn assignment() -> Assignment {
        from_wire(&wire_assignment()).unwrap()
    }

    pub(crate) fn segment(partition_num: u32) -> SegmentId {
        SegmentId {
            data_source: DataSource::new("wiki").unwrap(),
            interval: Interval::new(TimestampMillis(0), TimestampMillis(86_400_000)).unwrap(),
            version: SegmentVersion::new("2026-01-01T00:00:00.000Z").unwrap(),
            partition_num,
        }
    }

    #[test]
    fn b62_an_unknown_mode_is_refused_and_never_treated_as_legacy() {
        for mode in [0, 3, 99] {
            let task = wire::TaskAssignment {
                mode,
                ..wire_assignment()
            };
            assert_eq!(from_wire(&task).unwrap_err().field, "task.mode");
        }
    }

    #[test]
    fn an_assignment_without_what_it_must_have_is_refused_by_name() {
        let open = types::PartitionOffsets {
            offsets: vec![types::PartitionOffset {
                partition: 0,
                offset: i64::MAX,
            }],
        };
        let good = wire_assignment;
        for (task, field) in [
            (
                wire::TaskAssignment {
                    task_id: "a/b".into(),
                    ..good()
                },
                "task.task_id",
            ),
            (
                wire::TaskAssignment {
                    start: None,
                    ..good()
                },
                "task.start",
            ),
            (
                wire::TaskAssignment {
                    start: Some(Default::default()),
                    ..good()
                },
                "task.start",
            ),
            (
                wire::TaskAssignment {
                    start: Some(open),
                    ..good()
                },
                "task.start",
            ),
            (
                wire::TaskAssignment {
                    end: Some(Default::default()),
                    ..good()
                },
                "task.end",
            ),
            (
                wire::TaskAssignment {
                    stream: None,
                    ..good()
                },
                "task.stream",
            ),
            (
                wire::TaskAssignment {
                    decode_version: 7,
                    ..good()
                },
                "task.decode_version",
            ),
        ] {
            assert_eq!(from_wire(&task).unwrap_err().field, field);
        }
    }
}
