//! The publisher and its store: every call is one transaction, decided by the real decisions.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_protocol::allocate::{self, AllocationDecision, AllocationState, Chunk, Lineage};
use tidegate_protocol::publish::{
    self, CommittedRow, Grant, PublishDecision, PublishRequest, PublishState, PublishedSequence,
    RegisteredGroup, StreamId,
};
use tidegate_protocol::supervisor::{Committed, RegisterCall, ResetCall};
use tidegate_protocol::task::{AllocationRequest, Outcome, PublishAnswer, Stream};
use tidegate_types::{
    AssignmentToken, DataSource, Epoch, Generation, GroupId, Interval, Offset, OffsetRange, PartitionId,
    PartitionOffsets, SegmentId, SegmentVersion, SequenceName, StartOffsets, TimestampMillis,
};

use crate::Mutant;
use crate::log::{HOUR, Log};

/// One row: where it came from.
pub(crate) type Row = (PartitionId, Offset);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) id: SegmentId,
    pub(crate) generation: Generation,
    pub(crate) rows: Vec<Row>,
    pub(crate) served: bool,
}

/// Offsets that one generation covers, per partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Covered {
    generation: Generation,
    range: OffsetRange,
}

#[derive(Debug, Default)]
pub(crate) struct Catalog {
    committed: BTreeMap<PartitionId, Offset>,
    generation: Generation,
    initialized: bool,
    covered: BTreeMap<PartitionId, Vec<Covered>>,
    groups: BTreeMap<GroupId, RegisteredGroup>,
    published: BTreeMap<SequenceName, PublishedSequence>,
    grants: BTreeMap<SegmentId, Grant>,
    answers: BTreeMap<(SequenceName, String), SegmentId>,
    resets: BTreeMap<String, Committed>,
    mutant: Option<Mutant>,
    /// The highest epoch that was seen.
    epoch: Epoch,
    pub(crate) segments: Vec<Published>,
    /// Staged objects: key to rows.
    pub(crate) objects: BTreeMap<String, Vec<Row>>,
}

pub(crate) fn stream() -> Stream {
    Stream {
        topic: "topic".to_owned(),
        cluster_id: Default::default(),
        topic_id: Default::default(),
    }
}

fn stream_id(stream: &Stream) -> StreamId {
    StreamId {
        topic: stream.topic.clone(),
        cluster: stream.cluster_id.clone(),
        incarnation: stream.topic_id.clone(),
    }
}

/// A publish as a task sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Publish {
    pub(crate) request: PublishRequest,
}

impl Catalog {
    pub(crate) fn with(mutant: Option<Mutant>) -> Self {
        Self {
            mutant,
            ..Self::default()
        }
    }

    /// Refuses callers whose lease is over.
    pub(crate) fn admit(&mut self, epoch: Epoch) -> bool {
        if epoch < self.epoch && self.mutant != Some(Mutant::NoEpochFence) {
            return false;
        }
        self.epoch = self.epoch.max(epoch);
        true
    }

    pub(crate) fn committed(&self) -> Option<Committed> {
        self.initialized.then(|| Committed {
            stream: stream(),
            offsets: self.offsets(),
            generation: self.generation,
        })
    }

    pub(crate) fn offsets(&self) -> PartitionOffsets {
        self.committed
            .iter()
            .map(|(partition, offset)| (*partition, *offset))
            .collect()
    }

    pub(crate) fn initialize(&mut self, start: &StartOffsets) -> Committed {
        self.initialized = true;
        for (partition, offset) in start.iter() {
            if let std::collections::btree_map::Entry::Vacant(free) = self.committed.entry(partition) {
                free.insert(offset);
                self.cover(partition, offset);
            }
        }
        Committed {
            stream: stream(),
            offsets: self.offsets(),
            generation: self.generation,
        }
    }

    fn cover(&mut self, partition: PartitionId, start: Offset) {
        let range = OffsetRange { start, end: start };
        self.covered.entry(partition).or_default().push(Covered {
            generation: self.generation,
            range,
        });
    }

