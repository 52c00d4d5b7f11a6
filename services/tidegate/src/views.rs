//! What commands print: plain structs made from the API's messages, with names that stay.

mod groups;
mod reset;
mod segments;
mod status;
mod supervisors;
mod tasks;
mod verify;

pub(crate) use reset::ResetPlanView;
pub(crate) use segments::SegmentsView;
pub(crate) use status::StatusView;
pub(crate) use supervisors::{
    CheckpointView, HistoryView, IssuesView, SpecView, SubmittedView, SupervisorsView,
};
pub(crate) use tasks::{HealthView, RunnersView, TasksView};
pub(crate) use verify::ProofView;

use serde::Serialize;
use tidegate_rpc::types::v1::RowCounts;

/// Records by outcome.
#[derive(Debug, Default, Serialize)]
pub(crate) struct CountsView {
    pub(crate) accepted: u64,
    pub(crate) rejected: u64,
    pub(crate) unparseable: u64,
    pub(crate) filtered: u64,
    pub(crate) tombstones: u64,
    pub(crate) empty: u64,
    pub(crate) oversized: u64,
    pub(crate) bytes: u64,
}

impl From<Option<RowCounts>> for CountsView {
    fn from(counts: Option<RowCounts>) -> Self {
        let counts = counts.unwrap_or_default();
        Self {
            accepted: counts.accepted,
            rejected: counts.rejected,
            unparseable: counts.unparseable,
            filtered: counts.filtered,
            tombstones: counts.tombstones,
            empty: counts.empty,
            oversized: counts.oversized,
            bytes: counts.bytes,
        }
    }
}

impl CountsView {
    /// All records that were read.
    pub(crate) fn records(&self) -> u64 {
        self.accepted + self.without_row()
    }
    fn without_row(&self) -> u64 {
        self.rejected + self.unparseable + self.filtered + self.tombstones + self.empty + self.oversized
    }
}
