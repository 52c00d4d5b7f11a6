//! Specs as people write them, and what must be said to each.

use serde_json::{Value, json};
use tidegate_spec::{
    DimensionKind, DimensionSpec, FlattenField, FlattenSource, InputFormat, MetricKind, MetricSpec,
    MultiValueHandling, Parsed, PathStep, SpecIssue, SupervisorSpec, TimestampFormat, from_commented,
    secrets,
};
use tidegate_types::Granularity;

fn accepted(text: &str) -> Parsed {
    SupervisorSpec::parse(text).unwrap_or_else(|issues| panic!("{issues:#?}"))
}

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

/// What is stored reads back as the same spec.
fn assert_round_trip(spec: &SupervisorSpec) {
    let text = spec.to_normalized_json().to_string();
    let again = accepted(&text);
    assert_eq!(&again.spec, spec);
    assert_eq!(again.warnings, [], "the normalized form has nothing to warn of");
    assert_eq!(again.spec.to_normalized_json().to_string(), text);
    assert_eq!(again.spec.config_digest_parts(), spec.config_digest_parts());
}

fn string(name: &str) -> DimensionSpec {
    DimensionSpec {
        name: name.to_owned(),
        kind: DimensionKind::String,
        multi_value: MultiValueHandling::SortedArray,
    }
}

fn metric(kind: MetricKind, name: &str, field: &str) -> MetricSpec {
    MetricSpec {
        name: name.to_owned(),
        kind,
        field: field.to_owned(),
    }
}

#[test]
fn the_old_parser_form_is_accepted() {
    let Parsed { spec, warnings } = accepted(include_str!("data/old-parser-unwrapped.json"));
    assert_issues(&warnings, &[("tuningConfig.workerThreads", "has no effect")]);
    assert_eq!(spec.id.as_str(), "metrics-old");
    assert_eq!(spec.data_schema.timestamp.column, "time");
    assert_eq!(
        spec.data_schema.dimensions.dimensions,
        [string("url"), string("user")]
    );
    assert!(!spec.data_schema.dimensions.discover);
    assert_eq!(
        spec.data_schema.metrics,
        [
            metric(MetricKind::Count, "views", ""),
            metric(MetricKind::DoubleSum, "latencyMs", "latencyMs")
        ]
    );
    assert!(spec.data_schema.granularity.rollup, "on unless said otherwise");
    assert_eq!(spec.data_schema.granularity.segment, Granularity::Hour);
    assert_eq!(spec.tuning.max_rows_in_memory, 100_000, "a number as text");
    assert_eq!(spec.io.consumer_properties["group.id"], "kafka-indexing-service");
    assert_round_trip(&spec);
}

#[test]
fn the_old_form_with_a_flatten_spec_and_no_tuning_is_accepted() {
    let Parsed { spec, warnings } = accepted(include_str!("data/prometheus-max.json"));
    assert_eq!(warnings, []);
    let InputFormat::Json(json) = &spec.io.input_format;
    let path = |name: &str, steps: &[&str]| FlattenField {
        name: name.to_owned(),
        source: FlattenSource::Path(
            steps
                .iter()
                .map(|step| PathStep::Key((*step).to_owned()))
                .collect(),
        ),
    };
    assert_eq!(
        json.fields,
        [
            path("clusterName", &["labels", "cluster"]),
            path("source", &["labels", "source"]),
            FlattenField {
                name: "value".to_owned(),
                source: FlattenSource::Root("value".to_owned())
            },
        ]
    );
    assert_eq!(spec.data_schema.granularity.query, Granularity::Minute);
    assert_eq!(spec.io.task_duration_millis, 600_000);
    assert!(spec.io.use_earliest_offset);
    assert_round_trip(&spec);
}

#[test]
fn dots_in_names_and_long_task_durations_are_accepted() {
    let Parsed { spec, warnings } = accepted(include_str!("data/cdc-dots-in-name.json"));
    assert_eq!(warnings, []);
    assert_eq!(
        (spec.io.topic.as_str(), spec.id.as_str()),
        ("app.db.settings", "app.db.settings")
    );
    assert_eq!(spec.io.task_duration_millis, 30 * 3_600_000);
    assert_eq!(spec.data_schema.timestamp.format, TimestampFormat::Millis);
    assert_eq!(spec.data_schema.granularity.query, Granularity::None);
    assert_eq!(spec.data_schema.granularity.segment, Granularity::Year);
    assert!(spec.tuning.log_parse_exceptions);
    assert_round_trip(&spec);
}

