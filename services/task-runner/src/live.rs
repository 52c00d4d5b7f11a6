//! Numbers of a running task that are newer than its record: written by the reading thread once per batch, read
//! by status calls. Nothing is decided from them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tidegate_protocol::task::{ParseErrorRecord, RowCounts};
use tidegate_types::PartitionOffsets;

#[derive(Debug, Default)]
pub(crate) struct Live {
    reading: Mutex<Option<Reading>>,
    /// Grows whenever the task gets on (B39).
    progress: AtomicU64,
    /// Bytes of rows in memory, those that are being persisted included.
    memory: AtomicU64,
}

/// One consistent moment of the reader.
#[derive(Debug, Clone)]
pub(crate) struct Reading {
    pub(crate) next: PartitionOffsets,
    pub(crate) counts: RowCounts,
    pub(crate) parse_errors: Vec<ParseErrorRecord>,
}

impl Live {
    pub(crate) fn set(&self, reading: Reading) {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = Some(reading);
    }
    /// The record holds everything from now on.
    pub(crate) fn clear(&self) {
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
    pub(crate) fn get(&self) -> Option<Reading> {
        self.reading
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
    pub(crate) fn set_memory(&self, bytes: u64) {
        self.memory.store(bytes, Ordering::Relaxed);
    }
    pub(crate) fn memory(&self) -> u64 {
        self.memory.load(Ordering::Relaxed)
    }
    pub(crate) fn advance(&self, by: u64) {
        self.progress.fetch_add(by, Ordering::Relaxed);
    }
    pub(crate) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }
}
