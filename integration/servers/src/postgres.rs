//! PostgreSQL: one server, a fresh database for each test.
//!
//! Promises a database that is empty and nobody else's at each call of `fresh_database_url`. Commits survive a
//! kill of the server's processes (not of the machine: `fsync` is off). Never runs as root: as root it uses the
//! account `postgres`, else `nobody`.

use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::docker::{self, Container};
use crate::ports::{free_port, on_free_ports};
use crate::process::{Place, Process, Recipe, Signal, home};
use crate::{POSTGRES_ADDRESS, address_from_environment, tools, unique_name};

const START_LIMIT: Duration = Duration::from_mins(1);
/// `synchronous_commit` stays on: without it a killed server loses its last commits, which no real one does.
const SETTINGS: [&str; 4] = [
    "fsync=off",
    "full_page_writes=off",
    "max_connections=300",
    "shared_buffers=64MB",
];

/// A PostgreSQL that answers.
pub struct Postgres {
    /// URL without a database at its end, and what follows the database (`?sslmode=…`).
    base: String,
    parameters: String,
    first_database: String,
    own: Option<Own>,
}

struct Own {
    process: Process,
    start: Start,
    port: u16,
}

enum Start {
    Programs {
        programs: PathBuf,
        account: Option<Account>,
    },
    Container {
        name: String,
    },
}

#[derive(Clone, Copy)]
struct Account {
    user: u32,
    group: u32,
}

impl Postgres {
    /// The PostgreSQL of the environment if one is named there, else one of our own.
    pub fn start() -> Result<Self> {
        match address_from_environment(POSTGRES_ADDRESS) {
            Some(url) => Self::at(&url),
            None => Self::start_own(),
        }
    }

    /// Like [`start`](Self::start), once for this process; it ends with the process.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<Postgres, String>> = OnceLock::new();
        SHARED
            .get_or_init(|| Self::start().map_err(|error| format!("{error:#}")))
            .as_ref()
            .map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// A server of one's own, whatever the environment says: for tests that stop or kill it.
    pub fn start_own() -> Result<Self> {
        on_free_ports(Self::try_start)
    }

    fn at(url: &str) -> Result<Self> {
        let (base, first_database, parameters) = split(url)?;
        let postgres = Self {
            base,
            parameters,
            first_database,
            own: None,
        };
        postgres.sql("SELECT 1").with_context(|| {
            format!("no PostgreSQL answers at {POSTGRES_ADDRESS}: start it, or unset the variable")
        })?;
        Ok(postgres)
    }

    fn try_start() -> Result<Self> {
        let port = free_port()?;
        let own = match docker::local_or_container(tools::postgres_programs())? {
            Some(programs) => lay_out_local(programs, port)?,
            None => lay_out_container(port)?,
        };
        let mut postgres = Self {
            base: format!("postgres://postgres@127.0.0.1:{port}"),
            parameters: String::new(),
            first_database: "postgres".to_owned(),
            own: Some(own),
        };
        postgres.start_again()?;
        Ok(postgres)
    }

    /// URL of a new empty database.
    pub fn fresh_database_url(&self) -> Result<String> {
        let name = unique_name("tidegate").replace('-', "_");
        self.sql(&format!("CREATE DATABASE {name}"))?;
        Ok(self.database_url(&name))
    }

    /// URL of the database that was there from the start.
    pub fn url(&self) -> String {
        self.database_url(&self.first_database)
    }

    fn database_url(&self, database: &str) -> String {
        format!("{}/{database}{}", self.base, self.parameters)
    }

    /// Stops it in an orderly way (connections are cut); data and port stay for [`start_again`](Self::start_again).
    pub fn stop(&mut self) -> Result<()> {
        self.own()?.process.stop()
    }

    /// SIGKILL to the server; its sessions end with it.
    pub fn kill9(&mut self) -> Result<()> {
        self.own()?.process.kill9()
    }

