//! What the coordinator's calls do in each state.

use tidegate_types::{
    EndOffsets, Offset, OffsetRange, PartitionId, PartitionOffsets, StartOffsets, TimestampMillis,
};

use super::super::*;
use super::world::*;

const NOW: TimestampMillis = TimestampMillis(5);

fn set_end(id: &str, end: [(i32, i64); 1]) -> TaskEvent {
    order(id, EndOffsets::from(end))
}

/// A task that reads `[2, …)` of partition 0, everything written read already.
fn reading(world: &mut World) -> Process {
    let mut process = world.start(assignment(&StartOffsets::from([(0, 2)]), "base"));
    process.run(world);
    process
}

fn world() -> World {
    World::new(&StartOffsets::from([(0, 2)]))
}

/// Position of the first action that `is_it`.
fn at(actions: &[TaskAction], is_it: impl Fn(&TaskAction) -> bool) -> Option<usize> {
    actions.iter().position(is_it)
}

#[test]
fn pause_and_resume() {
    let mut world = world();
    world.topic.get_mut(&PartitionId(0)).unwrap().truncate(4);
    let mut process = reading(&mut world);
    process.on(&world, TaskEvent::Pause).unwrap();
    process.run(&mut world);
    assert_eq!(process.machine.life(), Life::Paused);
    let next = PartitionOffsets::from([(0, 4)]);
    assert!(
        process
            .on(&world, TaskEvent::Pause)
            .unwrap()
            .contains(&TaskAction::Answer(Answer::Paused { next: next.clone() }))
    );
    world.topic = records();
    process.run(&mut world);
    assert_eq!(process.machine.next(), &next, "records arrive, it stands still");
    process.on(&world, TaskEvent::Resume).unwrap();
    process.run(&mut world);
    assert_eq!(process.machine.next(), &PartitionOffsets::from([(0, 9)]));
}

#[test]
fn a_late_answer_to_a_pause_that_was_taken_back_does_not_count_for_the_next_one() {
    let mut world = world();
    let mut process = reading(&mut world);
    let machine = &mut process.machine;
    let ticket = |actions: &[TaskAction]| {
        actions.iter().find_map(|action| match action {
            TaskAction::StandStill { ticket } => Some(*ticket),
            _ => None,
        })
    };
    let first = ticket(&machine.on(NOW, TaskEvent::Pause).unwrap()).unwrap();
    machine.on(NOW, TaskEvent::Resume).unwrap();
    let second = ticket(&machine.on(NOW, TaskEvent::Pause).unwrap()).unwrap();
    machine
        .on(
            NOW,
            TaskEvent::StoodStill {
                ticket: first,
                next: PartitionOffsets::from([(0, 5)]),
            },
        )
        .unwrap();
    assert_eq!(
        machine.life(),
        Life::Reading {
            pausing: Some(second)
        }
    );
    machine
        .on(
            NOW,
            TaskEvent::StoodStill {
                ticket: second,
                next: PartitionOffsets::from([(0, 9)]),
            },
        )
        .unwrap();
    assert_eq!(machine.life(), Life::Paused);
}

#[test]
fn d28_b41_end_offsets_are_durable_before_they_are_acknowledged() {
    let mut world = world();
    let mut process = reading(&mut world);
    process.on(&world, TaskEvent::Pause).unwrap();
    process.run(&mut world);
    let actions = process.on(&world, set_end("d1", [(0, 9)])).unwrap();
    let save = at(&actions, |action| *action == TaskAction::Save).unwrap();
    let answer = at(&actions, |action| matches!(action, TaskAction::Answer(_))).unwrap();
    assert!(save < answer);
    assert!(
        matches!(process.machine.life(), Life::Finishing),
        "finishing at once (D27)"
    );
}

