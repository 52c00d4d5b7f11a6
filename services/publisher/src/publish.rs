//! One publish, from the wish to the answer: look, verify, commit, promote.
//!
//! Where it may die, and what the next call does: before the commit: nothing was changed; verified objects are
//! known to be right for as long as the process lives. In the commit: see the store; the next call finds it done,
//! or does it (B43). After the commit: the next call finds it done; the promoter's loop goes on. An answer never
//! says "published" before the commit is durable, and never waits for the promotion to succeed.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use tidegate_metadata::{CatalogSegment, Publish, PublishAnswer, PublisherStore, StoreError};
use tidegate_protocol::publish::PublishDecision;
use tidegate_rpc::publisher::v1::{PublishOutcome, PublishResponse};
use tidegate_rpc::status::RpcError;
use tidegate_telemetry::{Metrics, families};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use crate::error::{RETRY_PAUSE, of_store};
use crate::promote::Promoter;
use crate::verified::{CheckError, Verified};
use crate::wire;

/// How long a publish whose predecessor is still publishing waits for it within the call.
const WAIT_FOR_PREDECESSOR: Duration = Duration::from_secs(10);
/// How long an answer may wait for the promotion.
const WAIT_FOR_PROMOTION: Duration = Duration::from_secs(15);
/// Segments of one publish that are checked at a time; the readers are bounded over all publishes.
const CHECK_AT_ONCE: usize = 8;
/// Faults of objects that are named in an answer.
const NAMED_FAULTS: usize = 3;

pub(crate) struct Publishing {
    pub(crate) store: Arc<dyn PublisherStore>,
    pub(crate) verified: Arc<Verified>,
    pub(crate) promoter: Arc<Promoter>,
    pub(crate) metrics: Metrics,
    /// Changes whenever a publish is committed or a group ends.
    pub(crate) moved: watch::Sender<u64>,
}

impl Publishing {
    /// Runs a publish and tells its outcome.
    pub(crate) async fn run(&self, call: &Publish) -> Result<PublishResponse, RpcError> {
        match self.outcome(call).await {
            Ok(response) => Ok(response),
            Err(error) if error.is_retryable() => Ok(retryable(error.to_string())),
            Err(error) => Err(of_store(&error)),
        }
    }

    async fn outcome(&self, call: &Publish) -> Result<PublishResponse, StoreError> {
        let first_look = self.store.preview(&call.request).await?;
        match &first_look.decision {
            // Verification goes on while the predecessor publishes.
            PublishDecision::Publish { .. } | PublishDecision::NotYet { .. } => {}
            PublishDecision::AlreadyPublished
            | PublishDecision::PredecessorLost { .. }
            | PublishDecision::Mismatch(_)
            | PublishDecision::Fenced(_)
            | PublishDecision::Malformed(_) => return Ok(self.tell(&first_look).await),
        }
        if let Some(faults) = self.verify(call).await {
            // Another replica, or a call before this one, may have published meanwhile and tidied up.
            let second_look = self.store.preview(&call.request).await?;
            if second_look.decision == PublishDecision::AlreadyPublished {
                return Ok(self.tell(&second_look).await);
            }
            return Ok(faults.response());
        }
        let answer = self.commit(call).await?;
        if matches!(answer.decision, PublishDecision::Publish { .. }) {
            self.count(&answer.segments);
        }
        Ok(self.tell(&answer).await)
    }

    /// Checks all objects; `None` when all are right.
    async fn verify(&self, call: &Publish) -> Option<Faults> {
        let results = stream::iter(call.request.segments.clone())
            .map(|file| async move { self.verified.check(&file).await })
            .buffer_unordered(CHECK_AT_ONCE)
            .filter_map(|result| std::future::ready(result.err()))
            .collect::<Vec<CheckError>>()
            .await;
        (!results.is_empty()).then_some(Faults(results))
    }

    /// The transaction; while the predecessor is publishing, again when something was committed.
    async fn commit(&self, call: &Publish) -> Result<PublishAnswer, StoreError> {
        let deadline = Instant::now() + WAIT_FOR_PREDECESSOR;
        let mut moved = self.moved.subscribe();
        loop {
            moved.mark_unchanged();
            let answer = self.store.publish(call).await?;
            if matches!(answer.decision, PublishDecision::Publish { .. }) {
                self.moved.send_modify(|count| *count += 1);
            }
            // The sender lives as long as this does, so what ends the waiting is news or the time.
            let waits = matches!(answer.decision, PublishDecision::NotYet { .. });
            if !waits || timeout_at(deadline, moved.changed()).await.is_err() {
                return Ok(answer);
            }
        }
    }

    fn count(&self, segments: &[CatalogSegment]) {
        for segment in segments {
            let data_source = [segment.file.id.data_source.as_str()];
            self.metrics.count(&families::SEGMENTS, data_source, 1);
            self.metrics
                .count(&families::SEGMENT_ROWS, data_source, segment.file.rows);
            self.metrics
                .count(&families::SEGMENT_BYTES, data_source, segment.file.size_bytes);
        }
    }

    /// The answer; segments that are in the catalog are promoted first, for a bounded time.
    async fn tell(&self, answer: &PublishAnswer) -> PublishResponse {
        let outcome = match &answer.decision {
            PublishDecision::Publish { .. } => PublishOutcome::Published,
            PublishDecision::AlreadyPublished => PublishOutcome::AlreadyPublished,
            PublishDecision::NotYet { .. } => PublishOutcome::NotYet,
            PublishDecision::PredecessorLost { .. } => PublishOutcome::PredecessorLost,
            PublishDecision::Mismatch(_) | PublishDecision::Malformed(_) => PublishOutcome::Mismatch,
            PublishDecision::Fenced(_) => PublishOutcome::Fenced,
        };
        let promotion = self.promoter.promote_all(&answer.segments);
        if tokio::time::timeout(WAIT_FOR_PROMOTION, promotion).await.is_err() {
            self.promoter.bell.notify_one();
        }
        let mut response = wire::outcome(outcome, answer.decision.detail(), Some(&answer.committed));
        response.segments = answer
            .segments
            .iter()
            .map(|segment| (&segment.file.id).into())
            .collect();
        if outcome == PublishOutcome::NotYet {
            response.retry_after_millis = millis(RETRY_PAUSE);
        }
        response
    }
}

/// What is wrong with objects.
struct Faults(Vec<CheckError>);

impl Faults {
    /// Objects that are wrong are to be uploaded again; a store that is away says nothing about them.
    fn response(&self) -> PublishResponse {
        let bad: Vec<String> = self
            .0
            .iter()
            .filter(|error| error.is_bad_object())
            .map(ToString::to_string)
            .collect();
        if bad.is_empty() {
            return retryable(self.0.first().map(ToString::to_string).unwrap_or_default());
        }
        let mut detail = bad
            .iter()
            .take(NAMED_FAULTS)
            .cloned()
            .collect::<Vec<_>>()
            .join("; ");
        if bad.len() > NAMED_FAULTS {
            detail = format!("{} objects, among them: {detail}", bad.len());
        }
        wire::outcome(PublishOutcome::BadObject, detail, None)
    }
}

/// "Ask again": nothing is known to be wrong.
pub(crate) fn retryable(detail: String) -> PublishResponse {
    let mut response = wire::outcome(PublishOutcome::Retryable, detail, None);
    response.retry_after_millis = millis(RETRY_PAUSE);
    response
}

fn millis(pause: Duration) -> u64 {
    u64::try_from(pause.as_millis()).unwrap_or(u64::MAX)
}
