//! Two coordinators as processes of their own: killed, ended in order, started again.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test file; helpers are outside #[test]"
)]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tidegate_rpc::coordinator::v1 as api;
use tidegate_rpc::follow::leader_named;
use tidegate_rpc::{Transport, clients, health};
use tonic::Status;

const LIMIT: Duration = Duration::from_secs(30);

/// Killed when a test ends before it.
struct Process {
    child: Child,
    address: String,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    async fn start(folder: &Path, port: u16, lease: &str) -> Self {
        let address = format!("127.0.0.1:{port}");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(folder.join(format!("{port}.log")))
            .unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_tidegate-coordinator"))
            .args([
                "--set",
                &format!("metadata.url=sqlite://{}/metadata.db", folder.display()),
            ])
            .args(["--set", &format!("coordinator.listen={address}")])
            .args(["--set", "coordinator.metrics_listen=127.0.0.1:0"])
            .args(["--set", &format!("coordinator.lease_duration={lease}")])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let process = Self {
            child,
            address: format!("http://{address}"),
        };
        let begun = Instant::now();
        while !health::check(process.transport()).await.unwrap_or(false) {
            assert!(begun.elapsed() < LIMIT, "it does not serve");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        process
    }

    fn transport(&self) -> Transport {
        Transport::connect(&self.address).unwrap()
    }

    /// Asks this one and no other.
    async fn ask(&self) -> Result<api::ListResponse, Status> {
        let mut client = clients::supervisor(self.transport());
        Ok(client.list(api::ListRequest {}).await?.into_inner())
    }

    async fn leads_within(&self, limit: Duration) {
        let begun = Instant::now();
        while let Err(status) = self.ask().await {
            assert!(begun.elapsed() < limit, "it does not lead: {status}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn names(&self, leader: &Self) {
        let begun = Instant::now();
        loop {
            let refused = self.ask().await.unwrap_err();
            if leader_named(&refused) == Some(&leader.address) {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "it names somebody else: {refused}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    async fn terminate(mut self) {
        let asked = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status();
        assert!(asked.unwrap().success());
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < LIMIT, "it does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        assert!(status.success(), "{status}");
    }
}

#[tokio::test]
async fn the_lead_goes_to_the_other_process_after_a_kill_and_after_an_orderly_end() {
    let folder = tempfile::tempdir().unwrap();
    let ports = [
        tidegate_servers::free_port().unwrap(),
        tidegate_servers::free_port().unwrap(),
    ];
    let one = Process::start(folder.path(), ports[0], "2s").await;
    one.leads_within(LIMIT).await;
    let two = Process::start(folder.path(), ports[1], "2s").await;
    two.names(&one).await;
    one.kill();
    two.leads_within(LIMIT).await;
    let one = Process::start(folder.path(), ports[0], "2s").await;
    one.names(&two).await;
    two.terminate().await;
    one.leads_within(LIMIT).await;
}

#[tokio::test]
async fn a_killed_leader_that_starts_again_at_its_address_does_not_wait_for_its_old_lease() {
    let folder = tempfile::tempdir().unwrap();
    let port = tidegate_servers::free_port().unwrap();
    let first = Process::start(folder.path(), port, "10m").await;
    first.leads_within(LIMIT).await;
    first.kill();
    let again = Process::start(folder.path(), port, "10m").await;
    again.leads_within(LIMIT).await;
}
