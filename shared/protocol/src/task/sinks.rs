//! Where accepted rows go: one open segment per (sequence, interval).
//!
//! Promises: the answer is a function of the sequence's accepted rows and of the ids that were allocated, of
//! nothing else (I3). Legacy mode: ids in lineage order, and a segment takes at most `max_rows_per_segment` accepted
//! input rows, so that replicas ask for the same ids in the same order; rows after roll-up, bytes and time play no
//! part. Checkpointing mode: one segment per interval and sequence, whatever the order of partitions; a sequence
//! that grows too large is closed, not split.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidegate_types::{Interval, Offset, PartitionId, SegmentId, SequenceId, TimestampMillis};

use super::part::Extent;
use super::record::{ReadState, SequenceState};

/// A segment of this task, as far as it was filled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sink {
    pub segment: SegmentId,
    /// Which of its sequence and interval's segments this is, from 0.
    pub ordinal: u32,
    /// Accepted rows, before roll-up.
    pub rows: u64,
    /// Bytes of the records that these rows came from; counted in checkpointing mode.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bytes: u64,
    #[serde(flatten)]
    pub extent: Extent,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// Names an open segment cheaply, until it is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SinkKey {
    pub sequence: SequenceId,
    pub interval: Interval,
    pub ordinal: u32,
}

/// What to ask the publisher for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllocationRequest {
    pub sequence: SequenceId,
    /// Time of the row that needs the segment.
    pub row: TimestampMillis,
    /// Legacy mode: the sequence's segment before this one.
    pub previous: Option<SegmentId>,
    /// Checkpointing mode: the interval and the sequence are the whole key.
    pub by_interval: bool,
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
    sequences: BTreeMap<SequenceId, SequenceState>,
    /// Accepted rows at which a segment is full; `None` = never (checkpointing).
    full_at: Option<u64>,
    /// The sink that took the row before: most rows are neighbours in time.
    last: Option<(SequenceId, usize)>,
}

/// How large the segment is that took a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filled {
    pub rows: u64,
    pub bytes: u64,
}

impl Sinks {
    /// As they were at the moment of `read`. `full_at`: legacy mode's `max_rows_per_segment`.
    pub fn restore(read: &ReadState, full_at: Option<u64>) -> Self {
        Self {
            sequences: read.sequences.clone(),
            full_at: full_at.map(|rows| rows.max(1)),
            last: None,
        }
    }

    /// The state to be made durable.
    pub fn sequences(&self) -> &BTreeMap<SequenceId, SequenceState> {
        &self.sequences
    }
    /// One sequence, made when it is new.
    pub fn sequence_mut(&mut self, sequence: SequenceId) -> &mut SequenceState {
        self.sequences.entry(sequence).or_default()
    }
    /// Forgets sequences that nothing is read for any more.
    pub fn retain(&mut self, keep: impl Fn(SequenceId) -> bool) {
        self.sequences.retain(|sequence, _| keep(*sequence));
        self.last = None;
    }

    /// Where the accepted row at `time` goes; a full segment is moved out on the way. Counts the row only in
    /// [`Sinks::take`].
    pub fn route(&mut self, id: SequenceId, time: TimestampMillis) -> Route {
        let by_interval = self.full_at.is_none();
        let sequence = self.sequences.entry(id).or_default();
        let holds = |sink: &Sink| sink.segment.interval.contains(time);
        let remembered = self
            .last
            .filter(|(owner, index)| *owner == id && sequence.sinks.get(*index).is_some_and(holds));
        let found = match remembered {
            Some((_, index)) => Some(index),
            None => last_starting_at_or_before(&sequence.sinks, time)
                .filter(|index| sequence.sinks.get(*index).is_some_and(holds)),
        };
        let Some(index) = found else {
            self.last = None;
            return Route::Allocate(AllocationRequest {
                sequence: id,
                row: time,
                previous: sequence.last_segment.clone().filter(|_| !by_interval),
                by_interval,
            });
        };
        if self
            .full_at
            .is_some_and(|full| sequence.sinks[index].rows >= full)
        {
            let full = sequence.sinks.remove(index);
            sequence.full.push(full);
            self.last = None;
            return Route::Allocate(AllocationRequest {
                sequence: id,
                row: time,
                previous: sequence.last_segment.clone(),
                by_interval,
            });
        }
        self.last = Some((id, index));
        let sink = &sequence.sinks[index];
        Route::To(SinkKey {
            sequence: id,
            interval: sink.segment.interval,
            ordinal: sink.ordinal,
        })
    }

