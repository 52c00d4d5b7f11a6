//! What every [`HandoffStore`] does.

use tidegate_metadata::{Document, HandoffFilter, HandoffRecord, HandoffState, HandoffStore, Ordinal};
use tidegate_types::{DataSource, Interval, SegmentId, SegmentVersion, TimestampMillis};

use crate::databases::{Fresh, on_both_databases};

on_both_databases!(
    handoffs_are_registered_once_and_the_cursor_moves_with_them,
    a_segment_that_was_seen_served_stays_served,
    attempts_are_counted_until_it_is_served,
    handoffs_are_listed_by_ordinal_in_pages,
    a_state_of_a_newer_version_is_kept_and_counts_as_pending,
);

fn handoff(data_source: &str, number: u32, ordinal: i64) -> HandoffRecord {
    HandoffRecord {
        segment: SegmentId {
            data_source: DataSource::new(data_source).unwrap(),
            interval: Interval::new(TimestampMillis(0), TimestampMillis(3_600_000)).unwrap(),
            version: SegmentVersion::new("2026-01-01T00:00:00.000Z").unwrap(),
            partition_num: number,
        },
        ordinal: Ordinal(ordinal),
        state: HandoffState::Pending,
        detail: String::new(),
        attempts: 0,
        since: TimestampMillis(1_700_000_000_000),
        served_at: None,
        document: Document::of(1, 1, &serde_json::json!({ "key": format!("segments/{number}") })).unwrap(),
    }
}

const ALL: HandoffFilter = HandoffFilter {
    data_source: None,
    pending_only: false,
};

async fn handoffs_are_registered_once_and_the_cursor_moves_with_them(fresh: Fresh) {
    let store = &fresh.store;
    assert_eq!(store.cursor().await.unwrap(), Ordinal(0));
    assert_eq!(store.pending_count().await.unwrap(), 0);
    let two = [handoff("wiki", 0, 1), handoff("wiki", 1, 2)];
    store.upsert(&two, Some(Ordinal(2))).await.unwrap();
    assert_eq!(store.cursor().await.unwrap(), Ordinal(2));
    // Again, with another truth: the first stands, the cursor does not go back.
    let other = HandoffRecord {
        attempts: 9,
        detail: "x".into(),
        ..two[0].clone()
    };
    store
        .upsert(&[other, handoff("wiki", 2, 3)], Some(Ordinal(1)))
        .await
        .unwrap();
    assert_eq!(store.cursor().await.unwrap(), Ordinal(2));
    store.upsert(&[], Some(Ordinal(7))).await.unwrap();
    assert_eq!(store.cursor().await.unwrap(), Ordinal(7));
    store.upsert(&[], None).await.unwrap();
    let expected = vec![two[0].clone(), two[1].clone(), handoff("wiki", 2, 3)];
    assert_eq!(store.pending(Ordinal(0), 10).await.unwrap(), expected);
    assert_eq!(
        fresh.another().await.pending(Ordinal(0), 10).await.unwrap(),
        expected
    );
}

async fn a_segment_that_was_seen_served_stays_served(fresh: Fresh) {
    let store = &fresh.store;
    let (one, two) = (handoff("wiki", 0, 1), handoff("wiki", 1, 2));
    store.upsert(&[one.clone(), two.clone()], None).await.unwrap();
    store
        .mark_served(&one.segment, TimestampMillis(5), "readable")
        .await
        .unwrap();
    store
        .mark_served(&one.segment, TimestampMillis(9), "again")
        .await
        .unwrap();
    store.record_attempt(&one.segment, "late answer").await.unwrap();
    store.upsert(std::slice::from_ref(&one), None).await.unwrap();
    let served = HandoffRecord {
        state: HandoffState::Served,
        served_at: Some(TimestampMillis(5)),
        detail: "readable".into(),
        attempts: 1,
        ..one.clone()
    };
    let unknown = handoff("else", 0, 0).segment;
    let asked = [two.segment.clone(), unknown, one.segment.clone()];
    assert_eq!(
        store.get(&asked).await.unwrap(),
        vec![Some(two.clone()), None, Some(served)]
    );
    assert_eq!(store.pending(Ordinal(0), 10).await.unwrap(), vec![two]);
    assert_eq!(store.pending_count().await.unwrap(), 1);
}

async fn attempts_are_counted_until_it_is_served(fresh: Fresh) {
    let store = &fresh.store;
    let one = handoff("wiki", 0, 1);
    store.upsert(std::slice::from_ref(&one), None).await.unwrap();
    for answer in ["not there", "wrong size"] {
        store.record_attempt(&one.segment, answer).await.unwrap();
    }
    let expected = HandoffRecord {
        attempts: 2,
        detail: "wrong size".into(),
        ..one
    };
    assert_eq!(store.pending(Ordinal(0), 10).await.unwrap(), vec![expected]);
}

async fn handoffs_are_listed_by_ordinal_in_pages(fresh: Fresh) {
    let store = &fresh.store;
    // More than one INSERT's worth, not in order.
    let mut all: Vec<HandoffRecord> = (0..1200u32)
        .map(|number| {
            handoff(
                ["wiki", "apps"][number as usize % 2],
                number,
                i64::from(number) + 1,
            )
        })
        .collect();
    all.rotate_left(700);
    store.upsert(&all, Some(Ordinal(1200))).await.unwrap();
    store
        .mark_served(&handoff("wiki", 4, 5).segment, TimestampMillis(5), "")
        .await
        .unwrap();
    let page = store.list(&ALL, Ordinal(2), 3).await.unwrap();
    assert_eq!(
        page.iter().map(|handoff| handoff.ordinal.0).collect::<Vec<_>>(),
        vec![3, 4, 5]
    );
    let filter = HandoffFilter {
        data_source: Some(DataSource::new("wiki").unwrap()),
        pending_only: true,
    };
    let page = store.list(&filter, Ordinal(0), 4).await.unwrap();
    assert_eq!(
        page.iter().map(|handoff| handoff.ordinal.0).collect::<Vec<_>>(),
        vec![1, 3, 7, 9]
    );
    assert_eq!(store.list(&ALL, Ordinal(1200), 10).await.unwrap(), vec![]);
    assert_eq!(store.pending_count().await.unwrap(), 1199);
}

async fn a_state_of_a_newer_version_is_kept_and_counts_as_pending(fresh: Fresh) {
    let store = &fresh.store;
    let odd = HandoffRecord {
        state: HandoffState::Unknown(42),
        ..handoff("wiki", 0, 1)
    };
    store.upsert(std::slice::from_ref(&odd), None).await.unwrap();
    assert_eq!(store.pending(Ordinal(0), 10).await.unwrap(), vec![odd]);
}
