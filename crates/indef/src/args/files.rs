//! The options that say which files a command is about.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use indef_engine::collect::{Glob, GlobError, Select};
use units::Bytes;

use super::values;

/// Which files to look at, beside the paths.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Files")]
pub(crate) struct FilesArgs {
    #[command(flatten)]
    pub(crate) choose: ChooseArgs,

    /// Look at the files named in FILE, one on each line, in the place of PATH; - for standard input.
    /// Relative names begin at the working directory; a folder stands for nothing in it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath,
          conflicts_with = "all_mounts")]
    pub(crate) files_from: Option<PathBuf>,

    /// Names in FILE end with a NUL byte, as `find -print0` writes them
    #[arg(short = '0', long, requires = "files_from", conflicts_with_all = ["paths", "all_mounts"])]
    pub(crate) null: bool,
}

/// The same without lists of names: what a service can hold to.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Files")]
pub(crate) struct ChooseArgs {
    #[command(flatten)]
    pub(crate) exclude: ExcludeArgs,

    /// Leave out files smaller than this
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) min_size: Option<Bytes>,

    /// Look at all mounted file systems that a run can work on, in the place of PATH: those for
    /// writing, each once; never network file systems, overlays or file systems in memory, nor drives
    /// that may be unplugged (unless the system is on them)
    #[arg(long)]
    pub(crate) all_mounts: bool,
}

impl ChooseArgs {
    /// What to leave out.
    ///
    /// # Errors
    ///
    /// The globs are too many to be compiled together.
    pub(crate) fn select(&self) -> Result<Select, GlobError> {
        let globs = self.exclude.exclude.iter().cloned();
        Select::new(globs, self.min_size.unwrap_or(Bytes::ZERO))
    }

    /// Take what the configuration leaves out. Whoever protects a folder there does not expect it to be moved for the
    /// sake of another one.
    pub(crate) fn add(&mut self, exclude: Vec<Glob>, min_size: Option<Bytes>) {
        self.exclude.exclude.extend(exclude);
        self.min_size = self.min_size.or(min_size);
    }
}

/// What to leave out.
#[derive(Clone, Debug, Default, Args)]
#[group(id = "excluded", multiple = true)]
pub(crate) struct ExcludeArgs {
    /// Leave out files and folders that match GLOB, like *.iso, cache/ or /srv/tmp (once for each)
    ///
    /// A GLOB without a slash is matched against each name, one with a slash in it against the last
    /// parts of each path, and one that begins with a slash against each whole path. A slash at its
    /// end means folders only. * and ? match no slash, **/ matches any folders; there are also [abc]
    /// and {one,two}. A folder that matches is not entered.
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<Glob>,
}
