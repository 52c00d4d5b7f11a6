//! Pending groups: publishing, superseding, deadlines, giving up.

use tidegate_types::{GroupId, PartitionOffsets};

use super::super::*;
use super::world::{World, settings};
use crate::group::{TaskPhase, TaskState};

const HOUR: i64 = 3_600_000;

/// One group pending up to 40, the next one reading.
fn rolled(replicas: u32) -> World {
    let mut world = World::started(
        Settings {
            replicas,
            ..settings()
        },
        [(0, 0, 1_000)],
    );
    world.read("wiki.1.1", 0, 40);
    world.pass(HOUR + 2_000);
    assert_eq!(
        world.task("wiki.2.1").assignment.start,
        PartitionOffsets::from([(0, 40)])
    );
    world
}

#[test]
fn success_of_one_replica_supersedes_the_other_and_ends_the_group() {
    let mut world = rolled(2);
    assert!(world.publish("wiki.1.1"));
    world.pass(2_000);
    assert_eq!(world.task("wiki.1.2").state, TaskState::Superseded);
    assert_eq!(world.live(), ["wiki.2.1", "wiki.2.2"]);
    assert!(world.registered[&GroupId::new("wiki.1").unwrap()].ended);
    assert!(!world.stored.groups.contains_key(&GroupId::new("wiki.1").unwrap()));
}

#[test]
fn counts_of_a_published_group_are_added_once_whatever_restarts() {
    let mut world = rolled(2);
    world.publish("wiki.1.1");
    world.publish("wiki.1.2");
    for _ in 0..3 {
        world.restart();
        world.pass(1_000);
    }
    world.pass(5_000);
    assert_eq!(world.stored.supervisor.as_ref().unwrap().counts.accepted, 40);
    world.read("wiki.2.1", 0, 45);
    world.pass(1_000);
    assert_eq!(
        world.supervisor.snapshot(world.time()).counts.accepted,
        45,
        "published ones and running ones"
    );
}

#[test]
fn a_task_that_waits_for_handoff_has_published_and_nobody_hurries_it() {
    let mut world = rolled(2);
    world.publish("wiki.1.1");
    world.task("wiki.1.1").state = TaskState::Finishing;
    world.task("wiki.1.1").phase = TaskPhase::Handoff;
    world.pass(HOUR / 2 + 600_000);
    assert_eq!(world.task("wiki.1.1").state, TaskState::Finishing, "I9");
    assert_eq!(world.task("wiki.1.2").state, TaskState::Superseded);
    world.task("wiki.1.1").state = TaskState::Published;
    world.pass(2_000);
    assert!(!world.live().contains(&"wiki.1.1".to_owned()));
    assert_eq!(world.stored.supervisor.as_ref().unwrap().counts.accepted, 40);
}

#[test]
fn a_publishing_task_found_after_a_restart_is_a_pending_group_and_the_reading_one_keeps_on() {
    let mut world = rolled(1);
    world.read("wiki.2.1", 0, 55);
    world.restart();
    world.trace.clear();
    world.pass(10_000);
    assert_eq!(world.live(), ["wiki.1.1", "wiki.2.1"]);
    assert!(
        !world
            .trace
            .iter()
            .any(|action| matches!(action, Action::StopTask { .. } | Action::CreateGroup { .. }))
    );
    assert!(world.publish("wiki.1.1"));
    world.pass(2_000);
    assert_eq!(world.live(), ["wiki.2.1"]);
}

#[test]
fn d18_pending_tasks_are_kept_when_the_broker_is_away_after_a_restart() {
    let mut world = rolled(1);
    world.restart();
    world.broker_error = Some("broker away".into());
    world.pass(60_000);
    assert_eq!(world.live(), ["wiki.1.1", "wiki.2.1"]);
    assert_eq!(world.state(), State::UnhealthySupervisor);
    world.broker_error = None;
    world.pass(31_000);
    assert_eq!(world.state(), State::Running);
}

#[test]
fn a_pending_group_gets_replacements_that_know_the_end() {
    let mut world = rolled(1);
    world.task("wiki.1.1").state = TaskState::Failed;
    world.pass(10_000);
    let replacement = world.task("wiki.1.2").clone();
    assert_eq!(replacement.assignment.start, PartitionOffsets::from([(0, 0)]));
    assert_eq!(replacement.end.unwrap().end, PartitionOffsets::from([(0, 40)]));
    assert!(world.publish("wiki.1.2"));
}

