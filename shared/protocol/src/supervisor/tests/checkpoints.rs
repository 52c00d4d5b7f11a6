//! Checkpoints: rounds in the middle of a group, the log, its trimming, and what survives a change of coordinator.

use tidegate_types::{GroupId, PartitionOffsets, SequenceId};

use super::super::*;
use super::world::*;
use crate::task::{EndDecision, LogEntry};

fn replicated() -> Settings {
    Settings {
        replicas: 2,
        ..settings()
    }
}

/// One group of two replicas that have read some of two partitions.
fn reading() -> World {
    let mut world = World::checkpointing(replicated(), [(0, 0, 1_000), (1, 0, 1_000)]);
    world.read("wiki.1.1", 0, 40);
    world.read("wiki.1.1", 1, 10);
    world.read("wiki.1.2", 0, 30);
    world.read("wiki.1.2", 1, 25);
    world.pass(1_000);
    world
}

fn log(world: &World) -> Vec<(u32, [i64; 2], bool)> {
    let entry = |entry: &LogEntry| {
        let at = |partition| {
            entry
                .decision
                .end
                .get(tidegate_types::PartitionId(partition))
                .unwrap()
                .0
        };
        (entry.sequence.0, [at(0), at(1)], entry.finish)
    };
    world.stored.log.values().flatten().map(entry).collect()
}

fn states(world: &mut World) -> Vec<crate::group::TaskState> {
    ["wiki.1.1", "wiki.1.2"]
        .map(|task| world.task(task).state)
        .to_vec()
}

#[test]
fn a_trigger_in_one_replica_closes_the_sequence_in_all_at_the_highest_offsets_and_they_read_on() {
    let mut world = reading();
    world.trigger("wiki.1.1");
    world.pass(1_000);
    assert_eq!(log(&world), [(0, [40, 25], false)]);
    assert_eq!(states(&mut world), [crate::group::TaskState::Reading; 2]);
    for task in ["wiki.1.1", "wiki.1.2"] {
        assert_eq!(world.task(task).log.len(), 1, "{task}");
    }
    assert!(world.live().len() == 2, "nobody was replaced");
}

#[test]
fn both_replicas_trigger_at_the_same_moment_and_one_checkpoint_is_decided() {
    let mut world = reading();
    world.trigger("wiki.1.1");
    world.trigger("wiki.1.2");
    world.pass(5_000);
    assert_eq!(log(&world), [(0, [40, 25], false)]);
    assert_eq!(states(&mut world), [crate::group::TaskState::Reading; 2]);
}

#[test]
fn a_trigger_while_another_checkpoint_is_decided_gives_the_next_one_its_own_round() {
    let mut world = reading();
    world.faults.insert(("wiki.1.2".into(), "pause"), Fault::Slow);
    world.trigger("wiki.1.1");
    world.pass(1_000);
    assert!(log(&world).is_empty(), "the round waits for the slow one");
    world.trigger("wiki.1.2");
    world.faults.clear();
    world.pass(2_000);
    assert_eq!(log(&world), [(0, [40, 25], false)]);
    world.read("wiki.1.2", 0, 90);
    world.trigger("wiki.1.2");
    world.pass(1_000);
    assert_eq!(log(&world), [(0, [40, 25], false), (1, [90, 25], false)]);
}

#[test]
fn a_request_for_a_sequence_that_is_closed_is_answered_with_its_end() {
    let mut world = reading();
    world.faults.insert(("wiki.1.2".into(), "end"), Fault::Lost);
    world.trigger("wiki.1.1");
    world.pass(1_000);
    assert_eq!(world.task("wiki.1.2").log.len(), 0);
    world.trigger("wiki.1.2");
    world.faults.clear();
    world.pass(2_000);
    assert_eq!(log(&world).len(), 1, "no second decision");
    assert_eq!(world.task("wiki.1.2").log.len(), 1);
    assert_eq!(states(&mut world), [crate::group::TaskState::Reading; 2]);
}

