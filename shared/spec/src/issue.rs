//! What is wrong with a document, and where.

use std::fmt;

use serde::Serialize;

use crate::model::SupervisorSpec;

/// One thing that is wrong (or, as a warning, worth knowing). It never contains the value of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SpecIssue {
    /// Where in the document as it was given, e.g. `spec.ioConfig.taskCount`; empty for the document itself.
    pub path: String,
    pub message: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

impl fmt::Display for SpecIssue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "{} (line {}, column {})", self.message, self.line, self.column)
    }
}

/// Every error of a document, as one error; its text is one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpecErrors(pub Vec<SpecIssue>);

impl fmt::Display for SpecErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, issue) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{issue}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SpecErrors {}

/// A spec that passed, with what should be said about it.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    pub spec: SupervisorSpec,
    pub warnings: Vec<SpecIssue>,
}

/// Collects what is found while a document is read.
pub(crate) struct Findings<'t> {
    text: &'t str,
    errors: Vec<(usize, SpecIssue)>,
    warnings: Vec<(usize, SpecIssue)>,
}

impl<'t> Findings<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self {
            text,
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// `at` is a byte offset into the text.
    pub(crate) fn error(&mut self, at: usize, path: impl Into<String>, message: impl Into<String>) {
        self.errors
            .push((at, issue(self.text, at, path.into(), message.into())));
    }

    pub(crate) fn warning(&mut self, at: usize, path: impl Into<String>, message: impl Into<String>) {
        self.warnings
            .push((at, issue(self.text, at, path.into(), message.into())));
    }

    pub(crate) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// Errors and warnings in the order of the document.
    pub(crate) fn into_parts(mut self) -> (Vec<SpecIssue>, Vec<SpecIssue>) {
        let sorted = |list: &mut Vec<(usize, SpecIssue)>| {
            list.sort_by_key(|(at, _)| *at);
            std::mem::take(list).into_iter().map(|(_, issue)| issue).collect()
        };
        (sorted(&mut self.errors), sorted(&mut self.warnings))
    }
}

/// An issue at a byte offset.
pub(crate) fn issue(text: &str, at: usize, path: String, message: String) -> SpecIssue {
    let before = &text.as_bytes()[..at.min(text.len())];
    let line_start = before
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |newline| newline + 1);
    // Every byte but the continuation bytes of UTF-8 begins a character.
    let characters = before[line_start..]
        .iter()
        .filter(|byte| **byte & 0xC0 != 0x80)
        .count();
    let line = before.split(|byte| *byte == b'\n').count();
    SpecIssue {
        path,
        message,
        line,
        column: characters + 1,
    }
}
