//! The metadata store on SQLite and PostgreSQL: catalog, committed offsets, allocation, supervisors, groups,
//! checkpoint log, handoffs.
//!
//! Owns: tables, transactions, retries on conflicts, migrations. The ports ([`PublisherStore`],
//! [`CoordinatorStore`], [`HandoffStore`]) are what each service needs and stand at the root; [`Metadata`] is all of them on
//! a database. Each service writes only the tables of its own port. Promises: a call either happened as a whole,
//! or not at all, or says that it does not know. Must never: decide; decisions are `tidegate-protocol`'s.

mod coordinator;
mod database;
mod document;
mod entity;
mod error;
mod handoff;
mod lease;
mod migrate;
mod publisher;
mod rows;
mod sql;

pub use coordinator::{
    CoordinatorChange, CoordinatorState, CoordinatorStore, DecisionKind, DecisionRecord, GroupRecord,
    HistoryRecord, RunnerRecord, SupervisorRecord, TaskRecord,
};
pub use database::Metadata;
pub use document::{Document, DocumentError};
pub use error::StoreError;
pub use handoff::{HandoffFilter, HandoffRecord, HandoffState, HandoffStore, Ordinal};
pub use lease::{Acquired, Candidate, Lease};
pub use publisher::{
    Allocate, CatalogSegment, CommittedOffsets, InitializeOffsets, Publish, PublishAnswer, PublisherError,
    PublisherStore, Refusal, RegisterGroup, ResetOffsets, SegmentFilter, Used,
};
