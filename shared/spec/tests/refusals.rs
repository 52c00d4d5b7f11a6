//! One wrong value is one error, named by its path.

use serde_json::{Value, json};
use tidegate_spec::{SpecIssue, SupervisorSpec};

fn refused(text: &str) -> Vec<SpecIssue> {
    match SupervisorSpec::parse(text) {
        Ok(parsed) => panic!("accepted: {:?}", parsed.spec),
        Err(issues) => issues,
    }
}

/// Path and a part of the message of every issue.
fn assert_issues(issues: &[SpecIssue], expected: &[(&str, &str)]) {
    let found: Vec<String> = issues.iter().map(ToString::to_string).collect();
    for (path, part) in expected {
        let hit = issues
            .iter()
            .any(|issue| issue.path == *path && issue.message.contains(part));
        assert!(hit, "{path}: …{part}… is not among {found:#?}");
    }
    assert_eq!(issues.len(), expected.len(), "{found:#?}");
}

/// A spec with nothing but what is required.
fn minimal() -> Value {
    json!({
        "dataSchema": {"dataSource": "d"},
        "ioConfig": {
            "topic": "t",
            "inputFormat": {"type": "json"},
            "consumerProperties": {"bootstrap.servers": "h:1"},
        },
    })
}

/// The minimal spec with one value set.
fn with(pointer: &str, value: Value) -> String {
    let mut document = minimal();
    let mut place = &mut document;
    for name in pointer.split('.') {
        place = &mut place[name];
    }
    *place = value;
    document.to_string()
}

