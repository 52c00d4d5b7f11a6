//! The handshake: both sides of a channel tell who they are and what they can.
//!
//! Owns: when it is made, and what was heard last. Promises: it is made before the first call of a channel and again
//! before the first call after a reconnect was noticed; no call costs an extra round trip otherwise; a peer without
//! the service is release 0.1.0 (I7); ranges that do not overlap fail every call with both versions in the text.
//! A call that is under way while the channel reconnects may reach another build before it is greeted: builds refuse
//! what they do not know.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use tidegate_protocol::negotiation::{self, Hello, ProtocolRange};
use tokio::sync::watch;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{BoxError, Service, ServiceExt as _};

use crate::Transport;
use crate::handshake_wire::v1 as wire;
use crate::handshake_wire::v1::handshake_service_client::HandshakeServiceClient;
use crate::handshake_wire::v1::handshake_service_server::{HandshakeService, HandshakeServiceServer};

/// A peer that does not answer a handshake in this time does not answer calls either.
const PATIENCE: Duration = Duration::from_secs(5);

impl From<&Hello> for wire::Hello {
    fn from(hello: &Hello) -> Self {
        Self {
            role: hello.role.clone(),
            software_version: hello.software_version.clone(),
            instance_id: hello.instance_id.clone(),
            protocol_min: hello.protocol.min,
            protocol_max: hello.protocol.max,
            capabilities: hello.capabilities.iter().cloned().collect(),
        }
    }
}

impl From<wire::Hello> for Hello {
    fn from(hello: wire::Hello) -> Self {
        Self {
            role: hello.role,
            software_version: hello.software_version,
            instance_id: hello.instance_id,
            protocol: ProtocolRange {
                min: hello.protocol_min,
                max: hello.protocol_max,
            },
            capabilities: hello.capabilities.into_iter().collect::<BTreeSet<_>>(),
        }
    }
}

/// The service that answers with this side.
#[derive(Debug)]
pub struct Answering(Hello);

#[tonic::async_trait]
impl HandshakeService for Answering {
    async fn handshake(
        &self,
        request: tonic::Request<wire::HandshakeRequest>,
    ) -> Result<tonic::Response<wire::HandshakeResponse>, Status> {
        let Some(peer) = request.into_inner().hello.map(Hello::from) else {
            return Err(Status::invalid_argument("hello is required"));
        };
        match negotiation::agree(&self.0, &peer) {
            Ok(agreed) => tracing::info!(
                role = peer.role, version = peer.software_version, protocol = agreed.version,
                capabilities = ?agreed.capabilities, "a peer is here"
            ),
            Err(incompatible) => {
                tracing::error!(%incompatible, "a peer is refused");
                return Err(Status::failed_precondition(incompatible.to_string()));
            }
        }
        Ok(tonic::Response::new(wire::HandshakeResponse {
            hello: Some((&self.0).into()),
        }))
    }
}

/// The service to put beside others.
pub fn server(own: Hello) -> HandshakeServiceServer<Answering> {
    HandshakeServiceServer::new(Answering(own))
}

/// This build in a role, without the capabilities that are disabled.
pub fn own<'a>(role: &str, disabled: impl IntoIterator<Item = &'a str>) -> Hello {
    let instance = uuid::Uuid::new_v4().to_string();
    Hello::own(role, env!("CARGO_PKG_VERSION"), instance, disabled)
}

/// What was heard of a peer last; `None` = nothing yet.
pub type Peer = watch::Receiver<Option<Hello>>;

/// Greets before it calls.
#[derive(Clone)]
struct Greeting {
    inner: Transport,
    /// Connections made so far, all of one peer's address.
    connections: Arc<AtomicU64>,
    shared: Arc<Shared>,
}

struct Shared {
    own: Hello,
    /// What the peer is taken for when it has no handshake.
    role: &'static str,
    /// The number of connections when it was greeted last, plus one; 0 = never.
    greeted: AtomicU64,
    one: tokio::sync::Mutex<()>,
    heard: watch::Sender<Option<Hello>>,
}

impl Transport {
    /// This transport, with a handshake in front of its calls. `role` is what the peer should be. A peer in this
    /// process is of this build and needs none.
    #[must_use]
    pub fn greet(self, own: &Hello, role: &'static str) -> Self {
        let Some(connections) = self.connections() else {
            return self;
        };
        let heard = watch::Sender::new(None);
        let peer = heard.subscribe();
        let greeting = Greeting {
            inner: self,
            connections,
            shared: Arc::new(Shared {
                own: own.clone(),
                role,
                greeted: AtomicU64::new(0),
                one: tokio::sync::Mutex::default(),
                heard,
            }),
        };
        Self::boxed(greeting).with_peer(peer)
    }
}

impl Greeting {
    fn is_greeted(&self) -> bool {
        self.shared.greeted.load(Ordering::Acquire) == self.connections.load(Ordering::Acquire) + 1
    }

    async fn greet(&self) -> Result<(), Status> {
        if self.is_greeted() {
            return Ok(());
        }
        let _one = self.shared.one.lock().await;
        if self.is_greeted() {
            return Ok(());
        }
        let Shared { own, role, heard, .. } = &*self.shared;
        let request = wire::HandshakeRequest {
            hello: Some(own.into()),
        };
        let mut client = HandshakeServiceClient::new(self.inner.clone());
        let answer = tokio::time::timeout(PATIENCE, client.handshake(request)).await;
        let peer = match answer {
            Ok(Ok(answer)) => answer
                .into_inner()
                .hello
                .map_or_else(|| Hello::silent(role), Hello::from),
            Ok(Err(status)) if status.code() == Code::Unimplemented => Hello::silent(role),
            Ok(Err(status)) => return Err(status),
            Err(_) => {
                let why = format!(
                    "the {role} did not answer the handshake within {} s",
                    PATIENCE.as_secs()
                );
                return Err(Status::unavailable(why));
            }
        };
        negotiation::agree(own, &peer).map_err(|error| Status::failed_precondition(error.to_string()))?;
        let is_new = heard.borrow().as_ref() != Some(&peer);
        if is_new {
            tracing::info!(
                role = peer.role, version = peer.software_version, capabilities = ?peer.capabilities, "greeted"
            );
            heard.send_replace(Some(peer));
        }
        let greeted = self.connections.load(Ordering::Acquire) + 1;
        self.shared.greeted.store(greeted, Ordering::Release);
        Ok(())
    }
}

impl Service<Request<Body>> for Greeting {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // The transport is made ready for each call: between greeting and call it may have to be made anew.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let greeting = self.clone();
        Box::pin(async move {
            greeting.greet().await?;
            greeting.inner.oneshot(request).await
        })
    }
}
