//! Keeps the direction of dependencies true (docs/ARCHITECTURE.md): what stands lower never knows what stands
//! higher, and the pure machines reach neither a runtime nor the network nor a clock.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

/// From the bottom of the house to the top; a member may depend only on what stands in a line above its own, or
/// before it in its own line.
const LAYERS: [&[&str]; 6] = [
    &["tidegate-types"],
    &["tidegate-protocol", "tidegate-spec"],
    &[
        "tidegate-rpc",
        "tidegate-config",
        "tidegate-telemetry",
        "tidegate-decode",
        "tidegate-segment",
        "tidegate-kafka",
        "tidegate-metadata",
        "tidegate-objects",
        "tidegate-serving",
        "tidegate-process",
    ],
    &[
        "tidegate-publisher",
        "tidegate-handoff-checker",
        "tidegate-task-runner",
        "tidegate-coordinator",
    ],
    &["tidegate"],
    &[
        "tidegate-servers",
        "tidegate-scenarios",
        "tidegate-simulator",
        "tidegate-benches",
        "xtask",
    ],
];
/// Services know each other by their RPCs only; the all-in-one process wires them together.
const SERVICES: usize = 3;
const PROTOCOL: &str = "tidegate-protocol";
/// What a pure machine has no use for.
const IMPURE: [&str; 12] = [
    "tokio",
    "tonic",
    "rdkafka",
    "sea-orm",
    "sqlx",
    "object_store",
    "reqwest",
    "hyper",
    "axum",
    "futures",
    "rand",
    "tempfile",
];
/// A dependency graph cannot show a call of the standard library, or of jiff's clock.
const IMPURE_WORDS: [&str; 12] = [
    "SystemTime",
    "Instant::now",
    "Timestamp::now",
    "Zoned::now",
    "std::thread",
    "std::fs",
    "std::net",
    "std::process",
    "std::env",
    "async fn",
    "async move",
    "async {",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_owned()
}

/// For this system only: what others would need may never have been downloaded.
fn metadata() -> Metadata {
    let version = std::process::Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap();
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(vec![
            "--locked".to_owned(),
            "--filter-platform".to_owned(),
            host.to_owned(),
        ])
        .exec()
        .unwrap()
}

/// Name → names of the members that it depends on, tests aside.
fn members_and_dependencies(metadata: &Metadata) -> BTreeMap<String, BTreeSet<String>> {
    let names: BTreeSet<&str> = metadata
        .workspace_packages()
        .iter()
        .map(|package| package.name.as_str())
        .collect();
    let dependencies = |package: &cargo_metadata::Package| {
        let kept = package
            .dependencies
            .iter()
            .filter(|one| one.kind != DependencyKind::Development);
        kept.map(|one| one.name.clone())
            .filter(|name| names.contains(name.as_str()))
            .collect()
    };
    metadata
        .workspace_packages()
        .iter()
        .map(|package| (package.name.to_string(), dependencies(package)))
        .collect()
}

fn place(name: &str) -> Option<(usize, usize)> {
    LAYERS
        .iter()
        .enumerate()
        .find_map(|(layer, names)| Some((layer, names.iter().position(|one| *one == name)?)))
}

fn is_allowed(member: (usize, usize), dependency: (usize, usize)) -> bool {
    dependency < member && !(member.0 == SERVICES && dependency.0 == SERVICES)
}

#[test]
fn members_depend_only_on_what_stands_below_them() {
    let members = members_and_dependencies(&metadata());
    let mut wrong = Vec::new();
    for (member, dependencies) in &members {
        let Some(own) = place(member) else {
            wrong.push(format!("{member} has no place in LAYERS: give it one"));
            continue;
        };
        for dependency in dependencies {
            // The servers of tests stand at the top and belong to tests only; that is what this refuses.
            if place(dependency).is_some_and(|other| !is_allowed(own, other)) {
                wrong.push(format!("{member} must not depend on {dependency}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(
        members.len(),
        LAYERS.iter().map(|layer| layer.len()).sum::<usize>(),
        "LAYERS names a member that is gone"
    );
}

#[test]
fn the_rule_refuses_what_it_is_there_to_refuse() {
    let may = |member, dependency| is_allowed(place(member).unwrap(), place(dependency).unwrap());
    assert!(may("tidegate-protocol", "tidegate-types"));
    assert!(may("tidegate-segment", "tidegate-decode"));
    assert!(may("tidegate", "tidegate-coordinator"));
    assert!(!may("tidegate-types", "tidegate-protocol"));
    assert!(!may("tidegate-protocol", "tidegate-rpc"));
    assert!(!may("tidegate-kafka", "tidegate-publisher"));
    assert!(!may("tidegate-metadata", "tidegate-servers"));
    assert!(!may("tidegate-coordinator", "tidegate-task-runner"));
    assert!(!may("tidegate-types", "tidegate-types"));
}

#[test]
fn the_pure_machines_reach_no_runtime_no_network_and_no_database() {
    let metadata = metadata();
    let names: HashMap<&PackageId, &str> = metadata
        .packages
        .iter()
        .map(|one| (&one.id, one.name.as_str()))
        .collect();
    let nodes: HashMap<&PackageId, _> = metadata
        .resolve
        .as_ref()
        .unwrap()
        .nodes
        .iter()
        .map(|one| (&one.id, one))
        .collect();
    let start = metadata.packages.iter().find(|one| one.name == PROTOCOL).unwrap();
    let mut open = vec![&start.id];
    let mut reached = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !reached.insert(id) {
            continue;
        }
        let normal = nodes[id].deps.iter().filter(|one| {
            one.dep_kinds
                .iter()
                .any(|kind| kind.kind == DependencyKind::Normal)
        });
        open.extend(normal.map(|one| &one.pkg));
    }
    let reached: BTreeSet<&str> = reached.into_iter().map(|id| names[id]).collect();
    assert!(
        reached.contains("tidegate-types"),
        "the walk went nowhere: {reached:?}"
    );
    let impure: Vec<&&str> = IMPURE.iter().filter(|name| reached.contains(**name)).collect();
    assert!(impure.is_empty(), "{PROTOCOL} reaches {impure:?}");
}

#[test]
fn the_pure_machines_ask_no_clock_and_touch_no_file() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for file in rust_files(&root().join("shared/protocol/src")) {
        seen += 1;
        for (number, line) in std::fs::read_to_string(&file).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for word in IMPURE_WORDS.iter().filter(|word| code.contains(**word)) {
                wrong.push(format!("{}:{}: {word}", file.display(), number + 1));
            }
        }
    }
    assert!(seen > 0, "no source of {PROTOCOL} was found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
