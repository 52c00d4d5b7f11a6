//! What a crash or an outage leaves is promoted, and what nobody claims is swept.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

use tidegate_config::ObjectsConfig;
use tidegate_metadata::{Ordinal, PublisherStore as _};
use tidegate_objects::{Key, Objects, final_key};
use tidegate_rpc::publisher::v1::PublishOutcome;

use crate::faulty_store::Fault;
use crate::world::{Group, World, at, eventually, publish};

/// A world in which group `a` has committed one segment and the process died before anything else.
async fn committed_not_promoted() -> World {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let group = Group::new("a", 2, 5);
    group.register(&mut world).await;
    let (wish, _) = group.ready(&mut world, 0).await;
    world.store.fail_next_publish(Fault::LoseTheAnswer);
    assert_eq!(publish(&mut world, &wish).await.0, PublishOutcome::Retryable);
    world.stop().await;
    world
}

fn age(path: &Path, by: Duration) {
    File::open(path)
        .unwrap()
        .set_modified(SystemTime::now() - by)
        .unwrap();
}

#[tokio::test]
async fn a_crash_after_the_commit_leaves_a_segment_that_the_next_life_promotes() {
    let mut world = committed_not_promoted().await;
    let left = world.store.unpromoted(Ordinal(0), 10).await.unwrap();
    assert_eq!((left.len(), world.glob().len(), world.staging().len()), (1, 0, 1));
    assert!(
        left[0].file.key.starts_with("staging/"),
        "readable at its staged key meanwhile"
    );
    world.restart(&[]).await;
    world.all_promoted().await;
    assert_eq!((world.catalog().await.len(), world.glob().len()), (1, 1));
    eventually(async || world.staging().is_empty()).await;
}

#[tokio::test]
async fn a_crash_after_the_copy_repeats_the_copy_and_doubles_nothing() {
    let mut world = committed_not_promoted().await;
    let left = world.store.unpromoted(Ordinal(0), 10).await.unwrap().remove(0);
    let objects = Objects::open(&ObjectsConfig::local(&world.objects())).unwrap();
    let to = final_key(&left.file.id).unwrap();
    let from = Key::parse(&left.file.key).unwrap();
    objects
        .promote(&from, &to, left.file.size_bytes, &left.file.sha256)
        .await
        .unwrap();
    world.restart(&[]).await;
    world.all_promoted().await;
    assert_eq!(world.glob(), [(to.to_string(), left.file.size_bytes)].into());
}

#[tokio::test]
async fn a_crash_after_the_staged_object_is_deleted_finds_the_final_one() {
    let mut world = committed_not_promoted().await;
    let left = world.store.unpromoted(Ordinal(0), 10).await.unwrap().remove(0);
    let objects = Objects::open(&ObjectsConfig::local(&world.objects())).unwrap();
    let (from, to) = (
        Key::parse(&left.file.key).unwrap(),
        final_key(&left.file.id).unwrap(),
    );
    objects
        .promote(&from, &to, left.file.size_bytes, &left.file.sha256)
        .await
        .unwrap();
    objects.delete(&from).await.unwrap();
    world.restart(&[]).await;
    world.all_promoted().await;
    assert_eq!(
        world.catalog().await[0].segment.as_ref().unwrap().key,
        to.as_str()
    );
}

#[tokio::test]
async fn an_object_store_that_cannot_copy_delays_the_promotion_and_nothing_else() {
    let mut world = World::new().await;
    world.initialize(at([(0, 2)])).await;
    let (group, next) = (Group::new("a", 2, 5), Group::new("b", 5, 7));
    group.register(&mut world).await;
    next.register(&mut world).await;
    // A file stands where the folder should be.
    let obstacle = world.objects().join("segments");
    std::fs::write(&obstacle, b"in the way").unwrap();
    let (wish, staged) = group.ready(&mut world, 0).await;
    assert_eq!(publish(&mut world, &wish).await.0, PublishOutcome::Published);
    let (wish, _) = next.ready(&mut world, 0).await;
    assert_eq!(publish(&mut world, &wish).await.0, PublishOutcome::Published);
    assert_eq!(world.committed().await, at([(0, 7)]));
    let catalog = world.catalog().await;
    assert!(catalog.iter().all(|segment| !segment.promoted));
    assert_eq!(catalog[0].segment.as_ref().unwrap().key, staged.key);
    std::fs::remove_file(&obstacle).unwrap();
    // Without a restart, without another call.
    world.all_promoted().await;
    assert_eq!(world.glob().len(), 2);
}

#[tokio::test]
async fn the_sweep_takes_what_nobody_can_claim_and_nothing_else() {
    let mut world = committed_not_promoted().await;
    // Unpromoted for the whole test: promotion cannot succeed.
    std::fs::write(world.objects().join("segments"), b"in the way").unwrap();
    let named = world
        .store
        .unpromoted(Ordinal(0), 10)
        .await
        .unwrap()
        .remove(0)
        .file
        .key;
    let orphan = world.stage("dead", "orphan", 3);
    for key in [&named, &orphan.key] {
        age(&world.objects().join(key), Duration::from_hours(1));
    }
    world
        .restart(&[
            ("publisher.sweep_interval", "50ms"),
            ("publisher.sweep_grace", "1s"),
        ])
        .await;
    let open = Group::new("open", 5, 9);
    open.register(&mut world).await;
    let claimable = world.stage("open-task-0", "a", 3);
    eventually(async || !orphan.path.exists()).await;
    // Older than the grace, but younger than the group that may claim it.
    eventually(async || {
        claimable
            .path
            .metadata()
            .unwrap()
            .modified()
            .unwrap()
            .elapsed()
            .unwrap()
            > Duration::from_millis(1500)
    })
    .await;
    let probe = world.stage("dead", "probe", 3);
    age(&probe.path, Duration::from_hours(1));
    eventually(async || !probe.path.exists()).await;
    assert!(claimable.path.exists(), "an open group may still claim it");
    assert!(world.objects().join(&named).exists(), "the catalog names it");
    // Nobody may claim it any more: group a, which published, and this one.
    open.end(&mut world).await;
    Group::new("a", 2, 5).end(&mut world).await;
    eventually(async || !claimable.path.exists()).await;
    assert!(world.objects().join(&named).exists(), "the catalog names it");
}
