//! What runners say: heartbeats and answers about tasks.

use std::collections::BTreeSet;

use tidegate_types::{RunnerId, TaskId, TimestampMillis};

use super::settings::after;
use super::{Action, CallError, Change, PauseAnswer, RunnerView, Seen, Stop, Supervisor, TaskAnswer};
use crate::group::{
    Call, GroupRun, GroupState, HowToTell, StopWord, TaskDocument, TaskPhase, TaskReport, TaskState,
};
use crate::task::{Ending, StopReason};

/// A task that reads for so long has recovered from the failures of those before it.
const STEADY_MILLIS: u64 = 60_000;
/// A task that took a pause is asked again after this time.
const ASK_AGAIN_MILLIS: u64 = 200;

impl Supervisor {
    pub(super) fn heartbeat(&mut self, now: TimestampMillis, view: RunnerView, tasks: Vec<TaskReport>) {
        let runner = view.id.clone();
        let reported: BTreeSet<TaskId> = tasks.iter().map(|report| report.task.clone()).collect();
        let holds = tasks
            .iter()
            .filter(|report| !report.state.is_ended())
            .map(|report| report.task.clone())
            .collect();
        self.runners.insert(
            runner.clone(),
            Seen {
                view: Some(view),
                at: now,
                holds,
            },
        );
        let later = self.later_look();
        for group in self.groups.values_mut() {
            let pending = group.is_pending();
            for replica in group.replicas.values_mut() {
                replica.refused_by.remove(&runner);
                let its_own = replica.lives() && replica.document.runner.as_ref() == Some(&runner);
                if its_own && replica.assigned && !reported.contains(&replica.document.id) {
                    // It does not have the task (any more): it is asked to take it again, unless that is published.
                    replica.assigned = false;
                    if pending {
                        group.look_after = Some(later);
                    }
                }
            }
        }
        self.prepared_missing(&runner, &reported);
        // A stop that is not among the reports has happened.
        self.stops.retain(|task, stop| {
            stop.runner != runner || stop.call == Call::OnItsWay || reported.contains(task)
        });
        for report in tasks {
            self.reported(now, &runner, report);
        }
    }

    /// Takes the group out that has this task, works on it, and puts it back.
    fn with_group_of<R>(
        &mut self,
        task: &TaskId,
        work: impl FnOnce(&mut Self, &mut GroupRun) -> R,
    ) -> Option<R> {
        let has = |group: &GroupRun| group.replicas.get(task).is_some_and(super::Replica::lives);
        let ordinal = self
            .groups
            .iter()
            .find(|(_, group)| has(group))
            .map(|(ordinal, _)| *ordinal)?;
        let mut group = self.groups.remove(&ordinal)?;
        let result = work(self, &mut group);
        self.groups.insert(ordinal, group);
        Some(result)
    }

    fn reported(&mut self, now: TimestampMillis, runner: &RunnerId, report: TaskReport) {
        if self.prepared_reported(now, &report) {
            return;
        }
        let task = report.task.clone();
        let (ended, in_handoff) = (report.state.is_ended(), report.phase == TaskPhase::Handoff);
        let ours = self.with_group_of(&task, |supervisor, group| {
            let expected = group.replicas.get_mut(&task).is_some_and(|replica| {
                // One that was thought to have no slot, and has one after all, is taken too.
                report
                    .token
                    .as_ref()
                    .is_none_or(|token| *token == replica.document.token)
                    && replica.document.runner.get_or_insert_with(|| runner.clone()) == runner
            });
            if expected {
                supervisor.take_report(now, group, report);
            }
            expected
        });
        if ours == Some(true) {
            return;
        }
        if ended {
            self.stops.remove(&task);
        } else if !in_handoff && ours.is_none() {
            // Unknown, or superseded while its runner was away. One that waits for handoff has published: let it be.
            let stop = Stop {
                runner: runner.clone(),
                reason: StopReason::Replaced,
                call: Call::Idle,
            };
            self.stops.entry(task).or_insert(stop);
        }
    }

