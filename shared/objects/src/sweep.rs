//! Removing staged objects that nothing refers to.

use std::time::{Duration, SystemTime};

use futures::StreamExt;

use crate::error::ObjectsError;
use crate::key::Key;
use crate::layout::{STAGING, is_staged};
use crate::remote::OPEN_UPLOAD;
use crate::store::{Backend, Head, Objects};

/// What a sweep did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Staged objects seen.
    pub seen: u64,
    /// Younger than the grace time.
    pub young: u64,
    /// Old, but the caller wants them.
    pub kept: u64,
    /// Deleted.
    pub deleted: u64,
    pub deleted_bytes: u64,
    /// Uploads in parts that were aborted, since their uploader is gone.
    pub aborted_uploads: u64,
    /// Could not be removed; the next sweep tries again.
    pub failed: u64,
}

impl Objects {
    /// Deletes staged objects (never others) older than `grace` for which `keep` is false, and aborts uploads in
    /// parts that are as old. `keep` is asked right before each deletion; it must be true for every key that a
    /// transaction may still claim. Failures are counted, logged, and left to the next sweep.
    pub async fn sweep(
        &self,
        grace: Duration,
        keep: impl Fn(&Key) -> bool,
    ) -> Result<SweepReport, ObjectsError> {
        let staging = Key::parse(STAGING).map_err(|error| {
            self.place("sweep", STAGING)
                .error(crate::ErrorKind::Rejected, error)
        })?;
        let now = SystemTime::now();
        let mut report = SweepReport::default();
        let mut listing = self.list(&staging);
        while let Some(found) = listing.next().await {
            let head = found?;
            if !is_staged(&head.key) {
                continue;
            }
            report.seen += 1;
            // An object from the future (clocks differ) is young.
            if now.duration_since(head.modified).is_ok_and(|age| age >= grace) {
                self.sweep_one(&head, &keep, &mut report).await;
            } else {
                report.young += 1;
            }
        }
        Ok(report)
    }

    async fn sweep_one(&self, head: &Head, keep: &impl Fn(&Key) -> bool, report: &mut SweepReport) {
        let key = &head.key;
        if keep(key) {
            report.kept += 1;
            return;
        }
        let swept = match &self.backend {
            Backend::Remote(remote) if key.as_str().ends_with(OPEN_UPLOAD) => {
                let aborted = remote
                    .abort_open_upload(key, self.place("abort the upload of", key.as_str()))
                    .await;
                report.aborted_uploads += u64::from(aborted.is_ok());
                aborted
            }
            _ => {
                let deleted = self.delete(key).await;
                if deleted.is_ok() {
                    report.deleted += 1;
                    report.deleted_bytes += head.size;
                }
                deleted
            }
        };
        if let Err(error) = swept {
            tracing::warn!(%error, "a staged object could not be swept; the next sweep tries again");
            report.failed += 1;
        }
    }
}
