//! Bringing a local file into the store.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::backoff::Backoff;
use crate::error::{ErrorKind, ObjectsError, Place};
use crate::key::Key;
use crate::store::{Backend, Objects, blocking};

/// A file that stands complete in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uploaded {
    /// Where: a name that no other upload had or will have.
    pub key: Key,
    pub size: u64,
    /// Lower-case hex.
    pub sha256: String,
}

impl Objects {
    /// Uploads `file` to a new name below `folder` (see [`crate::staging_folder`]). Throttling and outages are
    /// waited out for some attempts, each under another name (B52); then the error is the caller's, who may call
    /// again. What failed attempts left is the sweep's.
    pub async fn upload_staged(&self, file: &Path, folder: &Key) -> Result<Uploaded, ObjectsError> {
        let mut backoff = Backoff::new(self.first_wait, Duration::from_secs(20));
        let mut attempt = 1;
        loop {
            match self.upload_once(file, folder).await {
                Err(error) if error.is_retryable() && attempt < self.config.upload_attempts => {
                    let wait = backoff.next_wait();
                    tracing::warn!(%error, attempt, ?wait, "the upload is begun anew under another key");
                    tokio::time::sleep(wait).await;
                    attempt += 1;
                }
                other => return other,
            }
        }
    }

    async fn upload_once(&self, file: &Path, folder: &Key) -> Result<Uploaded, ObjectsError> {
        let ending = file
            .extension()
            .and_then(|ending| ending.to_str())
            .map(|e| format!(".{e}"))
            .unwrap_or_default();
        let name = format!("{}{ending}", uuid::Uuid::now_v7().simple());
        let place = self.place("upload", folder.as_str());
        let key = folder
            .child(&name)
            .map_err(|error| place.error(ErrorKind::Rejected, error))?;
        let place = self.place("upload", key.as_str());
        let (size, sha256) = match &self.backend {
            Backend::Local(local) => {
                let (source, dest) = (file.to_owned(), local.file(&key, place)?);
                blocking(place, move || crate::local::copy_in(&source, &dest)).await?
            }
            Backend::Remote(remote) => remote.upload(file, &key, &self.config, place).await?,
        };
        Ok(Uploaded {
            key,
            size,
            sha256: hex::encode(sha256),
        })
    }
}

/// Reads a file in parts of equal size, off the async threads, hashing on the way.
pub(crate) struct FileReader {
    path: PathBuf,
    state: Option<(File, Sha256)>,
    part_size: usize,
    /// Size when it was opened.
    size: u64,
    read: u64,
    store: String,
    key: String,
}

impl FileReader {
    pub(crate) async fn open(path: &Path, part_size: usize, place: Place<'_>) -> Result<Self, ObjectsError> {
        let name = path.to_owned();
        let (file, size) = blocking(place, move || {
            let file = File::open(&name)?;
            let size = file.metadata()?.len();
            Ok((file, size))
        })
        .await
        .map_err(|error| ObjectsError {
            action: "read",
            key: path.display().to_string(),
            ..error
        })?;
        Ok(Self {
            path: path.to_owned(),
            state: Some((file, Sha256::new())),
            part_size,
            size,
            read: 0,
            store: place.store.to_owned(),
            key: path.display().to_string(),
        })
    }

    fn place(&self) -> Place<'_> {
        Place {
            action: "read",
            key: &self.key,
            store: &self.store,
        }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.read >= self.size
    }

    /// The next part; `None` at the end.
    pub(crate) async fn next_part(&mut self) -> Result<Option<Bytes>, ObjectsError> {
        let left = usize::try_from(self.size - self.read.min(self.size)).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(None);
        }
        let want = left.min(self.part_size);
        let Some((mut file, mut hasher)) = self.state.take() else {
            return Err(self
                .place()
                .error(ErrorKind::Rejected, "an earlier read of the file failed"));
        };
        let (state, part) = blocking(self.place(), move || {
            let mut part = vec![0; want];
            file.read_exact(&mut part)?;
            hasher.update(&part);
            Ok(((file, hasher), part))
        })
        .await?;
        self.state = Some(state);
        self.read += part.len() as u64;
        Ok(Some(part.into()))
    }

    /// Size and SHA-256 of what was read.
    pub(crate) fn finish(self) -> Result<(u64, [u8; 32]), ObjectsError> {
        let Some((file, hasher)) = &self.state else {
            return Err(self
                .place()
                .error(ErrorKind::Rejected, "an earlier read of the file failed"));
        };
        let now = file.metadata().map_err(|error| self.place().io(&error))?.len();
        if now != self.size {
            let detail = format!(
                "{} grew or shrank during the upload ({} to {now} bytes)",
                self.path.display(),
                self.size
            );
            return Err(self.place().error(ErrorKind::Rejected, detail));
        }
        Ok((self.size, hasher.clone().finalize().into()))
    }
}
