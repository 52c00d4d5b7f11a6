//! Logs, traces and metrics: OTLP when configured, a Prometheus endpoint per service.
//!
//! Owns: the global subscriber, the exporters, the names and labels of all metrics ([`families`]) and the HTTP
//! endpoint of `/metrics` and `/livez`. Promises: a metric costs a look-up and an atomic, never I/O; a collector
//! that is away delays nothing. Must never: fail or slow a service because telemetry does.

mod endpoint;
pub mod families;
mod init;
mod metrics;

pub use endpoint::MetricsEndpoint;
pub use init::{Guard, TelemetryError, init};
pub use metrics::{Counter, Gauge, Histogram, Metrics};