#[test]
fn d8_d57_a_pause_or_an_end_that_comes_while_starting_takes_effect_when_started() {
    let start = StartOffsets::from([(0, 2)]);
    let (mut machine, _) = TaskMachine::assign(assignment(&start, "base"), SETTINGS, NOW);
    assert_eq!(
        machine.on(NOW, TaskEvent::Pause).unwrap(),
        [TaskAction::Answer(Answer::Accepted)]
    );
    machine.on(NOW, TaskEvent::Opened(LocalState::Intact)).unwrap();
    assert_eq!(machine.life(), Life::Paused);

    let (mut machine, _) = TaskMachine::assign(assignment(&start, "base"), SETTINGS, NOW);
    let actions = machine.on(NOW, set_end("d1", [(0, 5)])).unwrap();
    assert_eq!(
        actions[..2],
        [TaskAction::Save, TaskAction::Answer(Answer::Accepted)]
    );
    // A crash here: the restored task knows its end although nothing was ever persisted (D8).
    let (mut machine, _) = TaskMachine::restore(machine.record().clone(), SETTINGS);
    let actions = machine.on(NOW, TaskEvent::Opened(LocalState::Intact)).unwrap();
    let until = Some(EndOffsets::from([(0, 5)]));
    let reads =
        |action: &TaskAction| matches!(action, TaskAction::Read { until: ends, .. } if *ends == until);
    assert!(actions.iter().any(reads));
    assert_eq!(machine.life(), Life::Finishing);
}

#[test]
fn i11_the_same_decision_again_succeeds_in_any_state_and_another_one_never() {
    let mut world = world();
    let mut process = reading(&mut world);
    process.on(&world, TaskEvent::Pause).unwrap();
    process.run(&mut world);
    process.on(&world, set_end("d1", [(0, 9)])).unwrap();
    for _ in 0..100 {
        let again = process.machine.on(world.now, set_end("d1", [(0, 9)])).unwrap();
        assert_eq!(again, [TaskAction::Answer(Answer::Done)]);
        assert!(
            process.machine.on(world.now, set_end("d2", [(0, 9)])).is_err(),
            "equal offsets do not make it equal"
        );
        if !process.step(&mut world) {
            break;
        }
    }
    assert_eq!(process.machine.life(), Life::Ended(Ending::Published));
}

#[test]
fn d46_ends_that_are_partial_open_or_already_passed_are_refused_without_effect() {
    let mut world = World::new(&StartOffsets::from([(0, 2), (1, 0)]));
    let mut process = world.start(assignment(&StartOffsets::from([(0, 2), (1, 0)]), "base"));
    process.run(&mut world);
    assert_eq!(
        process.machine.on(NOW, set_end("d0", [(0, 9)])),
        Err(Refusal::NotPaused),
        "where it stands is only known when it stands"
    );
    process.on(&world, TaskEvent::Pause).unwrap();
    process.run(&mut world);
    for bad in [
        EndOffsets::from([(0, 9)]),
        EndOffsets::from([(0, 8), (1, 2)]),
        EndOffsets::from([(0, 9), (1, i64::MAX)]),
    ] {
        let before = process.machine.record().clone();
        let event = order("d1", bad);
        assert!(matches!(process.machine.on(NOW, event), Err(Refusal::BadEnd(_))));
        assert_eq!(process.machine.record(), &before);
        assert_eq!(process.machine.life(), Life::Paused);
    }
}

#[test]
fn a_finishing_task_refuses_a_pause() {
    let mut world = world();
    world.topic.get_mut(&PartitionId(0)).unwrap().truncate(4);
    let mut process = reading(&mut world);
    process.on(&world, TaskEvent::Pause).unwrap();
    process.run(&mut world);
    process.on(&world, set_end("d1", [(0, 9)])).unwrap();
    assert_eq!(
        process.machine.on(NOW, TaskEvent::Pause),
        Err(Refusal::Finishing {
            decision_id: "d1".into()
        })
    );
}

#[test]
fn end_offset_not_written_yet() {
    let mut world = world();
    world.topic.get_mut(&PartitionId(0)).unwrap().truncate(4);
    let mut process = reading(&mut world);
    process.on(&world, TaskEvent::Pause).unwrap();
    process.run(&mut world);
    process.on(&world, set_end("d1", [(0, 5)])).unwrap();
    process.run(&mut world);
    assert_eq!(process.machine.life(), Life::Finishing, "it waits");
    assert_eq!(process.machine.next(), &PartitionOffsets::from([(0, 4)]));
    world.topic = records();
    process.run(&mut world);
    assert_eq!(process.machine.life(), Life::Ended(Ending::Published));
    assert_eq!(world.committed, PartitionOffsets::from([(0, 5)]));
}

