//! The store as callers see it.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use tidegate_config::ObjectsConfig;
use url::Url;

use crate::error::{ErrorKind, ObjectsError, Place};
use crate::key::Key;
use crate::remote::Remote;
use crate::verify::VerifyError;

/// A store. Cheap to clone.
#[derive(Clone)]
pub struct Objects {
    pub(crate) backend: Backend,
    pub(crate) config: ObjectsConfig,
    /// The address without secrets, for errors.
    name: String,
    pub(crate) first_wait: Duration,
}

#[derive(Clone)]
pub(crate) enum Backend {
    Local(Local),
    Remote(Remote),
}

#[derive(Clone)]
pub(crate) struct Local {
    pub(crate) store: LocalFileSystem,
    pub(crate) root: PathBuf,
}

impl Local {
    pub(crate) fn file(&self, key: &Key, place: Place<'_>) -> Result<PathBuf, ObjectsError> {
        self.store
            .path_to_filesystem(key.path())
            .map_err(|error| place.store(&error))
    }
}

/// What a store says about an object without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub key: Key,
    pub size: u64,
    pub modified: SystemTime,
}

/// How a promotion ended; both are success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Promoted {
    /// Copied by this call.
    Copied,
    /// The staged object is gone and the final one has the right size and checksum: an earlier call did it.
    Before,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects")
            .field("url", &self.name)
            .finish_non_exhaustive()
    }
}

impl Objects {
    /// Opens a store by its settings. A local folder is made; a remote store is not asked yet
    /// (see [`Objects::check`]).
    pub fn open(config: &ObjectsConfig) -> Result<Self, ObjectsError> {
        let place = Place {
            action: "open",
            key: "",
            store: &config.url,
        };
        let backend = match Url::parse(&config.url) {
            Ok(url) if url.scheme() == "file" => {
                let folder = url.to_file_path().map_err(|()| {
                    place.error(ErrorKind::Config, "not a local path; use file:///absolute/path")
                })?;
                Backend::Local(open_local(folder, place)?)
            }
            Ok(url) => Backend::Remote(Remote::connect(
                &url,
                config,
                Place {
                    store: &shown(&url),
                    ..place
                },
            )?),
            // A plain path, absolute or relative, with any character in it.
            Err(_) if !config.url.is_empty() && !config.url.contains("://") => {
                let folder = std::path::absolute(&config.url).map_err(|error| place.io(&error))?;
                Backend::Local(open_local(folder, place)?)
            }
            Err(error) => {
                return Err(place.error(
                    ErrorKind::Config,
                    format!("{error}; use file://, s3://, gs:// or az://"),
                ));
            }
        };
        let name = Url::parse(&config.url).map_or_else(|_| config.url.clone(), |url| shown(&url));
        Ok(Self {
            backend,
            config: config.clone(),
            name,
            first_wait: Duration::from_millis(500),
        })
    }

    /// The address, without secrets.
    pub fn address(&self) -> &str {
        &self.name
    }

    /// The folder of a local store; `None` for a remote one.
    pub fn local_root(&self) -> Option<&std::path::Path> {
        match &self.backend {
            Backend::Local(local) => Some(&local.root),
            Backend::Remote(_) => None,
        }
    }

    /// Asks the store whether it answers and lets us list: for start-up and `--check-config`.
    pub async fn check(&self) -> Result<(), ObjectsError> {
        let place = self.place("list", "");
        match self.store().list(self.prefix().as_ref()).next().await {
            Some(Err(error)) => Err(place.store(&error)),
            _ => Ok(()),
        }
    }

