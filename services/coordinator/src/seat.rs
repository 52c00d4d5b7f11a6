//! The leader's seat: whether this coordinator leads, and what answers calls then.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Request, Response};
use tidegate_rpc::follow;
use tokio::sync::watch;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use crate::directory::Directory;
use crate::grpc::{RegistryApi, SupervisorApi};

/// What a coordinator has while it leads.
pub(crate) struct Led {
    pub(crate) directory: Arc<Directory>,
    pub(crate) supervisors: Arc<SupervisorApi>,
    pub(crate) registry: Arc<RegistryApi>,
}

/// Whether this coordinator leads.
#[derive(Clone)]
pub(crate) enum Seat {
    Leading(Arc<Led>),
    /// Another one leads; its address when it is known.
    StandingBy(Option<String>),
}

impl Seat {
    pub(crate) fn led(&self) -> Option<&Arc<Led>> {
        match self {
            Self::Leading(led) => Some(led),
            Self::StandingBy(_) => None,
        }
    }
}

/// A service of the leader's: every call is answered by what is led now, or refused with the leader's address.
pub(crate) struct Elected<S> {
    pub(crate) seat: watch::Receiver<Seat>,
    pub(crate) pick: fn(&Led) -> S,
}

impl<S> Clone for Elected<S> {
    fn clone(&self) -> Self {
        Self {
            seat: self.seat.clone(),
            pick: self.pick,
        }
    }
}

impl<S: NamedService> NamedService for Elected<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Elected<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Generated servers are always ready.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let seat = self.seat.borrow().clone();
        match seat {
            Seat::Leading(led) => Box::pin((self.pick)(&led).call(request)),
            Seat::StandingBy(leader) => {
                let refusal = follow::not_leading(leader.as_deref()).into_http();
                Box::pin(std::future::ready(Ok(refusal)))
            }
        }
    }
}
