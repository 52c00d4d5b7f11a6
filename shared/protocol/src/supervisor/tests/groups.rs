//! First tasks, cutting, replicas, replacement, adoption after a restart.

use tidegate_types::{PartitionOffsets, TimestampMillis};

use super::super::*;
use super::world::{Fault, World, id, settings};
use crate::group::TaskState;

fn starts(world: &mut World, tasks: &[&str]) -> Vec<PartitionOffsets> {
    tasks
        .iter()
        .map(|task| world.task(task).assignment.start.clone())
        .collect()
}

#[test]
fn no_tasks_yet_one_task_per_group_with_start_by_the_flag() {
    for (first_start, expected) in [
        (FirstStart::Earliest, [(0, 3), (1, 0)]),
        (FirstStart::Latest, [(0, 9), (1, 7)]),
    ] {
        let mut world = World::started(
            Settings {
                first_start,
                ..settings()
            },
            [(0, 3, 9), (1, 0, 7)],
        );
        assert_eq!(world.live(), ["wiki.1.1"]);
        assert_eq!(
            starts(&mut world, &["wiki.1.1"]),
            [PartitionOffsets::from(expected)]
        );
        // I2: the first start offsets are committed before anything is read.
        assert_eq!(
            world.committed.as_ref().unwrap().offsets,
            PartitionOffsets::from(expected)
        );
    }
}

#[test]
fn nothing_starts_before_the_start_delay() {
    let mut world = World::new(settings(), [(0, 0, 9)]);
    world.pass(4_000);
    assert_eq!(world.live(), Vec::<String>::new());
    world.pass(2_000);
    assert_eq!(world.live(), ["wiki.1.1"]);
}

#[test]
fn offset_gaps_are_accepted() {
    let mut world = World::started(settings(), [(0, 5, 1_000)]);
    world.read("wiki.1.1", 0, 777);
    world.pass(60_000);
    assert_eq!(
        (world.live(), world.state()),
        (vec!["wiki.1.1".to_owned()], State::Running)
    );
}

#[test]
fn several_groups_have_the_partitions_spread_by_group_number() {
    let spread = Settings {
        task_count: 2,
        ..settings()
    };
    let mut world = World::started(spread.clone(), [(0, 0, 9), (1, 0, 9), (2, 0, 9)]);
    let expected = [
        PartitionOffsets::from([(0, 0), (2, 0)]),
        PartitionOffsets::from([(1, 0)]),
    ];
    assert_eq!(starts(&mut world, &["wiki.1.1", "wiki.2.1"]), expected);
    // Fewer partitions than tasks: empty groups do not exist.
    let few = World::started(
        Settings {
            task_count: 5,
            ..spread
        },
        [(0, 0, 9), (1, 0, 9)],
    );
    assert_eq!(few.live(), ["wiki.1.1", "wiki.2.1"]);
}

#[test]
fn replicas_are_equal_but_for_the_id_and_run_on_different_runners() {
    let mut world = World::started(
        Settings {
            replicas: 2,
            ..settings()
        },
        [(0, 2, 9)],
    );
    assert_eq!(world.live(), ["wiki.1.1", "wiki.1.2"]);
    let (one, two) = (
        world.task("wiki.1.1").assignment.clone(),
        world.task("wiki.1.2").assignment.clone(),
    );
    assert_ne!(one.token, two.token);
    assert_eq!(
        crate::task::Assignment {
            task: one.task.clone(),
            token: one.token.clone(),
            ..two
        },
        one
    );
    assert!(world.runners.values().all(|runner| runner.tasks.len() == 1));
}

#[test]
fn a_replica_without_a_runner_of_its_own_waits_and_says_why() {
    let mut world = World::new(
        Settings {
            replicas: 3,
            ..settings()
        },
        [(0, 2, 9)],
    );
    world.pass(6_000);
    assert_eq!(world.live(), ["wiki.1.1", "wiki.1.2"]);
    let detail = world.supervisor.snapshot(world.time()).detail;
    assert!(
        detail.starts_with("task wiki.1.3 waits for another runner"),
        "{detail}"
    );
    world.runner("r3", 1);
    world.pass(1_000);
    assert_eq!(world.live(), ["wiki.1.1", "wiki.1.2", "wiki.1.3"]);
}

