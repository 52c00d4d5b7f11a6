//! Tests with a store that fails on purpose.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartId, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use sha2::{Digest, Sha256};
use tidegate_config::ObjectsConfig;

use crate::remote::Remote;
use crate::{ErrorKind, Key, Objects, staging_folder};

const MIB: usize = 1 << 20;

/// Fails each `every`-th part while `failures` last; remembers what it was asked.
#[derive(Debug, Default)]
struct Faulty {
    inner: InMemory,
    /// Open uploads. (The library's own in-memory parts need to come in order.)
    open: Mutex<HashMap<MultipartId, BTreeMap<usize, PutPayload>>>,
    every: usize,
    failures: AtomicUsize,
    status: &'static str,
    parts: AtomicUsize,
    aborts: AtomicUsize,
    abort_fails: bool,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
    uploads: Mutex<Vec<(String, usize)>>,
}

impl Faulty {
    fn error(&self) -> object_store::Error {
        object_store::Error::Generic {
            store: "faulty",
            source: format!("status code: {}", self.status).into(),
        }
    }
}

/// Counts parts that are being sent, also when sending is given up in the middle.
struct UnderWay<'a>(&'a Faulty);

impl<'a> UnderWay<'a> {
    fn count(store: &'a Faulty) -> Self {
        let now = store.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        store.most_under_way.fetch_max(now, Ordering::SeqCst);
        Self(store)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::SeqCst);
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("faulty")
    }
}

#[async_trait]
impl MultipartStore for Faulty {
    async fn create_multipart(&self, _: &Path) -> Result<MultipartId> {
        let mut open = self.open.lock().unwrap();
        let id = format!("upload-{}", open.len());
        open.insert(id.clone(), BTreeMap::new());
        Ok(id)
    }
    async fn put_part(&self, path: &Path, id: &MultipartId, part: usize, data: PutPayload) -> Result<PartId> {
        let _under_way = UnderWay::count(self);
        self.uploads.lock().unwrap().push((path.to_string(), part));
        tokio::task::yield_now().await;
        let count = self.parts.fetch_add(1, Ordering::SeqCst) + 1;
        let fails = self.every > 0
            && count.is_multiple_of(self.every)
            && self
                .failures
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                .is_ok();
        if fails {
            return Err(self.error());
        }
        self.open.lock().unwrap().get_mut(id).unwrap().insert(part, data);
        Ok(PartId {
            content_id: part.to_string(),
        })
    }
    async fn complete_multipart(
        &self,
        path: &Path,
        id: &MultipartId,
        parts: Vec<PartId>,
    ) -> Result<PutResult> {
        let sent = self.open.lock().unwrap().remove(id).unwrap();
        let named: Vec<usize> = parts
            .iter()
            .map(|part| part.content_id.parse().unwrap())
            .collect();
        assert_eq!(
            named,
            sent.keys().copied().collect::<Vec<usize>>(),
            "the parts are named in order"
        );
        let whole: Vec<_> = sent.values().flat_map(PutPayload::iter).cloned().collect();
        self.inner
            .put_opts(path, PutPayload::from_iter(whole), PutOptions::default())
            .await
    }
    async fn abort_multipart(&self, _: &Path, id: &MultipartId) -> Result<()> {
        self.aborts.fetch_add(1, Ordering::SeqCst);
        if self.abort_fails {
            return Err(self.error());
        }
        self.open.lock().unwrap().remove(id);
        Ok(())
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, path: &Path, data: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.inner.put_opts(path, data, options).await
    }
    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }
    async fn get_opts(&self, path: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(path, options).await
    }
    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(paths)
    }
    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }
    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn over(store: &Arc<Faulty>) -> Objects {
    let mut config = ObjectsConfig::at("s3://test");
    config.part_size = 5 << 20;
    config.upload_concurrency = 3;
    config.upload_attempts = 4;
    Objects::over(Remote::over(store.clone(), Path::from("pre fix")), config)
}

/// A file of 23 MiB (five parts) with bytes that repeat nowhere near a part's size.
fn big_file() -> (tempfile::NamedTempFile, String) {
    let bytes: Vec<u8> = (0..23 * MIB)
        .map(|at| (at % 251) as u8 ^ (at / 65_521) as u8)
        .collect();
    let file = tempfile::NamedTempFile::with_suffix(".parquet").unwrap();
    std::fs::write(file.path(), &bytes).unwrap();
    let sha256 = hex::encode(Sha256::digest(&bytes));
    (file, sha256)
}

