//! Specs and a small reader of rows for the tests of this crate.

#![allow(dead_code, reason = "each test file uses a part")]

use tidegate_decode::{Decoder, Outcome, TimeBounds, Value};
use tidegate_spec::*;
use tidegate_types::{DataSource, Granularity};

/// A schema with `time` (auto), these dimensions and metrics; discovery when there are no dimensions.
pub(crate) fn schema(dimensions: &[(&str, DimensionKind)], metrics: &[(&str, MetricKind)]) -> DataSchema {
    DataSchema {
        data_source: DataSource::new("test").unwrap(),
        timestamp: TimestampSpec {
            column: "time".into(),
            format: TimestampFormat::Auto,
            missing_value: None,
        },
        dimensions: DimensionsSpec {
            dimensions: dimensions
                .iter()
                .map(|(name, kind)| DimensionSpec {
                    name: (*name).into(),
                    kind: *kind,
                    multi_value: MultiValueHandling::SortedArray,
                })
                .collect(),
            discover: dimensions.is_empty(),
            typed_discovery: false,
            exclusions: Vec::new(),
        },
        metrics: metrics
            .iter()
            .map(|(name, kind)| MetricSpec {
                name: (*name).into(),
                kind: *kind,
                field: (*name).into(),
            })
            .collect(),
        granularity: GranularitySpec {
            segment: Granularity::Hour,
            query: Granularity::None,
            rollup: false,
        },
    }
}

pub(crate) fn decoder(schema: &DataSchema) -> Decoder {
    with_format(schema, JsonFormat::default())
}

pub(crate) fn with_format(schema: &DataSchema, json: JsonFormat) -> Decoder {
    Decoder::new(
        schema,
        &InputFormat::Json(json),
        TimeBounds::default(),
        10_000_000,
    )
    .unwrap()
}

/// A row as text: time, declared values, then discovered ones by name.
pub(crate) fn row(decoder: &mut Decoder, record: &[u8]) -> Result<String, Outcome> {
    let mut bytes = record.to_vec();
    let columns = decoder.layout().columns.len();
    let mut text = String::new();
    let outcome = decoder.decode(Some(&mut bytes), |row| {
        text = row.time.to_string();
        for column in 0..columns {
            text.push('|');
            text.push_str(&show(row.value(column)));
        }
        let mut found: Vec<String> = row
            .discovered()
            .map(|(_, name, value)| format!("{name}={}", show(value)))
            .collect();
        found.sort();
        for one in found {
            text.push('|');
            text.push_str(&one);
        }
    });
    if outcome == Outcome::Accepted {
        Ok(text)
    } else {
        Err(outcome)
    }
}

fn show(value: Value<'_>) -> String {
    match value {
        Value::Null => "∅".into(),
        Value::Text(text) => text.into(),
        Value::Long(number) => format!("{number}L"),
        Value::Double(number) => format!("{number:?}D"),
        Value::Json(text) => format!("json:{text}"),
    }
}
