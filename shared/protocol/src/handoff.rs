//! Handoff: published segments are asked for at the serving tier until it has them.
//!
//! Owns: which segment is checked when, and when a person is told that one takes long. Promises: each segment has
//! its own back-off and its own deadline, so that a slow one never delays another; "served" is recorded before
//! anybody hears of it, and told once; a time-out is an alert and nothing else (I9). Must never: give a segment up,
//! or say that one is served which the tier did not confirm.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_types::{SegmentId, TimestampMillis};

/// How patient the machine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandoffLimits {
    /// Wait after the first check that did not confirm; doubles with each one.
    pub first_wait: Duration,
    /// Longest wait between two checks of one segment.
    pub longest_wait: Duration,
    /// A check without an answer for so long counts as failed; its late answer still counts.
    pub check_timeout: Duration,
    /// A segment that is pending for so long raises an alert, once. `None` = never.
    pub alert_after: Option<Duration>,
    /// Most checks under way.
    pub checks_at_once: usize,
}

/// What the serving tier said about a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It has the segment, or does not need it.
    Served,
    /// Not yet.
    NotServed,
    /// It could not be asked.
    Failed,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandoffEvent {
    /// A published segment, from the catalog or from the store after a restart. Known ones stay as they are.
    Registered {
        segment: SegmentId,
        since: TimestampMillis,
    },
    /// Somebody waits for this segment: check it soon, whatever its back-off is.
    Awaited { segment: SegmentId },
    /// The tier answered.
    Checked {
        segment: SegmentId,
        answer: Answer,
        detail: String,
    },
    /// A [`HandoffAction::MarkServed`] is durable.
    Recorded { segment: SegmentId },
    /// A [`HandoffAction::MarkServed`] could not be made durable.
    NotRecorded { segment: SegmentId },
    /// Time passed; see [`HandoffMachine::next_at`].
    Tick,
}

/// What to do, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandoffAction {
    /// Ask the tier, without holding up anything else; answer with [`HandoffEvent::Checked`].
    Check { segment: SegmentId },
    /// Keep the attempt and the answer for people. Need not be durable.
    RecordAttempt { segment: SegmentId, detail: String },
    /// Make it durable that the segment is served, then answer with `Recorded` or `NotRecorded`.
    MarkServed {
        segment: SegmentId,
        at: TimestampMillis,
        detail: String,
    },
    /// Tell those who wait. It is durable.
    Tell { segment: SegmentId, waited: Duration },
    /// Tell a person that the segment takes long. Nothing fails.
    Alert { segment: SegmentId, waited: Duration },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Next check at this time.
    Waiting { due: TimestampMillis },
    /// A check is under way; without an answer by then it counts as failed.
    Checking { until: TimestampMillis },
    /// The tier confirmed; the record is being made durable.
    Recording,
}

#[derive(Debug, Clone)]
struct Pending {
    since: TimestampMillis,
    phase: Phase,
    /// Wait after the next check that does not confirm.
    wait: Duration,
    checked_at: Option<TimestampMillis>,
}

/// The pending segments. A segment leaves it when it is told served.
#[derive(Debug, Clone)]
pub struct HandoffMachine {
    limits: HandoffLimits,
    pending: BTreeMap<SegmentId, Pending>,
    due: BTreeSet<(TimestampMillis, SegmentId)>,
    under_way: BTreeSet<(TimestampMillis, SegmentId)>,
    alerts: BTreeSet<(TimestampMillis, SegmentId)>,
}

fn later(instant: TimestampMillis, by: Duration) -> TimestampMillis {
    let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
    TimestampMillis(instant.0.saturating_add(by))
}

fn between(start: TimestampMillis, end: TimestampMillis) -> Duration {
    Duration::from_millis(u64::try_from(end.0.saturating_sub(start.0)).unwrap_or(0))
}

impl HandoffMachine {
    pub fn new(limits: HandoffLimits) -> Self {
        Self {
            limits,
            pending: BTreeMap::new(),
            due: BTreeSet::new(),
            under_way: BTreeSet::new(),
            alerts: BTreeSet::new(),
        }
    }

    /// Segments that are not served.
    pub fn len(&self) -> usize {
        self.pending.len()
    }
    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
    pub fn is_pending(&self, segment: &SegmentId) -> bool {
        self.pending.contains_key(segment)
    }

    /// When the next [`HandoffEvent::Tick`] has something to do.
    pub fn next_at(&self) -> Option<TimestampMillis> {
        let due = self
            .due
            .first()
            .filter(|_| self.under_way.len() < self.limits.checks_at_once);
        [due, self.under_way.first(), self.alerts.first()]
            .into_iter()
            .flatten()
            .map(|(at, _)| *at)
            .min()
    }

    pub fn on(&mut self, event: HandoffEvent, now: TimestampMillis) -> Vec<HandoffAction> {
        let mut actions = Vec::new();
        match event {
            HandoffEvent::Registered { segment, since } => self.register(segment, since, now),
            HandoffEvent::Awaited { segment } => self.hurry(&segment, now),
            HandoffEvent::Checked {
                segment,
                answer,
                detail,
            } => {
                self.checked(segment, answer, detail, now, &mut actions);
            }
            HandoffEvent::Recorded { segment } => self.recorded(segment, now, &mut actions),
            HandoffEvent::NotRecorded { segment } => {
                if self.phase(&segment) == Some(Phase::Recording) {
                    self.wait_again(&segment, now);
                }
            }
            HandoffEvent::Tick => {}
        }
        // Whatever happened, time passed too.
        self.give_up_late_checks(now, &mut actions);
        self.start_due_checks(now, &mut actions);
        self.raise_alerts(now, &mut actions);
        actions
    }

