//! Tasks: placed, ended, replaced, found again.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_metadata::CoordinatorStore as _;
use tidegate_rpc::coordinator::v1 as api;
use tidegate_rpc::follow::leader_named;
use tidegate_rpc::task_runner::v1::TaskState;
use tidegate_types::TimestampMillis;
use tonic::Code;

use crate::fakes::{World, now_millis, offsets, spec};

fn ids(tasks: &[api::TaskInfo]) -> Vec<String> {
    let id = |task: &api::TaskInfo| task.status.as_ref().unwrap().task_id.clone();
    tasks.iter().map(id).collect()
}

fn runners(tasks: &[api::TaskInfo]) -> BTreeSet<String> {
    tasks.iter().map(|task| task.runner_id.clone()).collect()
}

/// The first tasks have read for almost their whole hour; those after them are young.
fn age_new_tasks(world: &World, by_millis: i64) {
    for runner in ["r1", "r2"] {
        world
            .find_runner(runner)
            .age_millis
            .store(by_millis, Ordering::SeqCst);
    }
}

/// True when so many tasks read, all of them placed and told by their runners.
fn reads(status: &api::StatusResponse, tasks: usize) -> bool {
    let is_reading = |task: &api::TaskInfo| task.status.as_ref().unwrap().state() == TaskState::Reading;
    status.reading.len() == tasks && status.reading.iter().all(is_reading)
}

fn committed(status: &api::StatusResponse) -> Vec<Option<i64>> {
    status
        .partitions
        .iter()
        .map(|partition| partition.committed)
        .collect()
}

