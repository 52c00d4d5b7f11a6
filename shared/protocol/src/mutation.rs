//! Mistakes that a simulation can switch on inside the machines, to show that it would find them.
//!
//! Owns: which one is on, per thread. Promises: without the feature `mutants`, which only the simulator asks for,
//! nothing of it is in the build and nothing can be switched on.

/// One mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// A round takes the lowest offset of each partition instead of the highest.
    LowestOffset,
    /// "Already published" is a failure.
    AlreadyPublishedFails,
    /// A checkpoint is trimmed from the log before its sequence is published.
    TrimUnpublished,
    /// The last sequence that is ready is published first.
    PublishLastFirst,
    /// The next sequence starts where this replica stands, not where the last one was decided to end.
    StartWhereItStands,
    /// An end that a replica has read past is taken.
    TakeEndBehind,
    /// A replacement starts at the start of its group, with the sequence ids that are left.
    StartAtGroupStart,
    /// Local copies go when they are published.
    DropAtPublish,
    /// A replica that stands without need is not told to read on.
    NeverResume,
    /// The next group starts at the committed offsets while the one before it still publishes.
    StartAtCommitted,
    /// A restarted coordinator does not read the checkpoint log.
    ForgetLog,
    /// Tasks are told an end before it is in the log.
    TellBeforeLogged,
}

#[cfg(feature = "mutants")]
mod switch {
    use super::Mutation;

    thread_local! {
        static ON: std::cell::Cell<Option<Mutation>> = const { std::cell::Cell::new(None) };
    }

    /// Switches a mistake on for this thread, or all off.
    pub fn set(mutation: Option<Mutation>) {
        ON.set(mutation);
    }
    pub(crate) fn is(mutation: Mutation) -> bool {
        ON.get() == Some(mutation)
    }
}

#[cfg(feature = "mutants")]
pub(crate) use switch::is;
#[cfg(feature = "mutants")]
pub use switch::set;

#[cfg(not(feature = "mutants"))]
pub(crate) const fn is(_mutation: Mutation) -> bool {
    false
}
