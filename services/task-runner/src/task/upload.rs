//! Bringing merged segments into the object store, each under a staged key of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use tidegate_objects::{ErrorKind, Key, ObjectsError, staging_folder};
use tidegate_protocol::task::{MergedSegment, StagedObject, TaskEvent};
use tidegate_telemetry::families;
use tidegate_types::{SequenceId, SupervisorId, TaskId};

use super::{Inbox, Shared};
use crate::live::Live;

/// Uploads of one task at a time.
const AT_ONCE: usize = 2;

/// What an upload needs.
pub(crate) struct Job {
    pub(crate) shared: Shared,
    pub(crate) part: SequenceId,
    pub(crate) rows: PathBuf,
    pub(crate) task: TaskId,
    pub(crate) supervisor: SupervisorId,
    pub(crate) inbox: Inbox,
    pub(crate) live: Arc<Live>,
}

impl Job {
    /// Uploads all of them, telling each; gives up only when a local file is the fault.
    pub(crate) async fn run(self, segments: Vec<MergedSegment>) {
        let folder = match staging_folder(&self.task) {
            Ok(folder) => folder,
            Err(error) => {
                self.inbox.send(TaskEvent::Failed {
                    detail: format!("no staging folder can be named: {error}"),
                });
                return;
            }
        };
        let (job, folder) = (&self, &folder);
        let uploads = segments.into_iter().map(|segment| async move {
            let event = match job.until_it_stands(&segment, folder).await {
                Ok(object) => TaskEvent::Uploaded {
                    part: job.part,
                    object,
                },
                Err(error) => TaskEvent::Failed {
                    detail: format!("segment {}: {error}", segment.segment),
                },
            };
            job.inbox.send(event);
        });
        stream::iter(uploads)
            .buffer_unordered(AT_ONCE)
            .collect::<()>()
            .await;
    }

    /// Outages and throttling are waited out, refused keys slowly, since they get fixed (B55).
    async fn until_it_stands(
        &self,
        segment: &MergedSegment,
        folder: &Key,
    ) -> Result<StagedObject, ObjectsError> {
        let file = self.rows.join(&segment.file);
        let mut backoff = tidegate_objects::Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
        let supervisor = self.supervisor.as_str();
        loop {
            let began = Instant::now();
            match self.shared.objects.upload_staged(&file, folder).await {
                Ok(uploaded) => {
                    let metrics = &self.shared.metrics;
                    metrics.time(&families::UPLOAD_TIME, [supervisor], began.elapsed());
                    metrics.count(&families::UPLOAD_BYTES, [supervisor], uploaded.size);
                    self.live.advance(uploaded.size);
                    if uploaded.sha256 != segment.sha256 {
                        // The local file changed after it was merged: publishing it would publish something else.
                        return Err(ObjectsError {
                            kind: ErrorKind::Rejected,
                            action: "upload",
                            key: uploaded.key.to_string(),
                            store: self.shared.objects.address().to_owned(),
                            detail: format!("{} is not the file that was merged", file.display()),
                        });
                    }
                    return Ok(StagedObject {
                        segment: segment.segment.clone(),
                        key: uploaded.key.to_string(),
                        bytes: uploaded.size,
                        sha256: uploaded.sha256,
                    });
                }
                Err(error) if !file.exists() => return Err(error),
                Err(error) => {
                    let what = if error.kind == ErrorKind::Throttled {
                        "THROTTLED: "
                    } else {
                        ""
                    };
                    tracing::warn!(%error, "an upload is tried again");
                    self.inbox.send(TaskEvent::Hindered(format!("{what}{error}")));
                    tokio::time::sleep(backoff.next_wait()).await;
                }
            }
        }
    }
}
