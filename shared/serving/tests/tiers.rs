//! Each tier against a server (or a folder) that answers what a test tells it to.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test file; helpers are outside #[test]"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::routing::get;
use sha2::{Digest as _, Sha256};
use tidegate_objects::{Objects, ObjectsConfig};
use tidegate_rpc::serving::v1 as wire;
use tidegate_rpc::serving::v1::segment_serving_server::SegmentServing;
use tidegate_rpc::{Transport, clients};
use tidegate_serving::{Druid, Grpc, ObjectStore, PublishedObject, Served, ServingError, ServingTier};
use tidegate_types::{DataSource, Interval, SegmentId, SegmentVersion, TimestampMillis};

const CONTENT: &[u8] = b"the bytes of a segment";

fn object() -> PublishedObject {
    PublishedObject {
        id: SegmentId {
            data_source: DataSource::new("wiki edits é").unwrap(),
            interval: Interval::new(TimestampMillis(0), TimestampMillis(86_400_000)).unwrap(),
            version: SegmentVersion::new("2026-01-01T00:00:00.000Z").unwrap(),
            partition_num: 3,
        },
        key: "segments/wiki/one.parquet".to_owned(),
        size_bytes: CONTENT.len() as u64,
        sha256: hex::encode(Sha256::digest(CONTENT)),
        promoted: true,
    }
}

fn is_yes(served: &Result<Served, ServingError>) -> bool {
    matches!(served, Ok(Served::Yes(_)))
}
fn is_not_yet(served: &Result<Served, ServingError>) -> bool {
    matches!(served, Ok(Served::NotYet(_)))
}

#[tokio::test]
async fn an_object_is_served_when_it_is_whole_at_its_final_key_and_only_then() {
    let folder = tempfile::tempdir().unwrap();
    let tier = ObjectStore::new(Objects::open(&ObjectsConfig::local(folder.path())).unwrap());
    let path = folder.path().join("segments/wiki/one.parquet");
    assert!(is_not_yet(&tier.check(&object()).await), "nothing is there");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    for damaged in [&CONTENT[1..], b"the bytes of a sEgment"] {
        std::fs::write(&path, damaged).unwrap();
        assert!(is_not_yet(&tier.check(&object()).await));
    }
    std::fs::write(&path, CONTENT).unwrap();
    let staged = PublishedObject {
        promoted: false,
        ..object()
    };
    assert!(is_not_yet(&tier.check(&staged).await));
    assert!(is_yes(&tier.check(&object()).await));
}

type Asked = Arc<Mutex<Vec<(String, BTreeMap<String, String>)>>>;

/// A Druid coordinator that answers these, one after the other.
async fn druid(answers: Vec<(StatusCode, &'static str)>) -> (String, Asked) {
    let asked = Asked::default();
    let answers = Arc::new(Mutex::new(answers.into_iter()));
    let handler = move |State(asked): State<Asked>, Path(data_source): Path<String>, uri: Uri| {
        let url = reqwest::Url::parse(&format!("http://host{uri}")).unwrap();
        let query = url.query_pairs().into_owned().collect();
        asked.lock().unwrap().push((data_source, query));
        let answer = answers.lock().unwrap().next().unwrap();
        async move { answer }
    };
    let routes = axum::Router::new()
        .route(
            "/druid/coordinator/v1/datasources/{data_source}/handoffComplete",
            get(handler),
        )
        .with_state(asked.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, routes).await });
    (address, asked)
}

#[tokio::test]
async fn druid_is_asked_for_exactly_this_segment_and_only_true_is_served() {
    let answers = vec![
        (StatusCode::OK, "false"),
        (StatusCode::OK, "true"),
        (StatusCode::OK, "\"true\""),
        (StatusCode::OK, ""),
        (StatusCode::INTERNAL_SERVER_ERROR, "true"),
        (StatusCode::NOT_FOUND, "no such thing"),
    ];
    let (address, asked) = druid(answers).await;
    let tier = Druid::new(&address).unwrap();
    assert!(is_not_yet(&tier.check(&object()).await));
    assert!(is_yes(&tier.check(&object()).await));
    for _ in 0..4 {
        let answer = tier.check(&object()).await;
        assert!(matches!(answer, Err(ServingError::Garbled { .. })), "{answer:?}");
    }
    let wanted = BTreeMap::from([
        (
            "interval".to_owned(),
            "1970-01-01T00:00:00.000Z/1970-01-02T00:00:00.000Z".to_owned(),
        ),
        ("partitionNumber".to_owned(), "3".to_owned()),
        ("version".to_owned(), "2026-01-01T00:00:00.000Z".to_owned()),
    ]);
    for (data_source, query) in asked.lock().unwrap().iter() {
        assert_eq!((data_source.as_str(), query), ("wiki edits é", &wanted));
    }
}

#[tokio::test]
async fn a_druid_that_is_away_or_no_address_is_an_error_that_says_where() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let answer = Druid::new(&address).unwrap().check(&object()).await;
    assert!(answer.unwrap_err().to_string().contains(&address));
    for bad in ["", "druid:8081", "ftp://host"] {
        let error = Druid::new(bad).unwrap_err();
        assert!(error.to_string().contains("handoff.druid_url"), "{error}");
    }
}

struct Serving(Mutex<Vec<i32>>);

#[tonic::async_trait]
impl SegmentServing for Serving {
    async fn are_served(
        &self,
        request: tonic::Request<wire::AreServedRequest>,
    ) -> Result<tonic::Response<wire::AreServedResponse>, tonic::Status> {
        let segment = request.into_inner().segments.remove(0);
        assert_eq!(SegmentId::try_from(&segment.id.unwrap()).unwrap(), object().id);
        assert_eq!((segment.key, segment.sha256), (object().key, object().sha256));
        let states = self.0.lock().unwrap().clone();
        Ok(tonic::Response::new(wire::AreServedResponse { states }))
    }
}

#[tokio::test]
async fn b62_a_serving_server_confirms_by_a_state_that_is_known_and_by_nothing_else() {
    let serving = Arc::new(Serving(Mutex::default()));
    let tier = Grpc::over(
        Transport::in_process(clients::serving_server(serving.clone())),
        "in this process",
    );
    for (states, wanted) in [
        (vec![wire::ServingState::Served as i32], Some(true)),
        (vec![wire::ServingState::NotNeeded as i32], Some(true)),
        (vec![wire::ServingState::NotServed as i32], Some(false)),
        (vec![0], Some(false)),
        (vec![99], Some(false)),
        (vec![], None),
        (vec![2, 2], None),
    ] {
        *serving.0.lock().unwrap() = states.clone();
        let answer = tier.check(&object()).await;
        let found = answer.ok().map(|served| matches!(served, Served::Yes(_)));
        assert_eq!(found, wanted, "{states:?}");
    }
}