    /// Makes `to` hold the bytes of `from`, by a copy inside the store. May be repeated: a repeated call copies
    /// again, or finds the staged object gone and the final one right. That something stands at `to` already
    /// decides nothing. S3 copies objects of up to 5 GiB in one request. The staged object stays; delete it once the catalog says that the segment is promoted.
    pub async fn promote(
        &self,
        from: &Key,
        to: &Key,
        size: u64,
        sha256: &str,
    ) -> Result<Promoted, VerifyError> {
        let place = self.place("promote", from.as_str());
        let copied = match &self.backend {
            Backend::Local(local) => {
                let (source, dest) = (local.file(from, place)?, local.file(to, place)?);
                blocking(place, move || crate::local::link(&source, &dest)).await
            }
            Backend::Remote(remote) => remote
                .store
                .copy(&remote.full(from), &remote.full(to))
                .await
                .map_err(|error| place.store(&error)),
        };
        match copied {
            Ok(()) => self.verify_size(to, size).await.map(|()| Promoted::Copied),
            Err(error) if error.kind == ErrorKind::NotFound => {
                match self.verify_bytes(to, size, sha256).await {
                    Ok(()) => Ok(Promoted::Before),
                    // Neither stands there: the staged one is what is missing.
                    Err(VerifyError::Missing { .. }) => Err(VerifyError::Missing { key: from.clone() }),
                    Err(other) => Err(other),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes an object; one that is not there is fine.
    pub async fn delete(&self, key: &Key) -> Result<(), ObjectsError> {
        let place = self.place("delete", key.as_str());
        match &self.backend {
            Backend::Local(local) => {
                let (path, root) = (local.file(key, place)?, local.root.clone());
                blocking(place, move || crate::local::remove(&path, &root)).await
            }
            Backend::Remote(remote) => match remote.store.delete(&remote.full(key)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(place.store(&error)),
            },
        }
    }

    /// Size and age of an object; `None` when there is none.
    pub async fn head(&self, key: &Key) -> Result<Option<Head>, ObjectsError> {
        match self.store().head(&self.full(key)).await {
            Ok(meta) => Ok(Some(Head {
                key: key.clone(),
                size: meta.size,
                modified: meta.last_modified.into(),
            })),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.place("look up", key.as_str()).store(&error)),
        }
    }

    /// All objects below `folder`, in no order.
    pub fn list(&self, folder: &Key) -> BoxStream<'_, Result<Head, ObjectsError>> {
        let shown = folder.to_string();
        self.store()
            .list(Some(&self.full(folder)))
            .map_err(move |error| self.place("list", &shown).store(&error))
            .try_filter_map(move |meta: ObjectMeta| async move {
                let key = match &self.backend {
                    Backend::Local(_) => Some(Key::from_listing(meta.location)),
                    Backend::Remote(remote) => remote.key_of(&meta.location),
                };
                Ok(key.map(|key| Head {
                    key,
                    size: meta.size,
                    modified: meta.last_modified.into(),
                }))
            })
            .boxed()
    }

    /// The whole of a small object; for tests and tools.
    pub async fn read(&self, key: &Key) -> Result<Bytes, ObjectsError> {
        let place = self.place("read", key.as_str());
        let found = self
            .store()
            .get(&self.full(key))
            .await
            .map_err(|error| place.store(&error))?;
        found.bytes().await.map_err(|error| place.store(&error))
    }

    pub(crate) async fn read_range(&self, key: &Key, range: Range<u64>) -> Result<Bytes, ObjectsError> {
        let read = self.store().get_range(&self.full(key), range).await;
        read.map_err(|error| self.place("read", key.as_str()).store(&error))
    }

    pub(crate) fn place<'a>(&'a self, action: &'static str, key: &'a str) -> Place<'a> {
        Place {
            action,
            key,
            store: &self.name,
        }
    }

    pub(crate) fn store(&self) -> &dyn ObjectStore {
        match &self.backend {
            Backend::Local(local) => &local.store,
            Backend::Remote(remote) => remote.store.as_ref(),
        }
    }

    fn full(&self, key: &Key) -> Path {
        match &self.backend {
            Backend::Local(_) => key.path().clone(),
            Backend::Remote(remote) => remote.full(key),
        }
    }

    fn prefix(&self) -> Option<Path> {
        match &self.backend {
            Backend::Local(_) => None,
            Backend::Remote(remote) => Some(remote.prefix.clone()),
        }
    }

    #[cfg(test)]
    pub(crate) fn over(remote: Remote, config: ObjectsConfig) -> Self {
        Self {
            backend: Backend::Remote(remote),
            config,
            name: "test".into(),
            first_wait: Duration::from_millis(1),
        }
    }
}

fn open_local(folder: PathBuf, place: Place<'_>) -> Result<Local, ObjectsError> {
    std::fs::create_dir_all(&folder).map_err(|error| place.io(&error))?;
    let root = folder.canonicalize().map_err(|error| place.io(&error))?;
    let store = LocalFileSystem::new_with_prefix(&root).map_err(|error| place.store(&error))?;
    Ok(Local { store, root })
}

/// An address without user, password and query.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    let _ = url.set_password(None);
    let _ = url.set_username("");
    url.set_query(None);
    url.to_string()
}

/// Runs file work off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    place: Place<'_>,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, ObjectsError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| place.io(&error)),
        Err(error) => Err(place.error(ErrorKind::Unavailable, error)),
    }
}
