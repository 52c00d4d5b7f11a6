//! The typed settings that services take. Field names are the key names of [`crate::keys`]; defaults stand
//! there and nowhere else, so a struct without its loader has no default of its own.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::secret::Secret;

/// Durations travel from the loader to the structs as whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
    pub(super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        u64::try_from(value.as_millis()).unwrap_or(u64::MAX).serialize(to)
    }
}

/// What every service takes.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct CommonConfig {
    pub log: LogConfig,
    pub telemetry: TelemetryConfig,
    pub protocol: ProtocolConfig,
    /// Longest time from SIGTERM to the end of the process.
    #[serde(with = "millis")]
    pub drain_timeout: Duration,
}

/// How the logs look.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct LogConfig {
    /// A level or a filter directive, e.g. `info,tidegate_kafka=debug`.
    pub level: String,
    pub format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for a person.
    Text,
    /// One JSON object a line.
    Json,
}

/// Where traces and metrics go beside the Prometheus endpoint.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct TelemetryConfig {
    /// OTLP over gRPC, e.g. `http://collector:4317`; absent = off.
    pub otlp_endpoint: Option<String>,
}

/// What peers are told.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub struct ProtocolConfig {
    /// Capabilities that are not told, separated by commas; absent = none.
    pub disable: Option<String>,
}

impl ProtocolConfig {
    /// Their names.
    pub fn disabled(&self) -> impl Iterator<Item = &str> {
        self.disable
            .iter()
            .flat_map(|names| names.split(','))
            .map(str::trim)
    }
}

/// The metadata store.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct MetadataConfig {
    /// `sqlite:///path/file.db` or `postgres://user:password@host/database`.
    pub url: Secret,
}

/// The object store.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ObjectsConfig {
    /// A plain path, `file:///path`, `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`.
    pub url: String,
    /// Address of an S3-compatible server (or of an emulator); absent = the cloud's own.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// S3: access key id. Azure: account name. Absent = what the environment of the process offers
    /// (profile, instance role, workload identity).
    pub access_key: Option<String>,
    /// S3: secret access key. Azure: account key. GCS: the service account document, as JSON.
    pub secret_key: Option<Secret>,
    /// Session token that belongs to temporary keys.
    pub session_token: Option<Secret>,
    /// Plain HTTP to `endpoint`.
    pub allow_http: bool,
    /// Bytes per part of an upload; `part_size` × `upload_concurrency` bounds the memory of one upload.
    pub part_size: u64,
    pub upload_concurrency: usize,
    /// Whole-object attempts of one upload before the error is given to the caller.
    pub upload_attempts: u32,
    /// Longest time that one request is repeated by the client.
    #[serde(with = "millis")]
    pub request_timeout: Duration,
}

impl ObjectsConfig {
    /// A local folder, for embedded use and tests; the numbers are the defaults of the key table.
    pub fn local(folder: &std::path::Path) -> Self {
        Self::at(folder.display().to_string())
    }

    /// A store by its address alone; the numbers are the defaults of the key table.
    pub fn at(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            endpoint: None,
            region: None,
            access_key: None,
            secret_key: None,
            session_token: None,
            allow_http: false,
            part_size: 8 << 20,
            upload_concurrency: 4,
            upload_attempts: 5,
            request_timeout: Duration::from_mins(5),
        }
    }
}

/// Where a service listens and how others reach it.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct ListenConfig {
    /// gRPC address to bind.
    pub listen: SocketAddr,
    /// Address for `/metrics` and `/livez`; absent = the port after `listen`'s.
    pub metrics_listen: Option<SocketAddr>,
    /// `http://host:port` that others use; absent = `http://` + `listen`.
    pub advertise: Option<String>,
}

impl ListenConfig {
    /// The address of `/metrics`: as given, else the next port (port 0 stays 0).
    pub fn metrics(&self) -> SocketAddr {
        self.metrics_listen.unwrap_or_else(|| {
            let mut address = self.listen;
            if address.port() != 0 {
                address.set_port(address.port().wrapping_add(1));
            }
            address
        })
    }

