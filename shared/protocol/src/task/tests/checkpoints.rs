//! Checkpointing mode: sequences are closed and published while the task reads, with a crash at any step.

use proptest::prelude::*;
use tidegate_types::{EndOffsets, PartitionId, PartitionOffsets, SequenceId, StartOffsets, TimestampMillis};

use super::super::*;
use super::world::*;

fn start() -> StartOffsets {
    StartOffsets::from([(0, 0), (1, 0)])
}

fn given() -> Assignment {
    Assignment {
        mode: GroupMode::Checkpointing,
        ..assignment(&start(), "base")
    }
}

fn entry(sequence: u32, end: &EndOffsets, finish: bool) -> LogEntry {
    LogEntry {
        sequence: SequenceId(sequence),
        decision: EndDecision {
            decision_id: format!("d{sequence}"),
            end: end.clone(),
        },
        finish,
    }
}

fn world(max_rows: u64) -> World {
    World {
        max_rows_per_segment: max_rows,
        persist_every: 3,
        ..World::new(&start())
    }
}

/// A coordinator of one task: its log is the log.
#[derive(Debug, Default)]
struct Log(Vec<LogEntry>);

impl Log {
    /// Tells the task what it lacks; decides when it asks; ends it at the end of the topic.
    fn serve(&mut self, world: &World, process: &mut Process) -> bool {
        let machine = &process.machine;
        let Some(open) = machine.record().open_part().map(|part| part.id.0 as usize) else {
            return false;
        };
        let at_rest = machine.life() == Life::Paused;
        if open == self.0.len() && at_rest && machine.view().wish.is_some() {
            self.0.push(entry(open as u32, machine.next(), false));
        }
        if let Some(entry) = self.0.get(open).cloned()
            && at_rest
        {
            process.on(world, TaskEvent::SetEndOffsets(entry)).unwrap();
            return true;
        }
        if self.0.len() > open && machine.life() == (Life::Reading { pausing: None }) {
            process.on(world, TaskEvent::Pause).unwrap();
            return true;
        }
        if self.0.len() == open && at_rest {
            // Somebody paused it to end it: at the end of the topic, or to go on.
            let end = PartitionOffsets::from([(0, 9), (1, 2)]);
            if machine.next().reaches(&end) {
                self.0.push(entry(open as u32, &end, true));
            } else {
                process.on(world, TaskEvent::Resume).unwrap();
            }
            return true;
        }
        false
    }
}

/// Runs a task to its end, with a crash after each of `steps` steps of a life.
fn run(world: &mut World, log: &mut Log, steps: &[usize]) -> Process {
    let mut lives = steps.iter().copied().chain([usize::MAX]);
    loop {
        let mut left = lives.next().unwrap();
        let mut process = world.restart(&given());
        for _ in 0..5_000 {
            if left == 0 {
                break;
            }
            left -= 1;
            if log.serve(world, &mut process) || process.step(world) {
                continue;
            }
            if process.gone {
                return process;
            }
            // At rest: everything that is written is read.
            if process.machine.record().open_part().is_none() {
                return process;
            }
            process.on(world, TaskEvent::Pause).unwrap();
        }
        assert_eq!(left, 0, "it comes to rest: {:?}", process.machine.life());
    }
}

/// Rows of the catalog in order of letters; the topic's rows are a to h.
fn letters(world: &World) -> String {
    let mut letters: Vec<char> = world.catalog.values().flat_map(|rows| rows.chars()).collect();
    letters.sort_unstable();
    letters.into_iter().collect()
}

fn check(world: &World, log: &Log, process: &Process, context: &str) {
    assert_eq!(
        process.machine.life(),
        Life::Ended(Ending::Published),
        "{context}"
    );
    assert_eq!(letters(world), "abcdefgh", "I1 {context}");
    assert_eq!(
        world.committed,
        PartitionOffsets::from([(0, 9), (1, 2)]),
        "{context}"
    );
    assert!(world.files.is_empty(), "{context}");
    let published: Vec<_> = world
        .finished
        .iter()
        .map(|(name, end)| (name.clone(), end.clone()))
        .collect();
    let decided: Vec<_> = log
        .0
        .iter()
        .map(|entry| (format!("base_{}", entry.sequence), entry.decision.end.clone()))
        .collect();
    assert_eq!(
        published, decided,
        "each decided sequence once, in order (I4) {context}"
    );
}

