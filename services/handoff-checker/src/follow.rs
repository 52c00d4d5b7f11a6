//! Following the catalog: every published segment becomes a handoff, in the order of publishing.
//!
//! A crash between two pages reads the second again; the cursor moves in the same transaction as the handoffs.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_metadata::{Document, HandoffRecord, HandoffState, HandoffStore, Ordinal, StoreError};
use tidegate_rpc::clients::PublisherClient;
use tidegate_rpc::publisher::v1 as wire;
use tidegate_types::SegmentId;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::now;
use crate::watch::{Pending, Watch};

/// Segments per page of the catalog.
const PAGE: u32 = 1000;
/// Format of the document with what was said about a segment.
const FORMAT: u32 = 1;

/// What was known of a segment when it was first seen; for people.
#[derive(Debug, Serialize, Deserialize)]
struct Seen {
    size_bytes: u64,
    rows: u64,
}

/// Reads the catalog on and on.
pub(crate) struct Follower {
    pub(crate) store: Arc<dyn HandoffStore>,
    pub(crate) publisher: PublisherClient,
    pub(crate) watch: Watch,
    /// Rung by whoever asks for a segment that is not known yet.
    pub(crate) bell: Arc<Notify>,
    /// Grows with each completed reading.
    pub(crate) readings: watch::Sender<u64>,
    pub(crate) interval: Duration,
}

/// Why a reading was cut short; it is tried again.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("the publisher did not list its segments: {0}")]
    Publisher(#[from] tonic::Status),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the publisher listed a segment without a usable id: {0}")]
    Garbled(String),
}

impl Follower {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        loop {
            let read = tokio::select! {
                () = stop.cancelled() => return,
                read = self.read_on() => read,
            };
            match read {
                Ok(()) => self.readings.send_modify(|readings| *readings += 1),
                Err(error) => tracing::warn!(%error, "the catalog could not be read on; it is tried again"),
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.interval) => {}
                () = self.bell.notified() => {}
            }
        }
    }

    /// Everything behind the cursor.
    async fn read_on(&mut self) -> Result<(), ReadError> {
        let mut cursor = self.store.cursor().await?;
        loop {
            let request = wire::ListSegmentsRequest {
                page_size: PAGE,
                page_token: if cursor.0 > 0 {
                    cursor.0.to_string()
                } else {
                    String::new()
                },
                ..Default::default()
            };
            let page = self.publisher.list_segments(request).await?.into_inner();
            let Some(last) = page.segments.last().map(|segment| Ordinal(segment.ordinal)) else {
                return Ok(());
            };
            let records: Vec<HandoffRecord> = page.segments.iter().map(record).collect::<Result<_, _>>()?;
            self.store.upsert(&records, Some(last)).await?;
            // Those that were there already are pending here, or served and skipped by the check.
            self.watch.register(records.iter().map(Pending::from).collect());
            cursor = last;
            if page.next_page_token.is_empty() {
                return Ok(());
            }
        }
    }
}

fn record(published: &wire::PublishedSegment) -> Result<HandoffRecord, ReadError> {
    let segment = published.segment.as_ref();
    let id = segment.and_then(|segment| segment.id.as_ref());
    let id = id.ok_or_else(|| ReadError::Garbled("it is absent".to_owned()))?;
    let id = SegmentId::try_from(id).map_err(|error| ReadError::Garbled(error.to_string()))?;
    let seen = Seen {
        size_bytes: segment.map_or(0, |segment| segment.size_bytes),
        rows: segment.map_or(0, |segment| segment.rows),
    };
    let document =
        Document::of(FORMAT, FORMAT, &seen).map_err(|error| ReadError::Garbled(error.to_string()))?;
    Ok(HandoffRecord {
        segment: id,
        ordinal: Ordinal(published.ordinal),
        state: HandoffState::Pending,
        detail: String::new(),
        attempts: 0,
        since: now(),
        served_at: None,
        document,
    })
}
