//! What goes wrong, and what people ask for meanwhile.

#![allow(clippy::unnecessary_wraps, reason = "all steps of the world have one shape")]

use rand::Rng as _;
use tidegate_protocol::supervisor::{Command, ResetTo};
use tidegate_types::{RunnerId, TimestampMillis};

use super::{Checked, Happening, World};
use crate::coordinator::{Coordinator, settings};

impl World {
    pub(super) fn trouble(&mut self) -> Checked {
        if self.faults {
            // Quiet times between busy ones, so that groups without a record end too.
            if self.schedule.now.0.div_euclid(15_000) % 2 == 0 {
                self.log.produce(&mut self.random);
            }
            match self.random.random_range(0..600) {
                0..=4 => {
                    let chosen = self.random.random_range(0..self.coordinators.len());
                    self.crash_coordinator(self.coordinators[chosen].life, "at any time");
                }
                31..=33 => {
                    // The lease was not renewed in time: another one takes over, and the old one does not know yet.
                    let index = self.random.random_range(0..self.coordinators.len());
                    self.restart_coordinator(index)?;
                }
                5..=12 => {
                    let runner = self.any_runner();
                    self.crash_runner(&runner, "at any time");
                }
                13..=15 => {
                    self.coverage.hit("publisher away");
                    self.note("the publisher is away".to_owned());
                    self.publisher_is_up = false;
                    let pause = self.random.random_range(100..6_000);
                    self.schedule.after(pause, Happening::PublisherUp);
                }
                23..=26 => {
                    let runner = self.any_runner();
                    let until = self.schedule.now.0 + self.random.random_range(500..15_000);
                    self.coverage.hit("runner cut off");
                    self.note(format!("{runner} is cut off from the coordinator"));
                    self.cut_off.insert(runner, TimestampMillis(until));
                }
                16 if self.log.partitions.len() < 5 => {
                    self.coverage.hit("partition added");
                    self.log.add_partition();
                }
                17 => self.command("suspended", Command::Suspend)?,
                18..=20 => self.command("resumed", Command::Resume)?,
                21 => {
                    self.spec = (
                        self.random.random_range(1..3),
                        self.random.random_range(1..4),
                        self.spec.2 + 1,
                    );
                    let spec = Box::new(settings(self.spec, self.task_duration));
                    self.command("new spec", Command::Submit(spec))?;
                }
                22 => {
                    let key = format!("reset-{}", self.step);
                    let command = Command::Reset {
                        partitions: Default::default(),
                        offsets: self.catalog.offsets(),
                        to: ResetTo::AsSpec,
                        force: true,
                        who: "simulator".to_owned(),
                        why: "a jump to where it stands".to_owned(),
                        key,
                    };
                    self.command("reset", command)?;
                }
                27..=30 => {
                    let groups = Default::default();
                    self.command("checkpoint asked by a person", Command::Checkpoint { groups })?;
                }
                _ => {}
            }
        } else if self.step.is_multiple_of(7) {
            self.command("resumed", Command::Resume)?;
        }
        let pause = self.random.random_range(10..120);
        self.schedule.after(pause, Happening::Trouble);
        Ok(())
    }

    pub(super) fn command(&mut self, what: &'static str, command: Command) -> Checked {
        let now = self.schedule.now;
        let Some(life) = self.leader().map(|leader| leader.life) else {
            return Ok(());
        };
        let Self {
            coordinators, ids, ..
        } = self;
        let Some(Coordinator {
            machine: Some(machine),
            todo,
            ..
        }) = coordinators.iter_mut().find(|one| one.life == life)
        else {
            return Ok(());
        };
        if let Ok(actions) = machine.command(now, command, ids) {
            let idle = todo.is_empty();
            todo.extend(actions);
            self.coverage.hit(what);
            if self.faults {
                self.note(format!("somebody asks: {what}"));
            }
            if idle {
                self.schedule.after(0, Happening::CoordinatorStep { life });
            }
        }
        Ok(())
    }

    pub(super) fn any_runner(&mut self) -> RunnerId {
        let chosen = self.random.random_range(0..self.runners.len());
        self.runners
            .keys()
            .nth(chosen)
            .cloned()
            .unwrap_or_else(|| unreachable!("there are runners"))
    }

    pub(super) fn crash_coordinator(&mut self, life: u64, when: &str) {
        let Some(one) = self.coordinator(life) else {
            return;
        };
        one.crash();
        self.note(format!("a coordinator crashes {when}"));
        self.coverage.hit("coordinator crashed");
        let pause = self.random.random_range(10..8_000);
        let index = self.random.random_range(0..self.coordinators.len());
        self.schedule
            .after(pause, Happening::RestartCoordinator { index });
    }

    pub(super) fn crash_runner(&mut self, runner: &RunnerId, when: &str) {
        let Some(found) = self.runners.get_mut(runner).filter(|found| found.up) else {
            return;
        };
        found.crash();
        self.coverage.hit("runner crashed");
        let long = self.random.random_ratio(1, 4);
        let pause = if long {
            self.random.random_range(6_000..20_000)
        } else {
            self.random.random_range(10..2_000)
        };
        if long {
            self.coverage.hit("runner silent beyond its time-out");
        }
        if self.random.random_ratio(1, 12)
            && let Some(disk) = self
                .runners
                .get_mut(runner)
                .and_then(|found| found.disks.values_mut().next())
        {
            self.coverage.hit("local files lost");
            disk.files.clear();
        }
        self.note(format!("{runner} crashes {when}, back in {pause} ms"));
        self.schedule.after(
            pause,
            Happening::RestartRunner {
                runner: runner.clone(),
            },
        );
    }

    // ---- the coordinator's shell ----
}
