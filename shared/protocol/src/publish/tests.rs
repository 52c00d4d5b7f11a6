//! The outcomes, case by case.

use super::*;
use crate::sequence::legacy_sequences;
use tidegate_types::{DataSource, Interval, PartitionOffsets, SegmentVersion, SequenceId, TimestampMillis};

const TOPIC: &str = "wiki";

pub(super) fn stream() -> StreamId {
    StreamId {
        topic: TOPIC.into(),
        cluster: ClusterId("c1".into()),
        incarnation: TopicId("t1".into()),
    }
}

pub(super) fn group(name: &str, start: &PartitionOffsets) -> RegisteredGroup {
    RegisteredGroup {
        id: GroupId::new(name).unwrap(),
        base: BaseSequenceName::new(format!("base_{name}")).unwrap(),
        generation: Generation(0),
        mode: GroupMode::Legacy,
        topic: TOPIC.into(),
        start: start.clone(),
        tokens: vec![AssignmentToken::new(format!("{name}-token")).unwrap()],
        epoch: Epoch(1),
        revision: 0,
        ended: false,
    }
}

pub(super) fn request(group: &RegisteredGroup, end: &PartitionOffsets) -> PublishRequest {
    PublishRequest {
        supervisor: SupervisorId::new("wiki").unwrap(),
        group: group.id.clone(),
        base: group.base.clone(),
        generation: group.generation,
        token: group.tokens[0].clone(),
        mode: group.mode,
        stream: stream(),
        sequences: legacy_sequences(&group.base, &group.start, Some(end)),
        segments: Vec::new(),
    }
}

pub(super) fn committed(offsets: &PartitionOffsets) -> BTreeMap<PartitionId, CommittedRow> {
    offsets
        .iter()
        .map(|(partition, offset)| {
            (
                partition,
                CommittedRow {
                    offset,
                    stream: stream(),
                },
            )
        })
        .collect()
}

pub(super) fn state(
    offsets: &PartitionOffsets,
    groups: &[&RegisteredGroup],
    asking: &RegisteredGroup,
) -> PublishState {
    PublishState {
        generation: Some(Generation(0)),
        committed: committed(offsets),
        group: Some(asking.clone()),
        open_groups: groups
            .iter()
            .filter(|group| !group.ended)
            .map(|group| (*group).clone())
            .collect(),
        ..PublishState::default()
    }
}

fn at<const N: usize>(pairs: [(i32, i64); N]) -> PartitionOffsets {
    PartitionOffsets::from(pairs)
}

/// A partition 0 group [2, 5), committed at 2: everything right.
fn right() -> (PublishState, PublishRequest) {
    let group = group("a", &at([(0, 2)]));
    (
        state(&at([(0, 2)]), &[&group], &group),
        request(&group, &at([(0, 5)])),
    )
}

fn file(request: &PublishRequest) -> SegmentFile {
    SegmentFile {
        id: SegmentId {
            data_source: DataSource::new("wiki").unwrap(),
            interval: Interval::new(TimestampMillis(0), TimestampMillis(3_600_000)).unwrap(),
            version: SegmentVersion::new("2026-01-01T00:00:00.000Z").unwrap(),
            partition_num: 0,
        },
        sequence: request.sequences[0].name.clone(),
        key: "staging/task/1.parquet".into(),
        size_bytes: 10,
        sha256: "00".into(),
        rows: 1,
        input_rows: 1,
        first_offsets: at([(0, 2)]),
        end_offsets: at([(0, 5)]),
        writer_version: "0.1.0".into(),
    }
}

#[test]
fn equal_offsets_publish() {
    let (state, request) = right();
    assert_eq!(
        decide(&state, &request),
        PublishDecision::Publish {
            offsets: at([(0, 5)])
        }
    );
}

#[test]
fn a_sequence_without_rows_moves_the_offsets() {
    let (state, request) = right();
    assert!(request.segments.is_empty());
    assert_eq!(
        decide(&state, &request),
        PublishDecision::Publish {
            offsets: at([(0, 5)])
        }
    );
}

