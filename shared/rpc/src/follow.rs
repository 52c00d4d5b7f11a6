//! Following the coordinator that leads.
//!
//! Owns: how a coordinator that waits says who leads, and how a client acts on it. Promises: a call is answered by
//! the leader whichever coordinator the client knows; each address is asked at most once per call, so that two which
//! name each other end it; a call is repeated only when it was refused before anything was done, or never sent. Must
//! never: repeat a call that may have had an effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::{Ascii, MetadataValue};
use tower::{BoxError, Service, ServiceExt as _};

use crate::Transport;
use crate::status::RpcError;
use crate::transport::ConnectError;

/// Metadata of a refusal by a coordinator that does not lead: the address of the one that does, or nothing.
pub const LEADER: &str = "tidegate-leader";

/// Most addresses that one call tries beyond those that the client was given.
const NAMED: usize = 3;
/// A client that finds nobody comes back after this.
const COME_BACK: Duration = Duration::from_secs(1);

/// The refusal of a coordinator that does not lead. Nothing was done.
pub fn not_leading(leader: Option<&str>) -> Status {
    let message = match leader {
        Some(address) => format!("this coordinator stands by; the one at {address} leads"),
        None => "this coordinator stands by and does not know where the leader is".to_owned(),
    };
    let mut status = Status::from(RpcError::Unavailable(message, COME_BACK));
    let address = leader
        .and_then(|address| MetadataValue::try_from(address).ok())
        .unwrap_or_else(|| MetadataValue::<Ascii>::from_static(""));
    status.metadata_mut().insert(LEADER, address);
    status
}

/// `None`: no refusal of that kind. Empty: refused, and the leader is not known.
pub fn leader_named(status: &Status) -> Option<&str> {
    status.metadata().get(LEADER)?.to_str().ok()
}

fn named(headers: &HeaderMap) -> Option<String> {
    headers.get(LEADER)?.to_str().ok().map(str::to_owned)
}

impl Transport {
    /// Calls the coordinator that leads, by way of these addresses, separated by commas.
    pub fn to_leader(addresses: &str) -> Result<Self, ConnectError> {
        let connections = Arc::new(AtomicU64::new(0));
        let mut transports = BTreeMap::new();
        let mut configured = Vec::new();
        for address in addresses.split(',').map(str::trim).filter(|one| !one.is_empty()) {
            let transport = Self::connect_counted(address, connections.clone())?;
            transports.insert(address.to_owned(), transport);
            configured.push(address.to_owned());
        }
        if configured.is_empty() {
            // The error of an address that is none.
            return Self::connect(addresses);
        }
        let following = Self::following(configured, transports, connections.clone());
        Ok(following.with_connections(connections))
    }

    /// Calls the coordinator that leads, by way of the one in this process.
    pub fn to_leader_by(own_address: &str, own: Self) -> Self {
        let configured = vec![own_address.to_owned()];
        Self::following(configured, [(own_address.to_owned(), own)].into(), Arc::default())
    }

    fn following(
        configured: Vec<String>,
        transports: BTreeMap<String, Self>,
        connections: Arc<AtomicU64>,
    ) -> Self {
        let current = configured.first().cloned().unwrap_or_default();
        Self::boxed(Follow(Arc::new(Known {
            configured,
            connections,
            state: Mutex::new(State { current, transports }),
        })))
    }
}

#[derive(Clone)]
struct Follow(Arc<Known>);

struct Known {
    /// In the order in which they are tried.
    configured: Vec<String>,
    /// Grows with every connection and every other coordinator that answers.
    connections: Arc<AtomicU64>,
    state: Mutex<State>,
}

struct State {
    /// Where the last answer came from.
    current: String,
    transports: BTreeMap<String, Transport>,
}

impl Known {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn transport(&self, address: &str) -> Result<Transport, ConnectError> {
        let mut state = self.lock();
        if let Some(transport) = state.transports.get(address) {
            return Ok(transport.clone());
        }
        let transport = Transport::connect_counted(address, self.connections.clone())?;
        if state.transports.len() > self.configured.len() + NAMED {
            // Leaders of long ago.
            state
                .transports
                .retain(|known, _| self.configured.contains(known));
        }
        state.transports.insert(address.to_owned(), transport.clone());
        Ok(transport)
    }

    /// The leader that was named, else the next one that this client was given; none twice.
    fn next(&self, named: String, asked: &BTreeSet<String>) -> Option<String> {
        if asked.len() >= self.configured.len() + NAMED {
            return None;
        }
        if !named.is_empty() && !asked.contains(&named) {
            return Some(named);
        }
        self.configured.iter().find(|one| !asked.contains(*one)).cloned()
    }

    /// The next call begins behind this one, which did not answer while the caller waited.
    fn move_on(&self, from: &str) {
        let at = self.configured.iter().position(|one| one == from);
        let next = at.map_or(0, |at| (at + 1) % self.configured.len());
        let mut state = self.lock();
        if state.current == from
            && let Some(next) = self.configured.get(next)
        {
            state.current.clone_from(next);
        }
    }

    async fn call(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await?.to_bytes();
        let mut asked = BTreeSet::new();
        let mut refused = None;
        let mut address = self.lock().current.clone();
        loop {
            let again = Request::from_parts(parts.clone(), Body::new(Full::new(body.clone())));
            let waiting = Waiting {
                known: self,
                address: &address,
            };
            let answer = match self.transport(&address) {
                Ok(transport) => transport.oneshot(again).await,
                Err(error) => Err(error.into()),
            };
            std::mem::forget(waiting);
            let refusal = match &answer {
                Ok(response) => named(response.headers()),
                Err(error) => was_not_sent(error).then(String::new),
            };
            let Some(leader) = refusal else {
                if answer.is_ok() {
                    let mut state = self.lock();
                    if state.current != address {
                        // Another process answers: it is greeted before the next call.
                        self.connections.fetch_add(1, Ordering::AcqRel);
                        state.current = address;
                    }
                }
                return answer;
            };
            if answer.is_ok() || refused.is_none() {
                refused = Some(answer);
            }
            asked.insert(address);
            match (self.next(leader, &asked), refused.take()) {
                (None, Some(answer)) => return answer,
                (Some(next), last) => {
                    tracing::debug!(
                        next,
                        "the coordinator does not lead or is away; another one is asked"
                    );
                    refused = last;
                    address = next;
                }
                // There is always a last answer here.
                (None, None) => return Err("no coordinator was asked".into()),
            }
        }
    }
}

/// Dropped when the caller gives up before the answer.
struct Waiting<'k> {
    known: &'k Known,
    address: &'k str,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.known.move_on(self.address);
    }
}

/// The connection was never there.
fn was_not_sent(error: &BoxError) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&**error);
    while let Some(error) = cause {
        if error.is::<tonic::ConnectError>() || error.is::<ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

impl Service<Request<Body>> for Follow {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Body>, BoxError>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let known = self.0.clone();
        Box::pin(async move { known.call(request).await })
    }
}
