//! The table of every field a spec may have: type, default, effect and meaning.
//!
//! Promises: the parser knows no other field; `docs/spec.md` is printed from here and a test keeps it so; defaults
//! written here are those that the parser applies (a test compares them with the normalized form).

use std::sync::LazyLock;

use serde_json::Value;

/// What a field does in this release.
#[derive(Debug, Clone, Copy)]
pub enum Effect {
    /// It has its effect.
    Yes,
    /// Accepted with a warning: it concerns the original's own files or ways.
    Note,
    /// Known, and refused unless its value changes nothing (the function says so).
    Later(fn(&Value) -> bool),
}

/// One field.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    /// In words, for people.
    pub kind: &'static str,
    /// The default as JSON; empty when there is none to write (then `meaning` tells).
    pub default: &'static str,
    pub effect: Effect,
    pub meaning: &'static str,
}

/// One object of the document.
#[derive(Debug, Clone)]
pub struct Section {
    /// Path of the object without the `spec` wrapper; empty for the document itself.
    pub path: &'static str,
    /// What it is, for the documentation.
    pub about: &'static str,
    pub fields: Vec<Field>,
}

impl Section {
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().map(|field| field.name)
    }
}

/// Every section, in the order of the documentation.
pub fn sections() -> &'static [Section] {
    static SECTIONS: LazyLock<Vec<Section>> =
        LazyLock::new(|| [document(), data_schema(), io_config(), tuning_config()].concat());
    &SECTIONS
}

/// The section of a path that is in the table; the parser only asks for those.
pub(crate) fn section(path: &str) -> &'static Section {
    sections()
        .iter()
        .find(|section| section.path == path)
        .unwrap_or(&sections()[0])
}

const fn yes(name: &'static str, kind: &'static str, default: &'static str, meaning: &'static str) -> Field {
    Field {
        name,
        kind,
        default,
        effect: Effect::Yes,
        meaning,
    }
}
const fn note(name: &'static str, kind: &'static str, meaning: &'static str) -> Field {
    Field {
        name,
        kind,
        default: "",
        effect: Effect::Note,
        meaning,
    }
}
const fn later(
    name: &'static str,
    kind: &'static str,
    harmless: fn(&Value) -> bool,
    meaning: &'static str,
) -> Field {
    Field {
        name,
        kind,
        default: "",
        effect: Effect::Later(harmless),
        meaning,
    }
}

fn never(_: &Value) -> bool {
    false
}
fn is_false(value: &Value) -> bool {
    value == false
        || value
            .as_str()
            .is_some_and(|text| text.eq_ignore_ascii_case("false"))
}
fn is_true(value: &Value) -> bool {
    value == true
        || value
            .as_str()
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
}
fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
}
fn is_one(value: &Value) -> bool {
    value == 1 || value == "1"
}
fn is_minus_one(value: &Value) -> bool {
    value == -1 || value == "-1"
}
/// An object that says of itself that it is off.
fn is_switched_off(value: &Value) -> bool {
    let off = |field: &str| value.get(field).is_none_or(is_false);
    value.is_object() && off("enabled") && off("enableTaskAutoScaler")
}

fn document() -> Vec<Section> {
    vec![
        Section {
            path: "",
            about: "The document. `dataSchema`, `ioConfig` and `tuningConfig` stand in `spec` or directly here; a copy in both places (a server's answer has that) must be equal.",
            fields: vec![
                yes("type", "text", "\"kafka\"", "`kafka`, in any case."),
                yes("id", "text", "", "Supervisor id. Default: the data source."),
                yes("spec", "object", "", "Wrapper of the three objects."),
                yes("dataSchema", "object", "", "Required, here or in `spec`."),
                yes("ioConfig", "object", "", "Required, here or in `spec`."),
                yes(
                    "tuningConfig",
                    "object",
                    "{}",
                    "Bounds and budgets; may be left out.",
                ),
                yes("suspended", "boolean", "false", "Submitted, but no tasks run."),
                later("context", "object", is_empty, "Passed to tasks."),
            ],
        },
        Section {
            path: "spec",
            about: "The wrapper.",
            fields: vec![
                yes("type", "text", "\"kafka\"", "`kafka`, in any case."),
                yes("dataSchema", "object", "", "Required."),
                yes("ioConfig", "object", "", "Required."),
                yes("tuningConfig", "object", "{}", "May be left out."),
            ],
        },
    ]
}

