//! The wiki edits with two replicas on two task-runners, one of which is killed for good: both replicas read and
//! publish, one of each pair wins, and nothing is doubled or lost when one runner never comes back.

use anyhow::Result;
use serde_json::{Value, json};
use tidegate_servers::unique_name;

use crate::cluster::{Cluster, Service};
use crate::events;
use crate::wikiticker::{self, Ingest};

pub(crate) fn run() -> Result<Value> {
    let events = events::load()?;
    let mut cluster = Cluster::start(2)?;
    let name = unique_name("wiki-replicas");
    let what = Ingest {
        replicas: 2,
        ..Ingest::plain(&name)
    };
    let mut on_both = false;
    let held = wikiticker::ingest(&mut cluster, what, &events, |cluster, piece| {
        cluster.wait_until_progress(&name, piece)?;
        if piece == 3 {
            // Each group's replicas are on different runners.
            on_both = cluster.replicas_are_apart(&name)?;
            cluster.kill9_for_good(Service::TaskRunner, 2)?;
        }
        Ok(())
    })?;
    cluster.stop()?;
    let ok = held.totals == events.totals && on_both;
    Ok(json!({
        "scenario": "wikiticker-replicas", "events": events.source, "expected": events.totals, "held": held.totals,
        "replicas_on_both_runners": on_both, "ok": ok,
    }))
}
