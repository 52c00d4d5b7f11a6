//! Ending a reading group: why, the round of pauses, and the decision.

use std::collections::BTreeMap;

use tidegate_types::{GroupId, TaskId, TimestampMillis};

use super::settings::after;
use super::{Action, CallError, Change, Desired, PauseAnswer, Publish, Supervisor};
use crate::group::{Ask, Call, GroupRun, GroupState, Purpose, Replica, Round, StopWord, TaskState, Verdict};
use crate::mutation::{Mutation, is};
use crate::task::{EndDecision, Ending, LogEntry};

/// The deadline of a round for a checkpoint: all replicas stand meanwhile.
const CHECKPOINT_ROUND_MILLIS: u64 = 5_000;
/// Rounds for a checkpoint that nobody answers before those asked are replaced.
const MOST_FAILED_ROUNDS: u32 = 3;
/// A task that took a pause is asked again after this time.
const ASK_AGAIN_MILLIS: u64 = 200;

impl Supervisor {
    /// Every group does its next step. Nothing here waits, and no group looks at another one's calls.
    pub(super) fn steer(&mut self, now: TimestampMillis) {
        let due = self.due(now);
        self.each_group(|supervisor, group| {
            if group.creating {
                return;
            }
            match &group.document.state {
                GroupState::Reading => {
                    let why = due.get(&group.document.ordinal).map(String::as_str);
                    supervisor.steer_reading(now, group, why);
                }
                GroupState::Pending { .. } => supervisor.steer_pending(now, group),
                GroupState::GivingUp { .. } => supervisor.steer_given_up(now, group),
                GroupState::Done | GroupState::Lost { .. } => supervisor.tell_it_is_over(now, group),
            }
        });
        self.groups.retain(|_, group| !group.gone);
    }

    /// Reading groups that have to end, and why. One that rolls over takes those of the same lane along, so that
    /// partitions found meanwhile join.
    fn due(&self, now: TimestampMillis) -> BTreeMap<u64, String> {
        let reading: Vec<&GroupRun> = self.groups.values().filter(|group| group.reads()).collect();
        let mut due: BTreeMap<u64, String> = BTreeMap::new();
        for group in &reading {
            if let Some(why) = self.why_end(now, group) {
                due.insert(group.document.ordinal, why);
            }
        }
        let lanes: Vec<u32> = reading
            .iter()
            .filter(|group| due.contains_key(&group.document.ordinal))
            .filter(|group| group.in_round() || now >= group.no_round_before)
            .flat_map(|group| group.partitions().map(|partition| self.lane(partition)))
            .collect();
        for group in reading {
            if group
                .partitions()
                .any(|partition| lanes.contains(&self.lane(partition)))
            {
                due.entry(group.document.ordinal)
                    .or_insert_with(|| "a group of the same lane rolls over".into());
            }
        }
        due
    }

    /// Why a group has to end now. One that only makes room for the next one waits until that is ready (I10).
    fn why_end(&self, now: TimestampMillis, group: &GroupRun) -> Option<String> {
        match self.document.desired {
            Desired::Running => {}
            Desired::Suspended => return Some("the supervisor is suspended".into()),
            Desired::Stopping { .. } | Desired::Terminated => return Some("the supervisor ends".into()),
        }
        let settings = self.document.settings()?;
        let own = self.document.specs.get(&group.document.spec_version);
        if self.is_recovering() {
            return Some("lost ranges are skipped".into());
        }
        if !self.waits_for_followers(now, group) {
            if own.is_none_or(|own| own.task_view != settings.task_view) {
                return Some("a new spec".into());
            }
            if let Some(first) = group.document.first_read
                && now >= after(first, settings.task_duration_millis)
            {
                return Some("the task duration is over".into());
            }
        }
        self.unreadable(group)
            .map(|(partition, range)| format!("partition {partition} lost {range}"))
    }

    fn steer_reading(&mut self, now: TimestampMillis, group: &mut GroupRun, why_end: Option<&str>) {
        if group.deciding.is_some() {
            return;
        }
        if let Desired::Stopping {
            publish: Publish::No, ..
        } = self.document.desired
        {
            let why = format!(
                "group {}: the supervisor is terminated without publishing",
                group.document.id
            );
            return self.give_up(now, group, why, StopWord::Stopped);
        }
        if let Some(why) = self.stream_changed.clone() {
            let why = format!("group {}: {why}", group.document.id);
            return self.give_up(now, group, why, StopWord::Stopped);
        }
        // A round that has begun goes on, even if its reason has gone meanwhile.
        if group.round.is_none() && now >= group.no_round_before {
            match why_end {
                Some(why_end) if !group.live().any(Replica::is_placed) && !group.has_decided() => {
                    return self.drop_group(now, group, why_end);
                }
                Some(_) => self.start_round(now, group, Purpose::Finish),
                None if group.wants_checkpoint() => self.start_round(now, group, Purpose::Checkpoint),
                None => {}
            }
        }
        self.go_on_with_round(now, group);
    }

