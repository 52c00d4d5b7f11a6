//! Committed offsets, resets and registered groups.

use tidegate_metadata::{PublisherError, PublisherStore, Refusal, ResetOffsets};
use tidegate_protocol::publish::{GroupMode, StreamId};
use tidegate_types::{
    AssignmentToken, ClusterId, Epoch, Generation, GroupId, PartitionId, PartitionOffsets, TopicId,
};

use crate::databases::{Fresh, on_both_databases};
use crate::world::{Group, NOW, OPEN, at, committed, initialize, reset, stream, try_initialize, wiki};

on_both_databases!(
    first_offsets_are_written_once_and_never_changed,
    an_open_end_is_no_start,
    new_partitions_of_another_topic_incarnation_are_refused,
    reset_of_all_clears_the_offsets_and_raises_the_generation,
    reset_of_given_partitions_leaves_the_others,
    reset_moves_offsets_and_compares_before,
    the_same_reset_again_answers_the_first_result,
    a_deposed_coordinator_is_refused_everywhere,
    a_group_stays_what_it_was_registered_as,
    the_oldest_group_that_may_publish_is_known_to_the_sweep,
);

async fn first_offsets_are_written_once_and_never_changed(fresh: Fresh) {
    let store = &fresh.store;
    assert_eq!(store.committed_offsets(&wiki(), "wiki").await.unwrap(), None);
    let held = initialize(store, at([(0, 2), (1, 7)])).await;
    assert_eq!(
        (held.generation, held.stream, held.offsets),
        (Generation(0), stream(), at([(0, 2), (1, 7)]))
    );
    let held = initialize(store, at([(1, 99), (2, 5)])).await;
    assert_eq!(held.offsets, at([(0, 2), (1, 7), (2, 5)]));
    // Read by topic, by the only topic, by another service; another topic has none.
    assert_eq!(
        store.committed_offsets(&wiki(), "wiki").await.unwrap().unwrap(),
        held
    );
    assert_eq!(
        fresh
            .another()
            .await
            .committed_offsets(&wiki(), "")
            .await
            .unwrap()
            .unwrap(),
        held
    );
    assert_eq!(store.committed_offsets(&wiki(), "other").await.unwrap(), None);
}

async fn an_open_end_is_no_start(fresh: Fresh) {
    let store = &fresh.store;
    let open = PartitionOffsets::from_iter([(PartitionId(0), OPEN)]);
    let refused = try_initialize(store, open.clone(), stream()).await.unwrap_err();
    assert!(
        matches!(refused, PublisherError::Refused(Refusal::NoStart { .. })),
        "{refused}"
    );
    let refused = store
        .reset_offsets(&ResetOffsets {
            new_offsets: open,
            ..reset("k")
        })
        .await
        .unwrap_err();
    assert!(
        matches!(refused, PublisherError::Refused(Refusal::NoStart { .. })),
        "{refused}"
    );
    assert_eq!(store.committed_offsets(&wiki(), "wiki").await.unwrap(), None);
}

async fn new_partitions_of_another_topic_incarnation_are_refused(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2)])).await;
    let other = StreamId {
        incarnation: TopicId("t2".into()),
        ..stream()
    };
    let refused = try_initialize(store, at([(0, 2), (1, 0)]), other.clone())
        .await
        .unwrap_err();
    assert!(
        matches!(refused, PublisherError::Refused(Refusal::OtherStream { .. })),
        "{refused}"
    );
    // With nothing to write it only tells what holds.
    assert_eq!(
        try_initialize(store, at([(0, 9)]), other).await.unwrap().offsets,
        at([(0, 2)])
    );
    let unknown = StreamId {
        cluster: ClusterId::default(),
        incarnation: TopicId::default(),
        ..stream()
    };
    assert_eq!(
        try_initialize(store, at([(1, 0)]), unknown)
            .await
            .unwrap()
            .offsets,
        at([(0, 2), (1, 0)])
    );
}

async fn reset_of_all_clears_the_offsets_and_raises_the_generation(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2), (1, 7)])).await;
    let result = store.reset_offsets(&reset("k1")).await.unwrap();
    assert_eq!(
        (result.generation, result.offsets),
        (Generation(1), PartitionOffsets::new())
    );
    // Known, without offsets: not the same as never known.
    let held = store.committed_offsets(&wiki(), "wiki").await.unwrap().unwrap();
    assert_eq!(
        (held.generation, held.offsets),
        (Generation(1), PartitionOffsets::new())
    );
    assert_eq!(initialize(store, at([(0, 0)])).await.generation, Generation(1));
    // Without offsets: nothing to clear, and still a new generation.
    let never = ResetOffsets {
        supervisor: "never".parse().unwrap(),
        ..reset("k1")
    };
    assert_eq!(
        store.reset_offsets(&never).await.unwrap().generation,
        Generation(1)
    );
}

