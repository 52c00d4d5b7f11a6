//! A group at work: its document, its replicas, and which calls are on their way. All of it can be rebuilt from
//! the documents and the reports of the runners.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_types::{
    AssignmentToken, EndOffsets, PartitionId, PartitionOffsets, RunnerId, SequenceId, StartOffsets, TaskId,
    TimestampMillis,
};

use super::{GroupDocument, GroupState, Round, TaskDocument, TaskReport, TaskState};
use crate::mutation::{Mutation, is};
use crate::task::LogEntry;

/// Published entries of the log that are kept for replicas that are late.
const MOST_TOLD_LATE: usize = 64;

/// One kind of call to one peer: at most one is on its way, a failed one is repeated later.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Call {
    #[default]
    Idle,
    OnItsWay,
    /// It failed; again at this time.
    Again(TimestampMillis),
}

impl Call {
    pub fn is_ready(self, now: TimestampMillis) -> bool {
        match self {
            Self::Idle => true,
            Self::OnItsWay => false,
            Self::Again(at) => now >= at,
        }
    }
}

/// How the end is told to a replica. One that reads refuses it: it is paused first, and one that refuses even then
/// has read too far and is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HowToTell {
    Directly,
    PauseFirst,
    ItStands,
}

/// One replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replica {
    pub document: TaskDocument,
    /// As its runner told last; `None` = not heard of.
    pub report: Option<TaskReport>,
    /// Its runner took it: by its answer, or by a report.
    pub assigned: bool,
    pub assigning: Call,
    /// Pause, resume or end offsets.
    pub telling: Call,
    /// It has acknowledged the group's end.
    pub end_told: bool,
    /// The sequence whose end is on its way to it.
    pub telling_end_of: Option<SequenceId>,
    pub how_to_tell: HowToTell,
    /// It answered a pause and was not told anything since.
    pub stands: bool,
    /// Why it waits for a slot; empty when it does not.
    pub waits_for: String,
    /// No runner can take it now.
    pub lacks_slot: bool,
    /// A runner that had no slot after all, until its next heartbeat.
    pub refused_by: BTreeSet<RunnerId>,
}

impl Replica {
    pub fn new(document: TaskDocument) -> Self {
        Self {
            document,
            report: None,
            assigned: false,
            assigning: Call::Idle,
            telling: Call::Idle,
            end_told: false,
            telling_end_of: None,
            how_to_tell: HowToTell::Directly,
            stands: false,
            waits_for: String::new(),
            lacks_slot: false,
            refused_by: BTreeSet::new(),
        }
    }
    /// Next offsets, as told last.
    pub fn next(&self) -> Option<&PartitionOffsets> {
        self.report.as_ref().and_then(|report| report.next.as_ref())
    }
    pub fn state(&self) -> Option<TaskState> {
        self.report.as_ref().map(|report| report.state)
    }
    /// The sequence that it reads, as far as it knows; `None` = not told, or none is open.
    pub fn open(&self) -> Option<SequenceId> {
        self.report.as_ref().and_then(|report| report.open)
    }
    /// It stands still and asks for an end of this sequence.
    pub fn wants_end_of(&self, open: SequenceId) -> bool {
        let wants = |report: &TaskReport| report.wants_checkpoint && report.open == Some(open);
        self.lives() && self.assigned && self.report.as_ref().is_some_and(wants)
    }
    /// Not ended.
    pub fn lives(&self) -> bool {
        self.document.end.is_none()
    }
    /// It has (or may have) a place.
    pub fn is_placed(&self) -> bool {
        self.lives() && self.document.runner.is_some()
    }
}

