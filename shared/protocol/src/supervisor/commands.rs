//! What people ask for. A command is checked first, and changes nothing when it is refused (B48).

use std::collections::BTreeSet;

use tidegate_types::{GroupId, PartitionId, PartitionOffsets, TimestampMillis};

use super::{
    Action, Change, Command, Desired, Fresh, HistoryLine, IdSource, KeepOffsets, Publish, Refusal,
    ResetDocument, ResetKind, ResetTo, Run, Settings, Supervisor,
};

/// The history's line for a version of the spec.
pub(super) fn submitted(now: TimestampMillis, version: u32, settings: &Settings) -> HistoryLine {
    let (what, detail, spec_json) = ("submitted".to_owned(), String::new(), settings.spec_json.clone());
    HistoryLine {
        at: now,
        what,
        version,
        detail,
        spec_json,
    }
}

impl Supervisor {
    /// Carries a command out. The actions begin with what makes it durable; nothing happens when it is refused.
    pub fn command(
        &mut self,
        now: TimestampMillis,
        command: Command,
        ids: &mut impl IdSource,
    ) -> Result<Vec<Action>, Refusal> {
        self.check(&command)?;
        match command {
            Command::Submit(settings) => self.submit_again(now, *settings),
            Command::Suspend => self.wish(now, Desired::Running, Desired::Suspended, "suspended"),
            Command::Resume => self.wish(now, Desired::Suspended, Desired::Running, "resumed"),
            Command::Checkpoint { groups } => self.ask_for_checkpoint(&groups),
            Command::Terminate { publish, offsets } => self.terminate(publish, offsets),
            Command::Reset {
                partitions,
                offsets,
                to,
                who,
                why,
                key,
                ..
            } => {
                let offsets = self.resolved(&partitions, offsets, to);
                self.reset(now, partitions, offsets, who, why, key);
            }
        }
        self.advance(now, ids);
        Ok(std::mem::take(&mut self.actions))
    }

    /// Whether a command would be refused.
    pub fn check(&self, command: &Command) -> Result<(), Refusal> {
        let id = || self.document.id.clone();
        match (command, self.document.desired) {
            (
                Command::Submit(_)
                | Command::Suspend
                | Command::Resume
                | Command::Checkpoint { .. }
                | Command::Reset { .. },
                Desired::Stopping { .. },
            ) => {
                return Err(Refusal::Stopping { id: id() });
            }
            (Command::Suspend | Command::Resume | Command::Checkpoint { .. }, Desired::Terminated) => {
                return Err(Refusal::Terminated { id: id() });
            }
            (Command::Submit(_) | Command::Terminate { .. } | Command::Reset { .. }, _)
            | (
                Command::Suspend | Command::Resume | Command::Checkpoint { .. },
                Desired::Running | Desired::Suspended,
            ) => {}
        }
        match command {
            Command::Submit(settings) => self.check_topic(settings),
            Command::Reset {
                partitions,
                offsets,
                to,
                force,
                key,
                ..
            } => self.check_reset(partitions, offsets, *to, *force, key),
            Command::Checkpoint { groups } => self.check_checkpoint(groups),
            Command::Suspend | Command::Resume | Command::Terminate { .. } => Ok(()),
        }
    }

    fn check_checkpoint(&self, groups: &BTreeSet<GroupId>) -> Result<(), Refusal> {
        let id = || self.document.id.clone();
        let refuse = |group: String, why: &str| {
            Err(Refusal::NoCheckpoint {
                id: id(),
                group,
                why: why.into(),
            })
        };
        for group in groups {
            let Some(found) = self.groups.values().find(|found| found.document.id == *group) else {
                return refuse(group.to_string(), "there is no such group (status lists them)");
            };
            if !found.document.is_checkpointing() {
                let why = format!("it is in legacy mode ({})", found.document.mode_reason);
                return refuse(group.to_string(), &why);
            }
            if !found.reads() {
                return refuse(
                    group.to_string(),
                    "it reads no more: all it has is being published",
                );
            }
        }
        let any = self
            .groups
            .values()
            .any(|group| group.reads() && group.document.is_checkpointing());
        if groups.is_empty() && !any {
            return refuse(
                "(any)".into(),
                "none reads in this mode now (status shows the groups and why)",
            );
        }
        Ok(())
    }

    fn ask_for_checkpoint(&mut self, groups: &BTreeSet<GroupId>) {
        for group in self.groups.values_mut() {
            let meant = groups.is_empty() || groups.contains(&group.document.id);
            if meant && group.reads() && group.document.is_checkpointing() {
                group.checkpoint_asked = Some(group.open_sequence().0);
            }
        }
    }

