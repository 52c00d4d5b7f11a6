//! Domain errors as gRPC status, with `google.rpc` details, by the field's conventions.

use std::time::Duration;

use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt as _};

/// What an error means to a caller. Each crate's error enum maps to it in one place.
#[derive(Debug, Clone, PartialEq)]
pub enum RpcError {
    /// The request itself is wrong; one entry per field: (path, what is wrong).
    InvalidArgument(String, Vec<(String, String)>),
    /// Right request, wrong moment; says what would have to hold.
    FailedPrecondition(String),
    /// There is something by that name already.
    AlreadyExists(String),
    /// No such thing.
    NotFound(String),
    /// Not now; the same call may succeed after the pause.
    Unavailable(String, Duration),
    /// No capacity left.
    ResourceExhausted(String),
    /// A fault of ours.
    Internal(String),
}

impl From<RpcError> for Status {
    fn from(error: RpcError) -> Status {
        match error {
            RpcError::InvalidArgument(message, fields) => {
                let violations: Vec<FieldViolation> = fields
                    .into_iter()
                    .map(|(path, what)| FieldViolation::new(path, what))
                    .collect();
                Status::with_error_details(
                    Code::InvalidArgument,
                    message,
                    ErrorDetails::with_bad_request(violations),
                )
            }
            RpcError::FailedPrecondition(message) => {
                let details =
                    ErrorDetails::with_precondition_failure_violation("STATE", "tidegate", message.clone());
                Status::with_error_details(Code::FailedPrecondition, message, details)
            }
            RpcError::AlreadyExists(message) => Status::already_exists(message),
            RpcError::NotFound(message) => Status::not_found(message),
            RpcError::Unavailable(message, pause) => Status::with_error_details(
                Code::Unavailable,
                message,
                ErrorDetails::with_retry_info(Some(pause)),
            ),
            RpcError::ResourceExhausted(message) => Status::resource_exhausted(message),
            RpcError::Internal(message) => Status::internal(message),
        }
    }
}

/// The field violations of an INVALID_ARGUMENT: (path, what is wrong).
pub fn field_violations(status: &Status) -> Vec<(String, String)> {
    status
        .get_details_bad_request()
        .map(|request| {
            request
                .field_violations
                .into_iter()
                .map(|field| (field.field, field.description))
                .collect()
        })
        .unwrap_or_default()
}

/// How long the server asks to wait before the next try, when it says so.
pub fn retry_after(status: &Status) -> Option<Duration> {
    status.get_details_retry_info().and_then(|info| info.retry_delay)
}

/// True when the same call may succeed later: the peer is away, busy, or the outcome is unknown.
pub fn is_retryable(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::DeadlineExceeded | Code::Aborted | Code::Cancelled | Code::Unknown
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_field_travels_with_its_path() {
        let status = Status::from(RpcError::InvalidArgument(
            "1 error".into(),
            vec![("spec.ioConfig.taskCount".into(), "must be at least 1".into())],
        ));
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(
            field_violations(&status),
            [(
                "spec.ioConfig.taskCount".to_owned(),
                "must be at least 1".to_owned()
            )]
        );
    }

    #[test]
    fn unavailable_says_when_to_come_back() {
        let status = Status::from(RpcError::Unavailable(
            "starting".into(),
            Duration::from_millis(250),
        ));
        assert_eq!(retry_after(&status), Some(Duration::from_millis(250)));
        assert!(is_retryable(&status));
    }
}