/// One group at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRun {
    pub document: GroupDocument,
    /// In order of their numbers, ended ones too.
    pub replicas: BTreeMap<TaskId, Replica>,
    /// Its document and the look-up of the log are under way: no task is made before.
    pub creating: bool,
    /// Tokens that the publisher acknowledged in this life of the coordinator.
    pub registered: Option<BTreeSet<AssignmentToken>>,
    /// Tokens of the registration on its way.
    pub registering: BTreeSet<AssignmentToken>,
    pub register: Call,
    /// Checkpointing mode: the newest entry of the checkpoint log that is known to be published.
    pub published: Option<LogEntry>,
    /// Published entries before it that a replica may lack still, in order; a replica that is late is told them too.
    pub told_late: Vec<LogEntry>,
    /// Checkpointing mode: the entries behind it, in order.
    pub log: Vec<LogEntry>,
    /// Somebody asked for a checkpoint while this sequence was open.
    pub checkpoint_asked: Option<SequenceId>,
    /// Rounds for a checkpoint that nobody answered, in a row.
    pub failed_rounds: u32,
    pub round: Option<Round>,
    /// The end is being written to the log; these replicas did not take part in the round.
    pub deciding: Option<Vec<TaskId>>,
    /// No round before this time.
    pub no_round_before: TimestampMillis,
    /// No replacement before this time.
    pub no_task_before: TimestampMillis,
    /// The committed offsets must come from a later look than this one before the next step of this group.
    pub look_after: Option<u64>,
    /// The publisher knows that it is over (or being given up): it publishes nothing any more.
    pub ended: bool,
    /// Its documents are deleted.
    pub gone: bool,
    pub ending: Call,
    /// Marks of progress of a finishing group: task and what it told last.
    pub progress: BTreeMap<TaskId, (TaskState, u64, u64)>,
}

impl GroupRun {
    pub fn new(document: GroupDocument) -> Self {
        Self {
            document,
            replicas: BTreeMap::new(),
            creating: false,
            registered: None,
            registering: BTreeSet::new(),
            register: Call::Idle,
            published: None,
            told_late: Vec::new(),
            log: Vec::new(),
            checkpoint_asked: None,
            failed_rounds: 0,
            round: None,
            deciding: None,
            no_round_before: TimestampMillis(i64::MIN),
            no_task_before: TimestampMillis(i64::MIN),
            look_after: None,
            ended: false,
            gone: false,
            ending: Call::Idle,
            progress: BTreeMap::new(),
        }
    }

