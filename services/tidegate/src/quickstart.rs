//! `tidegate quickstart`: the whole way of a record in one process, with a check of every total.
//!
//! The walk: an in-process broker and all four services are started; a spec goes in through the public gRPC API over
//! a loopback port; generated events are produced in step with the reader; when all are read the supervisor is
//! suspended, which publishes them; when every segment is handed off, the Parquet files of the catalog are read and
//! compared with what the generator says it made. Each run has a supervisor, a topic and a data source of its own,
//! so that a folder can be used again.

mod check;
mod display;
mod produce;
mod spec;
mod watch;

use std::time::{Duration, Instant};

use tidegate_config::Sources;
use tidegate_kafka::MockBroker;
use tidegate_process::asked_to_end;
use tidegate_rpc::coordinator::v1 as api;
use tidegate_telemetry::Metrics;
use tokio::net::TcpListener;

use crate::all_in_one::{AllInOne, AllSettings};
use crate::cli::{Output, QuickstartArgs};
use crate::client::Coordinator;
use crate::commands::Outcome;
use crate::failure::Failure;
use crate::generator::GeneratorSettings;
use crate::serve::{embedded, make_folder};

use display::Display;

/// Partitions of the topic.
const PARTITIONS: u16 = 4;

/// Names of one run.
#[derive(Debug, Clone)]
struct Names {
    supervisor: String,
    topic: String,
    data_source: String,
}

/// Begins every name of a quickstart, so that what a killed run left behind is recognized.
const PREFIX: &str = "wikipedia-";

impl Names {
    fn new() -> Self {
        let now = std::time::SystemTime::now();
        let millis = now
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| since.as_millis());
        let name = format!("{PREFIX}{millis}");
        Self {
            supervisor: name.clone(),
            topic: name.clone(),
            data_source: name,
        }
    }
}

pub(crate) async fn quickstart(arguments: &QuickstartArgs, output: Output) -> Result<Outcome, Failure> {
    let data_dir = std::path::absolute(&arguments.data_dir)
        .map_err(|error| Failure::Other(format!("{} is no folder: {error}", arguments.data_dir.display())))?;
    make_folder(&data_dir)?;
    let sources = embedded(Sources::new(), &data_dir)
        .program("log.level", "warn")
        .program("coordinator.listen", "127.0.0.1:0")
        .program("coordinator.heartbeat_interval", "250ms")
        .program("handoff.poll_interval", "250ms")
        .program("runner.slots", "8");
    let settings = AllSettings::load(&sources)?;
    let metrics = Metrics::new("tidegate");
    let telemetry = tidegate_telemetry::init("tidegate", settings.common(), &metrics)
        .map_err(|error| Failure::Other(format!("telemetry: {error}")))?;
    let listener = TcpListener::bind(settings.coordinator.coordinator.address.listen)
        .await
        .map_err(|error| Failure::Other(format!("no free loopback port: {error}")))?;
    let services = AllInOne::start(&settings, listener, &metrics).await?;
    let run = Run {
        names: Names::new(),
        generator: GeneratorSettings {
            seed: arguments.seed,
            events: arguments.events,
            partitions: PARTITIONS,
            ..GeneratorSettings::default()
        },
        to: Coordinator::at(services.address())?,
        objects: data_dir.join("objects"),
        output,
    };
    let address = services.address().to_owned();
    let ended = tokio::select! {
        ended = run.go(&address) => ended,
        () = asked_to_end() => Err(Failure::Other("stopped before the end; run it again, on the same folder if you like".into())),
    };
    let ended = match ended {
        Ok(checked) => checked.finish(arguments.keep_running, &address).await,
        Err(failure) => Err(failure),
    };
    services.drain().await;
    telemetry.flush().await;
    ended
}

struct Run {
    names: Names,
    generator: GeneratorSettings,
    to: Coordinator,
    objects: std::path::PathBuf,
    output: Output,
}

