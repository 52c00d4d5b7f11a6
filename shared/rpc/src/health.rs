//! The standard gRPC health service: the whole process (empty name) is one thing, serving or not; services whose
//! state differs from it are told by their own names.

use tonic_health::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health as HealthTrait, HealthServer};
use tonic_health::server::HealthReporter;

use crate::Transport;

/// The health of this process.
#[derive(Clone)]
pub struct Health {
    reporter: HealthReporter,
}

impl std::fmt::Debug for Health {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Health")
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl Health {
    /// Serving from the start; say [`Health::not_serving`] before draining.
    pub fn new() -> Self {
        Self {
            reporter: HealthReporter::new(),
        }
    }

    /// The service to put beside others.
    pub(crate) fn service(&self) -> HealthServer<impl HealthTrait + use<>> {
        HealthServer::new(tonic_health::server::HealthService::from_health_reporter(
            self.reporter.clone(),
        ))
    }

    /// The state of one service, by its full name.
    pub async fn set(&self, service: &str, is_serving: bool) {
        let status = if is_serving {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        self.reporter.set_service_status(service, status).await;
    }

    /// Tells load balancers to send nothing new.
    pub async fn not_serving(&self) {
        self.reporter
            .set_service_status("", ServingStatus::NotServing)
            .await;
    }
}

/// Asks a process for its health; `true` = serving.
pub async fn check(transport: Transport) -> Result<bool, tonic::Status> {
    check_service(transport, "").await
}

/// Asks for the health of one service, by its full name.
pub async fn check_service(transport: Transport, service: &str) -> Result<bool, tonic::Status> {
    let answer = HealthClient::new(transport)
        .check(tonic_health::pb::HealthCheckRequest {
            service: service.to_owned(),
        })
        .await?
        .into_inner();
    Ok(answer.status() == tonic_health::pb::health_check_response::ServingStatus::Serving)
}
