//! What a person sees, taken at one moment.

use std::collections::BTreeMap;

use tidegate_types::{Generation, GroupId, Offset, OffsetRange, PartitionId, SequenceId, TimestampMillis};

use super::settings::after;
use super::{Desired, OnLostData, RecentError, Supervisor, TaskDocument};
use crate::group::{GroupRun, GroupState, Replica, StoredMode, TaskState};
use crate::task::RowCounts;

/// Failed look-ups in a row before the supervisor is called unhealthy; failed tasks likewise.
const UNHEALTHY_AFTER: u32 = 3;

/// Where a supervisor stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Pending,
    Running,
    Suspended,
    Stopping,
    Terminated,
    UnhealthySupervisor,
    UnhealthyTasks,
    LostData,
    StreamChanged,
}

/// One partition; what is unknown is absent, never 0 (B64).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionView {
    pub partition: PartitionId,
    /// Next record that the reading task reads.
    pub current: Option<Offset>,
    pub committed: Option<Offset>,
    pub latest: Option<Offset>,
    /// Never negative: offsets are taken at different moments.
    pub lag: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskPlace {
    Reading,
    Publishing,
    Ended,
}

/// One task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskView {
    pub document: TaskDocument,
    pub place: TaskPlace,
    /// As told last; `None` = not heard of.
    pub state: Option<TaskState>,
    pub counts: RowCounts,
    /// Why it waits or how it failed.
    pub reason: String,
    pub remaining_seconds: u64,
    pub base_sequence_name: Option<String>,
    pub start: Option<tidegate_types::PartitionOffsets>,
    pub generation: Generation,
}

/// One group that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupView {
    pub id: GroupId,
    pub mode: StoredMode,
    pub mode_reason: String,
    /// reading, publishing, giving-up or ended.
    pub state: &'static str,
    pub partitions: Vec<PartitionId>,
    /// Checkpointing mode: the sequence that has no end yet, and the first one that is not published.
    pub open: SequenceId,
    pub unpublished: SequenceId,
    /// A person waits for an end of the open sequence.
    pub checkpoint_asked: bool,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub at: TimestampMillis,
    pub state: State,
    pub detail: String,
    pub partitions: Vec<PartitionView>,
    pub latest_taken_at: Option<TimestampMillis>,
    pub tasks: Vec<TaskView>,
    pub errors: Vec<RecentError>,
    /// Published groups exactly, running ones as told last.
    pub counts: RowCounts,
    pub generation: Generation,
    pub lost: BTreeMap<PartitionId, OffsetRange>,
    pub is_resetting: bool,
    /// In order of creation.
    pub groups: Vec<GroupView>,
    /// Groups to come.
    pub next_groups: Vec<super::PreparationView>,
}

impl Supervisor {
    pub fn snapshot(&self, now: TimestampMillis) -> Snapshot {
        let (state, detail) = self.state(now);
        let committed = self.look.committed.as_ref();
        Snapshot {
            at: now,
            state,
            detail,
            partitions: self.partition_views(),
            latest_taken_at: self.discovery.as_ref().map(|(_, at)| *at),
            tasks: self.task_views(now),
            errors: self.errors.iter().cloned().collect(),
            counts: self.counts(),
            generation: committed
                .map(|committed| committed.generation)
                .unwrap_or_default(),
            lost: self.lost.clone(),
            is_resetting: self.document.reset.is_some(),
            groups: self.groups.values().map(group_view).collect(),
            next_groups: self.preparation_views(),
        }
    }

    fn state(&self, now: TimestampMillis) -> (State, String) {
        match self.document.desired {
            Desired::Terminated => return (State::Terminated, String::new()),
            Desired::Stopping { .. } => {
                return (State::Stopping, "publishes what was read, then ends".into());
            }
            Desired::Running | Desired::Suspended => {}
        }
        if let Some(why) = &self.stream_changed {
            return (State::StreamChanged, why.clone());
        }
        if self.document.reset.is_some() {
            return (State::Running, "the committed offsets are being reset".into());
        }
        if !self.lost.is_empty() {
            return (State::LostData, self.lost_text());
        }
        if self.discovery_failures >= UNHEALTHY_AFTER {
            return (State::UnhealthySupervisor, self.last_error());
        }
        if self.failures >= UNHEALTHY_AFTER {
            return (State::UnhealthyTasks, self.last_error());
        }
        if self.document.desired == Desired::Suspended {
            return (State::Suspended, String::new());
        }
        if self.groups.is_empty() && (self.discovery.is_none() || self.look.number == 0) {
            return (State::Pending, "looks up the topic and its offsets".into());
        }
        if self.groups.is_empty() && !self.knows_runners(now) {
            return (
                State::Pending,
                "waits for a runner: none is registered and answering".into(),
            );
        }
        if self.groups.is_empty() {
            return (State::Pending, "starts its first tasks".into());
        }
        let waits = self
            .groups
            .values()
            .flat_map(GroupRun::live)
            .find(|replica| !replica.waits_for.is_empty());
        (
            State::Running,
            waits
                .map(|replica| format!("task {} {}", replica.document.id, replica.waits_for))
                .unwrap_or_default(),
        )
    }

