//! Runs the same cargo again, from the root of the workspace.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Variables for a child, such as the addresses of servers.
pub(crate) type Variables = [(&'static str, String)];

/// The checkout that this program was built from.
pub(crate) fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// A cargo command with no input; its output goes where ours goes.
pub(crate) fn command(arguments: &[&str], variables: &Variables) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(workspace_root())
        .stdin(Stdio::null());
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command
}

pub(crate) fn run(arguments: &[&str], variables: &Variables) -> Result<()> {
    let status = command(arguments, variables)
        .status()
        .context("cannot run cargo")?;
    if !status.success() {
        bail!("cargo {} failed ({status})", arguments.join(" "));
    }
    Ok(())
}
