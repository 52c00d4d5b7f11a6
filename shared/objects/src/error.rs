//! What can go wrong with a store, and whether it is worth trying again.

use std::error::Error as StdError;

/// The kinds that callers decide by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The store asks for fewer requests. Try again, later.
    Throttled,
    /// The store, or the way to it, is away for now. Try again.
    Unavailable,
    /// The keys or rights do not suffice. Trying again helps only after somebody changed them.
    Denied,
    /// No such object (or bucket).
    NotFound,
    /// The store or the local disk refused the request; the same request will be refused again.
    Rejected,
    /// The configuration cannot be used.
    Config,
}

/// A failed operation: what was tried, on what, and what came back.
#[derive(Debug, thiserror::Error)]
#[error("object store: {action} {key:?} at {store} failed ({hint}): {detail}", hint = hint(*kind))]
pub struct ObjectsError {
    pub kind: ErrorKind,
    /// E.g. `upload`.
    pub action: &'static str,
    /// Key or path concerned.
    pub key: String,
    /// The store's address, without secrets.
    pub store: String,
    /// Texts of the causes, outermost first.
    pub detail: String,
}

const fn hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Throttled => "the store asks for fewer requests; it is tried again later",
        ErrorKind::Unavailable => "the store cannot be reached or is failing; it is tried again",
        ErrorKind::Denied => "check objects.access_key, objects.secret_key and the rights on the bucket",
        ErrorKind::NotFound => "no such object or bucket; check objects.url",
        ErrorKind::Rejected => "the request was refused and will be refused again",
        ErrorKind::Config => "check the objects.* settings",
    }
}

impl ObjectsError {
    /// True when the same request may succeed later without anybody's help.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Throttled | ErrorKind::Unavailable)
    }
}

/// Names the place of a failure; made once per operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) action: &'static str,
    pub(crate) key: &'a str,
    pub(crate) store: &'a str,
}

impl Place<'_> {
    pub(crate) fn error(self, kind: ErrorKind, detail: impl ToString) -> ObjectsError {
        ObjectsError {
            kind,
            action: self.action,
            key: self.key.to_owned(),
            store: self.store.to_owned(),
            detail: detail.to_string(),
        }
    }

    pub(crate) fn store(self, error: &object_store::Error) -> ObjectsError {
        self.error(kind_of(error), chain(error))
    }

    pub(crate) fn io(self, error: &std::io::Error) -> ObjectsError {
        use std::io::ErrorKind as Io;
        let kind = match error.kind() {
            Io::NotFound => ErrorKind::NotFound,
            Io::PermissionDenied => ErrorKind::Denied,
            Io::ReadOnlyFilesystem
            | Io::InvalidFilename
            | Io::InvalidInput
            | Io::NotADirectory
            | Io::IsADirectory => ErrorKind::Rejected,
            // A full or failing disk is a state of the machine, not of the request.
            _ => ErrorKind::Unavailable,
        };
        self.error(kind, chain(error))
    }
}

fn kind_of(error: &object_store::Error) -> ErrorKind {
    use object_store::Error as E;
    match error {
        E::NotFound { .. } => ErrorKind::NotFound,
        E::PermissionDenied { source, .. } | E::Unauthenticated { source, .. } => {
            // Temporary keys that ran out: the next request takes new ones (B52).
            if chain(source.as_ref()).contains("ExpiredToken") {
                ErrorKind::Unavailable
            } else {
                ErrorKind::Denied
            }
        }
        E::InvalidPath { .. } | E::NotSupported { .. } | E::NotImplemented { .. } => ErrorKind::Rejected,
        E::UnknownConfigurationKey { .. } => ErrorKind::Config,
        E::Generic { source, .. } => generic_kind(source.as_ref()),
        _ => ErrorKind::Unavailable,
    }
}

/// The client library hides the status of a failed request in its text; what cannot be told apart counts as
/// away, since giving up loses more than asking again.
fn generic_kind(error: &(dyn StdError + 'static)) -> ErrorKind {
    if let Some(io) = find::<std::io::Error>(error) {
        return Place {
            action: "",
            key: "",
            store: "",
        }
        .io(io)
        .kind;
    }
    let text = chain(error);
    if text.contains("SlowDown") || text.contains("status code: 429") || text.contains("Too Many Requests") {
        return ErrorKind::Throttled;
    }
    if text.contains("ExpiredToken") {
        return ErrorKind::Unavailable;
    }
    match text
        .split("status code: ")
        .nth(1)
        .and_then(|rest| rest.get(..3)?.parse::<u16>().ok())
    {
        Some(503) => ErrorKind::Throttled,
        Some(408 | 500..=599) => ErrorKind::Unavailable,
        Some(401 | 403) => ErrorKind::Denied,
        Some(404) => ErrorKind::NotFound,
        Some(400..=499) => ErrorKind::Rejected,
        _ if text.contains("without LOCATION") => ErrorKind::Config,
        _ => ErrorKind::Unavailable,
    }
}

fn find<'a, E: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a E> {
    let mut cause = Some(error);
    while let Some(here) = cause {
        if let Some(found) = here.downcast_ref::<E>() {
            return Some(found);
        }
        cause = here.source();
    }
    None
}

/// All causes in one line, each text once.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(here) = cause {
        let next = here.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = here.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> object_store::Error {
        object_store::Error::Generic {
            store: "S3",
            source: text.to_owned().into(),
        }
    }

    #[test]
    fn a_status_tells_whether_to_ask_again() {
        for (text, kind, retryable) in [
            (
                "Server returned non-2xx status code: 503 Service Unavailable: ",
                ErrorKind::Throttled,
                true,
            ),
            (
                "Server returned error response: <Code>SlowDown</Code>",
                ErrorKind::Throttled,
                true,
            ),
            (
                "Server returned non-2xx status code: 500 Internal Server Error: ",
                ErrorKind::Unavailable,
                true,
            ),
            (
                "Server returned non-2xx status code: 400 Bad Request: EntityTooLarge",
                ErrorKind::Rejected,
                false,
            ),
            (
                "error sending request: connection refused",
                ErrorKind::Unavailable,
                true,
            ),
            ("Received redirect without LOCATION", ErrorKind::Config, false),
        ] {
            let error = Place {
                action: "upload",
                key: "k",
                store: "s3://b",
            }
            .store(&generic(text));
            assert_eq!((error.kind, error.is_retryable()), (kind, retryable), "{text}");
        }
    }

    #[test]
    fn an_error_says_what_was_tried_on_what_and_what_to_do() {
        let denied = object_store::Error::PermissionDenied {
            path: "a".into(),
            source: "403".into(),
        };
        let text = Place {
            action: "promote",
            key: "staging/a",
            store: "s3://bucket",
        }
        .store(&denied)
        .to_string();
        for part in ["promote", "staging/a", "s3://bucket", "objects.secret_key"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
