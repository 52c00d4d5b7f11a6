//! Reading: from Kafka's batches to runs on disk, on threads of its own.
//!
//! Owns: the consumer, the rows in memory, and the thread that persists them. Promises: what it reports as read was
//! accepted into memory or counted; a persist holds exactly the rows below its offsets that no earlier one held; it
//! stands still only between two records; memory and disk stay within their bounds by reading slower, never by
//! dropping. Must never: decide where a task stands (the machine does), or wait on an async task for a row.

mod allocate;
mod memory;
mod persist;
mod reading;
mod settings;
mod trigger;

pub(crate) use settings::Bounds;

use std::sync::{Arc, Mutex, PoisonError, mpsc};

use tidegate_kafka::{Nudge, Warm};
use tidegate_protocol::sequence::Sequence;
use tidegate_protocol::task::{TaskRecord, Ticket};
use tidegate_spec::SupervisorSpec;
use tidegate_types::EndOffsets;
use tokio_util::sync::CancellationToken;

use crate::folder::TaskFolder;
use crate::live::Live;
use crate::task::{Inbox, Shared};

/// What the machine orders.
#[derive(Debug)]
pub(crate) enum Command {
    /// Begin, or go on, up to these ends; records belong to these sequences.
    Read {
        until: Option<EndOffsets>,
        sequences: Vec<Sequence>,
    },
    /// Stop between two records and say where.
    StandStill { ticket: Ticket },
    /// Spill what is in memory.
    Persist { ticket: Ticket },
}

/// What a reading thread starts with.
#[derive(Debug)]
pub(crate) struct IngestSeed {
    pub(crate) record: TaskRecord,
    pub(crate) spec: Arc<SupervisorSpec>,
    pub(crate) shared: Shared,
    pub(crate) folder: TaskFolder,
    pub(crate) inbox: Inbox,
    pub(crate) live: Arc<Live>,
    /// A consumer that is connected already.
    pub(crate) warm: Option<Warm>,
}

/// The actor's end of the reading thread.
#[derive(Debug)]
pub(crate) struct Ingest {
    commands: mpsc::Sender<Command>,
    attention: Attention,
}

/// How the thread learns at once that there is something to do, wherever it waits.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attention {
    /// The consumer that is waited for, when there is one.
    nudge: Arc<Mutex<Option<Nudge>>>,
    /// Cancelled to interrupt a call under way; made anew by the thread when it has heard.
    interrupt: Arc<Mutex<CancellationToken>>,
    /// The task is over for this thread.
    pub(crate) stop: CancellationToken,
}

impl Attention {
    fn call(&self) {
        self.interrupt
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .cancel();
        if let Some(nudge) = &*self.nudge.lock().unwrap_or_else(PoisonError::into_inner) {
            nudge.nudge();
        }
    }
    /// Called by the thread before it looks for commands: what comes later interrupts again.
    fn heard(&self) {
        let mut interrupt = self.interrupt.lock().unwrap_or_else(PoisonError::into_inner);
        if interrupt.is_cancelled() {
            *interrupt = CancellationToken::new();
        }
    }
    fn interrupt(&self) -> CancellationToken {
        self.interrupt
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
    fn wait_on(&self, nudge: Nudge) {
        *self.nudge.lock().unwrap_or_else(PoisonError::into_inner) = Some(nudge);
    }
}

impl Ingest {
    /// Starts the threads; nothing is read before the first [`Command::Read`]. The error is one line for a person.
    pub(crate) fn start(seed: IngestSeed) -> Result<Self, String> {
        let (commands, inbox) = mpsc::channel();
        let attention = Attention::default();
        reading::spawn(seed, inbox, attention.clone())?;
        Ok(Self { commands, attention })
    }

    // A thread that is gone has said why.
    pub(crate) fn send(&self, command: Command) {
        let _ = self.commands.send(command);
        self.attention.call();
    }

    /// Ends the threads; does not wait for them (B74).
    pub(crate) fn stop(self) {
        drop(self);
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        self.attention.stop.cancel();
        self.attention.call();
    }
}
