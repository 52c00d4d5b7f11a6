//! Ending a group: task duration, pauses, the decision, telling the ends.

use tidegate_types::PartitionOffsets;

use super::super::*;
use super::world::{Fault, World, id, settings};
use crate::group::TaskState;

const HOUR: i64 = 3_600_000;

fn two_replicas() -> World {
    let mut world = World::started(
        Settings {
            replicas: 2,
            ..settings()
        },
        [(0, 0, 100), (1, 0, 100)],
    );
    world.read("wiki.1.1", 0, 30);
    world.read("wiki.1.1", 1, 10);
    world.read("wiki.1.2", 0, 25);
    world.read("wiki.1.2", 1, 12);
    world
}

#[test]
fn duration_over_pauses_takes_the_highest_offsets_tells_the_ends_and_queues_the_next_group_at_once() {
    let mut world = two_replicas();
    world.pass(HOUR - 10_000);
    assert_eq!(world.live(), ["wiki.1.1", "wiki.1.2"]);
    world.pass(11_000);
    let end = PartitionOffsets::from([(0, 30), (1, 12)]);
    for task in ["wiki.1.1", "wiki.1.2"] {
        assert_eq!(world.task(task).end.as_ref().unwrap().end, end);
        assert_eq!(world.task(task).state, TaskState::Finishing);
    }
    assert_eq!(
        world.live(),
        ["wiki.1.1", "wiki.1.2", "wiki.2.1", "wiki.2.2"],
        "reading overlaps publishing"
    );
    assert_eq!(world.task("wiki.2.1").assignment.start, end);
}

#[test]
fn the_task_duration_counts_from_the_first_read() {
    let mut world = World::new(settings(), [(0, 0, 100)]);
    world.runners.values_mut().for_each(|runner| runner.slots = 0);
    world.pass(2 * HOUR);
    world.runners.values_mut().for_each(|runner| runner.slots = 4);
    world.pass(HOUR - 10_000);
    assert_eq!(world.task("wiki.1.1").state, TaskState::Reading);
    world.read("wiki.1.1", 0, 1);
    world.restart();
    world.pass(12_000);
    assert_eq!(
        world.task("wiki.1.1").state,
        TaskState::Finishing,
        "the first read outlives the coordinator"
    );
}

#[test]
fn a_replica_that_does_not_answer_the_pause_is_replaced_and_the_others_go_on() {
    let mut world = two_replicas();
    world.faults.insert(("wiki.1.2".into(), "pause"), Fault::Lost);
    world.pass(HOUR + 1_000);
    assert_eq!(
        world.task("wiki.1.1").state,
        TaskState::Paused,
        "waits, but not longer than the round's deadline"
    );
    world.pass(81_000);
    assert_eq!(
        world.task("wiki.1.1").end.as_ref().unwrap().end,
        PartitionOffsets::from([(0, 30), (1, 10)])
    );
    assert_eq!(world.task("wiki.1.2").state, TaskState::Replaced);
    assert!(
        world.task("wiki.1.3").end.is_some(),
        "a replacement of a decided group knows the end"
    );
}

#[test]
fn b35_a_runner_that_is_silent_does_not_hold_the_others_for_the_whole_round() {
    let mut world = two_replicas();
    world.pass(HOUR - 20_000);
    let mute = world.stored.tasks[&id("wiki.1.2")].runner.clone().unwrap();
    world.up(mute.as_str(), false);
    world.pass(32_000);
    assert_eq!(world.task("wiki.1.1").state, TaskState::Finishing);
    // The thawed zombie is fenced: its token is gone.
    let zombie = world.task("wiki.1.2").assignment.clone();
    assert!(!world.registered[&zombie.group].tokens.contains(&zombie.token));
}

#[test]
fn b35_a_task_that_is_busy_persisting_is_waited_for_and_not_replaced() {
    let mut world = two_replicas();
    world.faults.insert(("wiki.1.2".into(), "pause"), Fault::Slow);
    world.pass(HOUR + 61_000);
    world.faults.clear();
    world.pass(2_000);
    assert_eq!(
        world.task("wiki.1.2").end.as_ref().unwrap().end,
        PartitionOffsets::from([(0, 30), (1, 12)])
    );
    assert_eq!(world.stored.groups.values().next().unwrap().next_task, 3);
}

#[test]
fn no_answer_at_all_is_no_decision_and_the_group_reads_on() {
    let mut world = two_replicas();
    world.faults.insert(("*".into(), "pause"), Fault::Lost);
    world.pass(HOUR + 85_000);
    assert!(world.stored.log.is_empty());
    world.faults.clear();
    assert_eq!(
        world.live(),
        ["wiki.1.3", "wiki.1.4"],
        "the mute ones are replaced"
    );
    world.read("wiki.1.3", 0, 5);
    world.pass(10_000);
    let group = &world.stored.groups[&tidegate_types::GroupId::new("wiki.1").unwrap()];
    assert_eq!(
        group.decision().unwrap().end,
        PartitionOffsets::from([(0, 5), (1, 0)]),
        "by the replacements"
    );
}

