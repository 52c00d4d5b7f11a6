//! The rows in memory, and what they amount to: decoding, counting and routing of one batch after the other.
//!
//! Promises: between two records, `read` and the indexes are of one moment: a record is in an index, or counted, or
//! both, exactly when `read.next` is behind it (D3).

use std::collections::HashMap;
use std::time::Instant;

use tidegate_decode::{Decoder, Layout, Outcome, Row, Unparseable};
use tidegate_kafka::Batch;
use tidegate_protocol::sequence::Sequence;
use tidegate_protocol::task::{
    Filled, GroupMode, LostRange, ParseErrorRecord, ReadState, Route, RowCounts, SinkKey, Sinks, TaskRecord,
    Ticket, Trigger,
};
use tidegate_segment::Index;
use tidegate_spec::SupervisorSpec;
use tidegate_types::{Offset, OffsetRange, PartitionId, SequenceId};

use super::allocate::{Allocator, NoSegment, Place};
use super::persist::{Job, Spill};
use super::trigger::Thresholds;

/// Bytes that an empty index takes beside its columns.
const INDEX_BYTES: u64 = 1024;
/// Bytes of a bad record that are shown.
const SAMPLE: usize = 256;
/// A record above this is refused before it is parsed; parsing takes a multiple of it in memory.
const LONGEST_RECORD: usize = 64 << 20;

/// What stopped a batch before its end. The record at `read.next` was not taken.
#[derive(Debug)]
pub(crate) enum Halt {
    NoSegment(NoSegment),
    /// More bad records than the spec tolerates.
    Budget(String),
    /// The open sequence has grown to a bound; the rest of the batch is untouched.
    Trigger(Trigger),
}

pub(crate) struct Memory {
    thresholds: Thresholds,
    /// Counts are kept per sequence.
    checkpointing: bool,
    /// Where records go, in order.
    sequences: Vec<Sequence>,
    decoder: Decoder,
    rows: Rows,
    read: ReadState,
    budget: Option<u64>,
    saved: usize,
    logs: bool,
}

/// The indexes of the open segments.
struct Rows {
    layout: Layout,
    sinks: Sinks,
    indexes: Vec<Slot>,
    by_key: HashMap<SinkKey, usize>,
    /// Where the row before went.
    last: usize,
    count: u64,
    bytes: u64,
    /// When the first of these rows came.
    since: Option<Instant>,
}

struct Slot {
    key: SinkKey,
    index: Index,
    bytes: u64,
    is_touched: bool,
}

impl Memory {
    /// As the record says. The error is one line for a person.
    pub(crate) fn restore(record: &TaskRecord, spec: &SupervisorSpec) -> Result<Self, String> {
        let bounds = tidegate_decode::TimeBounds {
            minimum: record.assignment.minimum_message_time,
            maximum: record.assignment.maximum_message_time,
        };
        let decoder = Decoder::new(&spec.data_schema, &spec.io.input_format, bounds, LONGEST_RECORD)
            .map_err(|error| format!("the spec cannot be carried out: {error}"))?;
        let checkpointing = record.mode() == GroupMode::Checkpointing;
        let rows = Rows {
            layout: decoder.layout().clone(),
            sinks: Sinks::restore(
                &record.read,
                (!checkpointing).then_some(spec.tuning.max_rows_per_segment),
            ),
            indexes: Vec::new(),
            by_key: HashMap::new(),
            last: 0,
            count: 0,
            bytes: 0,
            since: None,
        };
        Ok(Self {
            thresholds: Thresholds::of(&spec.tuning),
            checkpointing,
            sequences: record.sequences(),
            decoder,
            rows,
            read: record.read.clone(),
            budget: spec.tuning.max_parse_exceptions,
            saved: spec.tuning.max_saved_parse_exceptions as usize,
            logs: spec.tuning.log_parse_exceptions,
        })
    }

