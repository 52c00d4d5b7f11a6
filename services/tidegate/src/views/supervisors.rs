//! Supervisors, specs and their history.

use serde::Serialize;
use tidegate_rpc::coordinator::v1::{
    CheckpointResponse, GetResponse, HistoryResponse, ListResponse, SpecIssue, SubmitResponse,
    SupervisorSummary, ValidateResponse,
};

use crate::report::{Show, instant, table};
use crate::words;

/// One line of a list of supervisors.
#[derive(Debug, Serialize)]
pub(crate) struct SupervisorView {
    pub(crate) id: String,
    pub(crate) data_source: String,
    pub(crate) state: String,
    pub(crate) version: u32,
    pub(crate) topic: String,
}

impl From<SupervisorSummary> for SupervisorView {
    fn from(summary: SupervisorSummary) -> Self {
        Self {
            state: words::supervisor_state(summary.state),
            id: summary.supervisor_id,
            data_source: summary.data_source,
            version: summary.version,
            topic: summary.topic,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct SupervisorsView {
    supervisors: Vec<SupervisorView>,
}

impl From<ListResponse> for SupervisorsView {
    fn from(response: ListResponse) -> Self {
        Self {
            supervisors: response.supervisors.into_iter().map(Into::into).collect(),
        }
    }
}

impl Show for SupervisorsView {
    fn show(&self) -> String {
        let rows = self
            .supervisors
            .iter()
            .map(|one| {
                vec![
                    one.id.clone(),
                    one.data_source.clone(),
                    one.topic.clone(),
                    one.state.clone(),
                    one.version.to_string(),
                ]
            })
            .collect();
        table(
            &["supervisor", "data source", "topic", "state", "version"],
            rows,
            "no supervisors",
        )
    }
}

/// A thing to say about a spec.
#[derive(Debug, Serialize)]
pub(crate) struct IssueView {
    path: String,
    message: String,
    line: Option<u32>,
    column: Option<u32>,
}

impl From<SpecIssue> for IssueView {
    fn from(issue: SpecIssue) -> Self {
        let known = |number: u32| (number > 0).then_some(number);
        Self {
            path: issue.path,
            message: issue.message,
            line: known(issue.line),
            column: known(issue.column),
        }
    }
}

impl IssueView {
    fn line(&self) -> String {
        let place = match (self.line, self.column) {
            (Some(line), Some(column)) => format!(" (line {line}, column {column})"),
            (Some(line), None) => format!(" (line {line})"),
            (None, _) => String::new(),
        };
        let path = if self.path.is_empty() {
            "(document)"
        } else {
            &self.path
        };
        format!("  {path}: {}{place}\n", self.message)
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct IssuesView {
    pub(crate) valid: bool,
    errors: Vec<IssueView>,
    warnings: Vec<IssueView>,
}

impl From<ValidateResponse> for IssuesView {
    fn from(response: ValidateResponse) -> Self {
        Self {
            valid: response.errors.is_empty(),
            errors: response.errors.into_iter().map(Into::into).collect(),
            warnings: response.warnings.into_iter().map(Into::into).collect(),
        }
    }
}

impl Show for IssuesView {
    fn show(&self) -> String {
        let mut text = match self.errors.len() {
            0 => "the spec is valid\n".to_owned(),
            1 => "the spec has 1 error:\n".to_owned(),
            count => format!("the spec has {count} errors:\n"),
        };
        for issue in &self.errors {
            text.push_str(&issue.line());
        }
        text.push_str(&warnings(&self.warnings));
        text
    }
}

fn warnings(warnings: &[IssueView]) -> String {
    if warnings.is_empty() {
        return String::new();
    }
    let mut text = "warnings:\n".to_owned();
    for issue in warnings {
        text.push_str(&issue.line());
    }
    text
}

#[derive(Debug, Serialize)]
pub(crate) struct SubmittedView {
    id: String,
    version: u32,
    changed: bool,
    warnings: Vec<IssueView>,
}

impl From<SubmitResponse> for SubmittedView {
    fn from(response: SubmitResponse) -> Self {
        Self {
            id: response.supervisor_id,
            version: response.version,
            changed: response.changed,
            warnings: response.warnings.into_iter().map(Into::into).collect(),
        }
    }
}

impl Show for SubmittedView {
    fn show(&self) -> String {
        let what = if self.changed {
            format!(
                "supervisor {} runs with version {} of its spec\n",
                self.id, self.version
            )
        } else {
            format!(
                "supervisor {} has this spec already (version {})\n",
                self.id, self.version
            )
        };
        what + &warnings(&self.warnings)
    }
}

/// A stored spec. Printed as it is: JSON in both forms.
#[derive(Debug, Serialize)]
pub(crate) struct SpecView {
    id: String,
    version: u32,
    spec: serde_json::Value,
}

impl From<GetResponse> for SpecView {
    fn from(response: GetResponse) -> Self {
        let text = response.spec_json;
        Self {
            id: response.supervisor_id,
            version: response.version,
            spec: serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text)),
        }
    }
}

impl Show for SpecView {
    fn show(&self) -> String {
        format!("{:#}", self.spec)
    }
}

#[derive(Debug, Serialize)]
struct HistoryEntryView {
    at: String,
    what: String,
    version: u32,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<serde_json::Value>,
}

#[derive(Debug, Serialize)]
pub(crate) struct HistoryView {
    entries: Vec<HistoryEntryView>,
}

impl From<HistoryResponse> for HistoryView {
    fn from(response: HistoryResponse) -> Self {
        let entries = response
            .entries
            .into_iter()
            .map(|entry| HistoryEntryView {
                at: instant(entry.at_millis),
                what: entry.what,
                version: entry.version,
                detail: entry.detail,
                spec: serde_json::from_str(&entry.spec_json).ok(),
            })
            .collect();
        Self { entries }
    }
}

impl Show for HistoryView {
    fn show(&self) -> String {
        let rows = self
            .entries
            .iter()
            .map(|entry| {
                vec![
                    entry.at.clone(),
                    entry.what.clone(),
                    entry.version.to_string(),
                    entry.detail.clone(),
                ]
            })
            .collect();
        table(&["when", "what", "version", "detail"], rows, "no history")
    }
}

#[derive(Debug, Serialize)]
struct GroupCheckpointView {
    group: String,
    sequence: u32,
    closed: bool,
}

/// What a checkpoint came to.
#[derive(Debug, Serialize)]
pub(crate) struct CheckpointView {
    groups: Vec<GroupCheckpointView>,
}

impl From<CheckpointResponse> for CheckpointView {
    fn from(response: CheckpointResponse) -> Self {
        let one = |group: tidegate_rpc::coordinator::v1::GroupCheckpoint| GroupCheckpointView {
            group: group.group_id,
            sequence: group.sequence_id,
            closed: group.closed,
        };
        Self {
            groups: response.groups.into_iter().map(one).collect(),
        }
    }
}

impl Show for CheckpointView {
    fn show(&self) -> String {
        let row = |group: &GroupCheckpointView| {
            let what = if group.closed {
                "closed"
            } else {
                "nothing new, left open"
            };
            vec![group.group.clone(), group.sequence.to_string(), what.to_owned()]
        };
        table(
            &["GROUP", "SEQUENCE", "CHECKPOINT"],
            self.groups.iter().map(row).collect(),
            "no group reads in checkpointing mode",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issue(path: &str, line: u32) -> SpecIssue {
        SpecIssue {
            path: path.into(),
            message: "is wrong".into(),
            line,
            column: 7,
        }
    }

    #[test]
    fn errors_of_a_spec_are_shown_with_path_and_place() {
        let view = IssuesView::from(ValidateResponse {
            errors: vec![issue("spec.ioConfig.taskCount", 12), issue("", 0)],
            warnings: vec![issue("spec.tuningConfig.x", 3)],
        });
        assert_eq!(
            view.show(),
            "the spec has 2 errors:\n  spec.ioConfig.taskCount: is wrong (line 12, column 7)\n  (document): is \
             wrong\nwarnings:\n  spec.tuningConfig.x: is wrong (line 3, column 7)\n"
        );
        let json = serde_json::to_value(&view).unwrap();
        assert_eq!(json["valid"], false);
        assert_eq!(json["errors"][1]["line"], serde_json::Value::Null);
    }
}
