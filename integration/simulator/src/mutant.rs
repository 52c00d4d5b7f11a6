//! Faults put in on purpose: a simulator that does not find them proves nothing.
//!
//! Each stands for a mistake that a shell could make around the machines: the order of a spill and its offsets, a
//! comparison that is left out, an answer that is believed too early, a call that is not repeated.

use std::fmt;
use std::str::FromStr;

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