#[test]
fn b01_a_checkpoint_without_progress_makes_no_sequence_and_leaves_nobody_paused() {
    let mut world = World::checkpointing(replicated(), [(0, 0, 1_000), (1, 0, 1_000)]);
    world
        .command(Command::Checkpoint {
            groups: Default::default(),
        })
        .unwrap();
    world.pass(2_000);
    assert!(log(&world).is_empty());
    assert_eq!(states(&mut world), [crate::group::TaskState::Reading; 2]);
}

#[test]
fn checkpoint_now_closes_the_open_sequences_of_the_groups_that_are_meant() {
    let mut world = reading();
    let other = Command::Checkpoint {
        groups: [GroupId::new("wiki.7").unwrap()].into(),
    };
    let refused = world.command(other).unwrap_err().to_string();
    assert!(
        refused.contains("wiki.7") && refused.contains("no such group"),
        "{refused}"
    );
    let all = Command::Checkpoint {
        groups: Default::default(),
    };
    world.command(all).unwrap();
    world.pass(1_000);
    assert_eq!(log(&world), [(0, [40, 25], false)]);
    world.pass(60_000);
    assert_eq!(log(&world).len(), 1, "once");
}

#[test]
fn a_legacy_group_has_no_checkpoints() {
    let mut world = World::started(settings(), [(0, 0, 1_000)]);
    let all = Command::Checkpoint {
        groups: Default::default(),
    };
    assert!(matches!(world.command(all), Err(Refusal::NoCheckpoint { .. })));
}

#[test]
fn a_replica_that_does_not_answer_is_not_waited_for_long_and_is_told_when_it_is_back() {
    let mut world = reading();
    let runner = world.stored.tasks[&id("wiki.1.2")].runner.clone().unwrap();
    world.up(runner.as_str(), false);
    world.trigger("wiki.1.1");
    world.pass(7_000);
    assert_eq!(
        log(&world),
        [(0, [40, 25], false)].map(|(a, _, c)| (a, [40, 10], c)),
        "its own offsets"
    );
    assert_eq!(world.task("wiki.1.1").state, crate::group::TaskState::Reading);
    // It has not read beyond on partition 0, but on partition 1: it cannot tell its rows apart any more.
    world.up(runner.as_str(), true);
    world.pass(5_000);
    assert_eq!(world.task("wiki.1.2").state, crate::group::TaskState::Replaced);
    assert_eq!(world.task("wiki.1.1").state, crate::group::TaskState::Reading);
}

#[test]
fn a_replica_that_was_behind_while_it_was_away_goes_on() {
    let mut world = reading();
    world.read("wiki.1.2", 1, 5);
    world.pass(1_000);
    let runner = world.stored.tasks[&id("wiki.1.2")].runner.clone().unwrap();
    world.up(runner.as_str(), false);
    for at in [50, 60, 70] {
        world.read("wiki.1.1", 0, at);
        world.trigger("wiki.1.1");
        world.pass(7_000);
    }
    assert_eq!(log(&world).len(), 3);
    world.up(runner.as_str(), true);
    world.pass(5_000);
    assert_eq!(
        world.task("wiki.1.2").log.len(),
        3,
        "three sequences behind, told in order"
    );
    assert_eq!(states(&mut world), [crate::group::TaskState::Reading; 2]);
    assert_eq!(world.stored.tasks.len(), 2, "nobody was replaced");
}

#[test]
fn published_checkpoints_are_trimmed_and_a_replacement_starts_at_the_first_unpublished_one() {
    let mut world = reading();
    for at in [50, 60, 70] {
        world.read("wiki.1.1", 0, at);
        world.trigger("wiki.1.1");
        world.pass(2_000);
    }
    assert!(world.publish_part("wiki.1.1") && world.publish_part("wiki.1.1"));
    world.pass(2_000);
    assert_eq!(
        log(&world).iter().map(|entry| entry.0).collect::<Vec<_>>(),
        [1, 2],
        "0 is trimmed"
    );
    world.task("wiki.1.2").state = crate::group::TaskState::Failed;
    world.pass(30_000);
    let given = &world.task("wiki.1.3").assignment;
    assert_eq!(given.first_sequence, SequenceId(2));
    assert_eq!(given.start, PartitionOffsets::from([(0, 60), (1, 25)]));
    assert_eq!(
        given.log.iter().map(|entry| entry.sequence.0).collect::<Vec<_>>(),
        [2]
    );
}

