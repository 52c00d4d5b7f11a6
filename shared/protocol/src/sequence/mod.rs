//! Sequences: the unit of publishing, their names, and what "a range is read" means.
//!
//! Owns: the base sequence name (part of the protocol, with frozen vectors), the sequences of a legacy group,
//! and the rule by which a partition's next offset moves. Promises: equal input, equal answer, in every release.
//! Must never: look at a clock, at map order or at anything random.

mod name;
mod range;

use serde::{Deserialize, Serialize};
use tidegate_types::{
    BaseSequenceName, EndOffsets, Offset, PartitionId, PartitionOffsets, SequenceId, SequenceName,
    StartOffsets,
};

pub use name::{NAME_FORMAT, NameInput, base_sequence_name};
pub use range::{Progress, Seen, progress};

/// A part of a group's rows, published as one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequence {
    /// From 0; in legacy mode the Kafka partition.
    pub id: SequenceId,
    pub name: SequenceName,
    /// First records, of exactly the partitions of this sequence.
    pub start: StartOffsets,
    /// First records behind it, of the same partitions; [`Offset::OPEN`] while there is no end.
    pub end: EndOffsets,
}

impl Sequence {
    /// True when the record lies in this sequence.
    pub fn contains(&self, partition: PartitionId, offset: Offset) -> bool {
        matches!((self.start.get(partition), self.end.get(partition)),
            (Some(start), Some(end)) if start <= offset && offset < end)
    }
    /// True while any partition has no end.
    pub fn is_open(&self) -> bool {
        self.end.iter().any(|(_, end)| end.is_open())
    }
}

/// The sequence id of a Kafka partition in legacy mode.
pub fn legacy_sequence_id(partition: PartitionId) -> SequenceId {
    SequenceId(partition.0.unsigned_abs())
}

/// The name of a Kafka partition's sequence in legacy mode: base + `_` + partition.
pub fn legacy_sequence_name(base: &BaseSequenceName, partition: PartitionId) -> SequenceName {
    base.sequence(legacy_sequence_id(partition))
}

/// The sequences of a legacy group: one per partition of `start`, open where `end` names no offset.
pub fn legacy_sequences(
    base: &BaseSequenceName,
    start: &StartOffsets,
    end: Option<&EndOffsets>,
) -> Vec<Sequence> {
    let one = |(partition, offset)| {
        let last = end.and_then(|end| end.get(partition)).unwrap_or(Offset::OPEN);
        Sequence {
            id: legacy_sequence_id(partition),
            name: legacy_sequence_name(base, partition),
            start: std::iter::once((partition, offset)).collect(),
            end: std::iter::once((partition, last)).collect(),
        }
    };
    start.iter().map(one).collect()
}

/// Why end offsets cannot be those of a range that was read up to `next`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEnd {
    #[error(
        "the end offsets {end} do not name exactly the partitions of {next}: give every partition of the task"
    )]
    Partitions { end: EndOffsets, next: PartitionOffsets },
    #[error("partition {partition} was read up to {next} already, which is behind the end {end}")]
    BehindNext {
        partition: PartitionId,
        next: Offset,
        end: Offset,
    },
    #[error("partition {partition} has no end in {end}: an open end finishes nothing")]
    Open { partition: PartitionId, end: EndOffsets },
}

/// Checks end offsets against what was read: all partitions (D46), none open (D10), none below next.
pub fn check_end(next: &PartitionOffsets, end: &EndOffsets) -> Result<(), BadEnd> {
    if !next.same_partitions(end) {
        return Err(BadEnd::Partitions {
            end: end.clone(),
            next: next.clone(),
        });
    }
    for (partition, last) in end.iter() {
        if last.is_open() {
            return Err(BadEnd::Open {
                partition,
                end: end.clone(),
            });
        }
        if let Some(next) = next.get(partition).filter(|next| *next > last) {
            return Err(BadEnd::BehindNext {
                partition,
                next,
                end: last,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legacy_group_has_one_sequence_per_partition_named_after_it() {
        let base = BaseSequenceName::new("index_kafka_wiki_abc").unwrap();
        let start = StartOffsets::from([(0, 2), (11, 7)]);
        let sequences = legacy_sequences(&base, &start, Some(&EndOffsets::from([(0, 5)])));
        assert_eq!(sequences.len(), 2);
        assert_eq!(sequences[0].name.as_str(), "index_kafka_wiki_abc_0");
        assert_eq!(sequences[0].end, EndOffsets::from([(0, 5)]));
        assert!(!sequences[0].is_open());
        assert_eq!(sequences[1].name.as_str(), "index_kafka_wiki_abc_11");
        assert_eq!(sequences[1].id, SequenceId(11));
        assert!(sequences[1].is_open());
        assert!(sequences[0].contains(PartitionId(0), Offset(4)));
        assert!(!sequences[0].contains(PartitionId(0), Offset(5)));
        assert!(!sequences[0].contains(PartitionId(11), Offset(7)));
    }

    #[test]
    fn end_offsets_name_every_partition_and_lie_at_or_behind_next() {
        let next = PartitionOffsets::from([(0, 4), (1, 0)]);
        assert_eq!(check_end(&next, &EndOffsets::from([(0, 4), (1, 9)])), Ok(()));
        for (bad, why) in [
            (EndOffsets::from([(0, 4)]), "exactly the partitions"),
            (
                EndOffsets::from([(0, 4), (1, 0), (2, 0)]),
                "exactly the partitions",
            ),
            (EndOffsets::from([(0, 3), (1, 9)]), "read up to 4"),
            (EndOffsets::from([(0, 4), (1, i64::MAX)]), "no end"),
        ] {
            let error = check_end(&next, &bad).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
