//! Is each offset in exactly one published range, and each segment inside the range that it was published with?
//!
//! Owns: the comparison. Promises: looks at what was recorded when it was published, at nothing that was derived from it
//! since; a jump is no fault only where a reset was recorded (it raises the generation). Must never: look at objects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tidegate_types::{
    EndOffsets, Generation, Offset, OffsetRange, PartitionId, PartitionOffsets, SequenceName, StartOffsets,
};

use crate::publish::SegmentFile;

/// A sequence as it was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedRange {
    pub generation: Generation,
    pub sequence: SequenceName,
    pub start: StartOffsets,
    pub end: EndOffsets,
}

/// A publish: what it said, and what is in the catalog of it, used or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishSums {
    pub publish: String,
    pub said_segments: u64,
    pub said_rows: u64,
    pub found_segments: u64,
    /// Before roll-up.
    pub found_rows: u64,
}

/// What is recorded about one topic of one supervisor, as one consistent read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Committed offsets, and the generation in which they were committed or moved.
    pub committed: BTreeMap<PartitionId, (Offset, Generation)>,
    /// Generations that a reset began.
    pub resets: BTreeSet<Generation>,
    pub ranges: Vec<PublishedRange>,
    pub publishes: Vec<PublishSums>,
}

/// What is published of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coverage {
    pub partition: PartitionId,
    /// From the first to the last offset that was published.
    pub range: OffsetRange,
    /// Ranges that are not empty.
    pub ranges: u64,
    pub committed: Option<Offset>,
    /// By resets.
    pub read_again: u64,
    /// By resets.
    pub skipped: u64,
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Never published.
    Gap {
        partition: PartitionId,
        range: OffsetRange,
        generation: Generation,
    },
    /// Published twice.
    Overlap {
        partition: PartitionId,
        range: OffsetRange,
        generation: Generation,
    },
    /// Not the end of what was published.
    Committed {
        partition: PartitionId,
        committed: Offset,
        published: Offset,
    },
    /// Another number of segments, or of rows, than the publish said.
    Publish(PublishSums),
    /// No range was published under its name.
    NoRange { sequence: SequenceName },
    /// It says that it holds rows outside of its range.
    Outside {
        partition: PartitionId,
        rows: OffsetRange,
        range: Option<OffsetRange>,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gap {
                range, generation, ..
            } => {
                write!(f, "offsets {range} were not published (generation {generation})")
            }
            Self::Overlap {
                range, generation, ..
            } => {
                write!(
                    f,
                    "offsets {range} were published twice (generation {generation})"
                )
            }
            Self::Committed {
                committed, published, ..
            } => {
                write!(
                    f,
                    "{committed} is committed, but what was published ends at {published}"
                )
            }
            Self::Publish(sums) => write!(
                f,
                "{} segments with {} rows were published, the catalog has {} with {}",
                sums.said_segments, sums.said_rows, sums.found_segments, sums.found_rows
            ),
            Self::NoRange { sequence } => write!(f, "sequence {sequence} was not published"),
            Self::Outside {
                partition,
                rows,
                range: Some(range),
            } => {
                write!(
                    f,
                    "it has rows {rows} of partition {partition}, its sequence is {range}"
                )
            }
            Self::Outside {
                partition,
                rows,
                range: None,
            } => {
                write!(
                    f,
                    "it has rows {rows} of partition {partition}, which its sequence does not read"
                )
            }
        }
    }
}

/// Do the ranges tile each partition up to the committed offset, and do the publishes add up?
pub fn verify(evidence: &Evidence) -> (Vec<Coverage>, Vec<Finding>) {
    let mut by_partition: BTreeMap<PartitionId, Vec<(Generation, OffsetRange)>> = BTreeMap::new();
    for range in &evidence.ranges {
        for (partition, start) in range.start.iter() {
            let end = range.end.get(partition).unwrap_or(start);
            let found = by_partition.entry(partition).or_default();
            if start < end {
                found.push((range.generation, OffsetRange { start, end }));
            }
        }
    }
    let mut findings = Vec::new();
    let mut coverage = Vec::new();
    let partitions: BTreeSet<PartitionId> = by_partition
        .keys()
        .chain(evidence.committed.keys())
        .copied()
        .collect();
    for partition in partitions {
        let mut ranges = by_partition.remove(&partition).unwrap_or_default();
        ranges.sort_by_key(|(generation, range)| (*generation, range.start, range.end));
        coverage.push(cover(evidence, partition, &ranges, &mut findings));
    }
    let differs =
        |sums: &&PublishSums| (sums.said_segments, sums.said_rows) != (sums.found_segments, sums.found_rows);
    findings.extend(
        evidence
            .publishes
            .iter()
            .filter(differs)
            .cloned()
            .map(Finding::Publish),
    );
    (coverage, findings)
}