#[test]
fn one_wrong_value_is_one_error_at_its_path() {
    let cases = [
        (
            "type",
            json!("kinesis"),
            "type",
            "`kinesis` is known but not supported yet",
        ),
        ("type", json!("kafak"), "type", "did you mean `kafka`?"),
        ("id", json!("a/b"), "id", "slash"),
        ("suspended", json!("maybe"), "suspended", "true or false"),
        ("context", json!({"priority": 5}), "context", "not supported yet"),
        (
            "dataSchema",
            json!([]),
            "dataSchema",
            "must be an object, not a list",
        ),
        ("ioConfig", Value::Null, "ioConfig", "is missing"),
        ("taskCount", json!(3), "taskCount", "it belongs into `ioConfig`"),
        (
            "dataSchema.dataSource",
            json!("a/b"),
            "dataSchema.dataSource",
            "slash",
        ),
        (
            "dataSchema.dataSource",
            json!(5),
            "dataSchema.dataSource",
            "must be a text, not a number",
        ),
        (
            "dataSchema.timestampSpec",
            json!({"format": "yyyy-qq"}),
            "dataSchema.timestampSpec.format",
            "`q` at position 6",
        ),
        (
            "dataSchema.timestampSpec",
            json!({"format": "milis"}),
            "dataSchema.timestampSpec.format",
            "did you mean `millis`?",
        ),
        (
            "dataSchema.timestampSpec",
            json!({"missingValue": "soon"}),
            "dataSchema.timestampSpec.missingValue",
            "must be a time",
        ),
        (
            "dataSchema.timestampSpec",
            json!({"missingValue": "300000-01-01"}),
            "dataSchema.timestampSpec.missingValue",
            "lies outside",
        ),
        (
            "dataSchema.dimensionsSpec",
            json!({"dimensions": ["__time"]}),
            "dataSchema.dimensionsSpec.dimensions[0]",
            "`__time` is the time column",
        ),
        (
            "dataSchema.dimensionsSpec",
            json!({"dimensions": [5]}),
            "dataSchema.dimensionsSpec.dimensions[0]",
            "a name or an object",
        ),
        (
            "dataSchema.dimensionsSpec",
            json!({"dimensions": [{"type": "auto", "name": "x"}]}),
            "dataSchema.dimensionsSpec.dimensions[0].type",
            "`auto` is known but not supported yet",
        ),
        (
            "dataSchema.dimensionsSpec",
            json!({"dimensions": [{"type": "long"}]}),
            "dataSchema.dimensionsSpec.dimensions[0].name",
            "is missing",
        ),
        (
            "dataSchema.dimensionsSpec",
            json!({"dimensions": ["a"], "dimensionExclusions": ["a"]}),
            "dataSchema.dimensionsSpec.dimensionExclusions[0]",
            "excluded and a dimension",
        ),
        (
            "dataSchema.dimensionsSpec",
            json!({"spatialDimensions": [{"dimName": "x"}]}),
            "dataSchema.dimensionsSpec.spatialDimensions",
            "not supported yet",
        ),
        (
            "dataSchema.dimensionsSpec",
            json!({"forceSegmentSortByTime": false}),
            "dataSchema.dimensionsSpec.forceSegmentSortByTime",
            "not supported yet",
        ),
        (
            "dataSchema.metricsSpec",
            json!([{"type": "thetaSketch", "name": "x", "size": 16384}]),
            "dataSchema.metricsSpec[0].type",
            "`thetaSketch` is known but not supported yet",
        ),
        (
            "dataSchema.metricsSpec",
            json!([{"type": "longsun", "name": "x"}]),
            "dataSchema.metricsSpec[0].type",
            "did you mean `longSum`?",
        ),
        (
            "dataSchema.metricsSpec",
            json!([{"type": "longSum", "name": "x"}]),
            "dataSchema.metricsSpec[0].fieldName",
            "is missing",
        ),
        (
            "dataSchema.metricsSpec",
            json!([{"type": "count", "name": "__time"}]),
            "dataSchema.metricsSpec[0].name",
            "`__time`",
        ),
        (
            "dataSchema.metricsSpec",
            json!([{"type": "longSum", "name": "x", "fieldName": "y", "expression": "y*2"}]),
            "dataSchema.metricsSpec[0].expression",
            "not supported yet",
        ),
        (
            "dataSchema.granularitySpec",
            json!({"segmentGranularity": "HUOR"}),
            "dataSchema.granularitySpec.segmentGranularity",
            "did you mean `HOUR`?",
        ),
        (
            "dataSchema.granularitySpec",
            json!({"segmentGranularity": {"type": "period", "period": "P1D", "timeZone": "Mars"}}),
            "dataSchema.granularitySpec.segmentGranularity",
            "time zone \"Mars\" is unknown",
        ),
        (
            "dataSchema.granularitySpec",
            json!({"type": "arbitrary"}),
            "dataSchema.granularitySpec.type",
            "not supported yet",
        ),
        (
            "dataSchema.transformSpec",
            json!({"filter": {"type": "selector"}}),
            "dataSchema.transformSpec.filter",
            "not supported yet",
        ),
        (
            "dataSchema.transformSpec",
            json!({"transforms": [{"type": "expression"}]}),
            "dataSchema.transformSpec.transforms",
            "not supported yet",
        ),
        (
            "ioConfig.topic",
            json!("a b"),
            "ioConfig.topic",
            "no name of a Kafka topic",
        ),
        (
            "ioConfig.stream",
            json!("other"),
            "ioConfig.stream",
            "differs from `topic`",
        ),
        (
            "ioConfig.inputFormat",
            json!({"type": "csv", "columns": ["a"]}),
            "ioConfig.inputFormat.type",
            "`csv` is known but not supported yet",
        ),
        (
            "ioConfig.inputFormat",
            Value::Null,
            "ioConfig.inputFormat",
            "is missing",
        ),
        (
            "ioConfig.inputFormat",
            json!({"type": "json", "assumeNewlineDelimited": true}),
            "ioConfig.inputFormat.assumeNewlineDelimited",
            "not supported yet",
        ),
        (
            "ioConfig.inputFormat",
            json!({"type": "json", "flattenSpec": {"fields": [{"type": "tree", "name": "x", "nodes": ["a"]}]}}),
            "ioConfig.inputFormat.flattenSpec.fields[0].type",
            "`tree` is known but not supported yet",
        ),
        (
            "ioConfig.inputFormat",
            json!({"type": "json", "flattenSpec": {"fields": [{"type": "path", "name": "x", "expr": "$..a"}]}}),
            "ioConfig.inputFormat.flattenSpec.fields[0].expr",
            "not supported yet",
        ),
        (
            "ioConfig.inputFormat",
            json!({"type": "json", "flattenSpec": {"fields": ["x", "x"]}}),
            "ioConfig.inputFormat.flattenSpec.fields[1]",
            "given twice",
        ),
        (
            "ioConfig.consumerProperties",
            json!({"bootstrap.servers": ["h:1"]}),
            "ioConfig.consumerProperties.bootstrap.servers",
            "not a list",
        ),
        (
            "ioConfig.consumerProperties",
            json!({"bootstrap.servers": ""}),
            "ioConfig.consumerProperties.bootstrap.servers",
            "must not be empty",
        ),
        (
            "ioConfig.taskCount",
            json!(1.5),
            "ioConfig.taskCount",
            "a whole number, not 1.5",
        ),
        (
            "ioConfig.taskCount",
            json!("two"),
            "ioConfig.taskCount",
            "a whole number, not \"two\"",
        ),
        (
            "ioConfig.taskDuration",
            json!("PT0S"),
            "ioConfig.taskDuration",
            "longer than zero",
        ),
        (
            "ioConfig.taskDuration",
            json!(3600),
            "ioConfig.taskDuration",
            "ISO-8601 period",
        ),
        (
            "ioConfig.taskDuration",
            json!("P1M"),
            "ioConfig.taskDuration",
            "months",
        ),
        (
            "ioConfig.autoScalerConfig",
            json!({"enableTaskAutoScaler": true}),
            "ioConfig.autoScalerConfig",
            "not supported yet",
        ),
        (
            "ioConfig.idleConfig",
            json!({"enabled": true}),
            "ioConfig.idleConfig",
            "not supported yet",
        ),
        (
            "ioConfig.rateLimit",
            json!({"rowsPerSecond": 1}),
            "ioConfig.rateLimit",
            "not supported yet",
        ),
        (
            "ioConfig.deadLetter",
            json!({"type": "kafka"}),
            "ioConfig.deadLetter",
            "not supported yet",
        ),
        (
            "ioConfig.stopTaskCount",
            json!(1),
            "ioConfig.stopTaskCount",
            "not supported yet",
        ),
        (
            "ioConfig.useEarliestSequenceNumber",
            json!("yes"),
            "ioConfig.useEarliestSequenceNumber",
            "true or false",
        ),
        (
            "tuningConfig.maxBytesInMemory",
            json!(-1),
            "tuningConfig.maxBytesInMemory",
            "at least 0",
        ),
        (
            "tuningConfig.maxTotalRows",
            json!(0),
            "tuningConfig.maxTotalRows",
            "-1 for no bound",
        ),
        (
            "tuningConfig.offsetFetchPeriod",
            json!("PT1S"),
            "tuningConfig.offsetFetchPeriod",
            "at least PT5S",
        ),
        (
            "tuningConfig.numPersistThreads",
            json!(2),
            "tuningConfig.numPersistThreads",
            "not supported yet",
        ),
        (
            "tuningConfig.mergeFanIn",
            json!(1),
            "tuningConfig.mergeFanIn",
            "at least 2",
        ),
        (
            "tuningConfig.segmentWriter",
            json!({"level": 23}),
            "tuningConfig.segmentWriter.level",
            "at most 22",
        ),
        (
            "tuningConfig.segmentWriter",
            json!({"compression": "lz4"}),
            "tuningConfig.segmentWriter.compression",
            "not supported yet",
        ),
    ];
    for (place, value, path, part) in cases {
        assert_issues(&refused(&with(place, value)), &[(path, part)]);
    }
}
