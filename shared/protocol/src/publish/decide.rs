//! The decision itself.

use std::collections::BTreeSet;

use tidegate_types::{Generation, GroupId, Offset, PartitionId, PartitionOffsets, SegmentId, SequenceName};

use super::{Grant, GroupMode, Malformed, PublishRequest, PublishState, RegisteredGroup, StreamId, check};

/// What is to be done with a request. Each maps to one outcome on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishDecision {
    /// Insert the segments and the sequences, set these offsets (partitions with an empty range are not named).
    Publish { offsets: PartitionOffsets },
    /// It was committed before, by this task or another replica: success.
    AlreadyPublished,
    /// Earlier ranges are still being published by these groups: ask again.
    NotYet {
        waiting_for: Vec<GroupId>,
        partitions: Vec<PartitionId>,
    },
    /// Nobody is going to publish what lies before: the group is made again from the committed offsets.
    PredecessorLost { partitions: Vec<PartitionId> },
    /// Never possible.
    Mismatch(Mismatch),
    /// The asker is not (or no longer) the one who may publish.
    Fenced(Fence),
    /// Wrong in itself.
    Malformed(Vec<Malformed>),
}

/// Why a request can never be published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error(
        "partition {partition} has no committed offset, which matches no start: initialize or reset it first"
    )]
    NoCommittedOffset { partition: PartitionId },
    #[error(
        "partition {partition} is committed up to {committed}, the request starts at {start}: what lies between \
         is published already, by others"
    )]
    Overlap {
        partition: PartitionId,
        committed: Offset,
        start: Offset,
    },
    #[error(
        "partition {partition} was committed from {committed}, the request read {requested}: reset to go on there"
    )]
    OtherStream {
        partition: PartitionId,
        committed: StreamId,
        requested: StreamId,
    },
    #[error("sequence {sequence} is published with other end offsets: {published}, not {requested}")]
    PublishedOtherwise {
        sequence: SequenceName,
        published: PartitionOffsets,
        requested: PartitionOffsets,
    },
    #[error("sequence {sequence} is published, others of the same request are not")]
    PublishedInPart { sequence: SequenceName },
    #[error("the group publishes in mode {registered}, the request is of mode {requested}")]
    OtherMode { registered: i32, requested: i32 },
    #[error("a legacy group publishes all its partitions at once: {requested} are not {registered}")]
    OtherPartitions {
        registered: PartitionOffsets,
        requested: PartitionOffsets,
    },
    #[error("segment {segment} was not given to sequence {sequence}")]
    SegmentOfOthers {
        segment: SegmentId,
        sequence: SequenceName,
    },
}

/// Why the asker may not publish.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fence {
    #[error("the generation of the offsets is {held}, the request is of {given}: they were reset meanwhile")]
    Generation { held: Generation, given: Generation },
    #[error("no group {group} is registered")]
    UnknownGroup { group: GroupId },
    #[error("group {group} has ended")]
    GroupEnded { group: GroupId },
    #[error("group {group} is registered with another base sequence name or generation")]
    OtherGroup { group: GroupId },
    #[error("the assignment token is not one of group {group}: the task was replaced")]
    Token { group: GroupId },
}

/// Decides on a request. The order matters: what is committed is told first, even to one who would be fenced
/// today, for it is true and ends him in peace; then who may speak; then what is asked.
pub fn decide(state: &PublishState, request: &PublishRequest) -> PublishDecision {
    let faults = check(request);
    if !faults.is_empty() {
        return PublishDecision::Malformed(faults);
    }
    let published = match published_before(state, request) {
        Published::All => return PublishDecision::AlreadyPublished,
        Published::None => None,
        Published::Otherwise(mismatch) => Some(mismatch),
    };
    let group = match registered(state, request) {
        Ok(group) => group,
        Err(fence) => return PublishDecision::Fenced(fence),
    };
    if let Some(mismatch) = published.or_else(|| contradiction(state, request, group)) {
        return PublishDecision::Mismatch(mismatch);
    }
    compare_offsets(state, request)
}

enum Published {
    All,
    None,
    Otherwise(Mismatch),
}

/// Same generation, same names, same ends: published before. Other generations' sequences say nothing.
fn published_before(state: &PublishState, request: &PublishRequest) -> Published {
    let mut found = None;
    let mut missing = false;
    for sequence in &request.sequences {
        let stored = state.published.get(&sequence.name);
        match stored.filter(|stored| stored.generation == request.generation) {
            None => missing = true,
            Some(stored) if stored.end == sequence.end => found = Some(&sequence.name),
            Some(stored) => {
                return Published::Otherwise(Mismatch::PublishedOtherwise {
                    sequence: sequence.name.clone(),
                    published: stored.end.clone(),
                    requested: sequence.end.clone(),
                });
            }
        }
    }
    match found {
        None => Published::None,
        Some(_) if !missing => Published::All,
        Some(sequence) => Published::Otherwise(Mismatch::PublishedInPart {
            sequence: sequence.clone(),
        }),
    }
}

