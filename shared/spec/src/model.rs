//! The typed form of an ingestion spec: what the rest of the house works with. Every default is spelled out.
//!
//! Promises: a value of these types has passed validation. The normalized JSON of a spec
//! (`SupervisorSpec::to_normalized_json`) parses back to an equal value.

use std::collections::BTreeMap;

use tidegate_types::{DataSource, Granularity, SupervisorId, TimestampMillis};

/// A whole supervisor spec.
#[derive(Debug, Clone, PartialEq)]
pub struct SupervisorSpec {
    pub id: SupervisorId,
    pub suspended: bool,
    pub data_schema: DataSchema,
    pub io: IoConfig,
    pub tuning: TuningConfig,
}

/// What a row looks like.
#[derive(Debug, Clone, PartialEq)]
pub struct DataSchema {
    pub data_source: DataSource,
    pub timestamp: TimestampSpec,
    pub dimensions: DimensionsSpec,
    pub metrics: Vec<MetricSpec>,
    pub granularity: GranularitySpec,
}

/// Where the time of a row is and how it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct TimestampSpec {
    pub column: String,
    pub format: TimestampFormat,
    /// Used when the column is missing or null; without it such a row is unparseable.
    pub missing_value: Option<TimestampMillis>,
}

/// How a time is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimestampFormat {
    /// ISO text, or milliseconds when it is a number or text of digits.
    Auto,
    Iso,
    /// Seconds.
    Posix,
    Millis,
    Micro,
    Nano,
    /// Seconds with a fraction.
    Ruby,
    /// A joda-style pattern, checked at validation.
    Pattern(String),
}

/// Which columns are dimensions.
#[derive(Debug, Clone, PartialEq)]
pub struct DimensionsSpec {
    /// In the order of the spec, which is the sort order behind time.
    pub dimensions: Vec<DimensionSpec>,
    /// True when the list was empty, or `includeAllDimensions` is set: other top-level fields become dimensions.
    pub discover: bool,
    /// Discover with types instead of all-string.
    pub typed_discovery: bool,
    /// Never dimensions (with discovery).
    pub exclusions: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DimensionSpec {
    pub name: String,
    pub kind: DimensionKind,
    pub multi_value: MultiValueHandling,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DimensionKind {
    String,
    Long,
    Float,
    Double,
    /// Nested values kept as JSON text.
    Json,
}

/// How several values of a string dimension are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MultiValueHandling {
    SortedArray,
    SortedSet,
    Array,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MetricSpec {
    /// Column of the result.
    pub name: String,
    pub kind: MetricKind,
    /// Field that is read; empty for count.
    pub field: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MetricKind {
    Count,
    LongSum,
    LongMin,
    LongMax,
    DoubleSum,
    DoubleMin,
    DoubleMax,
    FloatSum,
    FloatMin,
    FloatMax,
}

#[derive(Debug, Clone, PartialEq)]
pub struct GranularitySpec {
    pub segment: Granularity,
    /// Row times are floored to it.
    pub query: Granularity,
    /// Rows with equal (time, dimensions) become one.
    pub rollup: bool,
}

/// Where rows come from, and how tasks are run. `Debug` masks secrets (B68).
#[derive(Clone, PartialEq)]
pub struct IoConfig {
    pub topic: String,
    /// Kafka client settings as given (secrets included; masked wherever a spec is shown).
    pub consumer_properties: BTreeMap<String, String>,
    pub input_format: InputFormat,
    pub poll_timeout_millis: u64,
    pub replicas: u32,
    pub task_count: u32,
    pub task_duration_millis: u64,
    pub start_delay_millis: u64,
    pub period_millis: u64,
    pub completion_timeout_millis: u64,
    pub use_earliest_offset: bool,
    pub late_message_rejection_millis: Option<u64>,
    pub late_message_rejection_start: Option<TimestampMillis>,
    pub early_message_rejection_millis: Option<u64>,
}

/// How bytes become fields.
#[derive(Debug, Clone, PartialEq)]
pub enum InputFormat {
    Json(JsonFormat),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct JsonFormat {
    /// Fields taken by name or simple path, beside (or instead of) the discovered top-level ones.
    pub fields: Vec<FlattenField>,
    /// False: only the listed fields are seen.
    pub use_field_discovery: Option<bool>,
}

/// One field of a flattenSpec.
#[derive(Debug, Clone, PartialEq)]
pub struct FlattenField {
    pub name: String,
    pub source: FlattenSource,
}

#[derive(Debug, Clone, PartialEq)]
pub enum FlattenSource {
    /// A top-level key, literally (dots and all).
    Root(String),
    /// `$.a.b['c'][0]`: keys and indexes from the root, nothing else.
    Path(Vec<PathStep>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathStep {
    Key(String),
    Index(usize),
}

/// Bounds and budgets of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct TuningConfig {
    pub max_rows_in_memory: u64,
    /// 0 = the runner's share of its memory limit.
    pub max_bytes_in_memory: u64,
    pub max_pending_persists: u32,
    pub intermediate_persist_period_millis: u64,
    pub max_rows_per_segment: u64,
    /// `None` = no bound.
    pub max_total_rows: Option<u64>,
    /// Bytes of records in one segment that close the sequence; `None` = no bound.
    pub max_bytes_per_segment: Option<u64>,
    /// `None` = never.
    pub intermediate_handoff_period_millis: Option<u64>,
    /// 0 = wait for ever.
    pub handoff_condition_timeout_millis: u64,
    pub reset_offset_automatically: bool,
    pub offset_fetch_period_millis: u64,
    pub shutdown_timeout_millis: u64,
    pub log_parse_exceptions: bool,
    /// `None` = unlimited.
    pub max_parse_exceptions: Option<u64>,
    pub max_saved_parse_exceptions: u32,
    pub chat_retries: u32,
    pub http_timeout_millis: u64,
    pub segment_writer: SegmentWriterSpec,
    /// Runs merged at a time.
    pub merge_fan_in: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SegmentWriterSpec {
    pub zstd_level: i32,
    pub row_group_rows: u64,
    /// Columns with a bloom filter.
    pub bloom_filter: Vec<String>,
}
