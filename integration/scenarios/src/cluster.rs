//! A whole installation on loopback: Kafka, PostgreSQL, S3 and the four services as processes of their own.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use object_store::ObjectStoreExt as _;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::types::RDKafkaErrorCode;
use serde_json::Value;
use tidegate_rpc::coordinator::v1::{
    ListSegmentsRequest, SegmentInfo, StatusRequest, StatusResponse, SubmitRequest, SuspendRequest,
};
use tidegate_rpc::publisher::v1::VerifyRequest;
use tidegate_rpc::{Transport, clients, status};
use tidegate_servers::{Kafka, Postgres, S3, free_port};
use tokio::runtime::Runtime;

/// One of our four services; there may be several task-runners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Service {
    Coordinator,
    TaskRunner,
    Publisher,
    HandoffChecker,
}

impl Service {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Coordinator => "coordinator",
            Self::TaskRunner => "task-runner",
            Self::Publisher => "publisher",
            Self::HandoffChecker => "handoff-checker",
        }
    }
    /// Section of its settings.
    fn section(self) -> &'static str {
        match self {
            Self::Coordinator => "COORDINATOR",
            Self::TaskRunner => "RUNNER",
            Self::Publisher => "PUBLISHER",
            Self::HandoffChecker => "HANDOFF",
        }
    }
}

struct Process {
    child: Child,
    binary: PathBuf,
    settings: BTreeMap<String, String>,
    log: PathBuf,
}

impl Process {
    fn start(binary: PathBuf, settings: BTreeMap<String, String>, log: PathBuf) -> Result<Self> {
        let output = File::options().create(true).append(true).open(&log)?;
        let child = Command::new(&binary)
            .env_clear()
            .envs(
                std::env::vars()
                    .filter(|(name, _)| name == "PATH" || name == "HOME" || name == "RUST_BACKTRACE"),
            )
            .envs(&settings)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("cannot start {}", binary.display()))?;
        Ok(Self {
            child,
            binary,
            settings,
            log,
        })
    }
}

/// Stops (SIGKILL) whatever still runs when it is dropped.
pub(crate) struct Cluster {
    processes: BTreeMap<(Service, usize), Process>,
    runtime: Runtime,
    coordinator: String,
    bucket: AmazonS3,
    kafka: Kafka,
    _postgres: Postgres,
    _s3: S3,
    folder: tempfile::TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.processes.values_mut() {
            // It may have ended already; then there is nothing to stop.
            let _ = process.child.kill();
            let _ = process.child.wait();
        }
        if std::thread::panicking() || std::env::var_os("TIDEGATE_KEEP_LOGS").is_some() {
            self.folder.disable_cleanup(true);
            eprintln!("logs: {}", self.folder.path().display());
        }
    }
}

fn binary(service: Service) -> Result<PathBuf> {
    let beside = std::env::current_exe()?;
    let mut folder = beside.parent().context("no folder")?.to_owned();
    if folder.ends_with("deps") {
        folder.pop();
    }
    let path = folder.join(format!("tidegate-{}", service.name()));
    ensure!(
        path.exists(),
        "{} is not built: cargo build --workspace --bins",
        path.display()
    );
    Ok(path)
}

