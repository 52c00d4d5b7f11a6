//! How a failure is told: one line that says what failed, then one line per field at fault.

use serde_json::{Value, json};
use tonic::Status;

use crate::cli::Output;

/// Why a command ended with an error.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The server refused, or could not be reached.
    #[error("{}", .status.message())]
    Rpc { server: String, status: Box<Status> },
    /// Anything else; already a sentence for a person.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    pub(crate) fn rpc(server: &str) -> impl FnOnce(Status) -> Failure {
        let server = server.to_owned();
        move |status| Failure::Rpc {
            server,
            status: Box::new(status),
        }
    }

    /// The lines for standard error.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Other(message) => vec![format!("error: {message}")],
            Self::Rpc { server, status } => {
                let mut lines = vec![format!("error: {}", headline(server, status))];
                for (path, what) in tidegate_rpc::status::field_violations(status) {
                    let path = if path.is_empty() {
                        "(document)".to_owned()
                    } else {
                        path
                    };
                    lines.push(format!("  {path}: {what}"));
                }
                if let Some(pause) = tidegate_rpc::status::retry_after(status) {
                    lines.push(format!("  try again in {pause:?}"));
                }
                lines
            }
        }
    }

    /// The same for programs.
    pub fn json(&self) -> Value {
        match self {
            Self::Other(message) => json!({"error": {"message": message}}),
            Self::Rpc { server, status } => {
                let fields: Vec<Value> = tidegate_rpc::status::field_violations(status)
                    .into_iter()
                    .map(|(path, message)| json!({"path": path, "message": message}))
                    .collect();
                json!({"error": {
                    "code": code_name(status.code()),
                    "message": status.message(),
                    "server": server,
                    "fields": fields,
                }})
            }
        }
    }

    /// Prints it where errors go.
    pub fn print(&self, output: Output) {
        match output {
            Output::Table => {
                for line in self.lines() {
                    eprintln!("{line}");
                }
            }
            Output::Json => eprintln!("{}", self.json()),
        }
    }
}

fn headline(server: &str, status: &Status) -> String {
    // A channel that cannot connect has no message of the server's; say what a person can do.
    let unreachable =
        status.code() == tonic::Code::Unavailable && tidegate_rpc::status::retry_after(status).is_none();
    if unreachable {
        return format!(
            "no answer from {server} ({}); is the coordinator running there? Set --server or TIDEGATE_SERVER",
            if status.message().is_empty() {
                "cannot connect"
            } else {
                status.message()
            }
        );
    }
    let code = code_name(status.code());
    if status.message().is_empty() {
        code.to_owned()
    } else {
        format!("{} ({code})", status.message())
    }
}

/// The wire names, which people find in documentation.
fn code_name(code: tonic::Code) -> &'static str {
    match code {
        tonic::Code::Ok => "OK",
        tonic::Code::Cancelled => "CANCELLED",
        tonic::Code::Unknown => "UNKNOWN",
        tonic::Code::InvalidArgument => "INVALID_ARGUMENT",
        tonic::Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        tonic::Code::NotFound => "NOT_FOUND",
        tonic::Code::AlreadyExists => "ALREADY_EXISTS",
        tonic::Code::PermissionDenied => "PERMISSION_DENIED",
        tonic::Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        tonic::Code::FailedPrecondition => "FAILED_PRECONDITION",
        tonic::Code::Aborted => "ABORTED",
        tonic::Code::OutOfRange => "OUT_OF_RANGE",
        tonic::Code::Unimplemented => "UNIMPLEMENTED",
        tonic::Code::Internal => "INTERNAL",
        tonic::Code::Unavailable => "UNAVAILABLE",
        tonic::Code::DataLoss => "DATA_LOSS",
        tonic::Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

#[cfg(test)]
mod tests {
    use tidegate_rpc::status::RpcError;

    use super::*;

    fn failure(error: RpcError) -> Failure {
        Failure::rpc("http://h:1")(Status::from(error))
    }

    #[test]
    fn a_refused_spec_is_told_field_by_field() {
        let failure = failure(RpcError::InvalidArgument(
            "the spec has 2 errors".into(),
            vec![
                ("spec.ioConfig.taskCount".into(), "must be at least 1".into()),
                (String::new(), "no JSON".into()),
            ],
        ));
        assert_eq!(
            failure.lines(),
            [
                "error: the spec has 2 errors (INVALID_ARGUMENT)",
                "  spec.ioConfig.taskCount: must be at least 1",
                "  (document): no JSON"
            ]
        );
        assert_eq!(
            failure.json()["error"]["fields"][0]["path"],
            "spec.ioConfig.taskCount"
        );
    }

    #[test]
    fn a_server_that_is_away_is_named_with_what_to_do() {
        let lines = Failure::rpc("http://h:1")(Status::unavailable("tcp connect error")).lines();
        assert!(
            lines[0].contains("http://h:1") && lines[0].contains("--server"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_server_that_is_starting_says_when_to_come_back() {
        let failure = failure(RpcError::Unavailable(
            "starting".into(),
            std::time::Duration::from_secs(2),
        ));
        assert_eq!(
            failure.lines(),
            ["error: starting (UNAVAILABLE)", "  try again in 2s"]
        );
    }
}
