//! New groups: which partitions are free, how they are cut, where they start.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{Generation, GroupId, InvalidId, PartitionId, StartOffsets, TimestampMillis};

use super::settings::after;
use super::{Action, Change, Desired, Settings, Supervisor};
use crate::group::{GroupDocument, GroupRun, GroupState, StoredMode};
use crate::sequence::{NameInput, base_sequence_name};
use crate::task::{GroupMode, LogEntry, Unknown};

/// Longest part of a supervisor id that is shown in a group id, in bytes.
const SHOWN_SUPERVISOR_BYTES: usize = 160;

impl Supervisor {
    /// Which of `min(taskCount, partitions)` groups a partition belongs to. Only for cutting: a group's identity is
    /// stored, and partitions found later may form a group of their own until the next roll-over.
    pub(super) fn lane(&self, partition: PartitionId) -> u32 {
        let partitions = self
            .discovery
            .as_ref()
            .map_or(1, |(discovery, _)| discovery.earliest.len());
        let wanted = self.document.settings().map_or(1, |settings| settings.task_count);
        let lanes = u32::try_from(partitions).unwrap_or(u32::MAX).min(wanted).max(1);
        partition.0.unsigned_abs() % lanes
    }

    /// New groups only when all is well; those that are there go on in any case.
    pub(super) fn may_create(&self, now: TimestampMillis) -> bool {
        let delay = self
            .document
            .settings()
            .map_or(0, |settings| settings.start_delay_millis);
        self.document.desired == Desired::Running
            && self.document.reset.is_none()
            && self.stream_changed.is_none()
            && self.discovery.is_some()
            && self.look.number > 0
            && now >= after(self.document.submitted_at, delay)
            && !self.is_recovering()
            && self.knows_runners(now)
    }

    /// Without a runner nobody could work, and nobody knows how the group could publish.
    pub(super) fn knows_runners(&self, now: TimestampMillis) -> bool {
        !self.limits.can_checkpoint
            || self
                .runners
                .iter()
                .any(|(id, seen)| seen.view.is_some() && !self.is_gone(id, now))
    }

    /// A group for every lane that has free partitions. A lane waits only while one of its groups is in the middle
    /// of being ended, which has one deadline, or while first offsets of a partition are being written, so that its
    /// partitions come together.
    pub(super) fn create_groups(&mut self, now: TimestampMillis) {
        if !self.may_create(now) {
            return;
        }
        self.initialize_offsets(now);
        let Some((discovery, _)) = &self.discovery else {
            return;
        };
        let mut cut: BTreeMap<u32, StartOffsets> = BTreeMap::new();
        let mut without_offsets = BTreeSet::new();
        for partition in discovery
            .partitions()
            .filter(|partition| !self.lost.contains_key(partition))
        {
            if let Some(start) = self.next_start(partition) {
                cut.entry(self.lane(partition))
                    .or_default()
                    .insert(partition, start);
            } else if !self.groups.values().any(|group| group.document.has(partition)) {
                without_offsets.insert(self.lane(partition));
            }
        }
        for (lane, start) in cut {
            let ending = self.groups.values().any(|group| {
                group.in_round() && group.partitions().any(|partition| self.lane(partition) == lane)
            });
            if !ending && !without_offsets.contains(&lane) {
                self.create_group(now, lane, start);
            }
        }
    }

    fn create_group(&mut self, now: TimestampMillis, lane: u32, start: StartOffsets) {
        let Some(generation) = self.look.committed.as_ref().map(|committed| committed.generation) else {
            return;
        };
        let (mode, mode_reason) = self.mode(now);
        let (ordinal, replicas) = self
            .take_preparation(lane, &start, mode)
            .unwrap_or((self.document.next_group, Vec::new()));
        let document = match self.new_group(now, ordinal, generation, start, (mode, mode_reason)) {
            Ok(Some(mut document)) => {
                document.next_task += u32::try_from(replicas.len()).unwrap_or(0);
                document
            }
            Ok(None) => return,
            Err(error) => {
                return self.error(now, format!("a task group cannot be named: {error}"));
            }
        };
        self.document.next_group = self.document.next_group.max(document.ordinal + 1);
        let mut changes = vec![
            self.put_supervisor(),
            Change::PutGroup(Box::new(document.clone())),
        ];
        let tasks = replicas.iter().map(|replica| replica.document.clone());
        changes.extend(tasks.map(|task| Change::PutTask(Box::new(task))));
        self.actions.push(Action::CreateGroup {
            group: document.id.clone(),
            base: document.base_sequence_name.clone(),
            changes,
        });
        let mut group = GroupRun::new(document);
        group.creating = true;
        let named = replicas
            .into_iter()
            .map(|replica| (replica.document.id.clone(), replica));
        group.replicas.extend(named);
        self.groups.insert(group.document.ordinal, group);
    }

