//! The ingestion spec of the quickstart, as a person would write it.

use serde_json::{Value, json};

use super::Names;

pub(super) fn supervisor_spec(names: &Names, servers: &str) -> Value {
    json!({
        "type": "kafka",
        "id": names.supervisor,
        "spec": {
            "dataSchema": {
                "dataSource": names.data_source,
                "timestampSpec": {"column": "time", "format": "iso"},
                "dimensionsSpec": {"dimensions": [
                    "channel", "namespace", "page", "user", "comment", "isAnonymous", "isRobot", "isNew",
                    {"type": "json", "name": "geo"},
                    {"type": "json", "name": "revision"},
                ]},
                "metricsSpec": [
                    {"type": "longSum", "name": "added", "fieldName": "added"},
                    {"type": "longSum", "name": "deleted", "fieldName": "deleted"},
                    {"type": "longSum", "name": "delta", "fieldName": "delta"},
                ],
                "granularitySpec": {"segmentGranularity": "HOUR", "queryGranularity": "NONE", "rollup": false},
            },
            "ioConfig": {
                "topic": names.topic,
                "consumerProperties": {"bootstrap.servers": servers},
                "inputFormat": {"type": "json"},
                "useEarliestOffset": true,
                "taskCount": 2,
                "taskDuration": "PT1H",
                "startDelay": "PT0S",
                "period": "PT1S",
            },
            "tuningConfig": {"type": "kafka", "maxSavedParseExceptions": 10, "offsetFetchPeriod": "PT5S"},
        },
    })
}
