//! Real wiki edits through four processes: exact totals, plain and rolled up.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use tidegate_servers::unique_name;

use crate::cluster::Cluster;
use crate::events::{self, Events};
use crate::segments::{self, Held};

/// Both runs of one cluster: rows as they are, and rolled up to (hour, channel).
pub(crate) fn run() -> Result<Value> {
    let events = events::load()?;
    let mut cluster = Cluster::start(1)?;
    let (wiki, rollup) = (unique_name("wiki"), unique_name("wiki-rollup"));
    let plain = ingest(&mut cluster, Ingest::plain(&wiki), &events, |_, _| Ok(()))?;
    let rolled = ingest(&mut cluster, Ingest::rolled_up(&rollup), &events, |_, _| Ok(()))?;
    cluster.stop()?;
    let ok = plain.totals == events.totals && matches_rolled_up(&rolled, &events);
    Ok(json!({
        "scenario": "wikiticker", "events": events.source, "expected": events.totals, "plain": plain.totals,
        "rollup": { "rows": rolled.totals.rows, "counted": rolled.counted, "added": rolled.totals.added,
                    "deleted": rolled.totals.deleted, "delta": rolled.totals.delta, "intervals": rolled.totals.intervals,
                    "cells": rolled.cells.len(), "expected_cells": events.hours_by_channel },
        "ok": ok,
    }))
}

/// Roll-up keeps the sums and the number of input rows. In legacy mode each Kafka partition has its own segments,
/// so a cell stands at most once per partition and task group; the set of cells is exact.
pub(crate) fn matches_rolled_up(rolled: &Held, events: &Events) -> bool {
    rolled.counted == events.totals.rows as i64
        && rolled.totals.added == events.totals.added
        && rolled.totals.deleted == events.totals.deleted
        && rolled.totals.delta == events.totals.delta
        && rolled.totals.intervals == events.totals.intervals
        && rolled.cells.len() == events.hours_by_channel
        && rolled.totals.rows < events.totals.rows
}

/// What is ingested, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ingest<'a> {
    /// Of supervisor, topic and data source.
    pub(crate) name: &'a str,
    pub(crate) rollup: bool,
    pub(crate) replicas: u32,
    /// Rows of a segment, and of a sequence, that close it; `None` = the defaults, which these data never reach.
    pub(crate) rows_per_sequence: Option<(u64, u64)>,
    pub(crate) task_duration: &'a str,
}

impl<'a> Ingest<'a> {
    pub(crate) fn plain(name: &'a str) -> Self {
        Self {
            name,
            rollup: false,
            replicas: 1,
            rows_per_sequence: None,
            task_duration: "PT10S",
        }
    }
    pub(crate) fn rolled_up(name: &'a str) -> Self {
        Self {
            rollup: true,
            ..Self::plain(name)
        }
    }
}

/// Produces the events in pieces to a topic of 4 partitions, ingests them, and reads the segments back.
/// `between` is called after each piece with its number: the place for trouble.
pub(crate) fn ingest(
    cluster: &mut Cluster,
    what: Ingest<'_>,
    events: &Events,
    mut between: impl FnMut(&mut Cluster, usize) -> Result<()>,
) -> Result<Held> {
    const PIECES: usize = 8;
    let name = what.name;
    cluster.create_topic(name, 4)?;
    let pieces: Vec<&[String]> = events
        .records
        .chunks(events.records.len().div_ceil(PIECES))
        .collect();
    cluster.submit(&spec(what, cluster.bootstrap()))?;
    for (number, piece) in pieces.iter().enumerate() {
        cluster.produce(name, piece.iter().map(|record| Some(record.as_bytes())))?;
        between(cluster, number)?;
    }
    let produced = events.records.len() as u64;
    cluster.wait_until_read(name, produced, Duration::from_mins(3))?;
    cluster.suspend(name)?;
    cluster.wait_until_published(name, produced, Duration::from_mins(3))?;
    let segments = cluster.segments(name)?;
    ensure!(!segments.is_empty(), "{name}: nothing is published");
    cluster.prove(name)?;
    segments::read(&segments, |key| cluster.object(key))
}

fn spec(what: Ingest<'_>, bootstrap: &str) -> Value {
    let Ingest {
        name,
        rollup,
        replicas,
        rows_per_sequence,
        task_duration,
    } = what;
    let mut tuning = json!({ "type": "kafka", "maxRowsInMemory": 5000, "intermediatePersistPeriod": "PT2S" });
    if let Some((in_segment, in_all)) = rows_per_sequence {
        tuning["maxRowsPerSegment"] = json!(in_segment);
        tuning["maxTotalRows"] = json!(in_all);
    }
    let dimensions = if rollup {
        json!(["channel"])
    } else {
        json!([
            "channel",
            "cityName",
            "comment",
            "countryIsoCode",
            "countryName",
            "isAnonymous",
            "isMinor",
            "isNew",
            "isRobot",
            "isUnpatrolled",
            "metroCode",
            "namespace",
            "page",
            "regionIsoCode",
            "regionName",
            "user"
        ])
    };
    json!({
        "type": "kafka",
        "spec": {
            "dataSchema": {
                "dataSource": name,
                "timestampSpec": { "column": "time", "format": "iso" },
                "dimensionsSpec": { "dimensions": dimensions },
                "metricsSpec": [
                    { "type": "count", "name": "count" },
                    { "type": "longSum", "name": "added", "fieldName": "added" },
                    { "type": "longSum", "name": "deleted", "fieldName": "deleted" },
                    { "type": "longSum", "name": "delta", "fieldName": "delta" },
                ],
                "granularitySpec": {
                    "segmentGranularity": "HOUR", "queryGranularity": if rollup { "HOUR" } else { "NONE" }, "rollup": rollup,
                },
            },
            "ioConfig": {
                "topic": name, "inputFormat": { "type": "json" }, "useEarliestOffset": true,
                "taskCount": 2, "replicas": replicas, "taskDuration": task_duration, "startDelay": "PT0S", "period": "PT1S",
                "consumerProperties": { "bootstrap.servers": bootstrap },
            },
            "tuningConfig": tuning,
        },
    })
}
