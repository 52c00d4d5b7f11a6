//! Records as they are handed over: the bytes of a whole batch in one arena, copied once out of the client.

use std::ops::Range;
use std::sync::Arc;

use tidegate_types::{Offset, PartitionId, TimestampMillis};

use crate::handover::Handover;

/// Who stamped a record (B28).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TimestampKind {
    /// The producer.
    Create,
    /// The broker, when it appended.
    LogAppend,
    /// Nobody.
    Missing,
}

/// One record of a batch; its bytes are in the batch's arena.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub offset: Offset,
    /// `None` when the record has no timestamp (-1 in Kafka, B28).
    pub timestamp: Option<TimestampMillis>,
    pub timestamp_kind: TimestampKind,
    pub(crate) key: Option<Range<usize>>,
    pub(crate) value: Option<Range<usize>>,
}

/// Storage of a batch, used again after it.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    pub(crate) bytes: Vec<u8>,
    pub(crate) records: Vec<Record>,
}

/// Records of one partition, in offset order, each offset above the last (gaps are normal).
///
/// While a batch lives its bytes count against the reader's budget; drop it as soon as its rows are built.
#[derive(Debug)]
pub struct Batch {
    partition: PartitionId,
    begins: Offset,
    buffers: Buffers,
    reserved: usize,
    home: Option<Arc<Handover>>,
}

impl Batch {
    pub(crate) fn new(partition: PartitionId, begins: Offset, buffers: Buffers) -> Self {
        Self {
            partition,
            begins,
            buffers,
            reserved: 0,
            home: None,
        }
    }
    /// Bytes that this batch holds in memory.
    pub(crate) fn size(&self) -> usize {
        self.buffers.bytes.len() + self.buffers.records.len() * size_of::<Record>()
    }
    pub(crate) fn reserve(&mut self, home: Arc<Handover>, bytes: usize) {
        self.home = Some(home);
        self.reserved = bytes;
    }
    pub fn partition(&self) -> PartitionId {
        self.partition
    }
    /// The reader's position before this batch: no record is left between it and the first one.
    pub fn begins(&self) -> Offset {
        self.begins
    }
    pub fn len(&self) -> usize {
        self.buffers.records.len()
    }
    pub fn is_empty(&self) -> bool {
        self.buffers.records.is_empty()
    }
    pub fn records(&self) -> &[Record] {
        &self.buffers.records
    }
    /// Offset of the first record; `None` for an empty batch.
    pub fn first_offset(&self) -> Option<Offset> {
        self.buffers.records.first().map(|record| record.offset)
    }
    /// The offset behind the last record; `None` for an empty batch.
    pub fn next_offset(&self) -> Option<Offset> {
        self.buffers.records.last().map(|record| record.offset.next())
    }
    /// The key of a record; `None` when it has none.
    pub fn key(&self, record: &Record) -> Option<&[u8]> {
        record.key.clone().and_then(|range| self.buffers.bytes.get(range))
    }
    /// The value of a record; `None` for a tombstone, which is not an empty value (B01).
    pub fn value(&self, record: &Record) -> Option<&[u8]> {
        record
            .value
            .clone()
            .and_then(|range| self.buffers.bytes.get(range))
    }
    /// Records together with the bytes, for parsers that work in place.
    pub fn parts_mut(&mut self) -> (&[Record], ArenaMut<'_>) {
        (&self.buffers.records, ArenaMut(&mut self.buffers.bytes))
    }
}

/// The bytes of a batch, writable.
#[derive(Debug)]
pub struct ArenaMut<'a>(&'a mut [u8]);

impl ArenaMut<'_> {
    /// The value of a record of the same batch; `None` for a tombstone.
    pub fn value(&mut self, record: &Record) -> Option<&mut [u8]> {
        record.value.clone().and_then(|range| self.0.get_mut(range))
    }
    /// The key of a record of the same batch; `None` when it has none.
    pub fn key(&mut self, record: &Record) -> Option<&mut [u8]> {
        record.key.clone().and_then(|range| self.0.get_mut(range))
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        if let Some(home) = self.home.take() {
            home.take_back(std::mem::take(&mut self.buffers), self.reserved);
        }
    }
}
