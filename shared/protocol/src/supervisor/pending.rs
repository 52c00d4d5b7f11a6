//! A pending group: its end is decided, its replicas read up to it and publish. The catalog says when it is done.

use tidegate_types::TimestampMillis;

use super::{Action, CallError, Change, Supervisor};
use crate::group::{Call, GroupRun, GroupState, Replica, StopWord, TaskPhase};
use crate::task::{Ending, RowCounts};

impl Supervisor {
    pub(super) fn steer_pending(&mut self, now: TimestampMillis, group: &mut GroupRun) {
        if let super::Desired::Stopping {
            publish: super::Publish::No,
            ..
        } = self.document.desired
        {
            let why = format!(
                "group {}: the supervisor is terminated without publishing",
                group.document.id
            );
            return self.give_up(now, group, why, StopWord::Stopped);
        }
        if !group.is_committed() {
            self.look_whether_published(now, group);
        }
        if group.is_committed() {
            self.steer_committed(now, group);
        }
    }

    fn look_whether_published(&mut self, now: TimestampMillis, group: &mut GroupRun) {
        let claims = group.replicas.values().any(claims_published);
        if claims && group.look_after.is_none() {
            group.look_after = Some(self.later_look());
        }
        if self.is_published(group) {
            if let GroupState::Pending { committed, .. } = &mut group.document.state {
                *committed = true;
            }
            group.look_after = None;
            let change = Change::PutGroup(Box::new(group.document.clone()));
            return self.store(vec![change]);
        }
        let looked = self.has_looked_after(group.look_after);
        if looked && claims {
            self.refute_claims(now, group);
        }
        if looked {
            group.look_after = None;
        }
        let GroupState::Pending {
            deadline, decision, ..
        } = &group.document.state
        else {
            return;
        };
        let (deadline, end) = (*deadline, decision.end.clone());
        if let Some(why) = self.stream_changed.clone()
            && !group
                .live()
                .any(|replica| replica.next().is_some_and(|next| next.reaches(&end)))
        {
            // What is left of its range would be read from another topic.
            let why = format!("group {}: {why}", group.document.id);
            return self.give_up(now, group, why, StopWord::Stopped);
        }
        if now < deadline {
            return self.check_readable(now, group);
        }
        let millis = self.completion_timeout(group.document.spec_version);
        let why = format!(
            "group {} (up to {}) did not get on with publishing for {} s (completionTimeout): it is given up and its \
             records are read again",
            group.document.id,
            end,
            millis / 1_000
        );
        self.give_up(now, group, why, StopWord::Replaced);
    }

    /// True when the newest look shows the whole range committed in this group's generation.
    pub(super) fn is_published(&self, group: &GroupRun) -> bool {
        self.look.number > 0
            && self.look.committed.as_ref().is_some_and(|committed| {
                committed.generation == group.document.generation && group.is_published_at(&committed.offsets)
            })
    }

    /// A task said that it has published, and the catalog says no: the catalog is right.
    fn refute_claims(&mut self, now: TimestampMillis, group: &mut GroupRun) {
        let mut changes = Vec::new();
        let liars: Vec<_> = group
            .replicas
            .values()
            .filter(|replica| claims_published(replica))
            .map(|replica| replica.document.id.clone())
            .collect();
        for task in liars {
            self.error(
                now,
                format!("task {task} says that it has published, the catalog has not got it: it is replaced"),
            );
            let why = "it said that it has published; the catalog has not got it".to_owned();
            if let Some(replica) = group.replicas.get_mut(&task) {
                replica.document.end = None;
            }
            self.end_task(
                now,
                group,
                &task,
                Ending::Failed,
                why,
                Some(StopWord::Replaced),
                &mut changes,
            );
        }
        self.store(changes);
    }

    /// Records below the end that are gone, and nobody has read them: no use in waiting for the deadline.
    fn check_readable(&mut self, now: TimestampMillis, group: &mut GroupRun) {
        let Some((partition, range)) = self.unreadable(group) else {
            return;
        };
        if group.live().next().is_some() && !group.is_positioned() {
            return;
        }
        let id = &group.document.id;
        let why = format!("group {id}: partition {partition} lost {range} before it was read");
        self.give_up(now, group, why, StopWord::Replaced);
    }

    /// The rows are safe. The group stays while a replica waits for the serving tier; nobody is hurried (I9).
    fn steer_committed(&mut self, now: TimestampMillis, group: &mut GroupRun) {
        let published = group.replicas.values().any(|replica| {
            replica
                .document
                .end
                .as_ref()
                .is_some_and(|end| matches!(end.how, Ending::Published))
        });
        let waits_for_handoff = group
            .live()
            .any(|replica| in_handoff(replica) && !self.is_missing(replica, now));
        let lives = group.live().any(|replica| self.may_live(replica, now));
        let late = match &group.document.state {
            GroupState::Pending { deadline, .. } => now >= *deadline,
            _ => false,
        };
        if published || !lives || (late && !waits_for_handoff) {
            return self.done(now, group);
        }
        if waits_for_handoff {
            let mut changes = Vec::new();
            let others: Vec<_> = group
                .live()
                .filter(|replica| !in_handoff(replica))
                .map(|replica| replica.document.id.clone())
                .collect();
            for task in others {
                let why = "another replica has published".to_owned();
                self.end_task(
                    now,
                    group,
                    &task,
                    Ending::Superseded,
                    why,
                    Some(StopWord::Superseded),
                    &mut changes,
                );
            }
            if !changes.is_empty() {
                self.store(changes);
            }
        }
    }

