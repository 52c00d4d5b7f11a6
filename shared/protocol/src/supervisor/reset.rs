//! What a reset would do, before it does it: which records nobody would ever read, and which are read again.

use std::collections::BTreeSet;
use std::fmt;

use tidegate_types::{Offset, OffsetRange, PartitionId, PartitionOffsets};

use super::{FirstStart, Refusal, Supervisor};

/// Where a reset puts partitions that are given no offset of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ResetTo {
    /// Where the spec says that partitions start.
    #[default]
    AsSpec,
    /// The first record that the broker still has.
    Earliest,
    /// Behind the last record that there is now.
    Latest,
}

/// What a reset does to one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionReset {
    pub partition: PartitionId,
    /// The committed offset; `None` when there is none.
    pub from: Option<Offset>,
    /// Where reading begins.
    pub to: Offset,
    /// Offsets that nobody would read any more, those included that are not written yet.
    pub skipped: OffsetRange,
    /// Offsets that are published and would be read again: their rows would be there twice.
    pub again: OffsetRange,
}

/// What a reset does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResetPlan {
    pub partitions: Vec<PartitionReset>,
}

impl ResetPlan {
    /// Offsets that would never be read, of all partitions.
    pub fn skipped(&self) -> u64 {
        self.partitions
            .iter()
            .map(|partition| partition.skipped.width())
            .sum()
    }
}

/// The ranges that would be lost.
impl fmt::Display for ResetPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = self
            .partitions
            .iter()
            .filter(|partition| !partition.skipped.is_empty());
        for (
            number,
            PartitionReset {
                partition, skipped, ..
            },
        ) in lost.enumerate()
        {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}partition {partition} {skipped}")?;
        }
        Ok(())
    }
}

impl Supervisor {
    /// What a reset of these partitions (empty: of those with an offset, else of all) would do now.
    ///
    /// # Errors
    /// The topic has not been looked at yet, or a partition is not in it.
    pub fn plan_reset(
        &self,
        partitions: &BTreeSet<PartitionId>,
        offsets: &PartitionOffsets,
        to: ResetTo,
    ) -> Result<ResetPlan, Refusal> {
        self.check_partitions(partitions, offsets)?;
        let Some((discovery, _)) = self.discovery.as_ref().filter(|_| self.look.number > 0) else {
            return Err(Refusal::NotLooked {
                id: self.document.id.clone(),
                topic: self.topic(),
            });
        };
        let first_start = self.document.settings().map(|settings| settings.first_start);
        let committed = self.look.committed.as_ref();
        let is_meant = |partition: &PartitionId| {
            if partitions.is_empty() && !offsets.is_empty() {
                return offsets.get(*partition).is_some();
            }
            partitions.is_empty() || partitions.contains(partition)
        };
        let one = |partition: PartitionId| {
            let (earliest, latest) = (
                discovery.earliest.get(partition)?,
                discovery.latest.get(partition)?,
            );
            let from = committed.and_then(|committed| committed.offsets.get(partition));
            let to = match (offsets.get(partition), to) {
                (Some(offset), _) => offset,
                (None, ResetTo::Latest) => latest,
                (None, ResetTo::AsSpec) if first_start == Some(FirstStart::Latest) => latest,
                (None, ResetTo::Earliest | ResetTo::AsSpec) => earliest,
            };
            // Offsets of another topic say nothing about this one.
            let stands = from.filter(|_| self.stream_changed.is_none());
            Some(PartitionReset {
                partition,
                from,
                to,
                skipped: OffsetRange {
                    start: stands.unwrap_or(earliest).max(earliest),
                    end: to,
                },
                again: OffsetRange {
                    start: to.max(earliest),
                    end: stands.unwrap_or(earliest).min(latest),
                },
            })
        };
        Ok(ResetPlan {
            partitions: discovery.partitions().filter(is_meant).filter_map(one).collect(),
        })
    }

    /// The offsets that make a reset do what was planned, whatever is written to the topic meanwhile: "latest" is
    /// where the log ended when it was asked for.
    pub(super) fn resolved(
        &self,
        partitions: &BTreeSet<PartitionId>,
        offsets: PartitionOffsets,
        to: ResetTo,
    ) -> PartitionOffsets {
        let first_start = self.document.settings().map(|settings| settings.first_start);
        if to == ResetTo::AsSpec && first_start != Some(FirstStart::Latest) {
            return offsets;
        }
        match self.plan_reset(partitions, &offsets, to) {
            Ok(plan) => plan
                .partitions
                .iter()
                .map(|partition| (partition.partition, partition.to))
                .collect(),
            Err(_) => offsets, // nobody knows, and it is forced
        }
    }

    pub(super) fn check_partitions(
        &self,
        partitions: &BTreeSet<PartitionId>,
        offsets: &PartitionOffsets,
    ) -> Result<(), Refusal> {
        let Some((discovery, _)) = &self.discovery else {
            return Ok(());
        };
        let known: BTreeSet<PartitionId> = discovery
            .partitions()
            .chain(
                self.look
                    .committed
                    .iter()
                    .flat_map(|committed| committed.offsets.partitions()),
            )
            .collect();
        let wrong = partitions
            .iter()
            .copied()
            .chain(offsets.partitions())
            .find(|partition| !known.contains(partition));
        wrong.map_or(Ok(()), |partition| {
            let known = known
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ");
            Err(Refusal::NoSuchPartition {
                partition,
                topic: self.topic(),
                known,
            })
        })
    }
}
