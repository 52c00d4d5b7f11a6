//! The publish transaction. The decision itself: `tidegate_protocol::publish`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidegate_metadata::{Ordinal, Publish, PublisherStore, SegmentFilter, Used};
use tidegate_protocol::publish::{Fence, GroupMode, Mismatch, PublishDecision};
use tidegate_types::{DataSource, Epoch, Generation, PartitionId, PartitionOffsets, SegmentId, SupervisorId};

use crate::databases::{Fresh, on_both_databases};
use crate::world::{Group, NOW, at, catalog, committed, initialize, is_published, reset, stream, wiki};

on_both_databases!(
    offsets_and_segments_are_committed_together,
    stored_differs_fails_and_nothing_is_inserted,
    without_committed_offsets_nothing_is_published,
    replicas,
    replicas_that_publish_at_once,
    conflicting_tasks,
    two_tasks_one_partition_each,
    d13_a_sequence_without_rows_moves_the_offsets,
    d34_a_publish_under_way_during_a_reset_is_fenced,
    d34_a_zombie_after_a_reset_of_all_brings_nothing_back,
    d39_a_late_replica_succeeds_though_the_segments_are_unused,
    d37_a_young_group_waits_for_its_elder_then_publishes,
    a_task_whose_runner_missed_a_change_of_coordinator_publishes,
    ordinals_become_visible_in_their_order,
    a_publish_of_a_thousand_segments_is_one_transaction,
    segments_are_promoted_once_and_listed_by_filter,
    preview_changes_nothing,
);

fn numbers(segments: &[tidegate_metadata::CatalogSegment]) -> Vec<i64> {
    segments.iter().map(|segment| segment.ordinal.0).collect()
}

async fn offsets_and_segments_are_committed_together(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2), (1, 7), (2, 1)])).await;
    let group = Group::new("a", at([(0, 2), (1, 7)]), at([(0, 5), (1, 9)]));
    group.register(store).await;
    let files = vec![group.segment(store, 0, 0).await, group.segment(store, 1, 0).await];
    let answer = store.publish(&group.wish(0, files.clone())).await.unwrap();
    assert!(is_published(&answer), "{answer:?}");
    assert_eq!(answer.committed, at([(0, 5), (1, 9)]));
    assert_eq!(
        committed(store).await,
        at([(0, 5), (1, 9), (2, 1)]),
        "other partitions stay"
    );
    let listed = catalog(&fresh.another().await).await;
    assert_eq!(listed, answer.segments);
    assert_eq!(numbers(&listed), vec![1, 2]);
    assert_eq!(
        listed
            .iter()
            .map(|segment| segment.file.clone())
            .collect::<Vec<_>>(),
        files
    );
    for segment in &listed {
        assert_eq!((&segment.supervisor, &segment.group), (&wiki(), &group.id()));
        assert_eq!((segment.generation, segment.published_at), (Generation(0), NOW));
        assert_eq!((segment.used, segment.promoted), (true, false));
    }
}

async fn stored_differs_fails_and_nothing_is_inserted(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 4), (1, 7)])).await;
    let group = Group::new("a", at([(0, 2), (1, 7)]), at([(0, 5), (1, 9)]));
    group.register(store).await;
    let files = vec![group.segment(store, 1, 0).await];
    let answer = store.publish(&group.wish(0, files)).await.unwrap();
    assert!(
        matches!(
            answer.decision,
            PublishDecision::Mismatch(Mismatch::Overlap { .. })
        ),
        "{answer:?}"
    );
    assert_eq!(
        (answer.committed, answer.segments),
        (at([(0, 4), (1, 7)]), vec![])
    );
    assert_eq!(committed(store).await, at([(0, 4), (1, 7)]));
    assert_eq!(catalog(store).await, vec![]);
}

async fn without_committed_offsets_nothing_is_published(fresh: Fresh) {
    let store = &fresh.store;
    let group = Group::new("a", at([(0, 2)]), at([(0, 5)]));
    group.register(store).await;
    let answer = store.publish(&group.wish(0, vec![])).await.unwrap();
    let expected = Mismatch::NoCommittedOffset {
        partition: PartitionId(0),
    };
    assert_eq!(answer.decision, PublishDecision::Mismatch(expected));
}

