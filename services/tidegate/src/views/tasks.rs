//! Tasks, runners, health.

use std::collections::BTreeMap;

use serde::Serialize;
use tidegate_rpc::coordinator::v1::{ListRunnersResponse, TaskInfo};
use tidegate_rpc::types::v1::PartitionOffsets;

use super::CountsView;
use crate::report::{Show, grouped, instant, table};
use crate::words;

/// One task.
#[derive(Debug, Serialize)]
pub(crate) struct TaskView {
    id: String,
    supervisor: String,
    group: String,
    state: String,
    phase: String,
    runner: String,
    created_at: String,
    remaining_seconds: u64,
    start: BTreeMap<i32, i64>,
    next: BTreeMap<i32, i64>,
    end: BTreeMap<i32, i64>,
    counts: CountsView,
    segments_published: usize,
    segments_handed_off: u32,
    reason: String,
    alert: String,
}

fn offsets(offsets: Option<PartitionOffsets>) -> BTreeMap<i32, i64> {
    offsets
        .unwrap_or_default()
        .offsets
        .into_iter()
        .map(|one| (one.partition, one.offset))
        .collect()
}

impl From<TaskInfo> for TaskView {
    fn from(info: TaskInfo) -> Self {
        let status = info.status.unwrap_or_default();
        Self {
            state: words::task_state(status.state),
            phase: words::task_phase(status.phase),
            id: status.task_id,
            supervisor: status.supervisor_id,
            group: status.group_id,
            runner: info.runner_id,
            created_at: instant(info.created_at_millis),
            remaining_seconds: info.remaining_seconds,
            start: offsets(status.start),
            next: offsets(status.next),
            end: offsets(status.end),
            counts: status.counts.into(),
            segments_published: status.published.len(),
            segments_handed_off: status.handed_off,
            reason: status.reason,
            alert: status.alert,
        }
    }
}

pub(crate) fn task_table(tasks: &[TaskView]) -> String {
    let rows = tasks
        .iter()
        .map(|task| {
            let state = if task.phase.is_empty() || task.phase == task.state {
                task.state.clone()
            } else {
                format!("{} ({})", task.state, task.phase)
            };
            let remark = [task.reason.as_str(), task.alert.as_str()].join(" ");
            vec![
                task.id.clone(),
                state,
                if task.runner.is_empty() {
                    "waits for a slot".into()
                } else {
                    task.runner.clone()
                },
                task.next
                    .iter()
                    .map(|(partition, offset)| format!("{partition}: {offset}"))
                    .collect::<Vec<_>>()
                    .join(", "),
                grouped(task.counts.records()),
                format!("{}/{}", task.segments_handed_off, task.segments_published),
                remark.trim().to_owned(),
            ]
        })
        .collect();
    table(
        &[
            "task",
            "state",
            "runner",
            "next offsets",
            "read",
            "handed off",
            "remark",
        ],
        rows,
        "no tasks",
    )
}

#[derive(Debug, Serialize)]
pub(crate) struct TasksView {
    tasks: Vec<TaskView>,
}

impl From<Vec<TaskInfo>> for TasksView {
    fn from(tasks: Vec<TaskInfo>) -> Self {
        Self {
            tasks: tasks.into_iter().map(Into::into).collect(),
        }
    }
}

impl Show for TasksView {
    fn show(&self) -> String {
        task_table(&self.tasks)
    }
}

#[derive(Debug, Serialize)]
struct RunnerView {
    id: String,
    address: String,
    slots: u32,
    used_slots: u32,
    last_heartbeat: String,
    available: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct RunnersView {
    runners: Vec<RunnerView>,
}

impl From<ListRunnersResponse> for RunnersView {
    fn from(response: ListRunnersResponse) -> Self {
        let runners = response
            .runners
            .into_iter()
            .map(|runner| RunnerView {
                id: runner.runner_id,
                address: runner.address,
                slots: runner.slots,
                used_slots: runner.used_slots,
                last_heartbeat: instant(runner.last_heartbeat_millis),
                available: runner.available,
            })
            .collect();
        Self { runners }
    }
}

impl Show for RunnersView {
    fn show(&self) -> String {
        let rows = self
            .runners
            .iter()
            .map(|runner| {
                vec![
                    runner.id.clone(),
                    runner.address.clone(),
                    format!("{}/{}", runner.used_slots, runner.slots),
                    runner.last_heartbeat.clone(),
                    if runner.available {
                        "yes".into()
                    } else {
                        "no".into()
                    },
                ]
            })
            .collect();
        table(
            &["runner", "address", "slots used", "last heartbeat", "available"],
            rows,
            "no runners",
        )
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct HealthView {
    pub(crate) address: String,
    pub(crate) serving: bool,
}

impl Show for HealthView {
    fn show(&self) -> String {
        let state = if self.serving { "serving" } else { "not serving" };
        format!("{}: {state}", self.address)
    }
}
