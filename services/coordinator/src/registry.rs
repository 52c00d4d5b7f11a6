//! The runners: who lives, where, with how many slots.
//!
//! Identity is the instance id on the runner's volume, never its address (B46). Promises: a second process on a
//! copied volume is refused while the first one lives; a process that was restarted is let in at once when its
//! predecessor does not answer any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_metadata::{CoordinatorChange, Document, RunnerRecord};
use tidegate_protocol::negotiation::{INCREMENTAL_HANDOFF, PREPARED_TASKS};
use tidegate_protocol::supervisor::RunnerView;
use tidegate_rpc::clients::{self, RunnerClient};
use tidegate_rpc::{Transport, health};
use tidegate_types::{RunnerId, TimestampMillis};

use crate::store::Store;

/// Makes a transport to an address. In one process, the runner's own service.
pub type Connector = Arc<dyn Fn(&str) -> Result<Transport, String> + Send + Sync>;

/// How long a process on the same identity has to show that it lives.
const PROBE: Duration = Duration::from_secs(1);
const FORMAT: u32 = 1;

/// What is stored of a runner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stored {
    incarnation: String,
    address: String,
    slots: u32,
    #[serde(flatten)]
    unknown: BTreeMap<String, serde_json::Value>,
}

/// One runner.
#[derive(Debug, Clone)]
pub(crate) struct Runner {
    pub(crate) id: RunnerId,
    pub(crate) incarnation: String,
    pub(crate) address: String,
    pub(crate) slots: u32,
    pub(crate) used: u32,
    pub(crate) draining: bool,
    pub(crate) last_heartbeat: TimestampMillis,
    transport: Option<Transport>,
}

/// A heartbeat, as far as the registry is concerned.
#[derive(Debug, Clone)]
pub(crate) struct Beat {
    pub(crate) runner: RunnerId,
    pub(crate) incarnation: String,
    pub(crate) address: String,
    pub(crate) slots: u32,
    pub(crate) used: u32,
    pub(crate) draining: bool,
    pub(crate) capabilities: Vec<String>,
}

/// Another process with this identity lives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "runner {id} lives at {address} as another process: two processes must not share one work folder, nor copies of \
     it; stop one of them, or give the other one an empty folder"
)]
pub(crate) struct Twin {
    id: RunnerId,
    address: String,
}

/// All runners.
pub(crate) struct Registry {
    runners: Mutex<BTreeMap<RunnerId, Runner>>,
    connect: Connector,
    timeout: Duration,
}

