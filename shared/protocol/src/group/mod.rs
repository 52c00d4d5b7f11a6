//! One task group: partitions that are read together by equal replicas, from frozen start offsets to an end that
//! is decided once.
//!
//! Owns: what is stored of a group and its tasks, what runners say about tasks, and how a round of pauses becomes
//! an end. Promises: a group's definition never changes after its creation (I3); its end is decided at most once
//! (I5); an unreachable replica is replaced, not waited for. Must never: look at other groups: that is the
//! supervisor's part.
//!
//! ```text
//! Reading ─ round ─► Pending ─► Done
//!    └───────┬──────────┘
//!            └─► GivingUp ─► Lost (or Done: it had published at the last moment)
//! ```

mod document;
mod report;
mod round;
mod run;

pub use document::{GroupDocument, GroupState, StopWord, StoredMode, TaskDocument, TaskEnd};
pub use report::{TaskPhase, TaskReport, TaskState};
pub use round::{Ask, Purpose, Round, Verdict};
pub use run::{Call, GroupRun, HowToTell, Replica};
