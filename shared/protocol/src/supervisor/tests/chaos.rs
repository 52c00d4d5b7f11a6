//! Random schedules: calls and answers lost, runners away, tasks failing, the coordinator ended between any two
//! actions, commands. In the end everything is published, in order, without gap or overlap.

use std::collections::BTreeMap;

use tidegate_types::{Generation, Offset, PartitionId};

use super::super::*;
use super::world::{Fault, World, settings};
use crate::group::TaskState;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

fn run_until_crash(world: &mut World, dice: &mut Dice) {
    while let Some(event) = world.events.pop_front() {
        let now = world.time();
        let actions = world.supervisor.on(now, event, &mut world.ids);
        for action in actions {
            if dice.roll(400) == 0 {
                world.restart();
                return;
            }
            world.perform(action);
        }
    }
}

fn trouble(world: &mut World, dice: &mut Dice) {
    match dice.roll(12) {
        0 => world.up("r1", dice.roll(3) > 0),
        1 => world.up("r2", dice.roll(3) > 0),
        2 => {
            let kind = ["assign", "pause", "end", "stop", "resume"][dice.roll(5) as usize];
            let fault = if dice.roll(2) == 0 {
                Fault::Lost
            } else {
                Fault::AnswerLost
            };
            world.faults.insert(("*".into(), kind), fault);
        }
        3..=5 => world.faults.clear(),
        6 => {
            if let Some(task) = world.live().first().cloned() {
                world.task(&task).state = TaskState::Failed;
            }
        }
        7 if dice.roll(6) == 0 => drop(world.command(Command::Suspend)),
        8 => drop(world.command(Command::Resume)),
        9 if dice.roll(8) == 0 => {
            let view = dice.roll(1_000);
            let settings = Settings {
                spec_json: format!("{view}"),
                task_view: serde_json::json!(view),
                task_count: 1 + u32::try_from(view % 3).unwrap(),
                replicas: 1 + u32::try_from(view % 2).unwrap(),
                task_duration_millis: 30_000,
                ..settings()
            };
            drop(world.command(Command::Submit(Box::new(settings))));
        }
        _ => {}
    }
}

/// Tasks get on: read, publish when they may, start again when their runner comes back.
fn work(world: &mut World, dice: &mut Dice) {
    let up: Vec<String> = world
        .runners
        .values()
        .filter(|runner| runner.up)
        .flat_map(|runner| runner.tasks.iter().filter(|(_, task)| !task.state.is_ended()))
        .map(|(id, _)| id.to_string())
        .collect();
    for task in up {
        let fake = world.task(&task).clone();
        if fake.state == TaskState::Reading {
            for (partition, next) in fake.next.iter() {
                world.read(&task, partition.0, next.0 + i64::try_from(dice.roll(5)).unwrap());
            }
        } else if fake.state == TaskState::Finishing && dice.roll(4) == 0 {
            world.publish(&task);
        }
    }
}

#[test]
fn whatever_happens_every_range_is_published_once_and_in_order() {
    for seed in 0..60 {
        let mut dice = Dice(seed);
        let short = Settings {
            task_duration_millis: 30_000,
            replicas: 2,
            task_count: 2,
            ..settings()
        };
        let mut world = World::new(short, [(0, 0, 0), (1, 0, 0), (2, 0, 0)]);
        for partition in 0..3 {
            world.bounds(partition, 0, 1_000_000);
        }
        for _ in 0..400 {
            world.now += 1_000;
            trouble(&mut world, &mut dice);
            work(&mut world, &mut dice);
            world.heartbeats();
            world.events.push_back(Event::Tick);
            run_until_crash(&mut world, &mut dice);
            assert_eq!(world.supervisor.broken(), None, "seed {seed}");
        }
        // Heal, then end: everything that is pending gets published.
        world.faults.clear();
        world.up("r1", true);
        world.up("r2", true);
        world.pass(40_000);
        drop(world.command(Command::Terminate {
            publish: Publish::Yes,
            offsets: KeepOffsets::Keep,
        }));
        for _ in 0..200 {
            work(&mut world, &mut dice);
            world.pass(1_000);
            if world.state() == State::Terminated {
                break;
            }
        }
        assert_eq!(
            world.state(),
            State::Terminated,
            "seed {seed}: {:?}",
            world.errors()
        );
        world.pass(3_000);
        assert_eq!(
            world.live(),
            Vec::<String>::new(),
            "seed {seed}: tasks are left over"
        );
        let mut at: BTreeMap<PartitionId, Offset> = BTreeMap::new();
        for (partition, start, end, generation) in &world.published {
            let held = at.insert(*partition, *end).unwrap_or(Offset(0));
            assert_eq!(
                (held, *generation),
                (*start, Generation(0)),
                "seed {seed}: partition {partition}"
            );
        }
        assert!(
            world.published.len() > 3,
            "seed {seed}: it got nowhere: {:?}",
            world.published
        );
        let counted = world.stored.supervisor.as_ref().unwrap().counts.accepted;
        let published: i64 = world
            .published
            .iter()
            .map(|(_, start, end, _)| end.0 - start.0)
            .sum();
        assert_eq!(
            counted,
            u64::try_from(published).unwrap(),
            "seed {seed}: counts of what is published"
        );
    }
}
