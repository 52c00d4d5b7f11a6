//! `tuningConfig`.

use tidegate_types::period::NEVER_MILLIS;

use super::kafka_type;
use crate::document::Node;
use crate::fields::section;
use crate::issue::Findings;
use crate::model::{DataSchema, SegmentWriterSpec, TuningConfig};
use crate::reader::Reader;
use crate::suggest::{did_you_mean, shown};

/// Path, place and name of a column that has to exist.
pub(super) type NamedColumn = (String, usize, String);

/// What counts as unlimited, since the original's numbers have 32 bits.
pub(crate) const UNLIMITED: u64 = i32::MAX as u64;

pub(super) fn defaults() -> (TuningConfig, Vec<NamedColumn>) {
    let config = TuningConfig {
        max_rows_in_memory: 150_000,
        max_bytes_in_memory: 0,
        max_pending_persists: 0,
        intermediate_persist_period_millis: 600_000,
        max_rows_per_segment: 5_000_000,
        max_total_rows: Some(20_000_000),
        max_bytes_per_segment: None,
        intermediate_handoff_period_millis: None,
        handoff_condition_timeout_millis: 900_000,
        reset_offset_automatically: false,
        offset_fetch_period_millis: 30_000,
        shutdown_timeout_millis: 80_000,
        log_parse_exceptions: false,
        max_parse_exceptions: None,
        max_saved_parse_exceptions: 0,
        chat_retries: 8,
        http_timeout_millis: 10_000,
        segment_writer: default_writer(),
        merge_fan_in: 16,
    };
    (config, Vec::new())
}

fn default_writer() -> SegmentWriterSpec {
    SegmentWriterSpec {
        zstd_level: 1,
        row_group_rows: 262_144,
        bloom_filter: Vec::new(),
    }
}

pub(super) fn read(
    node: &Node,
    path: &str,
    findings: &mut Findings<'_>,
) -> Option<(TuningConfig, Vec<NamedColumn>)> {
    let reader = Reader::open(node, path, section("tuningConfig"), findings)?;
    kafka_type(&reader, findings);
    let (default, mut columns) = defaults();
    let segment_writer = match reader.node("segmentWriter") {
        Some(node) => read_writer(node, &reader.path_of("segmentWriter"), &mut columns, findings),
        None => default.segment_writer,
    };
    let period = |name: &str, least: u64, default: u64, findings: &mut Findings<'_>| {
        reader.period(name, least, findings).unwrap_or(default)
    };
    let config = TuningConfig {
        max_rows_in_memory: reader.count("maxRowsInMemory", 1, default.max_rows_in_memory, findings),
        max_bytes_in_memory: reader.count("maxBytesInMemory", 0, default.max_bytes_in_memory, findings),
        max_pending_persists: reader.small_count(
            "maxPendingPersists",
            0,
            default.max_pending_persists,
            findings,
        ),
        intermediate_persist_period_millis: period(
            "intermediatePersistPeriod",
            1,
            default.intermediate_persist_period_millis,
            findings,
        ),
        max_rows_per_segment: reader.count("maxRowsPerSegment", 1, default.max_rows_per_segment, findings),
        max_total_rows: read_bound(&reader, "maxTotalRows", default.max_total_rows, findings),
        max_bytes_per_segment: read_bound(
            &reader,
            "maxBytesPerSegment",
            default.max_bytes_per_segment,
            findings,
        ),
        intermediate_handoff_period_millis: reader
            .period("intermediateHandoffPeriod", 1, findings)
            .filter(|millis| *millis < NEVER_MILLIS),
        handoff_condition_timeout_millis: reader.count(
            "handoffConditionTimeout",
            0,
            default.handoff_condition_timeout_millis,
            findings,
        ),
        reset_offset_automatically: reader.flag("resetOffsetAutomatically", false, findings),
        offset_fetch_period_millis: period(
            "offsetFetchPeriod",
            5_000,
            default.offset_fetch_period_millis,
            findings,
        ),
        shutdown_timeout_millis: period("shutdownTimeout", 0, default.shutdown_timeout_millis, findings),
        log_parse_exceptions: reader.flag("logParseExceptions", false, findings),
        max_parse_exceptions: read_max_parse_exceptions(&reader, findings),
        max_saved_parse_exceptions: reader.small_count("maxSavedParseExceptions", 0, 0, findings),
        chat_retries: reader.small_count("chatRetries", 0, default.chat_retries, findings),
        http_timeout_millis: period("httpTimeout", 1, default.http_timeout_millis, findings),
        segment_writer,
        merge_fan_in: reader.small_count("mergeFanIn", 2, default.merge_fan_in, findings),
    };
    Some((config, columns))
}

