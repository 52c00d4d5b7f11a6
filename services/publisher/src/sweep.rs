//! Staged objects that nobody will ever claim.
//!
//! An object may be claimed by the publish of a group that has not ended, and it was staged after that group was
//! registered. So what is swept is older than the oldest such group by the grace time, and is not named by the
//! catalog. The grace covers clocks that differ and calls under way. Groups of a past generation are fenced and
//! count as ended.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tidegate_metadata::{Ordinal, PublisherStore, StoreError};
use tidegate_objects::{Objects, ObjectsError, SweepReport};
use tidegate_telemetry::{Metrics, families};
use tokio_util::sync::CancellationToken;

use crate::clock;

const PAGE: u32 = 1000;

#[derive(Debug, thiserror::Error)]
pub(crate) enum SweepError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Objects(#[from] ObjectsError),
}

pub(crate) struct Sweeper {
    pub(crate) store: Arc<dyn PublisherStore>,
    pub(crate) objects: Objects,
    pub(crate) metrics: Metrics,
    pub(crate) grace: Duration,
}

impl Sweeper {
    /// One sweep. The order matters: first what may still be claimed, then what is claimed; a group that
    /// publishes and ends between the two questions has objects that are too young.
    pub(crate) async fn sweep(&self) -> Result<SweepReport, SweepError> {
        let oldest = self.store.oldest_open_group().await?;
        let open_for = oldest.map_or(0, |since| clock::now().0.saturating_sub(since.0));
        let grace = self.grace + Duration::from_millis(u64::try_from(open_for).unwrap_or(0));
        let claimed = self.claimed().await?;
        let report = self
            .objects
            .sweep(grace, |key| claimed.contains(key.as_str()))
            .await?;
        let swept = [
            ("object", report.deleted),
            ("upload", report.aborted_uploads),
            ("failed", report.failed),
        ];
        for (what, count) in swept {
            self.metrics.count(&families::SWEPT, [what], count);
        }
        Ok(report)
    }

    /// Staged keys that the catalog names.
    async fn claimed(&self) -> Result<HashSet<String>, StoreError> {
        let mut claimed = HashSet::new();
        let mut after = Ordinal(0);
        loop {
            let page = self.store.unpromoted(after, PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(claimed);
            };
            after = last.ordinal;
            claimed.extend(page.into_iter().map(|segment| segment.file.key));
        }
    }

    /// Sweeps now and then.
    pub(crate) async fn run(self, interval: Duration, stop: CancellationToken) {
        if interval.is_zero() {
            return;
        }
        loop {
            match self.sweep().await {
                Ok(report) if report.deleted + report.aborted_uploads + report.failed > 0 => {
                    tracing::info!(?report, "swept staged objects");
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "staged objects were not swept; the next sweep tries again");
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(interval) => {}
            }
        }
    }
}
