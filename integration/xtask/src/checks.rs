//! What CI runs, in one command: setup, format, lints, every test on real servers, the scenarios.
//!
//! Owns the order and the verdict. A failed step does not hide the next one: all run, and the verdict comes last.
//! Never lets a skipped test pass for a run one.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::running::Servers;
use crate::tally::Tally;
use crate::{cargo, setup};

/// The scenarios that CI runs, after the tests.
fn scenarios_in_ci() -> &'static [&'static str] {
    tidegate_scenarios::names()
}

pub(crate) fn run() -> Result<()> {
    let mut steps = Steps::default();
    // Without what these two bring there is nothing to go on with.
    steps.must("setup", setup::run)?;
    let servers = steps.must("servers", Servers::start)?;
    let variables = servers.variables();

    steps.try_to("format", || cargo::run(&["fmt", "--all", "--check"], &[]));
    let lints = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
    steps.try_to("lints", || cargo::run(&lints, &[]));
    // Tests and scenarios start the services as processes: the programs must be there, and be of this checkout.
    steps.try_to("programs", || {
        cargo::run(&["build", "--workspace", "--bins"], &[])
    });
    let mut tally = Tally::default();
    steps.try_to("tests", || tests(&variables, &mut tally));
    for name in scenarios_in_ci() {
        let arguments = ["run", "--quiet", "--package", "xtask", "--", "scenario", name];
        steps.try_to(&format!("scenario {name}"), || cargo::run(&arguments, &variables));
    }
    steps.try_to("stop servers", || {
        drop(servers);
        Ok(())
    });
    steps.verdict(tally)
}

fn tests(variables: &cargo::Variables, tally: &mut Tally) -> Result<()> {
    let mut command = cargo::command(&["test", "--workspace", "--no-fail-fast"], variables);
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo test")?;
    if let Some(output) = child.stdout.take() {
        *tally = Tally::of(output, |line| println!("{line}"))?;
    }
    let status = child.wait().context("cannot wait for cargo test")?;
    if !status.success() {
        bail!("cargo test failed ({status})");
    }
    if tally.ignored > 0 {
        bail!("{} tests were ignored: here every test runs", tally.ignored);
    }
    if tally.passed == 0 {
        bail!("no test ran");
    }
    Ok(())
}

/// What was done, how long it took, what failed.
#[derive(Default)]
struct Steps {
    done: Vec<(String, Duration)>,
    failures: Vec<String>,
}

impl Steps {
    fn must<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("== {name}");
        let began = Instant::now();
        let outcome = step().with_context(|| name.to_owned());
        self.done.push((name.to_owned(), began.elapsed()));
        outcome
    }

    fn try_to(&mut self, name: &str, step: impl FnOnce() -> Result<()>) {
        if let Err(error) = self.must(name, step) {
            eprintln!("FAILED: {error:#}");
            self.failures.push(format!("{error:#}"));
        }
    }

    fn verdict(self, tally: Tally) -> Result<()> {
        println!();
        for (name, took) in &self.done {
            println!("{name:<32} {:>6} s", took.as_secs());
        }
        println!(
            "{:<32} {:>6} s",
            "total",
            self.done.iter().map(|(_, took)| took.as_secs()).sum::<u64>()
        );
        for failure in &self.failures {
            println!("FAILED: {failure}");
        }
        println!("tests: {} passed, {} failed", tally.passed, tally.failed);
        if self.failures.is_empty() {
            return Ok(());
        }
        bail!("{} of {} steps failed", self.failures.len(), self.done.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_does_not_hide_the_next_and_fails_the_whole() {
        let mut steps = Steps::default();
        let mut ran = false;
        steps.try_to("format", || bail!("a line is too long"));
        steps.try_to("lints", || {
            ran = true;
            Ok(())
        });
        assert!(ran);
        assert_eq!(steps.failures, ["format: a line is too long"]);
        let tally = Tally {
            passed: 1,
            ..Tally::default()
        };
        assert_eq!(
            steps.verdict(tally).unwrap_err().to_string(),
            "1 of 2 steps failed"
        );
    }

    #[test]
    fn when_every_step_went_well_so_did_the_whole() {
        let mut steps = Steps::default();
        steps.try_to("format", || Ok(()));
        assert!(steps.verdict(Tally::default()).is_ok());
    }
}