#[test]
fn a_task_without_a_slot_waits_and_a_runner_that_refuses_is_not_asked_again_at_once() {
    let mut world = World::new(settings(), [(0, 0, 9)]);
    world.runners.values_mut().for_each(|runner| runner.slots = 0);
    world.pass(10_000);
    let detail = world.supervisor.snapshot(world.time()).detail;
    assert!(
        detail.contains("waits for a slot: all of 2 runners are full"),
        "{detail}"
    );
    world.runners.values_mut().for_each(|runner| runner.slots = 1);
    world.pass(1_000);
    assert_eq!(world.live(), ["wiki.1.1"]);
}

#[test]
fn late_and_early_rejection_bounds_are_fixed_per_group_and_later_groups_get_later_bounds() {
    let bounded = Settings {
        replicas: 2,
        late_message_rejection_millis: Some(60_000),
        early_message_rejection_millis: Some(30_000),
        ..settings()
    };
    let mut world = World::started(bounded, [(0, 0, 100)]);
    let bounds = |world: &mut World, task: &str| {
        let assignment = &world.task(task).assignment;
        (
            assignment.minimum_message_time.unwrap(),
            assignment.maximum_message_time.unwrap(),
        )
    };
    let created = world.stored.groups.values().next().unwrap().created_at.0;
    let first = bounds(&mut world, "wiki.1.1");
    assert_eq!(
        first,
        (
            TimestampMillis(created - 60_000),
            TimestampMillis(created + 3_600_000 + 30_000)
        )
    );
    assert_eq!(first, bounds(&mut world, "wiki.1.2"));
    world.read("wiki.1.1", 0, 40);
    world.task("wiki.1.2").state = TaskState::Failed;
    world.pass(60_000);
    assert_eq!(
        first,
        bounds(&mut world, "wiki.1.3"),
        "a replacement has the bounds of its group"
    );
    world.pass(3_600_000);
    let second = bounds(&mut world, "wiki.2.1");
    assert!(second.0 > first.0 && second.1 > first.1);
}

#[test]
fn committed_offsets_continue_where_they_ended() {
    let mut world = World::new(settings(), [(0, 0, 100), (1, 0, 100)]);
    let offsets = PartitionOffsets::from([(0, 31), (1, 17)]);
    let generation = tidegate_types::Generation(4);
    world.committed = Some(Committed {
        stream: super::world::stream("t1"),
        offsets: offsets.clone(),
        generation,
    });
    world.pass(6_000);
    let assignment = &world.task("wiki.1.1").assignment;
    assert_eq!((&assignment.start, assignment.generation), (&offsets, generation));
}

#[test]
fn unknown_tasks_of_this_supervisor_are_stopped_and_ended_ones_left_alone() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    let mut stranger = world.task("wiki.1.1").clone();
    stranger.assignment.task = id("wiki.0.7");
    let host = world.runners.values_mut().next().unwrap();
    host.tasks.insert(id("wiki.0.7"), stranger.clone());
    stranger.assignment.task = id("wiki.0.8");
    stranger.state = TaskState::Failed;
    host.tasks.insert(id("wiki.0.8"), stranger);
    world.pass(1_000);
    assert_eq!(world.task("wiki.0.7").state, TaskState::Replaced);
    assert_eq!(world.task("wiki.0.8").state, TaskState::Failed);
    assert_eq!(world.live(), ["wiki.1.1"]);
}

#[test]
fn a_failed_task_is_replaced_with_the_same_offsets_and_name_an_adopted_one_too() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    let first = world.task("wiki.1.1").assignment.clone();
    world.read("wiki.1.1", 0, 50);
    world.pass(2_000);
    world.task("wiki.1.1").state = TaskState::Failed;
    world.task("wiki.1.1").reason = "disk full on /data: free some space".into();
    world.pass(5_000);
    let second = world.task("wiki.1.2").assignment.clone();
    assert_eq!(
        (&second.start, &second.base_sequence_name),
        (&first.start, &first.base_sequence_name)
    );
    assert_ne!(second.token, first.token);
    assert!(
        world
            .errors()
            .iter()
            .any(|error| error.contains("disk full on /data")),
        "{:?}",
        world.errors()
    );

    world.restart();
    world.pass(2_000);
    assert_eq!(world.live(), ["wiki.1.2"], "adopted, not replaced");
    world.task("wiki.1.2").state = TaskState::Failed;
    world.pass(5_000);
    assert_eq!(world.task("wiki.1.3").assignment.start, first.start);
}

