//! From the staged to the final key, after the commit.
//!
//! Where it may die, and what happens then (docs/decisions/0001-staged-then-promoted.md):
//! before the copy, or in its middle: the catalog names the staged object, which is whole; the loop copies again.
//! After the copy, before the catalog is told: the same; the copy is repeated, with the same bytes. After the
//! catalog is told, before the staged object is deleted: an orphan, which the sweep takes. After that: done. In no
//! case is there a final key without a committed segment, nor two final keys for one.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use tidegate_metadata::{CatalogSegment, Ordinal, PublisherStore, StoreError};
use tidegate_objects::{Key, Objects, ObjectsError, VerifyError, final_key, is_staged};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::verified::Verified;

/// Copies at a time.
const COPY_AT_ONCE: usize = 8;
const PAGE: u32 = 200;
/// How often the loop looks without being told to.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How long the loop waits after a pass in which something failed.
const AFTER_FAILURE: Duration = Duration::from_secs(2);

/// Why a segment does not stand at its final key yet.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PromoteError {
    #[error(transparent)]
    Object(#[from] VerifyError),
    #[error(transparent)]
    Objects(#[from] ObjectsError),
    #[error(transparent)]
    Key(#[from] tidegate_objects::InvalidKey),
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(crate) struct Promoter {
    pub(crate) store: Arc<dyn PublisherStore>,
    pub(crate) objects: Objects,
    pub(crate) verified: Arc<Verified>,
    /// Rung when something was left to do.
    pub(crate) bell: Notify,
}

impl Promoter {
    /// Promotes one segment; one that is promoted already is left alone. May be repeated, also at the same time.
    pub(crate) async fn promote(&self, segment: &CatalogSegment) -> Result<(), PromoteError> {
        if segment.promoted {
            return Ok(());
        }
        let file = &segment.file;
        let (from, to) = (Key::parse(&file.key)?, final_key(&file.id)?);
        if from != to {
            self.objects
                .promote(&from, &to, file.size_bytes, &file.sha256)
                .await?;
        }
        self.store.mark_promoted(segment.ordinal, to.as_str()).await?;
        if is_staged(&from) {
            self.drop_staged(segment, &from).await;
        }
        Ok(())
    }

    /// The staged copy is of no use any more. What fails here is the sweep's.
    async fn drop_staged(&self, segment: &CatalogSegment, staged: &Key) {
        match self
            .store
            .referenced_keys(std::slice::from_ref(&segment.file.key))
            .await
        {
            Ok(still) if still.is_empty() => {}
            Ok(_) => return,
            Err(error) => return tracing::debug!(%error, %staged, "left to the sweep"),
        }
        self.verified.forget(&segment.file);
        if let Err(error) = self.objects.delete(staged).await {
            tracing::debug!(%error, %staged, "left to the sweep");
        }
    }

    /// Promotes these, some at a time. Those that fail are left to the loop.
    pub(crate) async fn promote_all(&self, segments: &[CatalogSegment]) {
        let failures = stream::iter(segments.to_vec())
            .map(|segment| async move {
                let error = self.promote(&segment).await.err()?;
                tracing::warn!(segment = %segment.file.id, %error, "published, not yet at its final key; goes on");
                Some(())
            })
            .buffer_unordered(COPY_AT_ONCE)
            .filter_map(std::future::ready)
            .count()
            .await;
        if failures > 0 {
            self.bell.notify_one();
        }
    }

    /// Promotes all that is left, once; the number of those that failed.
    pub(crate) async fn pass(&self) -> Result<usize, StoreError> {
        let mut after = Ordinal(0);
        let mut failed = 0;
        loop {
            let page = self.store.unpromoted(after, PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(failed);
            };
            after = last.ordinal;
            let results = stream::iter(page)
                .map(|segment| async move {
                    let result = self.promote(&segment).await;
                    (segment, result)
                })
                .buffer_unordered(COPY_AT_ONCE)
                .collect::<Vec<_>>()
                .await;
            for (segment, result) in results {
                let Err(error) = result else { continue };
                failed += 1;
                let lost = matches!(&error, PromoteError::Object(error) if error.is_bad_object());
                if lost {
                    // Somebody else deleted it: only a person can help, so it is said each time.
                    tracing::error!(segment = %segment.file.id, %error, "the object of a published segment is gone");
                } else {
                    tracing::warn!(segment = %segment.file.id, %error, "cannot be promoted now; tried again");
                }
            }
        }
    }

    /// Promotes what a crash or an outage left, for ever.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let pause = match self.pass().await {
                Ok(0) => LOOK_AGAIN,
                Ok(_) => AFTER_FAILURE,
                Err(error) => {
                    tracing::warn!(%error, "cannot look for segments to promote; tried again");
                    AFTER_FAILURE
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                // Told that something failed a moment ago: not at once again.
                () = self.bell.notified() => {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = tokio::time::sleep(AFTER_FAILURE) => {}
                    }
                }
            }
        }
    }
}
