//! Publish outcomes and handoff.

use tidegate_types::{EndOffsets, PartitionOffsets, StartOffsets};

use super::super::*;
use super::world::*;

fn run(mut world: World) -> (World, Process) {
    let start = StartOffsets::from([(0, 2)]);
    let end = EndOffsets::from([(0, 5)]);
    let mut process = world.start(Assignment {
        end: Some(decision(&end)),
        ..assignment(&start, "base")
    });
    process.run(&mut world);
    (world, process)
}

fn world() -> World {
    World::new(&StartOffsets::from([(0, 2)]))
}

#[test]
fn handoff_timeout_handoff_comes() {
    let (world, process) = run(world());
    assert_eq!(process.machine.life(), Life::Ended(Ending::Published));
    assert_eq!(process.machine.view().alert, "");
    assert!(world.files.is_empty());
}

#[test]
fn handoff_timeout_handoff_never_comes() {
    let (world, process) = run(World {
        serves: false,
        ..world()
    });
    assert_eq!(
        process.machine.life(),
        Life::Ended(Ending::Published),
        "the data is published (I9)"
    );
    assert!(
        process.machine.view().alert.contains("2 of 2"),
        "{}",
        process.machine.view().alert
    );
    assert_eq!(world.catalog.len(), 2);
    assert_eq!(
        world.now,
        tidegate_types::TimestampMillis(1_001_000),
        "exactly the time-out was waited"
    );
}

#[test]
fn the_local_copy_is_there_until_the_handoff_is_confirmed() {
    let mut world = World {
        serves: false,
        ..world()
    };
    let start = StartOffsets::from([(0, 2)]);
    let given = Assignment {
        end: Some(decision(&EndOffsets::from([(0, 5)]))),
        ..assignment(&start, "base")
    };
    let mut process = world.start(given);
    while process.machine.view().step != Step::Handoff {
        assert!(process.step(&mut world));
    }
    assert!(!world.files.is_empty());
    world.serves = true;
    process.run(&mut world);
    assert!(world.files.is_empty());
}

#[test]
fn publishing_waits_for_the_range_before_it_and_asks_again() {
    let mut before = world();
    before.publisher_says = [Outcome::NotYet, Outcome::Retryable, Outcome::NotYet].into();
    let (world, process) = run(before);
    assert_eq!(process.machine.life(), Life::Ended(Ending::Published));
    let asked = world
        .log
        .iter()
        .filter(|action| matches!(action, TaskAction::Publish { .. }))
        .count();
    assert_eq!(asked, 4);
    assert_eq!(process.machine.view().reason, "");
    assert_eq!(world.now.0 - 1_000_000, 250 + 500 + 1000, "the pauses double");
}

#[test]
fn terminal_outcomes_end_the_task_as_what_they_are() {
    for (said, ending) in [
        (Outcome::Mismatch, Ending::Failed),
        (Outcome::Fenced, Ending::Replaced),
        (Outcome::PredecessorLost, Ending::Replaced),
        (Outcome::AlreadyPublished, Ending::Superseded),
    ] {
        let mut before = world();
        before.publisher_says = [said].into();
        let (world, process) = run(before);
        assert_eq!(process.machine.life(), Life::Ended(ending), "{said:?}");
        assert!(world.files.is_empty());
        let reason = process.machine.view().reason;
        assert_eq!(reason.is_empty(), ending == Ending::Superseded, "{reason}");
    }
}

#[test]
fn b43_a_commit_whose_answer_was_lost_is_found_again_and_is_our_own() {
    let (world, process) = run(World {
        lose_answer: true,
        ..world()
    });
    assert_eq!(process.machine.life(), Life::Ended(Ending::Published));
    assert_eq!(world.finished.len(), 1);
    assert!(
        world
            .log
            .iter()
            .any(|action| matches!(action, TaskAction::AwaitHandoff { .. })),
        "its handoff is awaited"
    );
}

#[test]
fn a_bad_object_is_uploaded_again_to_a_new_key() {
    let mut before = world();
    before.publisher_says = [Outcome::BadObject].into();
    let (world, process) = run(before);
    assert_eq!(process.machine.life(), Life::Ended(Ending::Published));
    assert_eq!(world.staged.len(), 4, "two segments, two keys each");
    let (_, process) = run(World {
        publisher_says: vec![Outcome::BadObject; 8].into(),
        ..self::world()
    });
    assert_eq!(process.machine.life(), Life::Ended(Ending::Failed));
}

#[test]
fn replicas_both_succeed_and_the_segments_are_published_once() {
    let (mut world, first) = run(world());
    let catalog = world.catalog.clone();
    world.record = None;
    let (world, second) = run(world);
    assert_eq!(first.machine.life(), Life::Ended(Ending::Published));
    assert_eq!(second.machine.life(), Life::Ended(Ending::Superseded));
    assert_eq!(second.machine.record().read.counts.accepted, 3);
    assert_eq!(world.catalog, catalog);
}

#[test]
fn conflicting_tasks() {
    let (mut world, _) = run(world());
    world.record = None;
    let start = StartOffsets::from([(0, 3)]);
    let given = Assignment {
        end: Some(decision(&EndOffsets::from([(0, 9)]))),
        ..assignment(&start, "other")
    };
    let mut second = world.start(given);
    second.run(&mut world);
    assert_eq!(second.machine.life(), Life::Ended(Ending::Failed));
    assert_eq!(world.committed, PartitionOffsets::from([(0, 5)]));
    assert_eq!(
        second.machine.record().committed,
        Some(PartitionOffsets::from([(0, 5)]))
    );
    assert_eq!(world.catalog.len(), 2, "its segments are not in the catalog");
}
