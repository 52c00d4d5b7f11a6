//! One server process: started, watched until it answers, stopped or killed, started again.
//!
//! Owns the child, its temporary directory and its log. Promises that nothing is left behind: the handle's drop
//! ends the whole process group and removes the directory, and a *guard* does the same when the holder dies
//! without dropping (SIGKILL, abort, the end of a process with a shared server in a static). The guard is a small
//! shell that waits for the end of a pipe which only the holder keeps open. Never signals anything but its own.

use std::fs::{File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::tools::last_lines;

const POLL: Duration = Duration::from_millis(20);
/// A server that does not stop within this time when asked is killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the guard does when the holder is gone: end the process group named in the file `pid`, wait for it, clear up.
const GUARD: &str = r#"
cat >/dev/null
if [ -s "$1/pid" ]; then
  group=$(cat "$1/pid")
  kill -s "$2" -- "-$group"
  tries=0
  while kill -s 0 -- "-$group" && [ $tries -lt 50 ]; do sleep 0.1; tries=$((tries + 1)); done
  kill -s KILL -- "-$group"
fi
[ -n "$3" ] && docker rm -f -v "$3"
rm -rf -- "$1"
"#;

/// How a server is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Terminate,
    Interrupt,
    Quit,
    Kill,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Signal::Terminate => "TERM",
            Signal::Interrupt => "INT",
            Signal::Quit => "QUIT",
            Signal::Kill => "KILL",
        }
    }
}

/// Where the server runs: a child of ours, or a container whose `docker start --attach` is a child of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Local,
    Container(String),
}

/// What is to know about a server to run it.
pub(crate) struct Recipe {
    /// For people: `Kafka node 1`.
    pub(crate) name: String,
    pub(crate) place: Place,
    /// Ends it in an orderly way.
    pub(crate) stop: Signal,
    /// Ends it at once when nobody wants its data any more.
    pub(crate) drop: Signal,
}

pub(crate) struct Process {
    recipe: Recipe,
    home: TempDir,
    child: Option<Child>,
    guard: Child,
}

/// The temporary directory of one server.
pub(crate) fn home(kind: &str) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix(&format!("tidegate-{kind}-"))
        .tempdir()
        .with_context(|| {
            format!(
                "cannot make a directory for {kind} in {}",
                std::env::temp_dir().display()
            )
        })
}

