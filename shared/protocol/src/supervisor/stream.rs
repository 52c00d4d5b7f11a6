//! What the broker and the publisher say: partitions, their bounds, committed offsets; and what is wrong with
//! them: another topic under the same name, ranges that are gone.

use std::collections::BTreeSet;

use tidegate_types::{Offset, OffsetRange, PartitionId, PartitionOffsets, TimestampMillis};

use super::settings::after;
use super::{
    Action, CallError, Change, Committed, Desired, Discovery, FirstStart, Fresh, Look, OnLostData, Supervisor,
};
use crate::group::{Call, GroupRun, StopWord};
use crate::mutation::{Mutation, is};
use crate::task::Stream;

/// True when both know an id and the ids differ.
fn contradicts(one: &Stream, other: &Stream) -> bool {
    let differ = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
    differ(&one.cluster_id.0, &other.cluster_id.0) || differ(&one.topic_id.0, &other.topic_id.0)
}

impl Supervisor {
    /// Asks broker and publisher when it is time, or when something waits for the answer.
    pub(super) fn look_up(&mut self, now: TimestampMillis) {
        let over = self.document.desired == Desired::Terminated
            && self.groups.is_empty()
            && self.document.reset.is_none();
        if over {
            return;
        }
        let period = self
            .document
            .settings()
            .map_or(30_000, |settings| settings.look_up_millis);
        if now >= self.discover_at && self.discover.is_ready(now) {
            self.discover = Call::OnItsWay;
            self.discover_at = after(now, period);
            self.committed_before.clone_from(&self.look.committed);
            self.actions.push(Action::Discover { topic: self.topic() });
        }
        let number = self.look.number;
        let waited_for = self
            .groups
            .values()
            .any(|group| group.look_after.is_some_and(|after| after >= number))
            || self.reset_look.is_some_and(|after| after >= number);
        if (now >= self.look_at || waited_for) && self.looking.is_ready(now) {
            self.looking = Call::OnItsWay;
            self.looks_sent += 1;
            self.look_at = after(now, period);
            self.actions.push(Action::GetCommitted { topic: self.topic() });
        }
    }

    /// A look later than this number is needed.
    pub(super) fn later_look(&self) -> u64 {
        self.looks_sent
    }
    pub(super) fn has_looked_after(&self, number: Option<u64>) -> bool {
        number.is_none_or(|number| self.look.number > number)
    }

    pub(super) fn discovered(&mut self, now: TimestampMillis, result: Result<Discovery, String>) {
        match result {
            Ok(discovery) => {
                self.discover = Call::Idle;
                self.discovery_failures = 0;
                self.stream_changed = self
                    .committed_before
                    .as_ref()
                    .and_then(|committed| changed(committed, &discovery));
                if let Some(why) = self.stream_changed.clone() {
                    self.error(now, why);
                }
                self.discovery = Some((discovery, now));
            }
            Err(why) => {
                self.discovery_failures += 1;
                self.discover = self.retry(now);
                self.discover_at = now;
                let topic = self.topic();
                self.error(now, format!("looking up topic {topic} failed: {why}"));
            }
        }
    }

    pub(super) fn committed_answered(
        &mut self,
        now: TimestampMillis,
        result: Result<Option<Committed>, CallError>,
    ) {
        if std::mem::take(&mut self.discard_look) {
            self.looking = Call::Idle;
            self.look_at = now;
            return;
        }
        match result {
            Ok(committed) => {
                self.looking = Call::Idle;
                self.look = Look {
                    committed,
                    number: self.looks_sent,
                };
                self.note_first_start();
                self.check_boundaries(now);
                self.trim_logs();
            }
            Err(CallError::NotFound(_)) => {
                self.looking = Call::Idle;
                self.look = Look {
                    committed: None,
                    number: self.looks_sent,
                };
                self.check_boundaries(now);
            }
            Err(error) => {
                self.looking = self.retry(now);
                self.error(
                    now,
                    format!("asking the publisher for the committed offsets: {error}"),
                );
            }
        }
    }

    /// Offsets that were changed by a call of ours. A look that began before tells the past and is dropped.
    pub(super) fn take_committed(&mut self, committed: Committed) {
        self.discard_look = self.looking == Call::OnItsWay;
        self.look.committed = Some(committed);
        self.look.number = self.look.number.max(1);
    }

