//! One check: what the catalog says of the segment now, then what the serving tier says.

use std::sync::Arc;

use tidegate_metadata::Ordinal;
use tidegate_protocol::handoff::Answer;
use tidegate_rpc::clients::PublisherClient;
use tidegate_rpc::publisher::v1 as wire;
use tidegate_serving::{PublishedObject, Served, ServingTier};
use tidegate_types::SegmentId;

/// Asks about segments.
#[derive(Debug, Clone)]
pub(crate) struct Checker {
    pub(crate) publisher: PublisherClient,
    pub(crate) tier: Arc<dyn ServingTier>,
}

impl Checker {
    /// The answer, and a line for a person.
    pub(crate) async fn check(&self, segment: &SegmentId, ordinal: Ordinal) -> (Answer, String) {
        // A segment is listed at its staged key until it is promoted: its row is read anew each time.
        let request = wire::ListSegmentsRequest {
            page_size: 1,
            page_token: if ordinal.0 > 1 {
                (ordinal.0 - 1).to_string()
            } else {
                String::new()
            },
            ..Default::default()
        };
        let mut publisher = self.publisher.clone();
        let row = match publisher.list_segments(request).await {
            Ok(page) => page.into_inner().segments.into_iter().next(),
            Err(status) => {
                let detail = format!(
                    "the publisher did not answer ({}): {}",
                    status.code(),
                    status.message()
                );
                return (Answer::Failed, detail);
            }
        };
        let id = row
            .as_ref()
            .and_then(|row| row.segment.as_ref()?.id.as_ref())
            .and_then(|id| SegmentId::try_from(id).ok());
        let Some(row) = row.filter(|_| id.as_ref() == Some(segment)) else {
            return (Answer::NotServed, "it is not in the catalog".to_owned());
        };
        if !row.used {
            return (Answer::Served, "it is not used any more".to_owned());
        }
        let known = row.segment.unwrap_or_default();
        let object = PublishedObject {
            id: segment.clone(),
            key: known.key,
            size_bytes: known.size_bytes,
            sha256: known.sha256,
            promoted: row.promoted,
        };
        match self.tier.check(&object).await {
            Ok(Served::Yes(detail)) => (Answer::Served, detail),
            Ok(Served::NotYet(detail)) => (Answer::NotServed, detail),
            Err(error) => {
                tracing::warn!(%segment, %error, "a segment could not be checked");
                (Answer::Failed, error.to_string())
            }
        }
    }
}
