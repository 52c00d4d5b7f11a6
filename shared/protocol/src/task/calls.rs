//! What the coordinator asks of a task: stand still, read on, end here, stop.

use tidegate_types::{EndOffsets, TimestampMillis};

use super::event::{Answer, Refusal, StopReason, TaskAction};
use super::machine::{Exit, Life, TaskMachine};
use super::part::LogEntry;
use super::record::{Ending, GroupMode, close_last};
use crate::mutation::{Mutation, is};
use crate::sequence::check_end;

impl TaskMachine {
    pub(super) fn pause(&mut self) -> Result<Vec<TaskAction>, Refusal> {
        if let Some(decision) = self.record.end()
            && !matches!(self.life, Life::Stopping { .. } | Life::Left | Life::Ended(_))
        {
            return Err(Refusal::Finishing {
                decision_id: decision.decision_id.clone(),
            });
        }
        match self.life {
            Life::Starting { .. } => {
                self.life = Life::Starting { pause: true };
                Ok(vec![TaskAction::Answer(Answer::Accepted)])
            }
            Life::Reading { pausing: None } => {
                let ticket = self.ticket();
                self.life = Life::Reading {
                    pausing: Some(ticket),
                };
                Ok(vec![
                    TaskAction::StandStill { ticket },
                    TaskAction::Answer(Answer::Accepted),
                ])
            }
            Life::Reading { pausing: Some(_) } => Ok(vec![TaskAction::Answer(Answer::Accepted)]),
            Life::Paused => Ok(vec![TaskAction::Answer(Answer::Paused {
                next: self.next.clone(),
            })]),
            Life::Finishing | Life::Stopping { .. } | Life::Left | Life::Ended(_) => {
                Err(self.not_expected("a pause"))
            }
        }
    }

    pub(super) fn resume(&mut self) -> Vec<TaskAction> {
        let done = TaskAction::Answer(Answer::Done);
        match self.life {
            Life::Starting { .. } => {
                self.life = Life::Starting { pause: false };
                vec![done]
            }
            Life::Reading { pausing: Some(_) } | Life::Paused => {
                let mut actions = self.read_on();
                actions.extend([done, TaskAction::Report]);
                actions
            }
            Life::Reading { pausing: None }
            | Life::Finishing
            | Life::Stopping { .. }
            | Life::Left
            | Life::Ended(_) => vec![done],
        }
    }

    /// Durable before it is acknowledged (D28, B41); the same decision again is the same answer (I11).
    pub(super) fn set_end(
        &mut self,
        now: TimestampMillis,
        entry: LogEntry,
    ) -> Result<Vec<TaskAction>, Refusal> {
        // A legacy task has one end, whatever the call says of sequences.
        let entry = match self.record.mode() {
            GroupMode::Checkpointing => entry,
            GroupMode::Legacy => LogEntry {
                sequence: tidegate_types::SequenceId(0),
                finish: true,
                ..entry
            },
        };
        if self.knows(&entry)? {
            return Ok(vec![TaskAction::Answer(Answer::Done)]);
        }
        match self.life {
            Life::Starting { .. } => {
                self.check(&entry, &self.record.read.next.clone())?;
                close_last(&mut self.record.parts, &entry, now);
                self.life = Life::Starting { pause: false };
                Ok(vec![
                    TaskAction::Save,
                    TaskAction::Answer(Answer::Accepted),
                    TaskAction::Report,
                ])
            }
            Life::Paused => {
                if !is(Mutation::TakeEndBehind) {
                    self.check(&entry, &self.next.clone())?;
                }
                close_last(&mut self.record.parts, &entry, now);
                if is(Mutation::StartWhereItStands)
                    && let Some(open) = self.record.parts.last_mut()
                    && open.end.is_none()
                {
                    open.start.clone_from(&self.next);
                }
                let mut actions = vec![TaskAction::Save, TaskAction::Answer(Answer::Done)];
                actions.extend(self.read_on());
                actions.push(TaskAction::Report);
                Ok(actions)
            }
            Life::Reading { .. } => Err(Refusal::NotPaused),
            Life::Finishing | Life::Stopping { .. } | Life::Left | Life::Ended(_) => {
                Err(self.not_expected("an end"))
            }
        }
    }