    pub(crate) fn reset(&mut self, call: &ResetCall) -> Result<Committed, String> {
        if let Some(done) = self.resets.get(&call.key) {
            return Ok(done.clone());
        }
        if !call.expected.matches(&self.offsets()) {
            return Err(format!(
                "expected {}, committed {}",
                call.expected,
                self.offsets()
            ));
        }
        self.generation = self.generation.next();
        let concerned: Vec<PartitionId> = self
            .committed
            .keys()
            .copied()
            .filter(|partition| call.partitions.is_empty() || call.partitions.contains(partition))
            .collect();
        for partition in concerned {
            match call.new_offsets.get(partition) {
                Some(offset) => {
                    self.committed.insert(partition, offset);
                }
                None => {
                    self.committed.remove(&partition);
                }
            }
        }
        // The generation is the supervisor's: every partition's coverage goes on in the new one.
        for (partition, offset) in self.offsets().iter() {
            self.cover(partition, offset);
        }
        let now = Committed {
            stream: stream(),
            offsets: self.offsets(),
            generation: self.generation,
        };
        self.resets.insert(call.key.clone(), now.clone());
        Ok(now)
    }

    pub(crate) fn register(&mut self, call: &RegisterCall, epoch: Epoch) -> Result<(), String> {
        let ended = self.groups.get(&call.group).is_some_and(|group| group.ended);
        if let Some(known) = self.groups.get(&call.group)
            && (known.epoch, known.revision) > (epoch, call.revision)
            && self.mutant != Some(Mutant::OvertakenRegistration)
        {
            return Err(format!("a registration of {} was overtaken", call.group));
        }
        let group = RegisteredGroup {
            id: call.group.clone(),
            base: call.base.clone(),
            generation: call.generation,
            mode: call.mode,
            topic: call.topic.clone(),
            start: call.start.clone(),
            tokens: call.tokens.iter().cloned().collect(),
            epoch,
            revision: call.revision,
            ended,
        };
        self.groups.insert(call.group.clone(), group);
        Ok(())
    }

    pub(crate) fn end_group(&mut self, group: &GroupId) {
        if let Some(group) = self.groups.get_mut(group) {
            group.ended = true;
        }
    }

    pub(crate) fn allocate(
        &mut self,
        sequence: &SequenceName,
        wanted: &AllocationRequest,
        generation: Generation,
        now: TimestampMillis,
    ) -> Option<SegmentId> {
        let row = wanted.row;
        let hour = row.0.div_euclid(HOUR);
        let preferred = Interval::new(TimestampMillis(hour * HOUR), TimestampMillis((hour + 1) * HOUR))?;
        let bucket = Interval::new(row, TimestampMillis(row.0 + 1))?;
        let data_source = DataSource::new("ds").ok()?;
        let lineage = if wanted.by_interval {
            Lineage::ByInterval
        } else {
            Lineage::After(wanted.previous.as_ref().map(ToString::to_string))
        };
        let key = (sequence.clone(), lineage.key(preferred));
        let mut chunks: Vec<Chunk> = Vec::new();
        for id in self.grants.keys().filter(|id| id.interval.overlaps(preferred)) {
            match chunks
                .iter_mut()
                .find(|chunk| chunk.interval == id.interval && chunk.version == id.version)
            {
                Some(chunk) => chunk.next_number = chunk.next_number.max(id.partition_num + 1),
                None => chunks.push(Chunk {
                    interval: id.interval,
                    version: id.version.clone(),
                    next_number: id.partition_num + 1,
                }),
            }
        }
        let state = AllocationState {
            answers: self.answers.get(&key).cloned().into_iter().collect(),
            chunks,
        };
        let request = allocate::AllocationRequest {
            data_source,
            sequence: sequence.clone(),
            lineage,
            row,
            row_bucket: bucket,
            preferred,
            finer: Vec::new(),
        };
        let version = SegmentVersion::new(now.to_string()).ok()?;
        match allocate::decide(&state, &request, &version) {
            AllocationDecision::Existing(id) => Some(id),
            AllocationDecision::New(id) => {
                let supervisor = tidegate_types::SupervisorId::new("ds").ok()?;
                let grant = Grant {
                    supervisor,
                    generation,
                    sequence: sequence.clone(),
                };
                self.grants.insert(id.clone(), grant);
                self.answers.insert(key, id.clone());
                Some(id)
            }
            AllocationDecision::Refused(_) => None,
        }
    }

