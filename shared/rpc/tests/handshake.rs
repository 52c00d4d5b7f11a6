//! The handshake over real connections: who is known, when it is made, what a peer without it is taken for.

#![allow(clippy::unwrap_used, reason = "a test file; helpers are outside #[test]")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_protocol::negotiation::{Hello, INCREMENTAL_HANDOFF, ProtocolRange};
use tidegate_rpc::handshake_wire::v1::handshake_service_server::{HandshakeService, HandshakeServiceServer};
use tidegate_rpc::handshake_wire::v1::{HandshakeRequest, HandshakeResponse};
use tidegate_rpc::health::{self, Health};
use tidegate_rpc::{Transport, handshake, server};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

/// A publisher that counts how often it is greeted.
struct Counting(Hello, Arc<AtomicU64>);

#[tonic::async_trait]
impl HandshakeService for Counting {
    async fn handshake(
        &self,
        _: tonic::Request<HandshakeRequest>,
    ) -> Result<tonic::Response<HandshakeResponse>, tonic::Status> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(tonic::Response::new(HandshakeResponse {
            hello: Some((&self.0).into()),
        }))
    }
}

fn hello(min: u32, max: u32) -> Hello {
    Hello {
        protocol: ProtocolRange { min, max },
        ..handshake::own("publisher", [])
    }
}

struct Running {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

/// Serves at `address`, as soon as it is free.
async fn serve(address: &str, routes: Routes) -> Running {
    let listener = loop {
        match TcpListener::bind(address).await {
            Ok(listener) => break listener,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let serving = tokio::spawn(async move {
        let end = async move { stopped.cancelled().await };
        server::serve(listener, routes, &Health::new(), Duration::from_millis(50), end)
            .await
            .unwrap();
    });
    Running {
        address,
        stop,
        serving,
    }
}

impl Running {
    fn greeted(&self) -> Transport {
        let transport = Transport::connect(&format!("http://{}", self.address)).unwrap();
        transport.greet(&handshake::own("coordinator", []), "publisher")
    }
    async fn end(self) {
        self.stop.cancel();
        self.serving.await.unwrap();
    }
}

fn with_handshake(hello: Hello) -> (Routes, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    let service = HandshakeServiceServer::new(Counting(hello, count.clone()));
    (Routes::new(service), count)
}

#[tokio::test]
async fn a_peer_is_known_after_the_first_call_and_no_call_costs_another_round_trip() {
    let (routes, count) = with_handshake(hello(0, 1));
    let running = serve("127.0.0.1:0", routes).await;
    let transport = running.greeted();
    assert!(
        !transport.peer_can(INCREMENTAL_HANDOFF),
        "nothing is assumed before"
    );
    for _ in 0..20 {
        assert!(health::check(transport.clone()).await.unwrap());
    }
    assert!(transport.peer_can(INCREMENTAL_HANDOFF));
    let peer = transport.peer().unwrap().borrow().clone().unwrap();
    assert_eq!(
        (peer.role.as_str(), peer.protocol),
        ("publisher", ProtocolRange { min: 0, max: 1 })
    );
    assert_eq!(count.load(Ordering::SeqCst), 1);
    running.end().await;
}

#[tokio::test]
async fn i7_a_peer_without_the_service_is_release_0_1_0() {
    let running = serve("127.0.0.1:0", Routes::default()).await;
    let transport = running.greeted();
    assert!(health::check(transport.clone()).await.unwrap(), "calls go on");
    let peer = transport.peer().unwrap().borrow().clone().unwrap();
    assert_eq!(peer, Hello::silent("publisher"));
    running.end().await;
}

#[tokio::test]
async fn a_capability_that_is_gone_or_new_after_a_reconnect_is_noticed() {
    let (routes, _) = with_handshake(hello(0, 1));
    let first = serve("127.0.0.1:0", routes).await;
    let (address, transport) = (first.address.to_string(), first.greeted());
    assert!(health::check(transport.clone()).await.unwrap());
    assert!(transport.peer_can(INCREMENTAL_HANDOFF));
    first.end().await;
    let rolled_back = serve(&address, Routes::default()).await;
    let until = async |can: bool| {
        while transport.peer_can(INCREMENTAL_HANDOFF) != can {
            // The first call over the new connection may still go ungreeted.
            let _ = health::check(transport.clone()).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), until(false))
        .await
        .unwrap();
    rolled_back.end().await;
    let (routes, count) = with_handshake(hello(0, 1));
    let upgraded = serve(&address, routes).await;
    tokio::time::timeout(Duration::from_secs(20), until(true))
        .await
        .unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 1);
    upgraded.end().await;
}

#[tokio::test]
async fn protocols_that_do_not_overlap_fail_each_call_naming_both_and_what_to_upgrade() {
    let (routes, _) = with_handshake(hello(7, 9));
    let running = serve("127.0.0.1:0", routes).await;
    for _ in 0..2 {
        let refused = health::check(running.greeted()).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
        let text = refused.message();
        assert!(
            text.contains("0 to 1") && text.contains("7 to 9") && text.contains("upgrade the coordinator"),
            "{text}"
        );
    }
    running.end().await;
    // The same seen from the service.
    let running = serve("127.0.0.1:0", Routes::new(handshake::server(hello(7, 9)))).await;
    let refused = health::check(running.greeted()).await.unwrap_err();
    assert!(
        refused.message().contains("upgrade the coordinator"),
        "{}",
        refused.message()
    );
    running.end().await;
}
