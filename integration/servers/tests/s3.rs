//! Real S3: buckets, objects, conditional writes (what the object-store adapter builds on), and what a kill leaves.
#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode};
use tidegate_servers::S3;

fn client(server: &S3, bucket: &str) -> AmazonS3 {
    AmazonS3Builder::new()
        .with_endpoint(server.endpoint())
        .with_allow_http(true)
        .with_region(server.region())
        .with_bucket_name(bucket)
        .with_access_key_id(server.access_key())
        .with_secret_access_key(server.secret_key())
        .build()
        .unwrap()
}

#[tokio::test]
async fn an_object_is_there_after_a_kill_and_is_not_overwritten_by_a_create() {
    let mut server = S3::start_own().unwrap();
    let bucket = server.fresh_bucket().unwrap();
    // A second time is fine.
    server.create_bucket(&bucket).unwrap();
    let store = client(&server, &bucket);
    let place = Path::from("wikipedia/été/part 1.parquet");
    store.put(&place, "rows".into()).await.unwrap();
    let again = store
        .put_opts(&place, "others".into(), PutMode::Create.into())
        .await;
    assert!(
        matches!(again, Err(object_store::Error::AlreadyExists { .. })),
        "{again:?}"
    );
    server.kill9().unwrap();
    server.start_again().unwrap();
    let bytes = store.get(&place).await.unwrap().bytes().await.unwrap();
    assert_eq!(bytes.as_ref(), b"rows");
}

#[tokio::test]
async fn buckets_are_apart_and_a_missing_one_is_an_error() {
    let server = S3::shared().unwrap();
    let (first, second) = (server.fresh_bucket().unwrap(), server.fresh_bucket().unwrap());
    assert_ne!(first, second);
    let place = Path::from("a");
    client(server, &first).put(&place, "1".into()).await.unwrap();
    assert!(matches!(
        client(server, &second).get(&place).await,
        Err(object_store::Error::NotFound { .. })
    ));
    assert!(
        client(server, "tidegate-never-made")
            .put(&place, "1".into())
            .await
            .is_err()
    );
}
