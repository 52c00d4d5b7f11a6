//! What happens to a task, and what it wants done.

use tidegate_types::{
    EndOffsets, Offset, OffsetRange, PartitionId, PartitionOffsets, SegmentId, SequenceId, TimestampMillis,
};

use super::part::{LogEntry, MergedSegment, StagedObject};
use super::record::{Ending, LostRange, Snapshot};
use crate::sequence::Sequence;

/// Tells one order to the reader from an earlier one of the same kind: a late answer to an order that was
/// taken back must not count for the next one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// What the shell found in the task's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalState {
    /// Every run of the record is there with its checksum (or there is none).
    Intact,
    /// Something is missing or differs: all rows are read again from the start of the assignment (B56).
    Lost(String),
    /// The runs are there; the merged files are not.
    MergedLost,
}

/// Why a task is to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// Another replica has published.
    Superseded,
    /// Given up, or another task took its place.
    Replaced,
    /// The supervisor stops without publishing.
    Stopped,
}

impl StopReason {
    pub(super) fn ending(self) -> Ending {
        match self {
            Self::Superseded => Ending::Superseded,
            Self::Replaced => Ending::Replaced,
            Self::Stopped => Ending::Stopped,
        }
    }
}

/// Outcome of a publish. A shell maps an outcome that it does not know to `Retryable`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Published,
    AlreadyPublished,
    /// An earlier range is still being published.
    NotYet,
    /// The earlier range was given up.
    PredecessorLost,
    Mismatch,
    /// The store is away or busy, or there was no answer at all: the outcome may be unknown.
    Retryable,
    Fenced,
    /// A staged object is missing or wrong.
    BadObject,
}

/// Why a task wants its open sequence to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Trigger {
    /// A segment has `maxRowsPerSegment` rows.
    Rows,
    /// All segments together have `maxTotalRows` rows.
    TotalRows,
    /// A segment has rows of `maxBytesPerSegment` bytes of records.
    Bytes,
    /// `intermediateHandoffPeriod` is over.
    Period,
    /// There is no room left on the disk: what is published makes some.
    Disk,
}

/// The publisher's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishAnswer {
    pub outcome: Outcome,
    /// For a person.
    pub detail: String,
    pub committed: Option<PartitionOffsets>,
    /// Segments of these sequences that are in the catalog.
    pub segments: Vec<SegmentId>,
    /// 0 = our choice.
    pub retry_after_millis: u64,
}

