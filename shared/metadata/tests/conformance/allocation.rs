//! Segment allocation on the store. The choice itself: `tidegate_protocol::allocate`.

use tidegate_metadata::{Allocate, PublisherError, PublisherStore, Refusal, Used};
use tidegate_protocol::allocate::{AllocationRefusal, AllocationRequest, Lineage};
use tidegate_protocol::publish::Fence;
use tidegate_types::{AssignmentToken, Epoch, Generation, SegmentId, TimestampMillis};

use crate::databases::{Fresh, on_both_databases};
use crate::world::{Group, HOUR, NOW, at, catalog, initialize, interval, reset, wiki};

on_both_databases!(
    same_sequence_and_previous_id_same_id_again_and_again,
    another_sequence_or_another_previous_id_gets_the_next_partition_number,
    replicas_that_ask_at_once_get_the_same_ids,
    many_sequences_that_ask_at_once_get_different_numbers,
    a_row_joins_the_existing_interval_whatever_granularity_is_wanted,
    the_row_s_query_granularity_coarser_than_the_segment_is_refused_by_name,
    d40_numbers_of_published_and_dropped_segments_are_not_used_again,
    d12_by_interval_the_order_of_requests_does_not_matter,
    who_could_not_publish_gets_no_id,
    after_a_reset_the_same_sequence_name_meets_no_id_of_the_past,
);

async fn world(fresh: &Fresh) -> Group {
    initialize(&fresh.store, at([(0, 2), (1, 0)])).await;
    let group = Group::new("a", at([(0, 2), (1, 0)]), at([(0, 5), (1, 4)]));
    group.register(&fresh.store).await;
    group
}

async fn same_sequence_and_previous_id_same_id_again_and_again(fresh: Fresh) {
    let group = world(&fresh).await;
    let first = fresh.store.allocate(&group.allocate(0, None, 5)).await.unwrap();
    assert_eq!(first.interval, interval(0, HOUR));
    assert_eq!(
        (first.version.as_str(), first.partition_num),
        ("2026-01-01T00:00:00.000Z", 0)
    );
    let second = fresh
        .store
        .allocate(&group.allocate(0, Some(&first), HOUR + 5))
        .await
        .unwrap();
    let another = fresh.another().await;
    let later = TimestampMillis(NOW.0 + HOUR);
    for store in [&fresh.store, &another] {
        let again = Allocate {
            at: later,
            token: group.token(1),
            ..group.allocate(0, None, 5)
        };
        assert_eq!(store.allocate(&again).await.unwrap(), first);
        let again = Allocate {
            at: later,
            ..group.allocate(0, Some(&first), HOUR + 59)
        };
        assert_eq!(store.allocate(&again).await.unwrap(), second);
    }
    // The same place with a row elsewhere: the sequence forked.
    let forked = fresh
        .store
        .allocate(&group.allocate(0, None, 7 * HOUR))
        .await
        .unwrap_err();
    assert!(
        matches!(
            forked,
            PublisherError::Refused(Refusal::Allocation(AllocationRefusal::Forked { .. }))
        ),
        "{forked}"
    );
}

async fn another_sequence_or_another_previous_id_gets_the_next_partition_number(fresh: Fresh) {
    let group = world(&fresh).await;
    let store = &fresh.store;
    let first = store.allocate(&group.allocate(0, None, 5)).await.unwrap();
    let second = store.allocate(&group.allocate(0, Some(&first), 5)).await.unwrap();
    let third = store.allocate(&group.allocate(1, None, 5)).await.unwrap();
    let numbers = [&first, &second, &third].map(|id| id.partition_num);
    assert_eq!(numbers, [0, 1, 2]);
    assert!(
        [&second, &third]
            .iter()
            .all(|id| id.version == first.version && id.interval == first.interval)
    );
}