    fn new_group(
        &self,
        now: TimestampMillis,
        ordinal: u64,
        generation: Generation,
        start: StartOffsets,
        (mode, mode_reason): (GroupMode, String),
    ) -> Result<Option<GroupDocument>, InvalidId> {
        let (Some(settings), Some((discovery, _))) = (self.document.settings(), &self.discovery) else {
            return Ok(None);
        };
        let (minimum, maximum) = settings.message_times(now);
        let base_sequence_name = self.name(settings, generation, &start, minimum, maximum)?;
        Ok(Some(GroupDocument {
            id: self.group_id(ordinal)?,
            supervisor: self.document.id.clone(),
            ordinal,
            generation,
            spec_version: self.document.version,
            mode: StoredMode::Known(mode),
            decode_version: settings.decode_version,
            stream: discovery.stream.clone(),
            start,
            minimum_message_time: minimum,
            maximum_message_time: maximum,
            base_sequence_name,
            created_at: now,
            first_read: None,
            state: GroupState::Reading,
            next_task: 1,
            mode_reason,
            unknown: Unknown::new(),
        }))
    }

    /// How a group that is made now publishes, and why: for its whole life, decided from what all peers can that it
    /// may meet.
    pub(super) fn mode(&self, now: TimestampMillis) -> (GroupMode, String) {
        if !self.limits.can_checkpoint {
            return (
                GroupMode::Legacy,
                "the coordinator or the publisher cannot publish while reading".into(),
            );
        }
        let alive = self.runners.iter().filter(|(id, _)| !self.is_gone(id, now));
        let (can, cannot): (Vec<_>, Vec<_>) = alive
            .filter_map(|(id, seen)| seen.view.as_ref().map(|view| (id, view)))
            .filter(|(_, view)| !view.draining)
            .partition(|(_, view)| view.can_checkpoint);
        let wanted = self
            .document
            .settings()
            .map_or(1, |settings| settings.replicas as usize);
        if can.len() >= wanted || cannot.is_empty() {
            return (
                GroupMode::Checkpointing,
                "all peers that it needs can publish while reading".into(),
            );
        }
        let names: Vec<&str> = cannot.iter().map(|(id, _)| id.as_str()).collect();
        (
            GroupMode::Legacy,
            format!(
                "{wanted} replicas are wanted, {} runners can publish while reading; {} cannot",
                can.len(),
                names.join(", ")
            ),
        )
    }

    fn name(
        &self,
        settings: &Settings,
        generation: Generation,
        start: &StartOffsets,
        minimum: Option<TimestampMillis>,
        maximum: Option<TimestampMillis>,
    ) -> Result<tidegate_types::BaseSequenceName, InvalidId> {
        base_sequence_name(&NameInput {
            supervisor: &self.document.id,
            generation,
            data_schema: &settings.data_schema,
            task_tuning: &settings.task_tuning,
            start,
            minimum_message_time: minimum,
            maximum_message_time: maximum,
        })
    }

    /// `<supervisor>.<ordinal>`; of a long supervisor id the head, and a digest of the whole.
    pub(super) fn group_id(&self, ordinal: u64) -> Result<GroupId, InvalidId> {
        use sha2::{Digest as _, Sha256};
        let id = self.document.id.as_str();
        if id.len() <= SHOWN_SUPERVISOR_BYTES {
            return GroupId::new(format!("{id}.{ordinal}"));
        }
        let mut end = SHOWN_SUPERVISOR_BYTES;
        while !id.is_char_boundary(end) {
            end -= 1;
        }
        let digest = hex::encode(Sha256::digest(id.as_bytes()));
        GroupId::new(format!("{}~{}.{ordinal}", &id[..end], &digest[..12]))
    }

    /// The group is stored. A name that the log knows already is a group that was given up after its decision: its
    /// end stands, and this one is its replacement (I5).
    pub(super) fn group_created(&mut self, now: TimestampMillis, id: &GroupId, logged: Vec<LogEntry>) {
        let Some(version) = self.group_by_id(id).map(|group| group.document.spec_version) else {
            return;
        };
        let deadline = after(now, self.completion_timeout(version));
        let Some(group) = self.group_by_id(id) else {
            return;
        };
        group.creating = false;
        let finish = logged
            .last()
            .filter(|entry| entry.finish)
            .map(|entry| entry.decision.clone());
        if group.document.is_checkpointing() {
            // The group before it that had this name was given up: its decisions stand (I5).
            group.adopt(logged);
        }
        if let (Some(decision), GroupState::Reading) = (finish, &group.document.state) {
            group.document.state = GroupState::Pending {
                decision,
                deadline,
                committed: false,
            };
            let change = Change::PutGroup(Box::new(group.document.clone()));
            self.store(vec![change]);
        }
    }
}
