//! Entry of `tidegate-coordinator`; the life of the process is `tidegate_process`, everything else is in the library.

use std::process::ExitCode;

use tidegate_config::CoordinatorConfig;
use tidegate_coordinator::{Peers, run};
use tidegate_process::{Process, Started};

#[tokio::main]
async fn main() -> ExitCode {
    let process = Process {
        name: "coordinator",
        binary: "tidegate-coordinator",
        about: "Owns supervisors, task groups and tasks; places tasks on runners.",
        version: env!("CARGO_PKG_VERSION"),
        common: |config: &CoordinatorConfig| &config.common,
        address: |config: &CoordinatorConfig| &config.coordinator.address,
        listen_key: "coordinator.listen",
    };
    process.run(serve).await
}

async fn serve(started: Started<CoordinatorConfig>) -> anyhow::Result<()> {
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
