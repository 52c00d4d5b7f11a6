//! Identifiers. Text ids are checked once, at the border; after that they are known to be safe as an object
//! key and as a file name.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a text cannot be an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {text:?} is not usable: {reason}")]
pub struct InvalidId {
    /// What it should have been, e.g. `data source`.
    pub kind: &'static str,
    /// The text as given, cut at 64 characters.
    pub text: String,
    /// What is wrong, and what is allowed.
    pub reason: &'static str,
}

/// 1 to 255 bytes, no `/`, no control characters, not `.` or `..` (B48).
fn check(kind: &'static str, text: &str) -> Result<(), InvalidId> {
    let reason = if text.is_empty() {
        "it is empty"
    } else if text.len() > 255 {
        "it is longer than 255 bytes"
    } else if text.contains(['/', '\\']) {
        "it has a slash"
    } else if text.chars().any(char::is_control) {
        "it has a control character"
    } else if text == "." || text == ".." {
        "it is a name that folders use"
    } else {
        return Ok(());
    };
    Err(InvalidId {
        kind,
        text: text.chars().take(64).collect(),
        reason,
    })
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks the text: 1-255 bytes, no slash, no control character, not `.` or `..`.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                check($kind, &text)?;
                Ok(Self(text))
            }
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }
        impl std::str::FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }
        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id!(
    /// A data source: the name under which segments are found.
    DataSource, "data source");
text_id!(
    /// A supervisor; by default the name of its data source.
    SupervisorId, "supervisor id");
text_id!(
    /// The stored identity of a task group; never derived from partition numbers.
    GroupId, "group id");
text_id!(
    /// One task: one replica of one group, in one assignment.
    TaskId, "task id");
text_id!(
    /// The instance id of a runner. It lives on the runner's volume, so it survives a new address (B46).
    RunnerId, "runner id");
text_id!(
    /// The fence of one assignment: a publish with another token than the registered one is refused.
    AssignmentToken, "assignment token");
text_id!(
    /// Name shared by all replicas of a group; part of the protocol (frozen vectors).
    BaseSequenceName, "base sequence name");
text_id!(
    /// Base sequence name + `_` + sequence id (checkpointing) or + `_` + Kafka partition (legacy).
    SequenceName, "sequence name");

/// A Kafka cluster id, as the broker reports it; empty when it does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClusterId(pub String);

/// A Kafka topic id, as the broker reports it; empty when it does not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TopicId(pub String);

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $repr);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number_id!(
    /// Position of a sequence within its group, from 0. In legacy mode it equals the Kafka partition.
    SequenceId, u32);
number_id!(
    /// Raised by every reset, skip and forced jump of a supervisor's offsets; fences late publishes.
    Generation, u64);
number_id!(
    /// The fencing number of a coordinator's lease: higher wins, lower is refused.
    Epoch, u64);
number_id!(
    /// Version of the rules that turn bytes into rows; frozen per group (I3).
    DecodeVersion, u32);

impl SequenceId {
    /// The sequence behind this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl Generation {
    /// The next generation. Saturates, since a wrap-around would re-open the past.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl BaseSequenceName {
    /// The name of one sequence of this group.
    pub fn sequence(&self, id: SequenceId) -> SequenceName {
        SequenceName(format!("{}_{}", self.0, id.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_escape_a_folder_are_refused() {
        for bad in ["", ".", "..", "a/b", "a\\b", "a\nb", "\u{0}", &"x".repeat(256)] {
            assert!(DataSource::new(bad).is_err(), "{bad:?}");
        }
        for good in ["wiki", "app.db.settings", "Łódź", "a b", &"x".repeat(255)] {
            assert!(DataSource::new(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn a_document_with_a_bad_id_does_not_deserialize() {
        assert!(serde_json::from_str::<TaskId>("\"a/b\"").is_err());
        assert_eq!(serde_json::from_str::<TaskId>("\"a\"").unwrap().as_str(), "a");
    }
}