fn folder() -> Key {
    staging_folder(&"task 1".parse().unwrap()).unwrap()
}

/// B52, storage reports: 500, 503 and resets in the middle of an upload.
#[tokio::test]
async fn b52_a_failed_part_begins_the_whole_object_anew_under_another_key() {
    for (status, failures) in [
        ("503 Slow Down", 2),
        ("500 Internal Server Error", 3),
        ("connection reset", 1),
    ] {
        let store = Arc::new(Faulty {
            every: 3,
            failures: failures.into(),
            status,
            ..Faulty::default()
        });
        let objects = over(&store);
        let (file, sha256) = big_file();
        let uploaded = objects.upload_staged(file.path(), &folder()).await.unwrap();
        assert_eq!((uploaded.size, &uploaded.sha256), (23 * MIB as u64, &sha256));
        assert_eq!(
            hex::encode(Sha256::digest(objects.read(&uploaded.key).await.unwrap())),
            sha256
        );
        let uploads = store.uploads.lock().unwrap().clone();
        let once: HashSet<_> = uploads.iter().collect();
        assert_eq!(
            once.len(),
            uploads.len(),
            "no part was sent twice under one key: {uploads:?}"
        );
        let keys: HashSet<_> = uploads.iter().map(|(key, _)| key).collect();
        assert_eq!(keys.len(), failures + 1, "each failure begins another key");
        assert_eq!(store.aborts.load(Ordering::SeqCst), failures);
        assert!(
            store.most_under_way.load(Ordering::SeqCst) <= 3,
            "memory is bounded by the concurrency"
        );
        let left = objects
            .sweep(Duration::ZERO, |key| *key == uploaded.key)
            .await
            .unwrap();
        assert_eq!(
            (left.seen, left.kept),
            (1, 1),
            "neither a partial object nor a note stays: {left:?}"
        );
    }
}

#[tokio::test]
async fn a_store_that_stays_away_is_reported_as_retryable_and_leaves_no_object() {
    let store = Arc::new(Faulty {
        every: 1,
        failures: usize::MAX.into(),
        status: "500 gone",
        ..Faulty::default()
    });
    let (file, _) = big_file();
    let error = over(&store)
        .upload_staged(file.path(), &folder())
        .await
        .unwrap_err();
    assert!(
        error.is_retryable() && error.kind == ErrorKind::Unavailable,
        "{error}"
    );
    assert_eq!(
        store.aborts.load(Ordering::SeqCst),
        4,
        "all attempts were made and aborted"
    );
}

#[tokio::test]
async fn a_refusal_is_not_tried_again() {
    let store = Arc::new(Faulty {
        every: 1,
        failures: usize::MAX.into(),
        status: "400 Bad",
        ..Faulty::default()
    });
    let (file, _) = big_file();
    let error = over(&store)
        .upload_staged(file.path(), &folder())
        .await
        .unwrap_err();
    assert!(
        !error.is_retryable() && error.kind == ErrorKind::Rejected,
        "{error}"
    );
    assert_eq!(store.aborts.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_upload_whose_uploader_died_is_aborted_by_the_sweep_after_the_grace_time() {
    let store = Arc::new(Faulty {
        every: 1,
        failures: usize::MAX.into(),
        status: "400 Bad",
        abort_fails: true,
        ..Faulty::default()
    });
    let (file, _) = big_file();
    over(&store)
        .upload_staged(file.path(), &folder())
        .await
        .unwrap_err();
    let store = Arc::new(Faulty {
        inner: store.inner.clone(),
        ..Faulty::default()
    });
    let objects = over(&store);
    let early = objects.sweep(Duration::from_hours(1), |_| false).await.unwrap();
    assert_eq!((early.seen, early.young, early.aborted_uploads), (1, 1, 0));
    let late = objects.sweep(Duration::ZERO, |_| false).await.unwrap();
    assert_eq!((late.seen, late.aborted_uploads, late.failed), (1, 1, 0));
    assert_eq!(store.aborts.load(Ordering::SeqCst), 1);
    assert_eq!(objects.sweep(Duration::ZERO, |_| false).await.unwrap().seen, 0);
}