    pub(crate) fn read(&self) -> &ReadState {
        &self.read
    }
    pub(crate) fn rows(&self) -> u64 {
        self.rows.count
    }
    pub(crate) fn bytes(&self) -> u64 {
        self.rows.bytes
    }
    pub(crate) fn since(&self) -> Option<Instant> {
        self.rows.since
    }
    /// Next record of a partition.
    pub(crate) fn next(&self, partition: PartitionId) -> Option<Offset> {
        self.read.next.get(partition)
    }

    /// Where records go from now on; sequences that are not named are published and forgotten.
    pub(crate) fn set_sequences(&mut self, sequences: Vec<Sequence>) {
        self.rows
            .sinks
            .retain(|id| sequences.iter().any(|sequence| sequence.id == id));
        self.sequences = sequences;
    }
    /// Ends of sequences that are read to their end in memory, by id.
    pub(crate) fn complete(&self) -> impl Iterator<Item = SequenceId> + '_ {
        self.sequences
            .iter()
            .filter(|sequence| self.read.next.reaches(&sequence.end))
            .map(|sequence| sequence.id)
    }
    /// True when something was read of the open sequence.
    pub(crate) fn has_progress(&self) -> bool {
        let goes_beyond = |sequence: &Sequence| {
            let is_behind =
                |(partition, start)| self.read.next.get(partition).is_some_and(|next| next > start);
            sequence.is_open() && sequence.start.iter().any(is_behind)
        };
        self.checkpointing && self.sequences.iter().any(goes_beyond)
    }

    /// Takes the records of a batch below `end`, until one makes the open sequence full.
    pub(crate) fn take(
        &mut self,
        batch: &mut Batch,
        end: Option<Offset>,
        allocator: &Allocator,
    ) -> Result<(), Halt> {
        let partition = batch.partition();
        let Some(mut next) = self.read.next.get(partition) else {
            return Ok(());
        };
        let mut halt = None;
        let mut span = Span::of(&self.sequences, partition, next);
        let mut before = self.read.counts;
        let (records, mut arena) = batch.parts_mut();
        for record in records {
            if record.offset < next {
                continue; // read before
            }
            if let Some(end) = end
                && record.offset >= end
            {
                next = end; // nothing more comes below it
                break;
            }
            if record.offset >= span.end {
                self.count_for(span.id, &mut before);
                span = Span::of(&self.sequences, partition, record.offset);
            }
            let Self { decoder, rows, .. } = self;
            let mut missing = None;
            let mut filled = Filled::default();
            let value = arena.value(record);
            let bytes = value.as_ref().map_or(0, |value| value.len());
            let outcome = decoder.decode(value, |row| {
                match rows.add(span.id, partition, record.offset, bytes as u64, &row, allocator) {
                    Ok(now) => filled = now,
                    Err(why) => missing = Some(why),
                }
            });
            if let Some(missing) = missing {
                halt = Some(Halt::NoSegment(missing));
                break;
            }
            self.read.counts.bytes += bytes as u64;
            next = record.offset.next();
            if let Err(bad) = self.read.counts.note(outcome) {
                let sample = arena
                    .value(record)
                    .map(|value| &*value)
                    .map(sample)
                    .unwrap_or_default();
                if let Err(over) = self.bad_record(partition, record.offset, bad, sample) {
                    halt = Some(over);
                    break;
                }
            }
            if self.checkpointing && span.is_open {
                let in_sequence = self.rows.accepted(span.id) + self.read.counts.accepted - before.accepted;
                if let Some(trigger) = self.thresholds.reached(filled, in_sequence) {
                    halt = Some(Halt::Trigger(trigger));
                    break;
                }
            }
        }
        self.count_for(span.id, &mut before);
        self.read.next.insert(partition, next);
        self.rows.account();
        halt.map_or(Ok(()), Err)
    }

    /// Adds what was counted since `before` to the sequence.
    fn count_for(&mut self, sequence: SequenceId, before: &mut RowCounts) {
        if self.checkpointing && self.read.counts != *before {
            let counts = self
                .rows
                .sinks
                .sequence_mut(sequence)
                .counts
                .get_or_insert_default();
            counts.add(&self.read.counts.minus(before));
        }
        *before = self.read.counts;
    }

    fn bad_record(
        &mut self,
        partition: PartitionId,
        offset: Offset,
        bad: Unparseable,
        sample: String,
    ) -> Result<(), Halt> {
        let is_first = self.read.first_parse_error.is_none();
        // The first one is in the status in any case.
        if self.logs {
            tracing::warn!(%partition, %offset, field = bad.field, reason = bad.reason, "a record is no row");
        }
        let error = ParseErrorRecord {
            partition,
            offset,
            field: bad.field,
            reason: bad.reason,
            sample,
            at: crate::task::now(),
        };
        let counts = &self.read.counts;
        let bad_ones = counts.unparseable + counts.oversized;
        let over = self.budget.filter(|budget| bad_ones > *budget).map(|budget| {
            let field = if error.field.is_empty() { String::new() } else { format!(" field {:?}:", error.field) };
            Halt::Budget(format!(
                "{bad_ones} records were no rows, maxParseExceptions is {budget}; the last one is offset {offset} of \
                 partition {partition}:{field} {}",
                error.reason
            ))
        });
        if is_first {
            self.read.first_parse_error = Some(error.clone());
        }
        let saved = &mut self.read.parse_errors;
        if self.saved > 0 {
            saved.push(error);
            let surplus = saved.len().saturating_sub(self.saved);
            saved.drain(..surplus);
        }
        over.map_or(Ok(()), Err)
    }

    /// Nothing is left below `offset`.
    pub(crate) fn advance(&mut self, partition: PartitionId, offset: Offset, end: Option<Offset>) {
        let offset = end.map_or(offset, |end| offset.min(end));
        if self.read.next.get(partition).is_some_and(|next| next < offset) {
            self.read.next.insert(partition, offset);
        }
    }

    /// The broker dropped what was next; reading goes on at `low`.
    pub(crate) fn skip_lost(&mut self, partition: PartitionId, low: Offset, end: Option<Offset>) {
        let Some(next) = self.read.next.get(partition) else {
            return;
        };
        let low = end.map_or(low, |end| low.min(end));
        if next < low {
            self.read.lost.push(LostRange {
                partition,
                range: OffsetRange {
                    start: next,
                    end: low,
                },
            });
            self.read.next.insert(partition, low);
        }
    }

    /// All rows, out of memory, with the state that they belong to.
    pub(crate) fn spill(&mut self, ticket: Option<Ticket>) -> Job {
        let bytes = self.rows.bytes;
        let spills = self.rows.spill();
        self.read.sequences = self.rows.sinks.sequences().clone();
        Job {
            ticket,
            read: self.read.clone(),
            spills,
            bytes,
        }
    }
}

