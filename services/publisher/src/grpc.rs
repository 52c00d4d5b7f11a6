//! The gRPC face.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_metadata::{Publish, PublisherStore};
use tidegate_protocol::publish::check;
use tidegate_rpc::convert::id;
use tidegate_rpc::publisher::v1 as message;
use tidegate_rpc::publisher::v1::PublishOutcome;
use tidegate_rpc::publisher::v1::publisher_server::Publisher;
use tidegate_rpc::status::RpcError;
use tidegate_telemetry::{Metrics, families};
use tidegate_types::Epoch;
use tonic::{Request, Response, Status};
use tracing::Instrument as _;

use crate::clock;
use crate::error::{of_call, of_store};
use crate::publish::{Publishing, retryable};
use crate::under_way::UnderWay;
use crate::verify::Verifier;
use crate::wire;

/// A publish that takes longer is answered "ask again" and goes on; callers give up after a minute.
const ANSWER_WITHIN: Duration = Duration::from_secs(45);

pub(crate) struct Service {
    pub(crate) store: Arc<dyn PublisherStore>,
    pub(crate) publishing: Arc<Publishing>,
    pub(crate) verifier: Verifier,
    pub(crate) metrics: Metrics,
    /// Publishes under way, also those whose caller has gone.
    pub(crate) under_way: UnderWay,
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl Publisher for Service {
    async fn initialize_offsets(
        &self,
        request: Request<message::InitializeOffsetsRequest>,
    ) -> Answer<message::CommittedOffsets> {
        let call = wire::initialize(request.into_inner(), clock::now())?;
        let held = self
            .store
            .initialize_offsets(&call)
            .await
            .map_err(|error| of_call(&error))?;
        tracing::info!(supervisor = %call.supervisor, offsets = %held.offsets, "first offsets");
        Ok(Response::new(wire::committed(&held)))
    }

    async fn get_committed_offsets(
        &self,
        request: Request<message::GetCommittedOffsetsRequest>,
    ) -> Answer<message::CommittedOffsets> {
        let request = request.into_inner();
        let supervisor = id("supervisor_id", &request.supervisor_id)?;
        let held = self.store.committed_offsets(&supervisor, &request.topic).await;
        let Some(held) = held.map_err(|error| of_store(&error))? else {
            let text = format!("supervisor {supervisor} has no committed offsets; initialize them");
            return Err(RpcError::NotFound(text).into());
        };
        Ok(Response::new(wire::committed(&held)))
    }

    async fn reset_offsets(
        &self,
        request: Request<message::ResetOffsetsRequest>,
    ) -> Answer<message::CommittedOffsets> {
        let call = wire::reset(request.into_inner(), clock::now())?;
        let held = self
            .store
            .reset_offsets(&call)
            .await
            .map_err(|error| of_call(&error))?;
        let (supervisor, who, why) = (&call.supervisor, &call.who, &call.why);
        tracing::info!(%supervisor, who, why, offsets = %held.offsets, generation = %held.generation, "offsets reset");
        self.moved();
        Ok(Response::new(wire::committed(&held)))
    }

    async fn register_group(
        &self,
        request: Request<message::RegisterGroupRequest>,
    ) -> Answer<message::RegisterGroupResponse> {
        let call = wire::register(request.into_inner(), clock::now())?;
        self.store
            .register_group(&call)
            .await
            .map_err(|error| of_call(&error))?;
        tracing::debug!(supervisor = %call.supervisor, group = %call.group, epoch = %call.epoch, "group registered");
        Ok(Response::new(message::RegisterGroupResponse {}))
    }

    async fn end_group(
        &self,
        request: Request<message::EndGroupRequest>,
    ) -> Answer<message::EndGroupResponse> {
        let request = request.into_inner();
        let supervisor = id("supervisor_id", &request.supervisor_id)?;
        let group = id("group_id", &request.group_id)?;
        let epoch = Epoch(request.coordinator_epoch);
        let ended = self
            .store
            .end_group(&supervisor, &group, epoch, clock::now())
            .await;
        ended.map_err(|error| of_call(&error))?;
        tracing::debug!(%supervisor, %group, "group ended");
        // Those who wait for this group are to hear that nobody publishes before them.
        self.moved();
        Ok(Response::new(message::EndGroupResponse {}))
    }

    async fn allocate_segment(
        &self,
        request: Request<message::AllocateSegmentRequest>,
    ) -> Answer<message::AllocateSegmentResponse> {
        let call = wire::allocate(request.into_inner(), clock::now())?;
        let given = self
            .store
            .allocate(&call)
            .await
            .map_err(|error| of_call(&error))?;
        self.metrics
            .count(&families::ALLOCATIONS, [given.data_source.as_str()], 1);
        tracing::debug!(segment = %given, sequence = %call.request.sequence, "segment allocated");
        Ok(Response::new(message::AllocateSegmentResponse {
            id: Some((&given).into()),
        }))
    }

    async fn publish(&self, request: Request<message::PublishRequest>) -> Answer<message::PublishResponse> {
        let call = wire::publish(request.into_inner(), clock::now())?;
        let faults = check(&call.request);
        if !faults.is_empty() {
            let text = format!("{} faults in the request", faults.len());
            let fields = faults
                .into_iter()
                .map(|fault| (fault.field, fault.reason))
                .collect();
            return Err(RpcError::InvalidArgument(text, fields).into());
        }
        Ok(Response::new(self.publish_apart(call).await?))
    }

    async fn list_segments(
        &self,
        request: Request<message::ListSegmentsRequest>,
    ) -> Answer<message::ListSegmentsResponse> {
        let (filter, after, size) = wire::listing(&request.into_inner())?;
        let found = self.store.list_segments(&filter, after, size + 1).await;
        let mut found = found.map_err(|error| of_store(&error))?;
        let more = found.len() > size as usize;
        found.truncate(size as usize);
        let next = found
            .last()
            .filter(|_| more)
            .map(|last| last.ordinal.0.to_string());
        Ok(Response::new(message::ListSegmentsResponse {
            segments: found.iter().map(wire::published).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }

    async fn verify(&self, request: Request<message::VerifyRequest>) -> Answer<message::VerifyResponse> {
        Ok(Response::new(self.verifier.page(&request.into_inner()).await?))
    }
}

impl Service {
    fn moved(&self) {
        self.publishing.moved.send_modify(|count| *count += 1);
    }

    /// A publish runs in a task of its own: a caller that goes away, or a call that takes too long, does not
    /// throw away what is done (B39). The next call finds the objects verified, or the sequences published.
    async fn publish_apart(&self, call: Publish) -> Result<message::PublishResponse, RpcError> {
        let begun = Instant::now();
        let publishing = Arc::clone(&self.publishing);
        let supervisor = call.request.supervisor.clone();
        let span = tracing::info_span!(
            "publish",
            %supervisor,
            group = %call.request.group,
            task = %call.task,
            segments = call.request.segments.len(),
            request_key = %call.request_key,
        );
        let work = async move { publishing.run(&call).await }.instrument(span.clone());
        let response = match tokio::time::timeout(ANSWER_WITHIN, self.under_way.spawn(work)).await {
            Ok(Ok(response)) => response?,
            Ok(Err(error)) => return Err(RpcError::Internal(format!("the publish broke off: {error}"))),
            Err(_) => retryable("still verifying; it goes on, ask again".into()),
        };
        let word = outcome_word(response.outcome());
        self.metrics
            .count(&families::PUBLISHES, [supervisor.as_str(), word], 1);
        self.metrics
            .time(&families::PUBLISH_TIME, [word], begun.elapsed());
        span.in_scope(|| tracing::info!(outcome = word, detail = response.detail, "publish"));
        Ok(response)
    }
}

fn outcome_word(outcome: PublishOutcome) -> &'static str {
    match outcome {
        PublishOutcome::Published => "published",
        PublishOutcome::AlreadyPublished => "already_published",
        PublishOutcome::NotYet => "not_yet",
        PublishOutcome::PredecessorLost => "predecessor_lost",
        PublishOutcome::Mismatch => "mismatch",
        PublishOutcome::Retryable | PublishOutcome::Unspecified => "retryable",
        PublishOutcome::Fenced => "fenced",
        PublishOutcome::BadObject => "bad_object",
    }
}