    /// One transaction. The checks of I1, I2 and I4 are made here, against the log and not against the decision.
    pub(crate) fn publish(
        &mut self,
        publish: &Publish,
        log: &Log,
    ) -> Result<(PublishAnswer, &'static str), String> {
        let request = &publish.request;
        let answer = |outcome, catalog: &Self, detail: String| PublishAnswer {
            outcome,
            detail,
            committed: Some(catalog.offsets()),
            segments: Vec::new(),
            retry_after_millis: 0,
        };
        if request
            .segments
            .iter()
            .any(|segment| !self.objects.contains_key(&segment.key))
        {
            return Ok((
                answer(Outcome::BadObject, self, "an object is missing".to_owned()),
                "bad object",
            ));
        }
        let state = PublishState {
            generation: self.initialized.then_some(self.generation),
            committed: self
                .committed
                .iter()
                .map(|(partition, offset)| {
                    (
                        *partition,
                        CommittedRow {
                            offset: *offset,
                            stream: stream_id(&stream()),
                        },
                    )
                })
                .collect(),
            group: self.groups.get(&request.group).cloned(),
            open_groups: self
                .groups
                .values()
                .filter(|group| !group.ended && group.generation == self.generation)
                .cloned()
                .collect(),
            published: request
                .sequences
                .iter()
                .filter_map(|sequence| {
                    Some((sequence.name.clone(), self.published.get(&sequence.name)?.clone()))
                })
                .collect(),
            grants: request
                .segments
                .iter()
                .filter_map(|segment| Some((segment.id.clone(), self.grants.get(&segment.id)?.clone())))
                .collect(),
        };
        let mut decision = publish::decide(&state, request);
        if self.mutant == Some(Mutant::PublishWithoutCompare)
            && matches!(
                decision,
                PublishDecision::NotYet { .. }
                    | PublishDecision::PredecessorLost { .. }
                    | PublishDecision::Mismatch(_)
            )
        {
            let ends = request.sequences.iter().flat_map(|sequence| sequence.end.iter());
            decision = PublishDecision::Publish {
                offsets: ends.collect(),
            };
        }
        let detail = decision.detail();
        let (outcome, what) = match decision {
            PublishDecision::Publish { offsets } => {
                self.commit(request, &offsets, log)?;
                let what = if request.segments.is_empty() {
                    "empty publish"
                } else {
                    "published"
                };
                (Outcome::Published, what)
            }
            PublishDecision::AlreadyPublished => (Outcome::AlreadyPublished, "already published"),
            PublishDecision::NotYet { .. } => (Outcome::NotYet, "not yet"),
            PublishDecision::PredecessorLost { .. } => (Outcome::PredecessorLost, "predecessor lost"),
            PublishDecision::Mismatch(_) => (Outcome::Mismatch, "mismatch"),
            PublishDecision::Fenced(_) => (Outcome::Fenced, "fenced"),
            PublishDecision::Malformed(faults) => return Err(format!("a malformed publish: {faults:?}")),
        };
        Ok((answer(outcome, self, detail), what))
    }

