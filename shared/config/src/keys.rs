//! Every key with its default: the one place. `docs/configuration.md` is printed from these tables, and a test
//! keeps both the same.

use crate::key::{Default, Key, Kind};

const fn key(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Key {
    Key {
        name,
        kind,
        default: Default::Is(default),
        doc,
    }
}
const fn absent(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key {
        name,
        kind,
        default: Default::Absent,
        doc,
    }
}
const fn required(name: &'static str, kind: Kind, doc: &'static str) -> Key {
    Key {
        name,
        kind,
        default: Default::Required,
        doc,
    }
}

/// A part of the configuration with its heading and the services that read it.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    pub title: &'static str,
    pub read_by: &'static str,
    pub keys: &'static [Key],
}

/// Names that a handshake can carry.
pub const CAPABILITIES: &[&str] = &["checkpoint-now", "incremental-handoff", "timed-handoff"];

pub const COMMON: Table = Table {
    title: "Every service",
    read_by: "all four services",
    keys: &[
        key(
            "log.level",
            Kind::Text,
            "info",
            "A level (error, warn, info, debug, trace), or directives such as \
            `info,tidegate_kafka=debug`.",
        ),
        key(
            "log.format",
            Kind::Choice(&["text", "json"]),
            "text",
            "Lines for people, or one JSON object per line.",
        ),
        absent(
            "telemetry.otlp_endpoint",
            Kind::Address,
            "OTLP collector (gRPC), e.g. `http://collector:4317`, for \
            traces and metrics. Absent: off; the Prometheus endpoint is always there.",
        ),
        absent(
            "protocol.disable",
            Kind::Some(CAPABILITIES),
            "Capabilities that this service does not tell its peers, so that all binaries can be upgraded first and \
            a feature turned on later. Absent: none.",
        ),
        key(
            "drain_timeout",
            Kind::Duration,
            "30s",
            "Longest time from SIGTERM to the end of the process. Give the \
            orchestrator a little more.",
        ),
    ],
};

pub const METADATA: Table = Table {
    title: "Metadata store",
    read_by: "coordinator, publisher, handoff-checker",
    keys: &[required(
        "metadata.url",
        Kind::Secret,
        "`sqlite:///path/tidegate.db` or \
        `postgres://user:password@host/database`. The three services share one database.",
    )],
};

pub const OBJECTS: Table = Table {
    title: "Object store",
    read_by: "task-runner, publisher, handoff-checker",
    keys: &[
        required(
            "objects.url",
            Kind::Text,
            "A local path, `file:///path`, `s3://bucket/prefix`, `gs://bucket/prefix` \
            or `az://container/prefix`.",
        ),
        absent(
            "objects.endpoint",
            Kind::Address,
            "Address of an S3-compatible server. Absent: the cloud's own.",
        ),
        absent(
            "objects.region",
            Kind::Text,
            "Region of the bucket. Absent: what the process's environment says.",
        ),
        absent(
            "objects.access_key",
            Kind::Text,
            "S3: access key id. Azure: account name. Absent: what the process's \
            environment offers (profile, instance role, workload identity).",
        ),
        absent(
            "objects.secret_key",
            Kind::Secret,
            "S3: secret access key. Azure: account key. GCS: the service \
            account document, as JSON.",
        ),
        absent(
            "objects.session_token",
            Kind::Secret,
            "Session token that belongs to temporary S3 keys.",
        ),
        key(
            "objects.allow_http",
            Kind::Flag,
            "false",
            "Allow plain HTTP to `objects.endpoint`.",
        ),
        key(
            "objects.part_size",
            Kind::Size,
            "8MiB",
            "Bytes per part of a large upload, at least 5 MiB. Times \
            `objects.upload_concurrency`: the memory of one upload.",
        ),
        key(
            "objects.upload_concurrency",
            Kind::Count,
            "4",
            "Parts of one upload that are sent at the same time.",
        ),
        key(
            "objects.upload_attempts",
            Kind::Count,
            "5",
            "Whole-object attempts of one upload, each under a new key, \
            before the task is told and waits.",
        ),
        key(
            "objects.request_timeout",
            Kind::Duration,
            "5m",
            "Longest time for one request to the store, its \
            repetitions included.",
        ),
    ],
};

