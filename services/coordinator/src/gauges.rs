//! Numbers that an operator looks at first.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tidegate_protocol::group::TaskState;
use tidegate_protocol::supervisor::{State, TaskPlace};
use tidegate_protocol::task::Ending;
use tidegate_telemetry::{Metrics, families};
use tidegate_types::TaskId;
use tokio_util::sync::CancellationToken;

use crate::actor::{View, now};
use crate::directory::Directory;

const INTERVAL: Duration = Duration::from_secs(2);

/// Sets the gauges until it is told to stop.
pub(crate) async fn run(directory: Arc<Directory>, metrics: Metrics, stop: CancellationToken) {
    let mut ended = BTreeSet::new();
    let mut first = true;
    loop {
        measure(&directory, &metrics, &mut ended, first);
        first = false;
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
    forget(&directory, &metrics);
}

/// What another coordinator measures from now on.
fn forget(directory: &Directory, metrics: &Metrics) {
    for state in STATES {
        metrics.forget(&families::SUPERVISORS, [state_name(state)]);
    }
    for (id, handle) in directory.all() {
        let view = handle.view();
        let topic = topic(&view);
        for partition in &view.snapshot.partitions {
            let number = partition.partition.to_string();
            metrics.forget(&families::LAG, [id.as_str(), topic, &number]);
            metrics.forget(&families::COMMITTED_LAG, [id.as_str(), topic, &number]);
        }
        for phase in PHASES {
            metrics.forget(&families::TASKS, [id.as_str(), phase]);
        }
    }
    for state in ["available", "away"] {
        metrics.forget(&families::RUNNERS, [state]);
    }
    for state in ["used", "free"] {
        metrics.forget(&families::SLOTS, [state]);
    }
}

fn topic(view: &View) -> &str {
    let settings = view.settings.as_ref();
    settings
        .map(|settings| settings.topic.as_str())
        .unwrap_or_default()
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Pending => "pending",
        State::Running => "running",
        State::Suspended => "suspended",
        State::Stopping => "stopping",
        State::Terminated => "terminated",
        State::UnhealthySupervisor => "unhealthy_supervisor",
        State::UnhealthyTasks => "unhealthy_tasks",
        State::LostData => "lost_data",
        State::StreamChanged => "stream_changed",
    }
}

const STATES: [State; 9] = [
    State::Pending,
    State::Running,
    State::Suspended,
    State::Stopping,
    State::Terminated,
    State::UnhealthySupervisor,
    State::UnhealthyTasks,
    State::LostData,
    State::StreamChanged,
];

const PHASES: [&str; 5] = ["waiting", "starting", "reading", "paused", "publishing"];

/// Offsets and counts are below 2^53 for all practical ends; a gauge is a float anyway.
#[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
fn float(number: u64) -> f64 {
    number as f64
}

fn measure(directory: &Directory, metrics: &Metrics, ended: &mut BTreeSet<TaskId>, first: bool) {
    let mut states: BTreeMap<&str, u64> = STATES.iter().map(|state| (state_name(*state), 0)).collect();
    let mut seen = BTreeSet::new();
    for (id, handle) in directory.all() {
        let view = handle.view();
        *states.entry(state_name(view.snapshot.state)).or_default() += 1;
        measure_one(metrics, id.as_str(), &view);
        for task in view
            .snapshot
            .tasks
            .iter()
            .filter(|task| task.place == TaskPlace::Ended)
        {
            let Some(end) = &task.document.end else {
                continue;
            };
            let outcome = match end.how {
                Ending::Published => "published",
                Ending::Superseded => "superseded",
                Ending::Stopped => "stopped",
                Ending::Replaced => "replaced",
                Ending::Failed => "failed",
            };
            // What had ended before this process began was counted by the one before it.
            if !first && !ended.contains(&task.document.id) {
                metrics.count(&families::TASKS_ENDED, [id.as_str(), outcome], 1);
            }
            seen.insert(task.document.id.clone());
        }
    }
    *ended = seen;
    for (state, number) in states {
        metrics.set(&families::SUPERVISORS, [state], float(number));
    }
    measure_runners(directory, metrics);
}

fn measure_one(metrics: &Metrics, id: &str, view: &View) {
    let topic = topic(view);
    for partition in &view.snapshot.partitions {
        let number = partition.partition.to_string();
        if let Some(lag) = partition.lag {
            metrics.set(&families::LAG, [id, topic, &number], float(lag));
        }
        if let (Some(latest), Some(committed)) = (partition.latest, partition.committed) {
            let lag = u64::try_from(latest.0.saturating_sub(committed.0)).unwrap_or(0);
            metrics.set(&families::COMMITTED_LAG, [id, topic, &number], float(lag));
        }
    }
    let mut phases: BTreeMap<&str, u64> = PHASES.map(|name| (name, 0)).into();
    for task in &view.snapshot.tasks {
        let phase = match (task.place, task.state) {
            (TaskPlace::Ended, _) => continue,
            (TaskPlace::Publishing, _) => "publishing",
            (TaskPlace::Reading, None) => "waiting",
            (TaskPlace::Reading, Some(TaskState::Starting)) => "starting",
            (TaskPlace::Reading, Some(TaskState::Paused)) => "paused",
            (TaskPlace::Reading, Some(_)) => "reading",
        };
        *phases.entry(phase).or_default() += 1;
    }
    for (phase, number) in phases {
        metrics.set(&families::TASKS, [id, phase], float(number));
    }
}

fn measure_runners(directory: &Directory, metrics: &Metrics) {
    let (mut live, mut away, mut used, mut slots) = (0, 0, 0, 0);
    for (runner, available) in directory.world.registry.all(now()) {
        if available {
            live += 1;
            used += u64::from(runner.used);
            slots += u64::from(runner.slots);
        } else {
            away += 1;
        }
    }
    metrics.set(&families::RUNNERS, ["available"], float(live));
    metrics.set(&families::RUNNERS, ["away"], float(away));
    metrics.set(&families::SLOTS, ["used"], float(used));
    metrics.set(&families::SLOTS, ["free"], float(slots.saturating_sub(used)));
}
