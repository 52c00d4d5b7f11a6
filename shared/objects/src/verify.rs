//! Is an object what somebody says it is?

use futures::{StreamExt, TryStreamExt};
use parquet::file::metadata::{FooterTail, ParquetMetaDataReader};
use sha2::{Digest, Sha256};

use crate::error::ObjectsError;
use crate::key::Key;
use crate::store::Objects;

/// Bytes per read; two reads are under way at a time.
const WINDOW: u64 = 4 << 20;
/// Bytes behind a Parquet footer: its length and the magic number.
const TAIL: u64 = 8;

/// How an object differs from what was said about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Difference {
    #[error("it has {found} bytes instead of {said}")]
    Size { said: u64, found: u64 },
    #[error("its SHA-256 is {found} instead of {said}")]
    Checksum { said: String, found: String },
    #[error("its footer counts {found} rows instead of {said}")]
    Rows { said: u64, found: u64 },
    #[error("it is not a Parquet file: {0}")]
    NotParquet(String),
}

/// Why an object was not confirmed.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// Upload it again.
    #[error("object {key:?} is not there; upload it again")]
    Missing { key: Key },
    /// Upload it again.
    #[error("object {key:?} is not what was said: {difference}; upload it again")]
    Differs { key: Key, difference: Difference },
    /// Nothing is known about the object.
    #[error(transparent)]
    Store(#[from] ObjectsError),
}

impl VerifyError {
    /// True when the object itself is at fault, so that only another upload helps.
    pub fn is_bad_object(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Differs { .. })
    }
    /// True when the same question may get an answer later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_retryable())
    }
}

impl Objects {
    /// Reads the object once: size, SHA-256 (lower-case hex), and the row count of its Parquet footer.
    pub async fn verify(&self, key: &Key, size: u64, sha256: &str, rows: u64) -> Result<(), VerifyError> {
        self.verify_bytes(key, size, sha256).await?;
        let differs = |difference| VerifyError::Differs {
            key: key.clone(),
            difference,
        };
        match self.footer_rows(key, size).await? {
            Ok(found) if found == rows => Ok(()),
            Ok(found) => Err(differs(Difference::Rows { said: rows, found })),
            Err(reason) => Err(differs(Difference::NotParquet(reason))),
        }
    }

    /// Reads the object once: size and SHA-256 (lower-case hex).
    pub async fn verify_bytes(&self, key: &Key, size: u64, sha256: &str) -> Result<(), VerifyError> {
        self.verify_size(key, size).await?;
        let starts = (0..size).step_by(usize::try_from(WINDOW).unwrap_or(usize::MAX));
        let hasher = futures::stream::iter(starts)
            .map(|start| self.read_range(key, start..(start + WINDOW).min(size)))
            .buffered(2)
            .try_fold(Sha256::new(), |mut hasher, bytes| async move {
                hasher.update(&bytes);
                Ok(hasher)
            })
            .await?;
        let found = hex::encode(hasher.finalize());
        if found == sha256 {
            return Ok(());
        }
        let difference = Difference::Checksum {
            said: sha256.to_owned(),
            found,
        };
        Err(VerifyError::Differs {
            key: key.clone(),
            difference,
        })
    }

    /// Asks for the size only.
    pub async fn verify_size(&self, key: &Key, size: u64) -> Result<(), VerifyError> {
        match self.head(key).await? {
            None => Err(VerifyError::Missing { key: key.clone() }),
            Some(head) if head.size == size => Ok(()),
            Some(head) => {
                let difference = Difference::Size {
                    said: size,
                    found: head.size,
                };
                Err(VerifyError::Differs {
                    key: key.clone(),
                    difference,
                })
            }
        }
    }

    /// Rows by the footer; the inner error says why the object is no Parquet file.
    async fn footer_rows(&self, key: &Key, size: u64) -> Result<Result<u64, String>, ObjectsError> {
        if size < TAIL {
            return Ok(Err(format!("it has only {size} bytes")));
        }
        let tail = self.read_range(key, size - TAIL..size).await?;
        let footer = match tail.as_ref().try_into().map(FooterTail::try_new) {
            Ok(Ok(footer)) => footer,
            Ok(Err(error)) => return Ok(Err(error.to_string())),
            Err(_) => return Ok(Err("its end cannot be read".into())),
        };
        let length = footer.metadata_length() as u64;
        if length > size - TAIL {
            return Ok(Err(format!(
                "its footer of {length} bytes does not fit into {size} bytes"
            )));
        }
        let footer = self.read_range(key, size - TAIL - length..size - TAIL).await?;
        Ok(match ParquetMetaDataReader::decode_metadata(&footer) {
            Ok(metadata) => {
                u64::try_from(metadata.file_metadata().num_rows()).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        })
    }
}
