//! Publishing: outcomes, lost answers, bad objects, waiting.

use std::time::{Duration, Instant};

use tidegate_rpc::publisher::v1::PublishOutcome;
use tokio::sync::oneshot;

use crate::faulty_store::Fault;
use crate::world::{Group, World, at, eventually, publish};

const FINAL: &str = "segments/wiki/1970-01-01T000000.000Z_1970-01-01T010000.000Z/";

#[tokio::test]
async fn a_published_segment_stands_at_its_final_key_and_its_staged_object_is_gone() {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let group = Group::new("a", 2, 5);
    group.register(&mut world).await;
    let (wish, staged) = group.ready(&mut world, 0).await;
    assert_eq!(world.glob().len(), 0, "nothing is seen before the commit");
    let (outcome, response) = publish(&mut world, &wish).await;
    assert_eq!(outcome, PublishOutcome::Published, "{}", response.detail);
    assert_eq!(response.committed.unwrap(), (&at([(0, 5)])).into());
    assert_eq!(response.segments, vec![wish.segments[0].id.clone().unwrap()]);
    assert_eq!(world.committed().await, at([(0, 5)]));

    let catalog = world.catalog().await;
    let listed = catalog[0].segment.clone().unwrap();
    assert!(
        listed.key.starts_with(FINAL) && listed.key.ends_with("/0.parquet"),
        "{}",
        listed.key
    );
    assert_eq!(
        (
            catalog.len(),
            catalog[0].used,
            catalog[0].promoted,
            catalog[0].ordinal
        ),
        (1, true, true, 1)
    );
    assert_eq!(world.glob(), [(listed.key, staged.size)].into());
    assert_eq!(world.staging(), [].into());
}

#[tokio::test]
async fn replicas_both_succeed_and_a_glob_sees_each_row_once() {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let group = Group::new("a", 2, 5);
    group.register(&mut world).await;
    let (one, _) = group.ready(&mut world, 0).await;
    let (two, second) = group.ready(&mut world, 1).await;
    assert_eq!(one.segments[0].id, two.segments[0].id);
    let (mut other, mut world_client) = (world.client.clone(), world.client.clone());
    let (first, late) = tokio::join!(world_client.publish(one.clone()), other.publish(two.clone()));
    let mut outcomes =
        [first.unwrap().into_inner(), late.unwrap().into_inner()].map(|response| response.outcome());
    outcomes.sort();
    assert_eq!(
        outcomes,
        [PublishOutcome::Published, PublishOutcome::AlreadyPublished]
    );
    assert_eq!((world.catalog().await.len(), world.glob().len()), (1, 1));
    // Again and again, also when the staged objects are long gone.
    std::fs::remove_file(&second.path).ok();
    for wish in [&one, &two, &one] {
        let (outcome, response) = publish(&mut world, wish).await;
        assert_eq!(outcome, PublishOutcome::AlreadyPublished);
        assert_eq!(response.segments.len(), 1);
    }
    assert_eq!((world.catalog().await.len(), world.glob().len()), (1, 1));
}

#[tokio::test]
async fn b43_an_answer_lost_after_commit_is_retryable_and_then_already_published() {
    let mut world = World::new().await;
    world.initialize(at([(0, 0)])).await;
    for round in 0..20 {
        let group = Group::new(&format!("g{round}"), round, round + 1);
        group.register(&mut world).await;
        let (wish, _) = group.ready(&mut world, 0).await;
        world.store.fail_next_publish(Fault::LoseTheAnswer);
        let (outcome, response) = publish(&mut world, &wish).await;
        assert_eq!(outcome, PublishOutcome::Retryable, "{}", response.detail);
        assert!(response.retry_after_millis > 0);
        assert_eq!(
            publish(&mut world, &wish).await.0,
            PublishOutcome::AlreadyPublished
        );
        assert_eq!(world.committed().await, at([(0, round + 1)]));
        assert_eq!(world.glob().len() as i64, round + 1);
    }
    assert_eq!(world.catalog().await.len(), 20);
}

#[tokio::test]
async fn a_store_that_is_away_is_retryable_and_changes_nothing() {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let group = Group::new("a", 2, 5);
    group.register(&mut world).await;
    let (wish, _) = group.ready(&mut world, 0).await;
    world.store.fail_next_publish(Fault::Away);
    assert_eq!(publish(&mut world, &wish).await.0, PublishOutcome::Retryable);
    assert_eq!((world.committed().await, world.glob().len()), (at([(0, 2)]), 0));
    assert_eq!(publish(&mut world, &wish).await.0, PublishOutcome::Published);
}

