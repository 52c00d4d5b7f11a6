//! Is the request well formed? What can be seen without looking at anything stored.

use std::collections::BTreeSet;

use tidegate_types::SequenceId;

use super::{GroupMode, PublishRequest, SegmentFile};
use crate::sequence::{Sequence, legacy_sequence_id};

/// A request that could never be published, whatever is stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Malformed {
    /// Path in the request, e.g. `sequences[1].start`.
    pub field: String,
    pub reason: String,
}

/// All faults of a request at once; empty when it is well formed.
pub fn check(request: &PublishRequest) -> Vec<Malformed> {
    let mut faults = Faults(Vec::new());
    if let GroupMode::Unknown(number) = request.mode {
        faults.add("mode", format!("{number} is not a mode that this version knows"));
    }
    let count = request.sequences.len();
    match request.mode {
        _ if count == 0 => faults.add("sequences", "name at least one"),
        GroupMode::Checkpointing if count > 1 => {
            faults.add("sequences", "a checkpointing group publishes one at a time");
        }
        GroupMode::Legacy | GroupMode::Checkpointing | GroupMode::Unknown(_) => {}
    }
    let mut names = BTreeSet::new();
    let mut partitions = BTreeSet::new();
    for (index, sequence) in request.sequences.iter().enumerate() {
        let path = format!("sequences[{index}]");
        faults.check_sequence(&path, request, sequence);
        if !names.insert(&sequence.name) {
            faults.add(&path, format!("{} stands twice", sequence.name));
        }
        for partition in sequence.start.partitions() {
            if !partitions.insert(partition) {
                faults.add(&path, format!("partition {partition} is in another sequence too"));
            }
        }
    }
    let mut ids = BTreeSet::new();
    let mut keys = BTreeSet::new();
    for (index, segment) in request.segments.iter().enumerate() {
        let path = format!("segments[{index}]");
        faults.check_segment(&path, request, segment);
        if !ids.insert(&segment.id) {
            faults.add(&path, format!("{} stands twice", segment.id));
        }
        if !keys.insert(&segment.key) {
            faults.add(&path, format!("the object {} stands twice", segment.key));
        }
    }
    faults.0
}

struct Faults(Vec<Malformed>);

impl Faults {
    fn add(&mut self, field: &str, reason: impl Into<String>) {
        self.0.push(Malformed {
            field: field.to_owned(),
            reason: reason.into(),
        });
    }

    fn check_sequence(&mut self, path: &str, request: &PublishRequest, sequence: &Sequence) {
        let Sequence { id, name, start, end } = sequence;
        if *name != request.base.sequence(*id) {
            self.add(
                &format!("{path}.sequence_name"),
                format!("is {name}, should be {}", request.base.sequence(*id)),
            );
        }
        if start.is_empty() {
            self.add(&format!("{path}.start"), "names no partition");
        }
        if !start.same_partitions(end) {
            self.add(
                &format!("{path}.end"),
                format!("{end} names other partitions than the start {start}"),
            );
        }
        if request.mode == GroupMode::Legacy {
            let own: Vec<SequenceId> = start.partitions().map(legacy_sequence_id).collect();
            if own != [*id] {
                self.add(
                    &format!("{path}.start"),
                    format!("a legacy sequence {id} has partition {id} and no other"),
                );
            }
        }
        for (partition, first) in start.iter() {
            if first.is_open() || first.0 < 0 {
                // An open end that was taken for a start would skip the whole log (D10).
                self.add(
                    &format!("{path}.start"),
                    format!("partition {partition} starts at {first}, which is no start"),
                );
            }
        }
        for (partition, last) in end.iter() {
            if last.is_open() {
                self.add(
                    &format!("{path}.end"),
                    format!("partition {partition} has no end yet"),
                );
            } else if start.get(partition).is_some_and(|first| last < first) {
                self.add(
                    &format!("{path}.end"),
                    format!("partition {partition} ends before it starts"),
                );
            }
        }
    }

    fn check_segment(&mut self, path: &str, request: &PublishRequest, segment: &SegmentFile) {
        if segment.key.is_empty() {
            self.add(&format!("{path}.key"), "is empty");
        }
        if segment.rows == 0 {
            self.add(&format!("{path}.rows"), "a segment without rows is not published");
        }
        if segment.id.data_source != request.segments[0].id.data_source {
            self.add(
                &format!("{path}.id"),
                "is of another data source than the first segment",
            );
        }
        let Some(sequence) = request
            .sequences
            .iter()
            .find(|sequence| sequence.name == segment.sequence)
        else {
            self.add(
                &format!("{path}.sequence_name"),
                format!("{} is not published here", segment.sequence),
            );
            return;
        };
        if !segment.first_offsets.same_partitions(&segment.end_offsets) || segment.first_offsets.is_empty() {
            self.add(
                &format!("{path}.end_offsets"),
                "names other partitions than first_offsets, or none",
            );
        }
        for (partition, first) in segment.first_offsets.iter() {
            let inside = match (
                sequence.start.get(partition),
                sequence.end.get(partition),
                segment.end_offsets.get(partition),
            ) {
                (Some(start), Some(end), Some(last)) => start <= first && first < last && last <= end,
                _ => false,
            };
            if !inside {
                self.add(
                    &format!("{path}.first_offsets"),
                    format!(
                        "partition {partition}: its rows do not lie in sequence {}",
                        sequence.name
                    ),
                );
            }
        }
    }
}