/// The sequence that a partition's next records belong to.
#[derive(Debug, Clone, Copy)]
struct Span {
    id: SequenceId,
    end: Offset,
    is_open: bool,
}

impl Span {
    /// Sequences follow one another without a gap; what is before them is published and is not read.
    fn of(sequences: &[Sequence], partition: PartitionId, offset: Offset) -> Self {
        let found = sequences
            .iter()
            .filter_map(|sequence| sequence.end.get(partition).map(|end| (sequence, end)))
            .find(|(_, end)| offset < *end)
            .or_else(|| {
                let last = sequences.last()?;
                Some((last, last.end.get(partition)?))
            });
        found.map_or(
            Self {
                id: SequenceId(0),
                end: Offset::OPEN,
                is_open: false,
            },
            |(sequence, end)| Self {
                id: sequence.id,
                end,
                is_open: end.is_open(),
            },
        )
    }
}

impl Rows {
    /// Rows that were accepted into a sequence before this batch.
    fn accepted(&self, sequence: SequenceId) -> u64 {
        let state = self.sinks.sequences().get(&sequence);
        state
            .and_then(|state| state.counts)
            .map_or(0, |counts| counts.accepted)
    }

    fn add(
        &mut self,
        sequence: SequenceId,
        partition: PartitionId,
        offset: Offset,
        bytes: u64,
        row: &Row<'_>,
        allocator: &Allocator,
    ) -> Result<Filled, NoSegment> {
        let key = loop {
            match self.sinks.route(sequence, row.time) {
                Route::To(key) => break key,
                Route::Allocate(wanted) => {
                    let place = Place {
                        time: row.time,
                        segment: row.segment,
                        instant: row.instant,
                    };
                    let segment = allocator.allocate(&wanted, place)?;
                    tracing::debug!(%segment, %partition, %offset, "a segment begins");
                    self.sinks.open(sequence, segment, offset);
                }
            }
        };
        let slot = self.slot(key);
        slot.index.append(partition, offset, row);
        slot.is_touched = true;
        self.count += 1;
        Ok(self.sinks.take(key, partition, offset, bytes))
    }

