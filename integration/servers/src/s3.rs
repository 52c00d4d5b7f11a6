//! An S3 server: MinIO, built from source (`docs/testing.md` says why this one).
//!
//! Promises that `start` returns when the server says that it is ready for requests, and buckets on demand.
//! Never talks to anything but a plain-HTTP test server.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::docker::{self, Container};
use crate::ports::{free_port, on_free_ports};
use crate::process::{Place, Process, Recipe, Signal, home};
use crate::s3_request::{Keys, create_bucket, get};
use crate::{S3_ACCESS_KEY, S3_ADDRESS, S3_SECRET_KEY, address_from_environment, tools, unique_name};

const START_LIMIT: Duration = Duration::from_mins(1);
const OUR_ACCESS_KEY: &str = "tidegate";
const OUR_SECRET_KEY: &str = "tidegate-secret";
const REGION: &str = "us-east-1";
const PORT_IN_CONTAINER: u16 = 9000;

/// An S3 server that answers.
pub struct S3 {
    /// `host:port`
    authority: String,
    endpoint: String,
    access_key: String,
    secret_key: String,
    own: Option<Own>,
}

struct Own {
    process: Process,
    start: Start,
}

enum Start {
    Program(PathBuf),
    Container(String),
}

impl S3 {
    /// The S3 server of the environment if one is named there, else one of our own.
    pub fn start() -> Result<Self> {
        match address_from_environment(S3_ADDRESS) {
            Some(endpoint) => Self::at(&endpoint),
            None => Self::start_own(),
        }
    }

    /// Like [`start`](Self::start), once for this process; it ends with the process.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<S3, String>> = OnceLock::new();
        SHARED
            .get_or_init(|| Self::start().map_err(|error| format!("{error:#}")))
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// A server of one's own, whatever the environment says: for tests that stop or kill it.
    pub fn start_own() -> Result<Self> {
        on_free_ports(Self::try_start)
    }

    fn at(endpoint: &str) -> Result<Self> {
        let authority = authority_of(endpoint)?;
        // Any HTTP answer will do: health paths differ from server to server.
        get(&authority, "/").with_context(|| {
            format!("no S3 server answers at {S3_ADDRESS}: start it, or unset the variable")
        })?;
        Ok(Self {
            endpoint: format!("http://{authority}"),
            authority,
            access_key: address_from_environment(S3_ACCESS_KEY).unwrap_or_else(|| OUR_ACCESS_KEY.to_owned()),
            secret_key: address_from_environment(S3_SECRET_KEY).unwrap_or_else(|| OUR_SECRET_KEY.to_owned()),
            own: None,
        })
    }

    fn try_start() -> Result<Self> {
        let port = free_port()?;
        let recipe = |place| Recipe {
            name: "MinIO".to_owned(),
            place,
            stop: Signal::Terminate,
            drop: Signal::Kill,
        };
        let own = if let Some(program) = docker::local_or_container(tools::minio())? {
            let process = Process::new(recipe(Place::Local), home("s3")?)?;
            Own {
                process,
                start: Start::Program(program),
            }
        } else {
            let name = unique_name("tidegate-s3");
            let environment = environment().map(|(key, value)| (key.to_owned(), value.to_owned()));
            let container = Container {
                name: &name,
                image: docker::MINIO_IMAGE,
                port: (port, PORT_IN_CONTAINER),
                environment: &environment,
                arguments: &["server", "/data"],
            };
            let process = Process::new(recipe(Place::Container(name.clone())), home("s3")?)?;
            tools::run(&mut container.creation(), "creating MinIO's container")?;
            Own {
                process,
                start: Start::Container(name),
            }
        };
        let authority = format!("127.0.0.1:{port}");
        let mut server = Self {
            endpoint: format!("http://{authority}"),
            authority,
            access_key: OUR_ACCESS_KEY.to_owned(),
            secret_key: OUR_SECRET_KEY.to_owned(),
            own: Some(own),
        };
        server.start_again()?;
        Ok(server)
    }

    /// `http://host:port`
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub fn access_key(&self) -> &str {
        &self.access_key
    }

    pub fn secret_key(&self) -> &str {
        &self.secret_key
    }

    pub fn region(&self) -> &'static str {
        REGION
    }

    /// Makes the bucket; fine when it is there already. A server that says that it is ready may still refuse for a
    /// moment: it is asked again.
    pub fn create_bucket(&self, name: &str) -> Result<()> {
        let keys = Keys {
            access: &self.access_key,
            secret: &self.secret_key,
            region: REGION,
        };
        let deadline = Instant::now() + START_LIMIT;
        loop {
            match create_bucket(&self.authority, name, &keys) {
                Err(error) if error.to_string().contains("(503)") && Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                outcome => return outcome,
            }
        }
    }

    /// Makes a new empty bucket; its name.
    pub fn fresh_bucket(&self) -> Result<String> {
        let name = unique_name("tidegate");
        self.create_bucket(&name)?;
        Ok(name)
    }

    /// Stops it in an orderly way; data and port stay for [`start_again`](Self::start_again).
    pub fn stop(&mut self) -> Result<()> {
        self.own()?.process.stop()
    }

    /// SIGKILL to the server.
    pub fn kill9(&mut self) -> Result<()> {
        self.own()?.process.kill9()
    }

    /// Starts it again on its old port with its old data.
    pub fn start_again(&mut self) -> Result<()> {
        let authority = self.authority.clone();
        let own = self.own()?;
        let mut command = match &own.start {
            Start::Program(program) => {
                let mut command = Command::new(program);
                command.args([
                    "server",
                    "--quiet",
                    "--address",
                    &authority,
                    "--console-address",
                    "127.0.0.1:0",
                ]);
                command
                    .arg(own.process.home().join("data"))
                    .current_dir(own.process.home());
                // It looks into its home for certificates and settings; ours must not meet the user's.
                command.envs(environment()).env("HOME", own.process.home());
                command
            }
            Start::Container(name) => docker::start(name),
        };
        own.process.start(&mut command)?;
        own.process.wait_until_ready(START_LIMIT, || {
            get(&authority, "/minio/health/ready").is_ok_and(|(status, _)| status == 200)
        })
    }

    /// Stops it in an orderly way, then starts it again.
    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.start_again()
    }

    fn own(&mut self) -> Result<&mut Own> {
        self.own
            .as_mut()
            .context("this S3 server was not started here: use S3::start_own in tests that stop it")
    }
}

fn environment() -> [(&'static str, &'static str); 5] {
    [
        ("MINIO_ROOT_USER", OUR_ACCESS_KEY),
        ("MINIO_ROOT_PASSWORD", OUR_SECRET_KEY),
        ("MINIO_REGION", REGION),
        ("MINIO_BROWSER", "off"),
        // It would ask the outside world whether there is a newer one.
        ("MINIO_UPDATE", "off"),
    ]
}

fn authority_of(endpoint: &str) -> Result<String> {
    let Some(rest) = endpoint.strip_prefix("http://") else {
        bail!("{S3_ADDRESS} must be like http://host:9000 (plain HTTP; it is for tests), not {endpoint}");
    };
    let authority = rest.trim_end_matches('/');
    Ok(if authority.contains(':') {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_from_outside_is_plain_http_with_a_port() {
        assert_eq!(authority_of("http://127.0.0.1:9000/").unwrap(), "127.0.0.1:9000");
        assert_eq!(authority_of("http://minio").unwrap(), "minio:80");
        let error = authority_of("https://minio").unwrap_err().to_string();
        assert!(error.contains("plain HTTP"), "{error}");
    }
}
