//! The media of volumes, and the states that a power cut leaves of them.
//!
//! - [`image`]: a file. Its bytes are the device without a volatile cache; a cut is a clone.
//! - [`cache`]: a software SSD with a volatile cache, which records its commands. A cut is a mark in the
//!   recording, and several states follow from it. It is a file for a loop device, or [`nvme`] disks; a state
//!   of a device that has zones is examined on such a device again.

mod cache;
mod image;
mod nvme;
mod process;
mod state;

use std::{
    path::{Path, PathBuf},
    slice,
    time::Duration,
};

use anyhow::{Result, bail};
use flash_model::NamespaceKind;
use units::Bytes;

use cache::{Cache, Recorded};
use image::Image;
use process::Namespace;

pub(crate) use nvme::FABRICS;
pub use process::{Attach, Beginning, serve as serve_medium};
pub(crate) use state::{CutState, Left};

/// Size of all zones of a zoned disk: F2FS needs spare sections.
const ZONES: Bytes = Bytes::gib(2);
/// Size of the disk without zones, for F2FS's metadata: on a larger one, it would put data there.
const BESIDE_ZONES: Bytes = Bytes::mib(64);

/// A kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum MediumKind {
    /// Without a volatile cache: written data is durable
    Image,
    /// With a volatile cache: flushed data is durable, of the rest anything may be there, in any order
    Cache,
    /// As cache, but file systems do not see the cache and flush nothing: the losses must be found
    /// (it tests the hammer itself)
    CacheUntold,
    /// As cache, but an NVMe disk: for engines that have the disk copy (it needs nvme_tcp, see --kernel)
    Nvme,
    /// Two NVMe disks of one device: a small one as nvme, and a zoned one
    NvmeZoned,
}

impl MediumKind {
    /// The name on the command line.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Cache => "cache",
            Self::CacheUntold => "cache-untold",
            Self::Nvme => "nvme",
            Self::NvmeZoned => "nvme-zoned",
        }
    }

    /// How a device of this kind is attached, if it is one.
    fn attach(self) -> Option<Attach> {
        match self {
            Self::Image => None,
            Self::Cache | Self::CacheUntold => Some(Attach::Fuse),
            Self::Nvme | Self::NvmeZoned => Some(Attach::Nvme),
        }
    }

    /// Whether it needs a kernel that connects to [`FABRICS`].
    pub(crate) fn is_nvme(self) -> bool {
        self.attach() == Some(Attach::Nvme)
    }

    /// The namespaces of a device of `size` bytes.
    fn namespaces(self, size: u64) -> Vec<Namespace> {
        let namespace = |kind, bytes| Namespace { kind, bytes };
        match self {
            Self::NvmeZoned => vec![
                namespace(NamespaceKind::Conventional, BESIDE_ZONES.get()),
                namespace(NamespaceKind::Zoned, ZONES.get()),
            ],
            _ => vec![namespace(NamespaceKind::Conventional, size)],
        }
    }
}

/// The device of a volume that is hammered.
#[derive(Debug)]
pub(crate) enum Medium {
    Image(Image),
    Cache(Cache),
}

/// The capture of a cut.
#[derive(Debug)]
pub(crate) enum Taken {
    /// A clone of the device.
    Image(PathBuf),
    /// The name of a mark in the recording.
    Mark(String),
}

/// A device after its round, for the examination of its cuts in the order in which they were made.
#[derive(Debug)]
pub(crate) enum Past {
    Images,
    Recorded(Box<Recorded>),
}

/// Where devices are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workshop<'a> {
    /// Has their files, on a file system that can clone them.
    pub(crate) folder: &'a Path,
    /// The hammer, which serves devices as a process of its own.
    pub(crate) program: &'a Path,
}

impl Workshop<'_> {
    /// Make a device for a volume.
    pub(crate) fn device(self, kind: MediumKind, size: u64) -> Result<Medium> {
        Ok(match kind.attach() {
            None => Medium::Image(Image::new(self.folder, size)?),
            Some(attach) => self.start(attach, Beginning::new(kind.namespaces(size)))?,
        })
    }

    /// Make a device of a state, to examine it.
    pub(crate) fn device_of(self, left: Left) -> Result<Medium> {
        Ok(match left {
            Left::Image(path) => Medium::Image(Image::of(path)),
            Left::Store(path) => self.start(Attach::Nvme, Beginning::of_store(path))?,
        })
    }

    fn start(self, attach: Attach, beginning: Beginning) -> Result<Medium> {
        Cache::start(self.program, self.folder, attach, beginning).map(Medium::Cache)
    }
}

impl Medium {
    /// The file for loop devices, or the disks themselves.
    pub(crate) fn files(&self) -> &[PathBuf] {
        match self {
            Self::Image(image) => slice::from_ref(image.path()),
            Self::Cache(cache) => cache.files(),
        }
    }

    /// Whether it consists of disks, which need no loop device.
    pub(crate) fn is_disk(&self) -> bool {
        match self {
            Self::Image(_) => false,
            Self::Cache(cache) => cache.is_disk(),
        }
    }

    /// Whether written data is durable only after a flush.
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

    /// Let the block at this offset be unreadable, as a file system counts on its disks. A command that reads
    /// it fails after `delay`.
    pub(crate) fn make_unreadable(&self, offset: u64, delay: Duration) -> Result<()> {
        match self {
            Self::Image(_) => bail!("an image has no faults"),
            Self::Cache(cache) => cache.make_unreadable(offset, delay),
        }
    }

    /// Let everything be readable again; returns the number of commands that failed.
    pub(crate) fn make_readable(&self) -> Result<u64> {
        match self {
            Self::Image(_) => Ok(0),
            Self::Cache(cache) => cache.make_readable(),
        }
    }

    /// End the device after its round.
    pub(crate) fn end(self) -> Result<Past> {
        match self {
            Self::Image(_) => Ok(Past::Images),
            Self::Cache(cache) => Ok(Past::Recorded(Box::new(cache.end()?))),
        }
    }
}

impl Past {
    /// The states that a cut may have left. `seed` chooses if there are too many.
    pub(crate) fn states(&mut self, taken: Taken, seed: u64) -> Result<Vec<CutState>> {
        match (self, taken) {
            (Self::Recorded(recorded), Taken::Mark(mark)) => recorded.states(&mark, seed),
            (_, Taken::Image(image)) => {
                let (what, left) = (String::new(), Left::Image(image));
                Ok(vec![CutState { what, left }])
            }
            (Self::Images, Taken::Mark(mark)) => anyhow::bail!("{mark}: nothing was recorded"),
        }
    }
}
