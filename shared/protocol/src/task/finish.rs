//! From "the end is set" to "the serving tier has it": persist, merge, upload, publish, handoff.

use tidegate_types::TimestampMillis;

use super::event::{HandoffSeen, Outcome, PublishAnswer, Refusal, TaskAction};
use super::machine::{FinishStep, Life, TaskMachine};
use super::record::{Ending, MergedSegment, Published, StagedObject};

/// Uploads that the publisher found wrong before the task gives up: then the local files are to blame.
const MAX_BAD_OBJECTS: u32 = 8;

impl TaskMachine {
    /// Goes on to whatever is next on the way to the end.
    pub(super) fn finish(&mut self, actions: &mut Vec<TaskAction>) {
        actions.push(TaskAction::Report);
        let until = self.record.end.as_ref().map(|decision| decision.end.clone());
        let is_taken = until.as_ref().is_some_and(|end| self.next.reaches(end));
        if self.record.is_read() {
            match &self.record.merged {
                Some(_) if self.record.is_staged() => self.publish(actions),
                Some(merged) => {
                    let left =
                        |segment: &&MergedSegment| self.record.staged_object(&segment.segment).is_none();
                    let segments = merged.iter().filter(left).cloned().collect();
                    self.life = Life::Finishing(FinishStep::Uploading);
                    actions.push(TaskAction::Upload { segments });
                }
                None if self.record.runs.is_empty() => {
                    // No row was accepted: only the offsets are published (D13).
                    self.record.merged = Some(Vec::new());
                    self.publish(actions);
                }
                None => {
                    self.life = Life::Finishing(FinishStep::Merging);
                    actions.push(TaskAction::Merge);
                }
            }
        } else if is_taken {
            let ticket = self.ticket();
            self.life = Life::Finishing(FinishStep::Persisting(ticket));
            actions.push(TaskAction::Persist { ticket });
        } else {
            self.life = Life::Finishing(FinishStep::Reading);
            actions.push(TaskAction::Read { until });
        }
    }

    pub(super) fn merged(&mut self, segments: Vec<MergedSegment>) -> Result<Vec<TaskAction>, Refusal> {
        let Life::Finishing(FinishStep::Merging) = self.life else {
            return Err(self.not_expected("a merge"));
        };
        self.record.read.counts.stored = segments.iter().map(|segment| segment.rows).sum();
        self.record.merged = Some(segments);
        let mut actions = vec![TaskAction::Save];
        self.finish(&mut actions);
        Ok(actions)
    }

    pub(super) fn uploaded(&mut self, object: StagedObject) -> Result<Vec<TaskAction>, Refusal> {
        let Life::Finishing(FinishStep::Uploading) = self.life else {
            return Err(self.not_expected("an upload"));
        };
        self.record.staged.retain(|other| other.segment != object.segment);
        self.record.staged.push(object);
        let mut actions = vec![TaskAction::Save];
        if self.record.is_staged() {
            self.hindrance.clear();
            self.publish(&mut actions);
        }
        Ok(actions)
    }

    /// "A publish may have committed" is durable before the first one is sent: after a crash an "already
    /// published" is then known to be possibly our own, and its local copies are kept until handoff (I9).
    fn publish(&mut self, actions: &mut Vec<TaskAction>) {
        self.attempts += 1;
        self.earlier_may_have_published = self.record.may_have_published;
        if !self.record.may_have_published {
            self.record.may_have_published = true;
            actions.push(TaskAction::Save);
        }
        self.life = Life::Finishing(FinishStep::Publishing);
        actions.push(TaskAction::Publish {
            attempt: self.attempts,
        });
    }

