//! What volumes lie on, and the states that a power cut leaves of it.
//!
//! - [`image`]: a file. Its bytes are the device without a volatile cache; a cut is a clone.
//! - [`cache`]: a software SSD with a volatile cache, which records what is done to it. A cut is a mark in
//!   the recording, and several states follow from it. It is a file for a loop device, or an [`nvme`] disk.

mod cache;
mod image;
mod nvme;
mod process;

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::disk::Host;
use cache::{Cache, Recorded};
use image::Image;

pub(crate) use nvme::FABRICS;
pub use process::{Attach, serve as serve_medium};

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MediumKind {
    /// Without a volatile cache: what was written is there
    Image,
    /// With a volatile cache: what was flushed is there, and of the rest anything in any order
    Cache,
    /// The same, and file systems are not told of the cache, so that they flush nothing: what is
    /// lost must be found (it tries the hammer itself)
    CacheUntold,
    /// As cache, but an NVMe disk: for engines that have the disk copy (it needs nvme_tcp, see --kernel)
    Nvme,
}

impl MediumKind {
    /// As on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Cache => "cache",
            Self::CacheUntold => "cache-untold",
            Self::Nvme => "nvme",
        }
    }
}

/// The device of a volume that is hammered.
#[derive(Debug)]
pub(crate) enum Medium {
    Image(Image),
    Cache(Cache),
}

/// What was taken at a cut.
#[derive(Debug)]
pub(crate) enum Taken {
    /// The device as it was.
    Image(PathBuf),
    /// The name of a mark in the recording.
    Mark(String),
}

/// A state that a cut may have left.
#[derive(Debug)]
pub(crate) struct State {
    /// Which one, if there are several.
    pub(crate) what: String,
    /// The device's bytes.
    pub(crate) image: PathBuf,
}

/// A device after its round: what is left is to look at its cuts, in the order in which they were made.
#[derive(Debug)]
pub(crate) enum Past {
    Images,
    Recorded(Box<Recorded>),
}

impl Medium {
    pub(crate) fn new(kind: MediumKind, host: &Host, size: u64) -> Result<Self> {
        let folder = host.path();
        Ok(match kind {
            MediumKind::Image => Self::Image(Image::new(folder, size)?),
            MediumKind::Cache | MediumKind::CacheUntold => {
                Self::Cache(Cache::start(host.program(), folder, size, Attach::Fuse)?)
            }
            MediumKind::Nvme => {
                Self::Cache(Cache::start(host.program(), folder, size, Attach::Nvme)?)
            }
        })
    }

    /// An image that is there already, to look at.
    pub(crate) fn of_image(path: PathBuf) -> Self {
        Self::Image(Image::of(path))
    }

    /// The file for loop devices, or the disk itself.
    pub(crate) fn file(&self) -> &Path {
        match self {
            Self::Image(image) => image.path(),
            Self::Cache(cache) => cache.path(),
        }
    }

    /// Whether it is a disk, which needs no loop device.
    pub(crate) fn is_disk(&self) -> bool {
        match self {
            Self::Image(_) => false,
            Self::Cache(cache) => cache.is_disk(),
        }
    }

    /// Whether what is written is not durable until it is flushed.
    pub(crate) fn has_volatile_cache(&self) -> bool {
        matches!(self, Self::Cache(_))
    }

    /// Cut the power at this instant.
    pub(crate) fn cut(&self) -> Result<Taken> {
        match self {
            Self::Image(image) => image.copy().map(Taken::Image),
            Self::Cache(cache) => cache.mark().map(Taken::Mark),
        }
    }

    /// Nobody uses it any more.
    pub(crate) fn end(self) -> Result<Past> {
        match self {
            Self::Image(_) => Ok(Past::Images),
            Self::Cache(cache) => Ok(Past::Recorded(Box::new(cache.end()?))),
        }
    }
}

impl Past {
    /// The states that a cut may have left. `seed` chooses among those that are too many.
    pub(crate) fn states(&mut self, taken: Taken, seed: u64) -> Result<Vec<State>> {
        match (self, taken) {
            (Self::Recorded(recorded), Taken::Mark(mark)) => recorded.states(&mark, seed),
            (_, Taken::Image(image)) => {
                let what = String::new();
                Ok(vec![State { what, image }])
            }
            (Self::Images, Taken::Mark(mark)) => anyhow::bail!("{mark}: nothing was recorded"),
        }
    }
}