    fn start_round(&mut self, now: TimestampMillis, group: &mut GroupRun, purpose: Purpose) {
        let millis = self
            .document
            .settings()
            .map_or(80_000, |settings| settings.round_millis);
        // Nobody is replaced for a checkpoint that he slept through: he is told of it later.
        let millis = match purpose {
            Purpose::Finish => millis,
            Purpose::Checkpoint => millis.min(CHECKPOINT_ROUND_MILLIS),
        };
        let placed = group.live().filter(|replica| replica.is_placed());
        let asks = placed
            .map(|replica| (replica.document.id.clone(), Ask::Silent { again: now }))
            .collect();
        group.round = Some(Round {
            purpose,
            deadline: after(now, millis),
            asks,
        });
    }

    fn go_on_with_round(&mut self, now: TimestampMillis, group: &mut GroupRun) {
        let Some(mut round) = group.round.take() else {
            return;
        };
        for (task, ask) in &mut round.asks {
            let Some(replica) = group.replicas.get_mut(task).filter(|replica| replica.is_placed()) else {
                *ask = Ask::Out {
                    why: "it has ended".into(),
                };
                continue;
            };
            let Some(runner) = replica.document.runner.clone() else {
                continue;
            };
            if matches!(ask, Ask::Standing(_)) {
                // What it said counts, even if it is silent now: an end before it would cost its rows.
                continue;
            }
            if self.is_gone(&runner, now) {
                *ask = Ask::Out {
                    why: format!("runner {runner} is silent"),
                };
                continue;
            }
            let due = match ask {
                Ask::Accepted { again } | Ask::Silent { again } => now >= *again,
                Ask::Asked | Ask::Standing(_) | Ask::Out { .. } => false,
            };
            if due && replica.telling.is_ready(now) {
                replica.telling = Call::OnItsWay;
                self.actions.push(Action::PauseTask {
                    runner,
                    task: task.clone(),
                });
            }
        }
        let starting = |task: &TaskId| {
            group
                .replicas
                .get(task)
                .is_some_and(|replica| replica.state() == Some(TaskState::Starting))
        };
        let (open, open_start) = group.open_sequence();
        let open_start = open_start.clone();
        match round.verdict(now, &open_start, starting) {
            Verdict::Open => group.round = Some(round),
            Verdict::NoAnswer { out } => self.round_failed(now, group, &round, out),
            Verdict::Decide { end, .. } if end == open_start && round.purpose == Purpose::Checkpoint => {
                // Nothing new: no sequence, and whoever stands reads on.
                group.checkpoint_asked = None;
                group.failed_rounds = 0;
            }
            Verdict::Decide { end, .. } if end == group.document.start && !group.has_decided() => {
                // Nothing was read, so there is nothing to decide: a logged end would bind the next group, which
                // starts at the same offsets and has the same name.
                self.drop_group(now, group, "it has read nothing");
            }
            Verdict::Decide { end, out } => {
                let finish = round.purpose == Purpose::Finish;
                // A replica that took no part in a checkpoint is told of it like one that is behind.
                let out = if group.document.is_checkpointing() {
                    Vec::new()
                } else {
                    out
                };
                let decision_id = if finish {
                    group.document.decision_id()
                } else {
                    group.document.checkpoint_id(open)
                };
                for task in &out {
                    self.note_left_out(now, group, &round, task);
                }
                if is(Mutation::TellBeforeLogged) {
                    let entry = LogEntry {
                        sequence: open,
                        decision: EndDecision {
                            decision_id: decision_id.clone(),
                            end: end.clone(),
                        },
                        finish,
                    };
                    let told = group.live().filter(|replica| replica.assigned);
                    for (runner, task) in told.filter_map(|replica| {
                        Some((replica.document.runner.clone()?, replica.document.id.clone()))
                    }) {
                        let entry = entry.clone();
                        self.actions.push(Action::SetEndOffsets { runner, task, entry });
                    }
                }
                group.deciding = Some(out);
                self.actions.push(Action::RecordDecision {
                    group: group.document.id.clone(),
                    base: group.document.base_sequence_name.clone(),
                    entry: LogEntry {
                        sequence: open,
                        decision: EndDecision { decision_id, end },
                        finish,
                    },
                });
            }
        }
    }

    fn note_left_out(&mut self, now: TimestampMillis, group: &GroupRun, round: &Round, task: &TaskId) {
        let why = match round.asks.get(task) {
            Some(Ask::Out { why }) => why.clone(),
            _ => "it did not answer the pause in time".into(),
        };
        self.error(
            now,
            format!("task {task} of group {} is replaced: {why}", group.document.id),
        );
    }

    /// Nobody answered: no decision. Those that are unreachable are replaced, and the group reads on (D33).
    fn round_failed(&mut self, now: TimestampMillis, group: &mut GroupRun, round: &Round, out: Vec<TaskId>) {
        let look_up = self
            .document
            .settings()
            .map_or(30_000, |settings| settings.look_up_millis);
        group.no_round_before = after(now, look_up.min(5_000));
        if round.purpose == Purpose::Checkpoint {
            group.failed_rounds += 1;
            if group.failed_rounds < MOST_FAILED_ROUNDS {
                return;
            }
            group.failed_rounds = 0;
        }
        let mut changes = Vec::new();
        for task in out {
            self.note_left_out(now, group, round, &task);
            let why = "it could not be paused".to_owned();
            self.end_task(
                now,
                group,
                &task,
                Ending::Replaced,
                why,
                Some(StopWord::Replaced),
                &mut changes,
            );
        }
        if !changes.is_empty() {
            self.store(changes);
        }
    }