    /// Starts it again on its old port with its old data.
    pub fn start_again(&mut self) -> Result<()> {
        let own = self.own()?;
        own.spawn()?;
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", own.port);
        let container = own.container().map(str::to_owned);
        let mut killed_before = 0;
        loop {
            let waited = own.process.wait_until_ready(START_LIMIT, || {
                psql(container.as_deref(), &url, "SELECT 1").is_ok()
            });
            match waited {
                // Sessions of a killed server hold its shared memory for a moment more.
                Err(error) if killed_before < 20 && error.to_string().contains("shared memory") => {
                    killed_before += 1;
                    std::thread::sleep(Duration::from_millis(250));
                    own.process.stop()?;
                    own.spawn()?;
                }
                result => return result,
            }
        }
    }

    /// Stops it in an orderly way, then starts it again.
    pub fn restart(&mut self) -> Result<()> {
        self.stop()?;
        self.start_again()
    }

    /// Runs one statement in the first database; what it prints, without headings.
    pub fn sql(&self, statement: &str) -> Result<String> {
        psql(self.own.as_ref().and_then(Own::container), &self.url(), statement)
    }

    fn own(&mut self) -> Result<&mut Own> {
        self.own
            .as_mut()
            .context("this PostgreSQL was not started here: use Postgres::start_own in tests that stop it")
    }
}

impl Own {
    fn container(&self) -> Option<&str> {
        match &self.start {
            Start::Container { name } => Some(name),
            Start::Programs { .. } => None,
        }
    }

    fn spawn(&mut self) -> Result<()> {
        let home = self.process.home().to_owned();
        let mut command = match &self.start {
            Start::Programs { programs, account } => {
                let mut command = as_account(programs.join("postgres"), *account, &home);
                command
                    .arg("-D")
                    .arg(home.join("data"))
                    .arg("-k")
                    .arg(&home)
                    .args(["-p", &self.port.to_string()]);
                command
                    .args(settings())
                    .args(["-c", "listen_addresses=127.0.0.1"]);
                command
            }
            Start::Container { name } => docker::start(name),
        };
        self.process.start(&mut command)
    }
}

fn lay_out_local(programs: PathBuf, port: u16) -> Result<Own> {
    let account = account_for_the_server()?;
    let process = Process::new(recipe(Place::Local), home("postgres")?)?;
    let directory = process.home();
    if let Some(account) = account {
        chown(directory, Some(account.user), Some(account.group))
            .with_context(|| format!("cannot give {} to the account of PostgreSQL", directory.display()))?;
    }
    let mut command = as_account(programs.join("initdb"), account, directory);
    command.arg("-D").arg(directory.join("data"));
    command.args([
        "-U",
        "postgres",
        "-A",
        "trust",
        "-E",
        "UTF8",
        "--locale=C",
        "--no-sync",
        "--no-instructions",
    ]);
    tools::run(&mut command, "making a PostgreSQL data directory")?;
    Ok(Own {
        process,
        start: Start::Programs { programs, account },
        port,
    })
}

fn lay_out_container(port: u16) -> Result<Own> {
    let name = unique_name("tidegate-postgres");
    let environment = [("POSTGRES_HOST_AUTH_METHOD".to_owned(), "trust".to_owned())];
    let settings: Vec<&str> = settings().collect();
    let container = Container {
        name: &name,
        image: docker::POSTGRES_IMAGE,
        port: (port, 5432),
        environment: &environment,
        arguments: &settings,
    };
    let process = Process::new(recipe(Place::Container(name.clone())), home("postgres")?)?;
    tools::run(&mut container.creation(), "creating PostgreSQL's container")?;
    Ok(Own {
        process,
        start: Start::Container { name },
        port,
    })
}

fn settings() -> impl Iterator<Item = &'static str> {
    SETTINGS.into_iter().flat_map(|setting| ["-c", setting])
}

/// Interrupt = cut the sessions and shut down; quit = at once, but with its shared memory cleared away.
fn recipe(place: Place) -> Recipe {
    Recipe {
        name: "PostgreSQL".to_owned(),
        place,
        stop: Signal::Interrupt,
        drop: Signal::Quit,
    }
}

