//! What needs the whole supervisor: changes of committed offsets, skipping lost ranges, coming to an end.

use std::collections::BTreeSet;

use tidegate_types::{PartitionId, PartitionOffsets, TimestampMillis};

use super::document::moves;
use super::{
    Action, CallError, Change, Committed, Desired, Fresh, HistoryLine, IdSource, KeepOffsets, ResetCall,
    ResetDocument, ResetKind, Supervisor,
};
use crate::group::{Call, StopWord};

/// Keys of resets that are remembered.
const REMEMBERED_RESETS: usize = 16;

impl Supervisor {
    pub(super) fn settle(&mut self, now: TimestampMillis, ids: &mut impl IdSource) {
        if self.document.reset.is_some() {
            return self.go_on_with_reset(now);
        }
        let idle = self.groups.values().all(|group| group.document.is_over());
        if !idle {
            return;
        }
        match self.document.desired {
            Desired::Stopping {
                offsets: KeepOffsets::Forget,
                ..
            } => {
                let why = "the supervisor is terminated and forgets its offsets".to_owned();
                self.begin_reset(
                    now,
                    ResetKind::Forget,
                    BTreeSet::new(),
                    PartitionOffsets::new(),
                    why,
                    ids.request_key(),
                );
            }
            Desired::Stopping {
                offsets: KeepOffsets::Keep,
                ..
            } => self.terminated(now),
            Desired::Running if self.is_recovering() => self.skip_lost(now, ids.request_key()),
            Desired::Running | Desired::Suspended | Desired::Terminated => {}
        }
    }

    fn terminated(&mut self, now: TimestampMillis) {
        self.document.desired = Desired::Terminated;
        let line = self.line(now, "terminated", String::new());
        let changes = vec![self.put_supervisor(), Change::AppendHistory(line)];
        self.store(changes);
    }

    /// All groups have ended: what is lost now is lost exactly, and skipped in one step (B21).
    fn skip_lost(&mut self, now: TimestampMillis, key: String) {
        let Some((discovery, _)) = &self.discovery else {
            return;
        };
        let ranges = self.lost.clone();
        let offsets: PartitionOffsets = ranges
            .keys()
            .filter_map(|partition| {
                discovery
                    .earliest
                    .get(*partition)
                    .map(|earliest| (*partition, earliest))
            })
            .collect();
        let partitions: BTreeSet<PartitionId> = ranges.keys().copied().collect();
        let why = "the broker has dropped these records (resetOffsetAutomatically)".to_owned();
        self.begin_reset(now, ResetKind::SkipLost { ranges }, partitions, offsets, why, key);
    }

    fn begin_reset(
        &mut self,
        now: TimestampMillis,
        kind: ResetKind,
        partitions: BTreeSet<PartitionId>,
        offsets: PartitionOffsets,
        why: String,
        key: String,
    ) {
        let who = "coordinator".to_owned();
        self.document.reset = Some(ResetDocument {
            key,
            kind,
            partitions,
            offsets,
            who,
            why,
            at: now,
        });
        self.reset_look = None;
        let change = self.put_supervisor();
        self.store(vec![change]);
        self.go_on_with_reset(now);
    }

    /// Every group is given up first, since a new generation would refuse all of them; then the offsets that were
    /// seen after that are compared and changed in one step (D34).
    pub(super) fn go_on_with_reset(&mut self, now: TimestampMillis) {
        let mut active = false;
        self.each_group(|supervisor, group| {
            if group.document.is_over() {
                return;
            }
            active = true;
            if !group.creating {
                let why = format!("group {}: the offsets are being reset", group.document.id);
                supervisor.give_up(now, group, why, StopWord::Stopped);
            }
        });
        if active {
            self.reset_look = None;
            return;
        }
        if self.reset_look.is_none() {
            self.reset_look = Some(self.later_look());
        }
        if !self.has_looked_after(self.reset_look) || !self.resetting.is_ready(now) {
            return;
        }
        let Some(reset) = self.document.reset.clone() else {
            return;
        };
        let committed = self
            .look
            .committed
            .as_ref()
            .map(|committed| committed.offsets.clone())
            .unwrap_or_default();
        if self.look.committed.is_none() && reset.offsets.is_empty() {
            // There is nothing to clear.
            return self.reset_done(now, reset, None);
        }
        let expected = committed
            .iter()
            .filter(|(partition, _)| reset.concerns(*partition))
            .collect();
        self.resetting = Call::OnItsWay;
        self.actions.push(Action::ResetOffsets(ResetCall {
            topic: self.topic(),
            partitions: reset.partitions,
            new_offsets: reset.offsets,
            expected,
            who: reset.who,
            why: reset.why,
            key: reset.key,
            stream: self
                .discovery
                .as_ref()
                .map(|(discovery, _)| discovery.stream.clone()),
        }));
    }

