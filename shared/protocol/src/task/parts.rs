//! From "the part has an end" to "the catalog has it": persist, merge, upload, publish. One part after the other
//! is prepared, and one after the other is published, beside reading and beside each other.

use tidegate_types::{SequenceId, TimestampMillis};

use super::event::{Outcome, PublishAnswer, Refusal, TaskAction};
use super::machine::{Life, Step, TaskMachine};
use super::part::{MergedSegment, Published, StagedObject};
use super::reading::later;
use super::record::{Ending, GroupMode, Run};
use crate::mutation::{Mutation, is};

/// Uploads that the publisher found wrong before the task gives up: then the local files are to blame.
const MAX_BAD_OBJECTS: u32 = 8;

impl TaskMachine {
    /// After every event: whatever has become possible is begun.
    pub(super) fn settle(&mut self, now: TimestampMillis, is_call: bool, actions: &mut Vec<TaskAction>) {
        let clock = if is_call { TimestampMillis(i64::MIN) } else { now };
        if self.is_at_work() {
            self.wake_parts(clock);
            self.prepare(actions);
            self.publish_next(actions);
        }
        if self.is_at_work() {
            self.await_handoffs(clock, now, actions);
        }
        if self.is_at_work() {
            self.wake_in_time(now, actions);
        }
    }

    fn go(&mut self, part: SequenceId, step: Step, actions: &mut Vec<TaskAction>) {
        self.steps.insert(part, step);
        actions.push(TaskAction::Report);
    }

    /// Waits that are over.
    fn wake_parts(&mut self, now: TimestampMillis) {
        for step in self.steps.values_mut() {
            match *step {
                Step::WaitingToUpload { until } if until <= now => *step = Step::Reading,
                Step::WaitingToPublish { until } if until <= now => *step = Step::Ready,
                _ => {}
            }
        }
    }

    /// The next part that has everything it needs is merged and uploaded; one at a time, in order.
    fn prepare(&mut self, actions: &mut Vec<TaskAction>) {
        if !self.reading_is_over && self.record.is_finishing() && self.record.is_all_read() {
            self.reading_is_over = true;
            actions.push(TaskAction::StopReading);
        }
        let busy = |step: &Step| {
            matches!(
                step,
                Step::Merging | Step::Uploading | Step::WaitingToUpload { .. }
            )
        };
        let mut is_busy = self.steps.values().any(busy);
        let ids: Vec<SequenceId> = self.record.unpublished().map(|part| part.id).collect();
        for id in ids {
            if self.step(id) != Step::Reading {
                continue;
            }
            let Some(part) = self.record.part(id) else { return };
            let Some(end) = part.end.as_ref().map(|decision| &decision.end) else {
                return;
            };
            if !self.record.is_read(part) {
                if self.next.reaches(end) && self.persisting.is_none() {
                    let ticket = self.ticket();
                    self.persisting = Some(ticket);
                    actions.extend([TaskAction::Report, TaskAction::Persist { ticket }]);
                }
                return;
            }
            if part.is_staged() {
                self.go(id, Step::Ready, actions);
                continue;
            }
            if is_busy {
                return;
            }
            if let Some(merged) = &part.merged {
                let left = |segment: &&MergedSegment| part.staged_object(&segment.segment).is_none();
                let segments = merged.iter().filter(left).cloned().collect();
                self.go(id, Step::Uploading, actions);
                actions.push(TaskAction::Upload { part: id, segments });
                is_busy = true;
            } else if self.record.runs_of(part).next().is_none() {
                // No row was accepted: only the offsets are published (D13).
                if let Some(part) = self.record.part_mut(id) {
                    part.merged = Some(Vec::new());
                }
                self.go(id, Step::Ready, actions);
            } else {
                self.go(id, Step::Merging, actions);
                actions.push(TaskAction::Merge { part: id });
                is_busy = true;
            }
        }
    }

    pub(super) fn merged(
        &mut self,
        id: SequenceId,
        segments: Vec<MergedSegment>,
    ) -> Result<Vec<TaskAction>, Refusal> {
        if !self.is_at_work() || self.step(id) != Step::Merging {
            return Err(self.not_expected("a merge"));
        }
        if let Some(part) = self.record.part_mut(id) {
            part.merged = Some(segments);
        }
        self.steps.remove(&id);
        Ok(vec![TaskAction::Save])
    }