fn as_account(program: PathBuf, account: Option<Account>, directory: &Path) -> Command {
    let mut command = Command::new(program);
    // The account may not read the directory that we are in.
    command
        .current_dir(directory)
        .env("HOME", directory)
        .env("LC_ALL", "C");
    if let Some(account) = account {
        command.uid(account.user).gid(account.group);
    }
    command
}

/// None when we are an ordinary user: PostgreSQL refuses only root.
fn account_for_the_server() -> Result<Option<Account>> {
    let we_are = std::fs::metadata("/proc/self").map_or(1, |about| about.uid());
    if we_are != 0 {
        return Ok(None);
    }
    let accounts = std::fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    ["postgres", "nobody"]
        .iter()
        .find_map(|name| account_in(&accounts, name))
        .map(Some)
        .context("PostgreSQL does not run as root, and there is no account postgres or nobody: make one")
}

fn account_in(accounts: &str, name: &str) -> Option<Account> {
    let line = accounts
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    let mut numbers = line.split(':').skip(2);
    Some(Account {
        user: numbers.next()?.parse().ok()?,
        group: numbers.next()?.parse().ok()?,
    })
}

/// The client program speaks every kind of authentication that an outside server may want.
fn psql(container: Option<&str>, url: &str, statement: &str) -> Result<String> {
    let mut command = match container {
        None => Command::new(tools::psql()?),
        Some(name) => {
            let mut command = Command::new("docker");
            command.args(["exec", name, "psql"]);
            command
        }
    };
    // Inside the container the server has its own port.
    let inside = container.map(|_| format!("postgres://postgres@{}:5432/postgres", Ipv4Addr::LOCALHOST));
    command.args([
        "-X",
        "-q",
        "-A",
        "-t",
        "-v",
        "ON_ERROR_STOP=1",
        "-d",
        inside.as_deref().unwrap_or(url),
        "-c",
        statement,
    ]);
    let output = command
        .stdin(Stdio::null())
        .env("PGCONNECT_TIMEOUT", "5")
        .output()
        .context("cannot run psql")?;
    if !output.status.success() {
        bail!(
            "PostgreSQL refused `{statement}`: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Base, database, and what follows it.
fn split(url: &str) -> Result<(String, String, String)> {
    let (rest, parameters) = match url.split_once('?') {
        Some((rest, parameters)) => (rest, format!("?{parameters}")),
        None => (url, String::new()),
    };
    let scheme = rest
        .find("://")
        .filter(|at| matches!(&rest[..*at], "postgres" | "postgresql"));
    let Some(scheme) = scheme else {
        bail!("{POSTGRES_ADDRESS} must be like postgres://user:password@host:5432/database");
    };
    let start = scheme + "://".len();
    let (base, database) = match rest[start..].split_once('/') {
        Some((host, database)) if !database.is_empty() => (&rest[..start + host.len()], database),
        _ => (rest.trim_end_matches('/'), "postgres"),
    };
    Ok((base.to_owned(), database.to_owned(), parameters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_from_outside_keeps_its_parameters_and_changes_its_database() {
        let postgres = |url: &str| {
            let (base, first_database, parameters) = split(url).unwrap();
            Postgres {
                base,
                parameters,
                first_database,
                own: None,
            }
        };
        let full = postgres("postgres://me:secret@db:5433/mine?sslmode=require");
        assert_eq!(full.url(), "postgres://me:secret@db:5433/mine?sslmode=require");
        assert_eq!(
            full.database_url("other"),
            "postgres://me:secret@db:5433/other?sslmode=require"
        );
        assert_eq!(postgres("postgresql://db").url(), "postgresql://db/postgres");
        assert_eq!(postgres("postgres://db/").url(), "postgres://db/postgres");
        assert!(split("mysql://db/x").is_err());
    }

    #[test]
    fn an_account_is_found_by_its_whole_name() {
        let accounts = "root:x:0:0:root:/root:/bin/sh\npostgres2:x:9:9::/:/bin/sh\npostgres:x:110:117:,,,:/var/lib:/bin/bash\n";
        let account = account_in(accounts, "postgres").unwrap();
        assert_eq!((account.user, account.group), (110, 117));
        assert!(account_in(accounts, "nobody").is_none());
    }
}