async fn reset_of_given_partitions_leaves_the_others(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2), (1, 7), (2, 9)])).await;
    let some = ResetOffsets {
        partitions: vec![PartitionId(1), PartitionId(5)],
        ..reset("k")
    };
    let result = store.reset_offsets(&some).await.unwrap();
    assert_eq!(result.offsets, at([(0, 2), (2, 9)]));
    assert_eq!(committed(store).await, at([(0, 2), (2, 9)]));
}

async fn reset_moves_offsets_and_compares_before(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2), (1, 7)])).await;
    let other = StreamId {
        incarnation: TopicId("t2".into()),
        ..stream()
    };
    let wish = ResetOffsets {
        partitions: vec![PartitionId(1)],
        new_offsets: at([(1, 100)]),
        expected: Some(at([(1, 6)])),
        stream: Some(other.clone()),
        ..reset("k")
    };
    let refused = store.reset_offsets(&wish).await.unwrap_err();
    assert!(
        matches!(&refused, PublisherError::Refused(Refusal::OffsetsDiffer { committed, .. }) if *committed == at([(1, 7)])),
        "{refused}"
    );
    let held = store.committed_offsets(&wiki(), "wiki").await.unwrap().unwrap();
    assert_eq!(
        (held.generation, held.offsets),
        (Generation(0), at([(0, 2), (1, 7)])),
        "nothing was changed"
    );
    let wish = ResetOffsets {
        expected: Some(at([(1, 7)])),
        ..wish
    };
    let result = store.reset_offsets(&wish).await.unwrap();
    assert_eq!(
        (result.generation, result.offsets),
        (Generation(1), at([(0, 2), (1, 100)]))
    );
}

async fn the_same_reset_again_answers_the_first_result(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2)])).await;
    let first = store
        .reset_offsets(&ResetOffsets {
            new_offsets: at([(0, 50)]),
            ..reset("k1")
        })
        .await
        .unwrap();
    let second = store
        .reset_offsets(&ResetOffsets {
            new_offsets: at([(0, 70)]),
            ..reset("k2")
        })
        .await
        .unwrap();
    assert_eq!(second.generation, Generation(2));
    // A late repetition of the first wish does not move anything.
    assert_eq!(
        store
            .reset_offsets(&ResetOffsets {
                new_offsets: at([(0, 50)]),
                ..reset("k1")
            })
            .await
            .unwrap(),
        first
    );
    assert_eq!(
        store.committed_offsets(&wiki(), "wiki").await.unwrap().unwrap(),
        second
    );
}

async fn a_deposed_coordinator_is_refused_everywhere(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2)])).await;
    let group = Group::new("a", at([(0, 2)]), at([(0, 5)]));
    store.register_group(&group.registration(5)).await.unwrap();
    let stale = |result: Result<(), PublisherError>| {
        let refused = result.unwrap_err();
        let (held, given) = (Epoch(5), Epoch(4));
        assert!(
            matches!(&refused, PublisherError::Refused(refusal) if *refusal == Refusal::StaleEpoch { held, given }),
            "{refused}"
        );
    };
    stale(store.register_group(&group.registration(4)).await);
    stale(store.end_group(&wiki(), &group.id(), Epoch(4), NOW).await);
    stale(
        store
            .reset_offsets(&ResetOffsets {
                epoch: Epoch(4),
                ..reset("k")
            })
            .await
            .map(drop),
    );
    stale(try_initialize_at(store, Epoch(4)).await);
    assert!(!store.group(&wiki(), &group.id()).await.unwrap().unwrap().ended);
    assert_eq!(committed(store).await, at([(0, 2)]));
}

async fn try_initialize_at(store: &tidegate_metadata::Metadata, epoch: Epoch) -> Result<(), PublisherError> {
    let call = tidegate_metadata::InitializeOffsets {
        supervisor: wiki(),
        stream: stream(),
        start: at([(9, 0)]),
        epoch,
        at: NOW,
    };
    store.initialize_offsets(&call).await.map(drop)
}