    /// An allocated segment takes rows from now on. `first` is the record that asked for it.
    pub fn open(&mut self, id: SequenceId, segment: SegmentId, first: Offset) -> SinkKey {
        let by_interval = self.full_at.is_none();
        let sequence = self.sequences.entry(id).or_default();
        let interval = segment.interval;
        let same = |sink: &&Sink| sink.segment.interval == interval;
        let ordinal = sequence.full.iter().chain(&sequence.sinks).filter(same).count();
        let ordinal = u32::try_from(ordinal).unwrap_or(u32::MAX);
        if !by_interval {
            sequence.last_segment = Some(segment.clone());
        }
        let place =
            last_starting_at_or_before(&sequence.sinks, interval.start()).map_or(0, |index| index + 1);
        let extent = if by_interval {
            Extent::Many { ranges: Vec::new() }
        } else {
            Extent::One { first, end: first }
        };
        sequence.sinks.insert(
            place,
            Sink {
                segment,
                ordinal,
                rows: 0,
                bytes: 0,
                extent,
            },
        );
        self.last = None;
        SinkKey {
            sequence: id,
            interval,
            ordinal,
        }
    }

    /// Counts one row of a record into the segment that [`Sinks::route`] named last for this sequence.
    pub fn take(&mut self, key: SinkKey, partition: PartitionId, offset: Offset, bytes: u64) -> Filled {
        let counts_bytes = self.full_at.is_none();
        let Some(sequence) = self.sequences.get_mut(&key.sequence) else {
            return Filled::default();
        };
        let is_it = |sink: &Sink| sink.ordinal == key.ordinal && sink.segment.interval == key.interval;
        let remembered = self
            .last
            .filter(|(owner, index)| *owner == key.sequence && sequence.sinks.get(*index).is_some_and(is_it));
        let found = remembered
            .map(|(_, index)| index)
            .or_else(|| sequence.sinks.iter().position(is_it));
        let Some(sink) = found.and_then(|index| sequence.sinks.get_mut(index)) else {
            return Filled::default();
        };
        sink.rows += 1;
        if counts_bytes {
            sink.bytes += bytes;
        }
        sink.extent.note(partition, offset);
        Filled {
            rows: sink.rows,
            bytes: sink.bytes,
        }
    }