#[test]
fn a_group_whose_task_died_after_the_commit_is_found_in_the_catalog() {
    let mut world = rolled(1);
    world.publish("wiki.1.1");
    let runner = world.stored.tasks[&super::world::id("wiki.1.1")]
        .runner
        .clone()
        .unwrap();
    let host = world.runners.get_mut(&runner).unwrap();
    host.tasks.remove(&super::world::id("wiki.1.1"));
    host.slots = 0;
    world.pass(60_000);
    assert!(
        !world.stored.groups.contains_key(&GroupId::new("wiki.1").unwrap()),
        "nothing is read twice"
    );
}

#[test]
fn a_claim_to_have_published_that_the_catalog_does_not_know_is_no_success() {
    let mut world = rolled(1);
    world.task("wiki.1.1").state = TaskState::Published;
    world.pass(10_000);
    assert!(world.stored.groups.contains_key(&GroupId::new("wiki.1").unwrap()));
    assert!(world.publish("wiki.1.2"));
    world.pass(2_000);
    assert!(!world.stored.groups.contains_key(&GroupId::new("wiki.1").unwrap()));
}

#[test]
fn b39_progress_moves_the_completion_deadline() {
    let short = Settings {
        completion_timeout_millis: 20_000,
        ..settings()
    };
    let mut world = World::started(short, [(0, 0, 1_000)]);
    world.read("wiki.1.1", 0, 40);
    world.pass(HOUR + 2_000);
    for _ in 0..12 {
        world.pass(15_000);
        world.task("wiki.1.1").progress += 1;
    }
    assert!(
        world.publish("wiki.1.1"),
        "an upload of 180 s lands although the time-out is 20 s"
    );
    world.pass(2_000);
    assert_eq!(world.live(), ["wiki.2.1"]);
}

#[test]
fn a_pending_group_that_does_not_get_on_is_given_up_with_all_that_is_built_on_it() {
    let mut world = rolled(1);
    world.read("wiki.2.1", 0, 70);
    world.pass(HOUR / 2 + 5_000);
    assert_eq!(world.task("wiki.1.1").state, TaskState::Replaced);
    assert_eq!(world.task("wiki.2.1").state, TaskState::Replaced);
    assert!(
        world
            .errors()
            .iter()
            .any(|error| error.contains("completionTimeout")),
        "{:?}",
        world.errors()
    );
    // Without time bounds the name is the same, so the log's end stands and nothing is decided twice (I5).
    let again = world.task("wiki.3.1").clone();
    assert_eq!(again.end.unwrap().end, PartitionOffsets::from([(0, 40)]));
    assert!(world.publish("wiki.3.1"));
    world.pass(2_000);
    assert_eq!(
        world.task("wiki.4.1").assignment.start,
        PartitionOffsets::from([(0, 40)])
    );
}

#[test]
fn a_group_that_publishes_at_the_last_moment_is_not_given_up() {
    let mut world = rolled(1);
    world.pass(HOUR / 2 - 10_000);
    let fence = |world: &mut World| loop {
        world.now += 1_000;
        world.heartbeats();
        while let Some(event) = world.events.pop_front() {
            let now = world.time();
            let actions = world.supervisor.on(now, event, &mut world.ids);
            let fenced = actions
                .iter()
                .any(|action| matches!(action, Action::EndGroup { .. }));
            if fenced {
                world.publish("wiki.1.1");
            }
            world.execute(actions);
            if fenced {
                return;
            }
        }
    };
    fence(&mut world);
    world.pass(3_000);
    assert!(
        world.live().contains(&"wiki.2.1".to_owned()),
        "the follower stands on what is published"
    );
    assert_eq!(world.stored.supervisor.as_ref().unwrap().counts.accepted, 40);
}

#[test]
fn offsets_that_others_moved_make_the_group_again_from_the_committed_ones() {
    let mut world = World::started(settings(), [(0, 0, 1_000)]);
    world.read("wiki.1.1", 0, 40);
    world.committed.as_mut().unwrap().offsets = PartitionOffsets::from([(0, 17)]);
    world.pass(35_000);
    assert_eq!(world.task("wiki.1.1").state, TaskState::Replaced);
    assert_eq!(
        world.task("wiki.2.1").assignment.start,
        PartitionOffsets::from([(0, 17)])
    );
}

#[test]
fn b38_a_group_without_records_ends_cleanly_and_the_next_one_reads() {
    let mut world = World::started(settings(), [(0, 5, 5)]);
    world.pass(HOUR + 5_000);
    assert_eq!(world.live(), ["wiki.2.1"]);
    assert_eq!(
        world.task("wiki.2.1").assignment.start,
        PartitionOffsets::from([(0, 5)])
    );
    assert_eq!(world.state(), State::Running);
}
