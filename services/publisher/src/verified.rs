//! Staged objects that were read and found to be what was said.
//!
//! Promises: an object is read once, however often a publish is asked for (a staged key never gets other content,
//! so what was right stays right); a long verification that outlives its call is not begun anew by the next
//! (B39); so many are read at a time and no more.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tidegate_objects::{InvalidKey, Key, Objects, VerifyError};
use tidegate_protocol::publish::SegmentFile;
use tokio::sync::{OnceCell, Semaphore};

/// Objects read at a time, over all publishes.
const READ_AT_ONCE: usize = 8;
/// Entries kept; a publish has far fewer segments.
const MOST_ENTRIES: usize = 50_000;

/// Why an object was not confirmed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    #[error(transparent)]
    Object(#[from] VerifyError),
    #[error(transparent)]
    Key(#[from] InvalidKey),
}

impl CheckError {
    /// True when only another upload helps.
    pub(crate) fn is_bad_object(&self) -> bool {
        match self {
            Self::Object(error) => error.is_bad_object(),
            Self::Key(_) => true,
        }
    }
}

type Cell = Arc<OnceCell<()>>;

pub(crate) struct Verified {
    objects: Objects,
    known: Mutex<HashMap<SegmentFileKey, Cell>>,
    readers: Semaphore,
}

/// All that was said about the object: another claim is another question.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SegmentFileKey {
    key: String,
    size: u64,
    sha256: String,
    rows: u64,
}

impl SegmentFileKey {
    fn of(file: &SegmentFile) -> Self {
        Self {
            key: file.key.clone(),
            size: file.size_bytes,
            sha256: file.sha256.clone(),
            rows: file.rows,
        }
    }
}

impl Verified {
    pub(crate) fn new(objects: Objects) -> Self {
        Self {
            objects,
            known: Mutex::default(),
            readers: Semaphore::new(READ_AT_ONCE),
        }
    }

    /// Reads the object unless that was done. Two that ask at once read it once.
    pub(crate) async fn check(&self, file: &SegmentFile) -> Result<(), CheckError> {
        let cell = self.cell(SegmentFileKey::of(file));
        let reading = || async {
            // The semaphore is never closed; if it were, reading without it would still be right.
            let _turn = self.readers.acquire().await.ok();
            let key = Key::parse(&file.key)?;
            self.objects
                .verify(&key, file.size_bytes, &file.sha256, file.rows)
                .await?;
            Ok::<(), CheckError>(())
        };
        cell.get_or_try_init(reading).await?;
        Ok(())
    }

    /// The object is gone or no longer of interest.
    pub(crate) fn forget(&self, file: &SegmentFile) {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&SegmentFileKey::of(file));
    }

    fn cell(&self, key: SegmentFileKey) -> Cell {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_ENTRIES {
            // What is being read stays shared by those who read it; the rest is read again if asked for.
            known.retain(|_, cell| !cell.initialized());
        }
        Arc::clone(known.entry(key).or_default())
    }
}