impl Cluster {
    /// Starts everything, with so many task-runners, and waits until each service says that it serves.
    pub(crate) fn start(runners: usize) -> Result<Self> {
        let runtime = Runtime::new()?;
        let folder = tempfile::Builder::new().prefix("tidegate-scenario-").tempdir()?;
        let (kafka, postgres, s3) = (Kafka::start()?, Postgres::start()?, S3::start()?);
        let bucket_name = format!("tidegate-{}", std::process::id());
        s3.create_bucket(&bucket_name)?;
        let bucket = AmazonS3Builder::new()
            .with_endpoint(s3.endpoint())
            .with_region("us-east-1")
            .with_access_key_id(s3.access_key())
            .with_secret_access_key(s3.secret_key())
            .with_bucket_name(&bucket_name)
            .with_allow_http(true)
            .build()?;
        let mut shared: BTreeMap<String, String> = BTreeMap::new();
        let mut set = |key: &str, value: String| {
            shared.insert(format!("TIDEGATE__{key}"), value);
        };
        set("METADATA__URL", postgres.fresh_database_url()?);
        set("OBJECTS__URL", format!("s3://{bucket_name}"));
        set("OBJECTS__ENDPOINT", s3.endpoint().to_owned());
        set("OBJECTS__REGION", "us-east-1".to_owned());
        set("OBJECTS__ACCESS_KEY", s3.access_key().to_owned());
        set("OBJECTS__SECRET_KEY", s3.secret_key().to_owned());
        set("OBJECTS__ALLOW_HTTP", "true".to_owned());
        set(
            "LOG__LEVEL",
            std::env::var("TIDEGATE_LOG").unwrap_or_else(|_| "info".to_owned()),
        );
        let mut addresses = BTreeMap::new();
        for service in [Service::Coordinator, Service::Publisher, Service::HandoffChecker] {
            addresses.insert(service, format!("127.0.0.1:{}", free_port()?));
        }
        let http = |service: Service| format!("http://{}", addresses[&service]);
        let mut cluster = Self {
            processes: BTreeMap::new(),
            coordinator: http(Service::Coordinator),
            runtime,
            bucket,
            kafka,
            _postgres: postgres,
            _s3: s3,
            folder,
        };
        for (service, number) in [
            (Service::Publisher, 1),
            (Service::HandoffChecker, 1),
            (Service::Coordinator, 1),
        ]
        .into_iter()
        .chain((1..=runners).map(|number| (Service::TaskRunner, number)))
        {
            let section = service.section();
            // A service is given the settings that it knows, and no others.
            let mut settings: BTreeMap<String, String> = shared
                .iter()
                .filter(|(key, _)| {
                    let metadata = key.starts_with("TIDEGATE__METADATA");
                    let objects = key.starts_with("TIDEGATE__OBJECTS");
                    !(metadata && service == Service::TaskRunner
                        || objects && service == Service::Coordinator)
                })
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            let mut set = |key: &str, value: String| {
                settings.insert(format!("TIDEGATE__{section}__{key}"), value);
            };
            let listen = match addresses.get(&service) {
                Some(address) => address.clone(),
                None => format!("127.0.0.1:{}", free_port()?),
            };
            set("LISTEN", listen);
            set("METRICS_LISTEN", "127.0.0.1:0".to_owned());
            match service {
                Service::Coordinator => {
                    set("PUBLISHER", http(Service::Publisher));
                    set("HANDOFF_CHECKER", http(Service::HandoffChecker));
                    set("HEARTBEAT_INTERVAL", "500ms".to_owned());
                    set("RUNNER_TIMEOUT", "10s".to_owned());
                }
                Service::TaskRunner => {
                    set("COORDINATOR", http(Service::Coordinator));
                    set("PUBLISHER", http(Service::Publisher));
                    set("HANDOFF_CHECKER", http(Service::HandoffChecker));
                    set("SLOTS", "16".to_owned());
                    set(
                        "WORK_DIR",
                        cluster
                            .folder
                            .path()
                            .join(format!("runner-{number}"))
                            .display()
                            .to_string(),
                    );
                }
                Service::HandoffChecker => {
                    set("PUBLISHER", http(Service::Publisher));
                    set("POLL_INTERVAL", "200ms".to_owned());
                }
                Service::Publisher => {}
            }
            let log = cluster
                .folder
                .path()
                .join(format!("{}-{number}.log", service.name()));
            let process = Process::start(binary(service)?, settings, log)?;
            cluster.processes.insert((service, number), process);
            cluster.wait_until_serving(service, number)?;
        }
        Ok(cluster)
    }

    pub(crate) fn bootstrap(&self) -> &str {
        self.kafka.bootstrap()
    }

    /// Ends every service by SIGTERM; each must exit by itself with 0 in bounded time.
    pub(crate) fn stop(mut self) -> Result<()> {
        for ((service, _), process) in &mut self.processes {
            let asked = Command::new("kill")
                .args(["-TERM", &process.child.id().to_string()])
                .status()?;
            ensure!(asked.success(), "cannot send SIGTERM to {}", service.name());
        }
        for ((service, _), process) in &mut self.processes {
            let (child, log) = (&mut process.child, &process.log);
            let exit = wait("a service to drain", Duration::from_secs(40), || {
                Ok(child.try_wait()?)
            })?;
            ensure!(
                exit.success(),
                "{} drained with {exit}; log: {}",
                service.name(),
                tail(log)
            );
        }
        self.processes.clear();
        Ok(())
    }

    /// SIGKILL to every process of this service, then the same command again.
    pub(crate) fn kill9_and_restart(&mut self, service: Service) -> Result<()> {
        let numbers: Vec<usize> = self
            .processes
            .keys()
            .filter(|(found, _)| *found == service)
            .map(|(_, number)| *number)
            .collect();
        for number in numbers {
            let mut process = self
                .processes
                .remove(&(service, number))
                .context("no such process")?;
            process.child.kill()?;
            process.child.wait()?;
            let again = Process::start(process.binary, process.settings, process.log)?;
            self.processes.insert((service, number), again);
            self.wait_until_serving(service, number)?;
        }
        Ok(())
    }

