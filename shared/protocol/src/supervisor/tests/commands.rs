//! Submit, suspend, resume, terminate, reset.

use std::collections::BTreeSet;

use tidegate_types::{PartitionId, PartitionOffsets};

use super::super::*;
use super::world::{World, settings};
use crate::group::TaskState;

fn reset<const N: usize, const M: usize>(partitions: [i32; N], offsets: [(i32, i64); M]) -> Command {
    Command::Reset {
        partitions: partitions.into_iter().map(PartitionId).collect(),
        offsets: PartitionOffsets::from(offsets),
        to: ResetTo::AsSpec,
        force: true,
        who: "ada".into(),
        why: "bad rows".into(),
        key: "wish".into(),
    }
}

fn changed(view: u64) -> Box<Settings> {
    Box::new(Settings {
        spec_json: format!("{{\"v\":{view}}}"),
        task_view: serde_json::json!({ "v": view }),
        data_schema: serde_json::json!({"dataSource": "wiki", "v": view}),
        ..settings()
    })
}

#[test]
fn suspend_publishes_what_was_read_starts_nothing_and_resume_goes_on_there() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    world.read("wiki.1.1", 0, 30);
    world.pass(1_000);
    world.command(Command::Suspend).unwrap();
    world.pass(3_000);
    assert!(world.publish("wiki.1.1"));
    world.pass(60_000);
    assert_eq!((world.state(), world.live()), (State::Suspended, vec![]));
    world.restart();
    world.pass(60_000);
    assert_eq!((world.state(), world.live()), (State::Suspended, vec![]));
    world.command(Command::Resume).unwrap();
    world.pass(2_000);
    assert_eq!(
        world.task("wiki.2.1").assignment.start,
        PartitionOffsets::from([(0, 30)])
    );
    assert_eq!(world.history(), ["submitted", "suspended", "resumed"]);
}

#[test]
fn stop_gracefully_shuts_unassigned_tasks_down_and_lets_reading_ones_finish() {
    let mut world = World::new(
        Settings {
            task_count: 2,
            ..settings()
        },
        [(0, 0, 100), (1, 0, 100)],
    );
    world.runners.values_mut().for_each(|runner| runner.slots = 0);
    world.runners.values_mut().next().unwrap().slots = 1;
    world.pass(7_000);
    assert_eq!(world.live(), ["wiki.1.1"], "the other one waits for a slot");
    world.read("wiki.1.1", 0, 30);
    world
        .command(Command::Terminate {
            publish: Publish::Yes,
            offsets: KeepOffsets::Keep,
        })
        .unwrap();
    world.pass(2_000);
    assert_eq!(
        (world.state(), world.task("wiki.1.1").state),
        (State::Stopping, TaskState::Finishing)
    );
    assert!(world.publish("wiki.1.1"));
    world.pass(2_000);
    assert_eq!((world.state(), world.live()), (State::Terminated, vec![]));
    assert_eq!(world.history(), ["submitted", "terminated"]);
    assert_eq!(
        world.committed.as_ref().unwrap().offsets,
        PartitionOffsets::from([(0, 30), (1, 0)])
    );
}

#[test]
fn terminate_before_the_start_and_terminate_now_end_without_publishing() {
    let mut early = World::new(settings(), [(0, 0, 100)]);
    early
        .command(Command::Terminate {
            publish: Publish::Yes,
            offsets: KeepOffsets::Keep,
        })
        .unwrap();
    early.pass(1_000);
    assert_eq!(early.state(), State::Terminated);

    let mut world = World::started(settings(), [(0, 0, 100)]);
    world.read("wiki.1.1", 0, 30);
    world
        .command(Command::Terminate {
            publish: Publish::No,
            offsets: KeepOffsets::Keep,
        })
        .unwrap();
    world.pass(2_000);
    assert_eq!(
        (world.state(), world.task("wiki.1.1").state),
        (State::Terminated, TaskState::Stopped)
    );
    assert_eq!(
        world.committed.as_ref().unwrap().offsets,
        PartitionOffsets::from([(0, 0)])
    );
}

