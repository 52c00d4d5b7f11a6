//! A crash at every action boundary (I6), and files that are gone afterwards (B56).

use proptest::prelude::*;
use tidegate_types::{EndOffsets, PartitionId, PartitionOffsets, SequenceId, StartOffsets, TimestampMillis};

use super::super::*;
use super::world::*;

fn start() -> StartOffsets {
    StartOffsets::from([(0, 0), (1, 0)])
}

fn end() -> EndOffsets {
    EndOffsets::from([(0, 9), (1, 2)])
}

/// Runs one task to its end, with a crash after each of `steps` steps, counted from the start of that life.
/// `drained`: the process says good-bye first.
fn run_with_crashes(world: &mut World, steps: &[usize], damage: impl Fn(&mut World)) -> Process {
    let given = assignment(&start(), "base");
    let mut lives = steps.iter().copied().chain([usize::MAX]);
    loop {
        let mut left = lives.next().unwrap();
        let mut process = world.restart(&given);
        let mut asked = false;
        loop {
            if left == 0 {
                damage(world);
                break;
            }
            left -= 1;
            let stands = matches!(process.machine.life(), Life::Reading { .. });
            if stands && !asked && process.machine.next().get(PartitionId(0)) >= end().get(PartitionId(0)) {
                process.on(world, TaskEvent::Pause).unwrap();
                asked = true;
            }
            if process.machine.life() == Life::Paused {
                let event = order("d1", end());
                process.on(world, event).unwrap();
            }
            if !process.step(world) {
                if process.gone {
                    return process;
                }
                // At rest while reading: everything written is read; partition 1 may have been last.
                asked = true;
                if process.on(world, TaskEvent::Pause).is_err() {
                    return process;
                }
            }
        }
    }
}

fn check(world: &World, process: &Process, context: &str) {
    assert_eq!(
        process.machine.life(),
        Life::Ended(Ending::Published),
        "{context}"
    );
    let mut letters: Vec<char> = world.catalog.values().flat_map(|rows| rows.chars()).collect();
    letters.sort_unstable();
    assert_eq!(
        letters.iter().collect::<String>(),
        "abcdefgh",
        "each row exactly once (I1): {context}"
    );
    assert_eq!(
        world.committed,
        PartitionOffsets::from([(0, 9), (1, 2)]),
        "{context}"
    );
    let counts = process.machine.record().read.counts;
    assert_eq!(
        (counts.accepted, counts.unparseable, counts.tombstones),
        (8, 2, 1),
        "{context}"
    );
    assert!(world.files.is_empty(), "nothing is left behind: {context}");
}

fn world(persist_every: usize) -> World {
    World {
        persist_every,
        max_rows_per_segment: 1,
        ..World::new(&start())
    }
}

#[test]
fn restore_after_a_crash_at_every_action_boundary() {
    for persist_every in [1, 2, 3, 100] {
        let mut steps = 1;
        loop {
            let mut world = world(persist_every);
            let process = run_with_crashes(&mut world, &[steps], |_| {});
            check(
                &world,
                &process,
                &format!("persist every {persist_every}, crash after {steps} steps"),
            );
            if steps > 120 {
                break;
            }
            steps += 1;
        }
    }
}

#[test]
fn d3_a_crash_right_after_a_threshold_persist_doubles_no_row() {
    let mut world = World {
        persist_every: 2,
        ..World::new(&start())
    };
    let given = assignment(&start(), "base");
    let mut process = world.restart(&given);
    while world.files.is_empty()
        || !world
            .record
            .as_ref()
            .is_some_and(|record| record.contains("\"file\":"))
    {
        assert!(process.step(&mut world));
    }
    let record: TaskRecord = serde_json::from_str(world.record.as_ref().unwrap()).unwrap();
    assert_eq!(record.read.counts.accepted, 2);
    assert_eq!(
        record.read.next,
        PartitionOffsets::from([(0, 2), (1, 0)]),
        "next counts exactly the rows in the runs"
    );
}

#[test]
fn b56_a_missing_run_means_reading_again_from_the_start() {
    for steps in 1..120 {
        let mut world = world(2);
        let damage = |world: &mut World| {
            if let Some(file) = world.files.keys().next().cloned() {
                world.files.remove(&file);
            }
        };
        let process = run_with_crashes(&mut world, &[steps], damage);
        check(&world, &process, &format!("a file removed after {steps} steps"));
    }
}