    /// The address that others use. `bound` is where the service really listens (it differs from `listen` when
    /// that asked for port 0).
    pub fn advertised(&self, bound: SocketAddr) -> String {
        self.advertise
            .clone()
            .unwrap_or_else(|| format!("http://{bound}"))
    }
}

/// `tidegate-coordinator`.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct CoordinatorConfig {
    #[serde(flatten)]
    pub common: CommonConfig,
    pub metadata: MetadataConfig,
    pub coordinator: CoordinatorSection,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct CoordinatorSection {
    #[serde(flatten)]
    pub address: ListenConfig,
    /// Address of the publisher.
    pub publisher: String,
    /// Address of the handoff-checker.
    pub handoff_checker: String,
    /// How often a runner is asked to send a heartbeat.
    #[serde(with = "millis")]
    pub heartbeat_interval: Duration,
    /// A runner that was silent for so long is gone and its tasks are replaced.
    #[serde(with = "millis")]
    pub runner_timeout: Duration,
    /// How long one RPC to a task may take.
    #[serde(with = "millis")]
    pub rpc_timeout: Duration,
    /// Life of the leader lease; it is renewed at a third of it.
    #[serde(with = "millis")]
    pub lease_duration: Duration,
}

/// `tidegate-task-runner`.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct RunnerConfig {
    #[serde(flatten)]
    pub common: CommonConfig,
    pub objects: ObjectsConfig,
    pub runner: RunnerSection,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct RunnerSection {
    #[serde(flatten)]
    pub address: ListenConfig,
    /// Address of the coordinator; several are separated by commas.
    pub coordinator: String,
    /// Address of the publisher.
    pub publisher: String,
    /// Address of the handoff-checker.
    pub handoff_checker: String,
    /// Tasks at the same time.
    pub slots: u32,
    /// Folder of the tasks' local state and of the runner's identity.
    pub work_dir: PathBuf,
    /// Bytes of rows that all tasks together hold in memory.
    pub memory_limit: u64,
    /// Bytes of spilled runs and unpublished segments that all tasks together keep on disk.
    pub disk_limit: u64,
    /// How long one RPC to another service may take.
    #[serde(with = "millis")]
    pub rpc_timeout: Duration,
}

/// `tidegate-publisher`.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct PublisherConfig {
    #[serde(flatten)]
    pub common: CommonConfig,
    pub metadata: MetadataConfig,
    pub objects: ObjectsConfig,
    pub publisher: PublisherSection,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct PublisherSection {
    #[serde(flatten)]
    pub address: ListenConfig,
    /// A staged object that no transaction refers to is swept after this time.
    #[serde(with = "millis")]
    pub sweep_grace: Duration,
    /// How often staged objects are looked through; 0 = never.
    #[serde(with = "millis")]
    pub sweep_interval: Duration,
}

/// `tidegate-handoff-checker`.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct HandoffConfig {
    #[serde(flatten)]
    pub common: CommonConfig,
    pub metadata: MetadataConfig,
    pub objects: ObjectsConfig,
    pub handoff: HandoffSection,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct HandoffSection {
    #[serde(flatten)]
    pub address: ListenConfig,
    /// Address of the publisher, whose catalog is followed.
    pub publisher: String,
    /// Which serving tier confirms a handoff.
    pub serving: ServingKind,
    /// `druid`: base address of the Druid coordinator or router.
    pub druid_url: Option<String>,
    /// `grpc`: address of the `SegmentServing` server.
    pub grpc_url: Option<String>,
    /// First wait between two checks of one segment; it doubles up to `max_backoff`.
    #[serde(with = "millis")]
    pub poll_interval: Duration,
    /// Longest wait between two checks of one segment.
    #[serde(with = "millis")]
    pub max_backoff: Duration,
    /// A segment that is pending for so long raises an alert (once); 0 = never.
    #[serde(with = "millis")]
    pub alert_after: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServingKind {
    /// The object itself is readable at its final key and in the catalog.
    ObjectStore,
    /// A Druid coordinator's handoff endpoint.
    Druid,
    /// Any server of `tidegate.serving.v1.SegmentServing`.
    Grpc,
}
