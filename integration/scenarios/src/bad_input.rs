//! Records that are no rows, among good ones: each counted in its bucket with a sample kept; nothing stops.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use tidegate_servers::unique_name;

use crate::cluster::Cluster;
use crate::segments;

const GOOD: &str = r#"{"time":"2024-05-01T10:00:00Z","channel":"good","added":1}"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bucket {
    Accepted,
    Tombstone,
    Empty,
    Unparseable,
}

/// What is sent, and the bucket it must be counted in.
fn cases() -> Vec<(&'static str, Option<Vec<u8>>, Bucket)> {
    let text = |text: &str| Some(text.as_bytes().to_vec());
    let time = r#""time":"2024-05-01T10:00:00Z""#;
    vec![
        ("empty value", Some(Vec::new()), Bucket::Empty),
        ("tombstone", None, Bucket::Tombstone),
        ("null", text("null"), Bucket::Empty),
        ("empty list", text("[]"), Bucket::Empty),
        (
            "object cut in a string",
            text(r#"{"time":"2024-05-01T10:0"#),
            Bucket::Unparseable,
        ),
        (
            "object cut in a number",
            text(&format!(r#"{{{time},"added":1"#)),
            Bucket::Unparseable,
        ),
        (
            "invalid UTF-8",
            Some(b"{\"time\":\"2024-05-01T10:00:00Z\",\"channel\":\"\xff\xfe\"}".to_vec()),
            Bucket::Unparseable,
        ),
        ("two objects", text(&format!("{GOOD}{GOOD}")), Bucket::Unparseable),
        (
            "closing brace twice",
            text(&format!("{GOOD}}}")),
            Bucket::Unparseable,
        ),
        (
            "year 300000",
            text(r#"{"time":"300000-01-01T00:00:00Z","channel":"x"}"#),
            Bucket::Unparseable,
        ),
        ("no time", text(r#"{"channel":"x"}"#), Bucket::Unparseable),
        (
            "10,000 deep",
            text(&format!("{}{}", "[".repeat(10_000), "]".repeat(10_000))),
            Bucket::Unparseable,
        ),
        (
            "10,000 deep in a field",
            text(&format!(
                r#"{{{time},"channel":{}{}}}"#,
                "[".repeat(10_000),
                "]".repeat(10_000)
            )),
            Bucket::Unparseable,
        ),
        (
            "duplicate keys",
            text(&format!(r#"{{{time},"channel":"first","channel":"last"}}"#)),
            Bucket::Accepted,
        ),
        (
            "byte order mark",
            text(&format!("\u{feff}{{{time},\"channel\":\"marked\"}}")),
            Bucket::Accepted,
        ),
        (
            "1e400",
            text(&format!(r#"{{{time},"added":1e400}}"#)),
            Bucket::Unparseable,
        ),
        (
            "integer beyond 64 bits",
            text(&format!(r#"{{{time},"added":123456789012345678901234567890}}"#)),
            Bucket::Unparseable,
        ),
        (
            "2 MB string",
            text(&format!(r#"{{{time},"channel":"{}"}}"#, "é".repeat(1_000_000))),
            Bucket::Accepted,
        ),
    ]
}

pub(crate) fn run() -> Result<Value> {
    let name = &unique_name("bad-input");
    let cluster = Cluster::start(1)?;
    cluster.create_topic(name, 1)?;
    cluster.submit(&spec(name, cluster.bootstrap()))?;
    let cases = cases();
    let records: Vec<Option<&[u8]>> = cases
        .iter()
        .flat_map(|(_, value, _)| [value.as_deref(), Some(GOOD.as_bytes())])
        .collect();
    let produced = records.len() as u64;
    cluster.produce(name, records.into_iter())?;
    cluster.wait_until_read(name, produced, Duration::from_mins(1))?;
    let samples = cluster.status(name)?.parse_errors;
    cluster.suspend(name)?;
    cluster.wait_until_published(name, produced, Duration::from_mins(1))?;
    let counts = cluster.status(name)?.counts.unwrap_or_default();
    let held = segments::read(&cluster.segments(name)?, |key| cluster.object(key))?;
    cluster.stop()?;

    let in_bucket = |bucket| cases.iter().filter(|(_, _, wanted)| *wanted == bucket).count() as u64;
    let good = cases.len() as u64;
    let expected = json!({
        "accepted": good + in_bucket(Bucket::Accepted), "tombstones": in_bucket(Bucket::Tombstone),
        "empty": in_bucket(Bucket::Empty), "unparseable": in_bucket(Bucket::Unparseable), "added": good,
    });
    let found = json!({
        "accepted": counts.accepted, "tombstones": counts.tombstones, "empty": counts.empty,
        "unparseable": counts.unparseable, "added": held.totals.added,
    });
    // Records stand at even offsets, the good ones between them at odd ones.
    let sampled: Vec<i64> = samples.iter().map(|sample| sample.offset).collect();
    let unsampled: Vec<&str> = cases
        .iter()
        .enumerate()
        .filter(|(index, (_, _, bucket))| {
            *bucket == Bucket::Unparseable && !sampled.contains(&(*index as i64 * 2))
        })
        .map(|(_, (case, _, _))| *case)
        .collect();
    let ok = expected == found && unsampled.is_empty();
    Ok(
        json!({ "scenario": "bad-input", "expected": expected, "found": found, "without_sample": unsampled, "ok": ok }),
    )
}

fn spec(name: &str, bootstrap: &str) -> Value {
    json!({
        "type": "kafka",
        "spec": {
            "dataSchema": {
                "dataSource": name,
                "timestampSpec": { "column": "time", "format": "auto" },
                "dimensionsSpec": { "dimensions": ["channel"] },
                "metricsSpec": [{ "type": "count", "name": "count" }, { "type": "longSum", "name": "added", "fieldName": "added" }],
                "granularitySpec": { "segmentGranularity": "HOUR", "queryGranularity": "NONE", "rollup": false },
            },
            "ioConfig": {
                "topic": name, "inputFormat": { "type": "json" }, "useEarliestOffset": true, "taskDuration": "PT10M",
                "startDelay": "PT0S", "period": "PT1S",
                "consumerProperties": { "bootstrap.servers": bootstrap },
            },
            "tuningConfig": { "type": "kafka", "maxSavedParseExceptions": 100, "logParseExceptions": true },
        },
    })
}