#[test]
fn d11_a_task_that_crashes_after_its_commit_still_waits_for_the_handoff() {
    let mut world = World {
        serves: false,
        ..world(3)
    };
    let given = Assignment {
        end: Some(decision(&end())),
        ..assignment(&start(), "base")
    };
    let mut process = world.restart(&given);
    while process.machine.view().step != Step::Handoff {
        assert!(process.step(&mut world));
    }
    assert!(process.step(&mut world), "the commit is saved");
    let mut process = world.restart(&given);
    process.step(&mut world);
    assert_eq!(process.machine.view().step, Step::Handoff);
    assert_eq!(
        process.machine.record().parts[0]
            .published
            .as_ref()
            .unwrap()
            .waiting()
            .len(),
        8
    );
    world.serves = true;
    process.run(&mut world);
    check(&world, &process, "handoff after a restart");
}

#[test]
fn a_drained_task_is_restored_without_reading_a_row_twice() {
    let given = assignment(&start(), "base");
    for steps in 0..60 {
        let mut world = world(4);
        let mut process = world.restart(&given);
        for _ in 0..steps {
            process.step(&mut world);
        }
        process.on(&world, TaskEvent::Drain).unwrap();
        process.run(&mut world);
        assert!(process.gone, "after {steps} steps");
        let process = run_with_crashes(&mut world, &[], |_| {});
        check(&world, &process, &format!("drained after {steps} steps"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn i6_any_number_of_crashes_anywhere_ends_with_each_row_once(
        persist_every in 1_usize..12,
        steps in proptest::collection::vec(1_usize..60, 0..6),
        lose_answer: bool,
    ) {
        let mut world = World { lose_answer, ..world(persist_every) };
        let process = run_with_crashes(&mut world, &steps, |_| {});
        check(&world, &process, "");
    }

    #[test]
    fn no_order_of_events_breaks_the_record_or_revives_an_ended_task(
        events in proptest::collection::vec((0_usize..14, 0_i64..10), 1..60),
    ) {
        let (mut machine, _) = TaskMachine::assign(assignment(&start(), "base"), SETTINGS, TimestampMillis(0));
        let mut ended = None;
        for (kind, number) in events {
            let next = PartitionOffsets::from([(0, number), (1, 0)]);
            let event = match kind {
                0 => TaskEvent::Opened(LocalState::Intact),
                1 => TaskEvent::Pause,
                2 => TaskEvent::Resume,
                3 => order(&number.to_string(), next),
                4 => TaskEvent::Stop { reason: StopReason::Stopped, keep: number > 5 },
                5 => TaskEvent::Drain,
                6 => TaskEvent::StoodStill { ticket: Ticket(number as u64), next: machine.next().clone() },
                7 => TaskEvent::Merged { part: SequenceId(0), segments: Vec::new() },
                8 => TaskEvent::Wake,
                9 => TaskEvent::HandoffAnswered(Vec::new()),
                10 => TaskEvent::Hindered("x".into()),
                11 => TaskEvent::Failed { detail: "x".into() },
                12 => TaskEvent::PublishAnswered { part: SequenceId(0), answer: PublishAnswer {
                    outcome: Outcome::Published, detail: String::new(), committed: None, segments: Vec::new(),
                    retry_after_millis: 0,
                } },
                _ => {
                    let read = ReadState { next: machine.next().clone(), ..machine.record().read.clone() };
                    let ticket = Some(Ticket(number as u64));
                    TaskEvent::Persisted { ticket, snapshot: Box::new(Snapshot { read, runs: Vec::new() }) }
                }
            };
            let before = machine.record().clone();
            let answer = machine.on(TimestampMillis(number), event);
            if let Ok(actions) = &answer {
                // What a call is answered with is durable by then.
                let save = actions.iter().position(|action| *action == TaskAction::Save);
                let said = actions.iter().position(|action| matches!(action, TaskAction::Answer(_)));
                if said.is_some() && *machine.record() != before {
                    prop_assert!(save < said, "{actions:?}");
                    prop_assert!(save.is_some());
                }
            } else {
                prop_assert_eq!(machine.record(), &before);
            }
            prop_assert_eq!(machine.record().broken(), None);
            if let Some(ended) = ended {
                prop_assert_eq!(machine.life(), Life::Ended(ended));
            }
            if let Life::Ended(ending) = machine.life() {
                ended = Some(ending);
            }
        }
    }
}
