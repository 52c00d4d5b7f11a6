//! Keeps docker-compose.yml, the Dockerfile and CONTRIBUTING.md true to what they describe.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use tidegate_servers::docker;

fn file(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    std::fs::read_to_string(root.join(name)).unwrap()
}

#[test]
fn every_setting_in_docker_compose_is_one_that_the_services_know() {
    let known: BTreeSet<String> = tidegate_config::keys::ALL
        .iter()
        .flat_map(|table| table.keys)
        .map(|key| format!("TIDEGATE__{}", key.name.replace('.', "__").to_uppercase()))
        .collect();
    let compose = file("docker-compose.yml");
    let said: Vec<&str> = compose
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .map(|(key, _)| key)
        .filter(|key| key.starts_with("TIDEGATE"))
        .collect();
    assert!(said.len() >= 20, "only {said:?} were found");
    let unknown: Vec<&&str> = said.iter().filter(|key| !known.contains(**key)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn docker_compose_runs_the_same_servers_as_the_tests_do() {
    let compose = file("docker-compose.yml");
    for image in [docker::KAFKA_IMAGE, docker::POSTGRES_IMAGE, docker::MINIO_IMAGE] {
        assert!(compose.contains(&format!("image: {image}\n")), "{image}");
    }
    assert!(docker::KAFKA_IMAGE.ends_with(tidegate_servers::tools::KAFKA_VERSION));
}

#[test]
fn the_image_holds_every_program_that_docker_compose_runs() {
    let (compose, image) = (file("docker-compose.yml"), file("Dockerfile"));
    for program in [
        "tidegate",
        "tidegate-coordinator",
        "tidegate-task-runner",
        "tidegate-publisher",
        "tidegate-handoff-checker",
    ] {
        assert!(
            image.contains(&format!("--package {program} ")),
            "{program} is not built"
        );
        assert!(
            program == "tidegate" || compose.contains(&format!("command: [{program}]")),
            "{program} is not run"
        );
    }
    assert!(
        compose.contains(&format!("image: tidegate:{}\n", env!("CARGO_PKG_VERSION"))),
        "the image's version"
    );
}

#[test]
fn every_chore_is_in_contributing() {
    let help = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands = help.split("Commands:\n").nth(1).unwrap();
    let chores: Vec<&str> = commands
        .lines()
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(
        chores.contains(&"setup") && chores.contains(&"test"),
        "{chores:?}"
    );
    let contributing = file("CONTRIBUTING.md");
    for chore in chores.into_iter().filter(|chore| *chore != "help") {
        assert!(
            contributing.contains(&format!("cargo xtask {chore}")),
            "{chore} is missing"
        );
    }
}

#[test]
fn a_scenario_that_is_not_there_is_an_error_that_names_it() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["scenario", "no-such"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8(output.stderr).unwrap().contains("no-such"));
}
