//! The fields of `ioConfig`.

use super::{Section, is_empty, is_false, is_switched_off, later, never, note, yes};

pub(super) fn io_config() -> Vec<Section> {
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