#[test]
fn b49_another_topic_is_refused_with_the_command_to_use_and_taken_after_it() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    let other = Box::new(Settings {
        topic: "other".into(),
        ..*changed(2)
    });
    let refusal = world.command(Command::Submit(other.clone())).unwrap_err();
    assert!(
        refusal
            .to_string()
            .contains("tidegate supervisor terminate wiki --forget-offsets"),
        "{refusal}"
    );
    assert_eq!(world.live(), ["wiki.1.1"]);
    world
        .command(Command::Terminate {
            publish: Publish::No,
            offsets: KeepOffsets::Keep,
        })
        .unwrap();
    world.pass(2_000);
    assert!(
        world.command(Command::Submit(other.clone())).is_err(),
        "its offsets are still those of the first topic"
    );
    world
        .command(Command::Terminate {
            publish: Publish::No,
            offsets: KeepOffsets::Forget,
        })
        .unwrap();
    world.pass(2_000);
    assert_eq!(
        (world.state(), world.committed.as_ref().unwrap().offsets.len()),
        (State::Terminated, 0)
    );
    world.command(Command::Submit(other)).unwrap();
    world.pass(7_000);
    assert_eq!(world.live(), ["wiki.2.1"], "ids are never used again");
}

#[test]
fn a_new_spec_finishes_groups_early_and_new_ones_start_at_their_ends() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    world.read("wiki.1.1", 0, 30);
    world.pass(1_000);
    world.command(Command::Submit(changed(2))).unwrap();
    world.pass(2_000);
    assert_eq!(world.task("wiki.1.1").state, TaskState::Finishing);
    let next = world.task("wiki.2.1").assignment.clone();
    assert_eq!(
        (next.start, next.spec_version),
        (PartitionOffsets::from([(0, 30)]), 2)
    );
    // A replacement of the older group still has its own spec.
    world.task("wiki.1.1").state = TaskState::Failed;
    world.pass(8_000);
    assert_eq!(world.task("wiki.1.2").assignment.spec_json, "{\"v\":1}");
    assert!(world.publish("wiki.1.2"));
    world.pass(3_000);
    assert_eq!(world.live(), ["wiki.2.1"]);
}

#[test]
fn the_same_spec_again_makes_no_version_and_a_cosmetic_change_disturbs_nothing() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    world.command(Command::Submit(Box::new(settings()))).unwrap();
    world.pass(2_000);
    assert_eq!(
        (world.supervisor.document().version, world.live()),
        (1, vec!["wiki.1.1".to_owned()])
    );
    let cosmetic = Settings {
        spec_json: "{\"period\":\"PT1M\"}".into(),
        look_up_millis: 60_000,
        ..settings()
    };
    world.command(Command::Submit(Box::new(cosmetic))).unwrap();
    world.pass(90_000);
    assert_eq!(
        (world.supervisor.document().version, world.live()),
        (2, vec!["wiki.1.1".to_owned()])
    );
    assert_eq!(world.task("wiki.1.1").state, TaskState::Reading);
}

#[test]
fn b51_ten_updates_in_a_minute_lose_and_double_nothing() {
    let mut world = World::started(
        Settings {
            replicas: 2,
            ..settings()
        },
        [(0, 0, 1_000)],
    );
    let mut read = 0;
    for version in 2..12 {
        for task in world.live() {
            if world.task(&task).end.is_none() {
                read += 7;
                world.read(&task, 0, read);
            }
        }
        world.pass(3_000);
        world.command(Command::Submit(changed(version))).unwrap();
        world.pass(3_000);
    }
    for _ in 0..30 {
        for task in world.live() {
            if world.task(&task).end.is_some() {
                world.publish(&task);
            }
        }
        world.pass(1_000);
    }
    let ends: Vec<i64> = world.published.iter().map(|(_, _, end, _)| end.0).collect();
    let starts: Vec<i64> = world.published.iter().map(|(_, start, _, _)| start.0).collect();
    assert_eq!(starts[0], 0);
    assert_eq!(
        starts[1..],
        ends[..ends.len() - 1],
        "in order, without gap or overlap"
    );
}

#[test]
fn a_changed_task_count_takes_effect_at_the_hand_over() {
    let bounds = [(0, 0, 100), (1, 0, 100), (2, 0, 100), (3, 0, 100)];
    let mut world = World::started(settings(), bounds);
    world.read("wiki.1.1", 0, 30);
    world.pass(1_000);
    world
        .command(Command::Submit(Box::new(Settings {
            task_count: 2,
            ..*changed(2)
        })))
        .unwrap();
    world.pass(2_000);
    assert_eq!(
        world.task("wiki.2.1").assignment.start,
        PartitionOffsets::from([(0, 30), (2, 0)])
    );
    assert_eq!(
        world.task("wiki.3.1").assignment.start,
        PartitionOffsets::from([(1, 0), (3, 0)])
    );
    world
        .command(Command::Submit(Box::new(Settings {
            task_count: 1,
            ..*changed(3)
        })))
        .unwrap();
    world.pass(2_000);
    assert_eq!(
        world.task("wiki.4.1").assignment.start,
        PartitionOffsets::from([(0, 30), (1, 0), (2, 0), (3, 0)])
    );
}

