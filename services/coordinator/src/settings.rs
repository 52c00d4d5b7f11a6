//! From a valid spec to what the machine knows of it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tidegate_kafka::{ConsumerProperties, KafkaError};
use tidegate_protocol::supervisor::{FirstStart, OnLostData, Run, Settings};
use tidegate_spec::secrets::{MASK, Reference};
use tidegate_spec::{Parsed, SpecIssue, SupervisorSpec};
use tidegate_types::{DecodeVersion, SupervisorId};

/// The rules that turn bytes into rows which this version gives to its tasks.
const DECODE_VERSION: DecodeVersion = DecodeVersion(1);
/// A round of pauses holds readers up, so it has an upper bound whatever chatRetries says.
const LONGEST_ROUND_MILLIS: u64 = 120_000;
/// Look-ups are not made more often than this.
const SHORTEST_LOOK_UP_MILLIS: u64 = 250;

/// Parses and validates a spec, consumer properties included: all errors at once. Secrets that came masked are
/// those of the `stored` spec, put in their place before anything looks at them (B68).
pub(crate) fn parse(
    json_text: &str,
    stored: impl FnOnce(&SupervisorId) -> Option<SupervisorSpec>,
) -> Result<Parsed, Vec<SpecIssue>> {
    let (given, path) = raw_properties(json_text);
    let mut parsed = match SupervisorSpec::parse(json_text) {
        Ok(parsed) => parsed,
        Err(mut issues) => {
            let known: BTreeSet<String> = issues.iter().map(|issue| issue.path.clone()).collect();
            let more = property_issues(&given, &path);
            issues.extend(more.into_iter().filter(|issue| !known.contains(&issue.path)));
            return Err(issues);
        }
    };
    let before = stored(&parsed.spec.id);
    let unknown = parsed
        .spec
        .restore_secrets(before.as_ref())
        .err()
        .unwrap_or_default();
    let mut issues = property_issues(&parsed.spec.io.consumer_properties, &path);
    let masked = unknown.into_iter().map(|name| {
        let message = "is masked, and there is no stored value to put in its place: write the value, or a reference \
                       such as ${env:NAME}";
        unplaced(format!("{path}.{name}"), message)
    });
    issues.extend(masked);
    if issues.is_empty() {
        Ok(parsed)
    } else {
        Err(issues)
    }
}

/// The properties of a document that may be wrong elsewhere, as far as they are readable, and their path in it.
fn raw_properties(json_text: &str) -> (BTreeMap<String, String>, String) {
    let text = json_text.strip_prefix('\u{feff}').unwrap_or(json_text);
    let document: Value = serde_json::from_str(text).unwrap_or_default();
    let (inner, prefix) = match document.get("spec") {
        Some(inner) => (inner, "spec."),
        None => (&document, ""),
    };
    let properties = inner.pointer("/ioConfig/consumerProperties");
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Object(_) => Reference::from_json(value)
            .ok()
            .map(|reference| reference.to_string()),
        Value::Null | Value::Array(_) => None,
    };
    let properties = properties.and_then(Value::as_object).into_iter().flatten();
    (
        properties
            .filter_map(|(name, value)| Some((name.clone(), text(value)?)))
            .collect(),
        format!("{prefix}ioConfig.consumerProperties"),
    )
}

/// Keys that the Kafka client cannot use. References are followed where the client is made, not here: the secret
/// may not be known to this process.
fn property_issues(properties: &BTreeMap<String, String>, path: &str) -> Vec<SpecIssue> {
    if properties.is_empty() {
        // The parser says that they are missing.
        return Vec::new();
    }
    // A login line is taken apart by the translation; behind a mask or a reference there is nothing to take apart.
    let is_hidden = |key: &str| {
        let value = properties.get(key);
        key == "sasl.jaas.config"
            && value.is_some_and(|value| value == MASK || Reference::parse(value).is_some())
    };
    match ConsumerProperties::from_java(properties) {
        Ok(_) => Vec::new(),
        Err(KafkaError::Properties(wrong)) => wrong
            .into_iter()
            .filter(|error| !is_hidden(&error.key))
            .map(|error| unplaced(format!("{path}.{}", error.key), error.reason))
            .collect(),
        Err(other) => vec![unplaced(path.to_owned(), other.to_string())],
    }
}

/// An issue whose path has to do: its line is not known here.
fn unplaced(path: String, message: impl Into<String>) -> SpecIssue {
    SpecIssue {
        path,
        message: message.into(),
        line: 0,
        column: 0,
    }
}

