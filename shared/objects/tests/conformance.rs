//! One suite for every store: what callers rely on, on a local folder and on a real S3 server.

#![allow(clippy::unwrap_used)] // the helpers of a test are tests too

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{Int64Array, RecordBatch};
use futures::TryStreamExt;
use parquet::arrow::ArrowWriter;
use sha2::{Digest, Sha256};
use tidegate_objects::{
    Difference, ErrorKind, Key, Objects, ObjectsConfig, Promoted, VerifyError, staging_folder,
};
use tidegate_servers::S3;

fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

/// A Parquet file of so many rows, in a folder with a name that people would give.
fn parquet(folder: &std::path::Path, rows: i64) -> std::path::PathBuf {
    let path = folder.join(format!("Łódź {rows}.parquet"));
    let batch =
        RecordBatch::try_from_iter([("n", Arc::new(Int64Array::from_iter_values(0..rows)) as _)]).unwrap();
    let mut writer =
        ArrowWriter::try_new(std::fs::File::create(&path).unwrap(), batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    path
}

fn sha256(path: &std::path::Path) -> String {
    hex::encode(Sha256::digest(std::fs::read(path).unwrap()))
}

async fn conforms(objects: &Objects) {
    objects.check().await.unwrap();
    what_was_uploaded_is_what_was_said(objects).await;
    a_wrong_claim_is_refused_with_its_reason(objects).await;
    names_with_odd_characters_come_back_as_they_are(objects).await;
    a_promotion_can_be_repeated_and_what_stands_there_decides_nothing(objects).await;
    a_sweep_takes_old_staged_objects_that_nobody_wants(objects).await;
    a_large_file_goes_in_parts(objects).await;
}

async fn what_was_uploaded_is_what_was_said(objects: &Objects) {
    let disk = tempfile::tempdir().unwrap();
    let file = parquet(disk.path(), 1234);
    let folder = staging_folder(&"task".parse().unwrap()).unwrap();
    let first = objects.upload_staged(&file, &folder).await.unwrap();
    let second = objects.upload_staged(&file, &folder).await.unwrap();
    assert_eq!(first.size, std::fs::metadata(&file).unwrap().len());
    assert_eq!(first.sha256, sha256(&file));
    assert_ne!(first.key, second.key, "an upload never takes the name of another");
    assert!(first.key.is_below(&folder) && first.key.as_str().ends_with(".parquet"));
    objects
        .verify(&first.key, first.size, &first.sha256, 1234)
        .await
        .unwrap();
    assert_eq!(objects.head(&first.key).await.unwrap().unwrap().size, first.size);
    for key in [first.key, second.key] {
        objects.delete(&key).await.unwrap();
        objects.delete(&key).await.unwrap();
        assert_eq!(objects.head(&key).await.unwrap(), None);
    }
    let absent = objects
        .upload_staged(&disk.path().join("absent"), &folder)
        .await
        .unwrap_err();
    assert_eq!(absent.kind, ErrorKind::NotFound);
}

async fn a_wrong_claim_is_refused_with_its_reason(objects: &Objects) {
    let disk = tempfile::tempdir().unwrap();
    let folder = staging_folder(&"claims".parse().unwrap()).unwrap();
    let up = objects
        .upload_staged(&parquet(disk.path(), 10), &folder)
        .await
        .unwrap();
    let difference = |result: Result<(), VerifyError>| match result {
        Err(error @ VerifyError::Differs { .. }) => {
            assert!(error.is_bad_object() && !error.is_retryable());
            let VerifyError::Differs { difference, .. } = error else {
                unreachable!()
            };
            difference
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(
        difference(objects.verify(&up.key, up.size + 1, &up.sha256, 10).await),
        Difference::Size {
            said: up.size + 1,
            found: up.size
        }
    );
    let zeros = "0".repeat(64);
    assert_eq!(
        difference(objects.verify(&up.key, up.size, &zeros, 10).await),
        Difference::Checksum {
            said: zeros,
            found: up.sha256.clone()
        }
    );
    assert_eq!(
        difference(objects.verify(&up.key, up.size, &up.sha256, 11).await),
        Difference::Rows { said: 11, found: 10 }
    );
    for bytes in [
        b"PAR1".as_slice(),
        b"no parquet at all",
        b"\xff\xff\xff\xffPAR1",
        b"",
    ] {
        let text = disk.path().join("text");
        std::fs::write(&text, bytes).unwrap();
        let up = objects.upload_staged(&text, &folder).await.unwrap();
        let found = difference(objects.verify(&up.key, up.size, &up.sha256, 0).await);
        assert!(matches!(found, Difference::NotParquet(_)), "{found:?}");
        objects.delete(&up.key).await.unwrap();
    }
    objects.delete(&up.key).await.unwrap();
    let gone = objects
        .verify(&up.key, up.size, &up.sha256, 10)
        .await
        .unwrap_err();
    assert!(matches!(gone, VerifyError::Missing { .. }) && gone.is_bad_object());
}

async fn names_with_odd_characters_come_back_as_they_are(objects: &Objects) {
    let disk = tempfile::tempdir().unwrap();
    let file = parquet(disk.path(), 1);
    for name in [
        "Łódź",
        "app.db.settings",
        "a b",
        "100%",
        "a%20b",
        "x+y=z&w",
        "日本語 #1",
        "it's (1)~",
    ] {
        let folder = staging_folder(&name.parse().unwrap()).unwrap();
        let up = objects.upload_staged(&file, &folder).await.unwrap();
        let to = key(&format!("segments/{name}/v 1/0.parquet"));
        let read_back = key(up.key.as_str());
        objects
            .promote(&read_back, &to, up.size, &up.sha256)
            .await
            .unwrap();
        let listed: Vec<_> = objects
            .list(&key(&format!("segments/{name}")))
            .try_collect()
            .await
            .unwrap();
        assert_eq!(
            listed.iter().map(|head| head.key.as_str()).collect::<Vec<_>>(),
            [to.as_str()]
        );
        objects
            .verify(&listed[0].key, up.size, &up.sha256, 1)
            .await
            .unwrap();
        objects.delete(&to).await.unwrap();
        objects.delete(&up.key).await.unwrap();
    }
}

async fn a_promotion_can_be_repeated_and_what_stands_there_decides_nothing(objects: &Objects) {
    let disk = tempfile::tempdir().unwrap();
    let folder = staging_folder(&"promotion".parse().unwrap()).unwrap();
    let other = objects
        .upload_staged(&parquet(disk.path(), 5), &folder)
        .await
        .unwrap();
    let right = objects
        .upload_staged(&parquet(disk.path(), 7), &folder)
        .await
        .unwrap();
    let to = key("segments/ds/i/v/0.parquet");
    objects
        .promote(&other.key, &to, other.size, &other.sha256)
        .await
        .unwrap();
    for _ in 0..2 {
        let done = objects
            .promote(&right.key, &to, right.size, &right.sha256)
            .await
            .unwrap();
        assert_eq!(done, Promoted::Copied);
        objects.verify(&to, right.size, &right.sha256, 7).await.unwrap();
    }
    objects.delete(&right.key).await.unwrap();
    let again = objects
        .promote(&right.key, &to, right.size, &right.sha256)
        .await
        .unwrap();
    assert_eq!(again, Promoted::Before);
    objects.delete(&other.key).await.unwrap();
    let wrong = objects
        .promote(&other.key, &to, other.size, &other.sha256)
        .await
        .unwrap_err();
    assert!(
        wrong.is_bad_object(),
        "another object at the final key is no promotion: {wrong}"
    );
    objects.delete(&to).await.unwrap();
    let gone = objects
        .promote(&right.key, &to, right.size, &right.sha256)
        .await
        .unwrap_err();
    assert!(
        matches!(gone, VerifyError::Missing { ref key } if *key == right.key),
        "{gone}"
    );
}

async fn a_sweep_takes_old_staged_objects_that_nobody_wants(objects: &Objects) {
    let disk = tempfile::tempdir().unwrap();
    let file = parquet(disk.path(), 3);
    let folder = staging_folder(&"sweep".parse().unwrap()).unwrap();
    let wanted = objects.upload_staged(&file, &folder).await.unwrap();
    let orphan = objects.upload_staged(&file, &folder).await.unwrap();
    let published = key("segments/swept/0.parquet");
    objects
        .promote(&wanted.key, &published, wanted.size, &wanted.sha256)
        .await
        .unwrap();
    let early = objects.sweep(Duration::from_hours(1), |_| false).await.unwrap();
    assert_eq!((early.seen, early.young, early.deleted), (2, 2, 0));
    let late = objects
        .sweep(Duration::ZERO, |key| *key == wanted.key)
        .await
        .unwrap();
    assert_eq!(
        (late.seen, late.kept, late.deleted, late.deleted_bytes),
        (2, 1, 1, orphan.size)
    );
    assert!(objects.head(&wanted.key).await.unwrap().is_some());
    assert_eq!(objects.head(&orphan.key).await.unwrap(), None);
    objects.delete(&wanted.key).await.unwrap();
    objects
        .verify(&published, wanted.size, &wanted.sha256, 3)
        .await
        .unwrap();
    objects.delete(&published).await.unwrap();
}

async fn a_large_file_goes_in_parts(objects: &Objects) {
    let disk = tempfile::tempdir().unwrap();
    let file = disk.path().join("large.bin");
    let bytes: Vec<u8> = (0..22_000_001_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(&file, &bytes).unwrap();
    let folder = staging_folder(&"large".parse().unwrap()).unwrap();
    let up = objects.upload_staged(&file, &folder).await.unwrap();
    assert_eq!((up.size, &up.sha256), (22_000_001, &sha256(&file)));
    objects.verify_bytes(&up.key, up.size, &up.sha256).await.unwrap();
    let listed: Vec<_> = objects.list(&folder).try_collect().await.unwrap();
    assert_eq!(listed.len(), 1, "no note of the upload stays: {listed:?}");
    objects.delete(&up.key).await.unwrap();
}

#[tokio::test]
async fn a_local_folder_conforms_whatever_its_name() {
    let disk = tempfile::tempdir().unwrap();
    for name in ["plain", "Łódź a%20b #1"] {
        conforms(&Objects::open(&ObjectsConfig::local(&disk.path().join(name))).unwrap()).await;
    }
    let spelled = format!("file://{}/Ł%20x", disk.path().display());
    conforms(&Objects::open(&ObjectsConfig::at(spelled)).unwrap()).await;
    assert!(disk.path().join("Ł x").is_dir(), "an address is percent-decoded");
}

/// The server's health page may say "ready" a moment before it takes buckets.
fn bucket(s3: &S3) -> String {
    let begun = std::time::Instant::now();
    loop {
        match s3.fresh_bucket() {
            Err(error) if error.to_string().contains("NotInitialized") && begun.elapsed().as_secs() < 30 => {}
            made => return made.unwrap(),
        }
    }
}

fn on(s3: &S3, prefix: &str) -> ObjectsConfig {
    let mut config = ObjectsConfig::at(format!("s3://{}{prefix}", bucket(s3)));
    config.endpoint = Some(s3.endpoint().to_owned());
    config.region = Some(s3.region().to_owned());
    config.access_key = Some(s3.access_key().to_owned());
    config.secret_key = Some(s3.secret_key().into());
    config.allow_http = true;
    config
}

#[tokio::test]
async fn an_s3_server_conforms_with_and_without_a_prefix() {
    let s3 = S3::shared().unwrap();
    for prefix in ["", "/deep/pre%20fix/Łódź"] {
        conforms(&Objects::open(&on(s3, prefix)).unwrap()).await;
    }
}

#[tokio::test]
async fn refusals_of_an_s3_server_say_what_to_check_and_are_not_repeated() {
    let s3 = S3::shared().unwrap();
    let disk = tempfile::tempdir().unwrap();
    let folder = staging_folder(&"refused".parse().unwrap()).unwrap();
    let mut wrong_key = on(s3, "");
    wrong_key.secret_key = Some("not the secret key".into());
    let mut no_bucket = on(s3, "");
    no_bucket.url = "s3://no-such-bucket-here".into();
    for (config, kind) in [(wrong_key, ErrorKind::Denied), (no_bucket, ErrorKind::NotFound)] {
        let objects = Objects::open(&config).unwrap();
        assert_eq!(objects.check().await.unwrap_err().kind, kind);
        let error = objects
            .upload_staged(&parquet(disk.path(), 1), &folder)
            .await
            .unwrap_err();
        assert!(error.kind == kind && !error.is_retryable(), "{error}");
        assert!(!error.to_string().contains("not the secret key"), "{error}");
    }
}

/// I6 for the store: it goes away in the middle of an upload, and comes back.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_outlives_a_kill_of_the_server_and_leaves_one_object() {
    let mut s3 = S3::start_own().unwrap();
    let mut config = on(&s3, "/p");
    config.upload_attempts = 100;
    let objects = Objects::open(&config).unwrap();
    let disk = tempfile::tempdir().unwrap();
    let file = disk.path().join("large.parquet");
    std::fs::write(&file, vec![7; 64 << 20]).unwrap();
    let folder = staging_folder(&"outage".parse().unwrap()).unwrap();
    let (uploader, path, below) = (objects.clone(), file.clone(), folder.clone());
    let upload = tokio::spawn(async move { uploader.upload_staged(&path, &below).await });
    // The note of the open upload shows that it is in its middle.
    while !objects
        .list(&folder)
        .try_any(|head| async move { head.key.as_str().ends_with(".open-upload") })
        .await
        .unwrap()
    {
        assert!(
            !upload.is_finished(),
            "the upload was too quick to be interrupted"
        );
    }
    s3.kill9().unwrap();
    let s3 = tokio::task::spawn_blocking(move || s3.start_again().map(|()| s3))
        .await
        .unwrap()
        .unwrap();
    let up = upload.await.unwrap().unwrap();
    objects
        .verify_bytes(&up.key, 64 << 20, &sha256(&file))
        .await
        .unwrap();
    let report = objects.sweep(Duration::ZERO, |key| *key == up.key).await.unwrap();
    assert_eq!((report.kept, report.failed), (1, 0), "{report:?}");
    let left: Vec<_> = objects.list(&folder).try_collect().await.unwrap();
    assert_eq!(left.iter().map(|head| &head.key).collect::<Vec<_>>(), [&up.key]);
    drop(s3);
}

#[test]
fn an_address_that_names_no_store_is_refused_with_what_to_write() {
    for url in ["", "ftp://host/x", "s3:///nobucket", "file://host.example/x"] {
        let error = Objects::open(&ObjectsConfig::at(url)).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Config, "{url}");
        assert!(error.to_string().contains("objects.*"), "{error}");
    }
}

#[test]
fn secrets_do_not_show() {
    let mut config = ObjectsConfig::at("s3://user:MARKER@bucket/prefix?token=MARKER");
    config.secret_key = Some("MARKER".into());
    config.access_key = Some("id".into());
    config.region = Some("eu".into());
    let objects = Objects::open(&config).unwrap();
    assert!(!format!("{objects:?} {}", objects.address()).contains("MARKER"));
}