#[tokio::test]
async fn an_object_that_is_not_what_was_said_is_not_published() {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let group = Group::new("a", 2, 5);
    group.register(&mut world).await;
    let (wish, staged) = group.ready(&mut world, 0).await;
    let bytes = std::fs::read(&staged.path).unwrap();
    let mut flipped = bytes.clone();
    flipped[10] ^= 1;
    let cases: [(&str, Option<Vec<u8>>, u64); 4] = [
        ("is not there", None, 3),
        ("bytes instead of", Some(bytes[..bytes.len() - 1].to_vec()), 3),
        ("SHA-256", Some(flipped), 3),
        ("counts 3 rows instead of 4", Some(bytes.clone()), 4),
    ];
    for (words, content, rows) in cases {
        std::fs::remove_file(&staged.path).ok();
        if let Some(content) = content {
            std::fs::write(&staged.path, content).unwrap();
        }
        let mut wish = wish.clone();
        (wish.segments[0].rows, wish.segments[0].input_rows) = (rows, rows);
        let (outcome, response) = publish(&mut world, &wish).await;
        assert_eq!(outcome, PublishOutcome::BadObject, "{words}");
        assert!(
            response.detail.contains(words) && response.detail.contains(&staged.key),
            "{}",
            response.detail
        );
        assert_eq!(
            (world.committed().await, world.catalog().await, world.glob().len()),
            (at([(0, 2)]), vec![], 0)
        );
    }
    // Uploaded again under another name.
    let id = wish.segments[0].id.clone().unwrap();
    let again = world.stage("a-task-0", "b", 3);
    let wish = group.wish(0, vec![group.segment(id, &again)]);
    assert_eq!(publish(&mut world, &wish).await.0, PublishOutcome::Published);
}

#[tokio::test]
async fn conflicting_tasks() {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let (first, second) = (Group::new("first", 2, 5), Group::new("second", 3, 9));
    first.register(&mut world).await;
    second.register(&mut world).await;
    let (wish, _) = first.ready(&mut world, 0).await;
    let (losing, staged) = second.ready(&mut world, 0).await;
    assert_eq!(publish(&mut world, &wish).await.0, PublishOutcome::Published);
    let (outcome, response) = publish(&mut world, &losing).await;
    assert_eq!(outcome, PublishOutcome::Mismatch);
    assert!(
        response.detail.contains("committed up to 5"),
        "{}",
        response.detail
    );
    assert_eq!(
        (world.committed().await, world.catalog().await.len()),
        (at([(0, 5)]), 1)
    );
    assert!(staged.path.exists(), "what was not published is the sweep's");
}

#[tokio::test]
async fn a_young_group_is_woken_by_its_elder_s_commit() {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let (elder, young) = (Group::new("elder", 2, 5), Group::new("young", 5, 9));
    elder.register(&mut world).await;
    young.register(&mut world).await;
    let (elders, _) = elder.ready(&mut world, 0).await;
    let (youngs, _) = young.ready(&mut world, 0).await;
    // The elder is in the middle of its commit when the young one asks.
    let (reached, at_commit) = oneshot::channel();
    let (go, go_on) = oneshot::channel();
    world.store.fail_next_publish(Fault::Wait { reached, go_on });
    let mut client = world.client.clone();
    let first = tokio::spawn(async move { client.publish(elders).await });
    at_commit.await.unwrap();
    let begun = Instant::now();
    let mut client = world.client.clone();
    let second = tokio::spawn(async move { client.publish(youngs).await });
    // It cannot be told from outside that the young one waits; whichever comes first, both are published.
    tokio::task::yield_now().await;
    go.send(()).unwrap();
    assert_eq!(
        first.await.unwrap().unwrap().into_inner().outcome(),
        PublishOutcome::Published
    );
    assert_eq!(
        second.await.unwrap().unwrap().into_inner().outcome(),
        PublishOutcome::Published
    );
    assert!(begun.elapsed() < Duration::from_secs(8), "woken, not timed out");
    assert_eq!(world.committed().await, at([(0, 9)]));
}

#[tokio::test]
async fn a_young_group_hears_that_its_elder_was_given_up() {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let (elder, young) = (Group::new("elder", 2, 5), Group::new("young", 5, 9));
    elder.register(&mut world).await;
    young.register(&mut world).await;
    let wish = young.wish(0, vec![]);
    let mut client = world.client.clone();
    let waiting = tokio::spawn(async move { client.publish(wish).await });
    tokio::task::yield_now().await;
    elder.end(&mut world).await;
    let response = waiting.await.unwrap().unwrap().into_inner();
    assert_eq!(
        response.outcome(),
        PublishOutcome::PredecessorLost,
        "{}",
        response.detail
    );
}

#[tokio::test]
async fn a_caller_that_goes_away_does_not_throw_the_publish_away() {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let group = Group::new("a", 2, 5);
    group.register(&mut world).await;
    let (wish, _) = group.ready(&mut world, 0).await;
    let (reached, at_commit) = oneshot::channel();
    let (go, go_on) = oneshot::channel();
    world.store.fail_next_publish(Fault::Wait { reached, go_on });
    let mut client = world.client.clone();
    let call = tokio::spawn({
        let wish = wish.clone();
        async move { client.publish(wish).await }
    });
    at_commit.await.unwrap();
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    go.send(()).unwrap();
    eventually(async || world.catalog().await.len() == 1).await;
    assert_eq!(
        publish(&mut world, &wish).await.0,
        PublishOutcome::AlreadyPublished
    );
}

#[tokio::test]
async fn a_drain_waits_for_a_publish_under_way() {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let group = Group::new("a", 2, 5);
    group.register(&mut world).await;
    let (wish, _) = group.ready(&mut world, 0).await;
    let (reached, at_commit) = oneshot::channel();
    let (go, go_on) = oneshot::channel();
    world.store.fail_next_publish(Fault::Wait { reached, go_on });
    let mut client = world.client.clone();
    let call = tokio::spawn(async move { client.publish(wish).await });
    at_commit.await.unwrap();
    go.send(()).unwrap();
    world.stop().await;
    assert_eq!(
        call.await.unwrap().unwrap().into_inner().outcome(),
        PublishOutcome::Published
    );
}