    fn phase(&self, segment: &SegmentId) -> Option<Phase> {
        self.pending.get(segment).map(|pending| pending.phase)
    }

    fn register(&mut self, segment: SegmentId, since: TimestampMillis, now: TimestampMillis) {
        if self.pending.contains_key(&segment) {
            return;
        }
        if let Some(after) = self.limits.alert_after {
            self.alerts.insert((later(since, after), segment.clone()));
        }
        self.due.insert((now, segment.clone()));
        let wait = self.limits.first_wait;
        let pending = Pending {
            since,
            phase: Phase::Waiting { due: now },
            wait,
            checked_at: None,
        };
        self.pending.insert(segment, pending);
    }

    /// Brings the next check forward, but never closer to the last one than the first wait: those who wait may ask
    /// as often as they like.
    fn hurry(&mut self, segment: &SegmentId, now: TimestampMillis) {
        let first_wait = self.limits.first_wait;
        let Some(pending) = self.pending.get_mut(segment) else {
            return;
        };
        let Phase::Waiting { due } = pending.phase else {
            return;
        };
        let soon = pending
            .checked_at
            .map_or(now, |last| later(last, first_wait).max(now));
        if soon < due {
            pending.phase = Phase::Waiting { due: soon };
            pending.wait = first_wait;
            self.due.remove(&(due, segment.clone()));
            self.due.insert((soon, segment.clone()));
        }
    }

    fn checked(
        &mut self,
        segment: SegmentId,
        answer: Answer,
        detail: String,
        now: TimestampMillis,
        actions: &mut Vec<HandoffAction>,
    ) {
        let Some(phase) = self.phase(&segment) else { return };
        match (phase, answer) {
            // A late answer is as good as one in time.
            (Phase::Waiting { .. } | Phase::Checking { .. }, Answer::Served) => {
                self.leave_phase(&segment);
                self.enter(&segment, Phase::Recording);
                actions.push(HandoffAction::MarkServed {
                    segment,
                    at: now,
                    detail,
                });
            }
            (Phase::Checking { .. }, Answer::NotServed | Answer::Failed) => {
                self.wait_again(&segment, now);
                actions.push(HandoffAction::RecordAttempt { segment, detail });
            }
            // Once confirmed, no other answer matters; and the failure of a late check is counted already.
            (Phase::Recording, _) | (Phase::Waiting { .. }, Answer::NotServed | Answer::Failed) => {}
        }
    }

    fn recorded(&mut self, segment: SegmentId, now: TimestampMillis, actions: &mut Vec<HandoffAction>) {
        if self.phase(&segment) != Some(Phase::Recording) {
            return;
        }
        if let Some(pending) = self.pending.remove(&segment) {
            if let Some(after) = self.limits.alert_after {
                self.alerts
                    .remove(&(later(pending.since, after), segment.clone()));
            }
            actions.push(HandoffAction::Tell {
                segment,
                waited: between(pending.since, now),
            });
        }
    }

    /// Takes the segment out of the timers of its phase.
    fn leave_phase(&mut self, segment: &SegmentId) {
        match self.phase(segment) {
            Some(Phase::Waiting { due }) => self.due.remove(&(due, segment.clone())),
            Some(Phase::Checking { until }) => self.under_way.remove(&(until, segment.clone())),
            Some(Phase::Recording) | None => false,
        };
    }

    fn enter(&mut self, segment: &SegmentId, phase: Phase) {
        if let Some(pending) = self.pending.get_mut(segment) {
            pending.phase = phase;
        }
    }

    fn wait_again(&mut self, segment: &SegmentId, now: TimestampMillis) {
        self.leave_phase(segment);
        let longest = self.limits.longest_wait;
        if let Some(pending) = self.pending.get_mut(segment) {
            let due = later(now, pending.wait.min(longest));
            pending.wait = pending.wait.saturating_mul(2).min(longest);
            pending.checked_at = Some(now);
            pending.phase = Phase::Waiting { due };
            self.due.insert((due, segment.clone()));
        }
    }

    fn give_up_late_checks(&mut self, now: TimestampMillis, actions: &mut Vec<HandoffAction>) {
        while let Some((_, segment)) = self.under_way.first().filter(|(until, _)| *until <= now).cloned() {
            self.wait_again(&segment, now);
            let detail = format!("no answer within {:?}", self.limits.check_timeout);
            actions.push(HandoffAction::RecordAttempt { segment, detail });
        }
    }

    fn start_due_checks(&mut self, now: TimestampMillis, actions: &mut Vec<HandoffAction>) {
        while self.under_way.len() < self.limits.checks_at_once {
            let Some((_, segment)) = self.due.first().filter(|(due, _)| *due <= now).cloned() else {
                break;
            };
            self.leave_phase(&segment);
            let until = later(now, self.limits.check_timeout);
            self.enter(&segment, Phase::Checking { until });
            self.under_way.insert((until, segment.clone()));
            actions.push(HandoffAction::Check { segment });
        }
    }

    fn raise_alerts(&mut self, now: TimestampMillis, actions: &mut Vec<HandoffAction>) {
        while let Some((_, segment)) = self.alerts.first().filter(|(at, _)| *at <= now).cloned() {
            self.alerts.pop_first();
            let waited = self
                .pending
                .get(&segment)
                .map_or(Duration::ZERO, |pending| between(pending.since, now));
            actions.push(HandoffAction::Alert { segment, waited });
        }
    }
}

#[cfg(test)]
#[path = "handoff_tests.rs"]
mod tests;
