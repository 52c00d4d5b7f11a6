//! The wiki edits again, while each service is killed with SIGKILL in turn, twice, and started again.

use anyhow::Result;
use serde_json::{Value, json};

use tidegate_servers::unique_name;

use crate::cluster::{Cluster, Service};
use crate::wikiticker::Ingest;
use crate::{events, wikiticker};

const ORDER: [Service; 4] = [
    Service::TaskRunner,
    Service::Publisher,
    Service::Coordinator,
    Service::HandoffChecker,
];

pub(crate) fn run() -> Result<Value> {
    let events = events::load()?;
    let mut cluster = Cluster::start(1)?;
    let mut kills = Vec::new();
    let name = unique_name("wiki-kill9");
    let held = wikiticker::ingest(&mut cluster, Ingest::plain(&name), &events, |cluster, piece| {
        let service = ORDER[piece % ORDER.len()];
        cluster.wait_until_progress(&name, piece)?;
        cluster.kill9_and_restart(service)?;
        kills.push(service.name());
        Ok(())
    })?;
    cluster.stop()?;
    let ok = held.totals == events.totals && kills.len() == 8;
    Ok(json!({
        "scenario": "wikiticker-kill9", "events": events.source, "expected": events.totals, "held": held.totals,
        "killed": kills, "ok": ok,
    }))
}
