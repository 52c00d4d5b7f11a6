//! Waiting until the serving tier has what was published.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_protocol::task::{HandoffSeen, TaskEvent};
use tidegate_rpc::handoff::v1 as wire;
use tidegate_types::SegmentId;

use super::Shared;
use crate::live::Live;

/// Most segments in one question.
const AT_ONCE: usize = 1000;
/// Longest wait of one question.
const LONG_POLL: Duration = Duration::from_secs(20);
/// A checker that answers at once "not yet", or not at all, is asked again after this.
const PACE: Duration = Duration::from_secs(1);

/// One round of asking about all segments. An error counts as "not yet": the checker goes on by itself.
pub(crate) async fn wait(shared: Shared, segments: Vec<SegmentId>, live: Arc<Live>) -> TaskEvent {
    let began = Instant::now();
    let mut seen = Vec::new();
    for (index, some) in segments.chunks(AT_ONCE).enumerate() {
        // Only the first question waits: the others come right after and would add up.
        let patience = if index == 0 { LONG_POLL } else { Duration::ZERO };
        seen.extend(ask(&shared, some, patience).await);
    }
    let served = seen.iter().filter(|seen| seen.served).count();
    live.advance(served as u64);
    if served < segments.len() {
        tokio::time::sleep(PACE.saturating_sub(began.elapsed())).await;
    }
    TaskEvent::HandoffAnswered(seen)
}

async fn ask(shared: &Shared, segments: &[SegmentId], patience: Duration) -> Vec<HandoffSeen> {
    let request = wire::AwaitHandoffRequest {
        segments: segments.iter().map(Into::into).collect(),
        wait_millis: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
    };
    let mut client = shared.handoff.clone();
    let answer = match client.await_handoff(request).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => {
            tracing::warn!(code = %status.code(), message = status.message(), "the handoff-checker did not answer");
            return Vec::new();
        }
    };
    let one = |handoff: wire::Handoff| {
        let segment = SegmentId::try_from(handoff.id.as_ref()?).ok()?;
        Some(HandoffSeen {
            segment,
            served: handoff.state() == wire::HandoffState::Served,
        })
    };
    answer.handoffs.into_iter().filter_map(one).collect()
}