#[test]
fn tasks_that_fail_again_and_again_are_replaced_more_slowly_and_the_state_says_so() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    for _ in 0..200 {
        for runner in world.runners.values_mut() {
            runner
                .tasks
                .values_mut()
                .for_each(|task| task.state = TaskState::Failed);
        }
        world.pass(1_000);
    }
    assert_eq!(world.state(), State::UnhealthyTasks);
    let made = world.stored.groups.values().next().unwrap().next_task;
    assert!((5..20).contains(&made), "{made} tasks in 200 s");
}

#[test]
fn stop_leaves_tasks_running_and_the_next_life_takes_them_over() {
    let mut world = World::started(
        Settings {
            replicas: 2,
            ..settings()
        },
        [(0, 0, 100)],
    );
    world.read("wiki.1.1", 0, 10);
    world.restart();
    world.now += 20_000;
    world.trace.clear();
    world.pass(60_000);
    assert_eq!(world.live(), ["wiki.1.1", "wiki.1.2"]);
    assert!(
        !world
            .trace
            .iter()
            .any(|action| matches!(action, Action::StopTask { .. } | Action::PauseTask { .. }))
    );
}

#[test]
fn a_silent_runner_keeps_its_task_until_the_time_out_and_another_runner_can_take_over() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    assert_eq!(
        world.stored.tasks[&id("wiki.1.1")]
            .runner
            .as_ref()
            .unwrap()
            .as_str(),
        "r1"
    );
    world.restart();
    world.up("r1", false);
    world.pass(29_000);
    assert_eq!(world.stored.tasks.len(), 1, "silent for less than the time-out");
    world.pass(3_000);
    assert_eq!(
        world.stored.tasks[&id("wiki.1.2")]
            .runner
            .as_ref()
            .unwrap()
            .as_str(),
        "r2"
    );
    // The zombie comes back: it is stopped, and its token is not registered any more.
    let zombie = world.task("wiki.1.1").assignment.clone();
    assert!(!world.registered[&zombie.group].tokens.contains(&zombie.token));
    world.up("r1", true);
    world.pass(2_000);
    assert_eq!(world.task("wiki.1.1").state, TaskState::Replaced);
}

#[test]
fn a_silent_runner_without_a_stand_in_may_come_back_and_go_on() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    world.up("r2", false);
    world.pass(35_000);
    world.up("r1", false);
    world.pass(100_000);
    world.up("r1", true);
    world.pass(2_000);
    assert_eq!(world.live(), ["wiki.1.1"]);
}

#[test]
fn an_assignment_whose_answer_is_lost_is_repeated_at_the_same_runner() {
    let mut world = World::new(settings(), [(0, 0, 100)]);
    world.faults.insert(("*".into(), "assign"), Fault::AnswerLost);
    world.pass(7_000);
    world.faults.clear();
    world.pass(5_000);
    assert_eq!(world.live(), ["wiki.1.1"]);
    assert_eq!(world.stored.tasks.len(), 1);
}

#[test]
fn a_group_of_an_unknown_mode_is_made_again_from_the_committed_offsets() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    let mut text = serde_json::to_value(world.stored.groups.values().next().unwrap()).unwrap();
    text["mode"] = serde_json::json!("something_later");
    let group: crate::group::GroupDocument = serde_json::from_value(text).unwrap();
    world.stored.groups.insert(group.id.clone(), group);
    world.restart();
    world.pass(5_000);
    assert_eq!(world.task("wiki.1.1").state, TaskState::Replaced);
    assert_eq!(world.live(), ["wiki.2.1"]);
    assert_eq!(
        world.task("wiki.2.1").assignment.start,
        PartitionOffsets::from([(0, 0)])
    );
}

#[test]
fn an_unknown_task_state_means_running() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    world.task("wiki.1.1").state = TaskState::Unknown(99);
    world.trace.clear();
    world.pass(120_000);
    assert!(
        !world
            .trace
            .iter()
            .any(|action| matches!(action, Action::StopTask { .. } | Action::AssignTask { .. }))
    );
}
