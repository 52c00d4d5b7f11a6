//! Where accepted rows go: one open segment per (sequence, interval), in lineage order.
//!
//! Promises: the answer is a function of the sequence's accepted rows in offset order and of the ids that were
//! allocated, of nothing else (I3): so replicas ask for the same ids in the same order, and a restored task asks
//! again what it asked before. A segment takes at most `max_rows_per_segment` accepted input rows: the row that
//! would be one more goes to the interval's next segment. Rows after roll-up, bytes and time play no part.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_types::{Interval, Offset, PartitionId, SegmentId, TimestampMillis};

use super::record::{ReadState, SequenceState};

/// A segment of this task, as far as it was filled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sink {
    pub segment: SegmentId,
    /// Which of its sequence and interval's segments this is, from 0.
    pub ordinal: u32,
    /// Accepted rows, before roll-up.
    pub rows: u64,
    /// First accepted record.
    pub first: Offset,
    /// Behind the last accepted record.
    pub end: Offset,
}

/// Names an open segment cheaply, until it is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SinkKey {
    pub partition: PartitionId,
    pub interval: Interval,
    pub ordinal: u32,
}

/// What to ask the publisher for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationRequest {
    pub partition: PartitionId,
    /// Time of the row that needs the segment.
    pub row: TimestampMillis,
    /// The sequence's segment before this one.
    pub previous: Option<SegmentId>,
}

/// Where a row goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    To(SinkKey),
    /// There is no open segment for it: allocate, [`Sinks::open`], ask again.
    Allocate(AllocationRequest),
}

/// The open and the full segments of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sinks {
    sequences: BTreeMap<PartitionId, SequenceState>,
    max_rows_per_segment: u64,
    /// The sink that took the row before: most rows are neighbours in time.
    last: Option<(PartitionId, usize)>,
}

impl Sinks {
    /// As they were at the moment of `read`.
    pub fn restore(read: &ReadState, max_rows_per_segment: u64) -> Self {
        Self {
            sequences: read.sequences.clone(),
            max_rows_per_segment: max_rows_per_segment.max(1),
            last: None,
        }
    }

    /// The state to be made durable.
    pub fn sequences(&self) -> &BTreeMap<PartitionId, SequenceState> {
        &self.sequences
    }

    /// Where the accepted row at `time` goes; a full segment is moved out on the way. Counts the row only in
    /// [`Sinks::take`].
    pub fn route(&mut self, partition: PartitionId, time: TimestampMillis) -> Route {
        let sequence = self.sequences.entry(partition).or_default();
        let holds = |sink: &Sink| sink.segment.interval.contains(time);
        let remembered = self
            .last
            .filter(|(owner, index)| *owner == partition && sequence.sinks.get(*index).is_some_and(holds));
        let found = match remembered {
            Some((_, index)) => Some(index),
            None => last_starting_at_or_before(&sequence.sinks, time)
                .filter(|index| sequence.sinks.get(*index).is_some_and(holds)),
        };
        let Some(index) = found else {
            self.last = None;
            return Route::Allocate(AllocationRequest {
                partition,
                row: time,
                previous: sequence.last_segment.clone(),
            });
        };
        if sequence.sinks[index].rows >= self.max_rows_per_segment {
            let full = sequence.sinks.remove(index);
            sequence.full.push(full);
            self.last = None;
            return Route::Allocate(AllocationRequest {
                partition,
                row: time,
                previous: sequence.last_segment.clone(),
            });
        }
        self.last = Some((partition, index));
        let sink = &sequence.sinks[index];
        Route::To(SinkKey {
            partition,
            interval: sink.segment.interval,
            ordinal: sink.ordinal,
        })
    }

    /// An allocated segment takes rows from now on. `first` is the record that asked for it.
    pub fn open(&mut self, partition: PartitionId, segment: SegmentId, first: Offset) -> SinkKey {
        let sequence = self.sequences.entry(partition).or_default();
        let interval = segment.interval;
        let same = |sink: &&Sink| sink.segment.interval == interval;
        let ordinal = sequence.full.iter().chain(&sequence.sinks).filter(same).count();
        let ordinal = u32::try_from(ordinal).unwrap_or(u32::MAX);
        sequence.last_segment = Some(segment.clone());
        let place =
            last_starting_at_or_before(&sequence.sinks, interval.start()).map_or(0, |index| index + 1);
        sequence.sinks.insert(
            place,
            Sink {
                segment,
                ordinal,
                rows: 0,
                first,
                end: first,
            },
        );
        self.last = None;
        SinkKey {
            partition,
            interval,
            ordinal,
        }
    }

    /// Counts one row of a record into the segment that [`Sinks::route`] named last for this partition.
    pub fn take(&mut self, key: SinkKey, offset: Offset) {
        let Some(sequence) = self.sequences.get_mut(&key.partition) else {
            return;
        };
        let is_it = |sink: &Sink| sink.ordinal == key.ordinal && sink.segment.interval == key.interval;
        let remembered = self.last.filter(|(owner, index)| {
            *owner == key.partition && sequence.sinks.get(*index).is_some_and(is_it)
        });
        let found = remembered
            .map(|(_, index)| index)
            .or_else(|| sequence.sinks.iter().position(is_it));
        if let Some(sink) = found.and_then(|index| sequence.sinks.get_mut(index)) {
            sink.rows += 1;
            sink.end = offset.next();
        }
    }

    /// The segment behind a key that took rows.
    pub fn segment(&self, key: SinkKey) -> Option<&SegmentId> {
        let sequence = self.sequences.get(&key.partition)?;
        let is_it = |sink: &&Sink| sink.ordinal == key.ordinal && sink.segment.interval == key.interval;
        sequence
            .sinks
            .iter()
            .chain(&sequence.full)
            .find(is_it)
            .map(|sink| &sink.segment)
    }
}

