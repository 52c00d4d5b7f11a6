//! The fields of `dataSchema`.

use super::{Section, is_empty, is_false, is_true, later, never, note, yes};

pub(super) fn data_schema() -> Vec<Section> {
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
