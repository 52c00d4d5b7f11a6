//! The runner's volume: its lock, its identity, the highest epoch that it has seen.
//!
//! Identity is the instance id in here, never host and port (B46). The lock refuses a second process on the same
//! volume; a copied volume is refused by the coordinator, which sees two incarnations of one id.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::PoisonError;

use serde::{Deserialize, Serialize};
use tidegate_types::{Epoch, RunnerId};

use crate::durable;
use crate::error::RunnerError;

/// Format of the small documents of this folder.
const FORMAT: u32 = 1;

/// A locked work folder; the lock goes with it.
#[derive(Debug)]
pub(crate) struct WorkDir {
    root: PathBuf,
    runner: RunnerId,
    incarnation: String,
    epoch: Mutex<Epoch>,
    lock: File,
}

#[derive(Debug, Serialize, Deserialize)]
struct Identity {
    format: u32,
    runner_id: RunnerId,
}

#[derive(Debug, Serialize, Deserialize)]
struct Fence {
    format: u32,
    coordinator_epoch: Epoch,
}

impl WorkDir {
    /// Opens (or makes) the folder and locks it. Blocks; call it off the async threads.
    pub(crate) fn open(root: &Path) -> Result<Self, RunnerError> {
        let failed = |what: &'static str| {
            let path = root.display().to_string();
            move |source: std::io::Error| RunnerError::WorkDir { what, path, source }
        };
        fs::create_dir_all(root.join("tasks")).map_err(failed("make"))?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(root.join("lock"))
            .map_err(failed("open the lock of"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(RunnerError::Locked {
                    path: root.display().to_string(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
        }
        let runner = match read::<Identity>(&root.join("runner.json"))? {
            Some(identity) => identity.runner_id,
            None => Self::found(root)?,
        };
        let epoch =
            read::<Fence>(&root.join("fence.json"))?.map_or(Epoch(0), |fence| fence.coordinator_epoch);
        Ok(Self {
            root: root.to_owned(),
            runner,
            incarnation: uuid::Uuid::new_v4().simple().to_string(),
            epoch: Mutex::new(epoch),
            lock,
        })
    }

    fn found(root: &Path) -> Result<RunnerId, RunnerError> {
        let runner = RunnerId::new(format!("runner-{}", uuid::Uuid::new_v4().simple())).map_err(|error| {
            RunnerError::Document {
                path: root.display().to_string(),
                reason: error.to_string(),
            }
        })?;
        write(
            &root.join("runner.json"),
            &Identity {
                format: FORMAT,
                runner_id: runner.clone(),
            },
        )?;
        Ok(runner)
    }

    pub(crate) fn runner(&self) -> &RunnerId {
        &self.runner
    }
    /// Unique per life of this process.
    pub(crate) fn incarnation(&self) -> &str {
        &self.incarnation
    }
    pub(crate) fn tasks(&self) -> PathBuf {
        self.root.join("tasks")
    }
    /// Lets another process, or another runner of this one, have the folder.
    pub(crate) fn release(&self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "the lock of the work folder is left to the end of the process");
        }
    }
    /// The highest epoch seen.
    pub(crate) fn epoch(&self) -> Epoch {
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a caller's epoch, durably, before its call has any effect. Blocks. `Err` = the highest one
    /// seen, which is above the caller's.
    pub(crate) fn admit(&self, epoch: Epoch) -> Result<Result<(), Epoch>, RunnerError> {
        let mut highest = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        if epoch < *highest {
            return Ok(Err(*highest));
        }
        if epoch > *highest {
            write(
                &self.root.join("fence.json"),
                &Fence {
                    format: FORMAT,
                    coordinator_epoch: epoch,
                },
            )?;
            *highest = epoch;
        }
        Ok(Ok(()))
    }
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<Option<T>, RunnerError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(RunnerError::WorkDir {
                what: "read",
                path: path.display().to_string(),
                source,
            });
        }
    };
    let document = serde_json::from_slice(&text).map_err(|error| RunnerError::Document {
        path: path.display().to_string(),
        reason: error.to_string(),
    })?;
    Ok(Some(document))
}

fn write<T: Serialize>(path: &Path, document: &T) -> Result<(), RunnerError> {
    let failed = |source| RunnerError::WorkDir {
        what: "write",
        path: path.display().to_string(),
        source,
    };
    let text = serde_json::to_vec(document).map_err(|error| failed(error.into()))?;
    durable::replace(path, &text).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b46_identity_stays_with_the_volume_and_a_second_process_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let first = WorkDir::open(folder.path()).unwrap();
        let error = WorkDir::open(folder.path()).unwrap_err();
        assert!(matches!(error, RunnerError::Locked { .. }), "{error}");
        let (id, incarnation) = (first.runner().clone(), first.incarnation().to_owned());
        drop(first);
        let again = WorkDir::open(folder.path()).unwrap();
        assert_eq!(again.runner(), &id);
        assert_ne!(again.incarnation(), incarnation);
    }

    #[test]
    fn the_highest_epoch_is_kept_over_a_restart_and_a_lower_one_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let first = WorkDir::open(folder.path()).unwrap();
        assert_eq!(first.admit(Epoch(7)).unwrap(), Ok(()));
        assert_eq!(first.admit(Epoch(7)).unwrap(), Ok(()));
        assert_eq!(first.admit(Epoch(6)).unwrap(), Err(Epoch(7)));
        drop(first);
        let again = WorkDir::open(folder.path()).unwrap();
        assert_eq!(again.epoch(), Epoch(7));
        assert_eq!(again.admit(Epoch(3)).unwrap(), Err(Epoch(7)));
        assert_eq!(again.admit(Epoch(8)).unwrap(), Ok(()));
    }
}