    pub(super) fn publish_answered(
        &mut self,
        now: TimestampMillis,
        answer: PublishAnswer,
    ) -> Result<Vec<TaskAction>, Refusal> {
        let Life::Finishing(FinishStep::Publishing) = self.life else {
            return Err(self.not_expected("a publish outcome"));
        };
        if answer.committed.is_some() {
            self.record.committed.clone_from(&answer.committed);
        }
        Ok(match answer.outcome {
            Outcome::Published => self.published(now),
            Outcome::AlreadyPublished if self.earlier_may_have_published => self.published(now),
            Outcome::AlreadyPublished => self.end(now, Ending::Superseded, String::new(), false),
            Outcome::NotYet => {
                self.record.may_have_published = self.earlier_may_have_published;
                self.ask_again(now, &answer)
            }
            Outcome::Retryable => self.ask_again(now, &answer),
            Outcome::BadObject => {
                self.record.may_have_published = self.earlier_may_have_published;
                self.upload_again(now, &answer)
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

    fn ask_again(&mut self, now: TimestampMillis, answer: &PublishAnswer) -> Vec<TaskAction> {
        self.life = Life::Finishing(FinishStep::WaitingToPublish);
        self.hindrance = format!("publishing waits: {}", answer.detail);
        let wait = self.backoff.wait();
        let wait = if answer.retry_after_millis > 0 {
            answer.retry_after_millis
        } else {
            wait
        };
        vec![TaskAction::WakeAt(later(now, wait))]
    }

    fn upload_again(&mut self, now: TimestampMillis, answer: &PublishAnswer) -> Vec<TaskAction> {
        self.bad_objects += 1;
        if self.bad_objects >= MAX_BAD_OBJECTS {
            let reason = format!(
                "{} uploads in a row were refused: {}",
                self.bad_objects, answer.detail
            );
            return self.end(now, Ending::Failed, reason, false);
        }
        self.record.staged.clear();
        self.hindrance = format!("uploading again: {}", answer.detail);
        self.life = Life::Finishing(FinishStep::WaitingToUpload);
        let wait = self.backoff.wait();
        vec![TaskAction::Save, TaskAction::WakeAt(later(now, wait))]
    }

    fn published(&mut self, now: TimestampMillis) -> Vec<TaskAction> {
        self.hindrance.clear();
        let merged = self.record.merged.iter().flatten();
        let segments = merged.map(|segment| segment.segment.clone()).collect();
        self.record.published = Some(Published {
            segments,
            handed_off: Default::default(),
            at: now,
        });
        let mut actions = vec![TaskAction::Save];
        self.await_handoff(now, &mut actions);
        actions
    }

    /// Waits for what is not served yet; ends when there is nothing left.
    pub(super) fn await_handoff(&mut self, now: TimestampMillis, actions: &mut Vec<TaskAction>) {
        let segments = self
            .record
            .published
            .as_ref()
            .map(Published::waiting)
            .unwrap_or_default();
        if segments.is_empty() {
            actions.extend(self.end(now, Ending::Published, String::new(), false));
            return;
        }
        if self.handoff_deadline().is_some_and(|deadline| now >= deadline) {
            self.alert_unserved("handoffConditionTimeout is over");
            actions.extend(self.end(now, Ending::Published, String::new(), false));
            return;
        }
        if self.life != Life::Finishing(FinishStep::Handoff) {
            self.life = Life::Finishing(FinishStep::Handoff);
            actions.push(TaskAction::Report);
            actions.extend(self.handoff_deadline().map(TaskAction::WakeAt));
        }
        actions.push(TaskAction::AwaitHandoff { segments });
    }

    pub(super) fn handoff_answered(
        &mut self,
        now: TimestampMillis,
        seen: &[HandoffSeen],
    ) -> Result<Vec<TaskAction>, Refusal> {
        let (Life::Finishing(FinishStep::Handoff), Some(published)) = (self.life, &mut self.record.published)
        else {
            return Err(self.not_expected("a handoff"));
        };
        let before = published.handed_off.len();
        for served in seen.iter().filter(|seen| seen.served) {
            let index = published.segments.iter().position(|id| *id == served.segment);
            published.handed_off.extend(index);
        }
        let mut actions = Vec::new();
        if published.handed_off.len() > before {
            actions.push(TaskAction::Save);
        }
        self.await_handoff(now, &mut actions);
        Ok(actions)
    }

    pub(super) fn wake(&mut self, now: TimestampMillis) -> Vec<TaskAction> {
        let mut actions = Vec::new();
        match self.life {
            Life::Finishing(FinishStep::WaitingToPublish | FinishStep::WaitingToUpload) => {
                self.finish(&mut actions);
            }
            Life::Finishing(FinishStep::Handoff) => {
                if self.handoff_deadline().is_some_and(|deadline| now >= deadline) {
                    self.await_handoff(now, &mut actions);
                } else {
                    actions.extend(self.handoff_deadline().map(TaskAction::WakeAt));
                }
            }
            Life::Starting { .. }
            | Life::Reading { .. }
            | Life::Paused
            | Life::Finishing(
                FinishStep::Reading
                | FinishStep::Persisting(_)
                | FinishStep::Merging
                | FinishStep::Uploading
                | FinishStep::Publishing,
            )
            | Life::Stopping { .. }
            | Life::Left
            | Life::Ended(_) => {}
        }
        actions
    }

    fn handoff_deadline(&self) -> Option<TimestampMillis> {
        let timeout = self.settings.handoff_timeout_millis;
        let published = self.record.published.as_ref().filter(|_| timeout > 0)?;
        Some(later(published.at, timeout))
    }

    /// A handoff that was not seen is an alert, never a failure: the data is in the catalog (I9).
    pub(super) fn alert_unserved(&mut self, why: &str) {
        let Some(published) = &self.record.published else {
            return;
        };
        let waiting = published.waiting();
        let Some(first) = waiting.first() else { return };
        self.record.alert = format!(
            "{} of {} published segments were not seen at the serving tier ({why}; the first is {first}): the data \
             is safe, the handoff-checker goes on",
            waiting.len(),
            published.segments.len()
        );
    }
}

fn later(now: TimestampMillis, millis: u64) -> TimestampMillis {
    TimestampMillis(now.0.saturating_add(i64::try_from(millis).unwrap_or(i64::MAX)))
}
