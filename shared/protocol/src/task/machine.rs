//! The machine: its state, how it begins, and its one entry.

use std::collections::BTreeMap;

use tidegate_types::{Offset, OffsetRange, PartitionId, PartitionOffsets, SequenceId, TimestampMillis};

use super::backoff::Backoff;
use super::event::{Answer, Refusal, StopReason, TaskAction, TaskEvent, Ticket, Trigger, lost_text};
use super::record::{Assignment, Ended, Ending, GroupMode, LostRange, TaskRecord};

/// What the spec says, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskSettings {
    /// 0 = wait for ever.
    pub handoff_timeout_millis: u64,
    /// Age at which a sequence is closed; `None` = never.
    pub handoff_period_millis: Option<u64>,
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
    /// The last end is set (D27): it reads up to it, publishes, and waits for the handoffs.
    Finishing,
    /// Persisting on the way out.
    Stopping {
        ticket: Ticket,
        exit: Exit,
    },
    /// The process has let go of it; the record is what counts.
    Left,
    Ended(Ending),
}

/// Where a part stands. Volatile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Step {
    /// Its records are being read or persisted, or it waits for the part before it.
    #[default]
    Reading,
    Merging,
    Uploading,
    /// The objects were refused; they are uploaded again at this time.
    WaitingToUpload {
        until: TimestampMillis,
    },
    /// Its objects stand; the part before it is not published yet.
    Ready,
    Publishing,
    /// Asked, and told to ask again at this time.
    WaitingToPublish {
        until: TimestampMillis,
    },
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
    /// Of the parts that are not at [`Step::Reading`].
    pub(super) steps: BTreeMap<SequenceId, Step>,
    /// Next offsets in memory; never behind those of the record.
    pub(super) next: PartitionOffsets,
    tickets: u64,
    /// A persist that was ordered and is not done.
    pub(super) persisting: Option<Ticket>,
    /// Why the task wants its open sequence to be closed; it stands still and asks.
    pub(super) wish: Option<Trigger>,
    /// The reader stands although the task reads: too many parts wait to be published.
    pub(super) held: bool,
    /// No record is read any more in this life.
    pub(super) reading_is_over: bool,
    /// Segments that are being asked for at the handoff-checker.
    pub(super) awaiting: usize,
    /// The wake that was ordered last.
    pub(super) wakes_at: Option<TimestampMillis>,
    /// What is in the way and being retried.
    pub(super) hindrance: String,
    pub(super) expired: BTreeMap<PartitionId, OffsetRange>,
    pub(super) beyond_end: BTreeMap<PartitionId, (Offset, Offset)>,
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
    /// The step of the first part that is not published, else of the first.
    pub step: Step,
    steps: &'a BTreeMap<SequenceId, Step>,
    pub next: &'a PartitionOffsets,
    /// It stands still and wants its open sequence to be closed.
    pub wish: Option<Trigger>,
    /// Why it failed, or what it waits for; empty when all is well.
    pub reason: String,
    /// What an operator should see although it is no failure.
    pub alert: String,
}

impl TaskView<'_> {
    /// The step of one part.
    pub fn step_of(&self, part: SequenceId) -> Step {
        self.steps.get(&part).copied().unwrap_or_default()
    }
}

