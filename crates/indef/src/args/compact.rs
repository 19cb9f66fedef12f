//! The options of `indef compact`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use indef_engine::run::RunOptions;
use units::Bytes;

use super::{
    execution::{HowArgs, Workers},
    files::ExcludeArgs,
    values,
};

/// Make free space whole, so that large files get one piece again
///
/// On a file system that was filled and emptied often, what is free lies in thousands of holes, and every large
/// file is born in fragments. This empties one region of the device: it takes the region whose files are the fewest
/// bytes to move for a free run of the wanted length, keeps everybody from its free space meanwhile, and moves what
/// lies in it to holes elsewhere. No file of ext4 or XFS gets more fragments than it has.
///
/// Only files below PATH move (the mount point: all of them). What stays in the way is told: metadata, shared
/// extents, files that are immutable or that nobody below PATH owns. Contents, sizes, times, holes and sharing stay
/// as they are; the files may be in use. Interrupt it at any time, and run it again to go on.
///
/// On Btrfs the kernel empties chunks of data (as btrfs balance does), on F2FS sections (as its garbage collector does):
/// indef chooses the cheapest, and sees that what moves finds a place elsewhere. Files anywhere on the file system move
/// then, with their snapshots. On Btrfs the run is room for new chunks, which metadata can have, too.
///
/// For ext4, XFS, Btrfs and F2FS, as root.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sudo indef scan /srv                     how free space lies now, among other things\n  \
    sudo indef compact --dry-run /srv        which region, how many bytes to move, and for what\n  \
    sudo indef compact /srv                  a free run ten times as long as the longest\n  \
    sudo indef compact --want 1GiB --budget 2GiB --rate 50MiB /srv\n\n\
    It writes at most two bytes for each byte of the run.\n\
    Exit status 3: a limit or a signal stopped it before the run was as long as wanted, or others needed the space. \
    1: an error; what was done before it is told.")]
pub(crate) struct CompactArgs {
    /// A path on the file system; files below it may be moved
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,

    /// The length of the free run that there shall be [default: ten times the longest that there is, half of all
    /// free space at most]
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    pub(crate) want: Option<Bytes>,

    /// Write at most this much [default: twice the wanted length]
    #[arg(long, value_name = "BYTES", value_parser = values::size)]
    budget: Option<Bytes>,

    /// Keep this share of the file system free, in percent [default: 5]
    #[arg(long, value_name = "PCT", value_parser = values::percent)]
    min_free: Option<f64>,

    #[command(flatten)]
    pub(crate) exclude: ExcludeArgs,

    #[command(flatten)]
    how: HowArgs,

    #[command(flatten)]
    pub(crate) workers: Workers,
}

impl CompactArgs {
    /// The options of the moves.
    pub(crate) fn run_options(&self) -> RunOptions {
        let base = RunOptions {
            jobs: self.workers.given().unwrap_or(0),
            budget: self.budget,
            keep_maps: 0,
            ..RunOptions::default()
        };
        RunOptions {
            min_free_pct: self.min_free.unwrap_or(base.min_free_pct),
            ..self.how.over(base)
        }
    }
}