async fn replicas_that_ask_at_once_get_the_same_ids(fresh: Fresh) {
    let group = world(&fresh).await;
    let other = fresh.another().await;
    let mut previous: Option<SegmentId> = None;
    for round in 0..10 {
        let row = (round % 3) * HOUR;
        let one = group.allocate(0, previous.as_ref(), row);
        let two = Allocate {
            token: group.token(1),
            at: TimestampMillis(NOW.0 + 7),
            ..one.clone()
        };
        let (one, two) = tokio::join!(fresh.store.allocate(&one), other.allocate(&two));
        let one = one.unwrap();
        assert_eq!(one, two.unwrap());
        previous = Some(one);
    }
}

async fn many_sequences_that_ask_at_once_get_different_numbers(fresh: Fresh) {
    initialize(&fresh.store, at([(0, 0)])).await;
    let group = Group::new(
        "wide",
        (0..12)
            .map(|p| (tidegate_types::PartitionId(p), tidegate_types::Offset(0)))
            .collect(),
        at([]),
    );
    group.register(&fresh.store).await;
    let other = fresh.another().await;
    let asks = (0..12).map(|partition| {
        let store = if partition % 2 == 0 {
            fresh.store.clone()
        } else {
            other.clone()
        };
        let call = group.allocate(partition, None, 5);
        tokio::spawn(async move { store.allocate(&call).await.unwrap().partition_num })
    });
    let mut numbers = Vec::new();
    for ask in asks.collect::<Vec<_>>() {
        numbers.push(ask.await.unwrap());
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..12).collect::<Vec<u32>>());
}

async fn a_row_joins_the_existing_interval_whatever_granularity_is_wanted(fresh: Fresh) {
    let group = world(&fresh).await;
    let store = &fresh.store;
    let first = store.allocate(&group.allocate(0, None, 5)).await.unwrap();
    let day = |call: Allocate| {
        let request = AllocationRequest {
            preferred: interval(0, 24 * HOUR),
            finer: vec![call.request.preferred],
            ..call.request
        };
        Allocate { request, ..call }
    };
    let later = TimestampMillis(NOW.0 + HOUR);
    // Coarser is wanted: joins the hour. Elsewhere on that day: the largest that is free.
    let joined = store
        .allocate(&Allocate {
            at: later,
            ..day(group.allocate(1, None, 70_000))
        })
        .await
        .unwrap();
    assert_eq!(
        (joined.interval, &joined.version, joined.partition_num),
        (first.interval, &first.version, 1)
    );
    let call = Allocate {
        at: later,
        ..day(group.allocate(1, Some(&joined), 3 * HOUR))
    };
    let beside = store.allocate(&call).await.unwrap();
    assert_eq!(
        (beside.interval, beside.partition_num),
        (interval(3 * HOUR, 4 * HOUR), 0)
    );
    assert_eq!(beside.version.as_str(), "2026-01-01T01:00:00.000Z");
    // Finer is wanted: joins the hour too.
    let call = group.allocate(0, Some(&first), 90_000);
    let minute = AllocationRequest {
        preferred: call.request.row_bucket,
        finer: vec![],
        ..call.request.clone()
    };
    let finer = store
        .allocate(&Allocate {
            request: minute,
            ..call
        })
        .await
        .unwrap();
    assert_eq!((finer.interval, finer.partition_num), (first.interval, 2));
}

async fn the_row_s_query_granularity_coarser_than_the_segment_is_refused_by_name(fresh: Fresh) {
    let group = world(&fresh).await;
    let call = group.allocate(0, None, 0);
    let coarse = AllocationRequest {
        row_bucket: interval(0, 24 * HOUR),
        ..call.request.clone()
    };
    let refused = fresh
        .store
        .allocate(&Allocate {
            request: coarse,
            ..call
        })
        .await
        .unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("coarser query granularity than the interval"),
        "{refused}"
    );
}