impl Registry {
    pub(crate) fn new(connect: Connector, timeout: Duration) -> Self {
        Self {
            runners: Mutex::default(),
            connect,
            timeout,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<RunnerId, Runner>> {
        self.runners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Addresses from before a restart, so that runners can be called before their next heartbeat.
    pub(crate) fn restore(&self, records: &[RunnerRecord]) {
        for record in records {
            let Ok(stored) = record.document.read::<Stored>(FORMAT) else {
                tracing::warn!(runner = %record.id, "what is stored of the runner cannot be read; its heartbeat will tell");
                continue;
            };
            let runner = Runner {
                id: record.id.clone(),
                incarnation: stored.incarnation,
                transport: (self.connect)(&stored.address).ok(),
                address: stored.address,
                slots: stored.slots,
                used: 0,
                draining: false,
                last_heartbeat: record.last_heartbeat,
            };
            self.lock().insert(record.id.clone(), runner);
        }
    }

    /// Lets a runner in, or refuses it.
    pub(crate) async fn beat(
        &self,
        now: TimestampMillis,
        beat: Beat,
        store: &Store,
    ) -> Result<RunnerView, Twin> {
        let known = self.lock().get(&beat.runner).cloned();
        if let Some(known) = &known
            && known.incarnation != beat.incarnation
            && self.lives_elsewhere(now, known, &beat).await
        {
            return Err(Twin {
                id: known.id.clone(),
                address: known.address.clone(),
            });
        }
        let same = known.as_ref().is_some_and(|known| {
            known.address == beat.address
                && known.incarnation == beat.incarnation
                && known.slots == beat.slots
        });
        let transport = match known
            .filter(|known| known.address == beat.address)
            .and_then(|known| known.transport)
        {
            Some(transport) => Some(transport),
            None => (self.connect)(&beat.address)
                .inspect_err(
                    |error| tracing::warn!(runner = %beat.runner, error, "the runner cannot be called"),
                )
                .ok(),
        };
        let can = |capability: &str| beat.capabilities.iter().any(|name| name == capability);
        let view = RunnerView {
            id: beat.runner.clone(),
            slots: beat.slots,
            occupied: beat.used,
            draining: beat.draining || transport.is_none(),
            can_checkpoint: can(INCREMENTAL_HANDOFF),
            can_prepare: can(PREPARED_TASKS),
        };
        let stored = Stored {
            incarnation: beat.incarnation.clone(),
            address: beat.address.clone(),
            slots: beat.slots,
            unknown: BTreeMap::new(),
        };
        let runner = Runner {
            id: beat.runner.clone(),
            incarnation: beat.incarnation,
            address: beat.address,
            slots: beat.slots,
            used: beat.used,
            draining: beat.draining,
            last_heartbeat: now,
            transport,
        };
        self.lock().insert(beat.runner.clone(), runner);
        if !same {
            tracing::info!(runner = %beat.runner, address = stored.address, slots = stored.slots, "a runner is here");
            Self::remember(now, beat.runner, &stored, store);
        }
        Ok(view)
    }

    /// Does the process that holds this identity answer, at another place than the one that asks? At the same
    /// address it is gone: two processes cannot listen there.
    async fn lives_elsewhere(&self, now: TimestampMillis, known: &Runner, beat: &Beat) -> bool {
        if known.address == beat.address || self.is_silent(now, known) {
            return false;
        }
        let Some(transport) = known.transport.clone() else {
            return false;
        };
        match tokio::time::timeout(PROBE, health::check(transport)).await {
            // Any answer but "nobody is there" comes from a living process.
            Ok(Err(status)) => !matches!(status.code(), tonic::Code::Unavailable),
            // Without an answer it is neither alive nor dead: taken for alive until heartbeats time out.
            Ok(Ok(_)) | Err(_) => true,
        }
    }

    /// Only a help for the next start: it is not waited for, and lost when the store is away.
    fn remember(now: TimestampMillis, id: RunnerId, stored: &Stored, store: &Store) {
        let Ok(document) = Document::of(FORMAT, FORMAT, stored) else {
            return;
        };
        let record = RunnerRecord {
            id,
            last_heartbeat: now,
            document,
        };
        let store = store.clone();
        tokio::spawn(async move {
            let changes = [CoordinatorChange::PutRunner(record)];
            if let Err(error) = store.port.write(store.epoch, &changes).await {
                tracing::warn!(%error, "a runner's address was not stored; its heartbeats tell it again");
            }
        });
    }

    fn is_silent(&self, now: TimestampMillis, runner: &Runner) -> bool {
        let silent = now.0.saturating_sub(runner.last_heartbeat.0);
        u128::try_from(silent).is_ok_and(|silent| silent >= self.timeout.as_millis())
    }

    pub(crate) fn client(&self, runner: &RunnerId) -> Option<RunnerClient> {
        self.lock()
            .get(runner)
            .and_then(|runner| runner.transport.clone())
            .map(clients::runner)
    }

    /// In order of their ids, with whether they may be given tasks.
    pub(crate) fn all(&self, now: TimestampMillis) -> Vec<(Runner, bool)> {
        let all: Vec<Runner> = self.lock().values().cloned().collect();
        all.into_iter()
            .map(|runner| (runner.clone(), !runner.draining && !self.is_silent(now, &runner)))
            .collect()
    }
}
