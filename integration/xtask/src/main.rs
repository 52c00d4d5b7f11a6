//! One entry for every chore: `cargo xtask`. CONTRIBUTING.md lists them.
//!
//! Owns the order of the steps and what a person sees of them. Promises an exit status that says whether all went
//! well. Never knows how a server is started (tidegate-servers) or what a scenario does (tidegate-scenarios).

mod cargo;
mod checks;
mod debian;
mod json_line;
mod running;
mod setup;
mod simulate;
mod tally;

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "One entry for every chore."
)]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Install what this machine lacks for the tests: servers, their programs, Python readers.
    Setup,
    /// Everything that CI runs: setup, format, lints, every test, the scenarios.
    Test,
    /// The real servers, for exploring: prints their addresses as environment lines.
    Servers {
        #[command(subcommand)]
        action: ServersAction,
    },
    /// One end-to-end scenario on real servers; the last line printed is a JSON object with "ok".
    Scenario {
        /// Name of the scenario.
        #[arg(required_unless_present = "list")]
        name: Option<String>,
        /// List the names.
        #[arg(long)]
        list: bool,
    },
    /// Many schedules of the deterministic simulator, in release; prints what they met.
    Simulate(simulate::Simulate),
    /// Shows that the simulator finds every mistake that is put in.
    Mutants(simulate::Mutants),
    /// Stages of the hot path alone and together, in release; the last line printed is a JSON object.
    Bench,
}

#[derive(Subcommand)]
enum ServersAction {
    /// Start Kafka, PostgreSQL and S3, and leave them running.
    Up,
    /// Stop what `up` started; their data go too.
    Down,
    /// Hold the servers until the end of this process (`up` runs it in the background).
    #[command(hide = true)]
    Hold,
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().chore {
        Chore::Setup => setup::run(),
        Chore::Test => checks::run(),
        Chore::Servers {
            action: ServersAction::Up,
        } => running::up(),
        Chore::Servers {
            action: ServersAction::Down,
        } => running::down(),
        Chore::Servers {
            action: ServersAction::Hold,
        } => running::hold(),
        Chore::Scenario { list: true, .. } => {
            list_scenarios();
            Ok(())
        }
        Chore::Scenario { name, .. } => scenario(&name.unwrap_or_default()),
        Chore::Simulate(simulate) => in_release(|| simulate.run()),
        Chore::Mutants(mutants) => in_release(|| mutants.run()),
        Chore::Bench => bench(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn list_scenarios() {
    for name in tidegate_scenarios::names() {
        println!("{name}");
    }
}

fn scenario(name: &str) -> Result<()> {
    if !tidegate_scenarios::names().contains(&name) {
        bail!(
            "there is no scenario {name:?}; there are: {}",
            tidegate_scenarios::names().join(", ")
        );
    }
    // Scenarios run the services as processes of their own, from the same target directory as this one.
    cargo::run(&["build", "--quiet", "--workspace", "--bins"], &[])?;
    json_line::finish(&format!("scenario {name}"), tidegate_scenarios::run(name))
}

fn bench() -> Result<()> {
    in_release(|| json_line::finish("bench", tidegate_benches::run()))
}

/// Runs this same command again in release, unless this is it.
fn in_release(chore: impl FnOnce() -> Result<()>) -> Result<()> {
    if !cfg!(debug_assertions) {
        return chore();
    }
    let mut arguments = vec!["run", "--quiet", "--release", "--package", "xtask", "--"];
    let own: Vec<String> = std::env::args().skip(1).collect();
    arguments.extend(own.iter().map(String::as_str));
    cargo::run(&arguments, &[])
}