/// What the machine knows of a spec.
pub(crate) fn of(spec: &SupervisorSpec) -> Settings {
    let digest = spec.config_digest_parts();
    // These are canonical JSON texts by their promise.
    let value = |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    let io = &spec.io;
    let round = u64::from(spec.tuning.chat_retries.max(1)).saturating_mul(spec.tuning.http_timeout_millis);
    Settings {
        data_source: spec.data_schema.data_source.clone(),
        topic: io.topic.clone(),
        spec_json: spec.to_normalized_json().to_string(),
        data_schema: value(&digest.data_schema),
        task_tuning: value(&digest.tuning),
        // Not among them: period, startDelay, completionTimeout, useEarliestOffset, and what the digest leaves out.
        task_view: json!({
            "rows": digest.data_schema,
            "tuning": digest.tuning,
            "consumerProperties": io.consumer_properties,
            "pollTimeout": io.poll_timeout_millis,
            "replicas": io.replicas,
            "taskCount": io.task_count,
            "taskDuration": io.task_duration_millis,
            "late": io.late_message_rejection_millis,
            "lateStart": io.late_message_rejection_start,
            "early": io.early_message_rejection_millis,
        }),
        decode_version: DECODE_VERSION,
        run: if spec.suspended {
            Run::Suspended
        } else {
            Run::Running
        },
        replicas: io.replicas,
        task_count: io.task_count,
        task_duration_millis: io.task_duration_millis,
        start_delay_millis: io.start_delay_millis,
        look_up_millis: io
            .period_millis
            .min(spec.tuning.offset_fetch_period_millis)
            .max(SHORTEST_LOOK_UP_MILLIS),
        completion_timeout_millis: io.completion_timeout_millis,
        first_start: if io.use_earliest_offset {
            FirstStart::Earliest
        } else {
            FirstStart::Latest
        },
        late_message_rejection_millis: io.late_message_rejection_millis,
        late_message_rejection_start: io.late_message_rejection_start,
        early_message_rejection_millis: io.early_message_rejection_millis,
        on_lost_data: if spec.tuning.reset_offset_automatically {
            OnLostData::Skip
        } else {
            OnLostData::Stop
        },
        round_millis: round.clamp(1_000, LONGEST_ROUND_MILLIS),
        unknown: Default::default(),
    }
}

/// A stored spec as it may be shown.
pub(crate) fn masked(spec_json: &str) -> String {
    match serde_json::from_str::<Value>(spec_json) {
        Ok(mut document) => {
            tidegate_spec::secrets::mask_secrets(&mut document);
            document.to_string()
        }
        // Nothing of a text that cannot be read is shown: it may hold secrets.
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPEC: &str = r#"{"dataSchema":{"dataSource":"wiki","timestampSpec":{"column":"t"},"dimensionsSpec":{}},
        "ioConfig":{"topic":"edits","inputFormat":{"type":"json"},"useEarliestOffset":true,
        "consumerProperties":{"bootstrap.servers":"h:1","sasl.password":"marker-7"}}}"#;

    fn settings(text: &str) -> Settings {
        of(&parse(text, |_| None).unwrap().spec)
    }

    #[test]
    fn settings_of_the_coordinator_do_not_disturb_groups_and_those_of_tasks_do() {
        let base = settings(SPEC);
        assert_eq!(
            (base.look_up_millis, base.round_millis, base.first_start),
            (30_000, 80_000, FirstStart::Earliest)
        );
        let with = |extra: &str| {
            settings(&SPEC.replace(r#""topic":"edits","#, &format!(r#""topic":"edits",{extra},"#)))
        };
        for cosmetic in [
            r#""period":"PT5S""#,
            r#""completionTimeout":"PT1H""#,
            r#""startDelay":"PT1S""#,
        ] {
            let changed = with(cosmetic);
            assert_eq!(changed.task_view, base.task_view, "{cosmetic}");
            assert_ne!(changed.spec_json, base.spec_json, "{cosmetic}");
        }
        for real in [
            r#""taskCount":2"#,
            r#""replicas":2"#,
            r#""taskDuration":"PT10M""#,
            r#""pollTimeout":5"#,
        ] {
            assert_ne!(with(real).task_view, base.task_view, "{real}");
        }
    }

    #[test]
    fn properties_that_the_client_cannot_use_are_errors_with_their_path() {
        let bad = SPEC.replace(
            r#""sasl.password":"marker-7""#,
            r#""interceptor.classes":"x","plugin.library.paths":"y""#,
        );
        let issues = parse(&bad, |_| None).unwrap_err();
        let paths: Vec<&str> = issues.iter().map(|issue| issue.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "ioConfig.consumerProperties.interceptor.classes",
                "ioConfig.consumerProperties.plugin.library.paths"
            ]
        );
    }

    #[test]
    fn b68_a_shown_spec_has_no_secret() {
        let shown = masked(&settings(SPEC).spec_json);
        assert!(shown.contains("h:1") && !shown.contains("marker-7"), "{shown}");
    }
}
