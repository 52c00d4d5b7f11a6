//! `ioConfig`.

use std::collections::BTreeMap;

use tidegate_types::period::NEVER_MILLIS;

use super::{input_format, kafka_type};
use crate::document::{Content, Node, join};
use crate::fields::section;
use crate::issue::Findings;
use crate::model::{InputFormat, IoConfig, JsonFormat};
use crate::reader::Reader;
use crate::secrets::Reference;
use crate::suggest::shown;

/// `old_form`: the input format stands in `dataSchema.parser`.
pub(super) fn read(
    node: &Node,
    path: &str,
    old_form: bool,
    findings: &mut Findings<'_>,
) -> Option<(IoConfig, Option<JsonFormat>)> {
    let reader = Reader::open(node, path, section("ioConfig"), findings)?;
    kafka_type(&reader, findings);
    let topic = read_topic(&reader, node, findings);
    let consumer_properties = read_properties(&reader, findings);
    let format = match (reader.node("inputFormat"), old_form) {
        (Some(_), true) => {
            let message = "is given together with `dataSchema.parser`; leave one of the two out";
            reader.error("inputFormat", message, findings);
            None
        }
        (Some(node), false) => input_format::read(node, &reader.path_of("inputFormat"), findings),
        (None, true) => None,
        (None, false) => {
            reader.error("inputFormat", "is missing", findings);
            None
        }
    };
    let late = bounded(reader.period("lateMessageRejectionPeriod", 0, findings));
    let late_start = reader.time("lateMessageRejectionStartDateTime", findings);
    if reader.has("lateMessageRejectionPeriod") && reader.has("lateMessageRejectionStartDateTime") {
        let message = "is given together with `lateMessageRejectionPeriod`; leave one of the two out";
        reader.error("lateMessageRejectionStartDateTime", message, findings);
    }
    let config = IoConfig {
        topic: topic.unwrap_or_default(),
        consumer_properties,
        // Set by the caller, who knows where it stands.
        input_format: InputFormat::Json(JsonFormat::default()),
        poll_timeout_millis: reader.count("pollTimeout", 0, 100, findings),
        replicas: reader.small_count("replicas", 1, 1, findings),
        task_count: reader.small_count("taskCount", 1, 1, findings),
        task_duration_millis: reader.period("taskDuration", 1, findings).unwrap_or(3_600_000),
        start_delay_millis: reader.period("startDelay", 0, findings).unwrap_or(5_000),
        period_millis: reader.period("period", 1, findings).unwrap_or(30_000),
        completion_timeout_millis: reader
            .period("completionTimeout", 1, findings)
            .unwrap_or(1_800_000),
        use_earliest_offset: read_earliest(&reader, findings),
        late_message_rejection_millis: late,
        late_message_rejection_start: late_start,
        early_message_rejection_millis: bounded(reader.period("earlyMessageRejectionPeriod", 0, findings)),
    };
    Some((config, format))
}

/// A period that stands for "never" bounds nothing.
fn bounded(millis: Option<u64>) -> Option<u64> {
    millis.filter(|millis| *millis < NEVER_MILLIS)
}

fn read_topic(reader: &Reader<'_>, node: &Node, findings: &mut Findings<'_>) -> Option<String> {
    let topic = reader.text("topic", findings);
    let stream = reader.text("stream", findings);
    // The pattern itself has been refused already, as a field that comes later.
    let has_pattern = node.get("topicPattern").is_some();
    if has_pattern && (reader.has("topic") || reader.has("stream")) {
        let at = node.get("topicPattern").map_or(reader.at, |pattern| pattern.at);
        findings.error(
            at,
            reader.path_of("topicPattern"),
            "topic and topicPattern are both given; leave one of the two out",
        );
    }
    if let (Some(topic), Some(stream)) = (topic, stream)
        && topic != stream
    {
        reader.error(
            "stream",
            format!("differs from `topic` ({}); leave one out", shown(topic)),
            findings,
        );
    }
    if !reader.has("topic") && !reader.has("stream") {
        if !has_pattern {
            reader.error("topic", "is missing", findings);
        }
        return None;
    }
    let (name, text) = match topic {
        Some(topic) => ("topic", topic),
        None => ("stream", stream?),
    };
    let legal = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if text.len() > 249 || !legal || text == "." || text == ".." {
        let message =
            "is no name of a Kafka topic: 1 to 249 letters, digits, `.`, `_` and `-`, not `.` or `..`";
        reader.error(name, message, findings);
        return None;
    }
    Some(text.to_owned())
}

fn read_earliest(reader: &Reader<'_>, findings: &mut Findings<'_>) -> bool {
    let offset = reader.flag("useEarliestOffset", false, findings);
    let sequence = reader.flag("useEarliestSequenceNumber", false, findings);
    match (
        reader.has("useEarliestOffset"),
        reader.has("useEarliestSequenceNumber"),
    ) {
        (true, true) if offset != sequence => {
            reader.error(
                "useEarliestSequenceNumber",
                "differs from `useEarliestOffset`; leave one out",
                findings,
            );
            offset
        }
        (true, _) => offset,
        (false, _) => sequence,
    }
}

/// Values never appear in a finding, since they may be secrets (B68).
fn read_properties(reader: &Reader<'_>, findings: &mut Findings<'_>) -> BTreeMap<String, String> {
    let mut properties = BTreeMap::new();
    let Some(node) = reader.node("consumerProperties") else {
        reader.error(
            "consumerProperties",
            "is missing; it needs at least `bootstrap.servers`",
            findings,
        );
        return properties;
    };
    let path = reader.path_of("consumerProperties");
    let Content::Object(entries) = &node.content else {
        findings.error(node.at, path, format!("must be an object, not {}", node.kind()));
        return properties;
    };
    for entry in entries {
        let value = match &entry.value.content {
            Content::Null => continue,
            Content::Text(text) | Content::Number(text) => text.clone(),
            Content::Bool(flag) => flag.to_string(),
            Content::Object(_) => match Reference::from_json(&entry.value.to_value()) {
                Ok(reference) => reference.to_string(),
                Err(error) => {
                    findings.error(entry.value.at, join(&path, &entry.name), error.to_string());
                    continue;
                }
            },
            Content::List(_) => {
                let message = "must be a text, a number, a boolean or a reference to a secret, not a list";
                findings.error(entry.value.at, join(&path, &entry.name), message);
                continue;
            }
        };
        properties.insert(entry.name.clone(), value);
    }
    let servers = "bootstrap.servers";
    match properties.get(servers) {
        Some(text) if !text.trim().is_empty() => {}
        Some(_) => {
            let at = node.get(servers).map_or(node.at, |value| value.at);
            findings.error(at, join(&path, servers), "must not be empty");
        }
        None if node.get(servers).is_some() => {}
        None => findings.error(
            node.at,
            join(&path, servers),
            "is missing: the brokers as host:port,host:port",
        ),
    }
    properties
}