    pub(super) fn offsets_reset(&mut self, now: TimestampMillis, result: Result<Committed, CallError>) {
        let Some(reset) = self.document.reset.clone() else {
            return;
        };
        match result {
            Ok(committed) => {
                self.resetting = Call::Idle;
                self.reset_done(now, reset, Some(committed));
            }
            Err(CallError::NotFound(_)) => {
                self.resetting = Call::Idle;
                self.reset_done(now, reset, None);
            }
            Err(error) => {
                // Refused: somebody else moved them. Looked at anew, then tried again with the same key.
                self.resetting = self.retry(now);
                self.reset_look = Some(self.later_look());
                self.error(now, format!("resetting the offsets at the publisher: {error}"));
            }
        }
    }

    fn reset_done(&mut self, now: TimestampMillis, reset: ResetDocument, committed: Option<Committed>) {
        let before = self
            .look
            .committed
            .as_ref()
            .map(|committed| committed.offsets.clone())
            .unwrap_or_default();
        let known = self
            .discovery
            .iter()
            .flat_map(|(discovery, _)| discovery.partitions());
        let concerned: BTreeSet<PartitionId> = before
            .partitions()
            .chain(known)
            .chain(reset.partitions.iter().copied())
            .filter(|partition| reset.concerns(*partition))
            .collect();
        self.note_fresh(&reset, &concerned);
        self.document.reset = None;
        let done = &mut self.document.done_resets;
        done.push(reset.key.clone());
        let surplus = done.len().saturating_sub(REMEMBERED_RESETS);
        done.drain(..surplus);
        self.reset_look = None;
        self.stream_changed = None;
        self.lost.clear();
        self.committed_before = None;
        // The topic is looked at anew before anything starts on it.
        self.discovery = None;
        self.discover_at = now;
        match committed {
            Some(committed) => self.take_committed(committed),
            None => self.look.committed = None,
        }
        let (what, detail) = match &reset.kind {
            ResetKind::SkipLost { ranges } => {
                let ranges: Vec<_> = ranges
                    .iter()
                    .map(|(p, range)| format!("partition {p}: {range}"))
                    .collect();
                ("lost-data", format!("skipped {}", ranges.join(", ")))
            }
            ResetKind::Asked => {
                let moved = moves(&before, &reset.offsets, &concerned);
                ("reset", format!("{moved}; by {}: {}", reset.who, reset.why))
            }
            ResetKind::Forget => ("reset", "the committed offsets are forgotten".to_owned()),
        };
        let line = self.line(now, what, detail);
        let mut changes = vec![Change::AppendHistory(line)];
        if let (ResetKind::Forget, Desired::Stopping { publish, .. }) = (&reset.kind, self.document.desired) {
            self.document.desired = Desired::Stopping {
                publish,
                offsets: KeepOffsets::Keep,
            };
        }
        changes.push(self.put_supervisor());
        self.store(changes);
    }

    /// Partitions of the reset without a new offset start as the spec says; others that are found, at earliest.
    fn note_fresh(&mut self, reset: &ResetDocument, concerned: &BTreeSet<PartitionId>) {
        let cleared = concerned
            .iter()
            .copied()
            .filter(|partition| reset.offsets.get(*partition).is_none());
        self.document.fresh = match &self.document.fresh {
            _ if reset.partitions.is_empty() && reset.offsets.is_empty() => Fresh::All,
            Fresh::All => Fresh::All,
            Fresh::These(before) => {
                let kept = before
                    .iter()
                    .copied()
                    .filter(|partition| reset.offsets.get(*partition).is_none());
                Fresh::These(kept.chain(cleared).collect())
            }
        };
    }

    pub(super) fn line(&self, now: TimestampMillis, what: &str, detail: String) -> HistoryLine {
        HistoryLine {
            at: now,
            what: what.into(),
            version: self.document.version,
            detail,
            spec_json: String::new(),
        }
    }
}
