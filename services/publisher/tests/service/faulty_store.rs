//! A store whose publish goes wrong once, as told; everything else is the real one.

use std::sync::Mutex;

use async_trait::async_trait;
use tidegate_metadata::{
    Allocate, CatalogSegment, CommittedOffsets, InitializeOffsets, Metadata, Ordinal, Publish, PublishAnswer,
    PublisherError, PublisherStore, RegisterGroup, ResetOffsets, SegmentFilter, StoreError, Used,
};
use tidegate_protocol::publish::{PublishRequest, RegisteredGroup};
use tidegate_protocol::verify::{Evidence, PublishedRange};
use tidegate_types::{DataSource, Epoch, GroupId, SegmentId, SupervisorId, TimestampMillis};
use tokio::sync::oneshot;

pub(crate) enum Fault {
    /// Commits, then the line is cut.
    LoseTheAnswer,
    /// The database is not there.
    Away,
    /// Says that it has come, then waits before it commits.
    Wait {
        reached: oneshot::Sender<()>,
        go_on: oneshot::Receiver<()>,
    },
}

pub(crate) struct FaultyStore {
    pub(crate) inner: Metadata,
    next: Mutex<Option<Fault>>,
}

impl FaultyStore {
    pub(crate) fn new(inner: Metadata) -> Self {
        Self {
            inner,
            next: Mutex::new(None),
        }
    }
    pub(crate) fn fail_next_publish(&self, fault: Fault) {
        *self.next.lock().unwrap() = Some(fault);
    }
}

#[async_trait]
impl PublisherStore for FaultyStore {
    async fn publish(&self, call: &Publish) -> Result<PublishAnswer, StoreError> {
        let fault = self.next.lock().unwrap().take();
        match fault {
            None => self.inner.publish(call).await,
            Some(Fault::LoseTheAnswer) => {
                self.inner.publish(call).await?;
                Err(StoreError::UnknownOutcome {
                    what: "publish",
                    why: "the line was cut".into(),
                })
            }
            Some(Fault::Away) => Err(StoreError::Away {
                what: "publish",
                why: "connection refused".into(),
            }),
            Some(Fault::Wait { reached, go_on }) => {
                reached.send(()).unwrap();
                go_on.await.unwrap();
                self.inner.publish(call).await
            }
        }
    }

    async fn initialize_offsets(&self, call: &InitializeOffsets) -> Result<CommittedOffsets, PublisherError> {
        self.inner.initialize_offsets(call).await
    }
    async fn committed_offsets(
        &self,
        supervisor: &SupervisorId,
        topic: &str,
    ) -> Result<Option<CommittedOffsets>, StoreError> {
        self.inner.committed_offsets(supervisor, topic).await
    }
    async fn reset_offsets(&self, call: &ResetOffsets) -> Result<CommittedOffsets, PublisherError> {
        self.inner.reset_offsets(call).await
    }
    async fn register_group(&self, call: &RegisterGroup) -> Result<(), PublisherError> {
        self.inner.register_group(call).await
    }
    async fn end_group(
        &self,
        supervisor: &SupervisorId,
        group: &GroupId,
        epoch: Epoch,
        at: TimestampMillis,
    ) -> Result<(), PublisherError> {
        self.inner.end_group(supervisor, group, epoch, at).await
    }
    async fn group(
        &self,
        supervisor: &SupervisorId,
        group: &GroupId,
    ) -> Result<Option<RegisteredGroup>, StoreError> {
        self.inner.group(supervisor, group).await
    }
    async fn allocate(&self, call: &Allocate) -> Result<SegmentId, PublisherError> {
        self.inner.allocate(call).await
    }
    async fn preview(&self, request: &PublishRequest) -> Result<PublishAnswer, StoreError> {
        self.inner.preview(request).await
    }
    async fn publishers_of(&self, data_source: &DataSource) -> Result<Vec<SupervisorId>, StoreError> {
        self.inner.publishers_of(data_source).await
    }
    async fn evidence(&self, supervisor: &SupervisorId) -> Result<(String, Evidence), StoreError> {
        self.inner.evidence(supervisor).await
    }
    async fn ranges_of(
        &self,
        segments: &[CatalogSegment],
    ) -> Result<Vec<Option<PublishedRange>>, StoreError> {
        self.inner.ranges_of(segments).await
    }
    async fn list_segments(
        &self,
        filter: &SegmentFilter,
        after: Ordinal,
        limit: u32,
    ) -> Result<Vec<CatalogSegment>, StoreError> {
        self.inner.list_segments(filter, after, limit).await
    }
    async fn unpromoted(&self, after: Ordinal, limit: u32) -> Result<Vec<CatalogSegment>, StoreError> {
        self.inner.unpromoted(after, limit).await
    }
    async fn mark_promoted(&self, ordinal: Ordinal, key: &str) -> Result<(), StoreError> {
        self.inner.mark_promoted(ordinal, key).await
    }
    async fn mark_used(&self, segments: &[SegmentId], used: Used) -> Result<(), StoreError> {
        self.inner.mark_used(segments, used).await
    }
    async fn referenced_keys(&self, keys: &[String]) -> Result<Vec<String>, StoreError> {
        self.inner.referenced_keys(keys).await
    }
    async fn oldest_open_group(&self) -> Result<Option<TimestampMillis>, StoreError> {
        self.inner.oldest_open_group().await
    }
}