impl TaskMachine {
    /// A new task. Its record is durable before the assignment is answered.
    pub fn assign(
        assignment: Assignment,
        settings: TaskSettings,
        now: TimestampMillis,
    ) -> (Self, Vec<TaskAction>) {
        let machine = Self::with(TaskRecord::new(assignment, now), settings);
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
            record,
            settings,
            life,
            steps: BTreeMap::new(),
            tickets: 0,
            persisting: None,
            wish: None,
            held: false,
            reading_is_over: false,
            awaiting: 0,
            wakes_at: None,
            hindrance: String::new(),
            expired: BTreeMap::new(),
            beyond_end: BTreeMap::new(),
            backoff: Backoff::new(250, 15_000),
            attempts: 0,
            bad_objects: 0,
            earlier_may_have_published: false,
        }
    }

    /// What is to be durable after the latest [`TaskAction::Save`].
    pub fn record(&self) -> &TaskRecord {
        &self.record
    }
    pub fn life(&self) -> Life {
        self.life
    }
    /// Where a part stands.
    pub fn step(&self, part: SequenceId) -> Step {
        self.steps.get(&part).copied().unwrap_or_default()
    }
    /// Next offsets, as far as the reader has reported.
    pub fn next(&self) -> &PartitionOffsets {
        &self.next
    }
    /// What can be said about it.
    pub fn view(&self) -> TaskView<'_> {
        let first = self.record.unpublished().next().or(self.record.parts.first());
        TaskView {
            record: &self.record,
            life: self.life,
            step: first.map_or_else(Step::default, |part| self.step(part.id)),
            steps: &self.steps,
            next: &self.next,
            wish: self.wish,
            reason: self.reason(),
            alert: self.alert(),
        }
    }

    /// The one entry. A refused event has changed nothing.
    pub fn on(&mut self, now: TimestampMillis, event: TaskEvent) -> Result<Vec<TaskAction>, Refusal> {
        // A call is answered for what it asks; what time has brought meanwhile comes with its own wake.
        let is_call = matches!(
            event,
            TaskEvent::Pause
                | TaskEvent::Resume
                | TaskEvent::SetEndOffsets(_)
                | TaskEvent::Stop { .. }
                | TaskEvent::Drain
        );
        let mut actions = match event {
            TaskEvent::Opened(local) => self.opened(now, local),
            TaskEvent::Pause => self.pause(),
            TaskEvent::Resume => Ok(self.resume()),
            TaskEvent::SetEndOffsets(entry) => self.set_end(now, entry),
            TaskEvent::Stop { reason, keep } => Ok(self.stop(now, reason, keep)),
            TaskEvent::Drain => Ok(self.drain()),
            TaskEvent::ReadUpTo(next) => {
                self.advance(&next);
                Ok(Vec::new())
            }
            TaskEvent::StoodStill { ticket, next } => Ok(self.stood_still(ticket, &next)),
            TaskEvent::Triggered { trigger, next } => Ok(self.triggered(trigger, &next)),
            TaskEvent::Persisted { ticket, snapshot } => self.persisted(now, ticket, *snapshot),
            TaskEvent::Merged { part, segments } => self.merged(part, segments),
            TaskEvent::Uploaded { part, object } => self.uploaded(part, object),
            TaskEvent::PublishAnswered { part, answer } => self.publish_answered(now, part, answer),
            TaskEvent::HandoffAnswered(seen) => self.handoff_answered(&seen),
            TaskEvent::Wake => {
                self.wakes_at = None;
                Ok(self.period_is_over(now))
            }
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
        }?;
        self.settle(now, is_call, &mut actions);
        debug_assert_eq!(self.record.broken(), None, "I1, I3: the record of a task");
        Ok(actions)
    }

    pub(super) fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// At work: not starting, not on its way out.
    pub(super) fn is_at_work(&self) -> bool {
        matches!(self.life, Life::Reading { .. } | Life::Paused | Life::Finishing)
    }

    pub(super) fn is_checkpointing(&self) -> bool {
        self.record.mode() == GroupMode::Checkpointing
    }

    pub(super) fn not_expected(&self, what: &'static str) -> Refusal {
        let life = match self.life {
            Life::Starting { .. } => "starting",
            Life::Reading { .. } => "reading",
            Life::Paused => "paused",
            Life::Finishing => "finishing",
            Life::Stopping { .. } => return Refusal::Stopping,
            Life::Left => "left to a later process",
            Life::Ended(ending) => return Refusal::HasEnded(ending),
        };
        Refusal::NotExpected { what, life }
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
            Life::Finishing if self.only_handoffs_left() => {
                self.alert_unserved(&detail);
                let ending = self.record.outcome.unwrap_or(Ending::Published);
                Ok(self.end(now, ending, String::new(), false))
            }
            Life::Starting { .. } | Life::Reading { .. } | Life::Paused | Life::Finishing => {
                self.alert_unserved("the task failed");
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
        self.wish = None;
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
