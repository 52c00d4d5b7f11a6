//! The real store, whose writes can be held up.

use async_trait::async_trait;
use tidegate_metadata::{
    CoordinatorChange, CoordinatorState, CoordinatorStore, DecisionRecord, HistoryRecord, Metadata,
    StoreError,
};
use tidegate_types::{BaseSequenceName, Epoch, SupervisorId, TimestampMillis};
use tokio::sync::watch;

pub(crate) struct HeldStore {
    inner: Metadata,
    is_held: watch::Sender<bool>,
}

impl HeldStore {
    pub(crate) fn new(inner: Metadata) -> Self {
        Self {
            inner,
            is_held: watch::Sender::new(false),
        }
    }
    /// Writes wait from now on.
    pub(crate) fn hold(&self) {
        self.is_held.send_replace(true);
    }
    pub(crate) fn go_on(&self) {
        self.is_held.send_replace(false);
    }
}

#[async_trait]
impl CoordinatorStore for HeldStore {
    async fn raise_epoch(&self, holder: &str, now: TimestampMillis) -> Result<Epoch, StoreError> {
        self.inner.raise_epoch(holder, now).await
    }
    async fn current_epoch(&self) -> Result<Epoch, StoreError> {
        self.inner.current_epoch().await
    }
    async fn load_all(&self) -> Result<CoordinatorState, StoreError> {
        self.inner.load_all().await
    }
    async fn write(&self, epoch: Epoch, changes: &[CoordinatorChange]) -> Result<(), StoreError> {
        // The sender lives as long as this store.
        let _ = self.is_held.subscribe().wait_for(|held| !held).await;
        self.inner.write(epoch, changes).await
    }
    async fn history(&self, supervisor: &SupervisorId) -> Result<Vec<HistoryRecord>, StoreError> {
        self.inner.history(supervisor).await
    }
    async fn decide(&self, decision: &DecisionRecord) -> Result<DecisionRecord, StoreError> {
        self.inner.decide(decision).await
    }
    async fn decisions(&self, base: &BaseSequenceName) -> Result<Vec<DecisionRecord>, StoreError> {
        self.inner.decisions(base).await
    }
}
