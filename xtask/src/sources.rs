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

/// The variable by which `crates/indef/build.rs` is told of the commit.
pub(crate) const COMMIT: &str = "INDEF_COMMIT";

/// The commit that programs are to name: the one that was given, else the checkout's; none in a tree that is
/// neither.
pub(crate) fn commit() -> Option<String> {
    std::env::var(COMMIT).ok().or_else(checked_out)
}

/// The checkout's commit, if it is a checkout of this project, and not a folder in that of another one.
fn checked_out() -> Option<String> {
    let top = output_of(&mut git(&["rev-parse", "--show-toplevel"])).ok()?;
    let is_ours = top.as_ref() as &Path == root().canonicalize().ok()?;
    is_ours.then(|| output_of(&mut git(&["rev-parse", "HEAD"])).ok())?
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