#[test]
fn reset_with_no_tasks_and_without_offsets_does_no_harm() {
    let mut world = World::new(settings(), [(0, 0, 100)]);
    world.command(reset([], [])).unwrap();
    world.pass(7_000);
    assert_eq!(world.live(), ["wiki.1.1"]);
    assert!(world.history().iter().any(|line| line.starts_with("reset")));
}

#[test]
fn reset_with_running_tasks_shuts_them_down_and_they_come_back_in_a_new_generation() {
    let mut world = World::started(settings(), [(0, 0, 100), (1, 0, 100)]);
    world.read("wiki.1.1", 0, 30);
    world.pass(3_600_000);
    assert!(world.publish("wiki.1.1"));
    world.pass(2_000);
    let old_name = world.task("wiki.2.1").assignment.base_sequence_name.clone();
    world.command(reset([0], [])).unwrap();
    world.pass(3_000);
    assert_eq!(world.task("wiki.2.1").state, TaskState::Stopped);
    let task = world.live().remove(0);
    let assignment = world.task(&task).assignment.clone();
    // Given partitions are removed and start as the spec says, others stay.
    assert_eq!(assignment.start, PartitionOffsets::from([(0, 0), (1, 0)]));
    assert_eq!(assignment.generation.0, 1);
    assert_ne!(assignment.base_sequence_name, old_name);
    assert!(
        world
            .history()
            .last()
            .unwrap()
            .contains("partition 0: 30 → as the spec says; by ada: bad rows")
    );
}

#[test]
fn d34_a_pending_group_cannot_bring_old_offsets_back_after_a_reset() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    world.read("wiki.1.1", 0, 30);
    world.pass(3_602_000);
    world.command(reset([], [(0, 10)])).unwrap();
    world.pass(3_000);
    assert!(!world.publish("wiki.1.1"));
    assert_eq!(
        world.committed.as_ref().unwrap().offsets,
        PartitionOffsets::from([(0, 10)])
    );
    let task = world.live().remove(0);
    assert_eq!(
        world.task(&task).assignment.start,
        PartitionOffsets::from([(0, 10)])
    );
}

/// The same wish as [`reset`], unforced, under a key of its own.
fn careful<const N: usize>(offsets: [(i32, i64); N], to: ResetTo, key: &str) -> Command {
    Command::Reset {
        partitions: BTreeSet::new(),
        offsets: PartitionOffsets::from(offsets),
        to,
        force: false,
        who: "ada".into(),
        why: String::new(),
        key: key.into(),
    }
}

#[test]
fn a_reset_that_would_lose_data_is_refused_unless_it_is_forced_and_says_what_it_would_do() {
    let mut world = World::started(settings(), [(0, 5, 100), (1, 0, 50)]);
    // Committed are 5 and 0; 30 were read and nothing of it is published.
    world.read("wiki.1.1", 0, 30);
    let all = BTreeSet::new();
    let plan = |world: &World, offsets: PartitionOffsets, to| {
        let plan = world.supervisor.plan_reset(&all, &offsets, to).unwrap();
        let one = |plan: &PartitionReset| {
            let numbers = [plan.from.unwrap().0, plan.to.0];
            (
                plan.partition.0,
                numbers,
                plan.skipped.width(),
                plan.again.width(),
            )
        };
        plan.partitions.iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(
        plan(&world, PartitionOffsets::new(), ResetTo::Latest),
        [(0, [5, 100], 95, 0), (1, [0, 50], 50, 0)]
    );
    assert_eq!(
        plan(&world, PartitionOffsets::from([(0, 20)]), ResetTo::AsSpec),
        [(0, [5, 20], 15, 0)]
    );
    let refusal = world
        .command(careful([(0, 20)], ResetTo::AsSpec, "a"))
        .unwrap_err();
    assert!(
        refusal.to_string().contains("15 offsets (partition 0 [5, 20))"),
        "{refusal}"
    );
    assert_eq!(world.live().len(), 1, "nothing was disturbed");

    world.command(careful([], ResetTo::Earliest, "b")).unwrap();
    world.pass(3_000);
    let committed = |world: &World| world.committed.as_ref().unwrap().offsets.clone();
    assert_eq!(committed(&world), PartitionOffsets::from([(0, 5), (1, 0)]));
    world.command(reset([1], [(1, 50)])).unwrap();
    world.pass(3_000);
    assert_eq!(committed(&world), PartitionOffsets::from([(0, 5), (1, 50)]));
    // Back again: nothing is lost, and 40 are read a second time.
    assert_eq!(
        plan(&world, PartitionOffsets::from([(1, 10)]), ResetTo::AsSpec),
        [(1, [50, 10], 0, 40)]
    );
    world.command(careful([(1, 10)], ResetTo::AsSpec, "c")).unwrap();
    world.pass(3_000);
    assert_eq!(committed(&world), PartitionOffsets::from([(0, 5), (1, 10)]));
}

#[test]
fn latest_is_where_the_log_ended_when_it_was_asked_for() {
    let latest = Settings {
        first_start: FirstStart::Latest,
        ..settings()
    };
    for to in [ResetTo::Latest, ResetTo::AsSpec] {
        let mut world = World::started(latest.clone(), [(0, 0, 100)]);
        world.pass(3_000);
        let before = world.committed.as_ref().unwrap().offsets.clone();
        assert_eq!(before, PartitionOffsets::from([(0, 100)]));
        world.command(careful([], to, "now")).unwrap();
        // Written before the reset is done: it was not there when nothing was to be lost.
        world.topic.latest = PartitionOffsets::from([(0, 130)]);
        world.pass(5_000);
        assert_eq!(world.committed.as_ref().unwrap().offsets, before, "{to:?}");
    }
}

#[test]
fn a_reset_of_a_topic_that_nobody_has_seen_is_refused_unless_it_is_forced() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    world.restart();
    let wish = careful([(0, 50)], ResetTo::AsSpec, "a");
    let refusal = world.supervisor.check(&wish).unwrap_err();
    assert!(matches!(refusal, Refusal::NotLooked { .. }), "{refusal}");
    world.supervisor.check(&reset([], [(0, 50)])).unwrap();
}

