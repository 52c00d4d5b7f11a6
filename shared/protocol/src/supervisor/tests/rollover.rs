//! Rolling over: the next tasks are ready before the old ones stand still (I10).

use tidegate_types::{GroupId, RunnerId, TaskId};

use super::super::*;
use super::world::*;
use crate::group::TaskState;

fn short() -> Settings {
    Settings {
        replicas: 2,
        task_duration_millis: 60_000,
        ..settings()
    }
}

/// One group of two replicas; runners prepare.
fn reading(settings: Settings) -> World {
    let mut world = World::checkpointing(settings, [(0, 0, 1_000), (1, 0, 1_000)]);
    world.can_prepare = true;
    world.pass(1_000);
    for task in world.live() {
        world.read(&task, 0, 40);
        world.read(&task, 1, 20);
    }
    world
}

fn prepared(world: &World) -> Vec<String> {
    let tasks = world.runners.values().flat_map(|runner| runner.prepared.keys());
    let mut tasks: Vec<String> = tasks.map(ToString::to_string).collect();
    tasks.sort();
    tasks
}

/// Positions of these actions in the trace: the first pause, the first assignment of the group after it.
fn first(world: &World, what: impl Fn(&Action) -> bool) -> usize {
    world.trace.iter().position(what).expect("never happened")
}

#[test]
fn the_next_tasks_are_connected_before_the_duration_is_over_and_begin_without_being_placed() {
    let mut world = reading(short());
    world.pass(40_000);
    assert_eq!(prepared(&world), Vec::<String>::new());
    world.pass(9_000);
    assert_eq!(
        prepared(&world),
        ["wiki.2.1", "wiki.2.2"],
        "a quarter of the duration before"
    );
    let group = world.supervisor.snapshot(world.time()).next_groups;
    assert_eq!((group[0].tasks, group[0].ready), (2, 2));
    assert_eq!(world.live(), ["wiki.1.1", "wiki.1.2"]);
    world.pass(12_000);
    assert_eq!(world.live().len(), 4);
    assert_eq!(prepared(&world), Vec::<String>::new());
    for task in ["wiki.2.1", "wiki.2.2"] {
        let start = world.task(task).assignment.start.clone();
        assert_eq!(
            start,
            tidegate_types::PartitionOffsets::from([(0, 40), (1, 20)]),
            "{task}"
        );
    }
    // Ready before anybody stood still; the hand-over is stored before anybody begins.
    let ready = first(&world, |action| matches!(action, Action::PrepareTask(_)));
    let pause = first(&world, |action| matches!(action, Action::PauseTask { .. }));
    let row = first(
        &world,
        |action| matches!(action, Action::CreateGroup { group, .. } if group.as_str() == "wiki.2"),
    );
    let begin = first(
        &world,
        |action| matches!(action, Action::AssignTask { assignment, .. } if assignment.group.as_str() == "wiki.2"),
    );
    assert!(
        ready < pause && pause < row && row < begin,
        "{ready} {pause} {row} {begin}"
    );
    assert!(world.publish_part("wiki.1.1") && world.publish_part("wiki.1.2"));
    world.pass(2_000);
    assert_eq!(world.live(), ["wiki.2.1", "wiki.2.2"]);
}

#[test]
fn a_new_spec_waits_for_its_tasks_and_for_a_bounded_time_only() {
    let mut world = reading(settings());
    world.connects = false;
    let next = Settings {
        spec_json: "{\"v\":2}".into(),
        task_view: serde_json::json!({"v": 2}),
        ..settings()
    };
    world.command(Command::Submit(Box::new(next))).unwrap();
    world.pass(8_000);
    assert_eq!(world.live(), ["wiki.1.1"], "reads on meanwhile");
    assert_eq!(world.task("wiki.1.1").state, TaskState::Reading);
    assert_eq!(prepared(&world), ["wiki.2.1"]);
    // They never connect: the old order, with the same tasks, which need no connection to be begun.
    world.pass(4_000);
    assert_eq!(world.live(), ["wiki.1.1", "wiki.2.1"]);
    assert_eq!(world.task("wiki.2.1").assignment.spec_json, "{\"v\":2}");
}

#[test]
fn with_exactly_as_many_slots_as_tasks_it_is_stop_then_start_and_status_says_so() {
    let mut world = World::checkpointing(short(), [(0, 0, 1_000)]);
    world.can_prepare = true;
    for name in ["r1", "r2"] {
        world
            .runners
            .get_mut(&RunnerId::new(name).unwrap())
            .unwrap()
            .slots = 1;
    }
    world.pass(1_000);
    for task in ["wiki.1.1", "wiki.1.2"] {
        world.read(task, 0, 40);
    }
    world.pass(55_000);
    let views = world.supervisor.snapshot(world.time()).next_groups;
    assert_eq!(views[0].group, None);
    assert!(
        views[0].old_order.contains("raise runner.slots"),
        "{}",
        views[0].old_order
    );
    world.pass(10_000);
    for task in ["wiki.1.1", "wiki.1.2"] {
        assert!(world.publish_part(task), "{task}");
    }
    world.pass(5_000);
    assert_eq!(world.live(), ["wiki.2.1", "wiki.2.2"]);
    assert!(
        !world
            .trace
            .iter()
            .any(|action| matches!(action, Action::PrepareTask(_)))
    );
}

