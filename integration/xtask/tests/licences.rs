//! Every dependency is under a licence that deny.toml allows. `cargo deny` would say the same and more; this needs
//! neither its build nor the network.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cargo_metadata::MetadataCommand;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_owned()
}

fn allowed() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let document: toml::Table = text.parse().unwrap();
    let list = document["licenses"]["allow"].as_array().unwrap();
    list.iter()
        .map(|licence| licence.as_str().unwrap().to_owned())
        .collect()
}

/// An SPDX expression: `OR` needs one side, `AND` both and binds tighter; `/` is how `OR` was written once.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let verdict = either(&words, &mut at, allowed);
    assert_eq!(at, words.len(), "{expression} is no SPDX expression");
    verdict
}

fn either(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut verdict = both(words, at, allowed);
    while words.get(*at) == Some(&"OR") {
        *at += 1;
        verdict |= both(words, at, allowed);
    }
    verdict
}

fn both(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let mut verdict = one(words, at, allowed);
    while words.get(*at) == Some(&"AND") {
        *at += 1;
        verdict &= one(words, at, allowed);
    }
    verdict
}

fn one(words: &[&str], at: &mut usize, allowed: &BTreeSet<String>) -> bool {
    let first = words[*at];
    *at += 1;
    if first == "(" {
        let verdict = either(words, at, allowed);
        assert_eq!(words.get(*at), Some(&")"), "a parenthesis is open in {words:?}");
        *at += 1;
        return verdict;
    }
    if words.get(*at) == Some(&"WITH") {
        let licence = format!("{first} WITH {}", words[*at + 1]);
        *at += 2;
        return allowed.contains(&licence);
    }
    allowed.contains(first)
}

#[test]
fn every_dependency_is_under_an_allowed_licence() {
    let version = std::process::Command::new("rustc").arg("-vV").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap();
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(vec![
            "--locked".to_owned(),
            "--filter-platform".to_owned(),
            host.to_owned(),
        ])
        .exec()
        .unwrap();
    let allowed = allowed();
    let used: BTreeSet<_> = metadata
        .resolve
        .unwrap()
        .nodes
        .into_iter()
        .map(|node| node.id)
        .collect();
    assert!(used.len() > 100, "the graph has {} packages only", used.len());
    let refused: Vec<String> = metadata
        .packages
        .iter()
        .filter(|package| used.contains(&package.id))
        .filter(|package| {
            !package
                .license
                .as_deref()
                .is_some_and(|licence| is_allowed(licence, &allowed))
        })
        .map(|package| format!("{} {}: {:?}", package.name, package.version, package.license))
        .collect();
    assert!(
        refused.is_empty(),
        "not in deny.toml's list:\n{}",
        refused.join("\n")
    );
}

#[test]
fn expressions_mean_what_spdx_says() {
    let allowed: BTreeSet<String> = ["MIT", "ISC"].map(str::to_owned).into();
    for (expression, verdict) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("MIT OR GPL-3.0-only", true),
        ("GPL-3.0-only/MIT", true),
        ("MIT AND GPL-3.0-only", false),
        ("MIT AND ISC", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", false),
        ("(Apache-2.0 OR MIT) AND ISC", true),
        ("Zlib OR MIT AND ISC", true),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
        ("MIT WITH Some-exception", false),
    ] {
        assert_eq!(is_allowed(expression, &allowed), verdict, "{expression}");
    }
}