    /// True when this decision was taken before. Another one for a sequence that has ended is refused.
    fn knows(&self, entry: &LogEntry) -> Result<bool, Refusal> {
        let given = &entry.decision.decision_id;
        let known = self
            .record
            .part(entry.sequence)
            .and_then(|part| part.end.as_ref());
        if known.is_some_and(|known| known.decision_id == *given) {
            return Ok(true);
        }
        if let Life::Ended(ending) = self.life {
            return Err(Refusal::HasEnded(ending));
        }
        if let Some(known) = self.record.end()
            && self.record.part(entry.sequence).is_some_and(|part| part.is_last)
        {
            return Err(Refusal::Finishing {
                decision_id: known.decision_id.clone(),
            });
        }
        if let Some(known) = known {
            return Err(Refusal::OtherEnd {
                sequence: entry.sequence,
                known: known.decision_id.clone(),
                given: given.clone(),
            });
        }
        let Some(open) = self.record.open_part() else {
            // It ended with an earlier sequence, and what is asked for was handed off and is gone.
            return Ok(true);
        };
        match entry.sequence.cmp(&open.id) {
            std::cmp::Ordering::Less => Ok(true),
            std::cmp::Ordering::Equal => Ok(false),
            std::cmp::Ordering::Greater => Err(Refusal::TooEarly {
                sequence: entry.sequence,
                open: open.id,
            }),
        }
    }

    fn check(&self, entry: &LogEntry, next: &EndOffsets) -> Result<(), Refusal> {
        check_end(next, &entry.decision.end)?;
        if let Some(open) = self.record.open_part() {
            check_end(&open.start, &entry.decision.end)?;
        }
        Ok(())
    }

    pub(super) fn stop(&mut self, now: TimestampMillis, reason: StopReason, keep: bool) -> Vec<TaskAction> {
        let done = TaskAction::Answer(Answer::Done);
        match self.life {
            Life::Ended(_) | Life::Left => return vec![done],
            Life::Stopping { .. } if keep => return vec![TaskAction::Answer(Answer::Accepted)],
            Life::Finishing if self.only_handoffs_left() => {
                // Its commit is known: it ended well, whatever it is stopped for (D29).
                self.alert_unserved("the task was stopped");
                let ending = self.record.outcome.unwrap_or(Ending::Published);
                let mut actions = self.end(now, ending, String::new(), false);
                actions.insert(1, done);
                return actions;
            }
            _ => {}
        }
        if keep && self.has_unpersisted() {
            return self.persist_and(Exit::End(reason), Some(TaskAction::Answer(Answer::Accepted)));
        }
        if !keep {
            self.alert_unserved("the task was stopped");
        }
        let mut actions = self.end(now, reason.ending(), String::new(), keep);
        actions.insert(1, done);
        actions
    }

    pub(super) fn drain(&mut self) -> Vec<TaskAction> {
        match self.life {
            Life::Ended(_) | Life::Left => vec![TaskAction::Leave],
            Life::Stopping { .. } => Vec::new(),
            _ if self.has_unpersisted() => self.persist_and(Exit::Leave, None),
            Life::Starting { .. } | Life::Reading { .. } | Life::Paused | Life::Finishing => {
                self.life = Life::Left;
                vec![TaskAction::StopWork, TaskAction::Leave]
            }
        }
    }

    /// Rows may be in memory.
    fn has_unpersisted(&self) -> bool {
        match self.life {
            Life::Reading { .. } | Life::Paused => true,
            Life::Finishing => !self.record.is_all_read(),
            Life::Starting { .. } | Life::Stopping { .. } | Life::Left | Life::Ended(_) => false,
        }
    }

    fn persist_and(&mut self, exit: Exit, answer: Option<TaskAction>) -> Vec<TaskAction> {
        let ticket = self.ticket();
        self.life = Life::Stopping { ticket, exit };
        answer
            .into_iter()
            .chain([
                TaskAction::Report,
                TaskAction::StandStill { ticket },
                TaskAction::Persist { ticket },
            ])
            .collect()
    }
}
