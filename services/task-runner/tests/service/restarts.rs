//! A runner that goes and comes back on its volume, and calls that come twice, late or from the past.

use serde_json::json;
use tidegate_rpc::task_runner::v1::{self as wire, TaskPhase, TaskState};
use tonic::Code;

use crate::world::{World, assignment, offsets, once};

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_task_goes_on_from_its_persist_and_asks_for_no_segment_twice() {
    let mut world = World::new(2).await;
    world.produce_events(0, 0..3000);
    world.produce_events(1, 3000..4000);
    let spec = world.spec(&[]);
    world.assign(assignment("t", spec, &[(0, 0), (1, 0)])).await;
    world.until_read("t", &[(0, 3000), (1, 1000)]).await;
    world.restart().await;
    let status = world.status("t").await;
    assert_eq!(
        status.counts.unwrap().accepted,
        4000,
        "the persist of the drain holds them all"
    );
    let allocated = world.peers().allocated.clone();
    world.produce_events(1, 4000..5000);
    world.until_read("t", &[(0, 3000), (1, 2000)]).await;
    assert_eq!(world.peers().allocated, allocated);
    let publish = world.finish("t").await;
    assert_eq!(world.numbers(&publish), once(0..5000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_whose_end_is_set_finishes_after_a_restart_wherever_it_was() {
    for phase in [TaskPhase::Reading, TaskPhase::Publishing, TaskPhase::Handoff] {
        let mut world = World::new(1).await;
        world.produce_events(0, 0..500);
        let spec = world.spec(&[]);
        world.assign(assignment("t", spec, &[(0, 0)])).await;
        world.until_read("t", &[(0, 500)]).await;
        world.pause("t").await;
        let mut end = 500;
        match phase {
            TaskPhase::Reading => end = 600,
            TaskPhase::Publishing => world.peers().publisher_is_away = true,
            _ => world.peers().serves = false,
        }
        world.set_end("t", offsets(&[(0, end)])).await;
        world.until("t", |status| status.phase() == phase).await;
        world.stop().await;
        {
            let mut peers = world.peers();
            peers.publisher_is_away = false;
            peers.serves = true;
        }
        world.produce_events(0, 500..end);
        world.start().await;
        world.until_state("t", TaskState::Published).await;
        let publish = world.last_publish();
        assert_eq!(world.numbers(&publish), once(0..end), "{phase:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b56_rows_that_are_damaged_on_disk_are_read_again() {
    let mut world = World::new(1).await;
    world.produce_events(0, 0..500);
    let spec = world.spec(&[]);
    world.assign(assignment("t", spec, &[(0, 0)])).await;
    world.until_read("t", &[(0, 500)]).await;
    world.stop().await;
    let rows = world.task_folder("t").join("rows");
    let run = std::fs::read_dir(&rows).unwrap().next().unwrap().unwrap().path();
    let mut bytes = std::fs::read(&run).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&run, bytes).unwrap();
    world.start().await;
    world.until_read("t", &[(0, 500)]).await;
    let publish = world.finish("t").await;
    assert_eq!(world.numbers(&publish), once(0..500));
    assert!(
        world
            .status("t")
            .await
            .alert
            .contains("read again from the start")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn b56_a_task_whose_record_is_damaged_is_reported_as_failed_and_not_run() {
    let mut world = World::new(1).await;
    world.produce_events(0, 0..10);
    let spec = world.spec(&[]);
    world.assign(assignment("t", spec, &[(0, 0)])).await;
    world.until_read("t", &[(0, 10)]).await;
    world.stop().await;
    std::fs::write(world.task_folder("t").join("record.json"), b"{").unwrap();
    world.start().await;
    let status = world.status("t").await;
    assert_eq!(status.state(), TaskState::Failed);
    assert!(status.reason.contains("not restorable"), "{}", status.reason);
}

#[tokio::test(flavor = "multi_thread")]
async fn i11_calls_that_come_twice_get_the_same_answer_and_other_ones_are_refused() {
    let mut world = World::with(1, &[("runner.slots", "1")]).await;
    world.produce_events(0, 0..10);
    let spec = world.spec(&[]);
    let task = assignment("t", spec.clone(), &[(0, 0)]);
    world.assign(task.clone()).await;
    world.assign(task.clone()).await;
    let call = |task| wire::AssignTaskRequest {
        task: Some(task),
        coordinator_epoch: 1,
    };
    let other = wire::TaskAssignment {
        assignment_token: "another".into(),
        ..task.clone()
    };
    let error = world.client.assign_task(call(other)).await.unwrap_err();
    assert_eq!(error.code(), Code::AlreadyExists);
    let second = assignment("t2", spec, &[(0, 0)]);
    let error = world.client.assign_task(call(second)).await.unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    world.until_read("t", &[(0, 10)]).await;
    let end = world.pause("t").await;
    world.set_end("t", end.clone()).await;
    world.set_end("t", end).await;
    world.until_state("t", TaskState::Published).await;
    assert_eq!(world.peers().publishes.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_coordinator_whose_lease_is_over_changes_nothing() {
    let mut world = World::new(1).await;
    let spec = world.spec(&[]);
    let task = assignment("t", spec, &[(0, 0)]);
    world.assign(task.clone()).await;
    let newer = wire::PauseTaskRequest {
        task_id: "t".into(),
        coordinator_epoch: 2,
    };
    world.client.pause_task(newer).await.unwrap();
    let older = wire::StopTaskRequest {
        task_id: "t".into(),
        coordinator_epoch: 1,
        reason: wire::StopReason::Stopped.into(),
        keep_state: false,
    };
    let error = world.client.stop_task(older).await.unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_ne!(world.status("t").await.state(), TaskState::Stopped);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_was_stopped_with_its_rows_kept_goes_on_when_it_is_assigned_again() {
    let mut world = World::new(1).await;
    world.produce_events(0, 0..300);
    let spec = world.spec(&[("/tuningConfig/maxRowsInMemory", json!(100))]);
    let task = assignment("t", spec, &[(0, 0)]);
    world.assign(task.clone()).await;
    world.until_read("t", &[(0, 300)]).await;
    let stop = wire::StopTaskRequest {
        task_id: "t".into(),
        coordinator_epoch: 1,
        reason: wire::StopReason::Stopped.into(),
        keep_state: true,
    };
    world.client.stop_task(stop).await.unwrap();
    world.until_state("t", TaskState::Stopped).await;
    world.produce_events(0, 300..400);
    world.assign(task).await;
    world.until_read("t", &[(0, 400)]).await;
    let publish = world.finish("t").await;
    assert_eq!(world.numbers(&publish), once(0..400));
}
