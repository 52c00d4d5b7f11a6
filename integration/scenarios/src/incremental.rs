//! The wiki edits in checkpointing mode: small sequences are closed, published and handed off while the tasks read on
//! and the last events have not even been produced.
//!
//! One hour of these data has about 800 rows per task group, so that a `maxRowsPerSegment` of 1,000 alone would close
//! only a few sequences: `maxTotalRows` is set too. A sequence is a little larger than the bound, since it ends where
//! the replica stands that has read most.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use tidegate_servers::unique_name;

use crate::cluster::{Cluster, wait};
use crate::events;
use crate::wikiticker::{self, Ingest};

/// Pieces that are produced only after segments of the first ones are handed off.
const HELD_BACK: usize = 6;
const LEAST_CHECKPOINTS: u32 = 30;

pub(crate) fn run() -> Result<Value> {
    let events = events::load()?;
    let mut cluster = Cluster::start(2)?;
    let name = unique_name("wiki-incremental");
    let what = Ingest {
        replicas: 2,
        rows_per_sequence: Some((1_000, 750)),
        // Nothing ends by itself: all is published by checkpoints, and the rest when it is suspended.
        task_duration: "PT1H",
        ..Ingest::plain(&name)
    };
    let (mut early, mut checkpoints) = (0, 0);
    let held = wikiticker::ingest(&mut cluster, what, &events, |cluster, piece| {
        if piece + 1 == HELD_BACK {
            early = wait(
                "segments to be handed off while reading",
                Duration::from_mins(2),
                || {
                    let status = cluster.status(&name)?;
                    Ok(Some(status.segments_handed_off).filter(|segments| *segments > 0))
                },
            )?;
        }
        if piece + 1 == 8 {
            cluster.wait_until_read(&name, events.records.len() as u64, Duration::from_mins(3))?;
            let status = cluster.status(&name)?;
            checkpoints = status.groups.iter().map(|group| group.open_sequence_id).sum();
        }
        Ok(())
    })?;
    let mut per_sequence: BTreeMap<(String, i64), u32> = BTreeMap::new();
    for info in cluster.segments(&name)? {
        let segment = info.segment.unwrap_or_default();
        let hour = segment
            .id
            .and_then(|id| id.interval)
            .map_or(0, |interval| interval.start_millis);
        *per_sequence.entry((segment.sequence_name, hour)).or_default() += 1;
    }
    let one_each = per_sequence.values().all(|segments| *segments == 1);
    cluster.stop()?;
    let ok = held.totals == events.totals && early > 0 && checkpoints > LEAST_CHECKPOINTS && one_each;
    Ok(json!({
        "scenario": "wikiticker-incremental", "events": events.source, "expected": events.totals, "held": held.totals,
        "checkpoints": checkpoints, "segments_handed_off_before_the_last_events": early,
        "one_segment_per_sequence_and_interval": one_each, "segments": per_sequence.len(), "ok": ok,
    }))
}
