//! All supervisors of this coordinator.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_protocol::supervisor::{Command, Limits, Refusal, Settings, Supervisor};
use tidegate_types::SupervisorId;

use crate::actor::{self, Done, Gone, Handle, World, now};
use crate::error::CoordinatorError;
use crate::store;

/// Why a submit did not succeed.
#[derive(Debug)]
pub(crate) enum SubmitError {
    Refused(Refusal),
    Gone,
}

/// All supervisors.
pub(crate) struct Directory {
    handles: Mutex<BTreeMap<SupervisorId, Handle>>,
    /// One submit at a time: two first versions of one supervisor must not meet.
    submitting: tokio::sync::Mutex<()>,
    pub(crate) world: World,
    limits: Limits,
}

impl Directory {
    /// Takes up every supervisor that is stored.
    pub(crate) async fn load(world: World, runner_timeout: Duration) -> Result<Arc<Self>, CoordinatorError> {
        let limits = Limits {
            runner_timeout_millis: u64::try_from(runner_timeout.as_millis()).unwrap_or(u64::MAX),
            ..Limits::default()
        };
        let state = world.store.port.load_all().await?;
        world.registry.restore(&state.runners);
        let loaded = store::load(&*world.store.port, &state).await?;
        let directory = Arc::new(Self {
            handles: Mutex::default(),
            submitting: Default::default(),
            world,
            limits,
        });
        for (document, loaded) in loaded {
            let id = document.id.clone();
            tracing::info!(supervisor = %id, groups = loaded.groups.len(), tasks = loaded.tasks.len(), "taken up");
            let machine = Supervisor::restore(document, loaded, limits, now());
            let (handle, _ready) = actor::spawn(machine, Vec::new(), directory.world.clone());
            directory.lock().insert(id, handle);
        }
        Ok(directory)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SupervisorId, Handle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
    pub(crate) fn get(&self, id: &SupervisorId) -> Option<Handle> {
        self.lock().get(id).cloned()
    }
    /// In order of their ids.
    pub(crate) fn all(&self) -> Vec<(SupervisorId, Handle)> {
        self.lock()
            .iter()
            .map(|(id, handle)| (id.clone(), handle.clone()))
            .collect()
    }

    /// Makes a supervisor, or gives it a new version. Durable when it answers. A caller that goes away does not
    /// cut it off: an actor that nobody knows of would be joined by a second one for the same supervisor.
    pub(crate) async fn submit(
        self: &Arc<Self>,
        id: SupervisorId,
        settings: Settings,
    ) -> Result<Done, SubmitError> {
        let directory = self.clone();
        let submitted = tokio::spawn(async move { directory.submit_to_end(&id, settings).await });
        submitted.await.unwrap_or(Err(SubmitError::Gone))
    }

    async fn submit_to_end(&self, id: &SupervisorId, settings: Settings) -> Result<Done, SubmitError> {
        let _one = self.submitting.lock().await;
        if let Some(handle) = self.get(id) {
            let answer = handle.command(Command::Submit(Box::new(settings))).await;
            return answer
                .map_err(|Gone| SubmitError::Gone)?
                .map_err(SubmitError::Refused);
        }
        let (machine, first) = Supervisor::submit(id.clone(), settings, self.limits, now());
        let (handle, ready) = actor::spawn(machine, first, self.world.clone());
        ready.await.map_err(|_| SubmitError::Gone)?;
        self.lock().insert(id.clone(), handle);
        Ok(Done {
            version: 1,
            changed: true,
        })
    }
}