impl Run {
    async fn go(mut self, address: &str) -> Result<Checked, Failure> {
        let began = Instant::now();
        self.end_earlier_runs().await?;
        let broker = start_broker(self.names.topic.clone()).await?;
        let spec = spec::supervisor_spec(&self.names, broker.bootstrap_servers());
        self.submit(spec).await?;
        let mut display = Display::new(self.generator.events);
        display.say(&format!(
            "supervisor {} reads topic {} of an in-process broker at {}; the API is at {address}",
            self.names.supervisor,
            self.names.topic,
            broker.bootstrap_servers()
        ));
        let producing = produce::start(
            broker.bootstrap_servers().to_owned(),
            self.names.topic.clone(),
            self.generator,
        );
        let made = watch::until_read(&mut self.to, &self.names.supervisor, producing, &mut display).await?;
        self.suspend().await?;
        let status =
            watch::until_handed_off(&mut self.to, &self.names.supervisor, &made, &mut display).await?;
        let took = began.elapsed();
        display.finish();
        let segments = self
            .to
            .segments(&self.names.data_source, &self.names.supervisor)
            .await?;
        let report = check::compare(&made, &status, segments, &self.objects, took).await?;
        report.print(self.output, &self.objects, &self.names.data_source)?;
        Ok(Checked {
            run: self,
            report,
            broker,
        })
    }

    async fn submit(&mut self, spec: serde_json::Value) -> Result<(), Failure> {
        let request = api::SubmitRequest {
            spec_json: spec.to_string(),
        };
        self.to
            .api
            .submit(request)
            .await
            .map(drop)
            .map_err(Failure::rpc(&self.to.server))
    }

    async fn suspend(&mut self) -> Result<(), Failure> {
        let request = api::SuspendRequest {
            supervisor_id: self.names.supervisor.clone(),
        };
        self.to
            .api
            .suspend(request)
            .await
            .map(drop)
            .map_err(Failure::rpc(&self.to.server))
    }

    async fn resume(&mut self) -> Result<(), Failure> {
        let request = api::ResumeRequest {
            supervisor_id: self.names.supervisor.clone(),
        };
        self.to
            .api
            .resume(request)
            .await
            .map(drop)
            .map_err(Failure::rpc(&self.to.server))
    }

    async fn terminate(&mut self, supervisor: &str) -> Result<(), Failure> {
        let request = api::TerminateRequest {
            supervisor_id: supervisor.to_owned(),
            now: true,
            forget_offsets: false,
        };
        self.to
            .api
            .terminate(request)
            .await
            .map(drop)
            .map_err(Failure::rpc(&self.to.server))
    }

    /// A run that was killed left a supervisor whose broker is gone: it would hold slots for ever.
    async fn end_earlier_runs(&mut self) -> Result<(), Failure> {
        let list = self
            .to
            .api
            .list(api::ListRequest {})
            .await
            .map_err(Failure::rpc(&self.to.server))?;
        for supervisor in list.into_inner().supervisors {
            let over = supervisor.state == api::SupervisorState::Terminated as i32;
            if supervisor.supervisor_id.starts_with(PREFIX) && !over {
                self.terminate(&supervisor.supervisor_id).await?;
            }
        }
        Ok(())
    }
}

/// A run whose totals were compared.
struct Checked {
    run: Run,
    report: check::Report,
    broker: MockBroker,
}

impl Checked {
    /// Stays up when it is wished, then ends the supervisor.
    async fn finish(mut self, keep_running: bool, address: &str) -> Result<Outcome, Failure> {
        if keep_running {
            self.run.resume().await?;
            eprintln!("left running: tidegate --server {address} supervisor list; Ctrl-C ends it");
            asked_to_end().await;
        }
        let supervisor = self.run.names.supervisor.clone();
        self.run.terminate(&supervisor).await?;
        // The broker may be slow to go, and nobody needs to wait for it.
        let broker = self.broker;
        std::thread::spawn(move || drop(broker));
        if self.report.ok() {
            Ok(Outcome::Good)
        } else {
            Err(Failure::Other(self.report.differences()))
        }
    }
}

async fn start_broker(topic: String) -> Result<MockBroker, Failure> {
    let started = tokio::task::spawn_blocking(move || {
        let broker = MockBroker::start(1)?;
        broker.create_topic(&topic, i32::from(PARTITIONS))?;
        Ok::<_, tidegate_kafka::KafkaError>(broker)
    });
    match started.await {
        Ok(Ok(broker)) => Ok(broker),
        Ok(Err(error)) => Err(Failure::Other(error.to_string())),
        Err(error) => Err(Failure::Other(format!("starting the in-process broker: {error}"))),
    }
}

/// Longest time without any progress before a run is given up.
const PATIENCE: Duration = Duration::from_mins(2);
