//! The command line and the all-in-one process, as a library so that scenarios can use their parts.
//!
//! Owns: how a person talks to Tidegate, the generator of wiki edits, the quickstart. Every command but `serve` and
//! `quickstart` is a client of the public gRPC API and nothing else.
//! Must never: reach behind that API for what it shows.

mod all_in_one;
pub mod cli;
mod client;
mod commands;
mod failure;
pub mod generator;
mod plain_json;
mod quickstart;
mod report;
mod serve;
mod views;
mod words;

pub use client::Coordinator;
pub use commands::Outcome;
pub use failure::Failure;
pub use plain_json::plain_json;

use cli::{Cli, Command};

/// Runs one command to its end. What it prints goes to standard output; a failure is for the caller to print.
pub async fn run(cli: Cli) -> Result<Outcome, Failure> {
    let Cli {
        output,
        server,
        command,
    } = cli;
    match command {
        Command::Quickstart(arguments) => quickstart::quickstart(&arguments, output).await,
        Command::Serve(arguments) => serve::serve(&arguments).await,
        Command::Supervisor(command) => {
            commands::supervisor(Coordinator::at(&server)?, output, command).await
        }
        Command::Task(command) => commands::task(Coordinator::at(&server)?, output, command).await,
        Command::Segment(command) => commands::segment(Coordinator::at(&server)?, output, command).await,
        Command::Verify { data_source, deep } => {
            commands::verify(Coordinator::at(&server)?, output, data_source, deep).await
        }
        Command::Runner(command) => commands::runner(Coordinator::at(&server)?, output, command).await,
        Command::Health { address } => commands::health(output, address).await,
    }
}