async fn replicas(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2)])).await;
    let group = Group::new("a", at([(0, 2)]), at([(0, 5)]));
    group.register(store).await;
    let first = group.segment(store, 0, 0).await;
    let second = group.segment(store, 0, 1).await;
    assert_eq!(first.id, second.id, "replicas have the same ids");
    assert_ne!(first.key, second.key, "and uploads of their own");
    let published = store.publish(&group.wish(0, vec![first])).await.unwrap();
    assert!(is_published(&published));
    for _ in 0..3 {
        for replica in [0, 1] {
            let again = store
                .publish(&group.wish(replica, vec![second.clone()]))
                .await
                .unwrap();
            assert_eq!(again.decision, PublishDecision::AlreadyPublished);
            assert_eq!(
                (again.committed, &again.segments),
                (at([(0, 5)]), &published.segments),
                "the winner's"
            );
        }
    }
    assert_eq!(catalog(store).await, published.segments);
}

async fn replicas_that_publish_at_once(fresh: Fresh) {
    let other = fresh.another().await;
    initialize(&fresh.store, at([(0, 0)])).await;
    for round in 0..10 {
        let group = Group::new(&format!("g{round}"), at([(0, round)]), at([(0, round + 1)]));
        group.register(&fresh.store).await;
        let one = group.wish(0, vec![group.segment(&fresh.store, 0, 0).await]);
        let two = group.wish(1, vec![group.segment(&fresh.store, 0, 1).await]);
        let (one, two) = tokio::join!(fresh.store.publish(&one), other.publish(&two));
        let (one, two) = (one.unwrap(), two.unwrap());
        let won = [&one, &two].iter().filter(|answer| is_published(answer)).count();
        assert_eq!(won, 1, "{one:?} {two:?}");
        assert_eq!(one.segments, two.segments);
    }
    assert_eq!(catalog(&fresh.store).await.len(), 10);
    assert_eq!(committed(&fresh.store).await, at([(0, 10)]));
}

async fn conflicting_tasks(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2)])).await;
    let first = Group::new("first", at([(0, 2)]), at([(0, 5)]));
    let second = Group::new("second", at([(0, 3)]), at([(0, 9)]));
    first.register(store).await;
    second.register(store).await;
    let winning = first.segment(store, 0, 0).await;
    let losing = second.segment(store, 0, 0).await;
    assert!(is_published(
        &store
            .publish(&first.wish(0, vec![winning.clone()]))
            .await
            .unwrap()
    ));
    let answer = store.publish(&second.wish(0, vec![losing])).await.unwrap();
    assert!(
        matches!(answer.decision, PublishDecision::Mismatch(_)),
        "{answer:?}"
    );
    assert_eq!(committed(store).await, at([(0, 5)]));
    let listed = catalog(store).await;
    assert_eq!(
        listed.iter().map(|segment| &segment.file.id).collect::<Vec<_>>(),
        vec![&winning.id]
    );
}

async fn two_tasks_one_partition_each(fresh: Fresh) {
    // Whatever the order, also at once, offsets of both are merged.
    let other = fresh.another().await;
    initialize(&fresh.store, at([(0, 2), (1, 0)])).await;
    let zero = Group::new("zero", at([(0, 2)]), at([(0, 5)]));
    let one = Group::new("one", at([(1, 0)]), at([(1, 1)]));
    zero.register(&fresh.store).await;
    one.register(&fresh.store).await;
    let wishes = (
        zero.wish(0, vec![zero.segment(&fresh.store, 0, 0).await]),
        one.wish(0, vec![one.segment(&fresh.store, 1, 0).await]),
    );
    let (zero, one) = tokio::join!(fresh.store.publish(&wishes.0), other.publish(&wishes.1));
    assert!(is_published(&zero.unwrap()) && is_published(&one.unwrap()));
    assert_eq!(committed(&fresh.store).await, at([(0, 5), (1, 1)]));
    assert_eq!(catalog(&fresh.store).await.len(), 2);
}