fn data_schema() -> Vec<Section> {
    vec![
        Section {
            path: "dataSchema",
            about: "What a row looks like.",
            fields: vec![
                yes(
                    "dataSource",
                    "text",
                    "",
                    "Required. Name of the data source, also folder and key prefix: 1-255 bytes, no slash, no control characters, not `.` or `..`.",
                ),
                yes("timestampSpec", "object", "{}", "Where the time of a row is."),
                yes("dimensionsSpec", "object", "{}", "Which columns are dimensions."),
                yes("metricsSpec", "list", "[]", "What is aggregated."),
                yes("granularitySpec", "object", "{}", "How time is cut, and roll-up."),
                yes("transformSpec", "object", "{}", "Filter and transforms."),
                yes(
                    "parser",
                    "object",
                    "",
                    "The old form: `{type, parseSpec}` instead of `timestampSpec`, `dimensionsSpec` and `ioConfig.inputFormat`.",
                ),
            ],
        },
        Section {
            path: "dataSchema.timestampSpec",
            about: "The time of a row. A time outside -9998-01-01 to 9999-12-30 makes the row unparseable.",
            fields: vec![
                yes("column", "text", "\"timestamp\"", "The field it is in."),
                yes(
                    "format",
                    "text",
                    "\"auto\"",
                    "`auto` (a plain number is milliseconds, else ISO-8601, with a zone name behind a space if any), `iso`, `posix` (seconds), `millis`, `micro`, `nano`, `ruby` (seconds with fraction), or a joda pattern (letters y M d D E H k K h m s S a z Z; two-digit years are 1970-2069). Without a zone: UTC.",
                ),
                yes(
                    "missingValue",
                    "time",
                    "null",
                    "ISO-8601 or milliseconds; taken when the column is missing or null. Without it such a row is unparseable.",
                ),
            ],
        },
        Section {
            path: "dataSchema.dimensionsSpec",
            about: "The dimensions, in sort order.",
            fields: vec![
                yes(
                    "dimensions",
                    "list",
                    "[]",
                    "Names (string dimensions) or objects, see below. Empty: discover them from the rows.",
                ),
                yes(
                    "dimensionExclusions",
                    "list of texts",
                    "[]",
                    "Never discovered as dimensions.",
                ),
                yes(
                    "includeAllDimensions",
                    "boolean",
                    "false",
                    "The listed ones first, then discovered ones.",
                ),
                yes(
                    "useSchemaDiscovery",
                    "boolean",
                    "false",
                    "Discover beside the listed ones, with types instead of all-string.",
                ),
                later("spatialDimensions", "list", is_empty, "Spatial dimensions."),
                later(
                    "forceSegmentSortByTime",
                    "boolean",
                    is_true,
                    "Rows are sorted by time first.",
                ),
            ],
        },
        Section {
            path: "dataSchema.dimensionsSpec.dimensions[]",
            about: "One dimension as an object. `__time` is reserved.",
            fields: vec![
                yes(
                    "type",
                    "text",
                    "\"string\"",
                    "`string`, `long`, `float`, `double` or `json`, in any case.",
                ),
                yes("name", "text", "", "Required, once only."),
                yes(
                    "multiValueHandling",
                    "text",
                    "\"SORTED_ARRAY\"",
                    "`SORTED_ARRAY`, `SORTED_SET` or `ARRAY`: how several values of a string are kept.",
                ),
                note(
                    "createBitmapIndex",
                    "boolean",
                    "it concerns the index files of the original",
                ),
            ],
        },
        Section {
            path: "dataSchema.metricsSpec[]",
            about: "One metric. Its name is neither a dimension's nor another metric's.",
            fields: vec![
                yes(
                    "type",
                    "text",
                    "",
                    "Required: `count`, `longSum`, `longMin`, `longMax`, `doubleSum`, `doubleMin`, `doubleMax`, `floatSum`, `floatMin` or `floatMax`, in any case.",
                ),
                yes("name", "text", "", "Required. Column of the result."),
                yes(
                    "fieldName",
                    "text",
                    "",
                    "The field that is read. Required but for `count`.",
                ),
                later("expression", "text", never, "Computed instead of `fieldName`."),
            ],
        },
        Section {
            path: "dataSchema.granularitySpec",
            about: "How time is cut. A granularity is a name (`SECOND`, `MINUTE`, `FIVE_MINUTE`, `TEN_MINUTE`, `FIFTEEN_MINUTE`, `THIRTY_MINUTE`, `HOUR`, `SIX_HOUR`, `EIGHT_HOUR`, `DAY`, `WEEK`, `MONTH`, `QUARTER`, `YEAR`, `ALL`, `NONE`; any case), an ISO-8601 period, `{type: period, period, timeZone, origin}` or `{type: duration, duration, origin}`. In a zone days follow the local calendar and hours the local clock.",
            fields: vec![
                yes("type", "text", "\"uniform\"", "`uniform`."),
                yes(
                    "segmentGranularity",
                    "granularity",
                    "\"DAY\"",
                    "Interval of a segment.",
                ),
                yes(
                    "queryGranularity",
                    "granularity",
                    "\"NONE\"",
                    "Row times are floored to it.",
                ),
                yes(
                    "rollup",
                    "boolean",
                    "true",
                    "Rows with equal time and dimensions become one.",
                ),
                note("intervals", "list", "a stream has no fixed intervals"),
            ],
        },
        Section {
            path: "dataSchema.transformSpec",
            about: "Changes to rows before they are stored.",
            fields: vec![
                later("filter", "object", never, "Keeps the rows that match."),
                later("transforms", "list", is_empty, "Computed fields."),
            ],
        },
        Section {
            path: "dataSchema.parser",
            about: "The old form.",
            fields: vec![
                yes("type", "text", "\"string\"", "`string`."),
                yes("parseSpec", "object", "", "Required."),
            ],
        },
        Section {
            path: "dataSchema.parser.parseSpec",
            about: "What the old form holds.",
            fields: vec![
                yes("format", "text", "", "Required: `json`."),
                yes("timestampSpec", "object", "{}", "As `dataSchema.timestampSpec`."),
                yes(
                    "dimensionsSpec",
                    "object",
                    "{}",
                    "As `dataSchema.dimensionsSpec`.",
                ),
                yes(
                    "flattenSpec",
                    "object",
                    "",
                    "As `ioConfig.inputFormat.flattenSpec`.",
                ),
                later(
                    "featureSpec",
                    "object",
                    is_empty,
                    "Switches of the original's JSON library.",
                ),
                later(
                    "keepNullColumns",
                    "boolean",
                    is_false,
                    "Keep columns that only have nulls.",
                ),
            ],
        },
    ]
}

