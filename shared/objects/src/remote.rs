//! Stores behind a network: S3 (and compatible), GCS, Azure.

use std::path::Path as FilePath;
use std::sync::Arc;

use bytes::Bytes;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, ObjectStoreExt, PutPayload, RetryConfig};
use tidegate_config::ObjectsConfig;
use tokio::task::JoinSet;
use url::Url;

use crate::error::{ErrorKind, ObjectsError, Place};
use crate::key::Key;
use crate::upload::FileReader;

/// Ending of the note that an upload in parts leaves beside its key: it holds the upload's id, so that the
/// sweep can abort an upload whose uploader died. The note is gone once the upload has ended.
pub(crate) const OPEN_UPLOAD: &str = ".open-upload";

/// S3 refuses smaller parts, except the last.
const MIN_PART: usize = 5 << 20;

/// One client for both faces of the library.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) parts: Arc<dyn MultipartStore>,
    /// Everything stands below this.
    pub(crate) prefix: Path,
}

impl Remote {
    pub(crate) fn connect(url: &Url, config: &ObjectsConfig, place: Place<'_>) -> Result<Self, ObjectsError> {
        let container = url.host_str().unwrap_or_default();
        if container.is_empty() {
            return Err(place.error(
                ErrorKind::Config,
                "the address names no bucket, e.g. s3://bucket/prefix",
            ));
        }
        let prefix =
            Path::from_url_path(url.path()).map_err(|error| place.error(ErrorKind::Config, error))?;
        let retry = RetryConfig {
            backoff: BackoffConfig::default(),
            // Single requests are repeated by the client in place (a part keeps its number); longer outages are
            // met by beginning the whole object anew, with fresh signatures (B52).
            max_retries: 4,
            retry_timeout: config.request_timeout,
        };
        let options = ClientOptions::new()
            .with_allow_http(config.allow_http)
            .with_timeout(config.request_timeout)
            .with_connect_timeout(std::time::Duration::from_secs(10));
        let secret = config
            .secret_key
            .as_ref()
            .map(|secret| secret.expose().to_owned());
        let failed = |error: object_store::Error| ObjectsError {
            kind: ErrorKind::Config,
            ..place.store(&error)
        };
        match url.scheme() {
            "s3" | "s3a" => {
                let mut builder = AmazonS3Builder::from_env()
                    .with_bucket_name(container)
                    .with_client_options(options)
                    .with_retry(retry);
                if let Some(region) = &config.region {
                    builder = builder.with_region(region);
                }
                if let Some(endpoint) = &config.endpoint {
                    builder = builder
                        .with_endpoint(endpoint)
                        .with_virtual_hosted_style_request(false);
                }
                if let Some(key) = &config.access_key {
                    builder = builder.with_access_key_id(key);
                }
                if let Some(secret) = secret {
                    builder = builder.with_secret_access_key(secret);
                }
                if let Some(token) = &config.session_token {
                    builder = builder.with_token(token.expose());
                }
                Ok(Self::over(Arc::new(builder.build().map_err(failed)?), prefix))
            }
            "gs" => {
                let mut builder = GoogleCloudStorageBuilder::from_env()
                    .with_bucket_name(container)
                    .with_client_options(options)
                    .with_retry(retry);
                if let Some(endpoint) = &config.endpoint {
                    builder = builder.with_base_url(endpoint);
                }
                if let Some(document) = secret {
                    builder = builder.with_service_account_key(document);
                }
                Ok(Self::over(Arc::new(builder.build().map_err(failed)?), prefix))
            }
            "az" | "azure" | "abfs" => {
                let mut builder = MicrosoftAzureBuilder::from_env()
                    .with_container_name(container)
                    .with_client_options(options)
                    .with_retry(retry);
                if let Some(endpoint) = &config.endpoint {
                    builder = builder.with_endpoint(endpoint.clone());
                }
                if let Some(account) = &config.access_key {
                    builder = builder.with_account(account);
                }
                if let Some(key) = secret {
                    builder = builder.with_access_key(key);
                }
                Ok(Self::over(Arc::new(builder.build().map_err(failed)?), prefix))
            }
            other => Err(place.error(
                ErrorKind::Config,
                format!("{other}:// is no known store; use file://, s3://, gs:// or az://"),
            )),
        }
    }

    pub(crate) fn over<S: ObjectStore + MultipartStore>(store: Arc<S>, prefix: Path) -> Self {
        Self {
            store: store.clone(),
            parts: store,
            prefix,
        }
    }

    pub(crate) fn full(&self, key: &Key) -> Path {
        self.prefix
            .parts()
            .chain(key.path().parts())
            .fold(Path::default(), Path::join)
    }

    /// The key of a listed object; `None` for what is not below the prefix.
    pub(crate) fn key_of(&self, location: &Path) -> Option<Key> {
        let rest: Path = location
            .prefix_match(&self.prefix)?
            .fold(Path::default(), Path::join);
        Some(Key::from_listing(rest))
    }