#[test]
fn the_long_form_that_a_server_gives_back_is_accepted() {
    let Parsed { spec, warnings } = accepted(include_str!("data/returned-by-get.json"));
    assert_issues(
        &warnings,
        &[
            (
                "spec.dataSchema.dimensionsSpec.dimensions[0].createBitmapIndex",
                "no effect",
            ),
            (
                "spec.dataSchema.dimensionsSpec.dimensions[1].createBitmapIndex",
                "no effect",
            ),
            ("spec.dataSchema.granularitySpec.intervals", "no effect"),
            ("spec.tuningConfig.appendableIndexSpec", "no effect"),
            ("spec.tuningConfig.skipBytesInMemoryOverheadCheck", "no effect"),
            ("spec.tuningConfig.indexSpec", "no effect"),
            (
                "spec.tuningConfig.skipSequenceNumberAvailabilityCheck",
                "no effect",
            ),
            ("spec.tuningConfig.repartitionTransitionDuration", "no effect"),
        ],
    );
    assert_eq!(
        spec.tuning.intermediate_handoff_period_millis, None,
        "P2147483647D is never"
    );
    assert_eq!(spec.tuning.max_parse_exceptions, None);
    assert_eq!(
        spec.tuning.max_total_rows,
        Some(20_000_000),
        "null is the default"
    );
    assert_eq!(spec.io.task_duration_millis, 3_600_000);
    assert_eq!(spec.io.completion_timeout_millis, 1_800_000);
    assert_eq!(spec.data_schema.granularity.query, Granularity::None);
    assert_eq!(spec.data_schema.dimensions.exclusions, ["__time"]);
    assert_eq!(spec.data_schema.metrics, []);
    assert_round_trip(&spec);

    // The whole answer of a server also repeats the three objects beside `spec`.
    let mut whole: Value = serde_json::from_str(include_str!("data/returned-by-get.json")).unwrap();
    for name in ["dataSchema", "ioConfig", "tuningConfig"] {
        whole[name] = whole["spec"][name].clone();
    }
    whole["context"] = Value::Null;
    assert_eq!(accepted(&whole.to_string()).spec, spec);
    whole["ioConfig"]["taskCount"] = json!(2);
    assert_issues(
        &refused(&whole.to_string()),
        &[("ioConfig", "differs from `spec.ioConfig`")],
    );
}

#[test]
fn jq_fields_are_refused_by_name_and_append_to_existing_only_warned_of() {
    let text = include_str!("data/wrapped-flatten-jq.json");
    assert_issues(
        &refused(text),
        &[
            (
                "spec.ioConfig.inputFormat.flattenSpec.fields[1].type",
                "`jq` is known but not supported yet",
            ),
            (
                "spec.ioConfig.inputFormat.flattenSpec.fields[2].type",
                "`jq` is known but not supported yet",
            ),
        ],
    );
    let mut document: Value = serde_json::from_str(text).unwrap();
    let fields = document["spec"]["ioConfig"]["inputFormat"]["flattenSpec"]["fields"]
        .as_array_mut()
        .unwrap();
    fields.retain(|field| field["type"] != "jq");
    let Parsed { spec, warnings } = accepted(&document.to_string());
    assert_issues(&warnings, &[("spec.ioConfig.appendToExisting", "has no effect")]);
    let kinds: Vec<_> = spec
        .data_schema
        .dimensions
        .dimensions
        .iter()
        .map(|one| (one.kind, one.multi_value))
        .collect();
    assert_eq!(kinds[1], (DimensionKind::Json, MultiValueHandling::SortedArray));
    assert_eq!(kinds[4], (DimensionKind::String, MultiValueHandling::Array));
    assert_round_trip(&spec);
}

#[test]
fn comments_are_taken_from_files_only_and_avro_is_refused_by_name() {
    let text = include_str!("data/comments-and-avro-registry.json5");
    let issues = refused(text);
    assert_eq!(issues.len(), 1);
    assert!(issues[0].message.contains("comment"), "{}", issues[0]);
    assert_eq!((issues[0].line, issues[0].column), (2, 3));

    let (plain, had_comments) = from_commented(text).unwrap();
    assert!(had_comments);
    let issues = refused(&plain);
    assert_issues(
        &issues,
        &[(
            "spec.ioConfig.inputFormat.type",
            "`avro_stream` is known but not supported yet",
        )],
    );
    assert_eq!(issues[0].line, 6, "lines stay where they were");
    let json = plain.replace(
        r#"{"type":"avro_stream","avroBytesDecoder":{"type":"schema_registry","url":"http://localhost:8081"}}"#,
        r#"{"type":"json"}"#,
    );
    assert_round_trip(&accepted(&json).spec);
}

