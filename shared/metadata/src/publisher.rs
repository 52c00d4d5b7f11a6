//! What the publisher keeps: committed offsets, the segment catalog, segment allocation, registered groups.
//!
//! Promises: offsets move only by compare-and-swap, in a publish together with its segments, or in a reset that
//! raises the generation (I2); every call can be repeated (I11): a publish whose answer was lost is found as
//! already published (B43); ordinals become visible in their order, so that one who reads the catalog page by
//! page misses nothing. Decisions are `tidegate_protocol::publish` and `::allocate`.

use async_trait::async_trait;
use tidegate_protocol::allocate::{AllocationRefusal, AllocationRequest};
use tidegate_protocol::publish::{
    Fence, GroupMode, PublishDecision, PublishRequest, RegisteredGroup, SegmentFile, StreamId,
};
use tidegate_protocol::verify::{Evidence, PublishedRange};
use tidegate_types::{
    AssignmentToken, BaseSequenceName, DataSource, DecodeVersion, Epoch, Generation, GroupId, PartitionId,
    PartitionOffsets, SegmentId, StartOffsets, SupervisorId, TaskId, TimestampMillis,
};

use crate::{Document, Ordinal, StoreError};

/// First start offsets of partitions that have none.
#[derive(Debug, Clone, PartialEq)]
pub struct InitializeOffsets {
    pub supervisor: SupervisorId,
    pub stream: StreamId,
    pub start: StartOffsets,
    pub epoch: Epoch,
    pub at: TimestampMillis,
}

/// Committed offsets of one topic of a supervisor.
#[derive(Debug, Clone, PartialEq)]
pub struct CommittedOffsets {
    pub supervisor: SupervisorId,
    /// What they were read from. Ids that rows disagree about (while a topic is replaced) are the first row's.
    pub stream: StreamId,
    pub offsets: PartitionOffsets,
    pub generation: Generation,
}

/// A reset: partitions lose their row or get another offset.
#[derive(Debug, Clone, PartialEq)]
pub struct ResetOffsets {
    pub supervisor: SupervisorId,
    pub topic: String,
    /// Empty = all.
    pub partitions: Vec<PartitionId>,
    /// A partition of the reset that is not named here loses its row.
    pub new_offsets: PartitionOffsets,
    /// Offsets that the caller saw; a difference refuses the reset.
    pub expected: Option<PartitionOffsets>,
    pub who: String,
    pub why: String,
    pub request_key: String,
    pub epoch: Epoch,
    /// Stored with new offsets; `None` keeps what a row has.
    pub stream: Option<StreamId>,
    pub at: TimestampMillis,
}

/// A group and those who may publish for it.
#[derive(Debug, Clone, PartialEq)]
pub struct RegisterGroup {
    pub supervisor: SupervisorId,
    pub group: GroupId,
    pub base: BaseSequenceName,
    pub generation: Generation,
    pub start: StartOffsets,
    /// Replace those registered before.
    pub tokens: Vec<AssignmentToken>,
    pub epoch: Epoch,
    /// Grows with every registration of one epoch.
    pub revision: u64,
    pub mode: GroupMode,
    pub topic: String,
    pub at: TimestampMillis,
}

/// A wish for a segment id, and who has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocate {
    pub supervisor: SupervisorId,
    pub group: GroupId,
    pub generation: Generation,
    pub token: AssignmentToken,
    pub request: AllocationRequest,
    /// Becomes the version of an interval that has none.
    pub at: TimestampMillis,
}

/// A wish to publish, and what is stored beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct Publish {
    pub request: PublishRequest,
    pub task: TaskId,
    /// Highest epoch that the asking runner has seen. It raises the fence; a lower one does not refuse the
    /// publish, for a task outlives coordinators: its token is what fences it.
    pub epoch: Epoch,
    /// Row counts by outcome.
    pub counts: Document,
    pub request_key: String,
    pub decode_version: DecodeVersion,
    pub at: TimestampMillis,
}

/// What became of a wish to publish.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishAnswer {
    pub decision: PublishDecision,
    /// Committed offsets of the request's partitions, after the call.
    pub committed: PartitionOffsets,
    /// Segments of the request's sequences in the catalog, whoever published them, used or not.
    pub segments: Vec<CatalogSegment>,
}

/// A segment of the catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct CatalogSegment {
    /// Position in the order of publishing.
    pub ordinal: Ordinal,
    /// At its final key, or at its staged one until it is promoted.
    pub file: SegmentFile,
    pub supervisor: SupervisorId,
    pub group: GroupId,
    pub generation: Generation,
    pub published_at: TimestampMillis,
    pub used: bool,
    pub promoted: bool,
}

/// Which segments to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentFilter {
    pub data_source: Option<DataSource>,
    pub supervisor: Option<SupervisorId>,
}