#[test]
fn run_on_nothing() {
    // [2, 2) succeeds wherever its neighbours stand, and moves nothing.
    let group = group("a", &at([(0, 2)]));
    let request = request(&group, &at([(0, 2)]));
    for offset in [0, 2, 7] {
        assert_eq!(
            decide(&state(&at([(0, offset)]), &[&group], &group), &request),
            PublishDecision::Publish {
                offsets: PartitionOffsets::new()
            }
        );
    }
}

#[test]
fn stored_differs_fails() {
    let (_, request) = right();
    let group = group("a", &at([(0, 2)]));
    let at_3 = state(&at([(0, 3)]), &[&group], &group);
    assert!(matches!(
        decide(&at_3, &request),
        PublishDecision::Mismatch(Mismatch::Overlap { .. })
    ));
}

#[test]
fn no_offsets_yet_matches_nothing() {
    let (mut state, request) = right();
    state.committed.clear();
    assert!(matches!(
        decide(&state, &request),
        PublishDecision::Mismatch(Mismatch::NoCommittedOffset {
            partition: PartitionId(0)
        })
    ));
}

#[test]
fn conflicting_tasks() {
    // First [2, 5) done, then another name [3, 9): never possible.
    let late = group("late", &at([(0, 3)]));
    let state = state(&at([(0, 5)]), &[&late], &late);
    assert_eq!(
        decide(&state, &request(&late, &at([(0, 9)]))),
        PublishDecision::Mismatch(Mismatch::Overlap {
            partition: PartitionId(0),
            committed: Offset(5),
            start: Offset(3)
        })
    );
}

#[test]
fn one_partition_that_differs_refuses_all() {
    let both = group("a", &at([(0, 2), (1, 7)]));
    let ask = request(&both, &at([(0, 5), (1, 9)]));
    let fits = state(&at([(0, 2), (1, 7), (2, 0)]), &[&both], &both);
    assert_eq!(
        decide(&fits, &ask),
        PublishDecision::Publish {
            offsets: at([(0, 5), (1, 9)])
        }
    );
    let behind = state(&at([(0, 2), (1, 8)]), &[&both], &both);
    assert!(matches!(
        decide(&behind, &ask),
        PublishDecision::Mismatch(Mismatch::Overlap { .. })
    ));
}

#[test]
fn repeating_the_same_is_already_published_and_another_end_is_not() {
    let (mut state, request) = right();
    let name = request.sequences[0].name.clone();
    state.committed = committed(&at([(0, 9)]));
    let stored = PublishedSequence {
        generation: Generation(0),
        end: at([(0, 5)]),
    };
    state.published.insert(name.clone(), stored.clone());
    assert_eq!(decide(&state, &request), PublishDecision::AlreadyPublished);

    state.published.insert(
        name.clone(),
        PublishedSequence {
            end: at([(0, 4)]),
            ..stored.clone()
        },
    );
    assert!(matches!(
        decide(&state, &request),
        PublishDecision::Mismatch(Mismatch::PublishedOtherwise { .. })
    ));

    state.published.insert(
        name,
        PublishedSequence {
            generation: Generation(7),
            ..stored
        },
    );
    assert!(matches!(
        decide(&state, &request),
        PublishDecision::Mismatch(Mismatch::Overlap { .. })
    ));
}

#[test]
fn a_late_replica_of_an_ended_group_hears_that_it_is_published() {
    let (mut state, mut request) = right();
    let name = request.sequences[0].name.clone();
    state.published.insert(
        name,
        PublishedSequence {
            generation: Generation(0),
            end: at([(0, 5)]),
        },
    );
    state.generation = Some(Generation(1));
    state.group = None;
    request.token = AssignmentToken::new("gone").unwrap();
    assert_eq!(decide(&state, &request), PublishDecision::AlreadyPublished);
}

#[test]
fn published_in_part_is_a_mismatch() {
    let both = group("a", &at([(0, 2), (1, 7)]));
    let ask = request(&both, &at([(0, 5), (1, 9)]));
    let mut state = state(&at([(0, 5), (1, 7)]), &[&both], &both);
    let stored = PublishedSequence {
        generation: Generation(0),
        end: at([(0, 5)]),
    };
    state.published.insert(ask.sequences[0].name.clone(), stored);
    assert!(matches!(
        decide(&state, &ask),
        PublishDecision::Mismatch(Mismatch::PublishedInPart { .. })
    ));
}

