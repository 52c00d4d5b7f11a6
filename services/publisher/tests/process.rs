//! A service as a process: exit status, settings, drain. What all four have in common is shown here once.

#![allow(clippy::unwrap_used, reason = "a test file; helpers are outside #[test]")]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn publisher(folder: &Path, settings: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-publisher"));
    let url = format!("metadata.url=sqlite://{}/metadata.db", folder.display());
    let objects = format!("objects.url={}/objects", folder.display());
    for setting in [url.as_str(), objects.as_str()].iter().chain(settings) {
        command.args(["--set", setting]);
    }
    command.stdin(Stdio::null());
    command
}

fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

#[test]
fn settings_that_cannot_be_used_are_all_told_and_end_the_process_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let bad = ["publisher.lisen=127.0.0.1:0", "publisher.sweep_grace=soon"];
    let output = publisher(folder.path(), &bad).output().unwrap();
    let (_, error) = texts(&output);
    assert_eq!(output.status.code(), Some(2), "{error}");
    for wanted in ["publisher.lisen", "publisher.listen", "publisher.sweep_grace"] {
        assert!(error.contains(wanted), "{wanted} in {error}");
    }
}

#[test]
fn check_config_prints_what_holds_and_starts_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = publisher(folder.path(), &[])
        .arg("--check-config")
        .output()
        .unwrap();
    let (text, error) = texts(&output);
    assert!(output.status.success(), "{error}");
    assert!(text.contains("publisher.sweep_grace"), "{text}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_address_that_is_taken_is_one_line_that_names_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("publisher.listen={}", taken.local_addr().unwrap());
    let output = publisher(folder.path(), &[&listen, "publisher.metrics_listen=127.0.0.1:0"])
        .output()
        .unwrap();
    let (_, error) = texts(&output);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        error.lines().last().unwrap().contains("set publisher.listen"),
        "{error}"
    );
}

#[test]
fn sigterm_drains_and_ends_with_0() {
    let folder = tempfile::tempdir().unwrap();
    let settings = [
        "publisher.listen=127.0.0.1:0",
        "publisher.metrics_listen=127.0.0.1:0",
    ];
    let log = folder.path().join("log");
    let mut child = publisher(folder.path(), &settings)
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !std::fs::read_to_string(&log)
        .unwrap()
        .contains("the publisher is up")
    {
        assert!(
            Instant::now() < deadline,
            "{}",
            std::fs::read_to_string(&log).unwrap()
        );
        std::thread::yield_now();
    }
    let asked = Command::new("kill")
        .args(["-TERM", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(asked.success());
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "it does not end");
        std::thread::yield_now();
    };
    assert!(status.success(), "{}", std::fs::read_to_string(&log).unwrap());
}
