//! Debian's packages, installed with apt-get when we are root there.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use tidegate_servers::tools;

/// Whether packages can be installed here without asking anybody.
pub(crate) fn can_install() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|about| about.uid() == 0);
    root && is_here()
}

pub(crate) fn is_here() -> bool {
    Path::new("/etc/debian_version").exists() && tools::on_path("apt-get").is_some()
}

pub(crate) fn install(packages: &[&str]) -> Result<()> {
    eprintln!("installing {}", packages.join(", "));
    apt_get(&["update"])?;
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(packages);
    apt_get(&arguments)
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    command
        .arg("-qq")
        .args(arguments)
        .stdin(Stdio::null())
        .env("DEBIAN_FRONTEND", "noninteractive");
    let status = command.status().context("cannot run apt-get")?;
    if !status.success() {
        bail!("apt-get {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}
