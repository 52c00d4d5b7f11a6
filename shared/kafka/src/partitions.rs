//! Where each partition stands, and the batches that are being filled.
//!
//! Promises: a position moves only by a record that went into a batch, or by an end of partition; what is said of a
//! partition comes out in the order in which the client delivered it, so that a batch is never overtaken by a later
//! one. The second batch would be taken for new, the first one then for old, and its records would be lost.

use std::collections::BTreeMap;

use rdkafka::types::RDKafkaErrorCode;
use tidegate_types::{Offset, PartitionId, TimestampMillis};

use crate::batch::{Batch, Buffers, Record};
use crate::raw::{Delivered, RawRecord};

/// By the client's number of the partition.
pub(crate) type Partitions = BTreeMap<i32, Partition>;

/// Why a partition is not being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Reading,
    /// The client found its position outside the log; the broker is being asked where the log is.
    Asking,
    /// Behind the end of the log; asked again from time to time.
    BeyondEnd {
        told: bool,
    },
    /// Before the start of the log: a seek must decide.
    Lost,
}

#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) next: Offset,
    pub(crate) standing: Standing,
    pub(crate) paused: bool,
    pub(crate) open: Option<Open>,
}

/// A batch that is being filled.
#[derive(Debug)]
pub(crate) struct Open {
    /// The position before its first record: nothing is left between the two.
    begins: Offset,
    buffers: Buffers,
}

/// What closes a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchBounds {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// What a poll brought, to be handled after it in this order.
#[derive(Debug)]
pub(crate) enum News {
    /// Full, or followed by something that must not overtake it.
    Batch(i32, Open),
    /// The partition has moved from here to there, and nothing is left between.
    Eof(i32, Offset, Offset),
    /// The position is outside the log, and the partition is [`Standing::Asking`].
    Unreadable(i32),
    Trouble {
        partition: Option<i32>,
        code: RDKafkaErrorCode,
        detail: String,
        fatal: bool,
    },
}

/// Puts one thing that the client delivered where it belongs.
pub(crate) fn deliver(
    partitions: &mut Partitions,
    delivered: Delivered<'_>,
    bounds: BatchBounds,
    spare: impl FnOnce() -> Buffers,
    news: &mut Vec<News>,
) {
    match delivered {
        Delivered::Record(record) => {
            let id = record.partition;
            let Some(partition) = partitions.get_mut(&id) else {
                return;
            };
            if let Some(full) = partition.add(&record, bounds, spare) {
                news.push(News::Batch(id, full));
            }
        }
        Delivered::Eof {
            partition: id,
            offset,
        } => {
            let Some(partition) = partitions.get_mut(&id) else {
                return;
            };
            let offset = Offset(offset);
            if offset < partition.next {
                return; // of an earlier position
            }
            partition.seal(id, news);
            // What lies between was markers, aborted or compacted away (B17, B18).
            let begins = std::mem::replace(&mut partition.next, offset);
            news.push(News::Eof(id, begins, offset));
        }
        Delivered::Failed {
            partition: Some(id),
            code: RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange,
            ..
        } => {
            if let Some(partition) = partitions.get_mut(&id) {
                partition.seal(id, news);
                partition.standing = Standing::Asking;
                news.push(News::Unreadable(id));
            }
        }
        Delivered::Failed {
            partition,
            code,
            detail,
            fatal,
        } => news.push(News::Trouble {
            partition,
            code,
            detail,
            fatal,
        }),
    }
}

impl Partition {
    pub(crate) fn at(next: Offset, paused: bool) -> Self {
        Self {
            next,
            standing: Standing::Reading,
            paused,
            open: None,
        }
    }

    /// The open batch goes out before anything that follows.
    fn seal(&mut self, id: i32, news: &mut Vec<News>) {
        news.extend(self.open.take().map(|open| News::Batch(id, open)));
    }

