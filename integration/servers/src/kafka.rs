//! Apache Kafka in KRaft mode, one node or several; every node is broker and controller.
//!
//! Promises that `start` returns when every broker is alive in the eyes of the first, that a restarted node keeps
//! its ports and its data, and that topics are made only on purpose (no automatic creation: a test that forgets
//! its topic must hear of it). Never stops a Kafka that it did not start.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::docker::{self, Container};
use crate::kafka_probe::brokers_alive;
use crate::ports::{free_port, on_free_ports};
use crate::process::{Place, Process, Recipe, Signal, home};
use crate::{KAFKA_ADDRESS, address_from_environment, tools};

/// Two cores that also compile and test may be slow for a while.
const START_LIMIT: Duration = Duration::from_secs(90);
/// Start-up and footprint matter here, throughput does not.
const JAVA_FLAGS: [&str; 5] = [
    "-Xmx512m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Djava.awt.headless=true",
];
const LOG_SETTINGS: &str = "status=error
appender.console.type=Console
appender.console.name=stdout
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d{ISO8601} %p %c{1}: %m%n
rootLogger.level=warn
rootLogger.appenderRef.stdout.ref=stdout
";

/// How many nodes, and server properties beyond ours (they win).
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    pub nodes: usize,
    pub properties: Vec<(String, String)>,
}

impl Default for KafkaOptions {
    fn default() -> Self {
        Self {
            nodes: 1,
            properties: Vec::new(),
        }
    }
}

impl KafkaOptions {
    pub fn nodes(nodes: usize) -> Self {
        Self {
            nodes,
            ..Self::default()
        }
    }

    pub fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.to_owned(), value.to_owned()));
        self
    }
}

/// A Kafka that answers.
pub struct Kafka {
    bootstrap: String,
    nodes: Vec<Node>,
}

struct Node {
    process: Process,
    broker: SocketAddr,
    start: Start,
}

enum Start {
    Java { java: PathBuf, jars: PathBuf },
    Container { name: String },
}

impl Kafka {
    /// The Kafka of the environment if one is named there, else one node of our own.
    pub fn start() -> Result<Self> {
        match address_from_environment(KAFKA_ADDRESS) {
            Some(address) => Self::at(address),
            None => Self::start_own(KafkaOptions::default()),
        }
    }

    /// Like [`start`](Self::start), once for this process; it ends with the process.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<Kafka, String>> = OnceLock::new();
        SHARED
            .get_or_init(|| Self::start().map_err(|error| format!("{error:#}")))
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// A Kafka of one's own, whatever the environment says: for tests that stop it, kill it or set it up differently.
    pub fn start_own(options: KafkaOptions) -> Result<Self> {
        on_free_ports(|| Self::try_start(&options))
    }

    fn at(address: String) -> Result<Self> {
        let reachable = address.split(',').any(|one| {
            use std::net::ToSocketAddrs;
            one.trim()
                .to_socket_addrs()
                .into_iter()
                .flatten()
                .any(|socket| brokers_alive(socket).is_some())
        });
        if !reachable {
            bail!("no Kafka answers at {address} ({KAFKA_ADDRESS}): start it, or unset the variable");
        }
        Ok(Self {
            bootstrap: address,
            nodes: Vec::new(),
        })
    }

    fn try_start(options: &KafkaOptions) -> Result<Self> {
        if options.nodes == 0 {
            bail!("a Kafka without nodes was asked for: give at least one");
        }
        let local =
            docker::local_or_container(tools::java().and_then(|java| Ok((java, tools::kafka_jars()?))))?;
        let mut kafka = match local {
            Some((java, jars)) => Self::lay_out_local(options, &java, &jars)?,
            None => Self::lay_out_container(options)?,
        };
        for node in &mut kafka.nodes {
            node.spawn()?;
        }
        kafka.wait_until_ready()?;
        Ok(kafka)
    }

    fn lay_out_local(options: &KafkaOptions, java: &Path, jars: &Path) -> Result<Self> {
        let ports = ports_for(options.nodes)?;
        let cluster = cluster_id();
        let mut nodes = Vec::new();
        let mut formatting = Vec::new();
        for (index, &(broker, _)) in ports.iter().enumerate() {
            let process = Process::new(recipe(index, Place::Local), home("kafka")?)?;
            let settings = process.home().join("server.properties");
            let data = process.home().join("data");
            let mut properties = properties(&ports, index, "127.0.0.1", options);
            properties.push(("log.dirs".to_owned(), data.display().to_string()));
            std::fs::write(&settings, properties_text(&properties))?;
            std::fs::write(process.home().join("log4j2.properties"), LOG_SETTINGS)?;
            let mut command = java_command(java, jars, process.home());
            command
                .args(["kafka.tools.StorageTool", "format", "-t", &cluster, "-c"])
                .arg(&settings);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            formatting.push(command.spawn().context("cannot run Kafka's storage tool")?);
            nodes.push(Node {
                process,
                broker: SocketAddr::from((Ipv4Addr::LOCALHOST, broker)),
                start: Start::Java {
                    java: java.to_owned(),
                    jars: jars.to_owned(),
                },
            });
        }
        for child in formatting {
            let output = child.wait_with_output()?;
            if !output.status.success() {
                let words = String::from_utf8_lossy(&output.stdout).into_owned()
                    + &String::from_utf8_lossy(&output.stderr);
                bail!("Kafka's storage tool failed ({}):\n{words}", output.status);
            }
        }
        Ok(Self {
            bootstrap: bootstrap(&ports),
            nodes,
        })
    }

