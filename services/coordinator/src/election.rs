//! Leader election: standing by, taking the lead, keeping it, stepping down; again and again until told to end.
//!
//! Promises: what is led ends before the lease could be taken to be over by another one; it ends as soon as an epoch
//! above ours is met, whoever made it; a lease is given back on an orderly end. Safety is the epoch's alone: clocks
//! only say when somebody else may try (`docs/decisions/0010-who-leads.md`).

use std::sync::Arc;
use std::time::Duration;

use tidegate_metadata::{Acquired, Candidate, CoordinatorStore, Lease, StoreError};
use tidegate_telemetry::{Metrics, families};
use tidegate_types::Epoch;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::actor::now;
use crate::error::CoordinatorError;
use crate::seat::{Led, Seat};

/// Longest and shortest pause between two looks at another one's lease.
const LOOKS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// A holder of 0.1.0 never renews: it is taken to be over after so many lives of a lease, so that two versions side
/// by side change the lead seldom.
const UNRENEWED: u32 = 4;
/// How long giving the lease back may take; then it runs out.
const RELEASE: Duration = Duration::from_secs(3);

/// One time of leading.
#[derive(Clone)]
pub(crate) struct Term {
    pub(crate) epoch: Epoch,
    /// Cancelled when the lease is lost: waiting writes end.
    pub(crate) deposed: CancellationToken,
    /// Cancelled with it, and on an orderly end: what is led ends, waiting writes go on.
    pub(crate) stop: CancellationToken,
}

/// Takes up what is led.
#[async_trait::async_trait]
pub(crate) trait TakeUp: Send + Sync {
    async fn take_up(&self, term: &Term) -> Result<Arc<Led>, CoordinatorError>;
}

/// A coordinator's part in the election.
pub(crate) struct Election {
    pub(crate) port: Arc<dyn CoordinatorStore>,
    pub(crate) candidate: Candidate,
    pub(crate) take_up: Box<dyn TakeUp>,
    pub(crate) seat: watch::Sender<Seat>,
    pub(crate) metrics: Metrics,
    pub(crate) stop: CancellationToken,
}

/// Why a term ended.
#[derive(Debug)]
enum End {
    /// The process ends.
    Resigned,
    /// Another epoch holds.
    Deposed,
    /// The lease could not be renewed in time.
    Late,
    /// What is stored could not be taken up.
    Unfit(CoordinatorError),
}

/// What a candidate knows of another one's lease.
#[derive(Debug)]
struct Watch {
    own: Candidate,
    /// Nothing has been tried yet.
    is_starting: bool,
    /// The lease, and since when it has been so.
    seen: Option<(Lease, Instant)>,
}

impl Watch {
    /// True when the lease may be asked for. It was read between `asked` and `heard`.
    fn look(&mut self, lease: &Lease, asked: Instant, heard: Instant) -> bool {
        let is_first = std::mem::take(&mut self.is_starting);
        // Our own, when the answer that gave it to us was lost.
        if lease.is_free() || lease.holder == self.own.holder {
            return true;
        }
        // At its start a process takes over from 0.1.0, as that does itself; and from a former life at its own
        // address, where no other process can listen. Only then: two that were wrongly given one address would take
        // the lead from each other for ever.
        let is_former_life = !lease.address.is_empty() && lease.address == self.own.address;
        if is_first && (lease.lasts.is_none() || is_former_life) {
            return true;
        }
        match &self.seen {
            Some((seen, since)) if seen == lease => {
                let life = lease.lasts.unwrap_or(self.own.lasts * UNRENEWED);
                asked.saturating_duration_since(*since) >= life
            }
            _ => {
                self.seen = Some((lease.clone(), heard));
                false
            }
        }
    }
}