#[tokio::test]
async fn replicas_run_on_different_runners_and_groups_share_the_partitions() {
    let world = World::start(&[(0, 10), (5, 20), (0, 0)]).await;
    world
        .submit(&spec(r#""taskCount":2,"replicas":2"#))
        .await
        .unwrap();
    let status = world.until("four tasks read", |status| reads(status, 4)).await;
    let mut groups =
        std::collections::BTreeMap::<String, (BTreeSet<String>, BTreeSet<Vec<(i32, i64)>>)>::new();
    for task in &status.reading {
        let told = task.status.as_ref().unwrap();
        let start = told.start.as_ref().unwrap().offsets.iter();
        let (on, starts) = groups.entry(told.group_id.clone()).or_default();
        on.insert(task.runner_id.clone());
        starts.insert(start.map(|pair| (pair.partition, pair.offset)).collect());
    }
    let both: BTreeSet<String> = ["r1".to_owned(), "r2".to_owned()].into();
    assert!(groups.values().all(|(on, _)| *on == both), "{groups:?}");
    let starts: BTreeSet<Vec<(i32, i64)>> = groups.into_values().flat_map(|(_, starts)| starts).collect();
    assert_eq!(starts, [vec![(0, 0), (2, 0)], vec![(1, 5)]].into());
    assert_eq!(
        committed(&status),
        [Some(0), Some(5), Some(0)],
        "the first offsets are committed before any read"
    );
}

#[tokio::test]
async fn status_tells_offsets_lag_and_bad_records_as_the_tasks_and_the_broker_have_them() {
    let world = World::start(&[(0, 100)]).await;
    world.submit(&spec("")).await.unwrap();
    let status = world.until("a task reads", |status| reads(status, 1)).await;
    let task = ids(&status.reading).remove(0);
    world.read(&task, &[(0, 40)]);
    world.with_task(&task, |task| {
        task.parse_errors.push(tidegate_rpc::types::v1::ParseError {
            topic: "edits".into(),
            partition: 0,
            offset: 17,
            reason: "not JSON".into(),
            ..Default::default()
        });
    });
    let status = world
        .until("40 are read", |status| status.partitions[0].current == Some(40))
        .await;
    let partition = &status.partitions[0];
    assert_eq!(
        (partition.committed, partition.latest, partition.lag),
        (Some(0), Some(100), Some(60))
    );
    assert_eq!(status.total_lag, 60);
    assert_eq!(status.counts.unwrap().accepted, 40);
    let status = world
        .until("the bad record is shown", |status| {
            !status.parse_errors.is_empty()
        })
        .await;
    assert_eq!(
        (
            status.parse_errors[0].offset,
            status.parse_errors[0].reason.as_str()
        ),
        (17, "not JSON")
    );
    assert!(status.supervisor.unwrap().state() == api::SupervisorState::Running);
}

#[tokio::test]
async fn suspend_publishes_what_was_read_and_resume_goes_on_there() {
    let world = World::start(&[(0, 100)]).await;
    world.submit(&spec("")).await.unwrap();
    let status = world.until("a task reads", |status| reads(status, 1)).await;
    world.read(&ids(&status.reading)[0], &[(0, 40)]);
    world
        .until("40 are read", |status| status.partitions[0].current == Some(40))
        .await;
    let request = api::SuspendRequest {
        supervisor_id: "wiki".into(),
    };
    world.api.clone().suspend(request).await.unwrap();
    let status = world
        .until("it is published and idle", |status| {
            committed(status) == [Some(40)]
                && status.reading.is_empty()
                && status.publishing.is_empty()
                && status.segments > 0
        })
        .await;
    assert_eq!((status.segments, status.segment_rows), (1, 40));
    assert_eq!(
        status.supervisor.unwrap().state(),
        api::SupervisorState::Suspended
    );
    assert!(
        world.publisher.state.lock().unwrap().ended.len() == 1,
        "the group is told to be over"
    );
    let request = api::ResumeRequest {
        supervisor_id: "wiki".into(),
    };
    world.api.clone().resume(request).await.unwrap();
    let status = world.until("a task reads again", |status| reads(status, 1)).await;
    assert_eq!(
        status.reading[0].status.as_ref().unwrap().start,
        Some(offsets(&[(0, 40)]))
    );
}

#[tokio::test]
async fn when_the_task_duration_is_over_the_next_group_begins_at_the_end_of_the_last() {
    let world = World::start(&[(0, 100)]).await;
    age_new_tasks(&world, 3_597_000);
    world.submit(&spec("")).await.unwrap();
    let status = world.until("a task reads", |status| reads(status, 1)).await;
    age_new_tasks(&world, 0);
    let task = ids(&status.reading).remove(0);
    world.read(&task, &[(0, 70)]);
    let status = world
        .until("another task reads from 70", |status| {
            reads(status, 1)
                && status.reading[0].status.as_ref().unwrap().start == Some(offsets(&[(0, 70)]))
                && committed(status) == [Some(70)]
        })
        .await;
    assert_ne!(ids(&status.reading), [task]);
}

#[tokio::test]
async fn a_runner_that_is_gone_has_its_task_replaced_from_the_committed_offsets() {
    let world = World::start(&[(3, 100)]).await;
    world.submit(&spec("")).await.unwrap();
    let status = world.until("a task reads", |status| reads(status, 1)).await;
    let (task, runner) = (
        ids(&status.reading).remove(0),
        status.reading[0].runner_id.clone(),
    );
    world.read(&task, &[(0, 40)]);
    world.find_runner(&runner).switch_off();
    let status = world
        .until("another runner has it", |status| {
            reads(status, 1) && status.reading[0].runner_id != runner
        })
        .await;
    let told = status.reading[0].status.as_ref().unwrap();
    assert_ne!(told.task_id, task);
    assert_eq!(told.start, Some(offsets(&[(0, 3)])));
    let tokens = world.publisher.state.lock().unwrap().tokens[&told.group_id].clone();
    let new = world.with_task(&told.task_id, |task| task.assignment.assignment_token.clone());
    assert_eq!(tokens, [new].into(), "the old one is fenced");
}

#[tokio::test]
async fn a_failed_task_is_replaced_and_its_reason_is_shown() {
    let world = World::start(&[(0, 100)]).await;
    world.submit(&spec("")).await.unwrap();
    let status = world.until("a task reads", |status| reads(status, 1)).await;
    let task = ids(&status.reading).remove(0);
    world.with_task(&task, |task| {
        task.state = TaskState::Failed;
        task.reason = "the disk is gone".into();
    });
    let status = world
        .until("another one reads", |status| {
            reads(status, 1) && ids(&status.reading) != [task.clone()]
        })
        .await;
    assert!(
        status
            .recent_errors
            .iter()
            .any(|error| error.message.contains("the disk is gone"))
    );
    let request = api::ListTasksRequest {
        supervisor_id: "wiki".into(),
        include_ended: true,
        ..Default::default()
    };
    let all = world
        .api
        .clone()
        .list_tasks(request)
        .await
        .unwrap()
        .into_inner()
        .tasks;
    let failed = all
        .iter()
        .find(|info| info.status.as_ref().unwrap().task_id == task)
        .unwrap();
    assert_eq!(failed.status.as_ref().unwrap().state(), TaskState::Failed);
    assert_eq!(
        failed.status.as_ref().unwrap().assignment_token,
        "",
        "a token is not shown"
    );
}

#[tokio::test]
async fn a_restarted_coordinator_takes_running_tasks_over_and_stops_none() {
    let mut world = World::start(&[(0, 100), (0, 100)]).await;
    world
        .submit(&spec(r#""taskCount":2,"replicas":2"#))
        .await
        .unwrap();
    let status = world.until("four tasks read", |status| reads(status, 4)).await;
    let before: BTreeSet<String> = ids(&status.reading).into_iter().collect();
    let on = runners(&status.reading);
    for _ in 0..3 {
        world.restart().await;
        let status = world
            .until("all are known again", |status| reads(status, 4))
            .await;
        assert_eq!(ids(&status.reading).into_iter().collect::<BTreeSet<_>>(), before);
        assert_eq!(runners(&status.reading), on);
        assert_eq!(world.held().into_iter().collect::<BTreeSet<_>>(), before);
    }
}

#[tokio::test]
async fn a_publishing_group_is_found_again_after_a_restart_and_the_next_one_keeps_on() {
    let mut world = World::start(&[(0, 100)]).await;
    for runner in ["r1", "r2"] {
        world.find_runner(runner).publishes.store(false, Ordering::SeqCst);
    }
    age_new_tasks(&world, 3_597_000);
    world.submit(&spec("")).await.unwrap();
    let status = world.until("a task reads", |status| reads(status, 1)).await;
    age_new_tasks(&world, 0);
    let task = ids(&status.reading).remove(0);
    world.read(&task, &[(0, 70)]);
    let status = world
        .until("the next one reads", |status| {
            reads(status, 1) && status.publishing.len() == 1
        })
        .await;
    let next = ids(&status.reading);
    world.restart().await;
    let status = world
        .until("both are known", |status| {
            reads(status, 1) && status.publishing.len() == 1
        })
        .await;
    assert_eq!(
        (ids(&status.publishing), ids(&status.reading)),
        (vec![task.clone()], next)
    );
    let end = offsets(&[(0, 70)]);
    let assignment = world.with_task(&task, |task| task.assignment.clone());
    assert!(world.publisher.publish(&assignment, &end));
    world.with_task(&task, |task| {
        task.next = end.clone();
        task.state = TaskState::Published;
    });
    world
        .until("it is over", |status| {
            status.publishing.is_empty() && committed(status) == [Some(70)]
        })
        .await;
}

#[tokio::test]
async fn b24_a_partition_that_comes_later_is_read_from_its_beginning() {
    let world = World::start(&[(0, 100)]).await;
    let latest = spec("").replace(r#""useEarliestOffset":true"#, r#""useEarliestOffset":false"#);
    world.submit(&latest).await.unwrap();
    let status = world.until("a task reads", |status| reads(status, 1)).await;
    assert_eq!(
        status.reading[0].status.as_ref().unwrap().start,
        Some(offsets(&[(0, 100)]))
    );
    world
        .broker
        .topics
        .lock()
        .unwrap()
        .get_mut("edits")
        .unwrap()
        .push((0, 30));
    world
        .until("the new one is read", |status| {
            let starts = status
                .reading
                .iter()
                .map(|task| task.status.as_ref().unwrap().start.clone().unwrap());
            starts
                .flat_map(|start| start.offsets)
                .any(|pair| (pair.partition, pair.offset) == (1, 0))
        })
        .await;
}

#[tokio::test]
async fn a_task_waits_for_a_slot_and_says_so() {
    let world = World::start(&[(0, 1), (0, 1), (0, 1)]).await;
    world.submit(&spec(r#""replicas":3"#)).await.unwrap();
    let status = world
        .until("two read and one waits", |status| {
            status.reading.len() == 3 && world.held().len() == 2
        })
        .await;
    let waiting: Vec<_> = status
        .reading
        .iter()
        .filter(|task| task.runner_id.is_empty())
        .collect();
    assert_eq!(waiting.len(), 1);
    let waiting = world
        .until("it says why", |status| {
            status
                .reading
                .iter()
                .any(|task| task.runner_id.is_empty() && !task.status.as_ref().unwrap().reason.is_empty())
        })
        .await;
    drop(waiting);
    world.runner("r3", 1);
    world
        .until("all three read", |status| {
            reads(status, 3) && runners(&status.reading).len() == 3
        })
        .await;
}

#[tokio::test]
async fn reset_raises_the_generation_stops_the_tasks_and_begins_where_it_was_told() {
    let world = World::start(&[(0, 100), (0, 100)]).await;
    world.submit(&spec("")).await.unwrap();
    let status = world.until("a task reads", |status| reads(status, 1)).await;
    let task = ids(&status.reading).remove(0);
    world.read(&task, &[(0, 40), (1, 40)]);
    let request = api::ResetRequest {
        supervisor_id: "wiki".into(),
        partitions: vec![1],
        offsets: Some(offsets(&[(1, 90)])),
        why: "the producer wrote nonsense".into(),
        request_key: "key".into(),
        ..api::ResetRequest::default()
    };
    let refusal = world.api.clone().reset(request.clone()).await.unwrap_err();
    assert_eq!(refusal.code(), tonic::Code::FailedPrecondition);
    assert!(
        refusal.message().contains("90 offsets (partition 1 [0, 90))"),
        "{refusal}"
    );
    let plan = world.api.clone().plan_reset(request.clone()).await.unwrap();
    let planned = api::PartitionReset {
        partition: 1,
        from: Some(0),
        to: 90,
        skipped: 90,
        read_again: 0,
    };
    assert_eq!(plan.into_inner().partitions, [planned]);
    let unknown = api::ResetRequest {
        to: 99,
        ..request.clone()
    };
    let refusal = world.api.clone().reset(unknown).await.unwrap_err();
    assert_eq!(refusal.code(), tonic::Code::InvalidArgument, "{refusal}");

    let request = api::ResetRequest {
        force: true,
        ..request
    };
    world.api.clone().reset(request.clone()).await.unwrap();
    world.api.clone().reset(request).await.unwrap();
    let status = world
        .until("it reads from there", |status| {
            reads(status, 1)
                && status.reading[0].status.as_ref().unwrap().start == Some(offsets(&[(0, 0), (1, 90)]))
        })
        .await;
    assert_eq!(status.generation, 1, "the same key resets once");
    let line = world
        .history()
        .await
        .into_iter()
        .find(|entry| entry.detail.contains("nonsense"));
    assert!(line.is_some(), "{:?}", world.history().await);
}

#[tokio::test]
async fn terminate_publishes_first_and_terminate_now_does_not() {
    for now in [false, true] {
        let world = World::start(&[(0, 100)]).await;
        world.submit(&spec("")).await.unwrap();
        let status = world.until("a task reads", |status| reads(status, 1)).await;
        world.read(&ids(&status.reading)[0], &[(0, 40)]);
        world
            .until("40 are read", |status| status.partitions[0].current == Some(40))
            .await;
        let request = api::TerminateRequest {
            supervisor_id: "wiki".into(),
            now,
            forget_offsets: false,
        };
        world.api.clone().terminate(request).await.unwrap();
        let is_over = |status: &api::StatusResponse| {
            status.supervisor.as_ref().unwrap().state() == api::SupervisorState::Terminated
        };
        world.until("it is terminated", is_over).await;
        let published = world.publisher.state.lock().unwrap().segments.len();
        assert_eq!(published, usize::from(!now));
        assert!(world.held().is_empty());
    }
}

#[tokio::test]
async fn b46_a_second_process_with_the_identity_of_a_living_one_is_refused() {
    let world = World::start(&[(0, 1)]).await;
    world.submit(&spec("")).await.unwrap();
    world.until("a task reads", |status| reads(status, 1)).await;
    let twin = world.find_runner("r1").heartbeat();
    let elsewhere = api::HeartbeatRequest {
        incarnation: "a copy of the volume".into(),
        address: "fake://r2".into(),
        tasks: Vec::new(),
        ..twin.clone()
    };
    let refused = world.registry().heartbeat(elsewhere).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    // The same process at another address is the same runner.
    let moved = api::HeartbeatRequest {
        address: "fake://r2".into(),
        ..twin
    };
    world.registry().heartbeat(moved).await.unwrap();
}

#[tokio::test]
async fn a_task_of_nobody_is_stopped_and_an_ended_one_is_forgotten() {
    let world = World::start(&[(0, 1)]).await;
    world.submit(&spec("")).await.unwrap();
    let status = world.until("a task reads", |status| reads(status, 1)).await;
    let runner = world.find_runner(&status.reading[0].runner_id);
    let mut stranger = world.with_task(&ids(&status.reading)[0], |task| task.clone());
    stranger.assignment.task_id = "stranger".into();
    stranger.assignment.supervisor_id = "nobody".into();
    runner.tasks.lock().unwrap().insert("stranger".into(), stranger);
    for _ in 0..1_200 {
        if !runner.tasks.lock().unwrap().contains_key("stranger") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    assert_eq!(
        world.held(),
        ids(&status.reading),
        "stopped, then forgotten; the others stay"
    );
}

/// It finds out by its own write, long before it would renew.
#[tokio::test]
async fn a_write_after_the_lease_was_taken_is_refused_and_the_coordinator_steps_down() {
    let world = World::start(&[(0, 1)]).await;
    world.submit(&spec("")).await.unwrap();
    world.until("a task reads", |status| reads(status, 1)).await;
    let held = world.held();
    let before = world.store.load_all().await.unwrap();
    world
        .store
        .raise_epoch("another", TimestampMillis(now_millis()))
        .await
        .unwrap();
    let refused = world.submit(&spec(r#""replicas":2"#)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    let steps_down = world.coordinator.until_leads(false);
    tokio::time::timeout(Duration::from_secs(2), steps_down)
        .await
        .unwrap();
    assert_eq!(
        world.store.load_all().await.unwrap().supervisors,
        before.supervisors
    );
    assert_eq!(world.held(), held, "its tasks go on");
    let refused = world.submit(&spec("")).await.unwrap_err();
    assert_eq!(
        leader_named(&refused),
        Some(""),
        "the new one did not tell where it is"
    );
}
