//! "I am here", with all tasks: at start, every interval, and at once when a task changes.

use std::sync::Arc;
use std::time::Duration;

use tidegate_rpc::clients::RegistryClient;
use tidegate_rpc::coordinator::v1 as wire;
use tidegate_types::{Epoch, TaskId};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::runner::Runner;
use crate::work_dir::WorkDir;

/// Until the coordinator says another one.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// Longest pause while the coordinator does not answer.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Changes that come together go together.
const GATHER: Duration = Duration::from_millis(3);

/// Tells the coordinator of this runner.
pub(crate) struct Heartbeat {
    pub(crate) registry: RegistryClient,
    pub(crate) runner: Arc<Runner>,
    pub(crate) work_dir: Arc<WorkDir>,
    pub(crate) address: String,
    pub(crate) bell: Arc<Notify>,
    pub(crate) timeout: Duration,
    pub(crate) capabilities: Vec<String>,
}

/// How one heartbeat went.
#[derive(Debug)]
pub(crate) enum Beat {
    Heard {
        interval: Duration,
    },
    /// The coordinator knows another living process with this identity (B46).
    Refused(String),
    Lost,
}

impl Heartbeat {
    /// Sends one.
    pub(crate) async fn beat(&self) -> Beat {
        self.runner.drop_forgotten();
        let request = wire::HeartbeatRequest {
            runner_id: self.work_dir.runner().to_string(),
            incarnation: self.work_dir.incarnation().to_owned(),
            address: self.address.clone(),
            slots: self.runner.slots(),
            draining: self.runner.is_draining(),
            tasks: self.runner.statuses(),
            software_version: env!("CARGO_PKG_VERSION").to_owned(),
            capabilities: self.capabilities.clone(),
        };
        self.runner.measure();
        let mut client = self.registry.clone();
        let answer = match tokio::time::timeout(self.timeout, client.heartbeat(request)).await {
            Ok(Ok(answer)) => answer.into_inner(),
            Ok(Err(status)) => {
                let is_refused = matches!(
                    status.code(),
                    tonic::Code::AlreadyExists | tonic::Code::FailedPrecondition
                );
                if is_refused {
                    return Beat::Refused(status.message().to_owned());
                }
                tracing::debug!(code = %status.code(), message = status.message(), "a heartbeat was not heard");
                return Beat::Lost;
            }
            Err(_) => return Beat::Lost,
        };
        if let Err(error) = self.runner.admit(Epoch(answer.coordinator_epoch)).await {
            tracing::warn!(
                ?error,
                "a heartbeat was answered by a coordinator whose lease is over"
            );
            return Beat::Lost;
        }
        for id in answer.acknowledged_tasks {
            if let Ok(id) = TaskId::new(id) {
                self.runner.forget(&id).await;
            }
        }
        let interval = Duration::from_millis(answer.interval_millis);
        Beat::Heard {
            interval: if interval.is_zero() {
                FIRST_INTERVAL
            } else {
                interval
            },
        }
    }

    /// Sends them until `stop`. Restored tasks begin after the first one, unless the coordinator knows another
    /// process of this identity that lives: then they wait until that one is gone.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let mut has_begun = false;
        let mut pause = Duration::from_millis(200);
        loop {
            let wait = match self.beat().await {
                Beat::Heard { interval } => {
                    pause = Duration::from_millis(200);
                    interval
                }
                Beat::Lost => {
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    pause
                }
                Beat::Refused(why) => {
                    tracing::error!(why, "the coordinator refuses this runner; it asks again");
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    if !has_begun {
                        if wait_for(pause, &stop).await {
                            return;
                        }
                        continue;
                    }
                    pause
                }
            };
            if !has_begun {
                self.runner.begin();
                has_begun = true;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
                () = self.bell.notified() => tokio::time::sleep(GATHER).await,
            }
        }
    }
}

/// True when it was told to stop.
async fn wait_for(pause: Duration, stop: &CancellationToken) -> bool {
    tokio::time::timeout(pause, stop.cancelled()).await.is_ok()
}
