//! The programs that servers are made of: found on the machine, else fetched or built into the cache.
//!
//! Owns the versions. Promises that what it returns can be run. Never installs system packages
//! (`cargo xtask setup` does that): what only they can give is an error that names the package.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cache;

pub const KAFKA_VERSION: &str = "4.1.1";
/// The last commit of MinIO's main branch that the module proxy names (its releases have no semantic versions).
pub const MINIO_VERSION: &str = "v0.0.0-20260212201848-7aac2a2c5b7c";
/// Kafka 4's broker wants it.
pub const OLDEST_JAVA: u32 = 17;
/// MinIO's module wants it.
pub const OLDEST_GO: (u32, u32) = (1, 24);
/// Readers that a Parquet file must satisfy besides our own.
pub const PYTHON_PACKAGES: [&str; 3] = ["pyarrow==26.0.1", "duckdb==2.0.1", "polars==2.1.0"];
const LOG4J_BINDING_VERSION: &str = "2.24.3";

/// `java`, if there is one that is new enough.
pub fn java() -> Result<PathBuf> {
    let found = std::env::var_os("JAVA_HOME")
        .map(|home| Path::new(&home).join("bin/java"))
        .filter(|java| java.exists())
        .or_else(|| on_path("java"));
    let Some(java) = found else {
        bail!("there is no java: install a Java {OLDEST_JAVA} or newer (Debian: default-jre-headless)");
    };
    let version = output_of(Command::new(&java).arg("-version"))?;
    match java_major(&version) {
        Some(major) if major >= OLDEST_JAVA => Ok(java),
        _ => bail!(
            "{} is too old ({}): install Java {OLDEST_JAVA} or newer",
            java.display(),
            first_line(&version)
        ),
    }
}

/// `go`, if there is one that is new enough to build MinIO.
pub fn go() -> Result<PathBuf> {
    let usual = Path::new("/usr/local/go/bin/go");
    let Some(go) = on_path("go").or_else(|| usual.exists().then(|| usual.to_owned())) else {
        bail!(
            "there is no go: install Go {}.{} or newer (Debian 13 or newer: golang-go)",
            OLDEST_GO.0,
            OLDEST_GO.1
        );
    };
    let version = output_of(Command::new(&go).arg("version"))?;
    match go_release(&version) {
        Some(release) if release >= OLDEST_GO => Ok(go),
        _ => bail!(
            "{} is too old ({}): install Go {}.{} or newer",
            go.display(),
            first_line(&version),
            OLDEST_GO.0,
            OLDEST_GO.1
        ),
    }
}

pub fn maven() -> Result<PathBuf> {
    on_path("mvn").context("there is no mvn: install the Maven client (Debian: maven)")
}

/// A `python3` that can make environments (Debian has that part in a package of its own).
pub fn python3() -> Result<PathBuf> {
    let missing = "install Python 3 with venv (Debian: python3-venv)";
    let python = on_path("python3").with_context(|| format!("there is no python3: {missing}"))?;
    run(
        Command::new(&python).args(["-c", "import ensurepip, venv"]),
        missing,
    )?;
    Ok(python)
}

/// The directory of PostgreSQL's server programs: the newest that Debian has, else that of `postgres` on the path.
pub fn postgres_programs() -> Result<PathBuf> {
    let mut installed: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let version = entry.file_name().to_str()?.parse().ok()?;
            Some((version, entry.path().join("bin")))
        })
        .filter(|(_, programs)| programs.join("postgres").exists() && programs.join("initdb").exists())
        .collect();
    installed.sort();
    if let Some((_, programs)) = installed.pop() {
        return Ok(programs);
    }
    on_path("postgres")
        .and_then(|postgres| postgres.canonicalize().ok())
        .and_then(|postgres| postgres.parent().map(Path::to_owned))
        .filter(|programs| programs.join("initdb").exists())
        .context("there is no PostgreSQL server: install one (Debian: postgresql)")
}

/// `psql`, beside the server programs or on the path.
pub fn psql() -> Result<PathBuf> {
    let beside = postgres_programs()
        .ok()
        .map(|programs| programs.join("psql"))
        .filter(|psql| psql.exists());
    beside
        .or_else(|| on_path("psql"))
        .context("there is no psql: install a PostgreSQL client (Debian: postgresql-client)")
}

/// Whether [`kafka_jars`] has nothing left to fetch.
pub fn kafka_is_here() -> Result<bool> {
    Ok(cache::directory()?.join(kafka_entry()).exists())
}

/// Whether [`minio`] has nothing left to build.
pub fn minio_is_here() -> Result<bool> {
    Ok(cache::directory()?.join(minio_entry()).exists())
}

fn kafka_entry() -> String {
    format!("kafka-{KAFKA_VERSION}")
}

fn minio_entry() -> String {
    format!("minio-{MINIO_VERSION}")
}

/// The directory of Kafka's jars; fetched with the Maven client the first time.
pub fn kafka_jars() -> Result<PathBuf> {
    let place = cache::entry(&kafka_entry(), |aside| {
        let maven = maven()?;
        eprintln!("fetching Apache Kafka {KAFKA_VERSION} with the Maven client (once)");
        let pom = aside.join("pom.xml");
        std::fs::write(&pom, kafka_pom())?;
        let mut command = Command::new(maven);
        command
            .args(["-q", "-B", "-f"])
            .arg(&pom)
            .arg("dependency:copy-dependencies");
        command
            .arg(format!("-DoutputDirectory={}", aside.join("lib").display()))
            .arg("-DincludeScope=runtime");
        run(&mut command, "fetching Kafka's jars")
    })?;
    Ok(place.join("lib"))
}

