//! Kafka offsets: start inclusive, end exclusive, everywhere.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// A Kafka partition number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionId(pub i32);

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A position in a partition: the next record to read, or the first record *not* to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub i64);

impl Offset {
    /// "No end yet". Never valid as a start (D10).
    pub const OPEN: Offset = Offset(i64::MAX);

    /// The offset behind this record.
    #[must_use]
    pub fn next(self) -> Offset {
        Offset(self.0.saturating_add(1))
    }
    pub fn is_open(self) -> bool {
        self == Self::OPEN
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_open() {
            f.write_str("open")
        } else {
            self.0.fmt(f)
        }
    }
}

/// Half-open range of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OffsetRange {
    /// First record of the range.
    pub start: Offset,
    /// First record behind the range; [`Offset::OPEN`] while it has no end.
    pub end: Offset,
}

impl OffsetRange {
    pub fn contains(self, offset: Offset) -> bool {
        self.start <= offset && offset < self.end
    }
    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }
    /// Number of offsets in the range (not of records: logs have gaps); 0 when empty.
    pub fn width(self) -> u64 {
        u64::try_from(self.end.0.saturating_sub(self.start.0)).unwrap_or(0)
    }
}

impl fmt::Display for OffsetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.start, self.end)
    }
}

/// One offset per partition of a topic. What it means is said by the field or the alias that holds it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartitionOffsets(pub BTreeMap<PartitionId, Offset>);

/// First record of each partition (inclusive).
pub type StartOffsets = PartitionOffsets;
/// First record behind the range of each partition (exclusive).
pub type EndOffsets = PartitionOffsets;

impl PartitionOffsets {
    pub fn new() -> Self {
        Self::default()
    }
    pub fn get(&self, partition: PartitionId) -> Option<Offset> {
        self.0.get(&partition).copied()
    }
    pub fn insert(&mut self, partition: PartitionId, offset: Offset) {
        self.0.insert(partition, offset);
    }
    pub fn iter(&self) -> impl Iterator<Item = (PartitionId, Offset)> + '_ {
        self.0.iter().map(|(partition, offset)| (*partition, *offset))
    }
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.0.keys().copied()
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    pub fn same_partitions(&self, other: &Self) -> bool {
        self.0.len() == other.0.len() && self.0.keys().eq(other.0.keys())
    }
    /// Equal on the partitions that both have.
    pub fn matches(&self, other: &Self) -> bool {
        self.iter()
            .all(|(partition, offset)| other.get(partition).is_none_or(|theirs| theirs == offset))
    }
    /// Union; `right` wins per partition.
    #[must_use]
    pub fn plus(&self, right: &Self) -> Self {
        let mut sum = self.clone();
        sum.0.extend(right.iter());
        sum
    }
    /// These partitions without those of `right`.
    #[must_use]
    pub fn minus(&self, right: &Self) -> Self {
        Self(
            self.iter()
                .filter(|(partition, _)| right.get(*partition).is_none())
                .collect(),
        )
    }
    /// Per partition the larger offset; partitions of either side are kept.
    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        let mut highest = self.clone();
        for (partition, offset) in other.iter() {
            let slot = highest.0.entry(partition).or_insert(offset);
            *slot = (*slot).max(offset);
        }
        highest
    }
    /// True when every partition of `end` is reached (`next >= end`, D48); an open end is never reached.
    pub fn reaches(&self, end: &Self) -> bool {
        end.iter()
            .all(|(partition, end)| !end.is_open() && self.get(partition).is_some_and(|next| next >= end))
    }
}

impl FromIterator<(PartitionId, Offset)> for PartitionOffsets {
    fn from_iter<I: IntoIterator<Item = (PartitionId, Offset)>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl<const N: usize> From<[(i32, i64); N]> for PartitionOffsets {
    fn from(pairs: [(i32, i64); N]) -> Self {
        pairs
            .into_iter()
            .map(|(partition, offset)| (PartitionId(partition), Offset(offset)))
            .collect()
    }
}

impl fmt::Display for PartitionOffsets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (index, (partition, offset)) in self.iter().enumerate() {
            write!(f, "{}{partition}: {offset}", if index == 0 { "" } else { ", " })?;
        }
        f.write_str("}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the original's offset arithmetic.
    #[test]
    fn offsets_arithmetic() {
        let m0 = PartitionOffsets::new();
        let m1 = PartitionOffsets::from([(0, 2), (1, 3)]);
        let m2 = PartitionOffsets::from([(0, 2), (1, 4), (2, 5)]);
        let m3 = PartitionOffsets::from([(0, 2), (2, 5)]);
        for (left, right, same) in [
            (&m0, &m1, true),
            (&m0, &m2, true),
            (&m1, &m2, false),
            (&m2, &m1, false),
            (&m1, &m3, true),
            (&m2, &m3, true),
            (&m3, &m2, true),
            (&m1, &m1, true),
        ] {
            assert_eq!(left.matches(right), same, "{left} {right}");
        }
        assert_eq!(m1.plus(&m3), PartitionOffsets::from([(0, 2), (1, 3), (2, 5)]));
        assert_eq!(m2.plus(&m1), PartitionOffsets::from([(0, 2), (1, 3), (2, 5)]));
        assert_eq!(m1.minus(&m3), PartitionOffsets::from([(1, 3)]));
        assert_eq!(m2.minus(&m1), PartitionOffsets::from([(2, 5)]));
        assert_eq!(m2.minus(&m2), m0);
    }

    #[test]
    fn an_open_end_is_never_reached() {
        let end = PartitionOffsets::from([(0, i64::MAX)]);
        assert!(!PartitionOffsets::from([(0, i64::MAX)]).reaches(&end));
        assert!(PartitionOffsets::from([(0, 7)]).reaches(&PartitionOffsets::from([(0, 5)])));
        assert!(!PartitionOffsets::new().reaches(&PartitionOffsets::from([(0, 0)])));
    }
}
