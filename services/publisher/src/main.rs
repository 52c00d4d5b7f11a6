//! Entry of `tidegate-publisher`; the life of the process is `tidegate_process`, everything else is in the library.

use std::process::ExitCode;

use tidegate_config::PublisherConfig;
use tidegate_process::{Process, Started};
use tidegate_publisher::run;

#[tokio::main]
async fn main() -> ExitCode {
    let process = Process {
        name: "publisher",
        binary: "tidegate-publisher",
        about: "Keeps the segment catalog and the committed offsets.",
        version: env!("CARGO_PKG_VERSION"),
        common: |config: &PublisherConfig| &config.common,
        address: |config: &PublisherConfig| &config.publisher.address,
        listen_key: "publisher.listen",
    };
    process.run(serve).await
}

async fn serve(started: Started<PublisherConfig>) -> anyhow::Result<()> {
    Ok(run(
        started.config,
        started.metrics,
        started.listener,
        started.shutdown,
    )
    .await?)
}
