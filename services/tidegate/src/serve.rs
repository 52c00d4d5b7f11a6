//! `tidegate serve`: the all-in-one process, from configuration, until SIGTERM.

use std::path::Path;

use tidegate_config::{ConfigArgs, Sources};
use tidegate_process::asked_to_end;
use tidegate_telemetry::{Metrics, MetricsEndpoint};
use tokio::net::TcpListener;

use crate::all_in_one::{AllInOne, AllSettings};
use crate::commands::Outcome;
use crate::failure::Failure;

/// Where an unconfigured `serve` keeps things.
const DATA_DIR: &str = "tidegate-data";

/// Stores below one folder: SQLite, a local object store, the runner's work folder.
pub(crate) fn embedded(sources: Sources, data_dir: &Path) -> Sources {
    let below = |name: &str| data_dir.join(name).display().to_string();
    sources
        .program("metadata.url", format!("sqlite://{}", below("metadata.db")))
        .program("objects.url", below("objects"))
        .program("runner.work_dir", below("work"))
}

pub(crate) async fn serve(arguments: &ConfigArgs) -> Result<Outcome, Failure> {
    let data_dir = std::path::absolute(DATA_DIR)
        .map_err(|error| Failure::Other(format!("the current folder is not known: {error}")))?;
    let settings = AllSettings::load(&embedded(arguments.sources(), &data_dir))?;
    if arguments.check_config {
        settings.effective.iter().for_each(|line| println!("{line}"));
        return Ok(Outcome::Good);
    }
    // Only when it is used: a configured serve makes no folder here.
    if settings.runner.runner.work_dir.starts_with(&data_dir)
        || settings
            .coordinator
            .metadata
            .url
            .expose()
            .contains(&data_dir.display().to_string())
    {
        make_folder(&data_dir)?;
    }
    let metrics = Metrics::new("tidegate");
    let telemetry = tidegate_telemetry::init("tidegate", settings.common(), &metrics)
        .map_err(|error| Failure::Other(format!("telemetry: {error}")))?;
    let address = &settings.coordinator.coordinator.address;
    let _endpoint = MetricsEndpoint::start(address.metrics(), metrics.clone())
        .await
        .map_err(|error| Failure::Other(format!("{error}; set coordinator.metrics_listen")))?;
    let listen = address.listen;
    let listener = TcpListener::bind(listen).await.map_err(|error| {
        Failure::Other(format!(
            "cannot listen on {listen}: {error}; set coordinator.listen"
        ))
    })?;
    let mut services = AllInOne::start(&settings, listener, &metrics).await?;
    tracing::info!(address = services.address(), "all four services are up");
    let failure = tokio::select! {
        () = asked_to_end() => None,
        failure = services.ended() => Some(failure),
    };
    services.drain().await;
    tracing::info!("all four services are out");
    telemetry.flush().await;
    failure.map_or(Ok(Outcome::Good), Err)
}

pub(crate) fn make_folder(path: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(path)
        .map_err(|error| Failure::Other(format!("cannot make the folder {}: {error}", path.display())))
}
