//! Reading: how it begins, what the reader tells, when it is held back.

use tidegate_types::{OffsetRange, PartitionId, PartitionOffsets, TimestampMillis};

use super::event::{LocalState, Refusal, TaskAction, Ticket, Trigger};
use super::machine::{Exit, Life, TaskMachine};
use super::part::Part;
use super::record::Snapshot;

/// Parts that may wait to be published before reading waits for them. The disk is bounded by its own limit; this
/// bounds the record and the number of files.
const MAX_WAITING_PARTS: usize = 16;

impl TaskMachine {
    pub(super) fn opened(
        &mut self,
        now: TimestampMillis,
        local: LocalState,
    ) -> Result<Vec<TaskAction>, Refusal> {
        let Life::Starting { pause } = self.life else {
            return Err(self.not_expected("a folder"));
        };
        let mut actions = Vec::new();
        let is_published = self.record.unpublished().next().is_none();
        match local {
            LocalState::Intact => {}
            LocalState::MergedLost | LocalState::Lost(_) if is_published => {} // only handoffs are left
            LocalState::MergedLost => {
                for part in self.record.parts.iter_mut().filter(|part| !part.is_published()) {
                    part.forget_files();
                }
                actions.push(TaskAction::Save);
            }
            LocalState::Lost(why) => {
                self.record.forget_rows();
                self.record.alert =
                    format!("local rows were not usable ({why}); they are read again from the start");
                self.next = self.record.read.next.clone();
                actions.extend([TaskAction::Save, TaskAction::DiscardRows]);
            }
        }
        if !is_published && self.record.first_read.is_none() {
            self.record.first_read = Some(now);
            actions.push(TaskAction::Save);
        }
        if pause && !self.record.is_finishing() {
            self.life = Life::Paused;
        } else {
            actions.extend(self.read_on());
        }
        actions.push(TaskAction::Report);
        Ok(actions)
    }

    /// Reads on, towards the end when it is known; or holds when too much waits to be published.
    pub(super) fn read_on(&mut self) -> Vec<TaskAction> {
        self.wish = None;
        let is_finishing = self.record.is_finishing();
        self.life = if is_finishing {
            Life::Finishing
        } else {
            Life::Reading { pausing: None }
        };
        if self.record.is_all_read() {
            return Vec::new();
        }
        self.held = !is_finishing && self.is_too_far_ahead();
        if self.held {
            let ticket = self.ticket();
            return vec![TaskAction::StandStill { ticket }];
        }
        vec![TaskAction::Read {
            until: self.record.end().map(|decision| decision.end.clone()),
            sequences: self.record.sequences(),
        }]
    }

    /// Parts that have an end: those that are read to it, and those that still need the reader.
    fn closed_parts(&self) -> (usize, usize) {
        let ends = self.record.unpublished().filter_map(|part| part.end.as_ref());
        let (read, behind): (Vec<_>, Vec<_>) = ends.partition(|decision| self.next.reaches(&decision.end));
        (read.len(), behind.len())
    }
    fn is_too_far_ahead(&self) -> bool {
        let (read, behind) = self.closed_parts();
        behind == 0 && read >= MAX_WAITING_PARTS
    }

    /// A part was published: a reader that was held goes on.
    pub(super) fn let_go(&mut self, actions: &mut Vec<TaskAction>) {
        if self.held && !self.is_too_far_ahead() && self.life == (Life::Reading { pausing: None }) {
            actions.extend(self.read_on());
        }
    }

    pub(super) fn advance(&mut self, next: &PartitionOffsets) {
        self.next = PartitionOffsets::max(&self.next, next);
        let Self { next, beyond_end, .. } = self;
        beyond_end
            .retain(|partition, (waiting, _)| next.get(*partition).is_some_and(|next| next <= *waiting));
    }

    pub(super) fn stood_still(&mut self, ticket: Ticket, next: &PartitionOffsets) -> Vec<TaskAction> {
        match self.life {
            Life::Reading {
                pausing: Some(ordered),
            } if ordered == ticket => {
                self.advance(next);
                self.life = Life::Paused;
                vec![TaskAction::Report]
            }
            _ => Vec::new(), // taken back meanwhile
        }
    }

