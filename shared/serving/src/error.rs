//! Why a tier gave no answer.

/// A question without an answer; the segment counts as not served, and is asked for again.
#[derive(Debug, thiserror::Error)]
pub enum ServingError {
    /// The address cannot be used.
    #[error("the serving tier's address {address:?} cannot be used: {reason}; correct handoff.{key}")]
    Address {
        address: String,
        reason: String,
        key: &'static str,
    },
    /// It could not be reached, or broke off.
    #[error("{tier} at {address} could not be asked for segment {segment}: {reason}")]
    NoAnswer {
        tier: &'static str,
        address: String,
        segment: String,
        reason: String,
    },
    /// It answered something that is no answer to the question.
    #[error("{tier} at {address} answered about segment {segment} in a way that is not understood: {reason}")]
    Garbled {
        tier: &'static str,
        address: String,
        segment: String,
        reason: String,
    },
    /// The object store failed.
    #[error(transparent)]
    Objects(#[from] tidegate_objects::ObjectsError),
}