/// Why a wish was refused, for good: nothing was changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Refusal {
    #[error("epoch {given} is refused, {held} holds: another coordinator has taken over; stop")]
    StaleEpoch { held: Epoch, given: Epoch },
    #[error("a newer registration of group {group} was here before this one: nothing was changed")]
    Overtaken { group: GroupId },
    #[error("the generation of {supervisor}'s offsets is {held}, not {given}: read them again")]
    StaleGeneration {
        supervisor: SupervisorId,
        held: Generation,
        given: Generation,
    },
    #[error(
        "{supervisor}'s offsets were committed from {committed}, not from {given}: reset them to go on there"
    )]
    OtherStream {
        supervisor: SupervisorId,
        committed: Box<StreamId>,
        given: Box<StreamId>,
    },
    #[error("partition {partition} starts at {offset}, which is no start")]
    NoStart {
        partition: PartitionId,
        offset: tidegate_types::Offset,
    },
    #[error("the committed offsets are {committed}, not {expected}: look again, then reset")]
    OffsetsDiffer {
        committed: PartitionOffsets,
        expected: PartitionOffsets,
    },
    #[error("group {group} is registered already as another: {what} differs")]
    OtherGroup { group: GroupId, what: &'static str },
    #[error("group {group} has ended and does not come back")]
    GroupEnded { group: GroupId },
    #[error(transparent)]
    Fenced(#[from] Fence),
    #[error(transparent)]
    Allocation(#[from] AllocationRefusal),
}

/// A failed call to [`PublisherStore`].
#[derive(Debug, Clone, thiserror::Error)]
pub enum PublisherError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// The publisher's port.
#[async_trait]
pub trait PublisherStore: Send + Sync {
    /// Writes offsets of partitions that have none; answers those that hold now.
    async fn initialize_offsets(&self, call: &InitializeOffsets) -> Result<CommittedOffsets, PublisherError>;

    /// Committed offsets; `None` when the supervisor never had any. An empty topic means the only one.
    async fn committed_offsets(
        &self,
        supervisor: &SupervisorId,
        topic: &str,
    ) -> Result<Option<CommittedOffsets>, StoreError>;

    /// Moves or clears offsets and raises the generation. The same request key again answers the first result.
    async fn reset_offsets(&self, call: &ResetOffsets) -> Result<CommittedOffsets, PublisherError>;

    /// Registers a group, or replaces its tokens.
    async fn register_group(&self, call: &RegisterGroup) -> Result<(), PublisherError>;

    /// The group publishes nothing any more. One that is not known is no error.
    async fn end_group(
        &self,
        supervisor: &SupervisorId,
        group: &GroupId,
        epoch: Epoch,
        at: TimestampMillis,
    ) -> Result<(), PublisherError>;

    /// A group as registered.
    async fn group(
        &self,
        supervisor: &SupervisorId,
        group: &GroupId,
    ) -> Result<Option<RegisteredGroup>, StoreError>;

    /// Gives a segment id.
    async fn allocate(&self, call: &Allocate) -> Result<SegmentId, PublisherError>;

    /// Decides and, if so decided, commits: segments, sequences and offsets in one transaction.
    async fn publish(&self, call: &Publish) -> Result<PublishAnswer, StoreError>;

    /// The decision that `publish` would make now; changes nothing.
    async fn preview(&self, request: &PublishRequest) -> Result<PublishAnswer, StoreError>;

    /// Segments in order of publishing, behind `after`.
    async fn list_segments(
        &self,
        filter: &SegmentFilter,
        after: Ordinal,
        limit: u32,
    ) -> Result<Vec<CatalogSegment>, StoreError>;

    /// Segments that do not stand at their final key yet, in order of publishing, behind `after`.
    async fn unpromoted(&self, after: Ordinal, limit: u32) -> Result<Vec<CatalogSegment>, StoreError>;

    /// The segment stands at this key now. Repeating it changes nothing.
    async fn mark_promoted(&self, ordinal: Ordinal, key: &str) -> Result<(), StoreError>;

    /// Marks segments as used or unused; the record of published sequences does not care (D39).
    async fn mark_used(&self, segments: &[SegmentId], used: Used) -> Result<(), StoreError>;

    /// Those of these object keys that the catalog refers to.
    async fn referenced_keys(&self, keys: &[String]) -> Result<Vec<String>, StoreError>;

    /// Supervisors that have published segments of this data source, in order.
    async fn publishers_of(&self, data_source: &DataSource) -> Result<Vec<SupervisorId>, StoreError>;

    /// Everything that is recorded about what a supervisor has published, and its topic, as one consistent read.
    async fn evidence(&self, supervisor: &SupervisorId) -> Result<(String, Evidence), StoreError>;

    /// The published ranges that these segments belong to, in their order.
    async fn ranges_of(&self, segments: &[CatalogSegment])
    -> Result<Vec<Option<PublishedRange>>, StoreError>;

    /// When the oldest group that may still publish was registered; `None` when there is none.
    async fn oldest_open_group(&self) -> Result<Option<TimestampMillis>, StoreError>;
}

/// Whether a segment is part of its data source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Used {
    Yes,
    No,
}
