//! Entry of `tidegate-handoff-checker`; the life of the process is `tidegate_process`, everything else is in the library.

use std::process::ExitCode;

use tidegate_config::HandoffConfig;
use tidegate_handoff_checker::{Peers, run};
use tidegate_process::{Process, Started};

#[tokio::main]
async fn main() -> ExitCode {
    let process = Process {
        name: "handoff-checker",
        binary: "tidegate-handoff-checker",
        about: "Asks the serving tier for published segments until it has them.",
        version: env!("CARGO_PKG_VERSION"),
        common: |config: &HandoffConfig| &config.common,
        address: |config: &HandoffConfig| &config.handoff.address,
        listen_key: "handoff.listen",
    };
    process.run(serve).await
}

async fn serve(started: Started<HandoffConfig>) -> anyhow::Result<()> {
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