async fn a_group_stays_what_it_was_registered_as(fresh: Fresh) {
    let store = &fresh.store;
    initialize(store, at([(0, 2)])).await;
    let group = Group::new("a", at([(0, 2)]), at([(0, 5)]));
    group.register(store).await;
    group.register(store).await;
    let registered = store.group(&wiki(), &group.id()).await.unwrap().unwrap();
    assert_eq!(
        (registered.base, registered.start, registered.mode),
        (group.base(), group.start.clone(), GroupMode::Legacy)
    );

    let others = [
        tidegate_metadata::RegisterGroup {
            start: at([(0, 3)]),
            ..group.registration(1)
        },
        tidegate_metadata::RegisterGroup {
            mode: GroupMode::Checkpointing,
            ..group.registration(1)
        },
        tidegate_metadata::RegisterGroup {
            base: "else".parse().unwrap(),
            ..group.registration(1)
        },
    ];
    for other in others {
        let refused = store.register_group(&other).await.unwrap_err();
        assert!(
            matches!(refused, PublisherError::Refused(Refusal::OtherGroup { .. })),
            "{refused}"
        );
    }
    let late = Group {
        generation: Generation(3),
        ..Group::new("b", at([(0, 2)]), at([(0, 5)]))
    };
    let refused = store.register_group(&late.registration(1)).await.unwrap_err();
    assert!(
        matches!(refused, PublisherError::Refused(Refusal::StaleGeneration { .. })),
        "{refused}"
    );

    // Tokens are replaced; a mode of a newer version keeps its number.
    let tokens = vec![AssignmentToken::new("new").unwrap()];
    let replaced = tidegate_metadata::RegisterGroup {
        tokens: tokens.clone(),
        ..group.registration(2)
    };
    store.register_group(&replaced).await.unwrap();
    let registered = store.group(&wiki(), &group.id()).await.unwrap().unwrap();
    assert_eq!((registered.tokens, registered.epoch), (tokens, Epoch(2)));
    // A registration that was overtaken on its way brings no tokens back; a new epoch counts from the beginning.
    let newer = tidegate_metadata::RegisterGroup {
        revision: 5,
        ..replaced.clone()
    };
    store.register_group(&newer).await.unwrap();
    let overtaken = tidegate_metadata::RegisterGroup {
        revision: 4,
        ..group.registration(2)
    };
    let refused = store.register_group(&overtaken).await.unwrap_err();
    assert!(
        matches!(refused, PublisherError::Refused(Refusal::Overtaken { .. })),
        "{refused}"
    );
    let registered = store.group(&wiki(), &group.id()).await.unwrap().unwrap();
    assert_eq!(
        (registered.tokens, registered.revision),
        (newer.tokens.clone(), 5)
    );
    store.register_group(&newer).await.unwrap();
    let odd = Group::new("odd", at([(0, 2)]), at([(0, 5)]));
    let registration = tidegate_metadata::RegisterGroup {
        mode: GroupMode::Unknown(9),
        ..odd.registration(2)
    };
    store.register_group(&registration).await.unwrap();
    assert_eq!(
        store.group(&wiki(), &odd.id()).await.unwrap().unwrap().mode,
        GroupMode::Unknown(9)
    );

    // An ended group does not come back; ending it again, or one that nobody knows, is no error.
    store
        .end_group(&wiki(), &group.id(), Epoch(2), NOW)
        .await
        .unwrap();
    store
        .end_group(&wiki(), &group.id(), Epoch(2), NOW)
        .await
        .unwrap();
    store
        .end_group(&wiki(), &GroupId::new("nobody").unwrap(), Epoch(2), NOW)
        .await
        .unwrap();
    let refused = store.register_group(&group.registration(2)).await.unwrap_err();
    assert!(
        matches!(refused, PublisherError::Refused(Refusal::GroupEnded { .. })),
        "{refused}"
    );
}

async fn the_oldest_group_that_may_publish_is_known_to_the_sweep(fresh: Fresh) {
    let store = &fresh.store;
    let at_time = |millis| tidegate_types::TimestampMillis(millis);
    assert_eq!(store.oldest_open_group().await.unwrap(), None);
    initialize(store, at([(0, 2)])).await;
    for (name, millis) in [("a", 10), ("b", 20)] {
        let group = Group::new(name, at([(0, 2)]), at([(0, 5)]));
        let registration = tidegate_metadata::RegisterGroup {
            at: at_time(millis),
            ..group.registration(1)
        };
        store.register_group(&registration).await.unwrap();
        // Registering again does not make it younger.
        store
            .register_group(&tidegate_metadata::RegisterGroup {
                at: at_time(99),
                ..registration
            })
            .await
            .unwrap();
    }
    assert_eq!(store.oldest_open_group().await.unwrap(), Some(at_time(10)));
    store
        .end_group(&wiki(), &GroupId::new("a").unwrap(), Epoch(1), NOW)
        .await
        .unwrap();
    assert_eq!(store.oldest_open_group().await.unwrap(), Some(at_time(20)));
    // After a reset no group of before can publish, told to end or not.
    store.reset_offsets(&reset("k")).await.unwrap();
    assert_eq!(store.oldest_open_group().await.unwrap(), None);
}
