//! Partitions found later, topics made again, records that are gone.

use tidegate_types::{Offset, OffsetRange, PartitionId, PartitionOffsets};

use super::super::*;
use super::world::{World, settings, stream};
use crate::group::TaskState;

const HOUR: i64 = 3_600_000;

#[test]
fn b24_a_partition_found_later_is_read_from_earliest_at_once_whatever_the_flag_says() {
    let mut world = World::started(
        Settings {
            first_start: FirstStart::Latest,
            ..settings()
        },
        [(0, 0, 100)],
    );
    world.bounds(1, 0, 33);
    world.pass(31_000);
    assert_eq!(world.live(), ["wiki.1.1", "wiki.2.1"]);
    assert_eq!(
        world.task("wiki.2.1").assignment.start,
        PartitionOffsets::from([(1, 0)])
    );
    // At the next roll-over they are one group again.
    world.read("wiki.2.1", 1, 33);
    world.pass(HOUR);
    assert_eq!(
        world.task("wiki.3.1").assignment.start,
        PartitionOffsets::from([(0, 100), (1, 33)])
    );
}

#[test]
fn b24_growth_while_the_coordinator_is_down_or_suspended_loses_nothing() {
    let mut world = World::started(
        Settings {
            first_start: FirstStart::Latest,
            ..settings()
        },
        [(0, 0, 100)],
    );
    world.bounds(1, 0, 33);
    world.restart();
    world.pass(2_000);
    assert_eq!(
        world.task("wiki.2.1").assignment.start,
        PartitionOffsets::from([(1, 0)])
    );
    world.command(Command::Suspend).unwrap();
    world.bounds(2, 0, 44);
    world.pass(60_000);
    world.command(Command::Resume).unwrap();
    world.pass(2_000);
    let found = world
        .live()
        .into_iter()
        .find(|task| world.task(task).assignment.start.get(PartitionId(2)).is_some());
    let start = world.task(&found.unwrap()).assignment.start.get(PartitionId(2));
    assert_eq!(start, Some(Offset(0)));
}

#[test]
fn b23_a_topic_made_again_is_not_read_whether_it_is_shorter_or_longer() {
    for latest in [10, 5_000] {
        let mut world = World::started(settings(), [(0, 0, 1_000)]);
        world.read("wiki.1.1", 0, 1_000);
        world.pass(5_000);
        world.topic.stream = stream("t2");
        world.bounds(0, 0, latest);
        world.pass(31_000);
        assert_eq!(world.state(), State::StreamChanged);
        assert_eq!(
            (world.task("wiki.1.1").state, world.live()),
            (TaskState::Stopped, vec![])
        );
        world.restart();
        world.pass(60_000);
        assert_eq!(
            (world.state(), world.live()),
            (State::StreamChanged, vec![]),
            "also after a restart"
        );

        let reset = Command::Reset {
            partitions: Default::default(),
            offsets: PartitionOffsets::new(),
            to: ResetTo::AsSpec,
            force: true,
            who: "ada".into(),
            why: "new topic".into(),
            key: "k1".into(),
        };
        world.command(reset).unwrap();
        world.pass(5_000);
        assert_eq!(world.state(), State::Running);
        let task = world.live().remove(0);
        let assignment = &world.task(&task).assignment;
        assert_eq!(
            (&assignment.start, assignment.generation.0),
            (&PartitionOffsets::from([(0, 0)]), 1)
        );
        assert_eq!(assignment.stream, stream("t2"));
    }
}

#[test]
fn b23_without_topic_ids_a_log_that_ends_before_the_committed_offset_is_noticed_and_a_missing_partition_too()
{
    let mut world = World::new(settings(), [(0, 0, 10), (1, 0, 10)]);
    world.topic.stream = stream("");
    let offsets = PartitionOffsets::from([(0, 500), (1, 3)]);
    world.committed = Some(Committed {
        stream: stream(""),
        offsets,
        generation: Default::default(),
    });
    world.pass(40_000);
    assert_eq!((world.state(), world.live()), (State::StreamChanged, vec![]));

    let mut fewer = World::started(settings(), [(0, 0, 10), (1, 0, 10)]);
    fewer.topic.earliest.0.remove(&PartitionId(1));
    fewer.topic.latest.0.remove(&PartitionId(1));
    fewer.pass(31_000);
    assert_eq!((fewer.state(), fewer.live()), (State::StreamChanged, vec![]));
}

#[test]
fn latest_offsets_that_lag_behind_a_commit_are_not_taken_for_another_topic() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    world.read("wiki.1.1", 0, 100);
    world.pass(HOUR + 2_000);
    // The broker's answer is from before, the commit after it: both are true.
    world.bounds(0, 0, 100);
    world.read("wiki.2.1", 0, 150);
    assert!(world.publish("wiki.1.1"));
    world.pass(61_000);
    assert_eq!(world.state(), State::Running);
}