    fn take_report(&mut self, now: TimestampMillis, group: &mut GroupRun, report: TaskReport) {
        let task = report.task.clone();
        let Some(replica) = group.replicas.get_mut(&task) else {
            return;
        };
        if report.state.is_prepared() {
            return; // it has not heard yet that it begins
        }
        let mut changes = Vec::new();
        replica.assigned = true;
        let before = replica.report.clone();
        let claimed = before.as_ref().is_some_and(TaskReport::claims_published);
        let alert = replica
            .report
            .as_ref()
            .is_none_or(|last| last.alert != report.alert)
            && !report.alert.is_empty();
        let decision = group
            .document
            .decision()
            .map(|decision| decision.decision_id.clone());
        replica.end_told = decision.is_some_and(|decision| decision == report.decision_id);
        if !matches!(report.state, TaskState::Paused) {
            replica.stands = false;
        }
        replica.report = Some(report.clone());
        if group.document.first_read.is_none() && report.first_read.is_some() {
            group.document.first_read = report.first_read;
            changes.push(Change::PutGroup(Box::new(group.document.clone())));
        }
        let unpublished = |report: &TaskReport| report.unpublished;
        let moved_on = report.unpublished > before.as_ref().and_then(unpublished);
        if (report.claims_published() && !claimed)
            || (moved_on && report.unpublished.is_some_and(|at| at.0 > 0))
        {
            group.look_after = Some(self.later_look());
        }
        if alert {
            self.error(now, format!("task {task}: {}", report.alert));
        }
        self.note_progress(now, group, &report);
        let steady = report
            .first_read
            .is_some_and(|first| now >= after(first, STEADY_MILLIS));
        if report.state == TaskState::Reading && steady {
            self.failures = 0;
        }
        let how = match report.state {
            TaskState::Published => Some(Ending::Published),
            TaskState::Superseded => Some(Ending::Superseded),
            TaskState::Stopped => Some(Ending::Stopped),
            TaskState::Replaced => Some(Ending::Replaced),
            TaskState::Failed => Some(Ending::Failed),
            TaskState::Starting
            | TaskState::Reading
            | TaskState::Paused
            | TaskState::Finishing
            | TaskState::Stopping
            | TaskState::Preparing
            | TaskState::Prepared
            | TaskState::Unknown(_) => None,
        };
        if let Some(how) = how {
            self.task_ended(now, group, &task, how, report.reason, &mut changes);
        }
        if !changes.is_empty() {
            self.store(changes);
        }
    }

    /// A finishing group that gets on is not given up (B39).
    fn note_progress(&mut self, now: TimestampMillis, group: &mut GroupRun, report: &TaskReport) {
        let timeout = self.completion_timeout(group.document.spec_version);
        let GroupState::Pending { deadline, .. } = &mut group.document.state else {
            return;
        };
        let mark = (report.state, report.progress, report.counts.records());
        if group.progress.insert(report.task.clone(), mark) != Some(mark) {
            *deadline = (*deadline).max(after(now, timeout));
        }
    }

    fn task_ended(
        &mut self,
        now: TimestampMillis,
        group: &mut GroupRun,
        task: &TaskId,
        how: Ending,
        reason: String,
        changes: &mut Vec<Change>,
    ) {
        let failed = how == Ending::Failed;
        if failed {
            self.failures = self.failures.saturating_add(1);
            let why = if reason.is_empty() {
                "it gave no reason"
            } else {
                &reason
            };
            self.error(
                now,
                format!("task {task} of group {} failed: {why}", group.document.id),
            );
            group.no_task_before = self.back_off(now);
        }
        self.end_task(now, group, task, how, reason, None, changes);
        group.look_after = Some(self.later_look());
    }

    pub(super) fn task_answered(&mut self, now: TimestampMillis, task: &TaskId, answer: TaskAnswer) {
        if let TaskAnswer::Stopped(result) = answer {
            return self.stopped(now, task, &result);
        }
        if let TaskAnswer::Prepared(result) = answer {
            return self.prepare_answered(now, task, result);
        }
        self.with_group_of(task, |supervisor, group| match answer {
            TaskAnswer::Assigned(result) => supervisor.assigned(now, group, task, result),
            TaskAnswer::Paused(result) => supervisor.pause_answered(now, group, task, result),
            TaskAnswer::Resumed(result) => supervisor.resumed(now, group, task, &result),
            TaskAnswer::EndTold(result) => supervisor.end_answered(now, group, task, result),
            TaskAnswer::Stopped(_) | TaskAnswer::Prepared(_) => {}
        });
    }

    fn assigned(
        &mut self,
        now: TimestampMillis,
        group: &mut GroupRun,
        task: &TaskId,
        result: Result<Box<TaskReport>, CallError>,
    ) {
        let retry = self.retry(now);
        let Some(replica) = group.replicas.get_mut(task) else {
            return;
        };
        replica.assigning = Call::Idle;
        match result {
            Ok(report) => self.take_report(now, group, *report),
            Err(CallError::Unreachable(why)) => {
                replica.assigning = retry;
                replica.waits_for = format!("its runner does not answer: {why}");
            }
            Err(CallError::NoSlot(_)) => {
                replica.refused_by.extend(replica.document.runner.take());
                let change = Change::PutTask(Box::new(replica.document.clone()));
                self.store(vec![change]);
            }
            Err(CallError::Refused(why) | CallError::NotFound(why)) => {
                let mut changes = Vec::new();
                let why = format!("its runner refused it: {why}");
                self.task_ended(now, group, task, Ending::Failed, why, &mut changes);
                self.store(changes);
            }
        }
    }