    fn lay_out_container(options: &KafkaOptions) -> Result<Self> {
        if options.nodes != 1 {
            bail!(
                "several Kafka nodes need local programs (containers would need a network of their own): install Java and Maven"
            );
        }
        let ports = ports_for(1)?;
        let (broker, _) = ports[0];
        let name = crate::unique_name("tidegate-kafka");
        let process = Process::new(recipe(0, Place::Container(name.clone())), home("kafka")?)?;
        let mut environment: Vec<(String, String)> = properties(&ports, 0, "0.0.0.0", options)
            .into_iter()
            .map(|(property, value)| (docker::kafka_variable(&property), value))
            .collect();
        environment.push(("CLUSTER_ID".to_owned(), cluster_id()));
        let container = Container {
            name: &name,
            image: docker::KAFKA_IMAGE,
            port: (broker, broker),
            environment: &environment,
            arguments: &[],
        };
        // Created now, so that `spawn` is the same command the first time and every time after.
        tools::run(&mut container.creation(), "creating Kafka's container")?;
        let node = Node {
            process,
            broker: SocketAddr::from((Ipv4Addr::LOCALHOST, broker)),
            start: Start::Container { name: name.clone() },
        };
        Ok(Self {
            bootstrap: bootstrap(&ports),
            nodes: vec![node],
        })
    }

    /// `host:port`, separated by commas when there are several nodes.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// Stops every node in an orderly way; data and ports stay for [`start_again`](Self::start_again).
    pub fn stop(&mut self) -> Result<()> {
        self.each_own_node(|node| node.process.stop())
    }

    /// SIGKILL to every node.
    pub fn kill9(&mut self) -> Result<()> {
        self.each_own_node(|node| node.process.kill9())
    }

    /// Starts the nodes that are not running, on their old ports with their old data.
    pub fn start_again(&mut self) -> Result<()> {
        self.each_own_node(|node| {
            if node.process.is_running() {
                Ok(())
            } else {
                node.spawn()
            }
        })?;
        self.wait_until_ready()
    }

    /// Stops what runs in an orderly way, then starts everything again.
    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.start_again()
    }

    /// SIGKILL to one node (counted from 0).
    pub fn kill9_node(&mut self, index: usize) -> Result<()> {
        self.node(index)?.process.kill9()
    }

    /// Stops one node (counted from 0) in an orderly way.
    pub fn stop_node(&mut self, index: usize) -> Result<()> {
        self.node(index)?.process.stop()
    }

    /// How many brokers are alive in the eyes of a running node.
    pub fn brokers_alive(&mut self) -> usize {
        let alive = self.nodes.iter_mut().filter_map(|node| {
            let broker = node.broker;
            node.process.is_running().then(|| brokers_alive(broker)).flatten()
        });
        alive.max().unwrap_or(0)
    }

    fn node(&mut self, index: usize) -> Result<&mut Node> {
        let count = self.nodes.len();
        self.nodes
            .get_mut(index)
            .with_context(|| format!("there is no Kafka node {index}: {count} were started here"))
    }

    fn each_own_node(&mut self, action: impl Fn(&mut Node) -> Result<()>) -> Result<()> {
        if self.nodes.is_empty() {
            bail!(
                "the Kafka at {} was not started here: use Kafka::start_own in tests that stop it",
                self.bootstrap
            );
        }
        self.nodes.iter_mut().try_for_each(action)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let count = self.nodes.len();
        for node in &mut self.nodes {
            let broker = node.broker;
            node.process.wait_until_ready(START_LIMIT, || {
                brokers_alive(broker).is_some_and(|alive| alive >= count)
            })?;
        }
        Ok(())
    }
}

impl Node {
    fn spawn(&mut self) -> Result<()> {
        let mut command = match &self.start {
            Start::Java { java, jars } => {
                let mut command = java_command(java, jars, self.process.home());
                command
                    .arg("kafka.Kafka")
                    .arg(self.process.home().join("server.properties"));
                command
            }
            Start::Container { name } => docker::start(name),
        };
        self.process.start(&mut command)
    }
}

fn recipe(index: usize, place: Place) -> Recipe {
    Recipe {
        name: format!("Kafka node {}", index + 1),
        place,
        stop: Signal::Terminate,
        drop: Signal::Kill,
    }
}

fn java_command(java: &Path, jars: &Path, home: &Path) -> Command {
    let mut command = Command::new(java);
    command.args(JAVA_FLAGS);
    command.arg(format!(
        "-Dlog4j2.configurationFile={}",
        home.join("log4j2.properties").display()
    ));
    command.arg("-cp").arg(jars.join("*"));
    command.current_dir(home);
    command
}