#[test]
fn committed_offsets_no_longer_in_the_topic_are_a_clear_error_and_no_task() {
    let mut world = World::new(settings(), [(0, 40, 100), (1, 0, 100)]);
    let offsets = PartitionOffsets::from([(0, 10), (1, 20)]);
    world.committed = Some(Committed {
        stream: stream("t1"),
        offsets,
        generation: Default::default(),
    });
    world.pass(8_000);
    assert_eq!(world.state(), State::LostData);
    let lost = world.supervisor.snapshot(world.time()).lost;
    assert_eq!(
        lost,
        [(
            PartitionId(0),
            OffsetRange {
                start: Offset(10),
                end: Offset(40)
            }
        )]
        .into()
    );
    // Other partitions go on.
    assert_eq!(world.live(), ["wiki.1.1"]);
    assert_eq!(
        world.task("wiki.1.1").assignment.start,
        PartitionOffsets::from([(1, 20)])
    );
}

#[test]
fn b21_records_dropped_while_running_end_the_group_and_only_that_partition_stands_still() {
    let mut world = World::started(settings(), [(0, 0, 1_000), (1, 0, 1_000)]);
    world.read("wiki.1.1", 0, 100);
    world.read("wiki.1.1", 1, 200);
    world.pass(2_000);
    world.bounds(0, 600, 1_000);
    world.pass(32_000);
    assert_eq!(
        world.task("wiki.1.1").end.as_ref().unwrap().end,
        PartitionOffsets::from([(0, 100), (1, 200)])
    );
    assert_eq!(
        world.task("wiki.2.1").assignment.start,
        PartitionOffsets::from([(1, 200)]),
        "the other one goes on"
    );
    assert_eq!(world.state(), State::LostData);
    let lost = world.supervisor.snapshot(world.time()).lost;
    assert_eq!(
        lost,
        [(
            PartitionId(0),
            OffsetRange {
                start: Offset(100),
                end: Offset(600)
            }
        )]
        .into()
    );
}

#[test]
fn b21_with_reset_offsets_automatically_the_ranges_are_skipped_in_one_pass_and_recorded_exactly() {
    let skip = Settings {
        on_lost_data: OnLostData::Skip,
        task_count: 4,
        ..settings()
    };
    let mut world = World::started(skip, [(0, 0, 1_000), (1, 0, 1_000), (2, 0, 1_000), (3, 0, 1_000)]);
    for partition in 0..4 {
        world.read(
            &format!("wiki.{}.1", partition + 1),
            partition,
            100 + i64::from(partition),
        );
    }
    world.pass(2_000);
    for partition in 0..3 {
        world.bounds(partition, 600, 1_000);
    }
    world.pass(32_000);
    for group in 1..=4 {
        assert!(
            world.publish(&format!("wiki.{group}.1")),
            "what was read is published first"
        );
    }
    world.pass(40_000);
    let lost: Vec<String> = world
        .history()
        .into_iter()
        .filter(|line| line.starts_with("lost-data"))
        .collect();
    assert_eq!(
        lost,
        ["lost-data skipped partition 0: [100, 600), partition 1: [101, 600), partition 2: [102, 600)"]
    );
    let committed = world.committed.clone().unwrap();
    assert_eq!(
        committed.offsets,
        PartitionOffsets::from([(0, 600), (1, 600), (2, 600), (3, 103)])
    );
    assert_eq!(committed.generation.0, 1);
    assert_eq!((world.state(), world.live().len()), (State::Running, 4));
}

#[test]
fn b21_a_group_whose_tasks_died_with_their_rows_loses_exactly_what_was_not_committed() {
    let mut world = World::started(
        Settings {
            on_lost_data: OnLostData::Skip,
            ..settings()
        },
        [(0, 0, 1_000)],
    );
    world.read("wiki.1.1", 0, 100);
    world.pass(2_000);
    world.bounds(0, 600, 1_000);
    world.task("wiki.1.1").state = TaskState::Failed;
    world.pass(40_000);
    assert!(
        world
            .history()
            .contains(&"lost-data skipped partition 0: [0, 600)".to_owned()),
        "{:?}",
        world.history()
    );
    let task = world.live().remove(0);
    assert_eq!(
        world.task(&task).assignment.start,
        PartitionOffsets::from([(0, 600)])
    );
}

#[test]
fn b64_lag_is_never_negative_and_unknown_is_absent() {
    let mut world = World::started(settings(), [(0, 0, 100)]);
    world.read("wiki.1.1", 0, 250);
    world.pass(1_000);
    let view = world.supervisor.snapshot(world.time()).partitions.remove(0);
    assert_eq!(
        (view.current, view.latest, view.lag),
        (Some(Offset(250)), Some(Offset(100)), Some(0))
    );
    world.restart();
    world.broker_error = Some("away".into());
    world.pass(1_000);
    let view = world.supervisor.snapshot(world.time()).partitions.remove(0);
    assert_eq!((view.latest, view.lag), (None, None));
}