fn cover(
    evidence: &Evidence,
    partition: PartitionId,
    ranges: &[(Generation, OffsetRange)],
    findings: &mut Vec<Finding>,
) -> Coverage {
    let committed = evidence.committed.get(&partition).copied();
    let at = committed.map_or(Offset(0), |(offset, _)| offset);
    let start = ranges.iter().map(|(_, range)| range.start).min().unwrap_or(at);
    let end = ranges.iter().map(|(_, range)| range.end).max().unwrap_or(at);
    let mut coverage = Coverage {
        partition,
        range: OffsetRange { start, end },
        ranges: ranges.len() as u64,
        committed: committed.map(|(offset, _)| offset),
        read_again: 0,
        skipped: 0,
    };
    // How far it is published, and in which generation.
    let mut reached: Option<(Generation, Offset)> = None;
    for &(generation, range) in ranges {
        let Some((before, end)) = reached else {
            reached = Some((generation, range.end));
            continue;
        };
        let gap = OffsetRange {
            start: end,
            end: range.start,
        };
        if evidence
            .resets
            .range(before..=generation)
            .any(|reset| *reset > before)
        {
            // What was asked for; all that was published behind it is read again in the end.
            coverage.skipped += gap.width();
            coverage.read_again += OffsetRange {
                start: range.start,
                end,
            }
            .width();
            reached = Some((generation, range.end));
            continue;
        }
        let overlap = OffsetRange {
            start: range.start,
            end: end.min(range.end),
        };
        if !gap.is_empty() {
            findings.push(Finding::Gap {
                partition,
                range: gap,
                generation,
            });
        } else if !overlap.is_empty() {
            findings.push(Finding::Overlap {
                partition,
                range: overlap,
                generation,
            });
        }
        reached = Some((generation, end.max(range.end)));
    }
    if let (Some((committed, in_generation)), Some((generation, published))) = (committed, reached)
        && committed != published
        && in_generation <= generation
    {
        findings.push(Finding::Committed {
            partition,
            committed,
            published,
        });
    }
    coverage
}

/// Is what a segment says about itself inside of what was published?
pub fn verify_segment(range: Option<&PublishedRange>, file: &SegmentFile) -> Vec<Finding> {
    let Some(range) = range else {
        return vec![Finding::NoRange {
            sequence: file.sequence.clone(),
        }];
    };
    let outside = |(partition, start): (PartitionId, Offset)| {
        let rows = OffsetRange {
            start,
            end: file.end_offsets.get(partition).unwrap_or(start),
        };
        let bounds = bounds(&range.start, &range.end, partition);
        let is_inside = bounds.is_some_and(|bounds| bounds.start <= rows.start && rows.end <= bounds.end);
        (!is_inside || rows.is_empty()).then_some(Finding::Outside {
            partition,
            rows,
            range: bounds,
        })
    };
    file.first_offsets.iter().filter_map(outside).collect()
}