    /// Offsets belong to a topic: another one is only taken when nothing is left of the first (B49).
    fn check_topic(&self, settings: &Settings) -> Result<(), Refusal> {
        let from = self.topic();
        let committed = self
            .look
            .committed
            .as_ref()
            .is_some_and(|committed| !committed.offsets.is_empty());
        let nothing_left = self.groups.is_empty()
            && !committed
            && self.document.fresh == Fresh::All
            && self.document.desired == Desired::Terminated;
        if settings.topic == from || nothing_left {
            return Ok(());
        }
        Err(Refusal::OtherTopic {
            id: self.document.id.clone(),
            from,
            to: settings.topic.clone(),
        })
    }

    fn check_reset(
        &self,
        partitions: &BTreeSet<PartitionId>,
        offsets: &PartitionOffsets,
        to: ResetTo,
        force: bool,
        key: &str,
    ) -> Result<(), Refusal> {
        if self.document.reset.as_ref().is_some_and(|reset| reset.key != key) {
            return Err(Refusal::Resetting {
                id: self.document.id.clone(),
            });
        }
        let known_wish =
            self.document.reset.is_some() || self.document.done_resets.iter().any(|done| done == key);
        if known_wish || (force && to == ResetTo::AsSpec) {
            return self.check_partitions(partitions, offsets);
        }
        let plan = self.plan_reset(partitions, offsets, to)?;
        if plan.skipped() > 0 && !force {
            return Err(Refusal::WouldLose {
                id: self.document.id.clone(),
                offsets: plan.skipped(),
                ranges: plan.to_string(),
            });
        }
        Ok(())
    }

    /// True when the spec is there already: nothing is disturbed.
    pub fn has_spec(&self, settings: &Settings) -> bool {
        let same = self
            .document
            .settings()
            .is_some_and(|held| held.spec_json == settings.spec_json);
        same && self.document.desired != Desired::Terminated
    }

    fn submit_again(&mut self, now: TimestampMillis, settings: Settings) {
        if self.has_spec(&settings) {
            return;
        }
        let is_other_topic = settings.topic != self.topic();
        self.document.version += 1;
        if self.document.desired == Desired::Terminated {
            self.document.submitted_at = now;
        }
        self.document.desired = match settings.run {
            Run::Running => Desired::Running,
            Run::Suspended => Desired::Suspended,
        };
        let line = submitted(now, self.document.version, &settings);
        if is_other_topic {
            self.discovery = None;
            self.discover_at = now;
        }
        self.failures = 0;
        self.document.specs.insert(self.document.version, settings);
        let changes = vec![self.put_supervisor(), Change::AppendHistory(line)];
        self.store(changes);
    }

    fn wish(&mut self, now: TimestampMillis, from: Desired, to: Desired, what: &str) {
        if self.document.desired != from {
            return;
        }
        self.document.desired = to;
        let line = self.line(now, what, String::new());
        let changes = vec![self.put_supervisor(), Change::AppendHistory(line)];
        self.store(changes);
    }

    /// Repeated: the more decided wish stands (without publishing, forgetting offsets).
    fn terminate(&mut self, publish: Publish, offsets: KeepOffsets) {
        let desired = match self.document.desired {
            Desired::Running | Desired::Suspended => Desired::Stopping { publish, offsets },
            Desired::Stopping {
                publish: earlier,
                offsets: kept,
            } => Desired::Stopping {
                publish: if earlier == Publish::No { earlier } else { publish },
                offsets: if kept == KeepOffsets::Forget {
                    kept
                } else {
                    offsets
                },
            },
            Desired::Terminated if offsets == KeepOffsets::Forget => Desired::Stopping { publish, offsets },
            Desired::Terminated => return,
        };
        if desired != self.document.desired {
            self.document.desired = desired;
            let change = self.put_supervisor();
            self.store(vec![change]);
        }
    }

    fn reset(
        &mut self,
        now: TimestampMillis,
        partitions: BTreeSet<PartitionId>,
        offsets: PartitionOffsets,
        who: String,
        why: String,
        key: String,
    ) {
        if self.document.reset.is_some() || self.document.done_resets.contains(&key) {
            return;
        }
        // Offsets for some partitions reset these; without any, all are meant.
        let partitions = if partitions.is_empty() {
            offsets.partitions().collect()
        } else {
            partitions
        };
        self.document.reset = Some(ResetDocument {
            key,
            kind: ResetKind::Asked,
            partitions,
            offsets,
            who,
            why,
            at: now,
        });
        self.reset_look = None;
        let change = self.put_supervisor();
        self.store(vec![change]);
    }
}