    fn lost_text(&self) -> String {
        let ranges: Vec<_> = self
            .lost
            .iter()
            .map(|(partition, range)| format!("partition {partition}: {range}"))
            .collect();
        let skips = self
            .document
            .settings()
            .is_some_and(|settings| settings.on_lost_data == OnLostData::Skip);
        let what = if skips {
            "they are skipped as soon as what was read is published (resetOffsetAutomatically)".to_owned()
        } else {
            let id = &self.document.id;
            format!(
                "these partitions stand still, others go on; `tidegate supervisor reset {id}` with these partitions goes \
                 on from the first record there is"
            )
        };
        format!(
            "records that were not read are gone from the topic ({}); {what}",
            ranges.join(", ")
        )
    }

    fn last_error(&self) -> String {
        self.errors
            .back()
            .map(|error| error.message.clone())
            .unwrap_or_default()
    }

    fn partition_views(&self) -> Vec<PartitionView> {
        let mut views: BTreeMap<PartitionId, PartitionView> = BTreeMap::new();
        let discovered = self
            .discovery
            .iter()
            .flat_map(|(discovery, _)| discovery.partitions());
        let committed = self.look.committed.as_ref().map(|committed| &committed.offsets);
        for partition in discovered.chain(
            committed
                .into_iter()
                .flat_map(tidegate_types::PartitionOffsets::partitions),
        ) {
            let committed = committed.and_then(|offsets| offsets.get(partition));
            let current = self.current(partition);
            let latest = self
                .discovery
                .as_ref()
                .and_then(|(discovery, _)| discovery.latest.get(partition));
            let lag = latest
                .zip(current.or(committed))
                .map(|(latest, at)| u64::try_from(latest.0.saturating_sub(at.0)).unwrap_or(0));
            views.insert(
                partition,
                PartitionView {
                    partition,
                    current,
                    committed,
                    latest,
                    lag,
                },
            );
        }
        views.into_values().collect()
    }

    fn current(&self, partition: PartitionId) -> Option<Offset> {
        let group = self
            .groups
            .values()
            .rev()
            .find(|group| group.document.has(partition) && !group.document.is_over())?;
        if group.is_positioned() {
            group.position().get(partition)
        } else {
            None
        }
    }

    fn counts(&self) -> RowCounts {
        let mut counts = self.document.counts;
        for group in self.groups.values().filter(|group| !group.document.is_over()) {
            let told = group.replicas.values().map(|replica| match &replica.report {
                Some(report) => report.counts,
                None => replica.document.counts,
            });
            counts.add(&told.max_by_key(RowCounts::records).unwrap_or_default());
        }
        counts
    }

    fn task_views(&self, now: TimestampMillis) -> Vec<TaskView> {
        let ended = self.ended.iter().map(|task| TaskView {
            document: task.clone(),
            place: TaskPlace::Ended,
            state: None,
            counts: task.counts,
            reason: task.end.as_ref().map(|end| end.why.clone()).unwrap_or_default(),
            remaining_seconds: 0,
            base_sequence_name: None,
            start: None,
            generation: Generation::default(),
        });
        let running = self.groups.values().flat_map(|group| {
            group
                .replicas
                .values()
                .map(move |replica| self.task_view(now, group, replica))
        });
        ended.chain(running).collect()
    }

    fn task_view(&self, now: TimestampMillis, group: &GroupRun, replica: &Replica) -> TaskView {
        let place = match &replica.document.end {
            Some(_) => TaskPlace::Ended,
            None if group.reads() => TaskPlace::Reading,
            None => TaskPlace::Publishing,
        };
        let told = replica.report.as_ref();
        let ends = group
            .document
            .first_read
            .zip(self.document.settings())
            .map(|(first, settings)| {
                after(first, settings.task_duration_millis)
                    .0
                    .saturating_sub(now.0)
            });
        let reason = told
            .map(|report| report.reason.clone())
            .filter(|reason| !reason.is_empty());
        TaskView {
            document: replica.document.clone(),
            place,
            state: told.map(|report| report.state),
            counts: told.map_or(replica.document.counts, |report| report.counts),
            reason: reason.unwrap_or_else(|| match &replica.document.end {
                Some(end) => end.why.clone(),
                None => replica.waits_for.clone(),
            }),
            remaining_seconds: match place {
                TaskPlace::Reading => ends.map_or(0, |millis| u64::try_from(millis / 1_000).unwrap_or(0)),
                TaskPlace::Publishing | TaskPlace::Ended => 0,
            },
            base_sequence_name: Some(group.document.base_sequence_name.to_string()),
            start: Some(group.document.start.clone()),
            generation: group.document.generation,
        }
    }
}

fn group_view(group: &GroupRun) -> GroupView {
    let document = &group.document;
    GroupView {
        id: document.id.clone(),
        mode: document.mode.clone(),
        mode_reason: document.mode_reason.clone(),
        state: match document.state {
            GroupState::Reading => "reading",
            GroupState::Pending { .. } => "publishing",
            GroupState::GivingUp { .. } => "giving-up",
            GroupState::Done | GroupState::Lost { .. } => "ended",
        },
        partitions: group.partitions().collect(),
        open: group.open_sequence().0,
        unpublished: group.first_unpublished().0,
        checkpoint_asked: group.checkpoint_asked.is_some(),
    }
}