    /// An answer to a pause, while a round is on.
    pub(super) fn paused(
        &mut self,
        now: TimestampMillis,
        group: &mut GroupRun,
        task: &TaskId,
        answer: Result<PauseAnswer, CallError>,
    ) {
        let again = after(now, ASK_AGAIN_MILLIS);
        let silent = after(now, self.limits.retry_millis);
        let start = &group.document.start;
        let Some(ask) = group.round.as_mut().and_then(|round| round.asks.get_mut(task)) else {
            return;
        };
        if matches!(ask, Ask::Out { .. }) {
            return;
        }
        *ask = match answer {
            Ok(PauseAnswer::Standing(next)) if next.same_partitions(start) => Ask::Standing(next),
            // Part of the partitions is no answer (D46).
            Ok(PauseAnswer::Standing(next)) => Ask::Out {
                why: format!("it answered {next} for the partitions of {start}"),
            },
            Ok(PauseAnswer::Accepted) => Ask::Accepted { again },
            Err(CallError::Unreachable(_)) => Ask::Silent { again: silent },
            Err(error) => Ask::Out {
                why: format!("pause: {error}"),
            },
        };
    }

    /// The end is in the log: now, and not before, tasks hear of it (I5).
    pub(super) fn decision_stored(&mut self, now: TimestampMillis, id: &GroupId, entry: LogEntry) {
        let ordinal = self
            .groups
            .values()
            .find(|group| group.document.id == *id)
            .map(|group| group.document.ordinal);
        let Some(mut group) = ordinal.and_then(|ordinal| self.groups.remove(&ordinal)) else {
            return;
        };
        let out = group.deciding.take().unwrap_or_default();
        group.failed_rounds = 0;
        if group.document.is_checkpointing() && group.open_sequence().0 == entry.sequence {
            group.log.push(entry.clone());
            group.checkpoint_asked = None;
        }
        match &mut group.document.state {
            GroupState::Reading if entry.finish => {
                self.becomes_pending(now, &mut group, entry.decision, out);
            }
            GroupState::Reading => self.replace_inconsistent(now, &mut group, &entry.decision),
            GroupState::GivingUp {
                decision: known @ None,
                ..
            } if entry.finish => *known = Some(entry.decision),
            GroupState::GivingUp { .. }
            | GroupState::Pending { .. }
            | GroupState::Done
            | GroupState::Lost { .. } => {}
        }
        self.groups.insert(group.document.ordinal, group);
    }

    fn becomes_pending(
        &mut self,
        now: TimestampMillis,
        group: &mut GroupRun,
        decision: EndDecision,
        out: Vec<TaskId>,
    ) {
        let beyond = read_beyond(group, &decision);
        let deadline = after(now, self.completion_timeout(group.document.spec_version));
        group.document.state = GroupState::Pending {
            decision,
            deadline,
            committed: false,
        };
        let mut changes = vec![Change::PutGroup(Box::new(group.document.clone()))];
        for task in out {
            let why = "it took no part in the round that ended its group".to_owned();
            self.end_task(
                now,
                group,
                &task,
                Ending::Replaced,
                why,
                Some(StopWord::Replaced),
                &mut changes,
            );
        }
        for task in beyond {
            let why = "it had read beyond the decided end".to_owned();
            self.end_task(
                now,
                group,
                &task,
                Ending::Replaced,
                why,
                Some(StopWord::Replaced),
                &mut changes,
            );
        }
        self.store(changes);
    }

    /// A replica that has read past an end that was decided without it cannot tell its rows apart any more.
    fn replace_inconsistent(&mut self, now: TimestampMillis, group: &mut GroupRun, decision: &EndDecision) {
        let mut changes = Vec::new();
        for task in read_beyond(group, decision) {
            let why = "it had read beyond the decided end".to_owned();
            self.error(
                now,
                format!("task {task} of group {} is replaced: {why}", group.document.id),
            );
            self.end_task(
                now,
                group,
                &task,
                Ending::Replaced,
                why,
                Some(StopWord::Replaced),
                &mut changes,
            );
        }
        if !changes.is_empty() {
            self.store(changes);
        }
    }
}

/// Tasks that stand behind an end that nobody was told yet.
fn read_beyond(group: &GroupRun, decision: &EndDecision) -> Vec<TaskId> {
    let too_far = |replica: &&Replica| {
        replica.next().is_some_and(|next| {
            decision
                .end
                .iter()
                .any(|(partition, end)| next.get(partition).is_some_and(|next| next > end))
        })
    };
    group
        .live()
        .filter(too_far)
        .map(|replica| replica.document.id.clone())
        .collect()
}