fn io_config() -> Vec<Section> {
    vec![
        Section {
            path: "ioConfig",
            about: "Where rows come from, and how tasks are run.",
            fields: vec![
                yes("type", "text", "\"kafka\"", "`kafka`, in any case."),
                yes("topic", "text", "", "Required. The topic."),
                yes("stream", "text", "", "The same as `topic`."),
                later(
                    "topicPattern",
                    "text",
                    never,
                    "All topics whose whole name matches.",
                ),
                yes(
                    "consumerProperties",
                    "object",
                    "",
                    "Kafka client settings; `bootstrap.servers` is required. Values are texts, numbers or booleans, or a reference to a secret: `{\"type\": \"environment\", \"variable\": \"NAME\"}` or `{\"type\": \"file\", \"path\": \"/run/secrets/x\"}`. Secrets are masked wherever a spec is shown.",
                ),
                yes(
                    "inputFormat",
                    "object",
                    "",
                    "Required unless `dataSchema.parser` is given. How bytes become fields.",
                ),
                yes("pollTimeout", "milliseconds", "100", "How long one poll waits."),
                yes(
                    "replicas",
                    "number",
                    "1",
                    "Tasks per group, each on another runner.",
                ),
                yes(
                    "taskCount",
                    "number",
                    "1",
                    "Groups that the partitions are divided into, at most.",
                ),
                yes(
                    "taskDuration",
                    "period",
                    "\"PT1H\"",
                    "How long a group reads before it publishes.",
                ),
                yes(
                    "startDelay",
                    "period",
                    "\"PT5S\"",
                    "Wait before the supervisor first looks.",
                ),
                yes("period", "period", "\"PT30S\"", "How often the supervisor looks."),
                yes(
                    "completionTimeout",
                    "period",
                    "\"PT30M\"",
                    "How long publishing and handoff may take before the group is replaced.",
                ),
                yes(
                    "useEarliestOffset",
                    "boolean",
                    "false",
                    "Where a supervisor without committed offsets begins: the earliest offset, else the latest. Partitions found later always begin at the earliest.",
                ),
                yes(
                    "useEarliestSequenceNumber",
                    "boolean",
                    "false",
                    "The same as `useEarliestOffset`.",
                ),
                yes(
                    "lateMessageRejectionPeriod",
                    "period",
                    "null",
                    "Rows older than the group's creation less this are rejected.",
                ),
                yes(
                    "lateMessageRejectionStartDateTime",
                    "time",
                    "null",
                    "Rows before this are rejected; not together with the period.",
                ),
                yes(
                    "earlyMessageRejectionPeriod",
                    "period",
                    "null",
                    "Rows later than the group's creation plus task duration plus this are rejected.",
                ),
                later(
                    "autoScalerConfig",
                    "object",
                    is_switched_off,
                    "Changes the number of groups by lag.",
                ),
                later(
                    "idleConfig",
                    "object",
                    is_switched_off,
                    "No new tasks while nothing comes.",
                ),
                later(
                    "stopTaskCount",
                    "number",
                    never,
                    "How many groups may roll over at a time.",
                ),
                later(
                    "rateLimit",
                    "object",
                    never,
                    "Rows and bytes per second and task.",
                ),
                later("deadLetter", "object", never, "Where unparseable records go."),
                note("configOverrides", "object", "it concerns the original's consumer"),
                note("appendToExisting", "boolean", "rows are always appended"),
                note("pauseAfterRead", "boolean", "it concerns tests of the original"),
            ],
        },
        Section {
            path: "ioConfig.inputFormat",
            about: "How bytes become fields.",
            fields: vec![
                yes("type", "text", "", "Required: `json`, in any case."),
                yes("flattenSpec", "object", "", "Fields from within nested values."),
                later(
                    "featureSpec",
                    "object",
                    is_empty,
                    "Switches of the original's JSON library.",
                ),
                later(
                    "keepNullColumns",
                    "boolean",
                    is_false,
                    "Keep columns that only have nulls.",
                ),
                later(
                    "assumeNewlineDelimited",
                    "boolean",
                    is_false,
                    "Several objects in one message, one a line.",
                ),
                later(
                    "useJsonNodeReader",
                    "boolean",
                    is_false,
                    "Several objects in one message.",
                ),
            ],
        },
        Section {
            path: "ioConfig.inputFormat.flattenSpec",
            about: "Fields from within nested values.",
            fields: vec![
                yes(
                    "useFieldDiscovery",
                    "boolean",
                    "true",
                    "False: only the listed fields are seen.",
                ),
                yes(
                    "fields",
                    "list",
                    "[]",
                    "Names of top-level keys, or objects, see below.",
                ),
            ],
        },
        Section {
            path: "ioConfig.inputFormat.flattenSpec.fields[]",
            about: "One field.",
            fields: vec![
                yes(
                    "type",
                    "text",
                    "\"root\"",
                    "`root` (a top-level key, literally, dots and all) or `path` (keys and indexes from the root: `$.a['b c'][0]`).",
                ),
                yes("name", "text", "", "Required, once only."),
                yes(
                    "expr",
                    "text",
                    "",
                    "The key or the path. Default for `root`: the name.",
                ),
                later("nodes", "list", is_empty, "The way of a `tree` field."),
            ],
        },
    ]
}