    fn pause_answered(
        &mut self,
        now: TimestampMillis,
        group: &mut GroupRun,
        task: &TaskId,
        result: Result<PauseAnswer, CallError>,
    ) {
        let retry = self.retry(now);
        let to_tell = group
            .replicas
            .get(task)
            .is_some_and(|replica| group.untold(replica).is_some());
        let Some(replica) = group.replicas.get_mut(task) else {
            return;
        };
        replica.telling = Call::Idle;
        replica.stands = matches!(result, Ok(PauseAnswer::Standing(_)));
        if let (Ok(PauseAnswer::Standing(next)), Some(report)) = (&result, &mut replica.report) {
            report.next = Some(next.clone());
        }
        if group.round.is_some() {
            return self.paused(now, group, task, result);
        }
        if to_tell && replica.how_to_tell == HowToTell::PauseFirst {
            match result {
                Ok(PauseAnswer::Standing(_)) => replica.how_to_tell = HowToTell::ItStands,
                Ok(PauseAnswer::Accepted) => replica.telling = Call::Again(after(now, ASK_AGAIN_MILLIS)),
                // It finishes already: its next report says with which decision.
                Err(CallError::Refused(_)) => {
                    replica.how_to_tell = HowToTell::Directly;
                    replica.telling = retry;
                }
                Err(CallError::NotFound(_)) => replica.assigned = false,
                Err(CallError::Unreachable(_) | CallError::NoSlot(_)) => replica.telling = retry,
            }
        }
    }

    fn resumed(
        &mut self,
        now: TimestampMillis,
        group: &mut GroupRun,
        task: &TaskId,
        result: &Result<(), CallError>,
    ) {
        let retry = self.retry(now);
        let Some(replica) = group.replicas.get_mut(task) else {
            return;
        };
        replica.telling = if result.is_ok() { Call::Idle } else { retry };
        if result.is_ok() {
            replica.stands = false;
            if let Some(report) = replica
                .report
                .as_mut()
                .filter(|report| report.state == TaskState::Paused)
            {
                report.state = TaskState::Reading;
            }
        }
    }

    fn end_answered(
        &mut self,
        now: TimestampMillis,
        group: &mut GroupRun,
        task: &TaskId,
        result: Result<(), CallError>,
    ) {
        let retry = self.retry(now);
        let finish = group
            .log
            .last()
            .filter(|entry| entry.finish)
            .map(|entry| entry.sequence);
        let is_finish = |sequence| finish == Some(sequence);
        let is_checkpointing = group.document.is_checkpointing();
        let Some(replica) = group.replicas.get_mut(task) else {
            return;
        };
        replica.telling = Call::Idle;
        let is_last = !is_checkpointing || replica.telling_end_of.is_some_and(is_finish);
        let sequence = replica.telling_end_of.take();
        match result {
            Ok(()) => {
                replica.stands = false;
                replica.how_to_tell = HowToTell::Directly;
                if let Some(report) = &mut replica.report {
                    if report.state == TaskState::Paused {
                        report.state = TaskState::Reading;
                    }
                    if let Some(sequence) = sequence.filter(|sequence| report.open == Some(*sequence)) {
                        report.open = (!is_finish(sequence)).then(|| sequence.next());
                        report.wants_checkpoint = false;
                    }
                }
                replica.end_told = is_last;
            }
            Err(CallError::Refused(why)) if replica.how_to_tell == HowToTell::ItStands => {
                self.error(
                    now,
                    format!("task {task} cannot take the end of its group ({why}): it is replaced"),
                );
                let mut changes = Vec::new();
                let why = format!("it refused the end of its group: {why}");
                self.end_task(
                    now,
                    group,
                    task,
                    Ending::Replaced,
                    why,
                    Some(StopWord::Replaced),
                    &mut changes,
                );
                self.store(changes);
            }
            Err(CallError::Refused(_)) => replica.how_to_tell = HowToTell::PauseFirst,
            Err(CallError::NotFound(_)) => replica.assigned = false,
            Err(CallError::Unreachable(_) | CallError::NoSlot(_)) => replica.telling = retry,
        }
    }

    fn stopped(&mut self, now: TimestampMillis, task: &TaskId, result: &Result<(), CallError>) {
        let retry = self.retry(now);
        match result {
            Ok(()) | Err(CallError::NotFound(_) | CallError::Refused(_)) => {
                self.stops.remove(task);
            }
            Err(CallError::Unreachable(_) | CallError::NoSlot(_)) => {
                if let Some(stop) = self.stops.get_mut(task) {
                    stop.call = retry;
                }
            }
        }
    }

    /// Stops are repeated until they are answered; a silent runner hears of them when it is back, by its report.
    pub(super) fn send_stops(&mut self, now: TimestampMillis) {
        let gone: Vec<TaskId> = self
            .stops
            .iter()
            .filter(|(_, stop)| stop.call != Call::OnItsWay && self.is_gone(&stop.runner, now))
            .map(|(task, _)| task.clone())
            .collect();
        for task in gone {
            self.stops.remove(&task);
        }
        for (task, stop) in self.stops.iter_mut().filter(|(_, stop)| stop.call.is_ready(now)) {
            stop.call = Call::OnItsWay;
            self.actions.push(Action::StopTask {
                runner: stop.runner.clone(),
                task: task.clone(),
                reason: stop.reason,
            });
        }
    }

    /// Keeps an ended task for people, and lets the oldest go.
    pub(super) fn keep_ended(&mut self, task: TaskDocument, changes: &mut Vec<Change>) {
        self.ended.push_back(task);
        while self.ended.len() > self.limits.ended_tasks_kept {
            if let Some(oldest) = self.ended.pop_front() {
                changes.push(Change::DeleteTask(oldest.id));
            }
        }
    }
}