    /// One attempt to store a file at `key`. A small one goes in one request, a larger one in parts.
    pub(crate) async fn upload(
        &self,
        file: &FilePath,
        key: &Key,
        config: &ObjectsConfig,
        place: Place<'_>,
    ) -> Result<(u64, [u8; 32]), ObjectsError> {
        let part_size = usize::try_from(config.part_size)
            .unwrap_or(usize::MAX)
            .max(MIN_PART);
        let mut reader = FileReader::open(file, part_size, place).await?;
        let path = self.full(key);
        let first = reader.next_part().await?.unwrap_or_default();
        if reader.is_at_end() {
            self.store
                .put(&path, first.into())
                .await
                .map_err(|error| place.store(&error))?;
            return reader.finish();
        }
        let id = self
            .parts
            .create_multipart(&path)
            .await
            .map_err(|error| place.store(&error))?;
        let note = self.full(&open_upload_note(key, place)?);
        let done = async {
            self.store
                .put(&note, PutPayload::from(id.clone().into_bytes()))
                .await
                .map_err(|error| place.store(&error))?;
            self.send_parts(
                &path,
                &id,
                first,
                &mut reader,
                config.upload_concurrency.max(1),
                place,
            )
            .await
        }
        .await;
        let ended = match done {
            Ok(parts) => self
                .parts
                .complete_multipart(&path, &id, parts)
                .await
                .map(|_| ())
                .map_err(|error| place.store(&error)),
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            match self.parts.abort_multipart(&path, &id).await {
                Ok(()) => self.forget_note(&note, key).await,
                Err(abort) => {
                    // The note stays, so the sweep tries again.
                    tracing::warn!(%key, error = %abort, "an upload could not be aborted; the sweep will do it");
                }
            }
            return Err(error);
        }
        self.forget_note(&note, key).await;
        reader.finish()
    }

    async fn forget_note(&self, note: &Path, key: &Key) {
        if let Err(error) = self.store.delete(note).await {
            tracing::warn!(%key, %error, "the note of an ended upload could not be deleted; the sweep will do it");
        }
    }

    async fn send_parts(
        &self,
        path: &Path,
        id: &str,
        first: Bytes,
        reader: &mut FileReader,
        concurrency: usize,
        place: Place<'_>,
    ) -> Result<Vec<PartId>, ObjectsError> {
        let mut sending = JoinSet::new();
        let mut done: Vec<(usize, PartId)> = Vec::new();
        let mut next = Some(first);
        let mut number = 0;
        // Dropping the set on an early return stops the parts that are under way.
        while let Some(part) = next {
            if sending.len() >= concurrency {
                collect(sending.join_next().await, &mut done, place)?;
            }
            let (parts, path, id) = (self.parts.clone(), path.clone(), id.to_owned());
            sending.spawn(async move {
                parts
                    .put_part(&path, &id, number, part.into())
                    .await
                    .map(|part| (number, part))
            });
            number += 1;
            next = reader.next_part().await?;
        }
        while let Some(joined) = sending.join_next().await {
            collect(Some(joined), &mut done, place)?;
        }
        done.sort_by_key(|(number, _)| *number);
        Ok(done.into_iter().map(|(_, part)| part).collect())
    }

    /// Ends an upload whose note is older than the grace time: its uploader is gone.
    pub(crate) async fn abort_open_upload(&self, note: &Key, place: Place<'_>) -> Result<(), ObjectsError> {
        let note_path = self.full(note);
        let id = match self.store.get(&note_path).await {
            Ok(found) => found.bytes().await.map_err(|error| place.store(&error))?,
            Err(object_store::Error::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(place.store(&error)),
        };
        let id = String::from_utf8_lossy(&id).into_owned();
        let object = note.as_str().strip_suffix(OPEN_UPLOAD).unwrap_or(note.as_str());
        let object = Key::parse(object).map_err(|error| place.error(ErrorKind::Rejected, error))?;
        match self.parts.abort_multipart(&self.full(&object), &id).await {
            // Not found: it ended, only its note stayed.
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(place.store(&error)),
        }
        self.store
            .delete(&note_path)
            .await
            .map_err(|error| place.store(&error))
    }
}

fn open_upload_note(key: &Key, place: Place<'_>) -> Result<Key, ObjectsError> {
    Key::parse(&format!("{key}{OPEN_UPLOAD}")).map_err(|error| place.error(ErrorKind::Rejected, error))
}

type Sent = Result<object_store::Result<(usize, PartId)>, tokio::task::JoinError>;

fn collect(
    joined: Option<Sent>,
    done: &mut Vec<(usize, PartId)>,
    place: Place<'_>,
) -> Result<(), ObjectsError> {
    match joined {
        None => Ok(()),
        Some(Ok(Ok(part))) => {
            done.push(part);
            Ok(())
        }
        Some(Ok(Err(error))) => Err(place.store(&error)),
        Some(Err(error)) => Err(place.error(ErrorKind::Unavailable, error)),
    }
}
