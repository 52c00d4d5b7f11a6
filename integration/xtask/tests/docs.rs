//! What the pages say about the sources is true: tests that they name are there, and so are the files they point to.

#![allow(clippy::unwrap_used, reason = "a test file; helpers are outside #[test]")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    let ancestors = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    ancestors.into_iter().nth(2).unwrap().to_owned()
}

/// All files below `folder` that end so.
fn files(folder: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, end, found);
        } else if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
}

/// Names of the functions of the workspace.
fn functions() -> BTreeSet<String> {
    let mut sources = Vec::new();
    for folder in ["shared", "services", "integration"] {
        files(&root().join(folder), ".rs", &mut sources);
    }
    let mut names = BTreeSet::new();
    for source in sources {
        for line in fs::read_to_string(source).unwrap().lines() {
            if let Some((_, rest)) = line.split_once("fn ") {
                let name: String = rest
                    .chars()
                    .take_while(|c| c.is_alphanumeric() || *c == '_')
                    .collect();
                names.insert(name);
            }
        }
    }
    names
}

/// What stands between backticks in the last cell of each row of the tables of a page.
fn named_in_tables(page: &str) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with('|'));
    let last_cells = rows.filter_map(|row| row.trim_end_matches('|').rsplit('|').next().map(str::to_owned));
    last_cells
        .flat_map(|cell| {
            cell.split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .filter(|name| {
            name.contains('_')
                && name
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        })
        .collect()
}

#[test]
fn every_test_that_a_page_names_is_in_the_sources() {
    let functions = functions();
    for (page, least) in [
        ("invariants.md", 60),
        ("field-reports.md", 60),
        ("original-tests.md", 40),
    ] {
        let text = fs::read_to_string(root().join("docs").join(page)).unwrap();
        let named = named_in_tables(&text);
        assert!(named.len() >= least, "{page} names {} tests only", named.len());
        let missing: Vec<_> = named.iter().filter(|name| !functions.contains(*name)).collect();
        assert!(
            missing.is_empty(),
            "{page} names tests that are not there: {missing:?}"
        );
    }
}

#[test]
fn every_defect_of_the_original_has_its_row() {
    let text = fs::read_to_string(root().join("docs/invariants.md")).unwrap();
    for number in 1..=59 {
        assert!(text.contains(&format!("\n| D{number} |")), "D{number} is missing");
    }
}

#[test]
fn every_file_that_a_page_points_to_is_there() {
    let mut pages = vec![
        root().join("README.md"),
        root().join("CONTRIBUTING.md"),
        root().join("CHANGELOG.md"),
    ];
    files(&root().join("docs"), ".md", &mut pages);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") {
                continue;
            }
            let found = page.parent().unwrap().join(path);
            assert!(
                found.exists(),
                "{} points to {target}, which is not there",
                page.display()
            );
        }
    }
}

#[test]
fn every_chore_that_a_page_names_is_one() {
    let main = fs::read_to_string(root().join("integration/xtask/src/main.rs")).unwrap();
    let mut pages = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    files(&root().join("docs"), ".md", &mut pages);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for rest in text.split("cargo xtask ").skip(1) {
            let chore: String = rest.chars().take_while(char::is_ascii_lowercase).collect();
            let variant = chore[..1].to_uppercase() + &chore[1..];
            assert!(
                main.contains(&variant),
                "{} names the chore {chore}",
                page.display()
            );
        }
    }
}

#[test]
fn every_release_names_a_whole_commit_and_stands_in_the_changelog() {
    let releases = fs::read_to_string(root().join("integration/releases.toml")).unwrap();
    let changes = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let values = |key: &str| -> Vec<String> {
        let lines = releases
            .lines()
            .filter_map(|line| line.strip_prefix(&format!("{key} = \"")));
        lines.map(|rest| rest.trim_end_matches('"').to_owned()).collect()
    };
    let (versions, commits) = (values("version"), values("commit"));
    assert!(!versions.is_empty());
    assert_eq!(versions.len(), commits.len());
    for version in versions {
        assert!(
            changes.contains(&format!("## {version}")),
            "{version} has no changes"
        );
    }
    for commit in commits {
        assert!(
            commit.len() == 40 && commit.chars().all(|c| c.is_ascii_hexdigit()),
            "{commit}"
        );
    }
}
