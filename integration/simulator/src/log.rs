//! The Kafka log: partitions that only grow, with gaps and records that are no rows.

use std::collections::BTreeMap;

use rand::Rng as _;
use rand::rngs::SmallRng;
use tidegate_types::{Offset, PartitionId, PartitionOffsets};

/// One hour, the segments' granularity here.
pub(crate) const HOUR: i64 = 3_600_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Record {
    /// A row of this hour.
    Row {
        hour: i64,
    },
    Unparseable,
    Tombstone,
    /// An offset that is never delivered (a transaction marker, a compacted record).
    Gap,
}

#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) partitions: BTreeMap<PartitionId, Vec<Record>>,
}

impl Log {
    pub(crate) fn add_partition(&mut self) {
        let next = PartitionId(self.partitions.len() as i32);
        self.partitions.insert(next, Vec::new());
    }

    pub(crate) fn produce(&mut self, random: &mut SmallRng) {
        let partition = PartitionId(random.random_range(0..self.partitions.len() as i32));
        let records = random.random_range(1..6);
        for _ in 0..records {
            let record = match random.random_range(0..20) {
                0 => Record::Unparseable,
                1 => Record::Tombstone,
                2 | 3 => Record::Gap,
                _ => Record::Row {
                    hour: random.random_range(0..3),
                },
            };
            self.partitions.entry(partition).or_default().push(record);
        }
    }

    pub(crate) fn at(&self, partition: PartitionId, offset: Offset) -> Option<Record> {
        self.partitions
            .get(&partition)?
            .get(usize::try_from(offset.0).ok()?)
            .copied()
    }

    pub(crate) fn end(&self, partition: PartitionId) -> Offset {
        Offset(self.partitions.get(&partition).map_or(0, Vec::len) as i64)
    }

    pub(crate) fn latest(&self) -> PartitionOffsets {
        self.partitions
            .keys()
            .map(|partition| (*partition, self.end(*partition)))
            .collect()
    }

    pub(crate) fn earliest(&self) -> PartitionOffsets {
        self.partitions
            .keys()
            .map(|partition| (*partition, Offset(0)))
            .collect()
    }

    /// Offsets of rows in `[start, end)`.
    pub(crate) fn rows(
        &self,
        partition: PartitionId,
        start: Offset,
        end: Offset,
    ) -> impl Iterator<Item = Offset> + '_ {
        (start.0..end.0)
            .map(Offset)
            .filter(move |offset| matches!(self.at(partition, *offset), Some(Record::Row { .. })))
    }
}
