//! The status of one supervisor: what an operator looks at first.

use serde::Serialize;
use tidegate_rpc::coordinator::v1::{PartitionStatus, StatusResponse};
use tidegate_rpc::types::v1::ParseError;

use super::CountsView;
use super::groups::{GroupView, NextGroupView, group_table, next_group_line};
use super::supervisors::SupervisorView;
use super::tasks::{TaskView, task_table};
use crate::report::{Show, grouped, instant, known, table};

#[derive(Debug, Serialize)]
struct PartitionView {
    partition: i32,
    current: Option<i64>,
    committed: Option<i64>,
    latest: Option<i64>,
    lag: Option<u64>,
}

impl From<PartitionStatus> for PartitionView {
    fn from(status: PartitionStatus) -> Self {
        Self {
            partition: status.partition,
            current: status.current,
            committed: status.committed,
            latest: status.latest,
            lag: status.lag,
        }
    }
}

#[derive(Debug, Serialize)]
struct ErrorView {
    at: String,
    message: String,
}

#[derive(Debug, Serialize)]
struct ParseErrorView {
    topic: String,
    partition: i32,
    offset: i64,
    field: String,
    reason: String,
    sample: String,
}

impl From<ParseError> for ParseErrorView {
    fn from(error: ParseError) -> Self {
        Self {
            topic: error.topic,
            partition: error.partition,
            offset: error.offset,
            field: error.field,
            reason: error.reason,
            sample: error.sample,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct StatusView {
    supervisor: SupervisorView,
    state_detail: String,
    partitions: Vec<PartitionView>,
    /// Sum of the known lags; absent while none is known.
    total_lag: Option<u64>,
    latest_taken_at: String,
    generation: u64,
    counts: CountsView,
    segments: u64,
    segments_handed_off: u64,
    segment_bytes: u64,
    segment_rows: u64,
    groups: Vec<GroupView>,
    next_groups: Vec<NextGroupView>,
    reading: Vec<TaskView>,
    publishing: Vec<TaskView>,
    recent_errors: Vec<ErrorView>,
    parse_errors: Vec<ParseErrorView>,
}

impl From<StatusResponse> for StatusView {
    fn from(response: StatusResponse) -> Self {
        let is_known = response
            .partitions
            .iter()
            .any(|partition| partition.lag.is_some());
        Self {
            supervisor: response.supervisor.unwrap_or_default().into(),
            state_detail: response.state_detail,
            partitions: response.partitions.into_iter().map(Into::into).collect(),
            total_lag: is_known.then_some(response.total_lag),
            latest_taken_at: instant(response.latest_taken_at_millis),
            generation: response.generation,
            counts: response.counts.into(),
            segments: response.segments,
            segments_handed_off: response.segments_handed_off,
            segment_bytes: response.segment_bytes,
            segment_rows: response.segment_rows,
            groups: response.groups.into_iter().map(Into::into).collect(),
            next_groups: response.next_groups.into_iter().map(Into::into).collect(),
            reading: response.reading.into_iter().map(Into::into).collect(),
            publishing: response.publishing.into_iter().map(Into::into).collect(),
            recent_errors: response
                .recent_errors
                .into_iter()
                .map(|error| ErrorView {
                    at: instant(error.at_millis),
                    message: error.message,
                })
                .collect(),
            parse_errors: response.parse_errors.into_iter().map(Into::into).collect(),
        }
    }
}

impl Show for StatusView {
    fn show(&self) -> String {
        let mut parts = vec![self.headline()];
        let rows = self
            .partitions
            .iter()
            .map(|one| {
                vec![
                    one.partition.to_string(),
                    known(one.committed),
                    known(one.current),
                    known(one.latest),
                    known(one.lag),
                ]
            })
            .collect();
        parts.push(table(
            &["partition", "committed", "current", "latest", "lag"],
            rows,
            "no partitions known yet",
        ));
        if !self.groups.is_empty() {
            parts.push(group_table(&self.groups));
        }
        parts.extend(self.next_groups.iter().map(next_group_line));
        if !self.reading.is_empty() {
            parts.push(format!("reading:\n{}", task_table(&self.reading)));
        }
        if !self.publishing.is_empty() {
            parts.push(format!("publishing:\n{}", task_table(&self.publishing)));
        }
        for error in &self.recent_errors {
            parts.push(format!("{} {}", error.at, error.message));
        }
        for error in &self.parse_errors {
            let field = if error.field.is_empty() {
                String::new()
            } else {
                format!(" field {}", error.field)
            };
            parts.push(format!(
                "not parsed: {} partition {} offset {}{field}: {}: {}",
                error.topic, error.partition, error.offset, error.reason, error.sample
            ));
        }
        parts.join("\n")
    }
}

impl StatusView {
    fn headline(&self) -> String {
        let SupervisorView {
            id,
            data_source,
            state,
            version,
            topic,
        } = &self.supervisor;
        let detail = if self.state_detail.is_empty() {
            String::new()
        } else {
            format!(": {}", self.state_detail)
        };
        let counts = &self.counts;
        let lag = match self.total_lag {
            Some(lag) => format!("{} (as of {})", grouped(lag), self.latest_taken_at),
            None => "unknown".to_owned(),
        };
        format!(
            "{id}: {state}{detail}\ntopic {topic} into data source {data_source}, spec version {version}, generation \
             {}\nlag {lag}; read {}, accepted {}, rejected {}, unparseable {}, tombstones {}\nsegments {} ({} handed \
             off), {} rows, {} bytes",
            self.generation,
            grouped(counts.records()),
            grouped(counts.accepted),
            grouped(counts.rejected),
            grouped(counts.unparseable),
            grouped(counts.tombstones),
            grouped(self.segments),
            grouped(self.segments_handed_off),
            grouped(self.segment_rows),
            grouped(self.segment_bytes),
        )
    }
}

#[cfg(test)]
mod tests {
    use tidegate_rpc::types::v1::RowCounts;

    use super::*;

    #[test]
    fn b64_unknown_offsets_are_shown_as_unknown_and_b09_large_ones_exactly() {
        let view = StatusView::from(StatusResponse {
            partitions: vec![PartitionStatus {
                partition: 3,
                committed: Some(9_007_199_254_740_993),
                ..PartitionStatus::default()
            }],
            counts: Some(RowCounts {
                accepted: 1000,
                unparseable: 2,
                tombstones: 3,
                ..RowCounts::default()
            }),
            ..StatusResponse::default()
        });
        let shown = view.show();
        assert!(
            shown.contains("9007199254740993")
                && shown.contains('?')
                && shown.contains("lag unknown; read 1,005"),
            "{shown}"
        );
        let json = serde_json::to_string(&view).unwrap();
        assert!(
            json.contains("\"committed\":9007199254740993,\"latest\":null"),
            "{json}"
        );
    }
}