/// The MinIO server program; built with the Go toolchain the first time (minutes).
pub fn minio() -> Result<PathBuf> {
    let place = cache::entry(&minio_entry(), |aside| {
        let go = go()?;
        eprintln!("building MinIO {MINIO_VERSION} with the Go toolchain (once, some minutes)");
        let mut command = Command::new(go);
        command.args(["install", "-trimpath", "-ldflags", "-s -w"]);
        command
            .arg(format!("github.com/minio/minio@{MINIO_VERSION}"))
            .env("GOBIN", aside.join("bin"));
        // A Go installed for one system only must not build for another because of a stray setting.
        command.env_remove("GOOS").env_remove("GOARCH");
        run(&mut command, "building MinIO")
    })?;
    Ok(place.join("bin/minio"))
}

/// A Python with [`PYTHON_PACKAGES`]; its environment is made the first time.
/// `TIDEGATE_TEST_PYTHON` names one to use instead.
pub fn python() -> Result<PathBuf> {
    if let Some(python) = crate::address_from_environment("TIDEGATE_TEST_PYTHON") {
        return Ok(PathBuf::from(python));
    }
    let place = cache::entry_in_place(&python_entry(), |place| {
        eprintln!(
            "making a Python environment with {} (once)",
            PYTHON_PACKAGES.join(", ")
        );
        run(
            Command::new(python3()?).args(["-m", "venv"]).arg(place),
            "making a Python environment",
        )?;
        let mut command = Command::new(place.join("bin/python"));
        command
            .args(["-m", "pip", "install", "--quiet"])
            .args(PYTHON_PACKAGES);
        run(&mut command, "installing Python packages")
    })?;
    Ok(place.join("bin/python"))
}

/// Other versions, another environment.
fn python_entry() -> String {
    format!(
        "python-{}",
        PYTHON_PACKAGES
            .map(|package| package.replace("==", "-"))
            .join("-")
    )
}

fn kafka_pom() -> String {
    let dependency = |group: &str, artifact: &str, version: &str| {
        format!(
            "<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>\n"
        )
    };
    format!(
        "<project xmlns=\"http://maven.apache.org/POM/4.0.0\"><modelVersion>4.0.0</modelVersion>\n\
         <groupId>tidegate</groupId><artifactId>kafka</artifactId><version>1</version><packaging>pom</packaging>\n\
         <dependencies>\n{}{}</dependencies></project>\n",
        dependency("org.apache.kafka", "kafka_2.13", KAFKA_VERSION),
        // Without a binding the broker says nothing, not even why it does not start.
        dependency(
            "org.apache.logging.log4j",
            "log4j-slf4j-impl",
            LOG4J_BINDING_VERSION
        ),
    )
}

/// The first `program` on the path.
pub fn on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

/// Runs a command whose output is of interest only when it fails.
pub(crate) fn run(command: &mut Command, what: &str) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{what}: cannot run {program}"))?;
    if output.status.success() {
        return Ok(());
    }
    bail!(
        "{what}: {program} failed ({}):\n{}{}",
        output.status,
        last_lines(&String::from_utf8_lossy(&output.stdout), 40),
        last_lines(&String::from_utf8_lossy(&output.stderr), 40)
    )
}

/// What a command prints, on either stream (`java -version` uses the wrong one).
fn output_of(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
}

pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut tail = lines[lines.len().saturating_sub(count)..].join("\n");
    if !tail.is_empty() {
        tail.push('\n');
    }
    tail
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("it prints no version").trim()
}

/// `17` of `openjdk version "17.0.15" 2025-04-15`, `8` of `java version "1.8.0_402"`.
fn java_major(version: &str) -> Option<u32> {
    let quoted = version.split('"').nth(1)?;
    let mut numbers = quoted.split(['.', '-', '+', '_']).map(str::parse::<u32>);
    match numbers.next()?.ok()? {
        1 => numbers.next()?.ok(),
        major => Some(major),
    }
}

/// `(1, 26)` of `go version go1.26.8 linux/amd64`.
fn go_release(version: &str) -> Option<(u32, u32)> {
    let release = version
        .split_whitespace()
        .find_map(|word| word.strip_prefix("go1.").map(|rest| (1, rest)))?;
    let digits: String = release.1.chars().take_while(char::is_ascii_digit).collect();
    Some((release.0, digits.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_the_programs_print_them() {
        assert_eq!(
            java_major("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime"),
            Some(17)
        );
        assert_eq!(java_major("openjdk version \"21\" 2023-09-19"), Some(21));
        assert_eq!(java_major("openjdk version \"24-ea\" 2025-03-18"), Some(24));
        assert_eq!(java_major("java version \"1.8.0_402\""), Some(8));
        assert_eq!(java_major("command not found"), None);
        assert_eq!(go_release("go version go1.26.8 linux/amd64"), Some((1, 26)));
        assert_eq!(go_release("go version go1.24rc1 darwin/arm64"), Some((1, 24)));
        assert_eq!(go_release("go version go1.19.8 linux/amd64"), Some((1, 19)));
        assert!((1, 19) < OLDEST_GO && (1, 100) > OLDEST_GO);
    }

    #[test]
    fn the_tail_of_a_log_is_its_last_lines() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(last_lines("a", 5), "a\n");
        assert_eq!(last_lines("", 5), "");
    }

    #[test]
    fn a_command_that_fails_is_told_with_its_words() {
        let error = run(
            Command::new("sh").args(["-c", "echo out; echo err >&2; exit 7"]),
            "trying",
        )
        .unwrap_err();
        let text = error.to_string();
        for word in ["trying", "sh failed", "7", "out", "err"] {
            assert!(text.contains(word), "{word} is missing in {text}");
        }
    }
}