fn tuning_config() -> Vec<Section> {
    vec![
        Section {
            path: "tuningConfig",
            about: "Bounds and budgets of a task.",
            fields: vec![
                yes("type", "text", "\"kafka\"", "`kafka`, in any case."),
                yes(
                    "maxRowsInMemory",
                    "number",
                    "150000",
                    "Rows kept in memory before they are persisted.",
                ),
                yes(
                    "maxBytesInMemory",
                    "number",
                    "0",
                    "Bytes kept in memory before they are persisted; 0 = the runner's share of its memory limit.",
                ),
                yes(
                    "maxPendingPersists",
                    "number",
                    "0",
                    "Persists that may wait beside the one that runs.",
                ),
                yes(
                    "intermediatePersistPeriod",
                    "period",
                    "\"PT10M\"",
                    "Persist at least this often.",
                ),
                yes(
                    "maxRowsPerSegment",
                    "number",
                    "5000000",
                    "Accepted rows after which a segment is full.",
                ),
                yes(
                    "maxTotalRows",
                    "number",
                    "20000000",
                    "Rows in all unpublished segments of a task; -1 = no bound.",
                ),
                yes(
                    "intermediateHandoffPeriod",
                    "period",
                    "\"P2147483647D\"",
                    "Publish at least this often; `P2147483647D` = never.",
                ),
                yes(
                    "handoffConditionTimeout",
                    "milliseconds",
                    "900000",
                    "How long a task waits for handoff; after that it alerts and succeeds. 0 = wait for ever.",
                ),
                yes(
                    "resetOffsetAutomatically",
                    "boolean",
                    "false",
                    "Jump when the wanted offsets are gone, instead of failing.",
                ),
                yes(
                    "offsetFetchPeriod",
                    "period",
                    "\"PT30S\"",
                    "How often lag is measured; at least PT5S.",
                ),
                yes(
                    "shutdownTimeout",
                    "period",
                    "\"PT1M20S\"",
                    "How long tasks have to stop gracefully.",
                ),
                yes(
                    "reportParseExceptions",
                    "boolean",
                    "false",
                    "The old way to say `maxParseExceptions` 0; true wins.",
                ),
                yes(
                    "logParseExceptions",
                    "boolean",
                    "false",
                    "Log each unparseable record.",
                ),
                yes(
                    "maxParseExceptions",
                    "number",
                    "2147483647",
                    "Unparseable records in the life of a task before it fails; 2147483647 = unlimited.",
                ),
                yes(
                    "maxSavedParseExceptions",
                    "number",
                    "0",
                    "Newest unparseable records kept for the report.",
                ),
                yes(
                    "chatRetries",
                    "number",
                    "8",
                    "Times a call to a task is repeated.",
                ),
                yes(
                    "httpTimeout",
                    "period",
                    "\"PT10S\"",
                    "Deadline of one call to a task.",
                ),
                yes("segmentWriter", "object", "{}", "How Parquet files are written."),
                yes(
                    "mergeFanIn",
                    "number",
                    "16",
                    "Persisted runs merged at a time; at least 2.",
                ),
                later(
                    "maxBytesPerSegment",
                    "number",
                    never,
                    "Bytes after which a segment is full.",
                ),
                later("numPersistThreads", "number", is_one, "Threads that persist."),
                later(
                    "maxColumnsToMerge",
                    "number",
                    is_minus_one,
                    "Columns merged at a time; -1 = no bound.",
                ),
                note(
                    "workerThreads",
                    "number",
                    "the coordinator does not divide its work by threads",
                ),
                note(
                    "chatThreads",
                    "number",
                    "calls to tasks are not divided by threads",
                ),
                note(
                    "indexSpec",
                    "object",
                    "it concerns the segment files of the original",
                ),
                note(
                    "indexSpecForIntermediatePersists",
                    "object",
                    "it concerns the segment files of the original",
                ),
                note(
                    "appendableIndexSpec",
                    "object",
                    "it concerns the in-memory index of the original",
                ),
                note(
                    "segmentWriteOutMediumFactory",
                    "object",
                    "it concerns the segment files of the original",
                ),
                note(
                    "skipBytesInMemoryOverheadCheck",
                    "boolean",
                    "bytes in memory are always counted in full",
                ),
                note(
                    "skipSequenceNumberAvailabilityCheck",
                    "boolean",
                    "offsets are always checked",
                ),
                note("releaseLocksOnHandoff", "boolean", "there are no interval locks"),
                note(
                    "repartitionTransitionDuration",
                    "period",
                    "it concerns another kind of stream",
                ),
                note(
                    "basePersistDirectory",
                    "text",
                    "the runner chooses where tasks keep their files",
                ),
                note(
                    "buildV9Directly",
                    "boolean",
                    "it concerns the segment files of the original",
                ),
            ],
        },
        Section {
            path: "tuningConfig.segmentWriter",
            about: "How Parquet files are written.",
            fields: vec![
                yes("format", "text", "\"parquet\"", "`parquet`."),
                yes("compression", "text", "\"zstd\"", "`zstd`."),
                yes("level", "number", "1", "Level of zstd, 1 to 22."),
                yes("rowGroupRows", "number", "262144", "Rows of a row group."),
                yes(
                    "bloomFilter",
                    "list of texts",
                    "[]",
                    "Columns with a bloom filter.",
                ),
            ],
        },
    ]
}