    fn commit(
        &mut self,
        request: &PublishRequest,
        offsets: &PartitionOffsets,
        log: &Log,
    ) -> Result<(), String> {
        for sequence in &request.sequences {
            for (partition, start) in sequence.start.iter() {
                let end = sequence.end.get(partition).ok_or("a sequence without an end")?;
                if start != end && self.committed.get(&partition) != Some(&start) {
                    return Err(format!(
                        "I2/I4: partition {partition} published [{start}, {end}) at {:?}",
                        self.committed
                    ));
                }
            }
            self.published.insert(
                sequence.name.clone(),
                PublishedSequence {
                    generation: request.generation,
                    end: sequence.end.clone(),
                },
            );
        }
        let left_out = usize::from(self.mutant == Some(Mutant::OffsetsWithoutSegment));
        for segment in request.segments.iter().skip(left_out) {
            let rows = self
                .objects
                .get(&segment.key)
                .cloned()
                .ok_or("a missing object")?;
            if self.segments.iter().any(|published| published.id == segment.id) {
                return Err(format!("I1: segment {} is published twice", segment.id));
            }
            let published = Published {
                id: segment.id.clone(),
                generation: self.generation,
                rows,
                served: false,
            };
            self.segments.push(published);
        }
        self.check_commit(request, left_out, log)?;
        for (partition, end) in offsets.iter() {
            self.committed.insert(partition, end);
            let covered = self
                .covered
                .get_mut(&partition)
                .and_then(|ranges| ranges.last_mut());
            covered.ok_or("a partition that never started")?.range.end = end;
        }
        Ok(())
    }

    /// I1 for what is committed now: its segments hold each row of its ranges once, and no other.
    fn check_commit(&self, request: &PublishRequest, left_out: usize, log: &Log) -> Result<(), String> {
        let published = request.segments.iter().skip(left_out);
        let mut held: Vec<Row> = published
            .filter_map(|segment| self.objects.get(&segment.key))
            .flatten()
            .copied()
            .collect();
        held.sort_unstable();
        let mut wanted: Vec<Row> = Vec::new();
        for sequence in &request.sequences {
            for (partition, start) in sequence.start.iter() {
                let end = sequence.end.get(partition).unwrap_or(start);
                wanted.extend(log.rows(partition, start, end).map(|offset| (partition, offset)));
            }
        }
        wanted.sort_unstable();
        if held == wanted {
            return Ok(());
        }
        Err(format!(
            "I1: {} holds {held:?}, should hold {wanted:?}",
            request.base
        ))
    }

    /// I1: per generation and partition, each row between the recorded start and the committed offset is in exactly
    /// one segment, and no other row is in any.
    pub(crate) fn check(&self, log: &Log) -> Result<(), String> {
        let mut held: BTreeMap<(Generation, PartitionId), Vec<Offset>> = BTreeMap::new();
        for segment in &self.segments {
            for (partition, offset) in &segment.rows {
                held.entry((segment.generation, *partition))
                    .or_default()
                    .push(*offset);
            }
        }
        let mut wanted: BTreeMap<(Generation, PartitionId), BTreeSet<Offset>> = BTreeMap::new();
        for (partition, ranges) in &self.covered {
            for covered in ranges {
                wanted
                    .entry((covered.generation, *partition))
                    .or_default()
                    .extend(log.rows(*partition, covered.range.start, covered.range.end));
            }
        }
        for (key, offsets) in &mut held {
            offsets.sort_unstable();
            let wanted = wanted.remove(key).unwrap_or_default();
            if !offsets.iter().eq(wanted.iter()) {
                return Err(format!(
                    "I1: generation {} partition {}: segments hold {offsets:?}, should hold {wanted:?}",
                    key.0, key.1
                ));
            }
        }
        match wanted.iter().find(|(_, offsets)| !offsets.is_empty()) {
            Some((key, offsets)) => Err(format!(
                "I1: generation {} partition {} lost {offsets:?}",
                key.0, key.1
            )),
            None => Ok(()),
        }
    }

    /// Some published segment that is not served becomes so.
    pub(crate) fn serve_one(&mut self) {
        if let Some(segment) = self.segments.iter_mut().find(|segment| !segment.served) {
            segment.served = true;
        }
    }

    pub(crate) fn is_served(&self, id: &SegmentId) -> bool {
        self.segments
            .iter()
            .any(|segment| segment.id == *id && segment.served)
    }

    pub(crate) fn is_registered(&self, group: &GroupId, token: &AssignmentToken) -> bool {
        self.groups
            .get(group)
            .is_some_and(|group| group.tokens.contains(token))
    }
}
