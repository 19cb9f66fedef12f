//! The committed files.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use source_tree::root;

use crate::command::output_of;

/// Whether files that git knows differ from what is committed.
pub(crate) fn are_changed() -> Result<bool> {
    let mut status = git(&["status", "--porcelain", "--untracked-files=no"]);
    Ok(!output_of(&mut status)?.is_empty())
}

/// Put them into a folder that is there.
pub(crate) fn unpack(folder: &Path) -> Result<()> {
    let mut archive = git(&["archive", "--format=tar", "HEAD"])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run git")?;
    let unpacked = Command::new("tar")
        .args(["--extract", "--no-same-owner", "--directory"])
        .arg(folder)
        .stdin(archive.stdout.take().context("no pipe to git")?)
        .status();
    let archived = archive.wait()?;
    let unpacked = unpacked.context("cannot run tar")?;
    ensure!(
        archived.success() && unpacked.success(),
        "the sources cannot be unpacked: git: {archived}, tar: {unpacked}"
    );
    Ok(())
}

fn git(arguments: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.args(arguments).current_dir(root());
    git
}