/// May this asker publish? By generation (reset, D34), group and token; never by timing.
fn registered<'s>(state: &'s PublishState, request: &PublishRequest) -> Result<&'s RegisteredGroup, Fence> {
    let group = || request.group.clone();
    let held = state.generation.unwrap_or_default();
    if held != request.generation {
        return Err(Fence::Generation {
            held,
            given: request.generation,
        });
    }
    let registered = state
        .group
        .as_ref()
        .ok_or_else(|| Fence::UnknownGroup { group: group() })?;
    if registered.base != request.base || registered.generation != request.generation {
        return Err(Fence::OtherGroup { group: group() });
    }
    if registered.ended {
        return Err(Fence::GroupEnded { group: group() });
    }
    if !registered.tokens.contains(&request.token) {
        return Err(Fence::Token { group: group() });
    }
    Ok(registered)
}

/// What no waiting can cure, besides the offsets.
fn contradiction(
    state: &PublishState,
    request: &PublishRequest,
    group: &RegisteredGroup,
) -> Option<Mismatch> {
    if group.mode != request.mode {
        let (registered, requested) = (group.mode.to_number(), request.mode.to_number());
        return Some(Mismatch::OtherMode {
            registered,
            requested,
        });
    }
    let start = request.start();
    if group.mode == GroupMode::Legacy && !start.same_partitions(&group.start) {
        return Some(Mismatch::OtherPartitions {
            registered: group.start.clone(),
            requested: start,
        });
    }
    for partition in start.partitions() {
        let Some(row) = state.committed.get(&partition) else {
            return Some(Mismatch::NoCommittedOffset { partition });
        };
        if row.stream.contradicts(&request.stream) {
            let (committed, requested) = (row.stream.clone(), request.stream.clone());
            return Some(Mismatch::OtherStream {
                partition,
                committed,
                requested,
            });
        }
    }
    for segment in &request.segments {
        let expected = Grant {
            supervisor: request.supervisor.clone(),
            generation: request.generation,
            sequence: segment.sequence.clone(),
        };
        if state.grants.get(&segment.id) != Some(&expected) {
            let (segment, sequence) = (segment.id.clone(), segment.sequence.clone());
            return Some(Mismatch::SegmentOfOthers { segment, sequence });
        }
    }
    None
}

/// Compare-and-swap per partition: equal everywhere, or a reason. A partition whose range is empty has nothing to
/// publish and moves nothing, wherever the committed offset stands.
fn compare_offsets(state: &PublishState, request: &PublishRequest) -> PublishDecision {
    let mut waiting_for = BTreeSet::new();
    let mut ahead = Vec::new();
    let mut lost = Vec::new();
    let end = request.end();
    let moves: PartitionOffsets = end
        .iter()
        .filter(|(partition, end)| request.start().get(*partition) != Some(*end))
        .collect();
    for (partition, start) in request
        .start()
        .iter()
        .filter(|(partition, _)| moves.get(*partition).is_some())
    {
        // A missing row was refused before this.
        let Some(committed) = state.committed.get(&partition).map(|row| row.offset) else {
            continue;
        };
        if start < committed {
            return PublishDecision::Mismatch(Mismatch::Overlap {
                partition,
                committed,
                start,
            });
        }
        if start == committed {
            continue;
        }
        ahead.push(partition);
        let claims: Vec<&GroupId> = state
            .open_groups
            .iter()
            .filter(|group| group.topic == request.stream.topic && group.claims(partition, committed))
            .map(|group| &group.id)
            .collect();
        if claims.is_empty() {
            lost.push(partition);
        }
        waiting_for.extend(claims.into_iter().cloned());
    }
    if !lost.is_empty() {
        return PublishDecision::PredecessorLost { partitions: lost };
    }
    if !ahead.is_empty() {
        return PublishDecision::NotYet {
            waiting_for: waiting_for.into_iter().collect(),
            partitions: ahead,
        };
    }
    PublishDecision::Publish { offsets: moves }
}

impl PublishDecision {
    /// For a person: what was compared, and what to do.
    pub fn detail(&self) -> String {
        let list = |partitions: &[PartitionId]| {
            partitions
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", ")
        };
        match self {
            Self::Publish { offsets } => format!("committed up to {offsets}"),
            Self::AlreadyPublished => {
                "these sequences were published before, with the same end offsets".into()
            }
            Self::NotYet {
                waiting_for,
                partitions,
            } => {
                let groups: Vec<&str> = waiting_for.iter().map(GroupId::as_str).collect();
                format!(
                    "partitions {}: the range before is still being published by {}; ask again",
                    list(partitions),
                    groups.join(", ")
                )
            }
            Self::PredecessorLost { partitions } => format!(
                "partitions {}: nobody publishes the range before any more; the group is made again from the \
                 committed offsets",
                list(partitions)
            ),
            Self::Mismatch(why) => why.to_string(),
            Self::Fenced(why) => why.to_string(),
            Self::Malformed(faults) => faults
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join("; "),
        }
    }
}
