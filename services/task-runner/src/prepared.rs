//! Tasks that were made ready for a group to come (I10).
//!
//! Owns: a slot, a connected consumer, nothing else: no folder, no offsets, no name. Promises: it may be dropped at
//! any time without effect; a process that restarts has none.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_kafka::{ConsumerProperties, ReaderSettings, Warm};
use tidegate_rpc::task_runner::v1 as wire;
use tidegate_spec::SupervisorSpec;
use tokio::sync::Notify;

use crate::ingest::Bounds;

/// Nobody asked for it again or began it for so long: the coordinator is gone.
const MOST_AGE: Duration = Duration::from_mins(5);
/// Between two tries to connect.
const AGAIN: Duration = Duration::from_secs(1);
/// Longest wait for a broker's answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// One of them.
#[derive(Debug)]
pub(crate) struct Prepared {
    status: Mutex<wire::TaskStatus>,
    warm: Mutex<Option<Warm>>,
    made: Instant,
}

impl Prepared {
    /// Begins to connect in the background; `bell` is rung when that is done.
    pub(crate) fn begin(
        request: &wire::PrepareTaskRequest,
        spec: &SupervisorSpec,
        memory: u64,
        bell: Arc<Notify>,
    ) -> Result<Arc<Self>, String> {
        let properties = tidegate_spec::secrets::resolve_properties(&spec.io.consumer_properties)
            .map_err(|error| format!("ioConfig.consumerProperties: {error}"))?;
        let properties = ConsumerProperties::from_java(&properties).map_err(|error| error.to_string())?;
        let settings = ReaderSettings {
            prefetch_bytes: Bounds::of(&spec.tuning, memory).prefetch,
            ..ReaderSettings::default()
        };
        let topic = request
            .stream
            .as_ref()
            .map_or_else(|| spec.io.topic.clone(), |stream| stream.topic.clone());
        let prepared = Arc::new(Self {
            status: Mutex::new(wire::TaskStatus {
                task_id: request.task_id.clone(),
                group_id: request.group_id.clone(),
                supervisor_id: request.supervisor_id.clone(),
                assignment_token: request.assignment_token.clone(),
                state: wire::TaskState::Preparing.into(),
                ..wire::TaskStatus::default()
            }),
            warm: Mutex::new(None),
            made: Instant::now(),
        });
        // Held weakly: one that is dropped stops trying.
        let waiting = Arc::downgrade(&prepared);
        tokio::spawn(async move {
            while waiting.strong_count() > 0 {
                let (properties, topic, settings) = (properties.clone(), topic.clone(), settings.clone());
                let connecting = tokio::task::spawn_blocking(move || {
                    Warm::connect(&properties, &topic, &settings, PATIENCE)
                });
                let Some(prepared) = waiting.upgrade() else { return };
                match connecting.await {
                    Ok(Ok(warm)) => {
                        prepared.is_connected(warm);
                        bell.notify_one();
                        return;
                    }
                    Ok(Err(error)) => prepared.is_waiting(error.to_string()),
                    Err(error) => prepared.is_waiting(error.to_string()),
                }
                drop(prepared);
                tokio::time::sleep(AGAIN).await;
            }
        });
        Ok(prepared)
    }

    pub(crate) fn status(&self) -> wire::TaskStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// The consumer, if it is connected; once.
    pub(crate) fn take(&self) -> Option<Warm> {
        self.warm.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
    pub(crate) fn is_forgotten(&self) -> bool {
        self.made.elapsed() > MOST_AGE
    }

    fn is_connected(&self, warm: Warm) {
        *self.warm.lock().unwrap_or_else(PoisonError::into_inner) = Some(warm);
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.state = wire::TaskState::Prepared.into();
        status.reason.clear();
    }
    fn is_waiting(&self, why: String) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.reason = why;
    }
}
