//! Trace context in call metadata (W3C `traceparent`), as two small tower layers.

use std::task::{Context, Poll};

use http::{HeaderMap, HeaderName, HeaderValue, Request};
use opentelemetry::propagation::{Extractor, Injector};
use tower::{Layer, Service};
use tracing::Instrument as _;
use tracing::instrument::Instrumented;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

struct Headers<'a>(&'a mut HeaderMap);

impl Injector for Headers<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(key), HeaderValue::try_from(value)) {
            self.0.insert(name, value);
        }
    }
}

struct ReadHeaders<'a>(&'a HeaderMap);

impl Extractor for ReadHeaders<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }
    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}

/// Client side: puts the current span's context into the request.
#[derive(Debug, Clone)]
pub(crate) struct Inject<S>(S);

impl<S> Inject<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S, B> Service<Request<B>> for Inject<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<B>) -> S::Future {
        let span = tracing::Span::current().context();
        opentelemetry::global::get_text_map_propagator(|propagator| {
            propagator.inject_context(&span, &mut Headers(request.headers_mut()));
        });
        self.0.call(request)
    }
}

/// Server side: a span per call whose parent is the caller's.
#[derive(Debug, Clone, Copy)]
pub struct ExtractLayer;

impl<S> Layer<S> for ExtractLayer {
    type Service = Extract<S>;
    fn layer(&self, inner: S) -> Extract<S> {
        Extract(inner)
    }
}

/// See [`ExtractLayer`].
#[derive(Debug, Clone)]
pub struct Extract<S>(S);

impl<S, B> Service<Request<B>> for Extract<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Instrumented<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let parent = opentelemetry::global::get_text_map_propagator(|propagator| {
            propagator.extract(&ReadHeaders(request.headers()))
        });
        let span = tracing::debug_span!("rpc", path = request.uri().path());
        // Without a tracer there is nothing to attach to, which is no fault.
        let _ = span.set_parent(parent);
        span.in_scope(|| self.0.call(request)).instrument(span.clone())
    }
}