/// Broker and controller port of each node.
fn ports_for(nodes: usize) -> Result<Vec<(u16, u16)>> {
    (0..nodes).map(|_| Ok((free_port()?, free_port()?))).collect()
}

fn bootstrap(ports: &[(u16, u16)]) -> String {
    ports
        .iter()
        .map(|(broker, _)| format!("127.0.0.1:{broker}"))
        .collect::<Vec<_>>()
        .join(",")
}

/// Sixteen bytes in base64url without padding, as the storage tool wants; hexadecimal digits are of its alphabet,
/// and a last digit of `A` leaves no stray bits behind the sixteenth byte.
fn cluster_id() -> String {
    format!(
        "{:016x}{:05x}A",
        crate::random_bits(),
        crate::random_bits() & 0xf_ffff
    )
}

fn properties(
    ports: &[(u16, u16)],
    index: usize,
    listen: &str,
    options: &KafkaOptions,
) -> Vec<(String, String)> {
    let (broker, controller) = ports[index];
    let replication = ports.len().min(3);
    let in_sync = if replication == 3 { 2 } else { 1 };
    let voters: Vec<String> = ports
        .iter()
        .enumerate()
        .map(|(node, (_, controller))| format!("{}@127.0.0.1:{controller}", node + 1))
        .collect();
    let mut properties: Vec<(String, String)> = [
        ("process.roles", "broker,controller".to_owned()),
        ("node.id", (index + 1).to_string()),
        ("controller.quorum.voters", voters.join(",")),
        (
            "listeners",
            format!("BROKER://{listen}:{broker},CONTROLLER://127.0.0.1:{controller}"),
        ),
        ("advertised.listeners", format!("BROKER://127.0.0.1:{broker}")),
        (
            "listener.security.protocol.map",
            "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned(),
        ),
        ("inter.broker.listener.name", "BROKER".to_owned()),
        ("controller.listener.names", "CONTROLLER".to_owned()),
        ("auto.create.topics.enable", "false".to_owned()),
        ("default.replication.factor", replication.to_string()),
        ("min.insync.replicas", in_sync.to_string()),
        ("offsets.topic.num.partitions", "4".to_owned()),
        ("offsets.topic.replication.factor", replication.to_string()),
        ("transaction.state.log.num.partitions", "4".to_owned()),
        (
            "transaction.state.log.replication.factor",
            replication.to_string(),
        ),
        ("transaction.state.log.min.isr", in_sync.to_string()),
        ("share.coordinator.state.topic.num.partitions", "1".to_owned()),
        (
            "share.coordinator.state.topic.replication.factor",
            replication.to_string(),
        ),
        ("share.coordinator.state.topic.min.isr", in_sync.to_string()),
        ("group.initial.rebalance.delay.ms", "0".to_owned()),
        // A killed node is missed, and let in again, within seconds.
        ("broker.heartbeat.interval.ms", "500".to_owned()),
        ("broker.session.timeout.ms", "3000".to_owned()),
        // Eight times less than the default buffer; a heap of 512 MB is small.
        ("log.cleaner.dedupe.buffer.size", "16777216".to_owned()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect();
    for (name, value) in &options.properties {
        properties.retain(|(ours, _)| ours != name);
        properties.push((name.clone(), value.clone()));
    }
    properties
}

fn properties_text(properties: &[(String, String)]) -> String {
    properties
        .iter()
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect::<Vec<_>>()
        .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_property_of_the_test_replaces_ours() {
        let options = KafkaOptions::default()
            .property("auto.create.topics.enable", "true")
            .property("log.retention.ms", "1");
        let text = properties_text(&properties(&[(20_001, 20_002)], 0, "127.0.0.1", &options));
        let lines: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("auto.create") || line.starts_with("log.ret"))
            .collect();
        assert_eq!(lines, ["auto.create.topics.enable=true", "log.retention.ms=1"]);
    }

    #[test]
    fn three_nodes_vote_together_and_replicate_everything() {
        let ports = [(20_001, 20_011), (20_002, 20_012), (20_003, 20_013)];
        let text = properties_text(&properties(&ports, 1, "127.0.0.1", &KafkaOptions::nodes(3)));
        for line in [
            "node.id=2",
            "controller.quorum.voters=1@127.0.0.1:20011,2@127.0.0.1:20012,3@127.0.0.1:20013",
            "offsets.topic.replication.factor=3",
            "transaction.state.log.min.isr=2",
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is missing in {text}");
        }
        assert_eq!(
            bootstrap(&ports),
            "127.0.0.1:20001,127.0.0.1:20002,127.0.0.1:20003"
        );
    }

    #[test]
    fn a_cluster_id_is_twenty_two_characters_of_base64url() {
        let id = cluster_id();
        assert_eq!(id.len(), 22);
        assert!(id.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_ne!(id, cluster_id());
    }
}
