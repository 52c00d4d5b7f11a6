//! Which rows end in which segments.

use tidegate_types::{EndOffsets, PartitionOffsets, StartOffsets};

use super::super::*;
use super::world::*;

/// Reads `[start, end)` with the end given at the assignment.
fn read(world: &mut World, start: &StartOffsets, end: &EndOffsets) -> Process {
    let mut process = world.start(Assignment {
        end: Some(decision(end)),
        ..assignment(start, "base")
    });
    process.run(world);
    process
}

fn catalog(world: &World) -> Vec<(&str, &str)> {
    world
        .catalog
        .iter()
        .map(|(id, rows)| (id.as_str(), rows.as_str()))
        .collect()
}

#[test]
fn data_before_start() {
    let start = StartOffsets::from([(0, 2)]);
    let mut world = World::new(&start);
    let process = read(&mut world, &start, &EndOffsets::from([(0, 5)]));
    assert_eq!(process.machine.life(), Life::Ended(Ending::Published));
    assert_eq!(catalog(&world), [("2010#0", "c"), ("2011#0", "de")]);
    assert_eq!(world.committed, PartitionOffsets::from([(0, 5)]));
    assert_eq!(process.machine.record().read.counts.accepted, 3);
}

#[test]
fn data_after_start() {
    let start = StartOffsets::from([(0, 2)]);
    let mut world = World::new(&start);
    let all = world.topic[&tidegate_types::PartitionId(0)].clone();
    world
        .topic
        .get_mut(&tidegate_types::PartitionId(0))
        .unwrap()
        .truncate(1);
    let mut process = world.start(Assignment {
        end: Some(decision(&EndOffsets::from([(0, 5)]))),
        ..assignment(&start, "base")
    });
    process.run(&mut world);
    assert_eq!(process.machine.life(), Life::Finishing);
    world.topic.insert(tidegate_types::PartitionId(0), all);
    process.run(&mut world);
    assert_eq!(catalog(&world), [("2010#0", "c"), ("2011#0", "de")]);
    assert_eq!(world.committed, PartitionOffsets::from([(0, 5)]));
}

#[test]
fn minimum_and_maximum_message_time_2010() {
    for (minimum, maximum, expected) in [
        (Some(2010), None, vec![("2010#0", "c"), ("2011#0", "de")]),
        (
            None,
            Some(2010),
            vec![("2008#0", "a"), ("2009#0", "b"), ("2010#0", "c")],
        ),
    ] {
        let start = StartOffsets::from([(0, 0)]);
        let mut world = World {
            minimum,
            maximum,
            ..World::new(&start)
        };
        let process = read(&mut world, &start, &EndOffsets::from([(0, 5)]));
        assert_eq!(catalog(&world), expected);
        let counts = process.machine.record().read.counts;
        assert_eq!((counts.accepted, counts.rejected), (3, 2));
    }
}

#[test]
fn run_on_nothing() {
    let start = StartOffsets::from([(0, 2)]);
    let mut world = World::new(&start);
    let process = read(&mut world, &start, &start);
    assert_eq!(process.machine.life(), Life::Ended(Ending::Published));
    assert!(world.catalog.is_empty());
    assert_eq!(world.committed, start);
    assert_eq!(
        world.finished.len(),
        1,
        "the offsets are published all the same (D13)"
    );
}

#[test]
fn parse_errors_not_tolerated() {
    let start = StartOffsets::from([(0, 2)]);
    let mut world = World {
        parse_limit: Some(0),
        ..World::new(&start)
    };
    world.topic.get_mut(&tidegate_types::PartitionId(0)).unwrap()[5] = Rec::Tombstone;
    let process = read(&mut world, &start, &EndOffsets::from([(0, 7)]));
    assert_eq!(process.machine.life(), Life::Ended(Ending::Failed));
    assert_eq!(
        process.machine.view().reason,
        "partition 0 offset 6 is not parseable"
    );
    assert!(world.catalog.is_empty() && world.finished.is_empty());
    assert_eq!(world.committed, start);
    assert!(world.files.is_empty(), "a failed task leaves no files");
}

#[test]
fn two_partitions_one_task() {
    let start = StartOffsets::from([(0, 2), (1, 0)]);
    let mut world = World::new(&start);
    read(&mut world, &start, &EndOffsets::from([(0, 5), (1, 2)]));
    let expected = [
        ("2010#0", "c"),
        ("2011#0", "de"),
        ("2011#1", "h"),
        ("2012#0", "g"),
    ];
    assert_eq!(
        catalog(&world),
        expected,
        "legacy mode: 2011 has one segment per partition"
    );
    assert_eq!(world.committed, PartitionOffsets::from([(0, 5), (1, 2)]));
}

#[test]
fn two_tasks_one_partition_each() {
    let all = StartOffsets::from([(0, 2), (1, 0)]);
    let mut world = World::new(&all);
    for (name, start, end) in [("one", (0, 2), (0, 5)), ("two", (1, 0), (1, 1))] {
        let (start, end) = (StartOffsets::from([start]), EndOffsets::from([end]));
        world.record = None;
        let mut process = world.start(Assignment {
            end: Some(decision(&end)),
            ..assignment(&start, name)
        });
        process.run(&mut world);
        assert_eq!(process.machine.life(), Life::Ended(Ending::Published));
    }
    assert_eq!(world.committed, PartitionOffsets::from([(0, 5), (1, 1)]));
}

#[test]
fn b17_b18_the_end_of_a_range_may_be_an_offset_that_is_never_delivered() {
    let start = StartOffsets::from([(0, 2)]);
    for end in [6, 7, 8] {
        let mut world = World::new(&start);
        let log = world.topic.get_mut(&tidegate_types::PartitionId(0)).unwrap();
        log.truncate(5);
        log.extend([Rec::Gap, Rec::Gap, Rec::Gap]);
        read(&mut world, &start, &EndOffsets::from([(0, end)]));
        assert_eq!(world.committed, PartitionOffsets::from([(0, end)]));
        assert_eq!(catalog(&world), [("2010#0", "c"), ("2011#0", "de")]);
    }
}

#[test]
fn more_rows_than_a_segment_holds_are_all_published() {
    let start = StartOffsets::from([(0, 0), (1, 0)]);
    let mut world = World {
        max_rows_per_segment: 1,
        ..World::new(&start)
    };
    read(&mut world, &start, &EndOffsets::from([(0, 9), (1, 2)]));
    let expected = [
        ("2008#0", "a"),
        ("2009#0", "b"),
        ("2010#0", "c"),
        ("2011#0", "d"),
        ("2011#1", "e"),
        ("2011#2", "h"),
        ("2012#0", "g"),
        ("2013#0", "f"),
    ];
    assert_eq!(catalog(&world), expected);
}