    pub fn live(&self) -> impl Iterator<Item = &Replica> {
        self.replicas.values().filter(|replica| replica.lives())
    }
    /// Covers its partitions as the one that reads: no other reading group may have them.
    pub fn reads(&self) -> bool {
        matches!(self.document.state, GroupState::Reading)
    }
    pub fn is_pending(&self) -> bool {
        matches!(self.document.state, GroupState::Pending { .. })
    }
    pub fn is_given_up(&self) -> bool {
        matches!(self.document.state, GroupState::GivingUp { .. })
    }
    pub fn is_committed(&self) -> bool {
        matches!(self.document.state, GroupState::Pending { committed: true, .. })
    }
    /// In the middle of being ended: soon its end is decided, or the round has failed.
    pub fn in_round(&self) -> bool {
        self.round.is_some() || self.deciding.is_some()
    }
    /// The end of a pending group.
    pub fn end(&self) -> Option<&EndOffsets> {
        match &self.document.state {
            GroupState::Pending { decision, .. } => Some(&decision.end),
            GroupState::Reading
            | GroupState::GivingUp { .. }
            | GroupState::Done
            | GroupState::Lost { .. } => None,
        }
    }
    /// Takes the log as it is stored. A log that does not begin with the first sequence was trimmed: its first entry
    /// is published.
    pub fn adopt(&mut self, mut log: Vec<LogEntry>) {
        if log.first().is_some_and(|first| first.sequence != SequenceId(0)) {
            self.published = Some(log.remove(0));
        }
        self.log = log;
    }
    /// Moves entries that are committed out of the log. True when there were any.
    pub fn note_published(&mut self, committed: &PartitionOffsets) -> bool {
        let done = self
            .log
            .iter()
            .take_while(|entry| committed.reaches(&entry.decision.end) || is(Mutation::TrimUnpublished))
            .count();
        if done == 0 {
            return false;
        }
        self.told_late.extend(self.published.take());
        self.told_late.extend(self.log.drain(..done));
        self.published = self.told_late.pop();
        // What every replica has closed nobody asks for again.
        let opens = self.live().map(|replica| replica.open().unwrap_or(SequenceId(0)));
        let lowest = opens.min().unwrap_or(SequenceId(u32::MAX));
        self.told_late.retain(|entry| entry.sequence >= lowest);
        let surplus = self.told_late.len().saturating_sub(MOST_TOLD_LATE);
        self.told_late.drain(..surplus);
        true
    }
    /// The first sequence that is not known to be published, and where it starts.
    pub fn first_unpublished(&self) -> (SequenceId, &StartOffsets) {
        self.published
            .as_ref()
            .map_or((SequenceId(0), &self.document.start), |entry| {
                (entry.sequence.next(), &entry.decision.end)
            })
    }
    /// The sequence that no end is decided for, and where it starts.
    pub fn open_sequence(&self) -> (SequenceId, &StartOffsets) {
        self.log.last().map_or_else(
            || self.first_unpublished(),
            |entry| (entry.sequence.next(), &entry.decision.end),
        )
    }
    /// True when `offset` is where a sequence of this partition starts or ends, as far as is known.
    pub fn is_boundary(&self, partition: PartitionId, offset: tidegate_types::Offset) -> bool {
        let ends = self
            .published
            .iter()
            .chain(&self.log)
            .map(|entry| &entry.decision.end);
        let decided = self.document.decision().map(|decision| &decision.end);
        std::iter::once(&self.document.start)
            .chain(ends)
            .chain(decided)
            .any(|offsets| offsets.get(partition) == Some(offset))
    }
    /// An end is decided for at least one of its sequences.
    pub fn has_decided(&self) -> bool {
        self.published.is_some() || !self.log.is_empty()
    }
    /// A replica stands and asks for the end of the open sequence, or a person does.
    pub fn wants_checkpoint(&self) -> bool {
        let (open, _) = self.open_sequence();
        self.document.is_checkpointing()
            && (self.checkpoint_asked == Some(open)
                || self.replicas.values().any(|replica| replica.wants_end_of(open)))
    }
    /// The end that this replica has to be told next.
    pub fn untold(&self, replica: &Replica) -> Option<LogEntry> {
        if self.document.is_checkpointing() {
            let open = replica.open()?;
            let mut known = self.told_late.iter().chain(&self.published).chain(&self.log);
            return known.find(|entry| entry.sequence >= open).cloned();
        }
        match &self.document.state {
            GroupState::Pending {
                decision,
                committed: false,
                ..
            } if !replica.end_told => Some(LogEntry {
                sequence: SequenceId(0),
                decision: decision.clone(),
                finish: true,
            }),
            _ => None,
        }
    }
    /// Highest next offsets of the living replicas; where none is known, the start.
    pub fn position(&self) -> PartitionOffsets {
        let told = self.live().filter_map(Replica::next);
        told.fold(self.first_unpublished().1.clone(), |highest, next| {
            PartitionOffsets::max(&highest, next)
        })
    }
    /// True when a living replica has told its position.
    pub fn is_positioned(&self) -> bool {
        self.live().any(|replica| replica.next().is_some())
    }
    /// Tokens that may publish: of all that live, and of those whose claim to have published is not checked yet.
    pub fn wanted_tokens(&self) -> BTreeSet<AssignmentToken> {
        self.live()
            .map(|replica| replica.document.token.clone())
            .collect()
    }
    /// True when every record up to the decided end of these partitions is committed.
    pub fn is_published_at(&self, committed: &PartitionOffsets) -> bool {
        self.document.decision().is_some_and(|decision| {
            decision
                .end
                .iter()
                .filter(|(partition, end)| self.document.start.get(*partition) != Some(*end))
                .all(|(partition, end)| committed.get(partition).is_some_and(|committed| committed >= end))
        })
    }
    pub fn shares_partitions(&self, other: &Self) -> bool {
        self.document
            .start
            .partitions()
            .any(|partition| other.document.has(partition))
    }
    pub fn partitions(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.document.start.partitions()
    }
}
