//! The `HandoffChecker` service.

use std::sync::Arc;
use std::time::Duration;

use tidegate_metadata::{HandoffFilter, HandoffRecord, HandoffState, HandoffStore, Ordinal};
use tidegate_rpc::convert::{self, BadField};
use tidegate_rpc::handoff::v1 as wire;
use tidegate_rpc::handoff::v1::handoff_checker_server::HandoffChecker;
use tidegate_types::SegmentId;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tonic::{Request, Response, Status};

use crate::error::of_store;
use crate::watch::Watch;

/// Most segments in one question, and most rows per page.
const MOST: usize = 1000;
/// Longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// What waits looks at the store at least so often: another process may have recorded it.
const LOOK: Duration = Duration::from_secs(2);

/// The service.
pub(crate) struct Service {
    pub(crate) store: Arc<dyn HandoffStore>,
    pub(crate) watch: Watch,
    pub(crate) bell: Arc<Notify>,
    pub(crate) readings: watch::Receiver<u64>,
}

#[tonic::async_trait]
impl HandoffChecker for Service {
    async fn await_handoff(
        &self,
        request: Request<wire::AwaitHandoffRequest>,
    ) -> Result<Response<wire::AwaitHandoffResponse>, Status> {
        let request = request.into_inner();
        if request.segments.len() > MOST {
            return Err(BadField::new("segments", format!("more than {MOST}; ask in parts")).into());
        }
        let segments: Vec<SegmentId> = request
            .segments
            .iter()
            .map(SegmentId::try_from)
            .collect::<Result<_, _>>()?;
        let deadline = Instant::now() + Duration::from_millis(request.wait_millis).min(LONGEST_WAIT);
        let mut served = self.watch.served();
        let mut readings = self.readings.clone();
        let mut is_first = true;
        loop {
            served.borrow_and_update();
            readings.borrow_and_update();
            let found = self
                .store
                .get(&segments)
                .await
                .map_err(|error| of_store(&error))?;
            if is_first {
                is_first = false;
                self.hurry(&segments, &found);
            }
            let is_over = found.iter().all(|record| record.as_ref().is_some_and(is_served));
            if is_over || Instant::now() >= deadline {
                let handoffs = segments.iter().zip(found);
                return Ok(Response::new(wire::AwaitHandoffResponse {
                    handoffs: handoffs
                        .map(|(segment, record)| {
                            record.map_or_else(|| unknown(segment), |record| handoff(&record))
                        })
                        .collect(),
                }));
            }
            let look = deadline.min(Instant::now() + LOOK);
            tokio::select! {
                _ = served.changed() => {}
                _ = readings.changed() => {}
                () = tokio::time::sleep_until(look) => {}
            }
        }
    }

    async fn list_handoffs(
        &self,
        request: Request<wire::ListHandoffsRequest>,
    ) -> Result<Response<wire::ListHandoffsResponse>, Status> {
        let request = request.into_inner();
        let data_source = match request.data_source.as_str() {
            "" => None,
            text => Some(convert::id("data_source", text)?),
        };
        let after = match request.page_token.as_str() {
            "" => Ordinal::default(),
            text => Ordinal(
                text.parse()
                    .map_err(|_| BadField::new("page_token", "it is not from an answer of this call"))?,
            ),
        };
        let size = match request.page_size as usize {
            0 => MOST,
            asked => asked.min(MOST),
        };
        let filter = HandoffFilter {
            data_source,
            pending_only: request.pending_only,
        };
        let limit = u32::try_from(size + 1).unwrap_or(u32::MAX);
        let found = self.store.list(&filter, after, limit).await;
        let mut found = found.map_err(|error| of_store(&error))?;
        let has_more = found.len() > size;
        found.truncate(size);
        let next = found
            .last()
            .filter(|_| has_more)
            .map(|last| last.ordinal.0.to_string());
        Ok(Response::new(wire::ListHandoffsResponse {
            handoffs: found.iter().map(handoff).collect(),
            next_page_token: next.unwrap_or_default(),
        }))
    }
}

impl Service {
    /// Somebody waits: what is pending is checked soon, and what is not known is looked up in the catalog.
    fn hurry(&self, segments: &[SegmentId], found: &[Option<HandoffRecord>]) {
        for (segment, record) in segments.iter().zip(found) {
            match record {
                Some(record) if is_served(record) => {}
                Some(_) => self.watch.awaited(segment.clone()),
                None => self.bell.notify_one(),
            }
        }
    }
}

fn is_served(record: &HandoffRecord) -> bool {
    record.state == HandoffState::Served
}

fn unknown(segment: &SegmentId) -> wire::Handoff {
    wire::Handoff {
        id: Some(segment.into()),
        state: wire::HandoffState::UnknownSegment.into(),
        detail: "it is not in the catalog".to_owned(),
        ..Default::default()
    }
}

fn handoff(record: &HandoffRecord) -> wire::Handoff {
    let state = match record.state {
        HandoffState::Served => wire::HandoffState::Served.into(),
        HandoffState::Pending => wire::HandoffState::Pending.into(),
        HandoffState::Unknown(number) => number,
    };
    wire::Handoff {
        id: Some((&record.segment).into()),
        state,
        detail: record.detail.clone(),
        attempts: record.attempts,
        since_millis: record.since.0,
        served_at_millis: record.served_at.map_or(0, |at| at.0),
    }
}
