//! The base sequence name: replicas and replacements that are given the same work find the same name, and so
//! the same segment ids.
//!
//! `index_kafka_<supervisor>_<15 hex digits>`: the digits are the head of SHA-256 over one JSON text with
//! sorted keys and no blanks. The vectors in the tests are frozen: a change of the rule is a new
//! [`NAME_FORMAT`], never a change of an old one.

use serde_json::Value;
use sha2::{Digest, Sha256};
use tidegate_types::{BaseSequenceName, Generation, InvalidId, StartOffsets, SupervisorId, TimestampMillis};

/// Version of the rule, part of what is hashed.
pub const NAME_FORMAT: u32 = 1;

/// Longest part of a supervisor id that is shown in the name, in bytes: the name, with a partition and a
/// suffix behind it, must still fit a file name. The hash covers the whole id.
const SHOWN_SUPERVISOR_BYTES: usize = 160;

/// What makes one group's rows differ from another's (I3).
#[derive(Debug, Clone, Copy)]
pub struct NameInput<'a> {
    pub supervisor: &'a SupervisorId,
    /// Separates a re-created group with the same start offsets from its past.
    pub generation: Generation,
    /// The normalized `dataSchema`; key order does not matter.
    pub data_schema: &'a Value,
    /// The normalized tuning that changes what a task writes; key order does not matter.
    pub task_tuning: &'a Value,
    pub start: &'a StartOffsets,
    /// Inclusive.
    pub minimum_message_time: Option<TimestampMillis>,
    /// Inclusive.
    pub maximum_message_time: Option<TimestampMillis>,
}

/// The name of a group's sequences, before the sequence id.
pub fn base_sequence_name(input: &NameInput<'_>) -> Result<BaseSequenceName, InvalidId> {
    let digest = Sha256::digest(canonical_text(input).as_bytes());
    let mut digits = hex::encode(digest);
    digits.truncate(15);
    let supervisor = head(input.supervisor.as_str(), SHOWN_SUPERVISOR_BYTES);
    BaseSequenceName::new(format!("index_kafka_{supervisor}_{digits}"))
}

fn canonical_text(input: &NameInput<'_>) -> String {
    let start = input
        .start
        .iter()
        .map(|(partition, offset)| serde_json::json!([partition, offset]));
    let document = serde_json::json!({
        "format": NAME_FORMAT,
        "supervisor": input.supervisor,
        "generation": input.generation,
        "dataSchema": input.data_schema,
        "taskTuning": input.task_tuning,
        "start": start.collect::<Vec<_>>(),
        "minimumMessageTime": input.minimum_message_time,
        "maximumMessageTime": input.maximum_message_time,
    });
    let mut text = String::new();
    write_canonical(&document, &mut text);
    text
}

/// JSON with the keys of every object in byte order and no blanks.
fn write_canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut keys: Vec<&String> = fields.keys().collect();
            keys.sort_unstable();
            out.push('{');
            for (index, key) in keys.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write_canonical(&fields[key], out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(item, out);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.push_str(&value.to_string());
        }
    }
}

/// At most `bytes` bytes of the text, cut between characters.
fn head(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    struct Case {
        supervisor: &'static str,
        generation: u64,
        data_schema: Value,
        task_tuning: Value,
        start: StartOffsets,
        minimum: Option<i64>,
        maximum: Option<i64>,
    }

    fn wiki() -> Case {
        Case {
            supervisor: "wiki",
            generation: 0,
            data_schema: json!({"dataSource": "wiki", "timestampSpec": {"column": "time", "format": "iso"}}),
            task_tuning: json!({"maxRowsPerSegment": 5_000_000}),
            start: StartOffsets::from([(0, 0), (1, 0)]),
            minimum: None,
            maximum: None,
        }
    }

    fn name(case: &Case) -> String {
        let supervisor = SupervisorId::new(case.supervisor).unwrap();
        let input = NameInput {
            supervisor: &supervisor,
            generation: Generation(case.generation),
            data_schema: &case.data_schema,
            task_tuning: &case.task_tuning,
            start: &case.start,
            minimum_message_time: case.minimum.map(TimestampMillis),
            maximum_message_time: case.maximum.map(TimestampMillis),
        };
        base_sequence_name(&input).unwrap().as_str().to_owned()
    }

    /// Computed outside this code, with another SHA-256 and another JSON writer. Never change a line.
    #[test]
    fn the_vectors_of_the_base_sequence_name_are_frozen() {
        let bounded = Case {
            minimum: Some(1_262_304_000_000),
            maximum: Some(-1),
            ..wiki()
        };
        let odd = Case {
            supervisor: "Łódź \"q\"",
            generation: u64::MAX,
            data_schema: json!({"b": [1, 2.5, "é\n", null, true], "a": {"z": -0.5, "y": []}}),
            task_tuning: json!({}),
            start: StartOffsets::from([(10, i64::MAX - 1), (2, 7)]),
            ..wiki()
        };
        let vectors = [
            (wiki(), "index_kafka_wiki_bb68ae59f8ea449"),
            (
                Case {
                    generation: 1,
                    ..wiki()
                },
                "index_kafka_wiki_c5374f48c8cbda0",
            ),
            (
                Case {
                    start: StartOffsets::from([(0, 1), (1, 0)]),
                    ..wiki()
                },
                "index_kafka_wiki_985a89d70abe851",
            ),
            (bounded, "index_kafka_wiki_802c297ba784dcf"),
            (odd, "index_kafka_Łódź \"q\"_0b23fdf7913da77"),
        ];
        for (case, expected) in vectors {
            assert_eq!(name(&case), expected);
        }
    }

    #[test]
    fn key_order_does_not_change_the_name() {
        let turned = json!({"timestampSpec": {"format": "iso", "column": "time"}, "dataSource": "wiki"});
        assert_eq!(
            name(&Case {
                data_schema: turned,
                ..wiki()
            }),
            name(&wiki())
        );
    }

    #[test]
    fn a_long_supervisor_id_is_cut_in_the_name_but_not_in_the_hash() {
        let long: &'static str = Box::leak("ż".repeat(120).into_boxed_str());
        let longer: &'static str = Box::leak(format!("{long}a").into_boxed_str());
        let (one, two) = (
            name(&Case {
                supervisor: long,
                ..wiki()
            }),
            name(&Case {
                supervisor: longer,
                ..wiki()
            }),
        );
        assert_eq!(one.len(), "index_kafka_".len() + 160 + 1 + 15);
        assert_ne!(one, two);
    }
}
