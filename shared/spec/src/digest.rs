//! The parts of a spec that a base sequence name is made of.
//!
//! Promises: the same spec gives the same bytes in every version (test vectors in this file are frozen; they are part
//! of the protocol): keys are sorted, no blanks, no value that depends on a run. A field that a later release adds
//! may only appear here when it is not at its default.
//! Must never: contain broker addresses, credentials, or settings that only the coordinator uses, so that changing
//! those leaves the names as they are.

use serde_json::{Map, Value, json};

use crate::model::SupervisorSpec;
use crate::normalized::{data_schema, input_format, tuning_config};

/// Canonical JSON texts; the first field of each is its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestParts {
    /// What decides which rows come out of which bytes: topic, input format and data schema.
    pub data_schema: String,
    /// The settings of the tasks.
    pub tuning: String,
}

/// Settings of the coordinator, not of the tasks.
const COORDINATOR_ONLY: [&str; 4] = [
    "chatRetries",
    "httpTimeout",
    "offsetFetchPeriod",
    "shutdownTimeout",
];

impl SupervisorSpec {
    pub fn config_digest_parts(&self) -> DigestParts {
        let rows = json!({
            "version": 1,
            "topic": self.io.topic,
            "inputFormat": input_format(&self.io.input_format),
            "dataSchema": data_schema(&self.data_schema),
        });
        let mut tuning = tuning_config(&self.tuning);
        if let Value::Object(fields) = &mut tuning {
            fields.retain(|name, _| !COORDINATOR_ONLY.contains(&name.as_str()));
        }
        let tuning = json!({"version": 1, "tuning": tuning});
        DigestParts {
            data_schema: canonical(rows),
            tuning: canonical(tuning),
        }
    }
}

fn canonical(value: Value) -> String {
    sorted(value).to_string()
}

fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut entries: Vec<(String, Value)> = fields
                .into_iter()
                .map(|(name, value)| (name, sorted(value)))
                .collect();
            entries.sort_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(Map::from_iter(entries))
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> DigestParts {
        SupervisorSpec::parse(text).unwrap().spec.config_digest_parts()
    }

    const PLAIN: &str = r#"{"dataSchema":{"dataSource":"d","metricsSpec":[{"type":"longSum","name":"n","fieldName":"x"}],
        "dimensionsSpec":{"dimensions":["b","a"]}},"ioConfig":{"topic":"t","inputFormat":{"type":"json"},
        "consumerProperties":{"bootstrap.servers":"h:1","sasl.password":"marker"}}}"#;

    /// Frozen: these bytes are hashed into sequence names of stored segments.
    #[test]
    fn the_parts_are_the_bytes_they_have_always_been() {
        let DigestParts { data_schema, tuning } = parts(PLAIN);
        assert_eq!(
            data_schema,
            concat!(
                r#"{"dataSchema":{"dataSource":"d","dimensionsSpec":{"dimensionExclusions":[],"dimensions":["#,
                r#"{"multiValueHandling":"SORTED_ARRAY","name":"b","type":"string"},"#,
                r#"{"multiValueHandling":"SORTED_ARRAY","name":"a","type":"string"}],"#,
                r#""includeAllDimensions":false,"useSchemaDiscovery":false},"#,
                r#""granularitySpec":{"queryGranularity":"NONE","rollup":true,"segmentGranularity":"DAY","type":"uniform"},"#,
                r#""metricsSpec":[{"fieldName":"x","name":"n","type":"longSum"}],"#,
                r#""timestampSpec":{"column":"timestamp","format":"auto","missingValue":null}},"#,
                r#""inputFormat":{"flattenSpec":{"fields":[],"useFieldDiscovery":true},"type":"json"},"#,
                r#""topic":"t","version":1}"#
            )
        );
        assert_eq!(
            tuning,
            concat!(
                r#"{"tuning":{"handoffConditionTimeout":900000,"intermediateHandoffPeriod":"P2147483647D","#,
                r#""intermediatePersistPeriod":"PT10M","logParseExceptions":false,"maxBytesInMemory":0,"#,
                r#""maxParseExceptions":2147483647,"maxPendingPersists":0,"maxRowsInMemory":150000,"#,
                r#""maxRowsPerSegment":5000000,"maxSavedParseExceptions":0,"maxTotalRows":20000000,"mergeFanIn":16,"#,
                r#""resetOffsetAutomatically":false,"segmentWriter":{"bloomFilter":[],"compression":"zstd","#,
                r#""format":"parquet","level":1,"rowGroupRows":262144},"type":"kafka"},"version":1}"#
            )
        );
    }

    #[test]
    fn addresses_credentials_and_coordinator_settings_leave_the_names_alone() {
        let there = PLAIN.replace("h:1", "other:2").replace("marker", "changed").replace(
            r#""ioConfig":{"#,
            r#""tuningConfig":{"chatRetries":1,"httpTimeout":"PT1S"},"ioConfig":{"taskCount":7,"replicas":2,"#,
        );
        assert_eq!(parts(&there), parts(PLAIN));
        assert!(!parts(PLAIN).data_schema.contains("marker"));
    }

    #[test]
    fn what_changes_rows_or_segments_changes_the_names() {
        for (from, to) in [
            (r#""topic":"t""#, r#""topic":"u""#),
            (r#"["b","a"]"#, r#"["a","b"]"#),
            ("longSum", "longMax"),
            (
                r#"{"type":"json"}"#,
                r#"{"type":"json","flattenSpec":{"fields":["q"]}}"#,
            ),
            (
                r#""ioConfig":{"#,
                r#""tuningConfig":{"maxRowsPerSegment":9},"ioConfig":{"#,
            ),
        ] {
            let changed = PLAIN.replace(from, to);
            assert_ne!(changed, PLAIN);
            assert_ne!(parts(&changed), parts(PLAIN), "{to}");
        }
    }
}