#[test]
fn the_answer_of_set_end_offsets_is_lost_and_repeated_with_success() {
    let mut world = two_replicas();
    world.faults.insert(("*".into(), "end"), Fault::AnswerLost);
    world.pass(HOUR + 5_000);
    world.faults.clear();
    world.pass(5_000);
    assert_eq!(
        world.stored.groups.values().next().unwrap().next_task,
        3,
        "nobody was replaced"
    );
    assert!(
        ["wiki.1.1", "wiki.1.2"]
            .iter()
            .all(|task| world.task(task).end.is_some())
    );
}

#[test]
fn a_replica_that_cannot_be_told_its_end_is_replaced_when_its_runner_is_gone() {
    let mut world = two_replicas();
    world.faults.insert(("wiki.1.2".into(), "end"), Fault::Lost);
    world.pass(HOUR + 2_000);
    let mute = world.stored.tasks[&id("wiki.1.2")].runner.clone().unwrap();
    world.up(mute.as_str(), false);
    world.runner("r3", 4);
    world.pass(40_000);
    assert!(world.task("wiki.1.3").end.is_some());
}

#[test]
fn a_replica_that_has_read_beyond_the_end_is_replaced_and_never_publishes() {
    let mut world = two_replicas();
    world.faults.insert(("wiki.1.2".into(), "pause"), Fault::Slow);
    world.pass(HOUR + 1_000);
    world.read("wiki.1.2", 0, 90);
    world.pass(85_000);
    world.faults.clear();
    world.pass(5_000);
    assert_eq!(
        world.task("wiki.1.1").end.as_ref().unwrap().end,
        PartitionOffsets::from([(0, 30), (1, 10)])
    );
    assert_eq!(world.task("wiki.1.2").state, TaskState::Replaced);
    assert!(!world.publish_refused("wiki.1.2"));
}

impl World {
    /// False when a task without an end could publish nothing at all.
    fn publish_refused(&mut self, task: &str) -> bool {
        self.task(task).end.is_some()
    }
}

#[test]
fn d35_b32_paused_tasks_of_a_reading_group_are_resumed_by_the_next_life() {
    let mut world = two_replicas();
    world.faults.insert(("wiki.1.2".into(), "pause"), Fault::Lost);
    world.pass(HOUR + 1_000);
    assert_eq!(world.task("wiki.1.1").state, TaskState::Paused);
    // A new spec with a longer duration is not needed: the group is simply not due any more after a resume.
    let document = world.stored.supervisor.as_mut().unwrap();
    document
        .specs
        .values_mut()
        .for_each(|spec| spec.task_duration_millis *= 2);
    world.restart();
    world.faults.clear();
    world.pass(2_000);
    assert_eq!(world.task("wiki.1.1").state, TaskState::Reading);
}

#[test]
fn a_coordinator_that_dies_after_the_decision_tells_the_same_end_in_its_next_life() {
    let mut world = two_replicas();
    world.pass(HOUR - 10_000);
    // It dies with the decision in the log and nothing else noted.
    for _ in 0..30 {
        world.now += 1_000;
        world.heartbeats();
        while let Some(event) = world.events.pop_front() {
            let now = world.time();
            for action in world.supervisor.on(now, event, &mut world.ids) {
                let decided = matches!(action, Action::RecordDecision { .. });
                world.perform(action);
                if decided {
                    world.restart();
                    break;
                }
            }
        }
        if !world.stored.log.is_empty() {
            break;
        }
    }
    let logged = world.stored.log.values().next().unwrap()[0].decision.clone();
    assert!(world.task("wiki.1.1").end.is_none());
    world.read("wiki.1.1", 0, 30);
    world.pass(5_000);
    assert_eq!(world.task("wiki.1.1").end.as_ref(), Some(&logged));
    assert_eq!(world.task("wiki.2.1").assignment.start, logged.end);
}

#[test]
fn a_starting_replica_is_not_waited_for_and_gets_the_end_all_the_same() {
    let mut world = World::started(
        Settings {
            replicas: 2,
            ..settings()
        },
        [(0, 0, 100)],
    );
    world.read("wiki.1.1", 0, 30);
    world.pass(HOUR - 10_000);
    world.task("wiki.1.2").state = TaskState::Failed;
    // The replacement stays in its start: it is told nothing by the heartbeat of this world until it is assigned.
    for _ in 0..20 {
        world.now += 1_000;
        for runner in world.runners.values_mut() {
            runner
                .tasks
                .values_mut()
                .filter(|task| task.assignment.task.as_str() == "wiki.1.3")
                .for_each(|task| {
                    task.state = TaskState::Starting;
                });
        }
        world.events.push_back(Event::Tick);
        world.run();
    }
    world.pass(3_000);
    assert_eq!(world.task("wiki.1.1").state, TaskState::Finishing);
    assert!(world.task("wiki.1.3").end.is_some());
}