#[test]
fn d18_a_new_coordinator_knows_the_log_and_kills_no_task_that_is_consistent() {
    for publishes in 0..3 {
        let mut world = reading();
        for at in [50, 60, 70] {
            world.read("wiki.1.1", 0, at);
            world.trigger("wiki.1.1");
            world.pass(2_000);
        }
        for _ in 0..publishes {
            assert!(world.publish_part("wiki.1.1"));
        }
        world.pass(2_000);
        world.restart();
        world.pass(20_000);
        world.read("wiki.1.2", 0, 99);
        world.trigger("wiki.1.2");
        world.pass(2_000);
        assert_eq!(log(&world).last().unwrap(), &(3, [99, 25], false), "{publishes}");
        assert_eq!(states(&mut world), [crate::group::TaskState::Reading; 2]);
        assert_eq!(world.stored.tasks.len(), 2);
    }
}

#[test]
fn a_coordinator_that_ends_between_decision_and_sending_has_its_successor_send_it() {
    let mut world = reading();
    world.faults.insert(("*".into(), "end"), Fault::Lost);
    world.trigger("wiki.1.1");
    world.pass(1_000);
    assert_eq!(log(&world).len(), 1);
    world.faults.clear();
    world.restart();
    world.pass(3_000);
    for task in ["wiki.1.1", "wiki.1.2"] {
        assert_eq!(world.task(task).log.len(), 1, "{task}");
        assert_eq!(world.task(task).state, crate::group::TaskState::Reading);
    }
    assert_eq!(log(&world).len(), 1);
}

#[test]
fn a_coordinator_that_ends_in_the_middle_of_a_round_leaves_nobody_paused() {
    let mut world = reading();
    world.faults.insert(("wiki.1.1".into(), "pause"), Fault::Slow);
    world
        .command(Command::Checkpoint {
            groups: Default::default(),
        })
        .unwrap();
    world.pass(1_000);
    assert_eq!(world.task("wiki.1.2").state, crate::group::TaskState::Paused);
    world.faults.clear();
    world.restart();
    world.pass(3_000);
    assert_eq!(states(&mut world), [crate::group::TaskState::Reading; 2]);
}

#[test]
fn the_end_of_the_group_is_the_end_of_its_last_sequence_and_the_next_group_starts_there() {
    let mut world = reading();
    world.trigger("wiki.1.1");
    world.pass(1_000);
    world.read("wiki.1.2", 0, 80);
    world
        .command(Command::Submit(Box::new(Settings {
            spec_json: "{\"v\":2}".into(),
            task_view: serde_json::json!({"v": 2}),
            ..replicated()
        })))
        .unwrap();
    world.pass(3_000);
    assert_eq!(log(&world), [(0, [40, 25], false), (1, [80, 25], true)]);
    assert_eq!(
        world.task("wiki.2.1").assignment.start,
        PartitionOffsets::from([(0, 80), (1, 25)])
    );
    for _ in 0..2 {
        assert!(world.publish_part("wiki.1.1") && world.publish_part("wiki.1.2"));
        world.pass(2_000);
    }
    world.pass(5_000);
    assert!(!world.stored.groups.contains_key(&GroupId::new("wiki.1").unwrap()));
    assert!(log(&world).is_empty(), "a published group has no log");
}

#[test]
fn a_finish_with_nothing_new_is_decided_all_the_same() {
    let mut world = reading();
    world.trigger("wiki.1.1");
    world.pass(1_000);
    world.command(Command::Suspend).unwrap();
    world.pass(3_000);
    assert_eq!(log(&world), [(0, [40, 25], false), (1, [40, 25], true)]);
}

#[test]
fn all_replicas_die_after_a_decision_and_the_group_goes_on_with_its_log() {
    let mut world = reading();
    world.trigger("wiki.1.1");
    world.pass(1_000);
    for task in ["wiki.1.1", "wiki.1.2"] {
        world.task(task).state = crate::group::TaskState::Failed;
    }
    world.pass(60_000);
    let given = world.task("wiki.1.3").assignment.clone();
    assert_eq!(given.first_sequence, SequenceId(0));
    assert_eq!(given.log.len(), 1, "the decision stands (I5)");
    assert_eq!(given.start, PartitionOffsets::from([(0, 0), (1, 0)]));
}