async fn d13_a_sequence_without_rows_moves_the_offsets(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2)])).await;
    let empty = Group::new("empty", at([(0, 2)]), at([(0, 5)]));
    let next = Group::new("next", at([(0, 5)]), at([(0, 6)]));
    empty.register(store).await;
    next.register(store).await;
    assert!(is_published(
        &store.publish(&empty.wish(0, vec![])).await.unwrap()
    ));
    assert_eq!(
        store.publish(&empty.wish(1, vec![])).await.unwrap().decision,
        PublishDecision::AlreadyPublished
    );
    assert!(is_published(
        &store
            .publish(&next.wish(0, vec![next.segment(store, 0, 0).await]))
            .await
            .unwrap()
    ));
    assert_eq!(committed(store).await, at([(0, 6)]));
}

async fn d34_a_publish_under_way_during_a_reset_is_fenced(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2)])).await;
    let group = Group::new("a", at([(0, 2)]), at([(0, 5)]));
    group.register(store).await;
    let wish = group.wish(0, vec![group.segment(store, 0, 0).await]);
    // The reset puts the offsets where they were: only the generation tells that it happened.
    let wanted = tidegate_metadata::ResetOffsets {
        new_offsets: at([(0, 2)]),
        ..reset("k")
    };
    store.reset_offsets(&wanted).await.unwrap();
    let answer = store.publish(&wish).await.unwrap();
    let fence = Fence::Generation {
        held: Generation(1),
        given: Generation(0),
    };
    assert_eq!(answer.decision, PublishDecision::Fenced(fence));
    assert_eq!(
        (committed(store).await, catalog(store).await),
        (at([(0, 2)]), vec![])
    );
    // The group that is made again reads and publishes the same range.
    let again = Group {
        generation: Generation(1),
        ..Group::new("b", at([(0, 2)]), at([(0, 5)]))
    };
    again.register(store).await;
    assert!(is_published(
        &store
            .publish(&again.wish(0, vec![again.segment(store, 0, 0).await]))
            .await
            .unwrap()
    ));
    assert_eq!(catalog(store).await.len(), 1);
}

async fn d34_a_zombie_after_a_reset_of_all_brings_nothing_back(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2)])).await;
    let group = Group::new("a", at([(0, 2)]), at([(0, 5)]));
    group.register(store).await;
    let wish = group.wish(0, vec![group.segment(store, 0, 0).await]);
    store.reset_offsets(&reset("k")).await.unwrap();
    for _ in 0..2 {
        assert!(matches!(
            store.publish(&wish).await.unwrap().decision,
            PublishDecision::Fenced(_)
        ));
    }
    assert_eq!(committed(store).await, PartitionOffsets::new());
    initialize(store, at([(0, 0)])).await;
    assert!(matches!(
        store.publish(&wish).await.unwrap().decision,
        PublishDecision::Fenced(_)
    ));
    assert_eq!(
        (committed(store).await, catalog(store).await),
        (at([(0, 0)]), vec![])
    );
}

async fn d39_a_late_replica_succeeds_though_the_segments_are_unused(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2)])).await;
    let group = Group::new("a", at([(0, 2)]), at([(0, 5)]));
    group.register(store).await;
    let file = group.segment(store, 0, 0).await;
    store.publish(&group.wish(0, vec![file.clone()])).await.unwrap();
    store
        .mark_used(std::slice::from_ref(&file.id), Used::No)
        .await
        .unwrap();
    store
        .end_group(&wiki(), &group.id(), Epoch(1), NOW)
        .await
        .unwrap();
    let late = store.publish(&group.wish(1, vec![file.clone()])).await.unwrap();
    assert_eq!(late.decision, PublishDecision::AlreadyPublished);
    assert_eq!(
        late.segments
            .iter()
            .map(|segment| (&segment.file.id, segment.used))
            .collect::<Vec<_>>(),
        vec![(&file.id, false)]
    );
}

