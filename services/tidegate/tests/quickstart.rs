//! The binary as a newcomer runs it: totals against those of the generator, which counts while it makes the events.

#![allow(clippy::unwrap_used, reason = "a test file; helpers are outside #[test]")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tidegate_cli::generator::{Generator, GeneratorSettings, Totals};

fn quickstart(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .arg("quickstart")
        .arg("--data-dir")
        .arg(folder)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn last_line(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{error}");
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn totals(seed: u64, events: u64) -> Totals {
    let mut generator = Generator::new(GeneratorSettings {
        seed,
        events,
        ..GeneratorSettings::default()
    });
    generator.by_ref().for_each(drop);
    generator.totals().clone()
}

#[test]
fn quickstart_ends_with_the_generators_totals_also_twice_on_the_same_folder() {
    let folder = tempfile::tempdir().unwrap();
    for (seed, events) in [(1, 5000), (1, 5000), (77, 3000)] {
        let (seed_text, events_text) = (seed.to_string(), events.to_string());
        let arguments = ["--seed", &seed_text, "--events", &events_text, "--output", "json"];
        let told = last_line(&quickstart(folder.path(), &arguments));
        let made = totals(seed, events);
        assert_eq!(told["rows_produced"], events);
        assert_eq!(told["rows_in_segments"], made.rows);
        assert_eq!(told["unparseable"], made.unparseable);
        assert_eq!(told["tombstones"], made.tombstones);
        assert_eq!(
            (told["rejected"].as_u64(), told["ok"].as_bool()),
            (Some(0), Some(true))
        );
        assert!(told["segments"].as_u64() > Some(0) && told["bytes"].as_u64() > Some(0));
        assert!(told["seconds"].as_f64() > Some(0.0) && told["rows_per_second"].as_f64() > Some(0.0));
        assert!(
            made.unparseable > 0 && made.tombstones > 0,
            "the events have some of each"
        );
    }
}

#[test]
fn quickstart_for_a_person_is_a_table_and_says_how_to_open_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let output = quickstart(folder.path(), &["--events", "2000"]);
    let (text, progress) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{text}\n{progress}");
    for wanted in [
        "rows read",
        "in segments",
        "rows/s",
        "2,000",
        "all totals agree",
        "duckdb",
        "polars",
    ] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
    assert!(
        progress.contains("of 2,000 rows, lag"),
        "plain lines, not a bar: {progress}"
    );
    assert!(
        !progress.contains('\u{1b}'),
        "no colours where there is no terminal: {progress}"
    );
}

#[test]
fn quickstart_on_a_folder_that_cannot_be_is_one_line_and_not_zero() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a file");
    std::fs::write(&file, "").unwrap();
    let output = quickstart(&file.join("below"), &["--events", "10"]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    assert!(error.contains("cannot make the folder"), "{error}");
}

#[test]
fn quickstart_that_is_kept_running_answers_until_it_is_told_to_end_and_then_ends_well() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["quickstart", "--keep-running", "--events", "500", "--data-dir"])
        .arg(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    let address = loop {
        let text = std::fs::read_to_string(&log).unwrap();
        if let Some(line) = text.lines().find(|line| line.starts_with("left running")) {
            break line
                .split_whitespace()
                .find(|word| word.starts_with("http://"))
                .unwrap()
                .to_owned();
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended: {text}");
        assert!(Instant::now() < deadline, "{text}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let list = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(["--server", &address, "supervisor", "list"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&list.stdout).contains("wikipedia-"));
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
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "{}", std::fs::read_to_string(&log).unwrap());
}
