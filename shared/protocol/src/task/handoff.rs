//! Waiting until the serving tier has what was published; the end of a part, and of the task.

use tidegate_types::{SequenceId, TimestampMillis};

use super::event::{HandoffSeen, Refusal, TaskAction};
use super::machine::{Life, Step, TaskMachine};
use super::part::{Part, Published};
use super::reading::later;
use super::record::Ending;

impl TaskMachine {
    /// Parts whose handoff is over go, and when none is left the task ends; for the others it is waited.
    /// `clock` is what deadlines are compared with.
    pub(super) fn await_handoffs(
        &mut self,
        clock: TimestampMillis,
        now: TimestampMillis,
        actions: &mut Vec<TaskAction>,
    ) {
        let ids: Vec<SequenceId> = self
            .record
            .parts
            .iter()
            .filter(|part| part.is_published())
            .map(|part| part.id)
            .collect();
        for id in ids {
            self.steps.insert(id, Step::Handoff);
            let Some(published) = self.record.part(id).and_then(|part| part.published.as_ref()) else {
                continue;
            };
            let is_served = published.waiting().is_empty();
            let is_late = self
                .deadline_of(published)
                .is_some_and(|deadline| clock >= deadline);
            if !is_served && is_late {
                self.alert_unserved("handoffConditionTimeout is over");
            }
            if is_served || is_late {
                if !self.is_checkpointing() {
                    actions.extend(self.end(now, Ending::Published, String::new(), false));
                    return;
                }
                actions.extend(self.remove_part(id));
            }
        }
        if let Some(ending) = self.record.outcome.filter(|_| self.record.parts.is_empty()) {
            self.life = Life::Finishing;
            actions.extend(self.end(now, ending, String::new(), false));
            return;
        }
        let waiting: Vec<_> = self
            .record
            .parts
            .iter()
            .filter_map(|part| part.published.as_ref())
            .flat_map(Published::waiting)
            .collect();
        if waiting.len() != self.awaiting {
            self.awaiting = waiting.len();
            if !waiting.is_empty() {
                actions.push(TaskAction::AwaitHandoff { segments: waiting });
            }
        }
    }

    pub(super) fn handoff_answered(&mut self, seen: &[HandoffSeen]) -> Result<Vec<TaskAction>, Refusal> {
        if !self.is_at_work() || self.awaiting == 0 {
            return Err(self.not_expected("a handoff"));
        }
        self.awaiting = 0; // asked again for what is left
        let mut any = false;
        for published in self
            .record
            .parts
            .iter_mut()
            .filter_map(|part| part.published.as_mut())
        {
            let before = published.handed_off.len();
            for served in seen.iter().filter(|seen| seen.served) {
                let index = published.segments.iter().position(|id| *id == served.segment);
                published.handed_off.extend(index);
            }
            any |= published.handed_off.len() > before;
        }
        Ok(if any { vec![TaskAction::Save] } else { Vec::new() })
    }

    fn deadline_of(&self, published: &Published) -> Option<TimestampMillis> {
        let timeout = self.settings.handoff_timeout_millis;
        (timeout > 0).then(|| later(published.at, timeout))
    }

    pub(super) fn handoff_deadline(&self) -> Option<TimestampMillis> {
        let published = self
            .record
            .parts
            .iter()
            .filter_map(|part| part.published.as_ref());
        published
            .filter_map(|published| self.deadline_of(published))
            .min()
    }

    /// A handoff that was not seen is an alert, never a failure: the data is in the catalog (I9).
    pub(super) fn alert_unserved(&mut self, why: &str) {
        let published = || {
            self.record
                .parts
                .iter()
                .filter_map(|part: &Part| part.published.as_ref())
        };
        let waiting: Vec<_> = published().flat_map(Published::waiting).collect();
        let Some(first) = waiting.first() else { return };
        let all: usize = published().map(|published| published.segments.len()).sum();
        self.record.alert = format!(
            "{} of {all} published segments were not seen at the serving tier ({why}; the first is {first}): the data \
             is safe, the handoff-checker goes on",
            waiting.len(),
        );
    }
}
