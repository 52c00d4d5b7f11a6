//! What is wrong with a configuration, all at once.

use std::fmt;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The table of keys.
    Default,
    /// Set by the program itself, e.g. by `--data-dir`.
    Program,
    File {
        path: String,
        line: usize,
    },
    Environment {
        variable: String,
    },
    Flag,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Program => f.write_str("set by the program"),
            Self::File { path, line } => write!(f, "{path}:{line}"),
            Self::Environment { variable } => write!(f, "environment variable {variable}"),
            Self::Flag => f.write_str("--set"),
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("{key} ({origin}) is no known key; the nearest is {nearest}")]
    UnknownKey {
        key: String,
        origin: Source,
        nearest: String,
    },
    #[error("{key} ({origin}) = {shown} cannot be used: {how}")]
    BadValue {
        key: String,
        origin: Source,
        shown: String,
        how: String,
    },
    #[error("{key} is not set; set it in the file, as {variable}, or with --set {key}=…")]
    Missing { key: String, variable: String },
    #[error("{key}: {what}")]
    DoesNotFit { key: &'static str, what: String },
    #[error("--set {text:?} is no key=value")]
    BadFlag { text: String },
    #[error("the file {path} cannot be read: {reason}")]
    File { path: String, reason: String },
}

/// Everything that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    pub problems: Vec<Problem>,
}

impl std::error::Error for ConfigError {}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [only] => write!(f, "the configuration cannot be used: {only}"),
            several => {
                write!(
                    f,
                    "the configuration cannot be used, for {} reasons:",
                    several.len()
                )?;
                several
                    .iter()
                    .try_for_each(|problem| write!(f, "\n  - {problem}"))
            }
        }
    }
}
