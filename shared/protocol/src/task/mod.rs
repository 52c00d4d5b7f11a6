//! The life of one task in legacy mode: one sequence per Kafka partition, everything published in one
//! transaction when the group's end is decided.
//!
//! Owns: what a task does next, the order in which things become durable, and how it ended. Promises: every
//! durable change is an explicit [`TaskAction::Save`] in front of whatever depends on it (I5, D28); a task that
//! is restored from its record does what it would have done; the first error wins; an ended task stays ended.
//! Must never: read records, count time by itself, or know where bytes lie.
//!
//! ```text
//! Starting ─► Reading ⇄ Paused
//!     │          └──┬────┘ end offsets
//!     └────────► Finishing: read to the end ► persist ► merge ► upload ► publish ► handoff ─► Ended
//! any ─► Stopping (persist, stay restorable) ─► Ended, or left to a later process
//! ```

mod backoff;
mod event;
mod finish;
mod machine;
mod record;
mod sinks;
#[cfg(test)]
mod tests;

pub use backoff::Backoff;
pub use event::{
    Answer, HandoffSeen, LocalState, Outcome, PublishAnswer, Refusal, StopReason, TaskAction, TaskEvent,
    Ticket,
};
pub use machine::{Exit, FinishStep, Life, TaskMachine, TaskSettings, TaskView};
pub use record::{
    Assignment, EndDecision, Ended, Ending, GroupMode, LostRange, MergedSegment, ParseErrorRecord, Published,
    ReadState, RowCounts, Run, SequenceState, Snapshot, StagedObject, Stream, TaskRecord, Unknown,
};
pub use sinks::{AllocationRequest, Route, Sink, SinkKey, Sinks};