pub const COORDINATOR: Table = Table {
    title: "Coordinator",
    read_by: "coordinator",
    keys: &[
        key(
            "coordinator.listen",
            Kind::Listen,
            "127.0.0.1:7100",
            "gRPC address to bind.",
        ),
        absent(
            "coordinator.metrics_listen",
            Kind::Listen,
            "Address of `/metrics` and `/livez`. Absent: the port after \
            `coordinator.listen`.",
        ),
        absent(
            "coordinator.advertise",
            Kind::Address,
            "Address that others use; clients of a coordinator that stands by are sent to the \
            leader's. Absent: `coordinator.listen`. Each coordinator has one of its own.",
        ),
        key(
            "coordinator.publisher",
            Kind::Address,
            "http://127.0.0.1:7300",
            "Address of the publisher.",
        ),
        key(
            "coordinator.handoff_checker",
            Kind::Address,
            "http://127.0.0.1:7400",
            "Address of the handoff-checker.",
        ),
        key(
            "coordinator.heartbeat_interval",
            Kind::Duration,
            "2s",
            "How often runners are told to send a heartbeat.",
        ),
        key(
            "coordinator.runner_timeout",
            Kind::Duration,
            "15s",
            "A runner that is silent for so long is gone, and its \
            tasks are replaced. At least three heartbeats.",
        ),
        key(
            "coordinator.rpc_timeout",
            Kind::Duration,
            "10s",
            "Longest time for one call to a runner or a service.",
        ),
        key(
            "coordinator.lease_duration",
            Kind::Duration,
            "15s",
            "Life of the leader lease; renewed at a third of it. \
            A coordinator that stands by takes over when it was not renewed for so long.",
        ),
    ],
};

pub const RUNNER: Table = Table {
    title: "Task-runner",
    read_by: "task-runner",
    keys: &[
        key(
            "runner.listen",
            Kind::Listen,
            "127.0.0.1:7200",
            "gRPC address to bind.",
        ),
        absent(
            "runner.metrics_listen",
            Kind::Listen,
            "Address of `/metrics` and `/livez`. Absent: the port after \
            `runner.listen`.",
        ),
        absent(
            "runner.advertise",
            Kind::Address,
            "Address at which the coordinator reaches this runner. Absent: \
            `runner.listen`; must be set when that binds every interface.",
        ),
        key(
            "runner.coordinator",
            Kind::Addresses,
            "http://127.0.0.1:7100",
            "Address of the coordinator, or of several; the one that leads is found by way of any that answers.",
        ),
        key(
            "runner.publisher",
            Kind::Address,
            "http://127.0.0.1:7300",
            "Address of the publisher.",
        ),
        key(
            "runner.handoff_checker",
            Kind::Address,
            "http://127.0.0.1:7400",
            "Address of the handoff-checker.",
        ),
        key("runner.slots", Kind::Count, "4", "Tasks at the same time."),
        required(
            "runner.work_dir",
            Kind::Path,
            "Folder of the tasks' local state and of the runner's identity. It must \
            survive a restart and belong to this runner alone.",
        ),
        key(
            "runner.memory_limit",
            Kind::Size,
            "1GiB",
            "Rows in memory of all tasks together; beyond it tasks persist \
            earlier.",
        ),
        key(
            "runner.disk_limit",
            Kind::Size,
            "50GiB",
            "Spilled runs and unpublished segments of all tasks together; \
            beyond it reading waits.",
        ),
        key(
            "runner.rpc_timeout",
            Kind::Duration,
            "10s",
            "Longest time for one call to another service.",
        ),
    ],
};

pub const PUBLISHER: Table = Table {
    title: "Publisher",
    read_by: "publisher",
    keys: &[
        key(
            "publisher.listen",
            Kind::Listen,
            "127.0.0.1:7300",
            "gRPC address to bind.",
        ),
        absent(
            "publisher.metrics_listen",
            Kind::Listen,
            "Address of `/metrics` and `/livez`. Absent: the port after \
            `publisher.listen`.",
        ),
        absent(
            "publisher.advertise",
            Kind::Address,
            "Address that others use. Absent: `publisher.listen`.",
        ),
        key(
            "publisher.sweep_grace",
            Kind::Duration,
            "24h",
            "Staged objects that no transaction refers to are deleted \
            after this time. Longer than any publish may take.",
        ),
        key(
            "publisher.sweep_interval",
            Kind::Duration,
            "1h",
            "How often staged objects are looked through. 0: never.",
        ),
    ],
};