    /// Offsets are there: the first start is behind us, even if the coordinator ended before noting it.
    fn note_first_start(&mut self) {
        let any = self
            .look
            .committed
            .as_ref()
            .is_some_and(|committed| !committed.offsets.is_empty());
        if any && self.document.fresh == Fresh::All && self.document.reset.is_none() {
            self.document.fresh = Fresh::These(BTreeSet::new());
            let change = self.put_supervisor();
            self.store(vec![change]);
        }
    }

    /// Every committed offset must be a boundary of the groups that are built on it; otherwise they can never be
    /// published and are made again (`predecessor lost`, resets by others).
    fn check_boundaries(&mut self, now: TimestampMillis) {
        let faults: Vec<(u64, String)> = self
            .groups
            .iter()
            .filter_map(|(ordinal, group)| {
                let over = group.document.is_over() || group.is_given_up();
                let why = if over { None } else { self.baseless(group) }?;
                Some((*ordinal, format!("group {}: {why}", group.document.id)))
            })
            .collect();
        for (ordinal, why) in faults {
            if let Some(mut group) = self.groups.remove(&ordinal) {
                self.give_up(now, &mut group, why, StopWord::Replaced);
                self.groups.insert(ordinal, group);
            }
        }
    }

    /// Entries of the log whose sequences are committed are not needed any more, but for the newest: it says where
    /// the first unpublished sequence starts.
    fn trim_logs(&mut self) {
        let Some(committed) = self.look.committed.clone() else {
            return;
        };
        let mut changes = Vec::new();
        for group in self.groups.values_mut() {
            let counts = !group.document.is_over() && group.document.generation == committed.generation;
            if !counts || !group.note_published(&committed.offsets) {
                continue;
            }
            let below = group.published.as_ref().map(|entry| entry.sequence);
            let base = group.document.base_sequence_name.clone();
            if below.is_some_and(|below| below.0 > 0) {
                changes.push(Change::TrimLog { base, below });
            }
        }
        if !changes.is_empty() {
            self.store(changes);
        }
    }

    fn baseless(&self, group: &GroupRun) -> Option<String> {
        let Some(committed) = &self.look.committed else {
            return Some("the publisher has no committed offsets any more".into());
        };
        if committed.generation != group.document.generation {
            let (held, own) = (committed.generation, group.document.generation);
            return Some(format!(
                "its generation {own} is over, the offsets are of generation {held}"
            ));
        }
        let partition = group
            .partitions()
            .find(|partition| !self.is_boundary(*partition, committed))?;
        let at = committed
            .offsets
            .get(partition)
            .map_or_else(|| "nowhere".into(), |at| at.to_string());
        Some(format!(
            "partition {partition} is committed up to {at}, where no group of it starts or ends"
        ))
    }

    fn is_boundary(&self, partition: PartitionId, committed: &Committed) -> bool {
        let Some(at) = committed.offsets.get(partition) else {
            return false;
        };
        self.groups
            .values()
            .filter(|group| !group.document.is_over())
            .any(|group| group.is_boundary(partition, at))
    }

    /// Partitions that no group reads and whose next record is gone (B21).
    pub(super) fn find_lost(&mut self) {
        self.lost.clear();
        let Some((discovery, _)) = &self.discovery else {
            return;
        };
        if self.stream_changed.is_some() || self.document.reset.is_some() {
            return;
        }
        for partition in discovery.partitions() {
            let (Some(start), Some(earliest)) =
                (self.next_start(partition), discovery.earliest.get(partition))
            else {
                continue;
            };
            if start < earliest {
                self.lost.insert(partition, OffsetRange { start, end: earliest });
            }
        }
    }

    /// Where the next group of this partition starts: the end of the last one, else the committed offset. `None`
    /// while a group reads it, while a group of it is being given up, or before anything is committed.
    pub(super) fn next_start(&self, partition: PartitionId) -> Option<Offset> {
        let mut groups = self.groups.values().rev();
        let last = groups.find(|group| {
            !group.document.is_over()
                && group.document.has(partition)
                && !(is(Mutation::StartAtCommitted) && group.is_pending())
        });
        match last {
            Some(group) => group.end().and_then(|end| end.get(partition)),
            None => self
                .look
                .committed
                .as_ref()
                .and_then(|committed| committed.offsets.get(partition)),
        }
    }