    pub(super) fn uploaded(
        &mut self,
        id: SequenceId,
        object: StagedObject,
    ) -> Result<Vec<TaskAction>, Refusal> {
        if !self.is_at_work() || self.step(id) != Step::Uploading {
            return Err(self.not_expected("an upload"));
        }
        if let Some(part) = self.record.part_mut(id) {
            part.staged.retain(|other| other.segment != object.segment);
            part.staged.push(object);
            if part.is_staged() {
                self.hindrance.clear();
                self.steps.remove(&id);
            }
        }
        Ok(vec![TaskAction::Save])
    }

    /// Sequences publish in order (I4): the first one that is not published, and no other.
    ///
    /// "A publish may have committed" is durable before the first one is sent: after a crash an "already
    /// published" is then known to be possibly our own, and its local copies are kept until handoff (I9).
    fn publish_next(&mut self, actions: &mut Vec<TaskAction>) {
        let mut next = self.record.unpublished().next();
        if is(Mutation::PublishLastFirst) {
            next = self
                .record
                .unpublished()
                .filter(|part| self.step(part.id) == Step::Ready)
                .last();
        }
        let Some(id) = next.map(|part| part.id) else {
            return;
        };
        if self.step(id) != Step::Ready {
            return;
        }
        self.attempts += 1;
        if let Some(part) = self.record.part_mut(id) {
            self.earlier_may_have_published = part.may_have_published;
            if !part.may_have_published {
                part.may_have_published = true;
                actions.push(TaskAction::Save);
            }
        }
        self.go(id, Step::Publishing, actions);
        actions.push(TaskAction::Publish {
            part: id,
            attempt: self.attempts,
        });
    }

    pub(super) fn publish_answered(
        &mut self,
        now: TimestampMillis,
        id: SequenceId,
        answer: PublishAnswer,
    ) -> Result<Vec<TaskAction>, Refusal> {
        if !self.is_at_work() || self.step(id) != Step::Publishing {
            return Err(self.not_expected("a publish outcome"));
        }
        if answer.committed.is_some() {
            self.record.committed.clone_from(&answer.committed);
        }
        Ok(match answer.outcome {
            Outcome::Published => self.published(now, id),
            Outcome::AlreadyPublished if is(Mutation::AlreadyPublishedFails) => {
                self.end(now, Ending::Failed, "already published".into(), false)
            }
            Outcome::AlreadyPublished if self.earlier_may_have_published => self.published(now, id),
            Outcome::AlreadyPublished => self.superseded(now, id),
            Outcome::NotYet => {
                self.not_published(id);
                self.ask_again(now, id, &answer)
            }
            Outcome::Retryable => self.ask_again(now, id, &answer),
            Outcome::BadObject => {
                self.not_published(id);
                self.upload_again(now, id, &answer)
            }
            Outcome::PredecessorLost => {
                let reason = format!("the range before this one was given up: {}", answer.detail);
                self.end(now, Ending::Replaced, reason, false)
            }
            Outcome::Fenced => {
                let reason = format!("another assignment took this one's place: {}", answer.detail);
                self.end(now, Ending::Replaced, reason, false)
            }
            Outcome::Mismatch => {
                let reason = format!("the publisher refused the offsets for good: {}", answer.detail);
                self.end(now, Ending::Failed, reason, false)
            }
        })
    }

    /// The publish that was answered has committed nothing.
    fn not_published(&mut self, id: SequenceId) {
        let earlier = self.earlier_may_have_published;
        if let Some(part) = self.record.part_mut(id) {
            part.may_have_published = earlier;
        }
    }

    fn ask_again(&mut self, now: TimestampMillis, id: SequenceId, answer: &PublishAnswer) -> Vec<TaskAction> {
        self.hindrance = format!("publishing waits: {}", answer.detail);
        let wait = self.backoff.wait();
        let wait = if answer.retry_after_millis > 0 {
            answer.retry_after_millis
        } else {
            wait
        };
        let until = later(now, wait);
        self.steps.insert(id, Step::WaitingToPublish { until });
        Vec::new()
    }

    fn upload_again(
        &mut self,
        now: TimestampMillis,
        id: SequenceId,
        answer: &PublishAnswer,
    ) -> Vec<TaskAction> {
        self.bad_objects += 1;
        if self.bad_objects >= MAX_BAD_OBJECTS {
            let reason = format!(
                "{} uploads in a row were refused: {}",
                self.bad_objects, answer.detail
            );
            return self.end(now, Ending::Failed, reason, false);
        }
        if let Some(part) = self.record.part_mut(id) {
            part.staged.clear();
        }
        self.hindrance = format!("uploading again: {}", answer.detail);
        let until = later(now, self.backoff.wait());
        self.steps.insert(id, Step::WaitingToUpload { until });
        vec![TaskAction::Save]
    }