async fn d40_numbers_of_published_and_dropped_segments_are_not_used_again(fresh: Fresh) {
    let group = world(&fresh).await;
    let store = &fresh.store;
    let segments = vec![group.segment(store, 0, 0).await, group.segment(store, 1, 0).await];
    let ids: Vec<SegmentId> = segments.iter().map(|file| file.id.clone()).collect();
    store.publish(&group.wish(0, segments)).await.unwrap();
    store.mark_used(&ids, Used::No).await.unwrap();
    assert!(catalog(store).await.iter().all(|segment| !segment.used));
    store
        .end_group(&wiki(), &group.id(), Epoch(1), NOW)
        .await
        .unwrap();

    let next = Group::new("b", at([(0, 5), (1, 4)]), at([(0, 9), (1, 8)]));
    next.register(store).await;
    let id = store.allocate(&next.allocate(0, None, 5)).await.unwrap();
    assert_eq!(
        (id.interval, &id.version, id.partition_num),
        (ids[0].interval, &ids[0].version, 2)
    );
}

async fn d12_by_interval_the_order_of_requests_does_not_matter(fresh: Fresh) {
    let group = world(&fresh).await;
    let ask = |hour: i64| {
        let call = group.allocate(0, None, hour * HOUR);
        let request = AllocationRequest {
            lineage: Lineage::ByInterval,
            ..call.request
        };
        Allocate { request, ..call }
    };
    let mut one = Vec::new();
    for hour in [0, 1, 2] {
        one.push(fresh.store.allocate(&ask(hour)).await.unwrap());
    }
    let mut two = Vec::new();
    for hour in [2, 0, 1] {
        two.push(fresh.store.allocate(&ask(hour)).await.unwrap());
    }
    two.rotate_left(1);
    assert_eq!(one, two);
    assert_eq!(
        fresh
            .store
            .allocate(&group.allocate(0, None, 5))
            .await
            .unwrap()
            .partition_num,
        1
    );
}

async fn who_could_not_publish_gets_no_id(fresh: Fresh) {
    let group = world(&fresh).await;
    let store = &fresh.store;
    let fenced = |result: Result<SegmentId, PublisherError>| {
        let Err(PublisherError::Refused(Refusal::Fenced(fence))) = result else {
            panic!("{result:?}")
        };
        fence
    };
    let zombie = Allocate {
        token: AssignmentToken::new("zombie").unwrap(),
        ..group.allocate(0, None, 5)
    };
    assert!(matches!(
        fenced(store.allocate(&zombie).await),
        Fence::Token { .. }
    ));
    let stale = Allocate {
        generation: Generation(4),
        ..group.allocate(0, None, 5)
    };
    assert!(matches!(
        fenced(store.allocate(&stale).await),
        Fence::Generation { .. }
    ));
    let unknown = Group::new("b", at([(0, 2)]), at([(0, 5)]));
    assert!(matches!(
        fenced(store.allocate(&unknown.allocate(0, None, 5)).await),
        Fence::UnknownGroup { .. }
    ));
    store
        .end_group(&wiki(), &group.id(), Epoch(1), NOW)
        .await
        .unwrap();
    assert!(matches!(
        fenced(store.allocate(&group.allocate(0, None, 5)).await),
        Fence::GroupEnded { .. }
    ));
}

async fn after_a_reset_the_same_sequence_name_meets_no_id_of_the_past(fresh: Fresh) {
    let group = world(&fresh).await;
    let store = &fresh.store;
    let before = store.allocate(&group.allocate(0, None, 5)).await.unwrap();
    store.reset_offsets(&reset("k")).await.unwrap();
    let again = Group {
        generation: Generation(1),
        name: "c".into(),
        ..group.clone()
    };
    again.register(store).await;
    let mut call = again.allocate(0, None, 5);
    call.request.sequence = group.allocate(0, None, 5).request.sequence;
    let after = store.allocate(&call).await.unwrap();
    assert_ne!(after, before);
    assert_eq!(after.partition_num, before.partition_num + 1);
}