/// Open sinks are in order of their intervals, which do not overlap within a sequence.
fn last_starting_at_or_before(sinks: &[Sink], time: TimestampMillis) -> Option<usize> {
    sinks
        .partition_point(|sink| sink.segment.interval.start() <= time)
        .checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_types::{DataSource, SegmentVersion, StartOffsets};

    const DAY: i64 = 86_400_000;

    fn id(day: i64, partition_num: u32) -> SegmentId {
        SegmentId {
            data_source: DataSource::new("wiki").unwrap(),
            interval: Interval::new(TimestampMillis(day * DAY), TimestampMillis((day + 1) * DAY)).unwrap(),
            version: SegmentVersion::new("v").unwrap(),
            partition_num,
        }
    }

    /// Feeds rows, giving every request the next id; returns (requests' previous ids, key per row).
    fn feed(sinks: &mut Sinks, rows: &[(i64, i64)]) -> (Vec<Option<SegmentId>>, Vec<SinkKey>) {
        let (mut asked, mut went) = (Vec::new(), Vec::new());
        let mut numbers = BTreeMap::<i64, u32>::new();
        for (offset, day) in rows {
            let key = loop {
                match sinks.route(PartitionId(0), TimestampMillis(day * DAY + 5)) {
                    Route::To(key) => break key,
                    Route::Allocate(request) => {
                        let number = numbers.entry(*day).or_default();
                        asked.push(request.previous);
                        sinks.open(PartitionId(0), id(*day, *number), Offset(*offset));
                        *number += 1;
                    }
                }
            };
            sinks.take(key, Offset(*offset));
            went.push(key);
        }
        (asked, went)
    }

    #[test]
    fn more_rows_than_a_segment_holds_go_to_the_next_partition_number_of_the_interval() {
        let start = ReadState::at(&StartOffsets::from([(0, 0)]));
        let mut sinks = Sinks::restore(&start, 2);
        let (asked, went) = feed(&mut sinks, &[(0, 1), (1, 2), (2, 1), (3, 1), (7, 2), (8, 1)]);
        assert_eq!(asked, [None, Some(id(1, 0)), Some(id(2, 0))]);
        assert_eq!(
            went.iter().map(|key| key.ordinal).collect::<Vec<_>>(),
            [0, 0, 0, 1, 0, 1]
        );
        let state = &sinks.sequences()[&PartitionId(0)];
        assert_eq!(state.full.len(), 1);
        assert_eq!(
            (state.full[0].rows, state.full[0].first, state.full[0].end),
            (2, Offset(0), Offset(3))
        );
        assert_eq!(
            (state.sinks[0].segment.clone(), state.sinks[0].rows),
            (id(1, 1), 2)
        );
        assert_eq!(
            (state.sinks[1].segment.clone(), state.sinks[1].rows),
            (id(2, 0), 2)
        );
        assert_eq!(state.last_segment, Some(id(1, 1)));
    }

    #[test]
    fn publish_per_row_gives_each_row_its_own_segment() {
        let mut sinks = Sinks::restore(&ReadState::at(&StartOffsets::from([(0, 0)])), 1);
        let (asked, _) = feed(&mut sinks, &[(0, 1), (1, 1), (2, 1)]);
        assert_eq!(asked, [None, Some(id(1, 0)), Some(id(1, 1))]);
        assert_eq!(sinks.sequences()[&PartitionId(0)].full.len(), 2);
    }

    #[test]
    fn resumed_sequence_after_restart_goes_on() {
        let rows = [(0, 1), (1, 2), (2, 1), (3, 1), (7, 2), (8, 1)];
        let mut whole = Sinks::restore(&ReadState::at(&StartOffsets::from([(0, 0)])), 2);
        feed(&mut whole, &rows);
        for cut in 0..rows.len() {
            let mut read = ReadState::at(&StartOffsets::from([(0, 0)]));
            let mut before = Sinks::restore(&read, 2);
            feed(&mut before, &rows[..cut]);
            read.sequences = before.sequences().clone();
            let mut after = Sinks::restore(&read, 2);
            let mut numbers = BTreeMap::<i64, u32>::new();
            for (_, sink) in read.segments() {
                *numbers.entry(sink.segment.interval.start().0 / DAY).or_default() += 1;
            }
            for (offset, day) in &rows[cut..] {
                let key = loop {
                    match after.route(PartitionId(0), TimestampMillis(day * DAY + 5)) {
                        Route::To(key) => break key,
                        Route::Allocate(_) => {
                            let number = numbers.entry(*day).or_default();
                            after.open(PartitionId(0), id(*day, *number), Offset(*offset));
                            *number += 1;
                        }
                    }
                };
                after.take(key, Offset(*offset));
            }
            assert_eq!(after.sequences(), whole.sequences(), "cut at {cut}");
        }
    }

    #[test]
    fn an_allocated_interval_that_is_coarser_takes_all_rows_inside_it() {
        let mut sinks = Sinks::restore(&ReadState::at(&StartOffsets::from([(0, 0)])), 10);
        let mut week = id(1, 0);
        week.interval = Interval::new(TimestampMillis(0), TimestampMillis(7 * DAY)).unwrap();
        let key = sinks.open(PartitionId(0), week, Offset(0));
        for day in 0..7 {
            assert_eq!(
                sinks.route(PartitionId(0), TimestampMillis(day * DAY)),
                Route::To(key)
            );
        }
        assert!(matches!(
            sinks.route(PartitionId(0), TimestampMillis(7 * DAY)),
            Route::Allocate(_)
        ));
    }
}
