//! Logs, traces and metrics: OTLP when configured, a Prometheus endpoint per service.
