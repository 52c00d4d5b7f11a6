//! What a reset would do.

use serde::Serialize;
use tidegate_rpc::coordinator::v1::{PartitionReset, PlanResetResponse};

use crate::report::{Show, grouped, known, table};

#[derive(Debug, Serialize)]
struct PartitionView {
    partition: i32,
    committed: Option<i64>,
    begins: i64,
    skipped: u64,
    read_again: u64,
}

impl From<PartitionReset> for PartitionView {
    fn from(told: PartitionReset) -> Self {
        Self {
            partition: told.partition,
            committed: told.from,
            begins: told.to,
            skipped: told.skipped,
            read_again: told.read_again,
        }
    }
}

/// The plan of a reset.
#[derive(Debug, Serialize)]
pub(crate) struct ResetPlanView {
    /// False: the reset is refused unless it is forced.
    loses_nothing: bool,
    skipped: u64,
    read_again: u64,
    partitions: Vec<PartitionView>,
}

impl From<PlanResetResponse> for ResetPlanView {
    fn from(told: PlanResetResponse) -> Self {
        let partitions: Vec<PartitionView> = told.partitions.into_iter().map(Into::into).collect();
        let skipped = partitions.iter().map(|partition| partition.skipped).sum();
        Self {
            loses_nothing: skipped == 0,
            skipped,
            read_again: partitions.iter().map(|partition| partition.read_again).sum(),
            partitions,
        }
    }
}

impl Show for ResetPlanView {
    fn show(&self) -> String {
        let rows = self
            .partitions
            .iter()
            .map(|one| {
                vec![
                    one.partition.to_string(),
                    known(one.committed),
                    one.begins.to_string(),
                    grouped(one.skipped),
                    grouped(one.read_again),
                ]
            })
            .collect();
        let heading = ["partition", "committed", "begins at", "never read", "read twice"];
        let verdict = if self.loses_nothing {
            "Nothing is lost; nothing was changed.".to_owned()
        } else {
            format!(
                "{} offsets would never be read: refused without --force. Nothing was changed.",
                grouped(self.skipped)
            )
        };
        let table = table(&heading, rows, "No partition is concerned.");
        format!("{table}\n{verdict}")
    }
}
