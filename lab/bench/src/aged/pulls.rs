//! A working tree that follows a repository.
//!
//! The repository is a bare one beside the file system, whose branch goes on by some commits a day, so that all of its
//! history passes in the life before the repair; what is left of it passes in the month after. git collects its garbage as it does by default, but
//! before the day ends.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Result, ensure};
use tempfile::TempDir;

use super::life::{Life, Setting};
use crate::measure::text;

pub(super) struct Pulls {
    tree: PathBuf,
    upstream: TempDir,
    /// The first parents' line, the oldest first.
    commits: Vec<String>,
    day: usize,
    days: usize,
}

impl Pulls {
    pub(super) fn begin(setting: &Setting<'_>) -> Result<Self> {
        let repository = setting.repository.unwrap_or(source_tree::root());
        let history = git(
            repository,
            &["rev-list", "--first-parent", "--reverse", "HEAD"],
        )?;
        let commits: Vec<String> = history.lines().map(str::to_owned).collect();
        let days = (setting.days + setting.days_after) as usize;
        ensure!(
            commits.len() > days,
            "{} has {} commits in a line; {days} days want more (--repository, --days)",
            repository.display(),
            commits.len()
        );
        let upstream = tempfile::tempdir_in(setting.images)?;
        text(
            Command::new("git")
                .args(["clone", "--quiet", "--bare"])
                .args([repository, upstream.path()]),
        )?;
        let pulls = Self {
            tree: setting.folder.join("tree"),
            upstream,
            commits,
            day: 0,
            days,
        };
        // Whatever the branch was called, it is the one that is cloned.
        git(
            pulls.upstream.path(),
            &["symbolic-ref", "HEAD", "refs/heads/followed"],
        )?;
        pulls.publish(0)?;
        text(
            Command::new("git")
                .args([
                    "clone",
                    "--quiet",
                    "--no-local",
                    "--single-branch",
                    "--no-tags",
                ])
                .args(["--config", "gc.autoDetach=false"])
                .args([pulls.upstream.path(), pulls.tree.as_path()]),
        )?;
        Ok(pulls)
    }

    fn publish(&self, commit: usize) -> Result<()> {
        let commit = &self.commits[commit.min(self.commits.len() - 1)];
        git(
            self.upstream.path(),
            &["update-ref", "refs/heads/followed", commit],
        )?;
        Ok(())
    }
}

impl Life for Pulls {
    fn day(&mut self) -> Result<()> {
        self.day += 1;
        self.publish(self.day * self.commits.len() / self.days)?;
        git(&self.tree, &["pull", "--quiet", "--ff-only"])?;
        Ok(())
    }
}

/// git without the configuration of whoever measures.
fn git(folder: &Path, arguments: &[&str]) -> Result<String> {
    text(
        Command::new("git")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .arg("-C")
            .arg(folder)
            .args(arguments),
    )
}