    /// SIGKILL; nobody starts it again.
    pub(crate) fn kill9_for_good(&mut self, service: Service, number: usize) -> Result<()> {
        let mut process = self
            .processes
            .remove(&(service, number))
            .context("no such process")?;
        process.child.kill()?;
        process.child.wait()?;
        Ok(())
    }

    /// True once every group that reads has all its replicas placed, each on a runner of its own.
    pub(crate) fn replicas_are_apart(&self, supervisor: &str) -> Result<bool> {
        wait(
            "replicas to be on different runners",
            Duration::from_secs(30),
            || {
                let status = self.status(supervisor)?;
                let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
                for task in status.reading {
                    let group = task.status.map(|status| status.group_id).unwrap_or_default();
                    groups.entry(group).or_default().push(task.runner_id);
                }
                let apart = |on: &Vec<String>| {
                    on.len() == 2 && on[0] != on[1] && on.iter().all(|runner| !runner.is_empty())
                };
                Ok((!groups.is_empty() && groups.values().all(apart)).then_some(true))
            },
        )
    }

    fn wait_until_serving(&mut self, service: Service, number: usize) -> Result<()> {
        let process = self
            .processes
            .get_mut(&(service, number))
            .context("no such process")?;
        let key = format!("TIDEGATE__{}__LISTEN", service.section());
        let _inside = self.runtime.enter();
        let transport = Transport::connect(&format!("http://{}", process.settings[&key]))?;
        let (child, log, runtime) = (&mut process.child, &process.log, &self.runtime);
        wait(
            &format!("{} to serve", service.name()),
            Duration::from_secs(30),
            || {
                if let Some(exit) = child.try_wait()? {
                    bail!("{} ended with {exit}: {}", service.name(), tail(log));
                }
                let serving = runtime.block_on(tidegate_rpc::health::check(transport.clone()));
                Ok(serving.is_ok_and(|serving| serving).then_some(()))
            },
        )
    }

    pub(crate) fn create_topic(&self, name: &str, partitions: i32) -> Result<()> {
        let admin: AdminClient<DefaultClientContext> = ClientConfig::new()
            .set("bootstrap.servers", self.bootstrap())
            .create()?;
        let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
        let results = self
            .runtime
            .block_on(admin.create_topics([&topic], &AdminOptions::new()))?;
        for result in results {
            result.map_err(|(topic, code)| anyhow::anyhow!("cannot create topic {topic}: {code}"))?;
        }
        Ok(())
    }