#[test]
fn a_reset_goes_on_after_a_restart_with_the_same_key() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    world.read("wiki.1.1", 0, 30);
    let now = world.time();
    let actions = world
        .supervisor
        .command(now, reset([], [(0, 10)]), &mut world.ids)
        .unwrap();
    // Only the wish is stored when the coordinator ends.
    world.perform(actions[0].clone());
    world.restart();
    world.pass(3_000);
    assert_eq!(
        world.committed.as_ref().unwrap().offsets,
        PartitionOffsets::from([(0, 10)])
    );
    assert_eq!(world.reset_keys.keys().collect::<Vec<_>>(), ["wish"]);
}

#[test]
fn reset_works_on_a_suspended_and_on_a_terminated_supervisor_and_names_unknown_partitions() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    let refusal = world.command(reset([9], [])).unwrap_err();
    assert_eq!(refusal.to_string(), "partition 9 is not in topic edits; it has 0");
    world.command(Command::Suspend).unwrap();
    world.pass(2_000);
    world.command(reset([], [(0, 42)])).unwrap();
    world.pass(3_000);
    assert_eq!((world.state(), world.live()), (State::Suspended, vec![]));
    world
        .command(Command::Terminate {
            publish: Publish::No,
            offsets: KeepOffsets::Keep,
        })
        .unwrap();
    world.pass(2_000);
    let later = Command::Reset {
        partitions: BTreeSet::new(),
        offsets: PartitionOffsets::from([(0, 7)]),
        to: ResetTo::AsSpec,
        force: true,
        who: "ada".into(),
        why: String::new(),
        key: "second".into(),
    };
    world.command(later).unwrap();
    world.pass(3_000);
    assert_eq!(
        world.committed.as_ref().unwrap().offsets,
        PartitionOffsets::from([(0, 7)])
    );
    assert_eq!(world.state(), State::Terminated);
}

#[test]
fn commands_that_make_no_sense_now_are_refused_and_say_what_to_do() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    world.read("wiki.1.1", 0, 3);
    world
        .command(Command::Terminate {
            publish: Publish::Yes,
            offsets: KeepOffsets::Keep,
        })
        .unwrap();
    assert!(matches!(
        world.command(Command::Resume),
        Err(Refusal::Stopping { .. })
    ));
    assert!(matches!(
        world.command(Command::Submit(changed(2))),
        Err(Refusal::Stopping { .. })
    ));
    world.pass(2_000);
    world.publish("wiki.1.1");
    world.pass(2_000);
    assert!(matches!(
        world.command(Command::Suspend),
        Err(Refusal::Terminated { .. })
    ));
    world.command(Command::Submit(changed(2))).unwrap();
    world.pass(7_000);
    assert_eq!(
        world.task("wiki.2.1").assignment.start,
        PartitionOffsets::from([(0, 3)]),
        "offsets were kept"
    );
}
