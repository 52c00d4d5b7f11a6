//! The normalized form of a spec: every default spelled out, in a fixed order.
//!
//! Promises: [`SupervisorSpec::parse`] reads it back as an equal value, so that what is stored, shown and submitted
//! again stays the same spec.

use serde_json::{Value, json};
use tidegate_types::format_period_millis;
use tidegate_types::period::NEVER_MILLIS;

use crate::model::{
    DataSchema, DimensionKind, DimensionSpec, FlattenField, FlattenSource, InputFormat, IoConfig, MetricKind,
    MetricSpec, MultiValueHandling, SupervisorSpec, TuningConfig,
};
use crate::parse::{UNLIMITED, metric_kind_name};
use crate::path::format_path;
use crate::secrets::mask_secrets;

impl SupervisorSpec {
    /// With secrets: for storage and for tasks, never for people.
    pub fn to_normalized_json(&self) -> Value {
        json!({
            "type": "kafka",
            "id": self.id.as_str(),
            "suspended": self.suspended,
            "spec": {
                "dataSchema": data_schema(&self.data_schema),
                "ioConfig": io_config(&self.io),
                "tuningConfig": tuning_config(&self.tuning),
            },
        })
    }

    /// The normalized form as it may be shown: secrets are masked (B68).
    pub fn masked_json(&self) -> Value {
        let mut document = self.to_normalized_json();
        mask_secrets(&mut document);
        document
    }
}

pub(crate) fn data_schema(schema: &DataSchema) -> Value {
    let dimensions = &schema.dimensions;
    json!({
        "dataSource": schema.data_source.as_str(),
        "timestampSpec": {
            "column": schema.timestamp.column,
            "format": schema.timestamp.format.as_text(),
            "missingValue": schema.timestamp.missing_value.map(|time| time.to_string()),
        },
        "dimensionsSpec": {
            "dimensions": dimensions.dimensions.iter().map(dimension).collect::<Vec<_>>(),
            "dimensionExclusions": dimensions.exclusions,
            "includeAllDimensions":
                dimensions.discover && !dimensions.dimensions.is_empty() && !dimensions.typed_discovery,
            "useSchemaDiscovery": dimensions.typed_discovery,
        },
        "metricsSpec": schema.metrics.iter().map(metric).collect::<Vec<_>>(),
        "granularitySpec": {
            "type": "uniform",
            "segmentGranularity": schema.granularity.segment.to_json(),
            "queryGranularity": schema.granularity.query.to_json(),
            "rollup": schema.granularity.rollup,
        },
    })
}

fn dimension(dimension: &DimensionSpec) -> Value {
    json!({
        "type": match dimension.kind {
            DimensionKind::String => "string",
            DimensionKind::Long => "long",
            DimensionKind::Float => "float",
            DimensionKind::Double => "double",
            DimensionKind::Json => "json",
        },
        "name": dimension.name,
        "multiValueHandling": match dimension.multi_value {
            MultiValueHandling::SortedArray => "SORTED_ARRAY",
            MultiValueHandling::SortedSet => "SORTED_SET",
            MultiValueHandling::Array => "ARRAY",
        },
    })
}

fn metric(metric: &MetricSpec) -> Value {
    let kind = metric_kind_name(metric.kind);
    match metric.kind {
        MetricKind::Count => json!({"type": kind, "name": metric.name}),
        _ => json!({"type": kind, "name": metric.name, "fieldName": metric.field}),
    }
}

pub(crate) fn input_format(format: &InputFormat) -> Value {
    let InputFormat::Json(json) = format;
    json!({
        "type": "json",
        "flattenSpec": {
            "useFieldDiscovery": json.use_field_discovery.unwrap_or(true),
            "fields": json.fields.iter().map(flatten_field).collect::<Vec<_>>(),
        },
    })
}

fn flatten_field(field: &FlattenField) -> Value {
    let (kind, expression) = match &field.source {
        FlattenSource::Root(key) => ("root", key.clone()),
        FlattenSource::Path(steps) => ("path", format_path(steps)),
    };
    json!({"type": kind, "name": field.name, "expr": expression})
}

fn io_config(io: &IoConfig) -> Value {
    json!({
        "type": "kafka",
        "topic": io.topic,
        "consumerProperties": io.consumer_properties,
        "inputFormat": input_format(&io.input_format),
        "pollTimeout": io.poll_timeout_millis,
        "replicas": io.replicas,
        "taskCount": io.task_count,
        "taskDuration": format_period_millis(io.task_duration_millis),
        "startDelay": format_period_millis(io.start_delay_millis),
        "period": format_period_millis(io.period_millis),
        "completionTimeout": format_period_millis(io.completion_timeout_millis),
        "useEarliestOffset": io.use_earliest_offset,
        "lateMessageRejectionPeriod": io.late_message_rejection_millis.map(format_period_millis),
        "lateMessageRejectionStartDateTime": io.late_message_rejection_start.map(|time| time.to_string()),
        "earlyMessageRejectionPeriod": io.early_message_rejection_millis.map(format_period_millis),
    })
}

pub(crate) fn tuning_config(tuning: &TuningConfig) -> Value {
    let handoff = tuning.intermediate_handoff_period_millis.unwrap_or(NEVER_MILLIS);
    let total_rows = match tuning.max_total_rows {
        Some(rows) => json!(rows),
        None => json!(-1),
    };
    let mut fields = json!({
        "type": "kafka",
        "maxRowsInMemory": tuning.max_rows_in_memory,
        "maxBytesInMemory": tuning.max_bytes_in_memory,
        "maxPendingPersists": tuning.max_pending_persists,
        "intermediatePersistPeriod": format_period_millis(tuning.intermediate_persist_period_millis),
        "maxRowsPerSegment": tuning.max_rows_per_segment,
        "maxTotalRows": total_rows,
        "intermediateHandoffPeriod": format_period_millis(handoff),
        "handoffConditionTimeout": tuning.handoff_condition_timeout_millis,
        "resetOffsetAutomatically": tuning.reset_offset_automatically,
        "offsetFetchPeriod": format_period_millis(tuning.offset_fetch_period_millis),
        "shutdownTimeout": format_period_millis(tuning.shutdown_timeout_millis),
        "logParseExceptions": tuning.log_parse_exceptions,
        "maxParseExceptions": tuning.max_parse_exceptions.unwrap_or(UNLIMITED),
        "maxSavedParseExceptions": tuning.max_saved_parse_exceptions,
        "chatRetries": tuning.chat_retries,
        "httpTimeout": format_period_millis(tuning.http_timeout_millis),
        "segmentWriter": {
            "format": "parquet",
            "compression": "zstd",
            "level": tuning.segment_writer.zstd_level,
            "rowGroupRows": tuning.segment_writer.row_group_rows,
            "bloomFilter": tuning.segment_writer.bloom_filter,
        },
        "mergeFanIn": tuning.merge_fan_in,
    });
    // Newer than the names of sequences: it appears only when it is given.
    if let Some(bytes) = tuning.max_bytes_per_segment {
        fields["maxBytesPerSegment"] = json!(bytes);
    }
    fields
}
