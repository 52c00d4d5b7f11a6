//! Starting and ending telemetry of a process.

use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::MeterProvider as _;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{MetricExporter, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::SdkMeterProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tidegate_config::{CommonConfig, LogFormat};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use crate::metrics::Metrics;

/// How long the last spans and numbers may take to leave at the end.
const LAST_EXPORT: Duration = Duration::from_secs(3);

/// Why telemetry cannot start.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error(
        "log.level {level:?} cannot be used ({reason}); write info, or directives such as info,tidegate_kafka=debug"
    )]
    Filter { level: String, reason: String },
    #[error("the OTLP exporter for {endpoint} cannot be made: {reason}; check telemetry.otlp_endpoint")]
    Exporter { endpoint: String, reason: String },
    #[error("another subscriber is installed in this process already")]
    Installed,
    #[error("cannot listen on {address} for metrics: {source}; set the metrics_listen key of the service")]
    Bind {
        address: SocketAddr,
        source: std::io::Error,
    },
}

/// Keeps the exporters; call [`Guard::flush`] (or drop it) at the end of the process.
#[derive(Debug)]
#[must_use = "dropping it ends the exporters"]
pub struct Guard {
    traces: Option<SdkTracerProvider>,
    metrics: Option<SdkMeterProvider>,
}

/// Installs logs (to standard error) and, when configured, OTLP traces and metrics, for the whole process. Call it
/// once, inside a tokio runtime.
pub fn init(
    service: &'static str,
    config: &CommonConfig,
    metrics: &Metrics,
) -> Result<Guard, TelemetryError> {
    let filter = filter(&config.log.level)?;
    let lines = match config.log.format {
        LogFormat::Text => fmt::layer()
            .with_ansi(std::io::stderr().is_terminal())
            .with_writer(std::io::stderr)
            .boxed(),
        LogFormat::Json => fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(std::io::stderr)
            .boxed(),
    };
    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let guard = match &config.telemetry.otlp_endpoint {
        None => Guard {
            traces: None,
            metrics: None,
        },
        Some(endpoint) => export(service, endpoint, metrics)?,
    };
    let spans = guard
        .traces
        .as_ref()
        .map(|provider| tracing_opentelemetry::layer::<Registry>().with_tracer(provider.tracer("tidegate")));
    // The tracing layer is bound to the bare registry, so it stands first; the filter holds for both.
    tracing_subscriber::registry()
        .with(spans)
        .with(filter)
        .with(lines)
        .try_init()
        .map_err(|_| TelemetryError::Installed)?;
    Ok(guard)
}

fn filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::try_new(level).map_err(|error| TelemetryError::Filter {
        level: level.to_owned(),
        reason: error.to_string(),
    })
}

fn export(service: &'static str, endpoint: &str, metrics: &Metrics) -> Result<Guard, TelemetryError> {
    let failed = |error: opentelemetry_otlp::ExporterBuildError| TelemetryError::Exporter {
        endpoint: endpoint.to_owned(),
        reason: error.to_string(),
    };
    let resource = Resource::builder()
        .with_service_name(format!("tidegate-{service}"))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    let spans = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .map_err(failed)?;
    let numbers = MetricExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .build()
        .map_err(failed)?;
    let traces = SdkTracerProvider::builder()
        .with_batch_exporter(spans)
        .with_resource(resource.clone())
        .build();
    let meters = SdkMeterProvider::builder()
        .with_periodic_exporter(numbers)
        .with_resource(resource)
        .build();
    metrics.export_to(meters.meter("tidegate"));
    Ok(Guard {
        traces: Some(traces),
        metrics: Some(meters),
    })
}

impl Guard {
    /// Sends what is left, for a bounded time. A collector that is away costs that time, nothing else.
    pub async fn flush(mut self) {
        let (traces, metrics) = (self.traces.take(), self.metrics.take());
        // The exporters wait for the runtime, so they must not hold one of its threads.
        let _ = tokio::task::spawn_blocking(move || end(traces, metrics)).await;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let (traces, metrics) = (self.traces.take(), self.metrics.take());
        if traces.is_some() || metrics.is_some() {
            // Not joined: nobody waits for telemetry on the way out of an error.
            std::thread::spawn(move || end(traces, metrics));
        }
    }
}

fn end(traces: Option<SdkTracerProvider>, metrics: Option<SdkMeterProvider>) {
    // Telemetry that cannot leave is lost, and there is nowhere left to say so.
    let _ = traces.map(|provider| provider.shutdown_with_timeout(LAST_EXPORT));
    let _ = metrics.map(|provider| provider.shutdown_with_timeout(LAST_EXPORT));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_that_is_none_is_refused_with_how_to_write_it() {
        for level in ["info", "info,tidegate_kafka=debug", "warn,tidegate=trace"] {
            assert!(filter(level).is_ok(), "{level}");
        }
        let error = filter("info,=x=y").unwrap_err().to_string();
        assert!(
            error.contains("log.level") && error.contains("directives"),
            "{error}"
        );
    }
}
