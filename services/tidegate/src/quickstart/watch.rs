//! Watching the supervisor through its status: until everything is read, then until everything is handed off.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use tidegate_rpc::coordinator::v1::{self as api, StatusResponse, SupervisorState};
use tidegate_types::{Offset, PartitionId, PartitionOffsets};

use super::PATIENCE;
use super::display::Display;
use super::produce::Producing;
use crate::client::Coordinator;
use crate::failure::Failure;
use crate::generator::Totals;
use crate::words;

/// Between two looks at the status.
const INTERVAL: Duration = Duration::from_millis(200);

/// Waits until every produced record is read; answers what was produced.
pub(super) async fn until_read(
    to: &mut Coordinator,
    supervisor: &str,
    producing: Producing,
    display: &mut Display,
) -> Result<Totals, Failure> {
    let Producing { read, mut done } = producing;
    let mut made: Option<Totals> = None;
    let mut progress = Progress::new();
    loop {
        let status = status(to, supervisor).await?;
        healthy(&status)?;
        let current = current(&status);
        {
            // Offsets only grow: a task that is being replaced tells none for a moment.
            let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
            *read = PartitionOffsets::max(&read, &current);
        }
        display.update(&status);
        if let Some(made) = &made
            && current.reaches(&ends(made))
        {
            return Ok(made.clone());
        }
        progress.check(&status, read_records(&status))?;
        if made.is_some() {
            tokio::time::sleep(INTERVAL).await;
        } else {
            tokio::select! {
                ended = &mut done => {
                    let ended = ended.map_err(|error| Failure::Other(format!("producing: {error}")))?;
                    made = Some(ended?);
                }
                () = tokio::time::sleep(INTERVAL) => {}
            }
        }
    }
}

/// Waits until the suspended supervisor has published everything and the serving tier has it.
pub(super) async fn until_handed_off(
    to: &mut Coordinator,
    supervisor: &str,
    made: &Totals,
    display: &mut Display,
) -> Result<StatusResponse, Failure> {
    let mut progress = Progress::new();
    loop {
        let status = status(to, supervisor).await?;
        healthy(&status)?;
        display.update(&status);
        let published = committed(&status).reaches(&ends(made));
        let idle = status.reading.is_empty() && status.publishing.is_empty();
        if published && idle && status.segments == status.segments_handed_off {
            return Ok(status);
        }
        progress.check(&status, status.segments + status.segments_handed_off)?;
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn status(to: &mut Coordinator, supervisor: &str) -> Result<StatusResponse, Failure> {
    let request = api::StatusRequest {
        supervisor_id: supervisor.to_owned(),
    };
    Ok(to
        .api
        .status(request)
        .await
        .map_err(Failure::rpc(&to.server))?
        .into_inner())
}

fn ends(made: &Totals) -> PartitionOffsets {
    made.records_per_partition
        .iter()
        .map(|(partition, records)| (*partition, Offset(*records as i64)))
        .collect()
}

fn current(status: &StatusResponse) -> PartitionOffsets {
    offsets(status, |partition| partition.current.or(partition.committed))
}

fn committed(status: &StatusResponse) -> PartitionOffsets {
    offsets(status, |partition| partition.committed)
}

fn offsets(status: &StatusResponse, of: impl Fn(&api::PartitionStatus) -> Option<i64>) -> PartitionOffsets {
    status
        .partitions
        .iter()
        .filter_map(|partition| Some((PartitionId(partition.partition), Offset(of(partition)?))))
        .collect()
}

fn read_records(status: &StatusResponse) -> u64 {
    crate::views::CountsView::from(status.counts).records()
}

/// States from which a run does not come back.
fn healthy(status: &StatusResponse) -> Result<(), Failure> {
    let state = status.supervisor.as_ref().map_or(0, |summary| summary.state);
    let lost = [
        SupervisorState::LostData,
        SupervisorState::StreamChanged,
        SupervisorState::Terminated,
    ];
    if lost.iter().any(|one| *one as i32 == state) {
        return Err(given_up(
            &format!("the supervisor is in state {}", words::supervisor_state(state)),
            status,
        ));
    }
    Ok(())
}

fn given_up(what: &str, status: &StatusResponse) -> Failure {
    let detail = match (status.recent_errors.last(), status.state_detail.as_str()) {
        (Some(error), _) => format!("; last error: {}", error.message),
        (None, "") => String::new(),
        (None, detail) => format!("; {detail}"),
    };
    Failure::Other(format!("{what}{detail}"))
}

/// Gives up when a number has not moved for too long.
struct Progress {
    number: u64,
    since: Instant,
}

impl Progress {
    fn new() -> Self {
        Self {
            number: 0,
            since: Instant::now(),
        }
    }
    fn check(&mut self, status: &StatusResponse, number: u64) -> Result<(), Failure> {
        if number != self.number {
            *self = Self {
                number,
                since: Instant::now(),
            };
        }
        if self.since.elapsed() < PATIENCE {
            return Ok(());
        }
        Err(given_up(&format!("nothing has moved for {PATIENCE:?}"), status))
    }
}