/// What the handoff-checker says about one segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandoffSeen {
    pub segment: SegmentId,
    pub served: bool,
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskEvent {
    /// The folder was looked through; sent once, before anything from the reader.
    Opened(LocalState),
    /// The coordinator wants the task to stand still.
    Pause,
    /// The coordinator wants it to read on.
    Resume,
    /// The coordinator gives the end of the open sequence; in legacy mode, of all.
    SetEndOffsets(LogEntry),
    /// The coordinator ends the task. `keep`: persist, and keep the folder.
    Stop {
        reason: StopReason,
        keep: bool,
    },
    /// The process goes down: persist, stay restorable.
    Drain,
    /// Records below these offsets were taken (in memory, or counted).
    ReadUpTo(PartitionOffsets),
    /// The reader stands still at a record boundary.
    StoodStill {
        ticket: Ticket,
        next: PartitionOffsets,
    },
    /// The open sequence has grown to a bound: the reader stands still at a record boundary by itself.
    Triggered {
        trigger: Trigger,
        next: PartitionOffsets,
    },
    /// A persist is complete. `ticket`: it was ordered; without: the reader's own bounds made it.
    Persisted {
        ticket: Option<Ticket>,
        snapshot: Box<Snapshot>,
    },
    Merged {
        part: SequenceId,
        segments: Vec<MergedSegment>,
    },
    /// One segment stands in the object store.
    Uploaded {
        part: SequenceId,
        object: StagedObject,
    },
    PublishAnswered {
        part: SequenceId,
        answer: PublishAnswer,
    },
    /// The checker's answer about segments that were asked for.
    HandoffAnswered(Vec<HandoffSeen>),
    /// The time of a [`TaskAction::WakeAt`] has come.
    Wake,
    /// The broker dropped records that were not read (B21).
    OutOfRange {
        partition: PartitionId,
        lost: OffsetRange,
    },
    /// The next offset is behind the end of the log: wait (the record is not written yet).
    BeyondEnd {
        partition: PartitionId,
        next: Offset,
        high: Offset,
    },
    /// Something is in the way and is being retried; the empty text = it is over.
    Hindered(String),
    /// More unparseable records than the spec tolerates.
    ParseBudgetExceeded {
        detail: String,
    },
    /// Reading, persisting, merging or allocating failed for good.
    Failed {
        detail: String,
    },
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TaskAction {
    /// Make the record durable. Nothing behind it may be done before that is complete.
    Save,
    /// Answer the call that brought the event.
    Answer(Answer),
    /// Tell the coordinator soon: the state changed.
    Report,
    /// Look through the folder: remove files that the record does not name, check those that it names, then send
    /// [`TaskEvent::Opened`].
    Open,
    /// Remove every local file of rows; they are read again.
    DiscardRows,
    /// Start reading, or read on, up to these ends. A record belongs to the first of these sequences that contains
    /// it; what lies in none of them is published already. Sequences that are not named are forgotten.
    Read {
        until: Option<EndOffsets>,
        sequences: Vec<Sequence>,
    },
    /// Everything is read and persisted: the consumer is not needed any more.
    StopReading,
    /// Stop at a record boundary, then send [`TaskEvent::StoodStill`].
    StandStill { ticket: Ticket },
    /// Spill what is in memory, then send [`TaskEvent::Persisted`].
    Persist { ticket: Ticket },
    /// Merge the runs of this part into one file per segment.
    Merge { part: SequenceId },
    /// Upload these merged segments of this part, each to a new key.
    Upload {
        part: SequenceId,
        segments: Vec<MergedSegment>,
    },
    /// Publish all sequences of this part in one request.
    Publish { part: SequenceId, attempt: u32 },
    /// Ask until all are served, or the task wakes. A later one replaces it.
    AwaitHandoff { segments: Vec<SegmentId> },
    /// Remove these local files; the record does not name them any more.
    DropFiles { files: Vec<String> },
    /// Send [`TaskEvent::Wake`] at this time. A later one replaces it.
    WakeAt(TimestampMillis),
    /// Stop all work of this task; nothing more is wanted from it.
    StopWork,
    /// Remove every local file of rows and segments; the record stays.
    DropLocal,
    /// The task is over; it is shown until the coordinator has recorded it.
    End(Ending),
    /// The process may let go of the task; a later one restores it.
    Leave,
}

/// Answers to calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Done, or it was done before.
    Done,
    /// Recorded; it takes effect when the task can.
    Accepted,
    /// It stands still here.
    Paused { next: PartitionOffsets },
}

/// An event that is not possible now. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the task has ended ({0:?})")]
    HasEnded(Ending),
    #[error("the task is finishing: its end offsets are set by decision {decision_id}")]
    Finishing { decision_id: String },
    #[error("the task is stopping")]
    Stopping,
    #[error("the task is reading: pause it before its end offsets are set")]
    NotPaused,
    #[error("{0}")]
    BadEnd(#[from] crate::sequence::BadEnd),
    #[error("sequence {sequence} ended by decision {known} already, not by {given}")]
    OtherEnd {
        sequence: SequenceId,
        known: String,
        given: String,
    },
    #[error("sequence {sequence} is not open yet, {open} is: tell its end first")]
    TooEarly { sequence: SequenceId, open: SequenceId },
    #[error("{what} is not expected now (the task is {life})")]
    NotExpected { what: &'static str, life: &'static str },
}

/// A range as text for a person.
pub(super) fn lost_text(lost: &LostRange) -> String {
    format!(
        "partition {} lost the offsets {}: the broker dropped them before they were read",
        lost.partition, lost.range
    )
}