    /// The segment behind a key that took rows.
    pub fn segment(&self, key: SinkKey) -> Option<&SegmentId> {
        let sequence = self.sequences.get(&key.sequence)?;
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
    use super::super::record::GroupMode;
    use super::*;
    use tidegate_types::{DataSource, SegmentVersion, StartOffsets};

    const DAY: i64 = 86_400_000;

    fn nothing_read() -> ReadState {
        ReadState::at(&StartOffsets::from([(0, 0)]), GroupMode::Legacy)
    }

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
                match sinks.route(SequenceId(0), TimestampMillis(day * DAY + 5)) {
                    Route::To(key) => break key,
                    Route::Allocate(request) => {
                        let number = numbers.entry(*day).or_default();
                        asked.push(request.previous);
                        sinks.open(SequenceId(0), id(*day, *number), Offset(*offset));
                        *number += 1;
                    }
                }
            };
            sinks.take(key, PartitionId(0), Offset(*offset), 0);
            went.push(key);
        }
        (asked, went)
    }

    #[test]
    fn more_rows_than_a_segment_holds_go_to_the_next_partition_number_of_the_interval() {
        let start = nothing_read();
        let mut sinks = Sinks::restore(&start, Some(2));
        let (asked, went) = feed(&mut sinks, &[(0, 1), (1, 2), (2, 1), (3, 1), (7, 2), (8, 1)]);
        assert_eq!(asked, [None, Some(id(1, 0)), Some(id(2, 0))]);
        assert_eq!(
            went.iter().map(|key| key.ordinal).collect::<Vec<_>>(),
            [0, 0, 0, 1, 0, 1]
        );
        let state = &sinks.sequences()[&SequenceId(0)];
        assert_eq!(state.full.len(), 1);
        assert_eq!(
            (state.full[0].rows, state.full[0].extent.clone()),
            (
                2,
                Extent::One {
                    first: Offset(0),
                    end: Offset(3)
                }
            )
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
        let mut sinks = Sinks::restore(&nothing_read(), Some(1));
        let (asked, _) = feed(&mut sinks, &[(0, 1), (1, 1), (2, 1)]);
        assert_eq!(asked, [None, Some(id(1, 0)), Some(id(1, 1))]);
        assert_eq!(sinks.sequences()[&SequenceId(0)].full.len(), 2);
    }

    #[test]
    fn resumed_sequence_after_restart_goes_on() {
        let rows = [(0, 1), (1, 2), (2, 1), (3, 1), (7, 2), (8, 1)];
        let mut whole = Sinks::restore(&nothing_read(), Some(2));
        feed(&mut whole, &rows);
        for cut in 0..rows.len() {
            let mut read = nothing_read();
            let mut before = Sinks::restore(&read, Some(2));
            feed(&mut before, &rows[..cut]);
            read.sequences = before.sequences().clone();
            let mut after = Sinks::restore(&read, Some(2));
            let mut numbers = BTreeMap::<i64, u32>::new();
            for (_, sink) in read.segments() {
                *numbers.entry(sink.segment.interval.start().0 / DAY).or_default() += 1;
            }
            for (offset, day) in &rows[cut..] {
                let key = loop {
                    match after.route(SequenceId(0), TimestampMillis(day * DAY + 5)) {
                        Route::To(key) => break key,
                        Route::Allocate(_) => {
                            let number = numbers.entry(*day).or_default();
                            after.open(SequenceId(0), id(*day, *number), Offset(*offset));
                            *number += 1;
                        }
                    }
                };
                after.take(key, PartitionId(0), Offset(*offset), 0);
            }
            assert_eq!(after.sequences(), whole.sequences(), "cut at {cut}");
        }
    }

    #[test]
    fn an_allocated_interval_that_is_coarser_takes_all_rows_inside_it() {
        let mut sinks = Sinks::restore(&nothing_read(), Some(10));
        let mut week = id(1, 0);
        week.interval = Interval::new(TimestampMillis(0), TimestampMillis(7 * DAY)).unwrap();
        let key = sinks.open(SequenceId(0), week, Offset(0));
        for day in 0..7 {
            assert_eq!(
                sinks.route(SequenceId(0), TimestampMillis(day * DAY)),
                Route::To(key)
            );
        }
        assert!(matches!(
            sinks.route(SequenceId(0), TimestampMillis(7 * DAY)),
            Route::Allocate(_)
        ));
    }

    #[test]
    fn b08_in_checkpointing_mode_the_order_of_partitions_changes_neither_requests_nor_segments() {
        let start = ReadState::at(&StartOffsets::from([(0, 0), (1, 0)]), GroupMode::Checkpointing);
        let rows = [(0, 0, 1), (0, 1, 2), (1, 0, 2), (1, 1, 1), (1, 2, 1)];
        let mut other_order = rows;
        other_order.reverse();
        other_order.sort_by_key(|(partition, offset, _)| (-partition, *offset));
        let feed = |rows: &[(i32, i64, i64)]| {
            let mut sinks = Sinks::restore(&start, None);
            let mut asked = std::collections::BTreeSet::new();
            for (partition, offset, day) in rows {
                let key = loop {
                    match sinks.route(SequenceId(3), TimestampMillis(day * DAY + 5)) {
                        Route::To(key) => break key,
                        Route::Allocate(request) => {
                            assert_eq!((request.previous.as_ref(), request.by_interval), (None, true));
                            assert!(asked.insert(*day), "one segment per interval and sequence");
                            sinks.open(SequenceId(3), id(*day, 0), Offset(*offset));
                        }
                    }
                };
                sinks.take(key, PartitionId(*partition), Offset(*offset), 10);
            }
            sinks.sequences().clone()
        };
        let one = feed(&rows);
        assert_eq!(one, feed(&other_order));
        let sinks = &one[&SequenceId(3)].sinks;
        assert_eq!((sinks[0].rows, sinks[0].bytes), (3, 30));
        assert_eq!(
            sinks[0].extent.offsets(SequenceId(3)),
            (
                StartOffsets::from([(0, 0), (1, 1)]),
                StartOffsets::from([(0, 1), (1, 3)])
            )
        );
    }
}
