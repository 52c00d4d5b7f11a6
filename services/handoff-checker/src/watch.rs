//! The machine at work: an actor that carries its actions out and turns answers into events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_metadata::{HandoffRecord, HandoffStore, Ordinal};
use tidegate_protocol::handoff::{Answer, HandoffAction, HandoffEvent, HandoffLimits, HandoffMachine};
use tidegate_telemetry::{Metrics, families};
use tidegate_types::{SegmentId, TimestampMillis};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::check::Checker;
use crate::clock::now;

/// A segment to follow.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    segment: SegmentId,
    ordinal: Ordinal,
    since: TimestampMillis,
}

impl From<&HandoffRecord> for Pending {
    fn from(record: &HandoffRecord) -> Self {
        Self {
            segment: record.segment.clone(),
            ordinal: record.ordinal,
            since: record.since,
        }
    }
}

enum Message {
    Register(Vec<Pending>),
    Event(HandoffEvent),
}

/// A way to talk to the actor.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    sender: mpsc::UnboundedSender<Message>,
    /// Grows whenever a segment became served.
    served: watch::Receiver<u64>,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Message")
    }
}

impl Watch {
    // An actor that is gone ends with the service; the next one begins from the store.
    pub(crate) fn register(&self, segments: Vec<Pending>) {
        let _ = self.sender.send(Message::Register(segments));
    }
    /// Somebody waits for it.
    pub(crate) fn awaited(&self, segment: SegmentId) {
        let _ = self
            .sender
            .send(Message::Event(HandoffEvent::Awaited { segment }));
    }
    pub(crate) fn served(&self) -> watch::Receiver<u64> {
        self.served.clone()
    }
}

struct Actor {
    machine: HandoffMachine,
    /// Places in the catalog of the pending segments.
    ordinals: BTreeMap<SegmentId, Ordinal>,
    store: Arc<dyn HandoffStore>,
    checker: Checker,
    metrics: Metrics,
    sender: mpsc::UnboundedSender<Message>,
    served: watch::Sender<u64>,
}

/// Starts the actor.
pub(crate) fn spawn(
    limits: HandoffLimits,
    store: Arc<dyn HandoffStore>,
    checker: Checker,
    metrics: Metrics,
    stop: CancellationToken,
) -> Watch {
    let (sender, messages) = mpsc::unbounded_channel();
    let (served, seen) = watch::channel(0);
    let actor = Actor {
        machine: HandoffMachine::new(limits),
        ordinals: BTreeMap::new(),
        store,
        checker,
        metrics,
        sender: sender.clone(),
        served,
    };
    tokio::spawn(actor.run(messages, stop));
    Watch { sender, served: seen }
}

/// The wait until `at`; for ever without one.
async fn until(at: Option<TimestampMillis>) {
    match at {
        Some(at) => {
            let left = u64::try_from(at.0.saturating_sub(now().0)).unwrap_or(0);
            tokio::time::sleep(Duration::from_millis(left)).await;
        }
        None => std::future::pending().await,
    }
}

impl Actor {
    async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>, stop: CancellationToken) {
        loop {
            let message = tokio::select! {
                () = stop.cancelled() => return,
                message = messages.recv() => message,
                () = until(self.machine.next_at()) => Some(Message::Event(HandoffEvent::Tick)),
            };
            match message {
                None => return,
                Some(Message::Event(event)) => self.on(event),
                Some(Message::Register(segments)) => {
                    for Pending {
                        segment,
                        ordinal,
                        since,
                    } in segments
                    {
                        self.ordinals.insert(segment.clone(), ordinal);
                        self.on(HandoffEvent::Registered { segment, since });
                    }
                }
            }
            // Below 2^53 for all practical ends.
            #[allow(clippy::cast_precision_loss)]
            self.metrics
                .set(&families::HANDOFFS_PENDING, [], self.machine.len() as f64);
        }
    }

    fn on(&mut self, event: HandoffEvent) {
        for action in self.machine.on(event, now()) {
            self.perform(action);
        }
    }

    fn perform(&mut self, action: HandoffAction) {
        let (store, sender) = (self.store.clone(), self.sender.clone());
        match action {
            HandoffAction::Check { segment } => {
                let (checker, metrics) = (self.checker.clone(), self.metrics.clone());
                let ordinal = self.ordinals.get(&segment).copied().unwrap_or_default();
                tokio::spawn(async move {
                    let (answer, detail) = checker.check(&segment, ordinal).await;
                    let outcome = match answer {
                        Answer::Served => "served",
                        Answer::NotServed => "pending",
                        Answer::Failed => "failed",
                    };
                    metrics.count(&families::HANDOFF_CHECKS, [outcome], 1);
                    let event = HandoffEvent::Checked {
                        segment,
                        answer,
                        detail,
                    };
                    let _ = sender.send(Message::Event(event));
                });
            }
            HandoffAction::RecordAttempt { segment, detail } => {
                tokio::spawn(async move {
                    if let Err(error) = store.record_attempt(&segment, &detail).await {
                        tracing::debug!(%segment, %error, "an attempt was not recorded");
                    }
                });
            }
            HandoffAction::MarkServed { segment, at, detail } => {
                tokio::spawn(async move {
                    let event = match store.mark_served(&segment, at, &detail).await {
                        Ok(()) => HandoffEvent::Recorded { segment },
                        Err(error) => {
                            tracing::warn!(%segment, %error, "a confirmation could not be stored; it is asked for again");
                            HandoffEvent::NotRecorded { segment }
                        }
                    };
                    let _ = sender.send(Message::Event(event));
                });
            }
            HandoffAction::Tell { segment, waited } => {
                self.ordinals.remove(&segment);
                let data_source = segment.data_source.as_str();
                self.metrics.count(&families::HANDOFFS_SERVED, [data_source], 1);
                self.metrics.time(&families::HANDOFF_TIME, [], waited);
                tracing::info!(%segment, ?waited, "a segment is served");
                self.served.send_modify(|served| *served += 1);
            }
            HandoffAction::Alert { segment, waited } => {
                self.metrics
                    .count(&families::HANDOFF_ALERTS, [segment.data_source.as_str()], 1);
                tracing::warn!(
                    %segment,
                    ?waited,
                    "ALERT: a published segment is not served yet; its rows are safe, it is checked on"
                );
            }
        }
    }
}
