//! Common ground of all ways of an experiment, and the files as they lie before and after.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use anyhow::Result;
use flash_model::Zone;
use guest::{Cache, Release, ZnsSetup};
use serde::Serialize;
use units::Bytes;
use workloads::filebench::Ageing;

use super::{
    ageing::Writes,
    image::Ssd,
    layout::Layout,
    room::{Room, RoomOptions},
    virtual_time::{Machine, Reader},
};

/// The directory of the aged files.
pub(super) const DIR: &str = "/mnt/f2fs/aged";

/// The files as they lie.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct State {
    pub(super) bytes: u64,
    pub(super) extents: usize,
    /// Percentage of the data in requests of one piece.
    pub(super) contiguous_pct: f64,
    /// Mean number of pieces of a request.
    pub(super) dolf: f64,
    /// Time to read all of it, by the model.
    pub(super) read_ns: u64,
}

/// The files, the SSD and the guests of an experiment.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) ageing: Ageing,
    /// How the flows of the ageing write.
    pub(super) writes: Writes,
    pub(super) ssd: Ssd,
    /// indef's `--io-size`, and the length of the kernel's read-ahead.
    pub(super) io_size: Bytes,
    /// How many times slower than its model the SSD goes while commands are recorded.
    pub(super) time_scale: f64,
    pub(super) kernel: Release,
    pub(super) cpus: u32,
    pub(super) memory_mib: u32,
    /// The indef of guests.
    pub(super) indef: PathBuf,
    /// Ends guests when it is set.
    pub(super) stop: Arc<AtomicBool>,
}

/// The common ground of all ways.
pub(super) struct Bench {
    pub(super) setup: Setup,
    /// The image files, and what guests share.
    pub(super) folder: tempfile::TempDir,
}

impl Bench {
    pub(super) fn new(setup: Setup) -> Result<Self> {
        let cache = Cache::of_project();
        fs::create_dir_all(cache.folder())?;
        let bench = Self {
            setup,
            folder: tempfile::Builder::new()
                .prefix("indef-lab-")
                .tempdir_in(cache.folder())?,
        };
        fs::create_dir(bench.share())?;
        Ok(bench)
    }

    /// The folder that guests have as `/share`.
    pub(super) fn share(&self) -> PathBuf {
        self.folder.path().join("share")
    }

    /// A guest with the SSD in this image. Only in a new one does F2FS collect garbage by itself: later, what moves
    /// data is the way that is measured.
    pub(super) fn enter(&self, image: &Path, setup: ZnsSetup, standard_only: bool) -> Result<Room> {
        let it = &self.setup;
        let room = RoomOptions {
            kernel: it.kernel,
            cpus: it.cpus,
            memory_mib: it.memory_mib,
            indef: &it.indef,
            share: self.share(),
            read_ahead: it.io_size,
            setup,
            standard_only,
            collects: setup != ZnsSetup::Kept,
            stop: Arc::clone(&it.stop),
        };
        Room::enter(it.ssd.open(image)?, it.ssd.conventional, &room)
    }

    /// The model of the SSD, with its zones like these.
    pub(super) fn machine(&self, zones: &[Zone]) -> Result<Machine> {
        let ssd = &self.setup.ssd;
        Machine::new(&ssd.profile, zones, ssd.conventional)
    }

    pub(super) fn state(&self, layout: &Layout, zones: &[Zone]) -> Result<State> {
        let io_bytes = self.setup.io_size.get();
        let read = self
            .machine(zones)?
            .run(&mut [&mut Reader::of(layout, io_bytes)])?;
        Ok(State {
            bytes: layout.bytes(),
            extents: layout.extents(),
            contiguous_pct: layout.contiguous_percent(io_bytes),
            dolf: layout.dolf_mean(io_bytes),
            read_ns: read.ns,
        })
    }
}