fn bounds(start: &PartitionOffsets, end: &PartitionOffsets, partition: PartitionId) -> Option<OffsetRange> {
    Some(OffsetRange {
        start: start.get(partition)?,
        end: end.get(partition)?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(generation: u64, start: i64, end: i64) -> PublishedRange {
        PublishedRange {
            generation: Generation(generation),
            sequence: SequenceName::new(format!("s_{generation}_{start}")).unwrap(),
            start: PartitionOffsets::from([(0, start)]),
            end: PartitionOffsets::from([(0, end)]),
        }
    }
    fn evidence(ranges: &[(u64, i64, i64)], committed: i64, generation: u64, resets: &[u64]) -> Evidence {
        Evidence {
            committed: [(PartitionId(0), (Offset(committed), Generation(generation)))].into(),
            resets: resets.iter().map(|reset| Generation(*reset)).collect(),
            ranges: ranges
                .iter()
                .map(|(g, start, end)| range(*g, *start, *end))
                .collect(),
            publishes: Vec::new(),
        }
    }
    fn found(ranges: &[(u64, i64, i64)], committed: i64, generation: u64, resets: &[u64]) -> Vec<String> {
        let (_, findings) = verify(&evidence(ranges, committed, generation, resets));
        findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ranges_that_tile_the_log_up_to_the_committed_offset_are_proven() {
        let (coverage, findings) = verify(&evidence(&[(1, 10, 20), (1, 3, 10), (1, 20, 20)], 20, 1, &[]));
        assert_eq!(findings, []);
        assert_eq!(
            coverage[0].range,
            OffsetRange {
                start: Offset(3),
                end: Offset(20)
            }
        );
        assert_eq!(coverage[0].ranges, 2, "an empty one covers nothing");
    }

    #[test]
    fn a_gap_an_overlap_and_a_committed_offset_elsewhere_are_found() {
        assert_eq!(
            found(&[(1, 0, 5), (1, 6, 9)], 9, 1, &[]),
            ["offsets [5, 6) were not published (generation 1)"]
        );
        assert_eq!(
            found(&[(1, 0, 5), (1, 4, 9)], 9, 1, &[]),
            ["offsets [4, 5) were published twice (generation 1)"]
        );
        assert_eq!(
            found(&[(1, 0, 9), (1, 2, 4), (1, 9, 12)], 12, 1, &[]).len(),
            1,
            "one inside the other"
        );
        assert_eq!(
            found(&[(1, 0, 5)], 7, 1, &[]),
            ["7 is committed, but what was published ends at 5"]
        );
    }

    #[test]
    fn what_a_reset_moved_is_counted_and_no_fault_and_without_one_it_is() {
        let again = [(1, 0, 5), (2, 2, 9)];
        let (coverage, findings) = verify(&evidence(&again, 9, 2, &[2]));
        assert_eq!((findings.len(), coverage[0].read_again), (0, 3));
        assert_eq!(found(&again, 9, 2, &[]).len(), 1);
        let (coverage, findings) = verify(&evidence(&[(1, 0, 5), (3, 7, 9)], 9, 3, &[3]));
        assert_eq!((findings.len(), coverage[0].skipped), (0, 2));
        // Moved, and nothing was published since.
        assert_eq!(found(&[(1, 0, 5)], 0, 2, &[2]), Vec::<String>::new());
    }

    #[test]
    fn a_publish_that_does_not_add_up_and_a_segment_outside_its_range_are_found() {
        let sums = PublishSums {
            publish: "p".into(),
            said_segments: 2,
            said_rows: 10,
            found_segments: 1,
            found_rows: 6,
        };
        let evidence = Evidence {
            publishes: vec![sums.clone()],
            ..Evidence::default()
        };
        assert_eq!(verify(&evidence).1, [Finding::Publish(sums)]);
    }

    proptest! {
        /// Whatever is taken out of a tiled log, or put in twice, is found.
        #[test]
        fn whatever_is_lost_or_doubled_is_found(
            widths in prop::collection::vec(1_i64..50, 3..20), which in any::<prop::sample::Index>(), twice: bool,
        ) {
            let mut at = 0;
            let mut ranges: Vec<(u64, i64, i64)> = Vec::new();
            for width in widths {
                ranges.push((1, at, at + width));
                at += width;
            }
            prop_assert_eq!(found(&ranges, at, 1, &[]).len(), 0);
            let chosen = which.index(ranges.len());
            // The first one that is gone is no gap: nothing says where the log began.
            prop_assume!(twice || chosen > 0);
            if twice {
                ranges.push(ranges[chosen]);
            } else {
                ranges.remove(chosen);
            }
            prop_assert_eq!(found(&ranges, at, 1, &[]).len(), 1);
        }
    }
}