#[test]
fn a_scale_step_prepares_the_lanes_as_they_will_be_cut() {
    let mut world = World::checkpointing(settings(), [(0, 0, 9), (1, 0, 9), (2, 0, 9)]);
    world.can_prepare = true;
    world.pass(1_000);
    world.read("wiki.1.1", 0, 5);
    let scaled = Settings {
        task_count: 3,
        spec_json: "{\"v\":2}".into(),
        task_view: serde_json::json!({"v": 2}),
        ..settings()
    };
    world.command(Command::Submit(Box::new(scaled))).unwrap();
    assert_eq!(prepared(&world), ["wiki.2.1", "wiki.3.1", "wiki.4.1"]);
    world.pass(3_000);
    assert_eq!(world.live(), ["wiki.1.1", "wiki.2.1", "wiki.3.1", "wiki.4.1"]);
    let prepares = world
        .trace
        .iter()
        .filter(|action| matches!(action, Action::PrepareTask(_)));
    assert_eq!(prepares.count(), 3);
}

#[test]
fn prepared_tasks_that_vanish_or_whose_coordinator_changes_have_no_effect() {
    let mut world = reading(short());
    world.pass(49_000);
    assert_eq!(prepared(&world), ["wiki.2.1", "wiki.2.2"]);
    // Another leader does not know them: they are told to go, and it prepares its own.
    world.restart();
    world.pass(4_000);
    assert_eq!(prepared(&world), ["wiki.3.1", "wiki.3.2"]);
    // A runner that restarts has forgotten them.
    for runner in world.runners.values_mut() {
        runner.prepared.clear();
    }
    world.pass(4_000);
    assert_eq!(prepared(&world), ["wiki.4.1", "wiki.4.2"]);
    world.pass(10_000);
    assert_eq!(
        world.live(),
        ["wiki.1.1", "wiki.1.2", "wiki.4.1", "wiki.4.2"],
        "nothing of the others is left"
    );
    let group = GroupId::new("wiki.4").unwrap();
    assert!(world.stored.groups.contains_key(&group));
    assert_eq!(world.stored.groups.len(), 2);
}

#[test]
fn a_coordinator_that_dies_between_the_hand_over_and_the_beginning_lets_the_same_tasks_begin() {
    let mut world = reading(short());
    world.faults.insert(("*".into(), "assign"), Fault::Lost);
    world.pass(63_000);
    assert!(world.stored.groups.contains_key(&GroupId::new("wiki.2").unwrap()));
    assert_eq!(world.live(), ["wiki.1.1", "wiki.1.2"]);
    world.restart();
    world.faults.clear();
    world.pass(3_000);
    assert_eq!(world.live(), ["wiki.1.1", "wiki.1.2", "wiki.2.1", "wiki.2.2"]);
    assert!(world.stored.tasks.contains_key(&TaskId::new("wiki.2.2").unwrap()));
}

#[test]
fn a_replica_that_needs_a_slot_comes_before_a_task_to_come() {
    let mut world = reading(short());
    for name in ["r1", "r2"] {
        world
            .runners
            .get_mut(&RunnerId::new(name).unwrap())
            .unwrap()
            .slots = 2;
    }
    world.runner("r3", 1);
    world.pass(49_000);
    assert_eq!(prepared(&world).len(), 2);
    // One replica fails: the slot that it frees on its runner is enough; with r3 the group has a place anyway.
    let failed = world.task("wiki.1.1");
    failed.state = TaskState::Failed;
    world.pass(5_000);
    assert!(
        world.live().contains(&"wiki.1.3".to_owned()),
        "{:?}",
        world.live()
    );
}

#[test]
fn runners_that_refuse_to_prepare_are_not_asked_in_a_loop_and_the_group_rolls_over_in_time() {
    let mut world = reading(short());
    world.refuses_to_prepare = true;
    world.pass(58_000);
    let asked = |world: &World| {
        let is_prepare = |action: &&Action| matches!(action, Action::PrepareTask(_));
        world.trace.iter().filter(is_prepare).count()
    };
    assert_eq!(asked(&world), 2, "both replicas of one attempt");
    let views = world.supervisor.snapshot(world.time()).next_groups;
    assert!(
        views[0].old_order.contains("no such secret"),
        "{}",
        views[0].old_order
    );
    world.pass(5_000);
    assert_eq!(world.live().len(), 4, "the next group reads: {:?}", world.live());
    assert_eq!(asked(&world), 2);
}

#[test]
fn tasks_that_vanish_again_and_again_hold_up_the_end_for_a_bounded_time() {
    let mut world = reading(settings());
    world.connects = false;
    let next = Settings {
        spec_json: "{\"v\":2}".into(),
        task_view: serde_json::json!({"v": 2}),
        ..settings()
    };
    world.command(Command::Submit(Box::new(next))).unwrap();
    for _ in 0..13 {
        world.pass(1_000);
        for runner in world.runners.values_mut() {
            runner.prepared.clear();
        }
    }
    let groups: Vec<&str> = world.stored.groups.keys().map(GroupId::as_str).collect();
    assert!(groups.len() == 2, "10 s and no longer: {groups:?}");
}