impl Election {
    /// Takes part until it is told to stop. `settled` is told when this coordinator leads or stands by for the first
    /// time, or why it cannot do either.
    pub(crate) async fn run(self, settled: oneshot::Sender<Result<(), CoordinatorError>>) {
        let mut settled = Some(settled);
        let mut watch = Watch {
            own: self.candidate.clone(),
            is_starting: true,
            seen: None,
        };
        self.metrics.set(&families::LEADER, [], 0.0);
        while !self.stop.is_cancelled() {
            let began = Instant::now();
            let pause = match self.try_once(&mut watch).await {
                Ok(Acquired::Acquired { epoch }) => {
                    let end = self.lead(epoch, began, &mut settled).await;
                    let pause = self.after(&end);
                    if let End::Unfit(error) = end
                        && let Some(settled) = settled.take()
                    {
                        let _ = settled.send(Err(error));
                        return;
                    }
                    pause
                }
                Ok(Acquired::Held(lease)) => {
                    self.stand_by(&lease);
                    if let Some(settled) = settled.take() {
                        // Whoever started this may have gone away.
                        let _ = settled.send(Ok(()));
                    }
                    self.look_pause()
                }
                Err(error) => {
                    if let Some(settled) = settled.take() {
                        let _ = settled.send(Err(error.into()));
                        return;
                    }
                    tracing::warn!(%error, "the lease cannot be looked at; it is tried again");
                    self.look_pause()
                }
            };
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = sleep(pause) => {}
            }
        }
    }

    fn look_pause(&self) -> Duration {
        (self.candidate.lasts / 6).clamp(LOOKS.0, LOOKS.1)
    }

    async fn try_once(&self, watch: &mut Watch) -> Result<Acquired, StoreError> {
        let asked = Instant::now();
        let lease = self.port.lease().await?;
        if !watch.look(&lease, asked, Instant::now()) {
            return Ok(Acquired::Held(lease));
        }
        self.port
            .acquire_lease(&self.candidate, Some(&lease), now())
            .await
    }

    fn stand_by(&self, lease: &Lease) {
        let leader = (!lease.address.is_empty()).then(|| lease.address.clone());
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        self.metrics
            .set(&families::LEADER_EPOCH, [], lease.epoch.0 as f64);
        self.seat.send_if_modified(|seat| {
            if matches!(seat, Seat::StandingBy(known) if *known == leader) {
                return false;
            }
            tracing::info!(holder = lease.holder, address = lease.address, epoch = %lease.epoch, "another coordinator leads; this one stands by");
            *seat = Seat::StandingBy(leader.clone());
            true
        });
    }

    /// One term, from its first moment until nothing is led any more.
    async fn lead(
        &self,
        epoch: Epoch,
        began: Instant,
        settled: &mut Option<oneshot::Sender<Result<(), CoordinatorError>>>,
    ) -> End {
        tracing::info!(%epoch, "this coordinator leads");
        let deposed = CancellationToken::new();
        let term = Term {
            epoch,
            stop: deposed.child_token(),
            deposed,
        };
        self.metrics.count(&families::LEADER_CHANGES, ["took"], 1);
        let end = {
            let keeping = self.keep(&term, began);
            let taking_up = self.take_up.take_up(&term);
            tokio::pin!(keeping, taking_up);
            tokio::select! {
                biased;
                end = &mut keeping => end,
                taken = &mut taking_up => match taken {
                    Ok(led) => {
                        self.seat.send_replace(Seat::Leading(led));
                        self.metrics.set(&families::LEADER, [], 1.0);
                        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
                        self.metrics.set(&families::LEADER_EPOCH, [], epoch.0 as f64);
                        if let Some(settled) = settled.take() {
                            let _ = settled.send(Ok(()));
                        }
                        keeping.await
                    }
                    Err(error) => End::Unfit(error),
                },
            }
        };
        self.seat.send_replace(Seat::StandingBy(None));
        self.metrics.set(&families::LEADER, [], 0.0);
        if matches!(end, End::Resigned | End::Unfit(_)) {
            term.stop.cancel();
            self.release(epoch).await;
        }
        // What has not been written by now is refused; the next leader goes on from what has.
        term.deposed.cancel();
        self.metrics.count(&families::LEADER_CHANGES, ["left"], 1);
        end
    }

    /// Renews the lease until the term is over.
    async fn keep(&self, term: &Term, began: Instant) -> End {
        let lasts = self.candidate.lasts;
        let mut renewed = began;
        let mut pause = lasts / 3;
        loop {
            // Others count from a renewal's arrival, we from its departure, and a sixth is for slow clocks.
            let deadline = renewed + lasts * 5 / 6;
            let asked = tokio::select! {
                biased;
                () = self.stop.cancelled() => return End::Resigned,
                () = term.deposed.cancelled() => return End::Deposed,
                () = sleep(pause) => Instant::now(),
            };
            let renewing = self.port.renew_lease(term.epoch, lasts, now());
            let answer = tokio::select! {
                biased;
                () = self.stop.cancelled() => return End::Resigned,
                () = term.deposed.cancelled() => return End::Deposed,
                answer = timeout_at(deadline, renewing) => answer,
            };
            match answer {
                Ok(Ok(())) => {
                    renewed = asked;
                    pause = lasts / 3;
                }
                Ok(Err(StoreError::Fenced { held, .. })) => {
                    tracing::warn!(%held, own = %term.epoch, "another coordinator has taken over");
                    return End::Deposed;
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "the lease was not renewed; it is tried again");
                    pause = lasts / 12;
                }
                Err(_) => return End::Late,
            }
            if Instant::now() >= deadline {
                return End::Late;
            }
        }
    }

    async fn release(&self, epoch: Epoch) {
        match timeout(RELEASE, self.port.release_lease(epoch)).await {
            Ok(Ok(())) => tracing::info!(%epoch, "the lease is given back"),
            // Somebody else leads already.
            Ok(Err(StoreError::Fenced { .. })) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the lease was not given back; it runs out"),
            Err(_) => tracing::warn!("the lease was not given back in time; it runs out"),
        }
    }

    /// How long to wait before the next try.
    fn after(&self, end: &End) -> Duration {
        match end {
            End::Resigned => Duration::ZERO,
            End::Deposed => self.look_pause(),
            End::Late => {
                tracing::error!("the lease could not be renewed in time; this coordinator stands by");
                self.look_pause()
            }
            End::Unfit(error) => {
                // Another one may be able to.
                tracing::error!(%error, "what is stored cannot be taken up; this coordinator stands by");
                self.candidate.lasts
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_secs(15);

    fn lease(holder: &str, renewal: u64, lasts: Option<Duration>) -> Lease {
        Lease {
            holder: holder.into(),
            address: format!("http://{holder}"),
            epoch: Epoch(3),
            renewal,
            lasts,
        }
    }

    fn watch() -> Watch {
        Watch {
            own: Candidate {
                holder: "me".into(),
                address: "http://me".into(),
                lasts: LASTS,
            },
            is_starting: true,
            seen: None,
        }
    }

    #[test]
    fn a_lease_is_over_when_it_did_not_change_for_its_whole_life_by_the_clock_of_the_one_who_looks() {
        let (mut watch, start) = (watch(), Instant::now());
        let mut look = |lease: &Lease, seconds: u64| {
            let at = start + Duration::from_secs(seconds);
            watch.look(lease, at, at)
        };
        let first = lease("other", 0, Some(LASTS));
        assert!(!look(&first, 0));
        assert!(!look(&first, 14));
        let renewed = lease("other", 1, Some(LASTS));
        assert!(!look(&renewed, 15), "it was renewed");
        assert!(!look(&renewed, 29));
        assert!(look(&renewed, 30));
        // The holder's own life counts, not ours.
        let longer = lease("other", 2, Some(LASTS * 4));
        assert!(!look(&longer, 31));
        assert!(!look(&longer, 90));
        assert!(look(&longer, 91));
    }

    #[test]
    fn a_slow_answer_makes_no_lease_older() {
        let (mut watch, start) = (watch(), Instant::now());
        let held = lease("other", 0, Some(LASTS));
        // Read at an unknown moment within twenty seconds; and again.
        assert!(!watch.look(&held, start, start + Duration::from_secs(20)));
        let later = start + Duration::from_secs(34);
        assert!(!watch.look(&held, later, later + Duration::from_secs(9)));
        let later = start + Duration::from_secs(35);
        assert!(watch.look(&held, later, later));
    }

    #[test]
    fn a_lease_that_nobody_holds_or_that_is_ours_is_asked_for_at_once() {
        let start = Instant::now();
        assert!(watch().look(&lease("", 0, None), start, start));
        let mut later = watch();
        assert!(!later.look(&lease("other", 0, Some(LASTS)), start, start));
        assert!(later.look(&lease("me", 0, Some(LASTS)), start, start));
    }

    #[test]
    fn a_process_that_starts_takes_over_from_its_former_life_and_from_0_1_0_but_does_so_once() {
        let start = Instant::now();
        let former = Lease {
            address: "http://me".into(),
            ..lease("my former life", 9, Some(LASTS))
        };
        let old = Lease {
            address: String::new(),
            ..lease("17@old", 0, None)
        };
        for held in [former, old] {
            let mut watch = watch();
            assert!(watch.look(&held, start, start), "{held:?}");
            assert!(!watch.look(&held, start, start), "only at its start: {held:?}");
        }
        let mut unrenewed = watch();
        let old = lease("17@old", 0, None);
        unrenewed.is_starting = false;
        assert!(!unrenewed.look(&old, start, start));
        let later = start + LASTS * 3;
        assert!(!unrenewed.look(&old, later, later));
        let later = start + LASTS * 4;
        assert!(unrenewed.look(&old, later, later));
    }

    #[test]
    fn without_an_address_of_its_own_nobody_is_a_former_life() {
        let start = Instant::now();
        let mut watch = watch();
        watch.own.address = String::new();
        let held = Lease {
            address: String::new(),
            ..lease("other", 0, Some(LASTS))
        };
        assert!(!watch.look(&held, start, start));
    }
}
