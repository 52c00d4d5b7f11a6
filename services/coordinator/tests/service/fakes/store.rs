//! The real store, whose writes and renewals can be held up.

use std::time::Duration;

use async_trait::async_trait;
use tidegate_metadata::{
    Acquired, Candidate, CoordinatorChange, CoordinatorState, CoordinatorStore, DecisionRecord,
    HistoryRecord, Lease, Metadata, StoreError,
};
use tidegate_types::{BaseSequenceName, Epoch, SupervisorId, TimestampMillis};
use tokio::sync::watch;

pub(crate) struct HeldStore {
    inner: Metadata,
    is_held: watch::Sender<bool>,
    is_cut_off: watch::Sender<bool>,
}

impl HeldStore {
    pub(crate) fn new(inner: Metadata) -> Self {
        Self {
            inner,
            is_held: watch::Sender::new(false),
            is_cut_off: watch::Sender::new(false),
        }
    }
    /// Writes wait from now on.
    pub(crate) fn hold(&self) {
        self.is_held.send_replace(true);
    }
    pub(crate) fn go_on(&self) {
        self.is_held.send_replace(false);
    }
    /// Renewals get no answer from now on, nor does whoever asks for the lease.
    pub(crate) fn cut_off(&self) {
        self.is_cut_off.send_replace(true);
    }
    pub(crate) fn heal(&self) {
        self.is_cut_off.send_replace(false);
    }
    async fn connected(&self) {
        // The sender lives as long as this store.
        let _ = self.is_cut_off.subscribe().wait_for(|off| !off).await;
    }
}

#[async_trait]
impl CoordinatorStore for HeldStore {
    async fn lease(&self) -> Result<Lease, StoreError> {
        self.connected().await;
        self.inner.lease().await
    }
    async fn acquire_lease(
        &self,
        candidate: &Candidate,
        over: Option<&Lease>,
        now: TimestampMillis,
    ) -> Result<Acquired, StoreError> {
        self.connected().await;
        self.inner.acquire_lease(candidate, over, now).await
    }
    async fn renew_lease(
        &self,
        epoch: Epoch,
        lasts: Duration,
        now: TimestampMillis,
    ) -> Result<(), StoreError> {
        self.connected().await;
        self.inner.renew_lease(epoch, lasts, now).await
    }
    async fn release_lease(&self, epoch: Epoch) -> Result<(), StoreError> {
        self.connected().await;
        self.inner.release_lease(epoch).await
    }
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