async fn d37_a_young_group_waits_for_its_elder_then_publishes(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2)])).await;
    let elder = Group::new("elder", at([(0, 2)]), at([(0, 5)]));
    let young = Group::new("young", at([(0, 5)]), at([(0, 9)]));
    let third = Group::new("third", at([(0, 9)]), at([(0, 12)]));
    for group in [&elder, &young, &third] {
        group.register(store).await;
    }
    let wish = young.wish(0, vec![young.segment(store, 0, 0).await]);
    let waiting = store.publish(&wish).await.unwrap();
    assert!(
        matches!(&waiting.decision, PublishDecision::NotYet { waiting_for, .. } if *waiting_for == vec![elder.id()]),
        "{waiting:?}"
    );
    assert!(is_published(
        &store.publish(&elder.wish(0, vec![])).await.unwrap()
    ));
    assert!(is_published(&store.publish(&wish).await.unwrap()));
    // The next one's elder is given up: it does not wait for ever.
    let fourth = Group::new("fourth", at([(0, 12)]), at([(0, 15)]));
    fourth.register(store).await;
    let wish = fourth.wish(0, vec![]);
    assert!(matches!(
        store.publish(&wish).await.unwrap().decision,
        PublishDecision::NotYet { .. }
    ));
    store
        .end_group(&wiki(), &third.id(), Epoch(1), NOW)
        .await
        .unwrap();
    let lost = store.publish(&wish).await.unwrap();
    assert_eq!(
        lost.decision,
        PublishDecision::PredecessorLost {
            partitions: vec![PartitionId(0)]
        }
    );
}

async fn a_task_whose_runner_missed_a_change_of_coordinator_publishes(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2)])).await;
    let group = Group::new("a", at([(0, 2)]), at([(0, 5)]));
    store.register_group(&group.registration(4)).await.unwrap();
    // A new coordinator adopts the group; the runner has not heard of it yet. The token is the task's fence.
    store.register_group(&group.registration(5)).await.unwrap();
    let wish = Publish {
        epoch: Epoch(4),
        ..group.wish(0, vec![])
    };
    assert!(is_published(&store.publish(&wish).await.unwrap()));
    // A runner that has seen a newer coordinator fences the old one here too.
    let next = Group::new("b", at([(0, 5)]), at([(0, 6)]));
    store.register_group(&next.registration(5)).await.unwrap();
    store
        .publish(&Publish {
            epoch: Epoch(7),
            ..next.wish(0, vec![])
        })
        .await
        .unwrap();
    assert!(store.register_group(&next.registration(6)).await.is_err());
}