    /// The reader stands: the coordinator is asked, by every report, until it says where the sequence ends, or
    /// that reading goes on.
    pub(super) fn triggered(&mut self, trigger: Trigger, next: &PartitionOffsets) -> Vec<TaskAction> {
        let Life::Reading { .. } = self.life else {
            return Vec::new(); // paused meanwhile, or finishing: the reader was told what to do
        };
        self.advance(next);
        if self.has_progress() {
            self.wish = Some(trigger);
            self.life = Life::Paused;
            return vec![TaskAction::Report];
        }
        if self.life == (Life::Reading { pausing: None }) {
            return self.read_on();
        }
        Vec::new()
    }

    /// Something was read of the open sequence.
    fn has_progress(&self) -> bool {
        let goes_beyond = |part: &Part| {
            part.start
                .iter()
                .any(|(partition, start)| self.next.get(partition).is_some_and(|next| next > start))
        };
        self.is_checkpointing() && self.record.open_part().is_some_and(goes_beyond)
    }

    /// When the open sequence has its full age. `None` while its period does not run.
    pub(super) fn period_ends(&self) -> Option<TimestampMillis> {
        let period = self.settings.handoff_period_millis?;
        let open = self.record.open_part()?;
        let runs = self.is_checkpointing() && self.life == (Life::Reading { pausing: None }) && !self.held;
        runs.then(|| later(open.opened_at, period))
    }

    /// The time trigger. A sequence without a record begins anew: nothing is closed for nothing.
    pub(super) fn period_is_over(&mut self, now: TimestampMillis) -> Vec<TaskAction> {
        if self.period_ends().is_none_or(|ends| now < ends) {
            return Vec::new();
        }
        if self.has_progress() {
            let ticket = self.ticket();
            self.wish = Some(Trigger::Period);
            self.life = Life::Reading {
                pausing: Some(ticket),
            };
            return vec![TaskAction::StandStill { ticket }];
        }
        if let Some(open) = self.record.parts.last_mut() {
            open.opened_at = now;
        }
        Vec::new()
    }

    pub(super) fn persisted(
        &mut self,
        now: TimestampMillis,
        ticket: Option<Ticket>,
        snapshot: Snapshot,
    ) -> Result<Vec<TaskAction>, Refusal> {
        let may_come =
            matches!(self.life, Life::Stopping { .. }) || (self.is_at_work() && !self.reading_is_over);
        if !may_come {
            return Err(self.not_expected("a persist"));
        }
        let unknown = std::mem::take(&mut self.record.read.unknown);
        self.record.read = snapshot.read;
        self.record.read.unknown = unknown;
        self.record.runs.extend(snapshot.runs);
        if self.is_checkpointing() {
            // The reader forgets published sequences a little later than the record.
            let gone: Vec<_> = {
                let live = |id| self.record.part(id).is_some_and(|part| !part.is_published());
                self.record
                    .read
                    .sequences
                    .keys()
                    .copied()
                    .filter(|id| !live(*id))
                    .collect()
            };
            self.record.read.sequences.retain(|id, _| !gone.contains(id));
        }
        let read = self.record.read.next.clone();
        self.advance(&read);
        if ticket.is_some() && ticket == self.persisting {
            self.persisting = None;
        }
        let mut actions = vec![TaskAction::Save];
        if let Life::Stopping {
            ticket: ordered,
            exit,
        } = self.life
            && ticket == Some(ordered)
        {
            match exit {
                Exit::Leave => {
                    self.life = Life::Left;
                    actions.extend([TaskAction::StopWork, TaskAction::Leave]);
                }
                Exit::End(reason) => return Ok(self.end(now, reason.ending(), String::new(), true)),
            }
        }
        Ok(actions)
    }

    pub(super) fn out_of_range(&mut self, partition: PartitionId, lost: OffsetRange) -> Vec<TaskAction> {
        if self.expired.insert(partition, lost) == Some(lost) {
            return Vec::new();
        }
        vec![TaskAction::Report]
    }
}

pub(super) fn later(now: TimestampMillis, millis: u64) -> TimestampMillis {
    TimestampMillis(now.0.saturating_add(i64::try_from(millis).unwrap_or(i64::MAX)))
}