#[test]
fn i5_two_leaders_cannot_decide_differently() {
    let mut world = reading();
    let base = world.task("wiki.1.1").assignment.base_sequence_name.clone();
    let other = LogEntry {
        sequence: SequenceId(0),
        decision: EndDecision {
            decision_id: "wiki.1.0".into(),
            end: PartitionOffsets::from([(0, 44), (1, 44)]),
        },
        finish: false,
    };
    world.stored.log.insert(base, vec![other]);
    world.trigger("wiki.1.1");
    world.pass(2_000);
    assert_eq!(log(&world), [(0, [44, 44], false)]);
    for task in ["wiki.1.1", "wiki.1.2"] {
        assert_eq!(
            world.task(task).log[0].decision.end,
            PartitionOffsets::from([(0, 44), (1, 44)])
        );
    }
}

#[test]
fn a_group_is_made_in_legacy_mode_when_too_few_runners_can_publish_while_reading() {
    let mut world = World::checkpointing(replicated(), [(0, 0, 1_000)]);
    let document = |world: &World, name: &str| world.stored.groups[&GroupId::new(name).unwrap()].clone();
    assert!(document(&world, "wiki.1").is_checkpointing());
    world.can_checkpoint = false; // both runners are rolled back
    world.read("wiki.1.1", 0, 10);
    world.pass(2_000);
    world
        .command(Command::Submit(Box::new(Settings {
            spec_json: "{\"v\":2}".into(),
            task_view: serde_json::json!({"v": 2}),
            ..replicated()
        })))
        .unwrap();
    world.pass(3_000);
    let second = document(&world, "wiki.2");
    assert!(!second.is_checkpointing());
    assert!(second.mode_reason.contains("r1, r2"), "{}", second.mode_reason);
}

#[test]
fn b01_replicas_of_a_group_that_ends_with_nothing_new_are_told_so_although_all_is_committed() {
    let mut world = reading();
    world.trigger("wiki.1.1");
    world.pass(1_000);
    for task in ["wiki.1.1", "wiki.1.2"] {
        world.read(task, 0, 40);
        world.read(task, 1, 25);
        assert!(world.publish_part(task), "{task}");
        world.faults.insert((task.into(), "end"), Fault::Lost);
    }
    world.command(Command::Suspend).unwrap();
    // The catalog is looked at before anybody hears of the end.
    world.pass(5_000);
    assert_eq!(states(&mut world), [crate::group::TaskState::Paused; 2]);
    world.faults.clear();
    world.pass(3_000);
    assert_eq!(states(&mut world), [crate::group::TaskState::Finishing; 2]);
    for task in ["wiki.1.1", "wiki.1.2"] {
        assert!(world.publish_part(task), "{task}");
    }
    world.pass(3_000);
    assert!(world.live().is_empty(), "{:?}", world.live());
}

#[test]
fn a_replica_three_sequences_behind_is_told_each_end_in_order_although_all_of_them_are_published() {
    let mut world = reading();
    world.faults.insert(("wiki.1.2".into(), "end"), Fault::Lost);
    world.faults.insert(("wiki.1.2".into(), "pause"), Fault::Lost);
    world.read("wiki.1.1", 1, 25);
    for end in [40, 50, 60] {
        world.read("wiki.1.1", 0, end);
        world.trigger("wiki.1.1");
        world.pass(20_000);
        assert!(world.publish_part("wiki.1.1"), "up to {end}");
        world.pass(5_000);
    }
    assert_eq!(world.task("wiki.1.2").log.len(), 0);
    world.faults.clear();
    world.pass(10_000);
    let told: Vec<u32> = world
        .task("wiki.1.2")
        .log
        .iter()
        .map(|entry| entry.sequence.0)
        .collect();
    assert_eq!(told, [0, 1, 2]);
    assert_eq!(world.live(), ["wiki.1.1", "wiki.1.2"], "nobody was replaced");
}
