//! The three real servers of one run: started once, named to the tests by environment.
//!
//! `servers up` leaves them to a process in the background, the holder; when it ends, for whatever reason, they end
//! with it. Files in the cache directory tell the next command about it.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tidegate_servers::{
    KAFKA_ADDRESS, Kafka, POSTGRES_ADDRESS, Postgres, S3, S3_ACCESS_KEY, S3_ADDRESS, S3_SECRET_KEY, cache,
};

/// Fetching and building included, should `setup` not have been run.
const UP_LIMIT: Duration = Duration::from_mins(20);
const DOWN_LIMIT: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

pub(crate) struct Servers {
    kafka: Kafka,
    postgres: Postgres,
    s3: S3,
}

impl Servers {
    /// All three at once: each is waited for, none waits for another.
    pub(crate) fn start() -> Result<Self> {
        std::thread::scope(|scope| {
            let kafka = scope.spawn(Kafka::start);
            let postgres = scope.spawn(Postgres::start);
            let s3 = scope.spawn(S3::start);
            Ok(Self {
                kafka: joined(kafka)?,
                postgres: joined(postgres)?,
                s3: joined(s3)?,
            })
        })
    }

    /// What tests read instead of starting servers of their own.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        vec![
            (KAFKA_ADDRESS, self.kafka.bootstrap().to_owned()),
            (POSTGRES_ADDRESS, self.postgres.url()),
            (S3_ADDRESS, self.s3.endpoint().to_owned()),
            (S3_ACCESS_KEY, self.s3.access_key().to_owned()),
            (S3_SECRET_KEY, self.s3.secret_key().to_owned()),
        ]
    }
}

fn joined<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread
        .join()
        .unwrap_or_else(|_| Err(anyhow!("the thread that started a server panicked")))
}

/// Where the holder leaves word.
struct Files {
    pid: PathBuf,
    addresses: PathBuf,
    log: PathBuf,
}

impl Files {
    fn find() -> Result<Self> {
        let directory = cache::directory()?;
        Ok(Self {
            pid: directory.join("servers.pid"),
            addresses: directory.join("servers.env"),
            log: directory.join("servers.log"),
        })
    }

    /// The holder, if it lives: a stale file, or a number that the system has given to somebody else, is nobody.
    fn holder(&self) -> Option<String> {
        let pid = fs::read_to_string(&self.pid).ok()?.trim().to_owned();
        let output = Command::new("ps")
            .args(["-ww", "-o", "args=", "-p", &pid])
            .output()
            .ok()?;
        String::from_utf8_lossy(&output.stdout)
            .trim()
            .ends_with("servers hold")
            .then_some(pid)
    }

    fn clear(&self) {
        for file in [&self.pid, &self.addresses] {
            // Absent is as good as removed.
            let _ = fs::remove_file(file);
        }
    }
}

pub(crate) fn up() -> Result<()> {
    let files = Files::find()?;
    if files.holder().is_some() {
        eprintln!("the servers are up already");
        return print(&files.addresses);
    }
    files.clear();
    let log = File::create(&files.log).with_context(|| format!("cannot write {}", files.log.display()))?;
    let mut holder = Command::new(std::env::current_exe()?)
        .args(["servers", "hold"])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()
        .context("cannot start the holder of the servers")?;
    fs::write(&files.pid, holder.id().to_string())?;
    let deadline = Instant::now() + UP_LIMIT;
    while !files.addresses.exists() {
        if let Some(status) = holder.try_wait()? {
            files.clear();
            bail!(
                "the servers did not start ({status}):\n{}",
                fs::read_to_string(&files.log).unwrap_or_default()
            );
        }
        if Instant::now() > deadline {
            down()?;
            bail!(
                "the servers were not up after {UP_LIMIT:?}; see {}",
                files.log.display()
            );
        }
        std::thread::sleep(POLL);
    }
    print(&files.addresses)
}

pub(crate) fn down() -> Result<()> {
    let files = Files::find()?;
    let Some(pid) = files.holder() else {
        files.clear();
        eprintln!("no servers are up");
        return Ok(());
    };
    let status = Command::new("sh")
        .args(["-c", r#"kill -s TERM "$1""#, "sh", &pid])
        .status()?;
    let deadline = Instant::now() + DOWN_LIMIT;
    while files.holder().is_some() {
        if !status.success() || Instant::now() > deadline {
            bail!("process {pid}, which holds the servers, does not end: stop it by hand");
        }
        std::thread::sleep(POLL);
    }
    files.clear();
    eprintln!("the servers are down");
    Ok(())
}

/// Starts the servers, tells their addresses, and stays until it is ended.
pub(crate) fn hold() -> Result<()> {
    let files = Files::find()?;
    let servers = Servers::start()?;
    let lines: Vec<String> = servers
        .variables()
        .iter()
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect();
    // Whole or not at all: `up` prints it as soon as it is there.
    let aside = files.addresses.with_extension("unfinished");
    fs::write(&aside, lines.concat())?;
    fs::rename(&aside, &files.addresses)?;
    loop {
        std::thread::park();
    }
}

fn print(addresses: &Path) -> Result<()> {
    let text =
        fs::read_to_string(addresses).with_context(|| format!("cannot read {}", addresses.display()))?;
    print!("{text}");
    Ok(())
}
