//! One client type for both ways to travel.
//!
//! A service boundary is the generated server trait. In one process a client calls the server's own `tower`
//! service, without a socket; between processes it calls a channel. Nothing else differs.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::transport::{Channel, Endpoint};
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Service, ServiceExt as _};

use crate::handshake::Peer;
use crate::trace;

/// Largest message either way; lists are paged far below it (B60).
pub const MESSAGE_LIMIT_BYTES: usize = 64 * 1024 * 1024;

/// Longest time any call may take; long polls end well before it.
const CALL_DEADLINE: Duration = Duration::from_mins(1);

/// An address that cannot be called.
#[derive(Debug, thiserror::Error)]
#[error("{address:?} is not an address to call ({source}); write it like http://127.0.0.1:7100")]
pub struct ConnectError {
    address: String,
    source: tonic::transport::Error,
}

/// Carries calls to one service. Cheap to clone.
#[derive(Clone)]
pub struct Transport {
    service: BoxCloneSyncService<Request<Body>, Response<Body>, BoxError>,
    /// Connections made so far; `None` without connections.
    connections: Option<Arc<AtomicU64>>,
    peer: Option<Peer>,
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Transport")
    }
}

impl Transport {
    /// Calls over HTTP/2. Connects on first use and again whenever the connection is lost; a peer that says
    /// nothing for 15 seconds is given up (B59).
    pub fn connect(address: &str) -> Result<Self, ConnectError> {
        Self::connect_counted(address, Arc::default())
    }

    /// The same; every connection that is made is counted there.
    pub(crate) fn connect_counted(address: &str, connections: Arc<AtomicU64>) -> Result<Self, ConnectError> {
        let endpoint = Endpoint::from_shared(address.to_owned())
            .map_err(|source| ConnectError {
                address: address.to_owned(),
                source,
            })?
            .connect_timeout(Duration::from_secs(3))
            .timeout(CALL_DEADLINE)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(5))
            .keep_alive_while_idle(true);
        let count = connections.clone();
        let connector = tower::service_fn(move |address: Uri| {
            let count = count.clone();
            async move {
                let port = address.port_u16().unwrap_or(80);
                let host = address.host().unwrap_or_default().trim_matches(['[', ']']);
                let stream = TcpStream::connect((host, port)).await?;
                stream.set_nodelay(true)?;
                count.fetch_add(1, Ordering::AcqRel);
                Ok::<_, std::io::Error>(TokioIo::new(stream))
            }
        });
        let channel = endpoint.connect_with_connector_lazy(connector);
        Ok(Self {
            connections: Some(connections),
            ..Self::from_channel(channel)
        })
    }

    pub(crate) fn connections(&self) -> Option<Arc<AtomicU64>> {
        self.connections.clone()
    }
    pub(crate) fn with_connections(self, connections: Arc<AtomicU64>) -> Self {
        Self {
            connections: Some(connections),
            ..self
        }
    }
    pub(crate) fn with_peer(self, peer: Peer) -> Self {
        Self {
            peer: Some(peer),
            ..self
        }
    }

    /// What was heard of the peer last, when this transport greets it.
    pub fn peer(&self) -> Option<Peer> {
        self.peer.clone()
    }
    /// True when the peer has this capability, as far as is known. One in this process is of this build.
    pub fn peer_can(&self, capability: &str) -> bool {
        match &self.peer {
            Some(peer) => peer.borrow().as_ref().is_some_and(|peer| peer.can(capability)),
            None => self.connections.is_none(),
        }
    }

    /// Calls over a channel that is set up already.
    pub fn from_channel(channel: Channel) -> Self {
        Self::boxed(channel.map_err(BoxError::from))
    }

    /// Calls the service in this process.
    pub fn in_process<S>(service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        Self::boxed(tower::timeout::Timeout::new(
            service.map_err(|never: Infallible| -> BoxError { match never {} }),
            CALL_DEADLINE,
        ))
    }

    pub(crate) fn boxed<S>(service: S) -> Self
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = BoxError>
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        Self {
            service: BoxCloneSyncService::new(trace::Inject::new(service)),
            connections: None,
            peer: None,
        }
    }
}

impl Service<Request<Body>> for Transport {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.service.call(request)
    }
}

/// Clients and servers with the message limits set: the only place where they are made.
pub mod clients {
    use super::{MESSAGE_LIMIT_BYTES, Transport};
    use crate::{coordinator, handoff, publisher, serving, task_runner};

    macro_rules! service {
        ($client_fn:ident -> $alias:ident = $($client:ident)::+; $server_fn:ident: $service:path => $($server:ident)::+) => {
            pub type $alias = $($client)::+<Transport>;

            /// A client with the limits set.
            pub fn $client_fn(transport: Transport) -> $alias {
                <$alias>::new(transport)
                    .max_decoding_message_size(MESSAGE_LIMIT_BYTES)
                    .max_encoding_message_size(MESSAGE_LIMIT_BYTES)
            }

            /// The server side with the limits set; it is a `tower` service, for a router or for
            /// [`Transport::in_process`].
            pub fn $server_fn<S: $service>(service: std::sync::Arc<S>) -> $($server)::+<S> {
                <$($server)::+<S>>::from_arc(service)
                    .max_decoding_message_size(MESSAGE_LIMIT_BYTES)
                    .max_encoding_message_size(MESSAGE_LIMIT_BYTES)
            }
        };
    }

    service!(supervisor -> SupervisorClient = coordinator::v1::supervisor_service_client::SupervisorServiceClient;
        supervisor_server: coordinator::v1::supervisor_service_server::SupervisorService => coordinator::v1::supervisor_service_server::SupervisorServiceServer);
    service!(registry -> RegistryClient = coordinator::v1::runner_registry_client::RunnerRegistryClient;
        registry_server: coordinator::v1::runner_registry_server::RunnerRegistry => coordinator::v1::runner_registry_server::RunnerRegistryServer);
    service!(runner -> RunnerClient = task_runner::v1::task_runner_client::TaskRunnerClient;
        runner_server: task_runner::v1::task_runner_server::TaskRunner => task_runner::v1::task_runner_server::TaskRunnerServer);
    service!(publisher -> PublisherClient = publisher::v1::publisher_client::PublisherClient;
        publisher_server: publisher::v1::publisher_server::Publisher => publisher::v1::publisher_server::PublisherServer);
    service!(handoff -> HandoffClient = handoff::v1::handoff_checker_client::HandoffCheckerClient;
        handoff_server: handoff::v1::handoff_checker_server::HandoffChecker => handoff::v1::handoff_checker_server::HandoffCheckerServer);
    service!(serving -> ServingClient = serving::v1::segment_serving_client::SegmentServingClient;
        serving_server: serving::v1::segment_serving_server::SegmentServing => serving::v1::segment_serving_server::SegmentServingServer);
}
