//! `tidegate`: one binary for people. Exit status: 0 done, 1 failed or "no", 2 wrong command line.

use std::process::ExitCode;

use clap::Parser as _;
use tidegate_cli::cli::Cli;
use tidegate_cli::{Outcome, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let output = cli.output;
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: no threads for the runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(cli)) {
        Ok(Outcome::Good) => ExitCode::SUCCESS,
        Ok(Outcome::Bad) => ExitCode::FAILURE,
        Err(failure) => {
            failure.print(output);
            ExitCode::FAILURE
        }
    }
}