    /// Copies a record into the open batch and gives that back when it is full now. A record below the position was
    /// handed over before and is dropped.
    fn add(
        &mut self,
        record: &RawRecord<'_>,
        bounds: BatchBounds,
        spare: impl FnOnce() -> Buffers,
    ) -> Option<Open> {
        if record.offset < self.next.0 {
            return None;
        }
        let begins = self.next;
        let open = self.open.get_or_insert_with(|| Open {
            begins,
            buffers: spare(),
        });
        let buffers = &mut open.buffers;
        let mut keep = |bytes: Option<&[u8]>| {
            bytes.map(|bytes| {
                let start = buffers.bytes.len();
                buffers.bytes.extend_from_slice(bytes);
                start..buffers.bytes.len()
            })
        };
        let (key, value) = (keep(record.key), keep(record.value));
        buffers.records.push(Record {
            offset: Offset(record.offset),
            timestamp: (record.timestamp != -1).then_some(TimestampMillis(record.timestamp)),
            timestamp_kind: record.timestamp_kind,
            key,
            value,
        });
        self.next = Offset(record.offset).next();
        let full = buffers.records.len() >= bounds.records || buffers.bytes.len() >= bounds.bytes;
        if full { self.open.take() } else { None }
    }
}

impl Open {
    pub(crate) fn into_batch(self, partition: PartitionId) -> Batch {
        Batch::new(partition, self.begins, self.buffers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::TimestampKind;

    fn record(partition: i32, offset: i64) -> Delivered<'static> {
        Delivered::Record(RawRecord {
            partition,
            offset,
            timestamp: -1,
            timestamp_kind: TimestampKind::Missing,
            key: None,
            value: Some(b"value"),
        })
    }
    fn eof(partition: i32, offset: i64) -> Delivered<'static> {
        Delivered::Eof { partition, offset }
    }
    fn expired(partition: i32) -> Delivered<'static> {
        Delivered::Failed {
            partition: Some(partition),
            code: RDKafkaErrorCode::AutoOffsetReset,
            detail: String::new(),
            fatal: false,
        }
    }

    /// What comes out of one poll that brings all of this, with what stays open at the end: batches as
    /// `partition: begins, first..next`, in batches of three records.
    fn poll(positions: &[(i32, i64)], delivered: Vec<Delivered<'_>>) -> Vec<String> {
        let mut partitions: Partitions = positions
            .iter()
            .map(|(id, next)| (*id, Partition::at(Offset(*next), false)))
            .collect();
        let bounds = BatchBounds {
            records: 3,
            bytes: usize::MAX,
        };
        let mut news = Vec::new();
        for one in delivered {
            deliver(&mut partitions, one, bounds, Buffers::default, &mut news);
        }
        for (id, partition) in &mut partitions {
            partition.seal(*id, &mut news);
        }
        let text = |item| match item {
            News::Batch(id, open) => {
                let batch = open.into_batch(PartitionId(id));
                let (first, next) = (batch.first_offset().unwrap(), batch.next_offset().unwrap());
                format!("{id}: {}, {first}..{next}", batch.begins())
            }
            News::Eof(id, begins, offset) => format!("{id}: {begins}, end {offset}"),
            News::Unreadable(id) => format!("{id}: unreadable"),
            News::Trouble { .. } => "trouble".to_owned(),
        };
        news.into_iter().map(text).collect()
    }

    #[test]
    fn i1_an_end_of_partition_from_before_a_full_batch_does_not_let_later_records_overtake_it() {
        // The thread was held up: the end at 7, and much that was written since, come in one poll.
        let mut delivered = vec![eof(1, 7)];
        delivered.extend((7..15).map(|offset| record(1, offset)));
        assert_eq!(
            poll(&[(1, 7)], delivered),
            ["1: 7, end 7", "1: 7, 7..10", "1: 10, 10..13", "1: 13, 13..15"]
        );
    }

    #[test]
    fn i1_a_partition_that_leaves_the_log_hands_out_what_it_has_in_order() {
        let mut delivered: Vec<_> = (0..4).map(|offset| record(0, offset)).collect();
        delivered.push(expired(0));
        delivered.extend((0..2).map(|offset| record(1, offset)));
        assert_eq!(
            poll(&[(0, 0), (1, 0)], delivered),
            ["0: 0, 0..3", "0: 3, 3..4", "0: unreadable", "1: 0, 0..2"]
        );
    }

    #[test]
    fn b18_a_batch_begins_where_the_position_was_and_an_end_moves_it_over_markers() {
        let delivered = vec![
            record(0, 5),
            record(0, 8),
            eof(0, 10),
            eof(0, 6),
            record(0, 9),
            record(0, 12),
        ];
        assert_eq!(
            poll(&[(0, 4)], delivered),
            ["0: 4, 5..9", "0: 9, end 10", "0: 10, 12..13"]
        );
    }
}
