//! The life of a service's process: settings, telemetry, listener, signals, exit status.
//!
//! Owns: what is the same in all `tidegate-*` binaries. Promises: exit status 0 after a drain, 1 after a failure, 2
//! for settings that cannot be used; one line on standard error says why; SIGTERM and Ctrl-C ask a service to drain.
//! Must never: know what a service does.

use std::fmt::Display;
use std::process::ExitCode;

use tidegate_config::{CommonConfig, ConfigArgs, ListenConfig, Loaded, Settings};
use tidegate_telemetry::{Metrics, MetricsEndpoint};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// A service, as its process sees it.
#[derive(Debug, Clone, Copy)]
pub struct Process<C> {
    /// E.g. `publisher`, in logs and metrics.
    pub name: &'static str,
    /// E.g. `tidegate-publisher`.
    pub binary: &'static str,
    /// One line for `--help`.
    pub about: &'static str,
    /// Version of the binary.
    pub version: &'static str,
    pub common: fn(&C) -> &CommonConfig,
    pub address: fn(&C) -> &ListenConfig,
    /// The key of the address that it listens on, for errors.
    pub listen_key: &'static str,
}

/// What a service starts with.
#[derive(Debug)]
pub struct Started<C> {
    pub config: C,
    pub metrics: Metrics,
    pub listener: TcpListener,
    /// Cancelled when the process is asked to end.
    pub shutdown: CancellationToken,
}

#[derive(Debug, clap::Parser)]
struct Arguments {
    #[command(flatten)]
    config: ConfigArgs,
}

impl<C: Settings> Process<C>
where
    Loaded<C>: Display,
{
    /// Reads the command line and the settings, and runs `serve` until it returns.
    pub async fn run<F>(self, serve: impl FnOnce(Started<C>) -> F) -> ExitCode
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let command = <Arguments as clap::CommandFactory>::command()
            .name(self.binary)
            .about(self.about)
            .version(self.version);
        let arguments = match <Arguments as clap::FromArgMatches>::from_arg_matches(&command.get_matches()) {
            Ok(arguments) => arguments,
            Err(error) => error.exit(),
        };
        let loaded = match tidegate_config::load::<C>(&arguments.config.sources()) {
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
        match self.serve(loaded.settings, serve).await {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{}: {error:#}", self.binary);
                ExitCode::FAILURE
            }
        }
    }

    async fn serve<F>(&self, config: C, serve: impl FnOnce(Started<C>) -> F) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let metrics = Metrics::new(self.name);
        let telemetry = tidegate_telemetry::init(self.name, (self.common)(&config), &metrics)?;
        let address = (self.address)(&config);
        let _endpoint = MetricsEndpoint::start(address.metrics(), metrics.clone()).await?;
        let listen = address.listen;
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            anyhow::anyhow!("cannot listen on {listen}: {error}; set {}", self.listen_key)
        })?;
        let shutdown = CancellationToken::new();
        let token = shutdown.clone();
        tokio::spawn(async move {
            asked_to_end().await;
            token.cancel();
        });
        let ended = serve(Started {
            config,
            metrics,
            listener,
            shutdown,
        })
        .await;
        telemetry.flush().await;
        ended
    }
}

/// Waits for SIGTERM or Ctrl-C.
pub async fn asked_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }
        Err(error) => {
            tracing::warn!(%error, "SIGTERM cannot be caught; Ctrl-C ends the process");
            // Without either signal there is only SIGKILL, which needs no help.
            let _ = tokio::signal::ctrl_c().await;
        }
    }
}