impl Process {
    /// Takes over `home`; nothing runs yet but the guard.
    pub(crate) fn new(recipe: Recipe, home: TempDir) -> Result<Self> {
        let container = match &recipe.place {
            Place::Local => "",
            Place::Container(name) => name,
        };
        let guard = Command::new("sh")
            .args(["-c", GUARD, "sh"])
            .arg(home.path())
            .args([recipe.drop.name(), container])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C in a terminal goes to the foreground group: the guard must outlive it to do its work.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start the guard of {}", recipe.name))?;
        Ok(Self {
            recipe,
            home,
            child: None,
            guard,
        })
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.as_mut().map(Child::try_wait), Some(Ok(None)))
    }

    /// Starts the server; it has its own process group, no input, and the log for output.
    pub(crate) fn start(&mut self, command: &mut Command) -> Result<()> {
        if self.is_running() {
            bail!("{} is running already", self.recipe.name);
        }
        let log = self.log()?;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()
            .with_context(|| {
                format!(
                    "cannot start {}: {}",
                    self.recipe.name,
                    command.get_program().to_string_lossy()
                )
            })?;
        std::fs::write(self.pid_file(), child.id().to_string())?;
        self.child = Some(child);
        Ok(())
    }

    /// Waits until `ready` says so; fails with the log's end when the server dies first or is not ready in time.
    pub(crate) fn wait_until_ready(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> Result<()> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended()? {
                bail!(
                    "{} ended before it was ready ({status}); the end of its log:\n{}",
                    self.recipe.name,
                    self.log_tail()
                );
            }
            if ready() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!(
                    "{} was not ready after {limit:?}; the end of its log:\n{}",
                    self.recipe.name,
                    self.log_tail()
                );
            }
            std::thread::sleep(POLL);
        }
    }

    /// Asks the server to stop and waits for it; kills it when it takes too long. Its data stay.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.end(self.recipe.stop)
    }

    /// SIGKILL to the whole process group: no chance to write anything. Its data stay.
    pub(crate) fn kill9(&mut self) -> Result<()> {
        self.end(Signal::Kill)
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        if self.child.is_none() {
            return Ok(());
        }
        if self.ended()?.is_none() {
            self.signal(signal)?;
            let deadline = Instant::now() + PATIENCE;
            while self.ended()?.is_none() {
                if Instant::now() > deadline {
                    self.signal(Signal::Kill)?;
                    break;
                }
                std::thread::sleep(POLL);
            }
        }
        if let Some(mut child) = self.child.take() {
            child
                .wait()
                .with_context(|| format!("cannot wait for {}", self.recipe.name))?;
        }
        std::fs::remove_file(self.pid_file())?;
        Ok(())
    }

    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        match self.child.as_mut() {
            Some(child) => child
                .try_wait()
                .with_context(|| format!("cannot watch {}", self.recipe.name)),
            None => bail!("{} was not started", self.recipe.name),
        }
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let Some(pid) = self.pid() else { return Ok(()) };
        let mut command = match &self.recipe.place {
            Place::Local => {
                let mut command = Command::new("sh");
                command.args([
                    "-c",
                    r#"kill -s "$1" -- "-$2""#,
                    "sh",
                    signal.name(),
                    &pid.to_string(),
                ]);
                command
            }
            Place::Container(name) => {
                let mut command = Command::new("docker");
                command.args(["kill", "--signal", signal.name(), name]);
                command
            }
        };
        let status = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        // A failure means that the process has just ended by itself; the wait that follows tells.
        status
            .map(drop)
            .with_context(|| format!("cannot signal {}", self.recipe.name))
    }

    fn pid_file(&self) -> PathBuf {
        self.home.path().join("pid")
    }

    fn log(&self) -> Result<File> {
        let path = self.home.path().join("log");
        OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .with_context(|| format!("cannot write the log {}", path.display()))
    }

    pub(crate) fn log_tail(&self) -> String {
        let bytes = std::fs::read(self.home.path().join("log")).unwrap_or_default();
        last_lines(&String::from_utf8_lossy(&bytes), 40)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nobody to tell about a failure here; the guard tries once more.
        let server_ended = self.child.is_none() || self.end(self.recipe.drop).is_ok();
        if !server_ended {
            return;
        }
        if let Place::Container(name) = &self.recipe.place {
            let removal = Command::new("docker").args(["rm", "-f", "-v", name]).output();
            drop(removal);
        }
        drop(self.guard.kill());
        drop(self.guard.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> Recipe {
        Recipe {
            name: "a sleeper".to_owned(),
            place: Place::Local,
            stop: Signal::Terminate,
            drop: Signal::Kill,
        }
    }

    /// Two processes in one group, the second a child of the first.
    fn sleeper() -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo awake; sleep 600 & echo $! > \"$0/grandchild\"; wait"]);
        command
    }

    fn alive(pid: u32) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A zombie that nobody has waited for yet is dead.
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    }

    fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition() {
            assert!(Instant::now() < deadline, "waited in vain: {what}");
            std::thread::sleep(POLL);
        }
    }

    fn started() -> (Process, u32, u32) {
        let mut process = Process::new(recipe(), home("sleeper").unwrap()).unwrap();
        let directory = process.home().to_owned();
        process.start(sleeper().arg(&directory)).unwrap();
        let file = directory.join("grandchild");
        let mut grandchild = None;
        process
            .wait_until_ready(Duration::from_secs(20), || {
                grandchild = std::fs::read_to_string(&file)
                    .ok()
                    .and_then(|pid| pid.trim().parse().ok());
                grandchild.is_some()
            })
            .unwrap();
        let pid = process.pid().unwrap();
        (process, pid, grandchild.unwrap())
    }

    #[test]
    fn a_dropped_server_leaves_no_process_and_no_directory() {
        let (process, child, grandchild) = started();
        let directory = process.home().to_owned();
        assert!(alive(child) && alive(grandchild));
        drop(process);
        wait_for("both processes end", || !alive(child) && !alive(grandchild));
        assert!(!directory.exists());
    }

    #[test]
    fn a_server_whose_holder_died_without_dropping_is_ended_by_the_guard() {
        let (mut process, child, grandchild) = started();
        let directory = process.home().to_owned();
        // The death of the holder, as the guard sees it: the pipe ends.
        drop(process.guard.stdin.take());
        wait_for("both processes end", || !alive(child) && !alive(grandchild));
        wait_for("the directory goes", || !directory.exists());
    }

    #[test]
    fn a_stopped_server_can_be_started_again_with_its_data() {
        let (mut process, first, grandchild) = started();
        process.stop().unwrap();
        wait_for("both processes end", || !alive(first) && !alive(grandchild));
        let directory = process.home().to_owned();
        assert!(directory.join("grandchild").exists());
        process.start(sleeper().arg(&directory)).unwrap();
        assert_ne!(process.pid().unwrap(), first);
        process.kill9().unwrap();
        assert!(!process.is_running());
    }

    #[test]
    fn a_server_that_ends_before_it_is_ready_is_told_with_the_end_of_its_log() {
        let mut process = Process::new(recipe(), home("sleeper").unwrap()).unwrap();
        process
            .start(Command::new("sh").args(["-c", "echo the port is taken; exit 3"]))
            .unwrap();
        let error = process
            .wait_until_ready(Duration::from_secs(20), || false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("a sleeper ended before it was ready"), "{error}");
        assert!(error.contains("the port is taken"), "{error}");
    }
}
