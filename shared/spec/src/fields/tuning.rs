//! The fields of `tuningConfig`.

use super::{Section, is_minus_one, is_one, later, note, yes};

pub(super) fn tuning_config() -> Vec<Section> {
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
                yes(
                    "maxBytesPerSegment",
                    "number",
                    "-1",
                    "Bytes of records in one segment after which its sequence is closed; -1 = no bound.",
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