    fn published(&mut self, now: TimestampMillis, id: SequenceId) -> Vec<TaskAction> {
        self.has_committed();
        let counts = self.record.part(id).map(|part| self.record.counts_of(part));
        let mut files = Vec::new();
        if self.is_checkpointing() {
            // Its rows are in the catalog: what is left of it are the merged files, until the handoff (I9).
            self.record.read.sequences.remove(&id);
            let is_its = |run: &Run| run.sequence == id;
            files = self
                .record
                .runs
                .iter()
                .filter(|run| is_its(run))
                .map(|run| run.file.clone())
                .collect();
            self.record.runs.retain(|run| !is_its(run));
            self.record.published_counts.add(&counts.unwrap_or_default());
        }
        if let Some(part) = self.record.part_mut(id) {
            let merged = part.merged.iter().flatten();
            part.published = Some(Published {
                segments: merged.map(|segment| segment.segment.clone()).collect(),
                handed_off: Default::default(),
                at: now,
            });
            if part.is_last && self.record.mode() == GroupMode::Checkpointing {
                self.record.outcome = Some(Ending::Published);
            }
        }
        self.awaiting = usize::MAX; // what is waited for has changed
        if is(Mutation::DropAtPublish) {
            let merged = self
                .record
                .part(id)
                .into_iter()
                .flat_map(|part| part.merged.iter().flatten());
            files.extend(merged.map(|segment| segment.file.clone()));
        }
        let mut actions = vec![TaskAction::Save];
        if !files.is_empty() {
            actions.push(TaskAction::DropFiles { files });
        }
        self.go(id, Step::Handoff, &mut actions);
        self.let_go(&mut actions);
        actions
    }

    /// Another replica has published the same rows: this copy is not needed.
    fn superseded(&mut self, now: TimestampMillis, id: SequenceId) -> Vec<TaskAction> {
        self.has_committed();
        if !self.is_checkpointing() {
            return self.end(now, Ending::Superseded, String::new(), false);
        }
        let Some(part) = self.record.part(id) else {
            return Vec::new();
        };
        let (is_last, counts) = (part.is_last, self.record.counts_of(part));
        if is_last {
            self.record.outcome = Some(Ending::Superseded);
        }
        self.record.published_counts.add(&counts);
        let mut actions = self.remove_part(id);
        self.let_go(&mut actions);
        actions
    }

    fn has_committed(&mut self) {
        self.hindrance.clear();
        self.backoff.reset();
        self.bad_objects = 0;
    }

    /// Nothing of a part is needed any more. Durable before its files go.
    pub(super) fn remove_part(&mut self, id: SequenceId) -> Vec<TaskAction> {
        self.steps.remove(&id);
        let runs = self.record.runs.iter().filter(|run| run.sequence == id);
        let mut files: Vec<String> = runs.map(|run| run.file.clone()).collect();
        let part = self.record.part(id);
        let merged = part.iter().flat_map(|part| part.merged.iter().flatten());
        files.extend(merged.map(|segment| segment.file.clone()));
        self.record.runs.retain(|run| run.sequence != id);
        self.record.parts.retain(|part| part.id != id);
        self.record.read.sequences.remove(&id);
        let mut actions = vec![TaskAction::Save, TaskAction::Report];
        if !files.is_empty() {
            actions.push(TaskAction::DropFiles { files });
        }
        actions
    }

    /// One wake for all that waits.
    fn wake_in_time(&mut self, now: TimestampMillis, actions: &mut Vec<TaskAction>) {
        let waits = self.steps.values().filter_map(|step| match step {
            Step::WaitingToUpload { until } | Step::WaitingToPublish { until } => Some(*until),
            Step::Reading
            | Step::Merging
            | Step::Uploading
            | Step::Ready
            | Step::Publishing
            | Step::Handoff => None,
        });
        let wake = waits
            .chain(self.handoff_deadline())
            .chain(self.period_ends())
            .min();
        if let Some(at) = wake
            && self.wakes_at != Some(at)
        {
            let at = at.max(now);
            self.wakes_at = Some(at);
            actions.push(TaskAction::WakeAt(at));
        }
    }

    /// All that it had is in the catalog, by its own commit or another's.
    pub(super) fn only_handoffs_left(&self) -> bool {
        self.life == Life::Finishing && self.record.unpublished().next().is_none()
    }
}