async fn ordinals_become_visible_in_their_order(fresh: Fresh) {
    const SUPERVISORS: i64 = 6;
    const EACH: i64 = 8;
    let writers = (0..SUPERVISORS).map(|number| {
        let store = fresh.store.clone();
        tokio::spawn(async move {
            let supervisor = SupervisorId::new(format!("s{number}")).unwrap();
            let call = tidegate_metadata::InitializeOffsets {
                supervisor: supervisor.clone(),
                stream: stream(),
                start: at([(0, 0)]),
                epoch: Epoch(1),
                at: NOW,
            };
            store.initialize_offsets(&call).await.unwrap();
            for round in 0..EACH {
                let name = format!("s{number}-g{round}");
                let group = Group {
                    supervisor: supervisor.clone(),
                    ..Group::new(&name, at([(0, round)]), at([(0, round + 1)]))
                };
                group.register(&store).await;
                let file = group.segment(&store, 0, 0).await;
                assert!(is_published(
                    &store.publish(&group.wish(0, vec![file])).await.unwrap()
                ));
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let done = Arc::new(AtomicBool::new(false));
    let pager = tokio::spawn({
        let (store, done) = (fresh.another().await, Arc::clone(&done));
        async move {
            let mut seen: Vec<i64> = Vec::new();
            loop {
                let last_look = done.load(Ordering::SeqCst);
                let after = Ordinal(seen.last().copied().unwrap_or(0));
                let page = store
                    .list_segments(&SegmentFilter::default(), after, 3)
                    .await
                    .unwrap();
                let empty = page.is_empty();
                seen.extend(numbers(&page));
                if last_look && empty {
                    return seen;
                }
                tokio::task::yield_now().await;
            }
        }
    });
    for writer in writers {
        writer.await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    assert_eq!(
        pager.await.unwrap(),
        (1..=SUPERVISORS * EACH).collect::<Vec<i64>>()
    );
}

async fn a_publish_of_a_thousand_segments_is_one_transaction(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 0)])).await;
    let group = Group::new("late-rows", at([(0, 0)]), at([(0, 5000)]));
    group.register(store).await;
    let mut files = Vec::new();
    let mut previous: Option<SegmentId> = None;
    for hour in 0..1100 {
        let call = group.allocate(0, previous.as_ref(), hour * crate::world::HOUR);
        let id = store.allocate(&call).await.unwrap();
        previous = Some(id.clone());
        files.push(tidegate_protocol::publish::SegmentFile {
            key: format!("staging/t/{hour}.parquet"),
            ..group.file(id, 0, 0)
        });
    }
    let answer = store.publish(&group.wish(0, files)).await.unwrap();
    assert!(is_published(&answer));
    assert_eq!(numbers(&catalog(store).await), (1..=1100).collect::<Vec<i64>>());
    let keys: Vec<String> = (0..2000)
        .map(|hour| format!("staging/t/{hour}.parquet"))
        .collect();
    assert_eq!(store.referenced_keys(&keys).await.unwrap().len(), 1100);
}

async fn segments_are_promoted_once_and_listed_by_filter(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2), (1, 7)])).await;
    let group = Group::new("a", at([(0, 2), (1, 7)]), at([(0, 5), (1, 9)]));
    group.register(store).await;
    let files = vec![group.segment(store, 0, 0).await, group.segment(store, 1, 0).await];
    let staged: Vec<String> = files.iter().map(|file| file.key.clone()).collect();
    store.publish(&group.wish(0, files)).await.unwrap();
    assert_eq!(
        numbers(&store.unpromoted(Ordinal(0), 10).await.unwrap()),
        vec![1, 2]
    );
    assert_eq!(numbers(&store.unpromoted(Ordinal(1), 10).await.unwrap()), vec![2]);
    for _ in 0..2 {
        store
            .mark_promoted(Ordinal(1), "segments/wiki/0.parquet")
            .await
            .unwrap();
    }
    assert_eq!(numbers(&store.unpromoted(Ordinal(0), 10).await.unwrap()), vec![2]);
    let first = catalog(store).await.remove(0);
    assert_eq!(
        (first.file.key.as_str(), first.promoted),
        ("segments/wiki/0.parquet", true)
    );
    // The staged object of the first may be swept now, that of the second not.
    let referenced: BTreeSet<String> = store
        .referenced_keys(&staged)
        .await
        .unwrap()
        .into_iter()
        .collect();
    assert_eq!(referenced, BTreeSet::from([staged[1].clone()]));

    let of = |data_source: &str, supervisor: &str| SegmentFilter {
        data_source: Some(DataSource::new(data_source).unwrap()),
        supervisor: Some(SupervisorId::new(supervisor).unwrap()),
    };
    assert_eq!(
        store
            .list_segments(&of("wiki", "wiki"), Ordinal(0), 10)
            .await
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        store
            .list_segments(&of("wiki", "else"), Ordinal(0), 10)
            .await
            .unwrap()
            .len(),
        0
    );
    assert_eq!(
        store
            .list_segments(&of("else", "wiki"), Ordinal(0), 10)
            .await
            .unwrap()
            .len(),
        0
    );
}

async fn preview_changes_nothing(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2)])).await;
    let group = Group::new("a", at([(0, 2)]), at([(0, 5)]));
    group.register(store).await;
    let wish = group.wish(0, vec![]);
    assert!(is_published(&store.preview(&wish.request).await.unwrap()));
    assert_eq!(committed(store).await, at([(0, 2)]));
    let mut other = wish.clone();
    other.request.mode = GroupMode::Unknown(3);
    assert!(matches!(
        store.preview(&other.request).await.unwrap().decision,
        PublishDecision::Malformed(_)
    ));
    store.publish(&wish).await.unwrap();
    assert_eq!(
        store.preview(&wish.request).await.unwrap().decision,
        PublishDecision::AlreadyPublished
    );
}