/// -1 = no bound.
fn read_bound(
    reader: &Reader<'_>,
    name: &str,
    default: Option<u64>,
    findings: &mut Findings<'_>,
) -> Option<u64> {
    match reader.integer(name, -1..=i64::MAX, findings) {
        None => default,
        Some(-1) => None,
        Some(0) => {
            reader.error(name, "must be at least 1, or -1 for no bound, not 0", findings);
            default
        }
        Some(bound) => Some(bound.unsigned_abs()),
    }
}

/// `reportParseExceptions` is the old way to say 0, and wins.
fn read_max_parse_exceptions(reader: &Reader<'_>, findings: &mut Findings<'_>) -> Option<u64> {
    let given = reader
        .integer("maxParseExceptions", 0..=i64::MAX, findings)
        .map(i64::unsigned_abs);
    let limit = given.filter(|limit| *limit < UNLIMITED);
    if !reader.flag("reportParseExceptions", false, findings) {
        return limit;
    }
    if limit.is_some_and(|limit| limit > 0) {
        let message = "has no effect, since `reportParseExceptions` is true, which means 0";
        reader.warning("maxParseExceptions", message, findings);
    }
    Some(0)
}

fn read_writer(
    node: &Node,
    path: &str,
    columns: &mut Vec<NamedColumn>,
    findings: &mut Findings<'_>,
) -> SegmentWriterSpec {
    let default = default_writer();
    let Some(reader) = Reader::open(node, path, section("tuningConfig.segmentWriter"), findings) else {
        return default;
    };
    reader.word("format", &[("parquet", ())], &[], findings);
    reader.word(
        "compression",
        &[("zstd", ())],
        &["lz4", "snappy", "none", "uncompressed"],
        findings,
    );
    let level = reader
        .integer("level", 1..=22, findings)
        .and_then(|level| i32::try_from(level).ok());
    let mut bloom_filter: Vec<String> = Vec::new();
    for (item_path, item, name) in reader.texts("bloomFilter", findings) {
        if bloom_filter.iter().any(|known| known == name) {
            findings.error(item.at, item_path, format!("{} is given twice", shown(name)));
            continue;
        }
        bloom_filter.push(name.to_owned());
        columns.push((item_path, item.at, name.to_owned()));
    }
    SegmentWriterSpec {
        zstd_level: level.unwrap_or(default.zstd_level),
        row_group_rows: reader.count("rowGroupRows", 1, default.row_group_rows, findings),
        bloom_filter,
    }
}

/// With discovery nobody can know which columns there will be.
pub(super) fn check_columns(columns: &[NamedColumn], schema: &DataSchema, findings: &mut Findings<'_>) {
    if schema.dimensions.discover {
        return;
    }
    for (path, at, name) in columns {
        let mut known = schema
            .dimensions
            .dimensions
            .iter()
            .map(|dimension| dimension.name.as_str());
        if !known.clone().any(|dimension| dimension == name) {
            let hint = did_you_mean(name, &mut known);
            findings.error(
                *at,
                path.as_str(),
                format!("{} is not a dimension{hint}", shown(name)),
            );
        }
    }
}
