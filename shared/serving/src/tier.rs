//! What every serving tier can be asked.

use async_trait::async_trait;
use tidegate_types::SegmentId;

use crate::ServingError;

/// A published segment as the catalog has it now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedObject {
    pub id: SegmentId,
    /// Key of the object: the final one once it is promoted.
    pub key: String,
    pub size_bytes: u64,
    /// Lower-case hex.
    pub sha256: String,
    /// It stands at its final key.
    pub promoted: bool,
}

/// What a tier answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// It has the segment, or does not need it. The text says which, for a person.
    Yes(String),
    /// Not yet, and what it waits for.
    NotYet(String),
}

/// A serving tier.
#[async_trait]
pub trait ServingTier: std::fmt::Debug + Send + Sync {
    /// Asks once. An error says that nothing is known.
    async fn check(&self, segment: &PublishedObject) -> Result<Served, ServingError>;
}
