//! B43: the connection to the store is cut at COMMIT. What was committed is found by asking again; nothing is
//! committed twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tidegate_metadata::{Metadata, Publish, PublisherStore, StoreError};
use tidegate_protocol::publish::PublishDecision;
use tidegate_types::Epoch;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::databases::postgres;
use crate::world::{Group, at, catalog, committed, initialize, is_published};

/// What the proxy does with the next COMMIT.
const PASS: u8 = 0;
/// Sends it on, and cuts the line when the answer comes.
const LOSE_THE_ANSWER: u8 = 1;
/// Cuts the line instead of sending it on.
const LOSE_THE_COMMIT: u8 = 2;

/// A TCP proxy in front of PostgreSQL that cuts the line once at the next COMMIT when told so.
struct Proxy {
    port: u16,
    next: Arc<AtomicU8>,
}

impl Proxy {
    async fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let next = Arc::new(AtomicU8::new(PASS));
        let told = Arc::clone(&next);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (server, told) = (server.clone(), Arc::clone(&told));
                tokio::spawn(async move { carry(client, &server, &told).await });
            }
        });
        Self { port, next }
    }
}

async fn carry(client: TcpStream, server: &str, told: &AtomicU8) {
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let (mut ask, mut answer) = (vec![0_u8; 65536], vec![0_u8; 65536]);
    let mut cut_at_answer = false;
    loop {
        tokio::select! {
            read = from_client.read(&mut ask) => {
                let Ok(length @ 1..) = read else { return };
                let sent = &ask[..length];
                if sent.windows(6).any(|word| word == b"COMMIT") {
                    match told.swap(PASS, Ordering::SeqCst) {
                        LOSE_THE_COMMIT => return,
                        LOSE_THE_ANSWER => cut_at_answer = true,
                        _ => {}
                    }
                }
                if to_server.write_all(sent).await.is_err() { return; }
            }
            read = from_server.read(&mut answer) => {
                let Ok(length @ 1..) = read else { return };
                if cut_at_answer || to_client.write_all(&answer[..length]).await.is_err() { return; }
            }
        }
    }
}

/// `postgres://user:password@host:port/name` with another port, and the address it had.
fn behind(url: &str, port: u16) -> (String, String) {
    let (head, rest) = url
        .rsplit_once('@')
        .map_or(("", url), |(head, rest)| (head, rest));
    let (address, path) = rest.split_once('/').unwrap();
    let user = if head.is_empty() {
        "postgres://".to_owned()
    } else {
        format!("{head}@")
    };
    (format!("{user}127.0.0.1:{port}/{path}"), address.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn b43_an_answer_lost_after_commit_is_found_as_already_published() {
    const ROUNDS: i64 = 100;
    let fresh = postgres().await;
    let (_, server) = behind(&fresh.url, 0);
    let proxy = Proxy::before(server).await;
    let store = Metadata::connect(&behind(&fresh.url, proxy.port).0)
        .await
        .unwrap();
    initialize(&store, at([(0, 0)])).await;
    for round in 0..ROUNDS {
        let group = Group::new(&format!("g{round}"), at([(0, round)]), at([(0, round + 1)]));
        let epoch = u64::try_from(round).unwrap() + 1;
        store.register_group(&group.registration(epoch)).await.unwrap();
        let files = vec![group.segment(&store, 0, 0).await];
        let wish = Publish {
            epoch: Epoch(epoch),
            ..group.wish(0, files)
        };
        let lost = if round % 2 == 0 {
            LOSE_THE_ANSWER
        } else {
            LOSE_THE_COMMIT
        };
        proxy.next.store(lost, Ordering::SeqCst);
        let error = store.publish(&wish).await.unwrap_err();
        assert!(
            matches!(error, StoreError::UnknownOutcome { .. }) && error.is_retryable(),
            "{error}"
        );
        // Another coordinator takes over before the task asks again.
        store
            .register_group(&group.registration(epoch + 1))
            .await
            .unwrap();
        let again = store.publish(&wish).await.unwrap();
        if lost == LOSE_THE_ANSWER {
            assert_eq!(again.decision, PublishDecision::AlreadyPublished);
        } else {
            assert!(is_published(&again), "{again:?}");
        }
        assert_eq!(again.segments.len(), 1);
        assert_eq!(committed(&store).await, at([(0, round + 1)]));
    }
    let ordinals: Vec<i64> = catalog(&fresh.store)
        .await
        .iter()
        .map(|segment| segment.ordinal.0)
        .collect();
    assert_eq!(ordinals, (1..=ROUNDS).collect::<Vec<i64>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_goes_away_is_retryable_and_comes_back() {
    let mut server = tokio::task::spawn_blocking(|| tidegate_servers::Postgres::start_own().unwrap())
        .await
        .unwrap();
    let url = server.url();
    let store = Metadata::connect(&url).await.unwrap();
    initialize(&store, at([(0, 2)])).await;
    let group = Group::new("a", at([(0, 2)]), at([(0, 5)]));
    group.register(&store).await;
    server = tokio::task::spawn_blocking(move || {
        server.kill9().unwrap();
        server
    })
    .await
    .unwrap();
    let error = store.publish(&group.wish(0, vec![])).await.unwrap_err();
    assert!(error.is_retryable(), "{error}");
    let _server = tokio::task::spawn_blocking(move || {
        server.start_again().unwrap();
        server
    })
    .await
    .unwrap();
    assert!(is_published(
        &store.publish(&group.wish(0, vec![])).await.unwrap()
    ));
    assert_eq!(committed(&store).await, at([(0, 5)]));
}
