//! Containers for machines that lack the programs but have a Docker daemon.
//!
//! Owns the images and how their containers are created and started. The container keeps a
//! server's data between starts; it goes when the handle goes. Never pulls in anything where the local programs
//! are there: those are tried first.

use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Error, Result};

pub const KAFKA_IMAGE: &str = "apache/kafka:4.1.1";
pub const POSTGRES_IMAGE: &str = "postgres:17";
pub const MINIO_IMAGE: &str = "minio/minio:RELEASE.2025-09-07T16-13-09Z";

/// Whether a Docker daemon answers; asked once.
pub fn answers() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let mut command = Command::new("docker");
        command
            .arg("info")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// The local programs, else `None` for a container; the local error when there is no daemon either.
pub(crate) fn local_or_container<T>(local: Result<T>) -> Result<Option<T>> {
    match local {
        Ok(programs) => Ok(Some(programs)),
        Err(_) if answers() => Ok(None),
        Err(error) => Err(nothing_to_run(&error)),
    }
}

fn nothing_to_run(error: &Error) -> Error {
    anyhow::anyhow!(
        "{error:#}. Run `cargo xtask setup`, or start a Docker daemon, \
         or name a running server in {}, {} or {}",
        crate::KAFKA_ADDRESS,
        crate::POSTGRES_ADDRESS,
        crate::S3_ADDRESS
    )
}

/// What a container is created from; it is started apart, the first time as every other time.
pub(crate) struct Container<'a> {
    pub(crate) name: &'a str,
    pub(crate) image: &'a str,
    /// Loopback port of the host, port in the container.
    pub(crate) port: (u16, u16),
    pub(crate) environment: &'a [(String, String)],
    pub(crate) arguments: &'a [&'a str],
}

impl Container<'_> {
    pub(crate) fn creation(&self) -> Command {
        let mut command = Command::new("docker");
        command.args([
            "create",
            "--name",
            self.name,
            "-p",
            &format!("127.0.0.1:{}:{}", self.port.0, self.port.1),
        ]);
        for (key, value) in self.environment {
            command.arg("-e").arg(format!("{key}={value}"));
        }
        command.arg(self.image).args(self.arguments);
        command
    }
}

/// Starts a container in the foreground, so that our child ends when the container does.
pub(crate) fn start(name: &str) -> Command {
    let mut command = Command::new("docker");
    command.args(["start", "--attach", name]);
    command
}

/// A server property as apache/kafka's image wants it: `log.dirs` is `KAFKA_LOG_DIRS`.
pub(crate) fn kafka_variable(property: &str) -> String {
    format!("KAFKA_{}", property.replace('.', "_").to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_listens_on_loopback_only_and_keeps_its_name() {
        let environment = [("A".to_owned(), "b".to_owned())];
        let container = Container {
            name: "tidegate-x",
            image: "image:1",
            port: (20_001, 9000),
            environment: &environment,
            arguments: &["server", "/data"],
        };
        let words: Vec<String> = container
            .creation()
            .get_args()
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        assert_eq!(
            words.join(" "),
            "create --name tidegate-x -p 127.0.0.1:20001:9000 -e A=b image:1 server /data"
        );
        assert_eq!(
            kafka_variable("offsets.topic.num.partitions"),
            "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS"
        );
    }

    #[test]
    fn a_local_program_is_taken_before_any_container() {
        assert_eq!(local_or_container(Ok(7)).unwrap(), Some(7));
    }

    #[test]
    fn without_programs_and_daemon_the_error_says_what_to_do() {
        let error = nothing_to_run(&anyhow::anyhow!("there is no java")).to_string();
        for word in [
            "there is no java",
            "cargo xtask setup",
            "Docker",
            "TIDEGATE_TEST_KAFKA",
        ] {
            assert!(error.contains(word), "{word} is missing in {error}");
        }
    }
}
