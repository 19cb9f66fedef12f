//! The options of `indef probe`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, ValueHint};
use units::Bytes;

use super::values;

/// Find out what a drive is like, and what defragmenting can gain on it
///
/// Measures with reads how data lies on the drive's parallel units (how much goes to one die before the next
/// one's turn, and after how much the first one has its turn again), how long a read takes and keeps a die
/// busy, how fast the drive is, and from which depths, sizes and numbers of dies more does not help. Each
/// answer has a confidence; what the noise of this machine hides is said to be unknown, never guessed.
///
/// On a mounted file system it writes one file of its own, which has no name and is gone when the
/// probe ends, however it ends. A block device (root) is only read. Best on an idle drive.
///
/// The answers are kept for the drive: scan, plan, run and watch use them as --geometry auto, and plan and run for
/// --weight device.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    indef probe ~                            the drive below my home directory\n  \
    sudo indef probe /dev/nvme0n1            read a drive as it is, write nothing\n  \
    indef probe /srv --size 64MiB            write less\n  \
    indef probe /srv --json | jq .geometry\n  \
    indef probe /srv --toml > my.toml        a profile: flashd mount DIR --profile my.toml …\n\n\
    The unevenness of reads over the dies (DoPF) needs to know them; the number of fragments\n\
    (DoLF) does not. See docs/probe.md.")]
pub(crate) struct ProbeArgs {
    /// A path on a file system, or a block device
    #[arg(value_name = "PATH|DEVICE", value_hint = ValueHint::AnyPath)]
    pub(crate) path: PathBuf,

    /// Size of the probe's file
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = file_size)]
    pub(crate) size: Bytes,

    /// Take about this long at most, like 30s or 2m; what is not known by then is said
    #[arg(long, value_name = "D", default_value = "30s", value_parser = values::duration)]
    pub(crate) time_limit: Duration,

    /// Print what was found as a profile for flashd, the software SSD; numbers that were not measured
    /// are marked as assumed
    #[arg(long, conflicts_with = "json")]
    pub(crate) toml: bool,

    /// Do not keep the answers for scan, plan, run and watch
    #[arg(long)]
    pub(crate) forget: bool,
}

/// The size of the probe's file: enough for some stripes, and bounded.
fn file_size(text: &str) -> Result<Bytes, String> {
    match values::size(text)? {
        size if (Bytes::mib(16)..=Bytes::gib(4)).contains(&size) => Ok(size),
        _ => Err("must lie between 16MiB and 4GiB".into()),
    }
}
