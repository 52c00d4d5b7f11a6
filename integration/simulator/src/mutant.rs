//! Faults put in on purpose: a simulator that does not find them proves nothing.
//!
//! Each stands for a mistake that a shell could make around the machines: the order of a spill and its offsets, a
//! comparison that is left out, an answer that is believed too early, a call that is not repeated.

use std::fmt;
use std::str::FromStr;

use tidegate_protocol::mutation::Mutation;

macro_rules! mutants {
    ($($(#[doc = $what:literal])+ $variant:ident $name:literal)*) => {
        /// One mistake.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[doc = $what])+ $variant,)*
        }

        impl Mutant {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// The name for the command line.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

mutants! {
    /// A persist notes offsets that lie before a record whose row it holds (D3).
    OffsetsBehindSpill "offsets-behind-spill"
    /// A persist loses the last row of a segment.
    SpillLosesRow "spill-loses-row"
    /// Files that are missing at a restart are not noticed (B56).
    MissingFilesUnnoticed "missing-files-unnoticed"
    /// A merge takes only the newest run of a segment.
    MergeTakesNewestRun "merge-takes-newest-run"
    /// A publish whose start differs from the committed offsets is committed (I2).
    PublishWithoutCompare "publish-without-compare"
    /// A commit moves the offsets and leaves a segment out (I1).
    OffsetsWithoutSegment "offsets-without-segment"
    /// Nobody looks at the epoch of a leader: one that was overtaken writes and calls on.
    NoEpochFence "no-epoch-fence"
    /// A round takes the lowest offset of each partition instead of the highest.
    LowestOffset "lowest-offset"
    /// "Already published" is a failure.
    AlreadyPublishedFails "already-published-fails"
    /// A checkpoint is trimmed from the log before its sequence is published.
    TrimUnpublished "trim-unpublished"
    /// The last sequence that is ready is published first (I4).
    PublishLastFirst "publish-last-first"
    /// The next sequence starts where a replica stands, not where the last one was decided to end.
    StartWhereItStands "start-where-it-stands"
    /// An end that a replica has read past is taken.
    TakeEndBehind "take-end-behind"
    /// A replacement starts at the start of its group, with the sequence ids that are left.
    StartAtGroupStart "start-at-group-start"
    /// Local copies go when they are published (I9).
    DropAtPublish "drop-at-publish"
    /// A replica that stands without need is not told to read on (B01).
    NeverResume "never-resume"
    /// The next group starts at the committed offsets while the one before it still publishes.
    StartAtCommitted "start-at-committed"
    /// A restarted coordinator does not read the checkpoint log (D18).
    ForgetLog "forget-log"
    /// Tasks are told an end before it is in the log (I5).
    TellBeforeLogged "tell-before-logged"
    /// A registration that was overtaken replaces the newer one.
    OvertakenRegistration "overtaken-registration"
    /// The tier is said to have a segment that it does not have (I9).
    HandoffToldEarly "handoff-told-early"
    /// A call without an answer is never given up.
    CallNeverGivenUp "call-never-given-up"
    /// The serving tier is asked once and not again.
    HandoffAskedOnce "handoff-asked-once"
    /// A restored task is restored with its offsets and without its rows.
    RestoredWithoutRows "restored-without-rows"
}

impl Mutant {
    /// The mistake inside the machines, for those that are not in the world around them.
    pub(crate) fn inside(self) -> Option<Mutation> {
        Some(match self {
            Self::LowestOffset => Mutation::LowestOffset,
            Self::AlreadyPublishedFails => Mutation::AlreadyPublishedFails,
            Self::TrimUnpublished => Mutation::TrimUnpublished,
            Self::PublishLastFirst => Mutation::PublishLastFirst,
            Self::StartWhereItStands => Mutation::StartWhereItStands,
            Self::TakeEndBehind => Mutation::TakeEndBehind,
            Self::StartAtGroupStart => Mutation::StartAtGroupStart,
            Self::DropAtPublish => Mutation::DropAtPublish,
            Self::NeverResume => Mutation::NeverResume,
            Self::StartAtCommitted => Mutation::StartAtCommitted,
            Self::ForgetLog => Mutation::ForgetLog,
            Self::TellBeforeLogged => Mutation::TellBeforeLogged,
            _ => return None,
        })
    }
}

impl fmt::Display for Mutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such mutant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownMutant(String);

impl fmt::Display for UnknownMutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
        write!(
            f,
            "there is no mutant {:?}; there are: {}",
            self.0,
            names.join(", ")
        )
    }
}

impl std::error::Error for UnknownMutant {}

impl FromStr for Mutant {
    type Err = UnknownMutant;

    fn from_str(text: &str) -> Result<Self, UnknownMutant> {
        let found = Self::ALL.iter().find(|mutant| mutant.name() == text);
        found.copied().ok_or_else(|| UnknownMutant(text.to_owned()))
    }
}