    fn is_missing(&self, replica: &Replica, now: TimestampMillis) -> bool {
        replica
            .document
            .runner
            .as_ref()
            .is_some_and(|runner| self.is_gone(runner, now))
    }

    /// Its runner has it, or was not heard of in this life of the coordinator.
    fn may_live(&self, replica: &Replica, now: TimestampMillis) -> bool {
        let Some(runner) = &replica.document.runner else {
            return false;
        };
        let heard_of = self.runners.get(runner).is_some_and(|seen| seen.view.is_some());
        (replica.assigned || !heard_of) && !self.is_gone(runner, now)
    }

    /// The group is published: its counts are added in the transaction that ends it, so that they are added once.
    pub(super) fn done(&mut self, now: TimestampMillis, group: &mut GroupRun) {
        let counts = counts_of(group);
        self.document.counts.add(&counts);
        self.failures = 0;
        group.document.state = GroupState::Done;
        group.round = None;
        let mut changes = vec![
            self.put_supervisor(),
            Change::PutGroup(Box::new(group.document.clone())),
            // Its range is committed: no group with this name can ever follow.
            Change::TrimLog {
                base: group.document.base_sequence_name.clone(),
                below: None,
            },
        ];
        let live: Vec<_> = group.live().map(|replica| replica.document.id.clone()).collect();
        for task in live {
            let why = "its group has published".to_owned();
            self.end_task(
                now,
                group,
                &task,
                Ending::Superseded,
                why,
                Some(StopWord::Superseded),
                &mut changes,
            );
        }
        self.store(changes);
        self.tell_it_is_over(now, group);
    }

    /// The publisher hears that nobody waits for this group any more; then it is forgotten.
    pub(super) fn tell_it_is_over(&mut self, now: TimestampMillis, group: &mut GroupRun) {
        if group.ended && !group.gone {
            self.let_go(group);
        }
        self.end_at_publisher(now, group);
    }

    pub(super) fn end_at_publisher(&mut self, now: TimestampMillis, group: &mut GroupRun) {
        if !group.ended && group.ending.is_ready(now) {
            group.ending = Call::OnItsWay;
            self.actions.push(Action::EndGroup {
                supervisor: self.document.id.clone(),
                group: group.document.id.clone(),
            });
        }
    }

    pub(super) fn group_ended(
        &mut self,
        now: TimestampMillis,
        id: &tidegate_types::GroupId,
        result: Result<(), CallError>,
    ) {
        let retry = self.retry(now);
        let later = self.later_look();
        let Some(group) = self.group_by_id(id) else {
            return;
        };
        match result {
            Ok(()) | Err(CallError::NotFound(_)) => {
                group.ending = Call::Idle;
                group.ended = true;
                group.look_after = Some(later);
            }
            Err(error) => {
                group.ending = retry;
                self.error(
                    now,
                    format!("telling the publisher that group {id} is over: {error}"),
                );
            }
        }
    }

    /// The last trace of the group goes; its ended tasks stay for people, up to a number.
    fn let_go(&mut self, group: &mut GroupRun) {
        let mut changes = vec![Change::DeleteGroup(group.document.id.clone())];
        for (_, replica) in std::mem::take(&mut group.replicas) {
            self.keep_ended(replica.document, &mut changes);
        }
        self.store(changes);
        group.gone = true;
    }
}

fn claims_published(replica: &Replica) -> bool {
    let ended = replica.document.end.as_ref();
    ended.is_some_and(|end| matches!(end.how, Ending::Published | Ending::Superseded))
        || (replica.lives()
            && replica
                .report
                .as_ref()
                .is_some_and(crate::group::TaskReport::claims_published))
}

fn in_handoff(replica: &Replica) -> bool {
    replica
        .report
        .as_ref()
        .is_some_and(|report| report.phase == TaskPhase::Handoff && !report.state.is_ended())
}

/// Counts of the whole range: of a task that has published, else of the one that has read most (replicas count the
/// same records, I3).
fn counts_of(group: &GroupRun) -> RowCounts {
    let told = |replica: &Replica| match &replica.report {
        Some(report) if report.counts.records() >= replica.document.counts.records() => report.counts,
        _ => replica.document.counts,
    };
    let sure = group
        .replicas
        .values()
        .filter(|replica| claims_published(replica))
        .map(told);
    sure.max_by_key(|counts| (counts.records(), counts.stored))
        .or_else(|| group.replicas.values().map(told).max_by_key(RowCounts::records))
        .unwrap_or_default()
}