#[test]
fn sequences_are_published_while_the_task_reads_on() {
    let (mut world, mut log) = (world(1), Log::default());
    let mut process = world.start(given());
    let mut while_reading = 0;
    for _ in 0..5_000 {
        if log.serve(&world, &mut process) || process.step(&mut world) {
            if matches!(process.machine.life(), Life::Reading { .. }) {
                while_reading = while_reading.max(world.finished.len());
            }
            continue;
        }
        if process.gone {
            break;
        }
        process.on(&world, TaskEvent::Pause).unwrap();
    }
    check(&world, &log, &process, "");
    assert!(
        log.0.len() >= 8,
        "a sequence per row, and the last one: {}",
        log.0.len()
    );
    assert!(
        while_reading >= 6,
        "published before the end was set: {while_reading}"
    );
    let counts = process.machine.record().counts();
    assert_eq!((counts.accepted, counts.stored), (8, 8));
    assert_eq!((counts.unparseable, counts.tombstones), (2, 1));
}

#[test]
fn i6_a_crash_at_any_step_loses_and_doubles_nothing() {
    for max_rows in [1, 2, 100] {
        for steps in 1..160 {
            let (mut world, mut log) = (world(max_rows), Log::default());
            let process = run(&mut world, &mut log, &[steps]);
            check(
                &world,
                &log,
                &process,
                &format!("{max_rows} rows, crash after {steps} steps"),
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn i6_any_number_of_crashes_and_lost_answers_ends_with_each_row_once(
        max_rows in 1_u64..5,
        persist_every in 1_usize..12,
        steps in proptest::collection::vec(1_usize..80, 0..8),
        lose_answer: bool,
    ) {
        let mut world = World { lose_answer, persist_every, ..world(max_rows) };
        let mut log = Log::default();
        let process = run(&mut world, &mut log, &steps);
        check(&world, &log, &process, "");
    }
}

#[test]
fn a_second_replica_catches_up_over_several_sequences_and_is_superseded_in_each() {
    let (mut world, mut log) = (world(1), Log::default());
    run(&mut world, &mut log, &[]);
    let catalog = world.catalog.clone();
    world.record = None;
    let process = run(&mut world, &mut log, &[]);
    assert_eq!(process.machine.life(), Life::Ended(Ending::Superseded));
    assert_eq!(world.catalog, catalog, "the same ids, the same rows (I3)");
    assert_eq!(process.machine.record().counts().accepted, 8);
    assert!(world.files.is_empty());
}

#[test]
fn a_replacement_gets_the_log_with_its_assignment_and_starts_at_the_first_unpublished_sequence() {
    let (mut world, mut log) = (world(2), Log::default());
    run(&mut world, &mut log, &[]);
    let all = log.0.clone();
    let (first, rest) = all.split_first().unwrap();
    world.committed = first.decision.end.clone();
    world.finished.truncate(1);
    world.record = None;
    let assignment = Assignment {
        start: first.decision.end.clone(),
        first_sequence: SequenceId(1),
        log: rest.to_vec(),
        ..given()
    };
    let catalog = world.catalog.clone();
    let mut process = world.start(assignment);
    process.run(&mut world);
    assert_eq!(process.machine.life(), Life::Ended(Ending::Published));
    assert_eq!(world.catalog, catalog);
    assert_eq!(world.finished.len(), all.len());
}

#[test]
fn ends_are_told_in_order_and_a_different_one_for_a_closed_sequence_is_refused() {
    let (mut world, end) = (world(100), PartitionOffsets::from([(0, 9), (1, 2)]));
    let mut process = world.start(given());
    process.run(&mut world);
    process.on(&world, TaskEvent::Pause).unwrap();
    process.run(&mut world);
    let ask = |process: &mut Process, entry| {
        process
            .machine
            .on(TimestampMillis(5), TaskEvent::SetEndOffsets(entry))
    };
    assert_eq!(
        ask(&mut process, entry(1, &end, false)),
        Err(Refusal::TooEarly {
            sequence: SequenceId(1),
            open: SequenceId(0)
        })
    );
    ask(&mut process, entry(0, &end, false)).unwrap();
    assert_eq!(
        ask(&mut process, entry(0, &end, false)),
        Ok(vec![TaskAction::Answer(Answer::Done)]),
        "I11"
    );
    let other = LogEntry {
        decision: EndDecision {
            decision_id: "other".into(),
            end: end.clone(),
        },
        ..entry(0, &end, false)
    };
    assert!(matches!(ask(&mut process, other), Err(Refusal::OtherEnd { .. })));
}

#[test]
fn a_replica_that_has_read_past_the_decided_end_refuses_it() {
    let mut world = world(100);
    let mut process = world.start(given());
    process.run(&mut world);
    process.on(&world, TaskEvent::Pause).unwrap();
    process.run(&mut world);
    let passed = PartitionOffsets::from([(0, 4), (1, 2)]);
    let answer = process.machine.on(
        TimestampMillis(5),
        TaskEvent::SetEndOffsets(entry(0, &passed, false)),
    );
    assert!(matches!(answer, Err(Refusal::BadEnd(_))), "{answer:?}");
    assert_eq!(process.machine.life(), Life::Paused);
}

#[test]
fn a_finish_with_nothing_new_makes_no_segment_and_ends_the_task() {
    let (mut world, mut log) = (world(100), Log::default());
    let mut process = world.start(given());
    process.run(&mut world);
    process.on(&world, TaskEvent::Pause).unwrap();
    process.run(&mut world);
    let end = PartitionOffsets::from([(0, 9), (1, 2)]);
    for number in 0..2 {
        log.0.push(entry(number, &end, number == 1));
        if number == 1 {
            process.on(&world, TaskEvent::Pause).unwrap();
            while process.machine.life() != Life::Paused {
                assert!(process.step(&mut world));
            }
        }
        process
            .on(&world, TaskEvent::SetEndOffsets(log.0[number as usize].clone()))
            .unwrap();
    }
    process.run(&mut world);
    check(&world, &log, &process, "");
}

#[test]
fn ends_that_reach_a_replica_that_is_still_restoring_are_recorded_and_applied() {
    let (mut world, mut log) = (world(2), Log::default());
    let mut process = world.start(given());
    let end = PartitionOffsets::from([(0, 3), (1, 1)]);
    for number in 0..2 {
        let end = if number == 0 {
            end.clone()
        } else {
            PartitionOffsets::from([(0, 9), (1, 2)])
        };
        log.0.push(entry(number, &end, number == 1));
        let actions = process
            .on(&world, TaskEvent::SetEndOffsets(log.0[number as usize].clone()))
            .unwrap();
        assert_eq!(
            actions[..2],
            [TaskAction::Save, TaskAction::Answer(Answer::Accepted)]
        );
    }
    process.run(&mut world);
    check(&world, &log, &process, "");
}

#[test]
fn a_handoff_that_does_not_come_holds_up_nothing_but_its_own_files() {
    let (mut world, mut log) = (
        World {
            serves: false,
            ..world(1)
        },
        Log::default(),
    );
    let settings = TaskSettings {
        handoff_timeout_millis: 0,
        ..SETTINGS
    };
    let (machine, actions) = TaskMachine::assign(given(), settings, world.now);
    let mut process = world.process(machine, actions);
    for _ in 0..5_000 {
        if log.serve(&world, &mut process) || process.step(&mut world) {
            continue;
        }
        if process.machine.life() == Life::Finishing {
            break;
        }
        process.on(&world, TaskEvent::Pause).unwrap();
    }
    assert_eq!(process.machine.life(), Life::Finishing);
    assert_eq!(letters(&world), "abcdefgh");
    assert_eq!(world.files.len(), 8, "the merged files, and no run (I9)");
    world.serves = true;
    process.run(&mut world);
    check(&world, &log, &process, "");
}

#[test]
fn too_many_parts_that_wait_hold_the_reader_until_one_is_published() {
    let mut world = world(1);
    world.topic.insert(PartitionId(0), vec![Rec::Row(2008, 'x'); 40]);
    world.publisher_says = vec![Outcome::NotYet; 3].into();
    let mut process = world.start(given());
    let mut log = Log::default();
    let mut held_at = 0;
    for _ in 0..20_000 {
        // Publishing does not come to its answer while the reader is ahead.
        let waits = matches!(process.machine.view().step, Step::WaitingToPublish { .. });
        if waits && log.0.len() < 16 && (log.serve(&world, &mut process) || process.step_reading(&mut world))
        {
            continue;
        }
        if log.0.len() == 16 && held_at == 0 {
            held_at = process.machine.next().get(PartitionId(0)).unwrap().0;
            assert!(!process.reads, "held");
            assert_eq!(process.machine.life(), Life::Reading { pausing: None });
        }
        if log.serve(&world, &mut process) || process.step(&mut world) {
            continue;
        }
        break;
    }
    assert!((14..=17).contains(&held_at), "{held_at}");
    assert_eq!(
        process.machine.next().get(PartitionId(0)).unwrap().0,
        40,
        "it went on"
    );
}

#[test]
fn rows_that_are_lost_while_many_parts_wait_are_read_again() {
    let mut world = world(1);
    world.topic.insert(PartitionId(0), vec![Rec::Row(2008, 'x'); 30]);
    world.publisher_says = vec![Outcome::NotYet; 1_000].into();
    let (mut log, mut process) = (Log::default(), world.start(given()));
    for _ in 0..2_000 {
        if !log.serve(&world, &mut process) && !process.step_reading(&mut world) {
            break;
        }
    }
    assert!(log.0.len() >= 16, "{}", log.0.len());
    world.files.clear();
    world.publisher_says.clear();
    let mut process = world.restart(&given());
    for _ in 0..2_000 {
        if !log.serve(&world, &mut process) && !process.step(&mut world) {
            break;
        }
    }
    assert_eq!(
        process.machine.next().get(PartitionId(0)).unwrap().0,
        30,
        "the reader was not held"
    );
    assert!(world.finished.len() >= 16);
}

#[test]
fn a_sequence_is_closed_when_its_period_is_over_but_not_for_nothing() {
    let mut world = world(100);
    world.topic.values_mut().for_each(Vec::clear);
    let settings = TaskSettings {
        handoff_period_millis: Some(60_000),
        ..SETTINGS
    };
    let (machine, actions) = TaskMachine::assign(given(), settings, world.now);
    let mut process = world.process(machine, actions);
    for _ in 0..50 {
        process.step(&mut world);
    }
    assert_eq!(process.machine.view().wish, None, "nothing was read");
    assert_eq!(process.machine.life(), Life::Reading { pausing: None });
    world.topic = records();
    for _ in 0..100 {
        process.step(&mut world);
        if process.machine.life() == Life::Paused {
            break;
        }
    }
    assert_eq!(process.machine.view().wish, Some(Trigger::Period));
    assert_eq!(process.machine.life(), Life::Paused);
}

#[test]
fn the_record_of_a_legacy_task_has_the_shape_of_0_1_0_and_that_of_a_checkpointing_task_has_not() {
    let legacy = TaskRecord::new(assignment(&start(), "base"), TimestampMillis(5));
    let text = serde_json::to_value(&legacy).unwrap();
    let mut keys: Vec<&str> = text.as_object().unwrap().keys().map(String::as_str).collect();
    keys.sort_unstable();
    let of_0_1_0 = [
        "alert",
        "assignment",
        "committed",
        "end",
        "ended",
        "first_read",
        "may_have_published",
        "merged",
        "published",
        "read",
        "runs",
        "staged",
    ];
    assert_eq!(keys, of_0_1_0);
    let assignment_keys: Vec<&String> = text["assignment"].as_object().unwrap().keys().collect();
    assert!(
        !assignment_keys
            .iter()
            .any(|key| *key == "log" || *key == "first_sequence")
    );
    let checkpointing = serde_json::to_value(TaskRecord::new(given(), TimestampMillis(5))).unwrap();
    assert_eq!(checkpointing["assignment"]["mode"], "checkpointing");
    assert_eq!(
        checkpointing["parts"][0]["start"],
        serde_json::json!({"0": 0, "1": 0})
    );
}