    /// Sends the values round-robin over the partitions and waits until the broker has them.
    pub(crate) fn produce<'a>(
        &self,
        topic: &str,
        values: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Result<()> {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", self.bootstrap())
            .set("enable.idempotence", "true")
            .set("compression.type", "lz4")
            .set("message.max.bytes", "10000000")
            .create()?;
        let partitions = producer
            .client()
            .fetch_metadata(Some(topic), Duration::from_secs(10))?
            .topics()
            .first()
            .map_or(1, |topic| topic.partitions().len()) as i32;
        for (number, value) in values.enumerate() {
            let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic)
                .key(b"key".as_slice())
                .partition(number as i32 % partitions);
            record.payload = value;
            while let Err((error, same)) = producer.send(record) {
                if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                    return Err(error.into());
                }
                producer.poll(Duration::from_millis(100));
                record = same;
            }
        }
        producer.flush(Duration::from_mins(1))?;
        Ok(())
    }

    fn supervisors(&self) -> Result<clients::SupervisorClient> {
        let _inside = self.runtime.enter();
        Ok(clients::supervisor(Transport::connect(&self.coordinator)?))
    }

    /// Repeats a call while the service is away, for at most a minute.
    fn call<T, F>(&self, what: &str, call: impl Fn(clients::SupervisorClient) -> F) -> Result<T>
    where
        F: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let client = self.supervisors()?;
        wait(what, Duration::from_mins(1), || {
            match self.runtime.block_on(call(client.clone())) {
                Ok(answer) => Ok(Some(answer.into_inner())),
                Err(refusal) if status::is_retryable(&refusal) => Ok(None),
                Err(refusal) => {
                    bail!(
                        "{what}: {} {:?}",
                        refusal.message(),
                        status::field_violations(&refusal)
                    )
                }
            }
        })
    }

    pub(crate) fn submit(&self, spec: &Value) -> Result<()> {
        let request = SubmitRequest {
            spec_json: spec.to_string(),
        };
        self.call("submit", |mut client| {
            let request = request.clone();
            async move { client.submit(request).await }
        })?;
        Ok(())
    }

    pub(crate) fn suspend(&self, supervisor: &str) -> Result<()> {
        let request = SuspendRequest {
            supervisor_id: supervisor.to_owned(),
        };
        self.call("suspend", |mut client| {
            let request = request.clone();
            async move { client.suspend(request).await }
        })?;
        Ok(())
    }

    pub(crate) fn status(&self, supervisor: &str) -> Result<StatusResponse> {
        let request = StatusRequest {
            supervisor_id: supervisor.to_owned(),
        };
        self.call("status", |mut client| {
            let request = request.clone();
            async move { client.status(request).await }
        })
    }

    /// Until tasks have read (or committed) so many offsets, over all partitions.
    pub(crate) fn wait_until_read(&self, supervisor: &str, offsets: u64, within: Duration) -> Result<()> {
        self.wait_for(
            supervisor,
            &format!("{offsets} records to be read"),
            within,
            |status| {
                let at: i64 = status
                    .partitions
                    .iter()
                    .filter_map(|partition| partition.current.max(partition.committed))
                    .sum();
                at >= offsets as i64
            },
        )
    }

    /// Until something was read of the piece with this number; a piece that is read already passes at once.
    pub(crate) fn wait_until_progress(&self, supervisor: &str, piece: usize) -> Result<()> {
        self.wait_until_read(supervisor, piece as u64 * 1_000 + 1, Duration::from_mins(2))
    }

    /// Until all is committed, no task is left, and every segment is handed off.
    pub(crate) fn wait_until_published(
        &self,
        supervisor: &str,
        offsets: u64,
        within: Duration,
    ) -> Result<()> {
        self.wait_for(
            supervisor,
            "everything to be published and handed off",
            within,
            |status| {
                let committed: i64 = status
                    .partitions
                    .iter()
                    .filter_map(|partition| partition.committed)
                    .sum();
                committed >= offsets as i64
                    && status.reading.is_empty()
                    && status.publishing.is_empty()
                    && status.segments == status.segments_handed_off
            },
        )
    }

    fn wait_for(
        &self,
        supervisor: &str,
        what: &str,
        within: Duration,
        done: impl Fn(&StatusResponse) -> bool,
    ) -> Result<()> {
        let mut last = None;
        let waited = wait(&format!("{supervisor}: {what}"), within, || {
            let status = self.status(supervisor)?;
            let done = done(&status);
            last = Some(status);
            Ok(done.then_some(()))
        });
        waited.with_context(|| {
            let logs: Vec<String> = self
                .processes
                .iter()
                .map(|((service, number), process)| {
                    format!("--- {} {number}: {}", service.name(), tail(&process.log))
                })
                .collect();
            format!("last status: {last:#?}\n{}", logs.join("\n"))
        })
    }

    /// All segments of a data source, page by page.
    pub(crate) fn segments(&self, data_source: &str) -> Result<Vec<SegmentInfo>> {
        let mut all = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = ListSegmentsRequest {
                data_source: data_source.to_owned(),
                page_token,
                ..ListSegmentsRequest::default()
            };
            let page = self.call("segment list", |mut client| {
                let request = request.clone();
                async move { client.list_segments(request).await }
            })?;
            all.extend(page.segments);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// `tidegate verify --deep`: each offset is in exactly one segment, and every object is what was published.
    pub(crate) fn prove(&self, data_source: &str) -> Result<()> {
        let mut request = VerifyRequest {
            data_source: data_source.to_owned(),
            deep: true,
            ..VerifyRequest::default()
        };
        loop {
            let page = self.call("verify", |mut client| {
                let request = request.clone();
                async move { client.verify(request).await }
            })?;
            ensure!(
                page.findings.is_empty(),
                "verify {data_source}: {:#?}",
                page.findings
            );
            request.page_token = page.next_page_token;
            if request.page_token.is_empty() {
                return Ok(());
            }
        }
    }

    /// The bytes of one object.
    pub(crate) fn object(&self, key: &str) -> Result<Vec<u8>> {
        let path = object_store::path::Path::parse(key)?;
        let store = Arc::new(&self.bucket);
        let bytes = self
            .runtime
            .block_on(async { store.get(&path).await?.bytes().await });
        Ok(bytes.with_context(|| format!("cannot read {key}"))?.to_vec())
    }
}

/// Asks again until there is an answer; the bound is on the whole wait.
pub(crate) fn wait<T>(what: &str, within: Duration, mut ask: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        ensure!(
            begun.elapsed() < within,
            "waited {} s for {what}",
            within.as_secs()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn tail(log: &PathBuf) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}
