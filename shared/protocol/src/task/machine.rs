//! The machine: calls from the coordinator, reports of the reader, and what follows from them.

use std::collections::BTreeMap;

use tidegate_types::{EndOffsets, Offset, OffsetRange, PartitionId, PartitionOffsets, TimestampMillis};

use super::backoff::Backoff;
use super::event::{Answer, LocalState, Refusal, StopReason, TaskAction, TaskEvent, Ticket, lost_text};
use super::record::{Assignment, EndDecision, Ended, Ending, LostRange, Snapshot, TaskRecord};
use crate::sequence::check_end;

/// What the spec says about a task's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskSettings {
    /// 0 = wait for ever.
    pub handoff_timeout_millis: u64,
}

/// Where a task stands. Volatile: a restored task begins at `Starting` (or `Ended`) again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// The folder is being looked through. A pause that comes now takes effect afterwards (D57).
    Starting {
        pause: bool,
    },
    /// `pausing`: the reader was told to stand still and has not answered yet.
    Reading {
        pausing: Option<Ticket>,
    },
    Paused,
    /// The end is set (D27).
    Finishing(FinishStep),
    /// Persisting on the way out.
    Stopping {
        ticket: Ticket,
        exit: Exit,
    },
    /// The process has let go of it; the record is what counts.
    Left,
    Ended(Ending),
}

/// What a finishing task does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishStep {
    Reading,
    Persisting(Ticket),
    Merging,
    Uploading,
    /// The objects were refused; they are uploaded again after a pause.
    WaitingToUpload,
    Publishing,
    /// Asked, and told to ask again later.
    WaitingToPublish,
    Handoff,
}

/// What a stopping task does when it has persisted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// End, and keep the rows.
    End(StopReason),
    /// Stay restorable for a later process.
    Leave,
}

/// The life of one task.
#[derive(Debug, Clone)]
pub struct TaskMachine {
    pub(super) record: TaskRecord,
    pub(super) settings: TaskSettings,
    pub(super) life: Life,
    /// Next offsets in memory; never behind those of the record.
    pub(super) next: PartitionOffsets,
    tickets: u64,
    /// What is in the way and being retried.
    pub(super) hindrance: String,
    expired: BTreeMap<PartitionId, OffsetRange>,
    beyond_end: BTreeMap<PartitionId, (Offset, Offset)>,
    pub(super) backoff: Backoff,
    pub(super) attempts: u32,
    pub(super) bad_objects: u32,
    /// Before the publish that is under way, an earlier one may have committed.
    pub(super) earlier_may_have_published: bool,
}

/// What can be said about a task at any time.
#[derive(Debug, Clone)]
pub struct TaskView<'a> {
    pub record: &'a TaskRecord,
    pub life: Life,
    pub next: &'a PartitionOffsets,
    /// Why it failed, or what it waits for; empty when all is well.
    pub reason: String,
    /// What an operator should see although it is no failure.
    pub alert: String,
}

impl TaskMachine {
    /// A new task. Its record is durable before the assignment is answered.
    pub fn assign(assignment: Assignment, settings: TaskSettings) -> (Self, Vec<TaskAction>) {
        let machine = Self::with(TaskRecord::new(assignment), settings);
        let actions = vec![
            TaskAction::Save,
            TaskAction::Answer(Answer::Done),
            TaskAction::Report,
            TaskAction::Open,
        ];
        (machine, actions)
    }

    /// A task from its record, after the process was started again.
    pub fn restore(record: TaskRecord, settings: TaskSettings) -> (Self, Vec<TaskAction>) {
        let machine = Self::with(record, settings);
        let actions = match &machine.record.ended {
            // The crash may have come between the end and the removal of its files.
            Some(ended) if !ended.kept => vec![TaskAction::DropLocal, TaskAction::End(ended.ending)],
            Some(ended) => vec![TaskAction::End(ended.ending)],
            None => vec![TaskAction::Open],
        };
        (machine, actions)
    }

    /// A task that was stopped with its rows kept, assigned again.
    pub fn reopen(mut record: TaskRecord, settings: TaskSettings) -> (Self, Vec<TaskAction>) {
        record.ended = None;
        let machine = Self::with(record, settings);
        let actions = vec![
            TaskAction::Save,
            TaskAction::Answer(Answer::Done),
            TaskAction::Report,
            TaskAction::Open,
        ];
        (machine, actions)
    }

    fn with(record: TaskRecord, settings: TaskSettings) -> Self {
        let life = match &record.ended {
            Some(ended) => Life::Ended(ended.ending),
            None => Life::Starting { pause: false },
        };
        Self {
            next: record.read.next.clone(),
            earlier_may_have_published: record.may_have_published,
            record,
            settings,
            life,
            tickets: 0,
            hindrance: String::new(),
            expired: BTreeMap::new(),
            beyond_end: BTreeMap::new(),
            backoff: Backoff::new(250, 15_000),
            attempts: 0,
            bad_objects: 0,
        }
    }

