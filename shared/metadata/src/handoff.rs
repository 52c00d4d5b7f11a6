//! What the handoff-checker keeps: the handoff state of published segments, and how far it has read the catalog.
//!
//! Promises: a segment that was seen served stays served; registering again changes nothing; the cursor moves
//! together with the segments that it passed, so that none is ever skipped (D11).

use async_trait::async_trait;
use tidegate_types::{DataSource, SegmentId, TimestampMillis};

use crate::{Document, StoreError};

/// Position in the order of publishing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ordinal(pub i64);

/// Where a handoff stands. A number of a newer version is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HandoffState {
    /// Published, not seen at the serving tier yet.
    Pending,
    /// The serving tier has it, or does not need it.
    Served,
    Unknown(i32),
}

impl HandoffState {
    pub(crate) fn to_number(self) -> i32 {
        match self {
            Self::Pending => 1,
            Self::Served => 2,
            Self::Unknown(number) => number,
        }
    }
    pub(crate) fn from_number(number: i32) -> Self {
        match number {
            1 => Self::Pending,
            2 => Self::Served,
            other => Self::Unknown(other),
        }
    }
}

/// The handoff of one segment.
#[derive(Debug, Clone, PartialEq)]
pub struct HandoffRecord {
    pub segment: SegmentId,
    /// The segment's place in the catalog; handoffs are listed in this order.
    pub ordinal: Ordinal,
    pub state: HandoffState,
    /// Last answer of the serving tier, for a person.
    pub detail: String,
    /// Checks made so far.
    pub attempts: u32,
    /// When it was first waited for.
    pub since: TimestampMillis,
    pub served_at: Option<TimestampMillis>,
    /// What the check needs to know about the segment (key, size, checksum); the checker's own.
    pub document: Document,
}

/// Which handoffs to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandoffFilter {
    pub data_source: Option<DataSource>,
    /// Only those that are not served.
    pub pending_only: bool,
}

/// The handoff-checker's port.
#[async_trait]
pub trait HandoffStore: Send + Sync {
    /// How far the catalog has been read; 0 at first.
    async fn cursor(&self) -> Result<Ordinal, StoreError>;

    /// Adds handoffs (those that are there already stay as they are) and moves the cursor, in one transaction.
    /// The cursor never goes back. `None` leaves it.
    async fn upsert(&self, handoffs: &[HandoffRecord], cursor: Option<Ordinal>) -> Result<(), StoreError>;

    /// Those that are not served, by ordinal, behind `after`.
    async fn pending(&self, after: Ordinal, limit: u32) -> Result<Vec<HandoffRecord>, StoreError>;

    /// These segments' handoffs, in the order asked; `None` for one that is not there.
    async fn get(&self, segments: &[SegmentId]) -> Result<Vec<Option<HandoffRecord>>, StoreError>;

    /// A check that did not confirm: counts the attempt and keeps the answer. No effect on a served one.
    async fn record_attempt(&self, segment: &SegmentId, detail: &str) -> Result<(), StoreError>;

    /// The serving tier has it. The first time stands.
    async fn mark_served(
        &self,
        segment: &SegmentId,
        at: TimestampMillis,
        detail: &str,
    ) -> Result<(), StoreError>;

    /// Handoffs by ordinal, behind `after`.
    async fn list(
        &self,
        filter: &HandoffFilter,
        after: Ordinal,
        limit: u32,
    ) -> Result<Vec<HandoffRecord>, StoreError>;

    /// How many are not served.
    async fn pending_count(&self) -> Result<u64, StoreError>;
}