    fn slot(&mut self, key: SinkKey) -> &mut Slot {
        if self.indexes.get(self.last).is_none_or(|slot| slot.key != key) {
            self.last = *self.by_key.entry(key).or_insert_with(|| {
                let index = Index::new(self.layout.clone());
                self.indexes.push(Slot {
                    key,
                    index,
                    bytes: 0,
                    is_touched: true,
                });
                self.indexes.len() - 1
            });
        }
        &mut self.indexes[self.last]
    }

    /// Brings the number of bytes up to date; once per batch.
    fn account(&mut self) {
        for slot in self.indexes.iter_mut().filter(|slot| slot.is_touched) {
            let bytes = slot.index.bytes() as u64 + INDEX_BYTES;
            self.bytes = self.bytes - slot.bytes + bytes;
            slot.bytes = bytes;
            slot.is_touched = false;
        }
        if self.count > 0 && self.since.is_none() {
            self.since = Some(Instant::now());
        }
    }

    fn spill(&mut self) -> Vec<Spill> {
        let Self { sinks, indexes, .. } = self;
        let spill = |mut slot: Slot| {
            // Every key came from the sinks, which keep their segments until they are published.
            let segment = sinks.segment(slot.key)?.clone();
            Some(Spill {
                key: slot.key,
                segment,
                rows: slot.index.take(),
            })
        };
        let spills = indexes
            .drain(..)
            .filter(|slot| !slot.index.is_empty())
            .filter_map(spill)
            .collect();
        self.by_key.clear();
        (self.last, self.count, self.bytes, self.since) = (0, 0, 0, None);
        spills
    }
}

/// Counting outcomes.
trait Note {
    /// Counts a record; gives back what is wrong with it, when it is bad.
    fn note(&mut self, outcome: Outcome) -> Result<(), Unparseable>;
}

impl Note for RowCounts {
    fn note(&mut self, outcome: Outcome) -> Result<(), Unparseable> {
        let count = match outcome {
            Outcome::Accepted => &mut self.accepted,
            Outcome::Rejected => &mut self.rejected,
            Outcome::Tombstone => &mut self.tombstones,
            Outcome::Empty => &mut self.empty,
            Outcome::Oversized => {
                self.oversized += 1;
                let reason = format!("the record is larger than {LONGEST_RECORD} bytes");
                return Err(Unparseable {
                    field: String::new(),
                    reason,
                });
            }
            Outcome::Unparseable(bad) => {
                self.unparseable += 1;
                return Err(bad);
            }
        };
        *count += 1;
        Ok(())
    }
}

/// The beginning of a record as text. Parsing works in place, so escapes in it may be resolved already.
fn sample(value: &[u8]) -> String {
    String::from_utf8_lossy(&value[..value.len().min(SAMPLE)]).into_owned()
}
