//! A group that can not be published: it is fenced at the publisher, looked up once more, and made again from the
//! committed offsets, with all groups that were built on it.

use tidegate_types::TimestampMillis;

use super::{Change, Supervisor};
use crate::group::{GroupRun, GroupState, StopWord};

impl Supervisor {
    /// Begins to give a group up. Noted before the publisher is told, so that a restart goes on with it.
    pub(super) fn give_up(
        &mut self,
        now: TimestampMillis,
        group: &mut GroupRun,
        why: String,
        stop: StopWord,
    ) {
        if group.document.is_over() || group.is_given_up() {
            return;
        }
        if stop == StopWord::Replaced {
            self.error(now, why.clone());
        }
        let decision = group.document.decision().cloned();
        group.document.state = GroupState::GivingUp { decision, why, stop };
        group.round = None;
        group.look_after = None;
        let change = Change::PutGroup(Box::new(group.document.clone()));
        self.store(vec![change]);
        self.steer_given_up(now, group);
    }

    /// Fence, then look: it may have published at the last moment. After the fence it cannot any more.
    pub(super) fn steer_given_up(&mut self, now: TimestampMillis, group: &mut GroupRun) {
        if !group.ended {
            return self.end_at_publisher(now, group);
        }
        if group.look_after.is_none() {
            // Restored in the middle: the fence stands, the look does not.
            group.look_after = Some(self.later_look());
        }
        if !self.has_looked_after(group.look_after) || group.deciding.is_some() {
            return;
        }
        let GroupState::GivingUp { why, stop, .. } = group.document.state.clone() else {
            return;
        };
        if self.is_published(group) {
            return self.done(now, group);
        }
        self.lose(now, group, why, stop);
        self.tell_it_is_over(now, group);
        let followers: Vec<u64> = self
            .groups
            .range(group.document.ordinal..)
            .filter(|(_, other)| other.shares_partitions(group))
            .map(|(ordinal, _)| *ordinal)
            .collect();
        for ordinal in followers {
            if let Some(mut follower) = self.groups.remove(&ordinal) {
                let (follower_id, id) = (&follower.document.id, &group.document.id);
                let why =
                    format!("group {follower_id} starts where {id} would have ended, which was given up");
                self.give_up(now, &mut follower, why, stop);
                self.groups.insert(ordinal, follower);
            }
        }
    }

    /// Ends a group that has read nothing, or of which no task is placed: nothing is lost, the next one starts at
    /// the same offsets.
    pub(super) fn drop_group(&mut self, now: TimestampMillis, group: &mut GroupRun, why: &str) {
        self.lose(
            now,
            group,
            format!("nothing to publish: {why}"),
            StopWord::Stopped,
        );
        self.tell_it_is_over(now, group);
    }

    fn lose(&mut self, now: TimestampMillis, group: &mut GroupRun, why: String, stop: StopWord) {
        group.document.state = GroupState::Lost { why: why.clone() };
        let mut changes = vec![Change::PutGroup(Box::new(group.document.clone()))];
        let live: Vec<_> = group.live().map(|replica| replica.document.id.clone()).collect();
        for task in live {
            self.end_task(
                now,
                group,
                &task,
                stop.ending(),
                why.clone(),
                Some(stop),
                &mut changes,
            );
        }
        self.store(changes);
    }
}