    /// All groups are ended, then lost ranges are skipped in one step (B21).
    pub(super) fn is_recovering(&self) -> bool {
        let skips = self
            .document
            .settings()
            .is_some_and(|settings| settings.on_lost_data == OnLostData::Skip);
        skips && !self.lost.is_empty()
    }

    /// A partition of this group whose next record is gone, with the range.
    pub(super) fn unreadable(&self, group: &GroupRun) -> Option<(PartitionId, OffsetRange)> {
        let (discovery, _) = self.discovery.as_ref()?;
        let gone = |from: &PartitionOffsets| {
            from.iter().find_map(|(partition, start)| {
                let earliest = discovery.earliest.get(partition)?;
                let open = group
                    .end()
                    .is_none_or(|end| end.get(partition).is_some_and(|end| start < end));
                (start < earliest && open).then_some((partition, OffsetRange { start, end: earliest }))
            })
        };
        gone(&group.position())
    }

    /// The same for a new task of this group, which would begin at its start.
    pub(super) fn unreadable_from_start(&self, group: &GroupRun) -> Option<(PartitionId, OffsetRange)> {
        let mut fresh = group.clone();
        fresh.replicas.clear();
        self.unreadable(&fresh)
    }

    /// First offsets of partitions that have none (I2). Partitions found later start at earliest.
    pub(super) fn initialize_offsets(&mut self, now: TimestampMillis) {
        let (Some((discovery, _)), Some(settings)) = (&self.discovery, self.document.settings()) else {
            return;
        };
        let committed = self.look.committed.as_ref();
        let has = |partition| committed.is_some_and(|committed| committed.offsets.get(partition).is_some());
        let start: PartitionOffsets = discovery
            .partitions()
            .filter(|partition| !has(*partition))
            .filter_map(|partition| {
                let from = match settings.first_start {
                    FirstStart::Latest if self.document.fresh.has(partition) => &discovery.latest,
                    FirstStart::Latest | FirstStart::Earliest => &discovery.earliest,
                };
                from.get(partition).map(|offset| (partition, offset))
            })
            .collect();
        if !start.is_empty() && self.initialize.is_ready(now) {
            self.initialize = Call::OnItsWay;
            self.actions.push(Action::InitializeOffsets {
                stream: discovery.stream.clone(),
                start,
            });
        }
    }

    pub(super) fn offsets_initialized(&mut self, now: TimestampMillis, result: Result<Committed, CallError>) {
        match result {
            Ok(committed) => {
                self.initialize = Call::Idle;
                let left: BTreeSet<PartitionId> = match &self.document.fresh {
                    Fresh::All => BTreeSet::new(),
                    Fresh::These(partitions) => partitions
                        .iter()
                        .copied()
                        .filter(|p| committed.offsets.get(*p).is_none())
                        .collect(),
                };
                let fresh = Fresh::These(left);
                self.take_committed(committed);
                if self.document.fresh != fresh {
                    self.document.fresh = fresh;
                    let change = self.put_supervisor();
                    self.store(vec![change]);
                }
            }
            Err(error) => {
                self.initialize = self.retry(now);
                self.error(
                    now,
                    format!("writing the first offsets at the publisher: {error}"),
                );
            }
        }
    }
}

/// Why the topic is not the one that was read before; `None` when it is (B23).
fn changed(committed: &Committed, now: &Discovery) -> Option<String> {
    let topic = &now.stream.topic;
    let what_to_do = "nothing is read until the offsets are reset: `tidegate supervisor reset <id>`";
    if contradicts(&committed.stream, &now.stream) {
        return Some(format!(
            "topic {topic} is not the one that was read before (cluster id {:?} was {:?}, topic id {:?} was {:?}): it was \
             deleted and made again, or the brokers are others; {what_to_do}",
            now.stream.cluster_id.0,
            committed.stream.cluster_id.0,
            now.stream.topic_id.0,
            committed.stream.topic_id.0,
        ));
    }
    for (partition, offset) in committed.offsets.iter() {
        let Some(latest) = now.latest.get(partition) else {
            return Some(format!(
                "partition {partition} of topic {topic} is gone; {what_to_do}"
            ));
        };
        if latest < offset {
            return Some(format!(
                "partition {partition} of topic {topic} ends at {latest}, before the committed offset {offset}: the topic \
                 was made again or cut; {what_to_do}"
            ));
        }
    }
    None
}