#[test]
fn start_offset_beyond_the_end_of_the_log_but_not_before_its_beginning() {
    let mut world = World::new(&StartOffsets::from([(0, 20)]));
    let mut process = world.start(assignment(&StartOffsets::from([(0, 20)]), "base"));
    process.run(&mut world);
    let event = TaskEvent::BeyondEnd {
        partition: PartitionId(0),
        next: Offset(20),
        high: Offset(9),
    };
    process.on(&world, event).unwrap();
    assert_eq!(process.machine.life(), Life::Reading { pausing: None });
    assert_eq!(
        process.machine.next(),
        &PartitionOffsets::from([(0, 20)]),
        "it never goes backwards"
    );
    assert_eq!(
        process.machine.view().reason,
        "partition 0 waits for offset 20, the log ends at 9"
    );
    process
        .on(&world, TaskEvent::ReadUpTo(PartitionOffsets::from([(0, 21)])))
        .unwrap();
    assert_eq!(process.machine.view().reason, "");
}

#[test]
fn b21_expired_offsets_are_reported_and_never_jumped_over() {
    let mut world = world();
    let mut process = reading(&mut world);
    let lost = OffsetRange {
        start: Offset(9),
        end: Offset(30),
    };
    let actions = process
        .on(
            &world,
            TaskEvent::OutOfRange {
                partition: PartitionId(0),
                lost,
            },
        )
        .unwrap();
    assert_eq!(actions, [TaskAction::Report]);
    assert_eq!(process.machine.next(), &PartitionOffsets::from([(0, 9)]));
    assert!(
        process.machine.view().reason.starts_with("LOST_DATA"),
        "{}",
        process.machine.view().reason
    );
    assert!(process.machine.view().reason.contains("partition 0 [9, 30)"));
}

#[test]
fn d29_b39_a_task_that_was_stopped_without_publishing_does_not_look_published() {
    for (reason, ending) in [
        (StopReason::Superseded, Ending::Superseded),
        (StopReason::Replaced, Ending::Replaced),
        (StopReason::Stopped, Ending::Stopped),
    ] {
        let mut world = world();
        let mut process = reading(&mut world);
        process
            .on(&world, TaskEvent::Stop { reason, keep: false })
            .unwrap();
        process.run(&mut world);
        assert_eq!(process.machine.life(), Life::Ended(ending));
        assert!(world.finished.is_empty());
        assert!(world.files.is_empty());
        assert!(world.record.unwrap().contains("\"ended\":{"));
    }
}

#[test]
fn a_task_that_is_stopped_with_its_rows_kept_can_be_opened_again() {
    let mut world = world();
    let mut process = reading(&mut world);
    process
        .on(
            &world,
            TaskEvent::Stop {
                reason: StopReason::Stopped,
                keep: true,
            },
        )
        .unwrap();
    process.run(&mut world);
    assert_eq!(process.machine.life(), Life::Ended(Ending::Stopped));
    let record: TaskRecord = serde_json::from_str(world.record.as_ref().unwrap()).unwrap();
    assert_eq!(record.read.next, PartitionOffsets::from([(0, 9)]));
    assert_eq!(world.files.len(), record.runs.len());
    let (mut machine, _) = TaskMachine::reopen(record, SETTINGS);
    machine.on(NOW, TaskEvent::Opened(LocalState::Intact)).unwrap();
    assert_eq!(machine.life(), Life::Reading { pausing: None });
    assert_eq!(machine.next(), &PartitionOffsets::from([(0, 9)]));
}

#[test]
fn the_first_error_wins() {
    let mut world = world();
    let mut process = reading(&mut world);
    process
        .on(
            &world,
            TaskEvent::Failed {
                detail: "the disk".into(),
            },
        )
        .unwrap();
    let second = process.machine.on(
        NOW,
        TaskEvent::Failed {
            detail: "the shutdown".into(),
        },
    );
    assert_eq!(second, Err(Refusal::HasEnded(Ending::Failed)));
    assert_eq!(process.machine.view().reason, "the disk");
}