#[test]
fn young_group_waits_for_its_elder_and_is_lost_with_it() {
    let mut elder = group("elder", &at([(0, 2)]));
    let young = group("young", &at([(0, 5)]));
    let ask = request(&young, &at([(0, 9)]));
    let waiting = PublishDecision::NotYet {
        waiting_for: vec![elder.id.clone()],
        partitions: vec![PartitionId(0)],
    };
    assert_eq!(
        decide(&state(&at([(0, 2)]), &[&elder, &young], &young), &ask),
        waiting
    );
    elder.ended = true;
    let lost = PublishDecision::PredecessorLost {
        partitions: vec![PartitionId(0)],
    };
    assert_eq!(
        decide(&state(&at([(0, 2)]), &[&elder, &young], &young), &ask),
        lost
    );
}

#[test]
fn a_legacy_elder_that_has_published_claims_nothing_more() {
    // elder [2, 5) is published but not told to have ended; middle was given up; young starts at 7.
    let elder = group("elder", &at([(0, 2)]));
    let young = group("young", &at([(0, 7)]));
    let ask = request(&young, &at([(0, 9)]));
    let lost = PublishDecision::PredecessorLost {
        partitions: vec![PartitionId(0)],
    };
    assert_eq!(
        decide(&state(&at([(0, 5)]), &[&elder, &young], &young), &ask),
        lost
    );
    // A checkpointing elder may publish on from the middle.
    let elder = RegisteredGroup {
        mode: GroupMode::Checkpointing,
        ..elder
    };
    let asked = decide(&state(&at([(0, 5)]), &[&elder, &young], &young), &ask);
    assert!(matches!(asked, PublishDecision::NotYet { .. }));
}

#[test]
fn waiting_is_per_partition_and_a_lost_one_decides() {
    let elder = group("elder", &at([(0, 2)]));
    let young = group("young", &at([(0, 5), (1, 3)]));
    let ask = request(&young, &at([(0, 9), (1, 4)]));
    let groups = [&elder, &young];
    assert!(matches!(
        decide(&state(&at([(0, 2), (1, 3)]), &groups, &young), &ask),
        PublishDecision::NotYet { .. }
    ));
    assert_eq!(
        decide(&state(&at([(0, 2), (1, 1)]), &groups, &young), &ask),
        PublishDecision::PredecessorLost {
            partitions: vec![PartitionId(1)]
        }
    );
}

#[test]
fn a_group_of_another_topic_is_no_predecessor() {
    let elder = RegisteredGroup {
        topic: "other".into(),
        ..group("elder", &at([(0, 2)]))
    };
    let young = group("young", &at([(0, 5)]));
    let asked = decide(
        &state(&at([(0, 2)]), &[&elder, &young], &young),
        &request(&young, &at([(0, 9)])),
    );
    assert!(matches!(asked, PublishDecision::PredecessorLost { .. }));
}

type Change = fn(&mut PublishState, &mut PublishRequest);

#[test]
fn who_is_not_registered_is_fenced() {
    let cases: [(&str, Change); 6] = [
        ("generation", |state, _| state.generation = Some(Generation(1))),
        ("no group", |state, _| state.group = None),
        ("group", |state, _| state.group.as_mut().unwrap().ended = true),
        ("token", |_, request| {
            request.token = AssignmentToken::new("zombie").unwrap();
        }),
        ("base sequence name", |state, _| {
            state.group.as_mut().unwrap().base = BaseSequenceName::new("other").unwrap();
        }),
        ("generation", |state, _| {
            state.group.as_mut().unwrap().generation = Generation(3);
        }),
    ];
    for (word, change) in cases {
        let (mut state, mut request) = right();
        change(&mut state, &mut request);
        let decision = decide(&state, &request);
        assert!(
            matches!(decision, PublishDecision::Fenced(_)),
            "{word}: {decision:?}"
        );
        assert!(decision.detail().contains(word), "{}", decision.detail());
    }
}

