//! The options that say which files a command is about.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use indef_engine::collect::Glob;
use units::Bytes;

use super::values;

/// Which files to look at, beside the paths.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Files")]
pub(crate) struct FilesArgs {
    #[command(flatten)]
    pub(crate) exclude: ExcludeArgs,

    /// Leave out files smaller than this
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) min_size: Option<Bytes>,

    /// Look at the files named in FILE, one on each line, in the place of PATH; - for standard input.
    /// Relative names begin at the working directory; a folder stands for nothing in it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) files_from: Option<PathBuf>,

    /// Names in FILE end with a NUL byte, as `find -print0` writes them
    #[arg(short = '0', long, requires = "files_from", conflicts_with_all = ["paths", "all_mounts"])]
    pub(crate) null: bool,

    /// Look at all mounted file systems that a run can work on, in the place of PATH: those for
    /// writing, each once; never network file systems, overlays or file systems in memory
    #[arg(long, conflicts_with = "files_from")]
    pub(crate) all_mounts: bool,
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
