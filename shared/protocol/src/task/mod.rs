//! The life of one task: reading, closing sequences while it reads, publishing them beside it. In legacy mode there
//! is one part, published when the group's end is decided; in checkpointing mode every sequence is one.
//!
//! Owns: what a task does next, the order in which things become durable, and how it ended. Promises: every
//! durable change is an explicit [`TaskAction::Save`] in front of whatever depends on it (I5, D28); a task that
//! is restored from its record does what it would have done; the first error wins; an ended task stays ended.
//! Must never: read records, count time by itself, or know where bytes lie.
//!
//! ```text
//! Starting ─► Reading ⇄ Paused          each part: persist ► merge ► upload ► publish ► handoff
//!     │          └──┬────┘ the last end
//!     └────────► Finishing: read to the end, until all parts are handed off ─► Ended
//! any ─► Stopping (persist, stay restorable) ─► Ended, or left to a later process
//! ```

mod backoff;
mod calls;
mod event;
mod handoff;
mod machine;
mod part;
mod parts;
mod reading;
mod record;
mod sinks;
mod stored;
#[cfg(test)]
mod tests;

pub use backoff::Backoff;
pub use event::{
    Answer, HandoffSeen, LocalState, Outcome, PublishAnswer, Refusal, StopReason, TaskAction, TaskEvent,
    Ticket, Trigger,
};
pub use machine::{Exit, Life, Step, TaskMachine, TaskSettings, TaskView};
pub use part::{EndDecision, Extent, LogEntry, MergedSegment, Part, Published, StagedObject};
pub use record::{
    Assignment, Ended, Ending, GroupMode, LostRange, ParseErrorRecord, ReadState, RowCounts, Run,
    SequenceState, Snapshot, Stream, TaskRecord, Unknown,
};
pub use sinks::{AllocationRequest, Filled, Route, Sink, SinkKey, Sinks};