pub const HANDOFF: Table = Table {
    title: "Handoff-checker",
    read_by: "handoff-checker",
    keys: &[
        key(
            "handoff.listen",
            Kind::Listen,
            "127.0.0.1:7400",
            "gRPC address to bind.",
        ),
        absent(
            "handoff.metrics_listen",
            Kind::Listen,
            "Address of `/metrics` and `/livez`. Absent: the port after \
            `handoff.listen`.",
        ),
        absent(
            "handoff.advertise",
            Kind::Address,
            "Address that others use. Absent: `handoff.listen`.",
        ),
        key(
            "handoff.publisher",
            Kind::Address,
            "http://127.0.0.1:7300",
            "Address of the publisher, whose catalog is \
            followed.",
        ),
        key(
            "handoff.serving",
            Kind::Choice(&["object-store", "druid", "grpc"]),
            "object-store",
            "Who confirms that a \
            segment is served: the object itself, readable at its final key and in the catalog; a Druid coordinator; or \
            a server of `tidegate.serving.v1.SegmentServing`.",
        ),
        absent(
            "handoff.druid_url",
            Kind::Address,
            "Druid coordinator or router, for `handoff.serving = druid`.",
        ),
        absent(
            "handoff.grpc_url",
            Kind::Address,
            "SegmentServing server, for `handoff.serving = grpc`.",
        ),
        key(
            "handoff.poll_interval",
            Kind::Duration,
            "1s",
            "How often the catalog is read, and the first wait between \
            two checks of one segment; that one doubles up to `handoff.max_backoff`.",
        ),
        key(
            "handoff.max_backoff",
            Kind::Duration,
            "1m",
            "Longest wait between two checks of one segment.",
        ),
        key(
            "handoff.alert_after",
            Kind::Duration,
            "15m",
            "A segment that is pending for so long raises an alert, once, \
            and is checked on. 0: never.",
        ),
    ],
};

/// All tables, in the order of the docs.
pub const ALL: &[Table] = &[COMMON, METADATA, OBJECTS, COORDINATOR, RUNNER, PUBLISHER, HANDOFF];

/// The page for operators.
pub fn markdown() -> String {
    std::iter::once(INTRODUCTION.to_owned())
        .chain(ALL.iter().map(section))
        .collect()
}

fn section(table: &Table) -> String {
    let head = format!(
        "\n## {}\n\nRead by: {}.\n\n| key | value | default | meaning |\n|---|---|---|---|\n",
        table.title, table.read_by
    );
    std::iter::once(head).chain(table.keys.iter().map(row)).collect()
}

fn row(key: &Key) -> String {
    let default = match key.default {
        Default::Is(value) => format!("`{value}`"),
        Default::Absent => "absent".into(),
        Default::Required => "**must be set**".into(),
    };
    format!(
        "| `{}` | {} | {default} | {} |\n",
        key.name,
        key.kind.describe(),
        key.doc
    )
}

const INTRODUCTION: &str = "\
# Configuration

Printed from `shared/config/src/keys.rs`; a test keeps both the same. Write a new key there, then run
`TIDEGATE_WRITE_DOCS=1 cargo test -p tidegate-config` to print this page anew.

A key is set in these places; the later one wins:

1. the TOML file named by `--config FILE` or by `TIDEGATE_CONFIG` (`[coordinator]`, then `listen = \"0.0.0.0:7100\"`),
2. the environment: `TIDEGATE__COORDINATOR__LISTEN=0.0.0.0:7100`,
3. flags: `--set coordinator.listen=0.0.0.0:7100`.

One file may serve all services: each reads its own tables and leaves the others' alone. A key that no service knows is
an error that names the nearest known one and where it came from. `--check-config` prints every value with its source,
secrets masked, and ends with 0 when all is well.

Durations: `30s`, `5m`, `1h30m`, `500ms`, `PT30S`, or whole milliseconds. Sizes: `512MiB`, `2GB`, or whole bytes.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_docs_say_what_the_tables_say() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        if std::env::var_os("TIDEGATE_WRITE_DOCS").is_some() {
            std::fs::write(path, markdown()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page == markdown(),
            "docs/configuration.md differs; print it with TIDEGATE_WRITE_DOCS=1"
        );
    }

    #[test]
    fn names_are_unique_and_every_default_can_be_read() {
        let mut seen = std::collections::BTreeSet::new();
        for key in ALL.iter().flat_map(|table| table.keys) {
            assert!(seen.insert(key.name), "{} stands twice", key.name);
            assert!(
                key.name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c == '_' || c == '.'),
                "{}",
                key.name
            );
            assert!(
                !key.name.contains("__") && key.doc.ends_with(['.', ')']),
                "{}",
                key.name
            );
            if let Default::Is(value) = key.default {
                assert!(key.kind.parse(value).is_ok(), "{} = {value}", key.name);
            }
        }
    }
}
