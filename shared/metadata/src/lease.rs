//! The lease of the coordinator that leads, as it is stored. Whether it is over is the candidates' judgement, by
//! their own clocks; the store only compares it with what a candidate saw, and gives epochs.

use std::time::Duration;

use tidegate_types::Epoch;

/// The lease as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// Names one life of one coordinator; empty when nobody holds it.
    pub holder: String,
    /// Where the holder is called; empty when it did not tell.
    pub address: String,
    pub epoch: Epoch,
    /// Grows with each renewal: a lease that changes has a holder that lives.
    pub renewal: u64,
    /// How long its holder leads without renewing. `None`: a holder of 0.1.0, which never renews.
    pub lasts: Option<Duration>,
}

impl Lease {
    /// Nobody holds it.
    pub fn is_free(&self) -> bool {
        self.holder.is_empty()
    }
}

/// Who would like to lead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Unique to this life of this coordinator.
    pub holder: String,
    /// Where others call it; empty when it has no address to tell.
    pub address: String,
    /// How long it leads without renewing.
    pub lasts: Duration,
}

/// The answer to a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquired {
    /// It leads, with this epoch.
    Acquired { epoch: Epoch },
    /// Another one holds the lease, which is not the one that the candidate takes to be over.
    Held(Lease),
}
