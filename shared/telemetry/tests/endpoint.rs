//! What an operator's tools see.

use std::time::Duration;

use tidegate_config::{CommonConfig, LogConfig, LogFormat, TelemetryConfig};
use tidegate_telemetry::{Metrics, MetricsEndpoint, families, init};

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_liveness_are_served_and_end_with_the_handle() {
    let metrics = Metrics::new("publisher");
    metrics.count(&families::PUBLISHES, ["wiki", "published"], 4);
    let endpoint = MetricsEndpoint::start("127.0.0.1:0".parse().unwrap(), metrics.clone())
        .await
        .unwrap();
    let base = format!("http://{}", endpoint.address());
    let alive = reqwest::get(format!("{base}/livez")).await.unwrap();
    assert!(alive.status().is_success());
    let page = reqwest::get(format!("{base}/metrics")).await.unwrap();
    assert!(
        page.headers()["content-type"]
            .to_str()
            .unwrap()
            .starts_with("text/plain; version=0.0.4")
    );
    let text = page.text().await.unwrap();
    let line = r#"tidegate_publishes_total{outcome="published",service="publisher",supervisor="wiki"} 4"#;
    assert!(text.lines().any(|found| found == line), "{text}");

    let taken = MetricsEndpoint::start(endpoint.address(), metrics)
        .await
        .unwrap_err();
    assert!(taken.to_string().contains("metrics_listen"), "{taken}");
    drop(endpoint);
    while reqwest::get(format!("{base}/livez")).await.is_ok() {
        tokio::task::yield_now().await;
    }
}

/// A collector that is away must cost nothing but the bounded wait at the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_stops_nothing() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let config = CommonConfig {
        protocol: Default::default(),
        log: LogConfig {
            level: "info".into(),
            format: LogFormat::Json,
        },
        telemetry: TelemetryConfig {
            otlp_endpoint: Some(format!("http://{closed}")),
        },
        drain_timeout: Duration::from_secs(1),
    };
    let metrics = Metrics::new("coordinator");
    let guard = init("coordinator", &config, &metrics).unwrap();
    metrics.set(&families::LEADER, [], 1.0);
    tracing::info_span!("work").in_scope(|| tracing::info!("logged"));
    assert!(
        init("coordinator", &config, &metrics).is_err(),
        "a process has one subscriber"
    );
    tokio::time::timeout(Duration::from_secs(20), guard.flush())
        .await
        .unwrap();
    assert!(metrics.text().contains("tidegate_coordinator_leader"));
}
