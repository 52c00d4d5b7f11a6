//! Enum values of the API as words. A value that this version does not know is shown as its number, never as
//! another state (B62).

use tidegate_rpc::coordinator::v1::SupervisorState;
use tidegate_rpc::task_runner::v1::{TaskPhase, TaskState};

pub(crate) fn supervisor_state(value: i32) -> String {
    match SupervisorState::try_from(value) {
        Ok(SupervisorState::Unspecified) => "unknown".into(),
        Ok(SupervisorState::Pending) => "pending".into(),
        Ok(SupervisorState::Running) => "running".into(),
        Ok(SupervisorState::Suspended) => "suspended".into(),
        Ok(SupervisorState::Stopping) => "stopping".into(),
        Ok(SupervisorState::Terminated) => "terminated".into(),
        Ok(SupervisorState::UnhealthySupervisor) => "unhealthy (supervisor)".into(),
        Ok(SupervisorState::UnhealthyTasks) => "unhealthy (tasks)".into(),
        Ok(SupervisorState::LostData) => "lost data".into(),
        Ok(SupervisorState::StreamChanged) => "stream changed".into(),
        Err(_) => unknown(value),
    }
}

pub(crate) fn task_state(value: i32) -> String {
    match TaskState::try_from(value) {
        Ok(TaskState::Unspecified) => "unknown".into(),
        Ok(TaskState::Starting) => "starting".into(),
        Ok(TaskState::Reading) => "reading".into(),
        Ok(TaskState::Paused) => "paused".into(),
        Ok(TaskState::Finishing) => "finishing".into(),
        Ok(TaskState::Stopping) => "stopping".into(),
        Ok(TaskState::Published) => "published".into(),
        Ok(TaskState::Superseded) => "superseded".into(),
        Ok(TaskState::Stopped) => "stopped".into(),
        Ok(TaskState::Replaced) => "replaced".into(),
        Ok(TaskState::Failed) => "failed".into(),
        Ok(TaskState::Preparing) => "preparing".into(),
        Ok(TaskState::Prepared) => "prepared".into(),
        Err(_) => unknown(value),
    }
}

pub(crate) fn task_phase(value: i32) -> String {
    match TaskPhase::try_from(value) {
        Ok(TaskPhase::Unspecified) => String::new(),
        Ok(TaskPhase::Reading) => "reading".into(),
        Ok(TaskPhase::Merging) => "merging".into(),
        Ok(TaskPhase::Uploading) => "uploading".into(),
        Ok(TaskPhase::Publishing) => "publishing".into(),
        Ok(TaskPhase::Handoff) => "handoff".into(),
        Err(_) => unknown(value),
    }
}

fn unknown(value: i32) -> String {
    format!("unknown ({value})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b62_a_value_of_a_newer_peer_is_shown_as_its_number() {
        assert_eq!(supervisor_state(99), "unknown (99)");
        assert_eq!(task_state(99), "unknown (99)");
        assert_eq!(task_phase(99), "unknown (99)");
    }
}
