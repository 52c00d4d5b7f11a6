//! Entry of `tidegate-task-runner`; the life of the process is `tidegate_process`, everything else is in the library.

use std::process::ExitCode;

use tidegate_config::RunnerConfig;
use tidegate_process::{Process, Started};
use tidegate_task_runner::{Peers, run};

#[tokio::main]
async fn main() -> ExitCode {
    let process = Process {
        name: "task-runner",
        binary: "tidegate-task-runner",
        about: "Reads Kafka, builds segments, publishes them through the publisher.",
        version: env!("CARGO_PKG_VERSION"),
        common: |config: &RunnerConfig| &config.common,
        address: |config: &RunnerConfig| &config.runner.address,
        listen_key: "runner.listen",
    };
    process.run(serve).await
}

async fn serve(started: Started<RunnerConfig>) -> anyhow::Result<()> {
    let peers = Peers::connect(&started.config)?;
    Ok(run(
        started.config,
        peers,
        started.metrics,
        started.listener,
        started.shutdown,
    )
    .await?)
}
