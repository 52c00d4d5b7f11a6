//! Segments as the publisher and the handoff-checker tell them: pages for lists, totals for status.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tidegate_rpc::handoff::v1::{AwaitHandoffRequest, HandoffState};
use tidegate_rpc::publisher::v1 as publisher;
use tidegate_rpc::status::{RpcError, is_retryable};
use tidegate_rpc::types::v1::SegmentId;
use tidegate_types::SupervisorId;
use tonic::{Response, Status};

use crate::actor::Peers;

/// Most segments per question.
const PAGE: u32 = 1_000;
/// For one page of a proof.
const VERIFY_WITHIN: Duration = Duration::from_mins(5);
/// When to ask again while the publisher is away.
const COME_AGAIN: Duration = Duration::from_secs(1);
/// Totals that are not older than this are not looked up again.
const FRESH: Duration = Duration::from_millis(500);

/// Segments of one supervisor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) segments: u64,
    pub(crate) handed_off: u64,
    pub(crate) bytes: u64,
    pub(crate) rows: u64,
}

#[derive(Debug, Clone)]
struct Known {
    id: SegmentId,
    bytes: u64,
    rows: u64,
    used: bool,
    /// Once served, always served.
    served: bool,
}

/// What was read of a supervisor's segments: the list only grows at its end.
#[derive(Debug, Default)]
struct Seen {
    by_ordinal: BTreeMap<i64, Known>,
    /// Token of the last page that was read.
    last_page: String,
    at: Option<Instant>,
}

type Shared = Arc<tokio::sync::Mutex<Seen>>;

/// Looks segments up, and remembers what cannot change.
#[derive(Debug)]
pub(crate) struct Segments {
    peers: Peers,
    limit: Duration,
    seen: Mutex<BTreeMap<SupervisorId, Shared>>,
}

/// One question to the publisher. None of these changes anything, so every one may be asked again.
async fn ask<T>(
    what: &str,
    limit: Duration,
    asked: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Status> {
    let away = |why: &str| {
        let message = format!("the publisher does not {what} now: {why}");
        Status::from(RpcError::Unavailable(message, COME_AGAIN))
    };
    match tokio::time::timeout(limit, asked).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) if is_retryable(&status) => Err(away(status.message())),
        Ok(Err(status)) => Err(status),
        Err(_) => Err(away("no answer in time")),
    }
}

impl Segments {
    pub(crate) fn new(peers: Peers, limit: Duration) -> Self {
        Self {
            peers,
            limit,
            seen: Mutex::default(),
        }
    }

    /// One page of the catalog.
    pub(crate) async fn page(
        &self,
        request: publisher::ListSegmentsRequest,
    ) -> Result<publisher::ListSegmentsResponse, Status> {
        let mut client = self.peers.publisher.clone();
        ask("list its segments", self.limit, client.list_segments(request)).await
    }

    /// One page of a proof. The publisher bounds it by itself; the limit is for a publisher that is stuck.
    pub(crate) async fn verify(
        &self,
        request: publisher::VerifyRequest,
    ) -> Result<publisher::VerifyResponse, Status> {
        let mut client = self.peers.publisher.clone();
        ask("verify its catalog", VERIFY_WITHIN, client.verify(request)).await
    }

    /// Which of these are served, in their order. What the checker does not tell counts as pending.
    pub(crate) async fn served(&self, ids: Vec<SegmentId>) -> Vec<bool> {
        let mut served = Vec::with_capacity(ids.len());
        for chunk in ids.chunks(PAGE as usize) {
            let mut client = self.peers.handoff.clone();
            let request = AwaitHandoffRequest {
                segments: chunk.to_vec(),
                wait_millis: 0,
            };
            let answer = match tokio::time::timeout(self.limit, client.await_handoff(request)).await {
                Ok(Ok(answer)) => answer.into_inner().handoffs,
                Ok(Err(status)) => {
                    tracing::debug!(%status, "the handoff-checker does not answer; its segments count as pending");
                    Vec::new()
                }
                Err(_) => Vec::new(),
            };
            let answered = answer.len() == chunk.len();
            served.extend(
                (0..chunk.len()).map(|index| answered && answer[index].state() == HandoffState::Served),
            );
        }
        served
    }

    /// Totals of a supervisor; of the last look when a service is away.
    pub(crate) async fn totals(&self, supervisor: &SupervisorId) -> Totals {
        let shared = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.entry(supervisor.clone()).or_default().clone()
        };
        let mut seen = shared.lock().await;
        if seen.at.is_none_or(|at| at.elapsed() >= FRESH) {
            if let Err(status) = self.read_on(supervisor, &mut seen).await {
                tracing::debug!(%status, %supervisor, "the publisher does not list its segments; totals are older");
            }
            self.ask_served(&mut seen).await;
            seen.at = Some(Instant::now());
        }
        let used = seen.by_ordinal.values().filter(|known| known.used);
        used.fold(Totals::default(), |sum, known| Totals {
            segments: sum.segments + 1,
            handed_off: sum.handed_off + u64::from(known.served),
            bytes: sum.bytes + known.bytes,
            rows: sum.rows + known.rows,
        })
    }

    async fn read_on(&self, supervisor: &SupervisorId, seen: &mut Seen) -> Result<(), Status> {
        loop {
            let request = publisher::ListSegmentsRequest {
                data_source: String::new(),
                supervisor_id: supervisor.to_string(),
                page_size: PAGE,
                page_token: seen.last_page.clone(),
            };
            let page = self.page(request).await?;
            for row in page.segments {
                let Some((id, segment)) = row
                    .segment
                    .and_then(|segment| Some((segment.id.clone()?, segment)))
                else {
                    continue;
                };
                let served = seen
                    .by_ordinal
                    .get(&row.ordinal)
                    .is_some_and(|known| known.served);
                let known = Known {
                    id,
                    bytes: segment.size_bytes,
                    rows: segment.rows,
                    used: row.used,
                    served,
                };
                seen.by_ordinal.insert(row.ordinal, known);
            }
            if page.next_page_token.is_empty() {
                return Ok(());
            }
            seen.last_page = page.next_page_token;
        }
    }

    async fn ask_served(&self, seen: &mut Seen) {
        let open: Vec<(i64, SegmentId)> = seen
            .by_ordinal
            .iter()
            .filter(|(_, known)| known.used && !known.served)
            .map(|(ordinal, known)| (*ordinal, known.id.clone()))
            .collect();
        if open.is_empty() {
            return;
        }
        let answers = self.served(open.iter().map(|(_, id)| id.clone()).collect()).await;
        for ((ordinal, _), served) in open.into_iter().zip(answers) {
            if let Some(known) = seen.by_ordinal.get_mut(&ordinal) {
                known.served = served;
            }
        }
    }
}
