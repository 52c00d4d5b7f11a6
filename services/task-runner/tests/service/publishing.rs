//! From the end of reading to the end of the task.

use tidegate_rpc::publisher::v1::PublishOutcome;
use tidegate_rpc::task_runner::v1::{self as wire, TaskPhase, TaskState};

use crate::world::{World, assignment, once};

async fn with_outcomes(outcomes: &[PublishOutcome], until: TaskState) -> (World, wire::TaskStatus) {
    let mut world = World::new(1).await;
    world.produce_events(0, 0..50);
    world.peers().outcomes.extend(outcomes);
    let spec = world.spec(&[]);
    world.assign(assignment("t", spec, &[(0, 0)])).await;
    world.until_read("t", &[(0, 50)]).await;
    let end = world.pause("t").await;
    world.set_end("t", end).await;
    let status = world.until_state("t", until).await;
    (world, status)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_not_final_is_asked_again_with_the_same_objects() {
    let asked = [
        PublishOutcome::NotYet,
        PublishOutcome::Retryable,
        PublishOutcome::Unspecified,
    ];
    let (world, _) = with_outcomes(&asked, TaskState::Published).await;
    let publishes = world.peers().publishes.clone();
    assert_eq!(publishes.len(), 4);
    assert!(
        publishes
            .iter()
            .all(|publish| publish.segments == publishes[0].segments)
    );
    let keys: std::collections::BTreeSet<_> = publishes.iter().map(|publish| &publish.request_key).collect();
    assert_eq!(keys.len(), 4, "each attempt has a key of its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn b52_an_object_that_is_refused_is_uploaded_again_under_another_key() {
    let (world, _) = with_outcomes(&[PublishOutcome::BadObject], TaskState::Published).await;
    let publishes = world.peers().publishes.clone();
    assert_eq!(publishes.len(), 2);
    assert_ne!(publishes[0].segments[0].key, publishes[1].segments[0].key);
    assert_eq!(world.numbers(&publishes[1]), once(0..50));
}

#[tokio::test(flavor = "multi_thread")]
async fn d29_each_final_answer_has_its_own_ending_and_drops_the_rows() {
    for (outcome, ending) in [
        (PublishOutcome::AlreadyPublished, TaskState::Superseded),
        (PublishOutcome::Fenced, TaskState::Replaced),
        (PublishOutcome::PredecessorLost, TaskState::Replaced),
        (PublishOutcome::Mismatch, TaskState::Failed),
    ] {
        let (world, status) = with_outcomes(&[outcome], ending).await;
        assert_eq!(
            status.reason.is_empty(),
            ending == TaskState::Superseded,
            "{}",
            status.reason
        );
        assert_eq!(world.peers().publishes.len(), 1);
        world.until_rows_are_dropped("t").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn i9_local_copies_stay_until_the_serving_tier_has_the_segments() {
    let mut world = World::new(1).await;
    world.peers().serves = false;
    world.produce_events(0, 0..50);
    let spec = world.spec(&[]);
    world.assign(assignment("t", spec, &[(0, 0)])).await;
    world.until_read("t", &[(0, 50)]).await;
    let end = world.pause("t").await;
    world.set_end("t", end).await;
    let status = world
        .until("t", |status| status.phase() == TaskPhase::Handoff)
        .await;
    assert_eq!((status.state(), status.handed_off), (TaskState::Finishing, 0));
    let rows = world.task_folder("t").join("rows");
    assert!(std::fs::read_dir(&rows).unwrap().count() > 0);
    world.peers().serves = true;
    let status = world.until_state("t", TaskState::Published).await;
    assert_eq!(status.handed_off, 1);
    world.until_rows_are_dropped("t").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_task_is_forgotten_with_its_folder_when_the_coordinator_has_recorded_it() {
    let (mut world, _) = with_outcomes(&[], TaskState::Published).await;
    assert!(world.task_folder("t").exists());
    world.peers().acknowledges = true;
    loop {
        let tasks = world
            .client
            .list_tasks(wire::ListTasksRequest {})
            .await
            .unwrap()
            .into_inner()
            .tasks;
        if tasks.is_empty() && !world.task_folder("t").exists() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let error = world
        .client
        .get_task(wire::GetTaskRequest { task_id: "t".into() })
        .await
        .unwrap_err();
    assert_eq!(error.code(), tonic::Code::NotFound);
}