#[test]
fn a_re_created_topic_or_another_cluster_is_a_mismatch_and_an_unknown_one_is_not() {
    for (cluster, topic, fits) in [
        ("c1", "t1", true),
        ("", "", true),
        ("c1", "", true),
        ("c2", "t1", false),
        ("c1", "t2", false),
        ("", "t2", false),
    ] {
        let (state, mut request) = right();
        request.stream.cluster = ClusterId(cluster.into());
        request.stream.incarnation = TopicId(topic.into());
        let decision = decide(&state, &request);
        if fits {
            assert!(
                matches!(decision, PublishDecision::Publish { .. }),
                "{cluster}/{topic}: {decision:?}"
            );
        } else {
            assert!(
                matches!(decision, PublishDecision::Mismatch(Mismatch::OtherStream { .. })),
                "{cluster}/{topic}"
            );
        }
    }
}

#[test]
fn a_segment_id_that_was_given_to_another_sequence_is_refused() {
    let (mut state, mut request) = right();
    request.segments.push(file(&request));
    let asked = decide(&state, &request);
    assert!(matches!(
        asked,
        PublishDecision::Mismatch(Mismatch::SegmentOfOthers { .. })
    ));
    let grant = Grant {
        supervisor: request.supervisor.clone(),
        generation: Generation(0),
        sequence: request.sequences[0].name.clone(),
    };
    state.grants.insert(request.segments[0].id.clone(), grant.clone());
    assert!(matches!(
        decide(&state, &request),
        PublishDecision::Publish { .. }
    ));
    state.grants.insert(
        request.segments[0].id.clone(),
        Grant {
            generation: Generation(5),
            ..grant
        },
    );
    assert!(matches!(decide(&state, &request), PublishDecision::Mismatch(_)));
}

#[test]
fn a_legacy_group_publishes_all_its_partitions_in_one_request() {
    let both = group("a", &at([(0, 2), (1, 7)]));
    let mut ask = request(&both, &at([(0, 5), (1, 9)]));
    ask.sequences.pop();
    let asked = decide(&state(&at([(0, 2), (1, 7)]), &[&both], &both), &ask);
    assert!(matches!(
        asked,
        PublishDecision::Mismatch(Mismatch::OtherPartitions { .. })
    ));
}

#[test]
fn a_malformed_request_is_refused_with_every_fault_at_its_path() {
    let cases: [(&str, Change); 12] = [
        ("mode", |_, request| request.mode = GroupMode::Unknown(9)),
        ("sequences: name", |_, request| request.sequences.clear()),
        ("sequences[0].start: partition 0 starts at open", |_, request| {
            request.sequences[0].start = at([(0, i64::MAX)]);
        }),
        ("sequences[0].end: partition 0 has no end", |_, request| {
            request.sequences[0].end = at([(0, i64::MAX)]);
        }),
        ("ends before it starts", |_, request| {
            request.sequences[0].end = at([(0, 1)]);
        }),
        ("names other partitions", |_, request| {
            request.sequences[0].end = at([(1, 5)]);
        }),
        ("sequences[0].sequence_name", |_, request| {
            request.sequences[0].id = SequenceId(4);
        }),
        ("sequences[1]: base_a_0 stands twice", |_, request| {
            request.sequences.push(request.sequences[0].clone());
        }),
        ("segments[0].sequence_name", |_, request| {
            let file = file(request);
            request.segments.push(SegmentFile {
                sequence: SequenceName::new("x").unwrap(),
                ..file
            });
        }),
        ("segments[0].first_offsets", |_, request| {
            let file = file(request);
            request.segments.push(SegmentFile {
                first_offsets: at([(0, 1)]),
                ..file
            });
        }),
        ("segments[0].rows", |_, request| {
            let file = file(request);
            request.segments.push(SegmentFile { rows: 0, ..file });
        }),
        ("segments[1]", |_, request| {
            let file = file(request);
            request.segments = vec![file.clone(), file];
        }),
    ];
    for (words, change) in cases {
        let (mut state, mut request) = right();
        change(&mut state, &mut request);
        let decision = decide(&state, &request);
        assert!(
            matches!(decision, PublishDecision::Malformed(_)),
            "{words}: {decision:?}"
        );
        assert!(
            decision.detail().contains(words),
            "{words}: {}",
            decision.detail()
        );
    }
}

#[test]
fn a_mode_of_a_newer_version_keeps_its_number() {
    for number in [0, 1, 2, 3, -7, 1000] {
        assert_eq!(GroupMode::from_number(number).to_number(), number);
    }
    assert_eq!(GroupMode::from_number(0), GroupMode::Unknown(0));
}