    /// What is to be durable after the latest [`TaskAction::Save`].
    pub fn record(&self) -> &TaskRecord {
        &self.record
    }
    pub fn life(&self) -> Life {
        self.life
    }
    /// Next offsets, as far as the reader has reported.
    pub fn next(&self) -> &PartitionOffsets {
        &self.next
    }
    /// What can be said about it.
    pub fn view(&self) -> TaskView<'_> {
        TaskView {
            record: &self.record,
            life: self.life,
            next: &self.next,
            reason: self.reason(),
            alert: self.alert(),
        }
    }

    /// The one entry. A refused event has changed nothing.
    pub fn on(&mut self, now: TimestampMillis, event: TaskEvent) -> Result<Vec<TaskAction>, Refusal> {
        let actions = match event {
            TaskEvent::Opened(local) => self.opened(now, local),
            TaskEvent::Pause => self.pause(),
            TaskEvent::Resume => Ok(self.resume()),
            TaskEvent::SetEndOffsets { decision_id, end } => self.set_end(decision_id, end),
            TaskEvent::Stop { reason, keep } => Ok(self.stop(now, reason, keep)),
            TaskEvent::Drain => Ok(self.drain()),
            TaskEvent::ReadUpTo(next) => Ok(self.read_up_to(&next)),
            TaskEvent::StoodStill { ticket, next } => Ok(self.stood_still(ticket, &next)),
            TaskEvent::Persisted { ticket, snapshot } => self.persisted(now, ticket, *snapshot),
            TaskEvent::Merged(segments) => self.merged(segments),
            TaskEvent::Uploaded(object) => self.uploaded(object),
            TaskEvent::PublishAnswered(answer) => self.publish_answered(now, answer),
            TaskEvent::HandoffAnswered(seen) => self.handoff_answered(now, &seen),
            TaskEvent::Wake => Ok(self.wake(now)),
            TaskEvent::OutOfRange { partition, lost } => Ok(self.out_of_range(partition, lost)),
            TaskEvent::BeyondEnd {
                partition,
                next,
                high,
            } => {
                self.beyond_end.insert(partition, (next, high));
                Ok(Vec::new())
            }
            TaskEvent::Hindered(what) => {
                self.hindrance = what;
                Ok(Vec::new())
            }
            TaskEvent::ParseBudgetExceeded { detail } | TaskEvent::Failed { detail } => {
                self.failed(now, detail)
            }
        };
        debug_assert_eq!(self.record.broken(), None, "I1, I3: the record of a task");
        actions
    }

    pub(super) fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    pub(super) fn not_expected(&self, what: &'static str) -> Refusal {
        let life = match self.life {
            Life::Starting { .. } => "starting",
            Life::Reading { .. } => "reading",
            Life::Paused => "paused",
            Life::Finishing(_) => "finishing",
            Life::Stopping { .. } => return Refusal::Stopping,
            Life::Left => "left to a later process",
            Life::Ended(ending) => return Refusal::HasEnded(ending),
        };
        Refusal::NotExpected { what, life }
    }

    fn opened(&mut self, now: TimestampMillis, local: LocalState) -> Result<Vec<TaskAction>, Refusal> {
        let Life::Starting { pause } = self.life else {
            return Err(self.not_expected("a folder"));
        };
        let mut actions = Vec::new();
        let is_published = self.record.published.is_some();
        match local {
            LocalState::Intact => {}
            LocalState::MergedLost | LocalState::Lost(_) if is_published => {} // only the handoff is left
            LocalState::MergedLost => {
                self.record.merged = None;
                self.record.staged.clear();
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
        if is_published {
            self.await_handoff(now, &mut actions);
        } else if self.record.end.is_some() {
            self.note_first_read(now, &mut actions);
            self.finish(&mut actions);
        } else if pause {
            self.note_first_read(now, &mut actions);
            self.life = Life::Paused;
            actions.push(TaskAction::Report);
        } else {
            self.note_first_read(now, &mut actions);
            self.life = Life::Reading { pausing: None };
            actions.extend([TaskAction::Report, TaskAction::Read { until: None }]);
        }
        Ok(actions)
    }

    fn note_first_read(&mut self, now: TimestampMillis, actions: &mut Vec<TaskAction>) {
        if self.record.first_read.is_none() {
            self.record.first_read = Some(now);
            actions.push(TaskAction::Save);
        }
    }

    fn pause(&mut self) -> Result<Vec<TaskAction>, Refusal> {
        if let Some(decision) = &self.record.end
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
            Life::Finishing(_) | Life::Stopping { .. } | Life::Left | Life::Ended(_) => {
                Err(self.not_expected("a pause"))
            }
        }
    }

    fn resume(&mut self) -> Vec<TaskAction> {
        let done = TaskAction::Answer(Answer::Done);
        match self.life {
            Life::Starting { .. } => {
                self.life = Life::Starting { pause: false };
                vec![done]
            }
            Life::Reading { pausing: Some(_) } | Life::Paused => {
                self.life = Life::Reading { pausing: None };
                vec![TaskAction::Read { until: None }, done, TaskAction::Report]
            }
            Life::Reading { pausing: None }
            | Life::Finishing(_)
            | Life::Stopping { .. }
            | Life::Left
            | Life::Ended(_) => vec![done],
        }
    }

    /// Durable before it is acknowledged (D28, B41); the same decision again is the same answer (I11).
    fn set_end(&mut self, decision_id: String, end: EndOffsets) -> Result<Vec<TaskAction>, Refusal> {
        if let Some(known) = &self.record.end {
            if known.decision_id == decision_id {
                return Ok(vec![TaskAction::Answer(Answer::Done)]);
            }
            return match self.life {
                Life::Ended(ending) => Err(Refusal::HasEnded(ending)),
                _ => Err(Refusal::Finishing {
                    decision_id: known.decision_id.clone(),
                }),
            };
        }
        match self.life {
            Life::Starting { .. } => {
                check_end(&self.record.read.next, &end)?;
                self.record.end = Some(EndDecision { decision_id, end });
                self.life = Life::Starting { pause: false };
                Ok(vec![
                    TaskAction::Save,
                    TaskAction::Answer(Answer::Accepted),
                    TaskAction::Report,
                ])
            }
            Life::Paused => {
                check_end(&self.next, &end)?;
                self.record.end = Some(EndDecision { decision_id, end });
                let mut actions = vec![TaskAction::Save, TaskAction::Answer(Answer::Done)];
                self.finish(&mut actions);
                Ok(actions)
            }
            Life::Reading { .. } => Err(Refusal::NotPaused),
            Life::Finishing(_) | Life::Stopping { .. } | Life::Left | Life::Ended(_) => {
                Err(self.not_expected("an end"))
            }
        }
    }

    fn stop(&mut self, now: TimestampMillis, reason: StopReason, keep: bool) -> Vec<TaskAction> {
        let done = TaskAction::Answer(Answer::Done);
        let is_ready = match self.life {
            Life::Ended(_) | Life::Left => return vec![done],
            Life::Stopping { .. } if keep => return vec![TaskAction::Answer(Answer::Accepted)],
            Life::Finishing(FinishStep::Handoff) => {
                // Its commit is known: it ended well, whatever it is stopped for (D29).
                self.alert_unserved("the task was stopped");
                let mut actions = self.end(now, Ending::Published, String::new(), false);
                actions.insert(1, done);
                return actions;
            }
            Life::Reading { .. }
            | Life::Paused
            | Life::Finishing(FinishStep::Reading | FinishStep::Persisting(_)) => false,
            Life::Starting { .. } | Life::Finishing(_) | Life::Stopping { .. } => true,
        };
        if keep && !is_ready {
            return self.persist_and(Exit::End(reason), Some(TaskAction::Answer(Answer::Accepted)));
        }
        let mut actions = self.end(now, reason.ending(), String::new(), keep);
        actions.insert(1, done);
        actions
    }

    fn drain(&mut self) -> Vec<TaskAction> {
        match self.life {
            Life::Ended(_) | Life::Left => vec![TaskAction::Leave],
            Life::Stopping { .. } => Vec::new(),
            Life::Reading { .. }
            | Life::Paused
            | Life::Finishing(FinishStep::Reading | FinishStep::Persisting(_)) => {
                self.persist_and(Exit::Leave, None)
            }
            Life::Starting { .. } | Life::Finishing(_) => {
                self.life = Life::Left;
                vec![TaskAction::StopWork, TaskAction::Leave]
            }
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

    fn read_up_to(&mut self, next: &PartitionOffsets) -> Vec<TaskAction> {
        self.advance(next);
        match (self.life, &self.record.end) {
            (Life::Finishing(FinishStep::Reading), Some(decision)) if self.next.reaches(&decision.end) => {
                let ticket = self.ticket();
                self.life = Life::Finishing(FinishStep::Persisting(ticket));
                vec![TaskAction::Persist { ticket }]
            }
            _ => Vec::new(),
        }
    }

    fn advance(&mut self, next: &PartitionOffsets) {
        self.next = PartitionOffsets::max(&self.next, next);
        let Self { next, beyond_end, .. } = self;
        beyond_end
            .retain(|partition, (waiting, _)| next.get(*partition).is_some_and(|next| next <= *waiting));
    }

    fn stood_still(&mut self, ticket: Ticket, next: &PartitionOffsets) -> Vec<TaskAction> {
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

    fn persisted(
        &mut self,
        now: TimestampMillis,
        ticket: Option<Ticket>,
        snapshot: Snapshot,
    ) -> Result<Vec<TaskAction>, Refusal> {
        match self.life {
            Life::Reading { .. }
            | Life::Paused
            | Life::Stopping { .. }
            | Life::Finishing(FinishStep::Reading | FinishStep::Persisting(_)) => {}
            Life::Starting { .. } | Life::Finishing(_) | Life::Left | Life::Ended(_) => {
                return Err(self.not_expected("a persist"));
            }
        }
        let unknown = std::mem::take(&mut self.record.read.unknown);
        self.record.read = snapshot.read;
        self.record.read.unknown = unknown;
        self.record.runs.extend(snapshot.runs);
        let read = self.record.read.next.clone();
        self.advance(&read);
        let mut actions = vec![TaskAction::Save];
        match self.life {
            Life::Finishing(FinishStep::Persisting(ordered)) if ticket == Some(ordered) => {
                self.finish(&mut actions);
            }
            Life::Stopping {
                ticket: ordered,
                exit,
            } if ticket == Some(ordered) => match exit {
                Exit::Leave => {
                    self.life = Life::Left;
                    actions.extend([TaskAction::StopWork, TaskAction::Leave]);
                }
                Exit::End(reason) => return Ok(self.end(now, reason.ending(), String::new(), true)),
            },
            _ => {}
        }
        Ok(actions)
    }

    fn out_of_range(&mut self, partition: PartitionId, lost: OffsetRange) -> Vec<TaskAction> {
        if self.expired.insert(partition, lost) == Some(lost) {
            return Vec::new();
        }
        vec![TaskAction::Report]
    }

    /// The first error wins; what is known to be published does not fail any more.
    fn failed(&mut self, now: TimestampMillis, detail: String) -> Result<Vec<TaskAction>, Refusal> {
        match self.life {
            Life::Ended(ending) => Err(Refusal::HasEnded(ending)),
            Life::Left => Err(self.not_expected("a failure")),
            Life::Stopping {
                exit: Exit::Leave, ..
            } => {
                self.life = Life::Left;
                Ok(vec![TaskAction::StopWork, TaskAction::Leave])
            }
            Life::Stopping {
                exit: Exit::End(reason),
                ..
            } => Ok(self.end(now, reason.ending(), detail, true)),
            Life::Finishing(FinishStep::Handoff) => {
                self.alert_unserved(&detail);
                Ok(self.end(now, Ending::Published, String::new(), false))
            }
            Life::Starting { .. } | Life::Reading { .. } | Life::Paused | Life::Finishing(_) => {
                Ok(self.end(now, Ending::Failed, detail, false))
            }
        }
    }

    /// The end, durable first; then nothing of it is left but the record.
    pub(super) fn end(
        &mut self,
        now: TimestampMillis,
        ending: Ending,
        reason: String,
        kept: bool,
    ) -> Vec<TaskAction> {
        self.life = Life::Ended(ending);
        self.record.ended = Some(Ended {
            ending,
            reason,
            at: now,
            kept,
        });
        let mut actions = vec![TaskAction::Save, TaskAction::StopWork];
        if !kept {
            actions.push(TaskAction::DropLocal);
        }
        actions.push(TaskAction::End(ending));
        actions
    }

    fn reason(&self) -> String {
        if let Some(ended) = &self.record.ended {
            return ended.reason.clone();
        }
        if !self.expired.is_empty() {
            let ranges: Vec<String> = self
                .expired
                .iter()
                .map(|(partition, lost)| format!("partition {partition} {lost}"))
                .collect();
            return format!(
                "LOST_DATA: the broker dropped records before they were read ({}); reset the supervisor's offsets, \
                 or set resetOffsetAutomatically",
                ranges.join(", ")
            );
        }
        if !self.hindrance.is_empty() {
            return self.hindrance.clone();
        }
        let waits = |(partition, (next, high)): (&PartitionId, &(Offset, Offset))| {
            format!("partition {partition} waits for offset {next}, the log ends at {high}")
        };
        self.beyond_end.iter().map(waits).collect::<Vec<_>>().join("; ")
    }

    fn alert(&self) -> String {
        let lost = self
            .record
            .read
            .lost
            .iter()
            .map(|lost: &LostRange| lost_text(lost));
        let own = Some(self.record.alert.clone()).filter(|alert| !alert.is_empty());
        own.into_iter().chain(lost).collect::<Vec<_>>().join("; ")
    }
}
