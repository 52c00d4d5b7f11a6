//! Entry of `tidegate-handoff-checker`: settings, telemetry, signals; everything else is in the library.

use std::process::ExitCode;

use clap::Parser;
use tidegate_config::{ConfigArgs, HandoffConfig};
use tidegate_handoff_checker::{Peers, run};
use tidegate_telemetry::{Metrics, MetricsEndpoint};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Asks the serving tier for published segments until it has them.
#[derive(Debug, Parser)]
#[command(name = "tidegate-handoff-checker", version)]
struct Arguments {
    #[command(flatten)]
    config: ConfigArgs,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let loaded = match tidegate_config::load::<HandoffConfig>(&arguments.config.sources()) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if arguments.config.check_config {
        print!("{loaded}");
        return ExitCode::SUCCESS;
    }
    match serve(loaded.settings).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate-handoff-checker: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(config: HandoffConfig) -> anyhow::Result<()> {
    let metrics = Metrics::new("handoff-checker");
    let telemetry = tidegate_telemetry::init("handoff-checker", &config.common, &metrics)?;
    let _endpoint = MetricsEndpoint::start(config.handoff.address.metrics(), metrics.clone()).await?;
    let address = config.handoff.address.listen;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| anyhow::anyhow!("cannot listen on {address}: {error}; set handoff.listen"))?;
    let peers = Peers::connect(&config)?;
    let shutdown = CancellationToken::new();
    let token = shutdown.clone();
    tokio::spawn(async move {
        signal().await;
        token.cancel();
    });
    let ended = run(config, peers, metrics, listener, shutdown).await;
    telemetry.flush().await;
    Ok(ended?)
}

/// SIGTERM or Ctrl-C.
async fn signal() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        Err(error) => {
            tracing::warn!(%error, "SIGTERM cannot be caught; Ctrl-C ends the service");
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}
