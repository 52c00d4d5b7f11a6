//! The bounded channel between a reader's thread and its task.
//!
//! Promises: the bytes of all batches that are queued or still held by the task stay within one limit for all
//! partitions together (B70); a single batch above the limit passes alone rather than never. Batches and events
//! come out in the order in which they went in.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_types::Offset;

use crate::batch::{Batch, Buffers};
use crate::reader::ReaderEvent;

/// More than this many idle buffers are given back to the allocator.
const SPARE_BUFFERS: usize = 16;

#[derive(Debug)]
pub(crate) struct Handover {
    state: Mutex<State>,
    filled: Condvar,
    drained: Condvar,
    limit: usize,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Stamped>,
    bytes: usize,
    spare: Vec<Buffers>,
    ended: Option<String>,
    /// Somebody wants the task's attention: its wait ends at once.
    nudged: bool,
}

/// An event with the number of the last seek that its producer had seen.
#[derive(Debug)]
pub(crate) struct Stamped {
    pub(crate) seeks_seen: u64,
    /// Of what moves a partition: the position that it moves from.
    pub(crate) begins: Option<Offset>,
    pub(crate) event: ReaderEvent,
}

impl Handover {
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            filled: Condvar::new(),
            drained: Condvar::new(),
            limit,
        })
    }

    // A panic elsewhere leaves the counters valid, so a poisoned lock is used on.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over a batch, waiting at most `wait` for room; gives it back when there is none.
    pub(crate) fn offer(
        self: &Arc<Self>,
        seeks_seen: u64,
        mut batch: Batch,
        wait: Duration,
    ) -> Result<(), Batch> {
        let size = batch.size();
        let deadline = Instant::now() + wait;
        let mut state = self.lock();
        while state.bytes > 0 && state.bytes + size > self.limit {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(batch);
            }
            state = self
                .drained
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        state.bytes += size;
        batch.reserve(self.clone(), size);
        state.queue.push_back(Stamped {
            seeks_seen,
            begins: Some(batch.begins()),
            event: ReaderEvent::Batch(batch),
        });
        drop(state);
        self.filled.notify_one();
        Ok(())
    }

    /// Hands over something that has no size to speak of.
    pub(crate) fn tell(&self, seeks_seen: u64, begins: Option<Offset>, event: ReaderEvent) {
        self.lock().queue.push_back(Stamped {
            seeks_seen,
            begins,
            event,
        });
        self.filled.notify_one();
    }

    /// The producing thread is gone; what is queued can still be taken.
    pub(crate) fn end(&self, why: String) {
        self.lock().ended.get_or_insert(why);
        self.filled.notify_all();
    }

    /// Ends the wait of whoever takes, or its next one.
    pub(crate) fn nudge(&self) {
        self.lock().nudged = true;
        self.filled.notify_all();
    }

    /// Next event; `None` when there is none within `wait`, or after a nudge.
    pub(crate) fn take(&self, wait: Duration) -> Option<Stamped> {
        let deadline = Instant::now() + wait;
        let mut state = self.lock();
        loop {
            if std::mem::take(&mut state.nudged) {
                return None;
            }
            if let Some(stamped) = state.queue.pop_front() {
                return Some(stamped);
            }
            if let Some(why) = &state.ended {
                return Some(Stamped {
                    seeks_seen: u64::MAX,
                    begins: None,
                    event: ReaderEvent::Ended { why: why.clone() },
                });
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self
                .filled
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Drops what is queued. The batches free their bytes outside the lock.
    pub(crate) fn clear(&self) {
        let dropped = std::mem::take(&mut self.lock().queue);
        drop(dropped);
    }

    pub(crate) fn spare_buffers(&self) -> Buffers {
        self.lock().spare.pop().unwrap_or_default()
    }

    pub(crate) fn take_back(&self, mut buffers: Buffers, bytes: usize) {
        buffers.bytes.clear();
        buffers.records.clear();
        let mut state = self.lock();
        state.bytes = state.bytes.saturating_sub(bytes);
        // A buffer that one huge record made large is not kept.
        if state.spare.len() < SPARE_BUFFERS && buffers.bytes.capacity() <= self.limit / SPARE_BUFFERS {
            state.spare.push(buffers);
        }
        drop(state);
        self.drained.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use tidegate_types::PartitionId;

    use super::*;

    fn batch(bytes: usize) -> Batch {
        Batch::new(
            PartitionId(0),
            Offset(0),
            Buffers {
                bytes: vec![0; bytes],
                records: Vec::new(),
            },
        )
    }

    #[test]
    fn b70_bytes_of_queued_and_held_batches_stay_within_the_limit() {
        let handover = Handover::new(100);
        handover.offer(0, batch(60), Duration::ZERO).unwrap();
        let refused = handover.offer(0, batch(60), Duration::ZERO).unwrap_err();
        let held = handover.take(Duration::ZERO).unwrap();
        let refused = handover.offer(0, refused, Duration::ZERO).unwrap_err();
        drop(held);
        handover.offer(0, refused, Duration::ZERO).unwrap();
    }

    #[test]
    fn a_nudge_ends_one_wait_and_loses_nothing() {
        let handover = Handover::new(100);
        handover.nudge();
        handover.offer(0, batch(1), Duration::ZERO).unwrap();
        assert!(handover.take(Duration::from_mins(1)).is_none());
        assert!(handover.take(Duration::from_mins(1)).is_some());
    }

    #[test]
    fn a_batch_above_the_limit_passes_alone() {
        let handover = Handover::new(100);
        handover.offer(0, batch(1000), Duration::ZERO).unwrap();
        assert!(handover.offer(0, batch(1), Duration::ZERO).is_err());
        handover.clear();
        handover.offer(0, batch(1), Duration::ZERO).unwrap();
    }
}
