//! `tidegate serve` as an operator runs it: settings, the public API on a socket, SIGTERM.

#![allow(clippy::unwrap_used, reason = "a test file; helpers are outside #[test]")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

const SPEC: &str = r#"{"type": "kafka", "spec": {
            "dataSchema": {"dataSource": "wiki", "timestampSpec": {"column": "time", "format": "iso"},
                           "dimensionsSpec": {"dimensions": ["page"]}},
            "ioConfig": {"topic": "edits", "inputFormat": {"type": "json"},
                         "consumerProperties": {"bootstrap.servers": "127.0.0.1:1"}}}}"#;

fn tidegate(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

/// Killed when a test ends before it.
struct Serving {
    child: Child,
    address: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    fn start(folder: &Path) -> Self {
        // A port of the system's choice, told in the log: one that is chosen here may be taken by then.
        let log = folder.join("serve.log");
        let settings = [
            "coordinator.listen=127.0.0.1:0",
            "coordinator.metrics_listen=127.0.0.1:0",
        ];
        let child = tidegate(&["serve", "--set", settings[0], "--set", settings[1]], folder)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut serving = Self {
            child,
            address: String::new(),
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let text = std::fs::read_to_string(&log).unwrap();
            let line = text
                .lines()
                .find(|line| line.contains("all four services are up"));
            let told = line.and_then(|line| line.split_once("http://"));
            if let Some((_, rest)) = told {
                let authority = rest
                    .chars()
                    .take_while(|c| c.is_ascii_digit() || ".:".contains(*c));
                serving.address = format!("http://{}", authority.collect::<String>());
                break;
            }
            assert!(serving.child.try_wait().unwrap().is_none(), "it ended: {text}");
            assert!(Instant::now() < deadline, "it does not serve: {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
        let health = tidegate(&["health", &serving.address], folder).output().unwrap();
        assert!(
            health.status.success(),
            "{}",
            String::from_utf8_lossy(&health.stderr)
        );
        serving
    }

    fn terminate(&mut self) -> std::process::ExitStatus {
        let asked = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(asked.success());
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn serve_answers_the_public_api_and_drains_on_sigterm_and_knows_everything_the_next_time() {
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("spec.json");
    std::fs::write(&spec, SPEC).unwrap();
    let mut serving = Serving::start(folder.path());
    let ask = |address: &str, arguments: &[&str]| {
        let mut all = vec!["--server", address, "--output", "json"];
        all.extend(arguments);
        let output = tidegate(&all, folder.path()).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    ask(
        &serving.address,
        &["supervisor", "submit", spec.to_str().unwrap()],
    );
    let list = ask(&serving.address, &["supervisor", "list"]);
    assert!(list.to_string().contains("\"wiki\""), "{list}");
    assert!(serving.terminate().success(), "a drain ends with 0");
    let serving = Serving::start(folder.path());
    let list = ask(&serving.address, &["supervisor", "list"]);
    assert!(list.to_string().contains("\"wiki\""), "{list}");
}

/// The commands of the README for a running service, in their order.
fn commands_of_the_readme() -> Vec<Vec<String>> {
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../../README.md");
    let text = std::fs::read_to_string(readme).unwrap();
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("target/release/tidegate "));
    let words = |line: &str| {
        let command = line.split('#').next().unwrap_or_default();
        command.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    lines.map(words).filter(|words| words[0] != "serve").collect()
}

#[test]
fn the_commands_of_the_readme_work_as_they_stand_there() {
    let folder = tempfile::tempdir().unwrap();
    let spec = SPEC.replace("\"wiki\"", "\"my-data-source\"");
    std::fs::write(
        folder.path().join("my-spec.json"),
        format!("// a comment\n{spec}"),
    )
    .unwrap();
    let serving = Serving::start(folder.path());
    let commands = commands_of_the_readme();
    assert!(commands.len() >= 3, "{commands:?}");
    for command in commands {
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let output = tidegate(&arguments, folder.path())
            .env("TIDEGATE_SERVER", &serving.address)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?}: {error}");
    }
}

#[test]
fn an_unknown_key_is_an_error_that_names_the_nearest_one() {
    let folder = tempfile::tempdir().unwrap();
    let output = tidegate(
        &["serve", "--set", "coordinator.lisen=127.0.0.1:0"],
        folder.path(),
    )
    .output()
    .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(
        error.contains("coordinator.lisen") && error.contains("coordinator.listen"),
        "{error}"
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing was made"
    );
}

#[test]
fn check_config_shows_every_value_and_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "serve",
        "--check-config",
        "--set",
        "metadata.url=postgres://user:marker-4711@host/db",
    ];
    let output = tidegate(&arguments, folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for wanted in [
        "coordinator.listen",
        "runner.memory_limit",
        "handoff.serving",
        "publisher.sweep_grace",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    assert!(!text.contains("marker-4711"), "secrets are masked");
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "nothing was made"
    );
}