#[test]
fn every_error_of_a_bad_spec_is_reported_at_once() {
    let issues = refused(include_str!("data/bad-many-errors.json"));
    assert_issues(
        &issues,
        &[
            ("spec.dataSchema.dataSource", "must not be empty"),
            (
                "spec.dataSchema.dimensionsSpec.dimensions[1]",
                "dimension \"a\" is given twice",
            ),
            (
                "spec.dataSchema.dimensionsSpec.dimensions[2].type",
                "\"strng\" is unknown; did you mean `string`?",
            ),
            (
                "spec.dataSchema.metricsSpec[0].name",
                "metric \"a\" has the name of a dimension",
            ),
            (
                "spec.dataSchema.metricsSpec[2].name",
                "metric \"c\" is given twice",
            ),
            (
                "spec.dataSchema.granularitySpec.segmentGranularity",
                "\"fortnight\" is unknown",
            ),
            ("spec.dataSchema.granularitySpec.rollup", "must be true or false"),
            (
                "spec.ioConfig.topicPattern",
                "topic and topicPattern are both given",
            ),
            ("spec.ioConfig.topicPattern", "not supported yet"),
            ("spec.ioConfig.taskCount", "must be at least 1, not 0"),
            ("spec.ioConfig.replicas", "must be at least 1, not -1"),
            ("spec.ioConfig.taskDuration", "did you mean PT1H?"),
            ("spec.ioConfig.consumerProperties.bootstrap.servers", "is missing"),
            (
                "spec.ioConfig.earlyMessageRejectonPeriod",
                "did you mean `earlyMessageRejectionPeriod`?",
            ),
            ("spec.tuningConfig.maxRowsPerSegment", "must be at least 1, not 0"),
            ("spec.tuningConfig.intermediateHandoffPeriod", "is negative"),
        ],
    );
    let duration = issues
        .iter()
        .find(|issue| issue.path.ends_with("taskDuration"))
        .unwrap();
    assert_eq!((duration.line, duration.column), (2, 119));
    let one_line = tidegate_spec::parse(include_str!("data/bad-many-errors.json"))
        .unwrap_err()
        .to_string();
    assert!(!one_line.contains('\n') && one_line.contains("spec.ioConfig.taskCount: must be at least 1"));
    let lines: Vec<usize> = issues.iter().map(|issue| issue.line).collect();
    assert!(lines.is_sorted(), "in the order of the document");
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
fn what_changes_nothing_is_accepted_without_a_word() {
    let plain = accepted(&minimal().to_string()).spec;
    for (place, value) in [
        ("type", json!("KAFKA")),
        ("context", json!({})),
        (
            "dataSchema.transformSpec",
            json!({"filter": null, "transforms": []}),
        ),
        (
            "dataSchema.dimensionsSpec",
            json!({"spatialDimensions": [], "forceSegmentSortByTime": true}),
        ),
        ("ioConfig.topicPattern", Value::Null),
        ("ioConfig.stream", json!("t")),
        (
            "ioConfig.autoScalerConfig",
            json!({"enableTaskAutoScaler": false, "taskCountMax": 6}),
        ),
        (
            "ioConfig.idleConfig",
            json!({"enabled": false, "inactiveAfterMillis": 600_000}),
        ),
        ("ioConfig.taskCount", json!("1")),
        ("ioConfig.taskDuration", json!("pt3600s")),
        ("ioConfig.useEarliestOffset", json!("FALSE")),
        ("ioConfig.lateMessageRejectionPeriod", json!("P2147483647D")),
        (
            "tuningConfig",
            json!({"type": "Kafka", "maxTotalRows": null, "numPersistThreads": 1, "maxColumnsToMerge": -1}),
        ),
        ("tuningConfig.maxRowsInMemory", json!(1.5e5)),
    ] {
        let Parsed { spec, warnings } = accepted(&with(place, value));
        assert_eq!((spec, warnings), (plain.clone(), Vec::new()), "{place}");
    }
}

#[test]
fn late_rejection_is_given_one_way_or_the_other() {
    let mut document = minimal();
    document["ioConfig"]["lateMessageRejectionPeriod"] = json!("PT1H");
    document["ioConfig"]["lateMessageRejectionStartDateTime"] = json!("2024-01-01");
    assert_issues(
        &refused(&document.to_string()),
        &[(
            "ioConfig.lateMessageRejectionStartDateTime",
            "leave one of the two out",
        )],
    );
    document["ioConfig"]["lateMessageRejectionPeriod"] = Value::Null;
    let spec = accepted(&document.to_string()).spec;
    assert_eq!(
        spec.io.late_message_rejection_start.map(|time| time.0),
        Some(1_704_067_200_000)
    );
    assert_round_trip(&spec);
}

#[test]
fn the_old_way_to_allow_no_parse_exception_still_works() {
    let strict = with(
        "tuningConfig",
        json!({"reportParseExceptions": true, "maxParseExceptions": 10}),
    );
    let Parsed { spec, warnings } = accepted(&strict);
    assert_eq!(spec.tuning.max_parse_exceptions, Some(0));
    assert_issues(&warnings, &[("tuningConfig.maxParseExceptions", "has no effect")]);
    assert_round_trip(&spec);
    let some = accepted(&with("tuningConfig", json!({"maxParseExceptions": "10"}))).spec;
    assert_eq!(some.tuning.max_parse_exceptions, Some(10));
}

#[test]
fn discovery_is_on_when_nothing_is_listed_or_it_is_asked_for() {
    for (dimensions, discover, typed) in [
        (json!({}), true, false),
        (json!({"dimensions": []}), true, false),
        (json!({"dimensions": ["a"]}), false, false),
        (
            json!({"dimensions": ["a"], "includeAllDimensions": true}),
            true,
            false,
        ),
        (
            json!({"dimensions": ["a"], "useSchemaDiscovery": true}),
            true,
            true,
        ),
        (
            json!({"useSchemaDiscovery": true, "includeAllDimensions": true}),
            true,
            true,
        ),
    ] {
        let spec = accepted(&with("dataSchema.dimensionsSpec", dimensions.clone())).spec;
        let found = &spec.data_schema.dimensions;
        assert_eq!(
            (found.discover, found.typed_discovery),
            (discover, typed),
            "{dimensions}"
        );
        assert_round_trip(&spec);
    }
}

#[test]
fn a_bloom_filter_names_a_dimension_unless_they_are_discovered() {
    let writer = json!({"bloomFilter": ["usr"]});
    let mut document = minimal();
    document["tuningConfig"] = json!({"segmentWriter": writer});
    assert_round_trip(&accepted(&document.to_string()).spec);
    document["dataSchema"]["dimensionsSpec"] = json!({"dimensions": ["user"]});
    assert_issues(
        &refused(&document.to_string()),
        &[(
            "tuningConfig.segmentWriter.bloomFilter[0]",
            "did you mean `user`?",
        )],
    );
}

/// B68: secrets do not come back, and what came back can be submitted again.
#[test]
fn b68_a_masked_spec_submitted_again_is_the_stored_one() {
    let properties = json!({
        "bootstrap.servers": "h:1",
        "sasl.password": "marker-one",
        "ssl.key.pem": "marker-two",
        "ssl.keystore.password": {"type": "environment", "variable": "KEYSTORE"},
        "fetch.min.bytes": 5,
        "enable.x": true,
    });
    let stored = accepted(&with("ioConfig.consumerProperties", properties)).spec;
    assert_eq!(
        stored.io.consumer_properties["ssl.keystore.password"],
        "${env:KEYSTORE}"
    );
    assert_eq!(stored.io.consumer_properties["fetch.min.bytes"], "5");
    assert!(stored.to_normalized_json().to_string().contains("marker-one"));
    let shown = stored.masked_json().to_string();
    assert!(!shown.contains("marker"), "{shown}");
    assert!(shown.contains("${env:KEYSTORE}"));
    assert!(
        !format!("{stored:?}").contains("marker"),
        "nor does a log get them"
    );

    let mut again = accepted(&shown).spec;
    assert_ne!(again, stored);
    assert_eq!(
        again.clone().restore_secrets(None),
        Err(vec!["sasl.password".to_owned(), "ssl.key.pem".to_owned()])
    );
    again.restore_secrets(Some(&stored)).unwrap();
    assert_eq!(again, stored);

    let mut changed = accepted(&shown.replacen(secrets::MASK, "new", 1)).spec;
    changed.restore_secrets(Some(&stored)).unwrap();
    assert_eq!(changed.io.consumer_properties["sasl.password"], "new");
    assert_eq!(changed.io.consumer_properties["ssl.key.pem"], "marker-two");
}

/// B68: an error about a secret does not contain it.
#[test]
fn b68_no_finding_contains_the_value_of_a_property() {
    let text = with(
        "ioConfig.consumerProperties",
        json!({"sasl.password": ["marker"], "ssl.key.pem": {"type": "marker"}, "sasl.jaas.config": "marker"}),
    );
    let issues = refused(&text);
    assert_eq!(issues.len(), 3);
    assert!(!format!("{issues:?}").contains("marker"), "{issues:?}");
    let broken = refused("{\"ioConfig\": {\"consumerProperties\": {\"sasl.password\": \"marker\" \"x\"}}}");
    assert!(!format!("{broken:?}").contains("marker"), "{broken:?}");
}
