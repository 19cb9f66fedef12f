//! One host: its volume and drive, a day of its use, the moves of a defragmenter, and the times of its reads.

use std::{
    collections::{BTreeSet, HashMap},
    ops::Range,
    sync::Arc,
};

use anyhow::Result;
use flash_model::Profile;
use indef_core::{layout::Layout, plan::FilePlan};
use lfs_sim::{
    BLOCK, FileId, Parameters,
    ageing::Living,
    calls::{Direction, perform},
    device,
    disk::Disk,
    host::{Access, Carrier, Writes},
    log::{LogMode, Shape},
    trim::trim,
    volume::{InPlaceVolume, LogVolume, Mover, Volume},
};
use units::{Bytes, Nanos};
use workloads::filebench::{Ageing, Personality};

use crate::{
    drive,
    kind::{FileSystem, Kind, Workload},
    settings::{Settings, VOLUME, scale},
    tables::Tables,
};

/// Requests of a call that the kernel collects (experiments/fragpicker/fig08-ext4.toml).
const PLUG: usize = 16;
/// Processor time of a request (likewise).
const REQUEST_TIME: Nanos = Nanos(3_760);
/// The flows have written the data so often before the year begins.
const ROUNDS: f64 = 1.0;
/// What F2FS cleans in a quiet minute: a section, which is a segment of 2 MiB where there are no zones (fs/f2fs/gc.h,
/// `DEF_GC_THREAD_MAX_SLEEP_TIME`, v6.12).
const CLEANED: Bytes = Bytes::mib(2);
/// Minutes of a day.
const MINUTES: u64 = 24 * 60;
/// What a defragmenter reads in one call.
const COPYING: Access = Access::Direct {
    call: Bytes::kib(256),
};
const HOUR: Nanos = Nanos(3_600_000_000_000);

/// Who writes.
#[derive(Clone, Debug)]
enum Users {
    Flows(Box<Living>),
    Tables(Box<Tables>),
}

/// A host.
#[derive(Clone, Debug)]
pub struct Host {
    /// What it is.
    pub kind: Kind,
    /// Bytes of its files.
    pub data: Bytes,
    parameters: Parameters,
    profile: Profile,
    disk: Disk,
    users: Users,
    /// Sections that F2FS cleans in the quiet of a day.
    cleaned: f64,
    /// The part of one that it has not begun.
    left_to_clean: f64,
    /// Reads that were timed since something was written, by file and first block, with the layout that they met.
    times: HashMap<(FileId, u32), (Layout, Nanos)>,
    /// The same drive, written from its beginning to its end: made once, as that takes longer than a month of the host.
    written: Arc<Disk>,
    /// The time of a read of so many blocks in one piece.
    contiguous: HashMap<u32, Nanos>,
}

/// What a defragmenter did.
#[derive(Clone, Debug, Default)]
pub struct Moves {
    /// Bytes that it moved.
    pub bytes: Bytes,
    /// The time that it took.
    pub time: Nanos,
    /// The files of which something was moved; the others were left alone.
    pub files: BTreeSet<FileId>,
}

/// The parameters of lfs-sim for a volume of this size.
fn parameters() -> Parameters {
    let mut parameters = Parameters::default();
    parameters.log.segment = Bytes::kib(256);
    parameters.log.section = Bytes::kib(256);
    parameters.groups.group = Bytes::mib(8);
    parameters.cache.pages = Bytes::mib(8);
    parameters.cache.dirty_background = Bytes::mib(4);
    parameters.cache.dirty_limit = Bytes::mib(8);
    parameters.host.request = REQUEST_TIME;
    parameters
}

fn volume(file_system: FileSystem, parameters: &Parameters, settings: &Settings) -> Volume {
    let blocks = |bytes: Bytes| bytes.div_ceil(BLOCK) as u32;
    match file_system {
        FileSystem::Ext4 => Volume::from(InPlaceVolume::new(
            blocks(VOLUME),
            blocks(parameters.groups.group),
            parameters.groups.preallocation,
        )),
        FileSystem::F2fs => {
            let log = &parameters.log;
            let shape = Shape {
                segment_blocks: blocks(log.segment),
                segments_per_section: log.section.div_ceil(log.segment) as u32,
                sections: VOLUME.div_ceil(log.section) as u32,
            };
            // As F2FS does where there are no zones: holes are filled when room becomes scarce.
            let below = 2 * log.reserved_sections;
            let volume = LogVolume::new(shape, LogMode::Adaptive { below });
            let into_holes = settings.into_holes;
            Volume::from(volume.moved_by(Mover::Ioctl { into_holes }))
        }
    }
}

impl Host {
    /// The host on the first day of the year: aged.
    ///
    /// # Errors
    ///
    /// The simulation failed.
    pub fn begin(kind: Kind, settings: &Settings) -> Result<Self> {
        let parameters = parameters();
        let profile = drive::small(kind.drive, VOLUME)?;
        let device = device::conventional(&profile, VOLUME)?;
        let mut disk = Disk::new(device, parameters.host.queue_depth);
        let cleaned = match kind.file_system {
            FileSystem::Ext4 => Bytes::ZERO,
            FileSystem::F2fs => Bytes(CLEANED.0 * MINUTES / scale()),
        };
        let cleaned = settings.quiet * cleaned.0 as f64 / parameters.log.section.0 as f64;
        let volume = volume(kind.file_system, &parameters, settings);
        let data = Bytes((VOLUME.0 as f64 * kind.fill) as u64);
        let (personality, writes) = match kind.workload {
            Workload::Varmail => (Personality::Varmail, Writes::Cached),
            _ => (Personality::Fileserver, Writes::Direct),
        };
        let mean_bytes = personality.files_of_indef().1 / settings.size_divisor;
        let users = if kind.workload == Workload::Database {
            let tables = Tables::begin(&parameters, volume, &mut disk, data, kind.seed)?;
            Users::Tables(Box::new(tables))
        } else {
            let ageing = Ageing {
                personality,
                files: (data.0 / mean_bytes) as usize,
                mean_bytes,
                rounds: ROUNDS,
                // Reads change no place; they are counted, and timed apart.
                reads_percent: 0,
                seed: kind.seed,
            };
            let living = Living::begin(
                &parameters,
                volume,
                &mut disk,
                ageing,
                writes,
                settings.flows,
            )?;
            Users::Flows(Box::new(living))
        };
        let written = device::written(&profile, VOLUME)?;
        let written = Arc::new(Disk::new(written, parameters.host.queue_depth));
        let mut host = Self {
            kind,
            data,
            parameters,
            profile,
            disk,
            users,
            cleaned,
            left_to_clean: 0.0,
            times: HashMap::new(),
            written,
            contiguous: HashMap::new(),
        };
        host.trim()?;
        host.rest();
        Ok(host)
    }

    /// A day of writes, then what the file system does by itself, and a time of rest; returns the bytes that were written.
    ///
    /// # Errors
    ///
    /// The simulation failed.
    pub fn live(&mut self, bytes: Bytes) -> Result<Bytes> {
        let before = self.disk.device().stats().host_written_bytes;
        let (parameters, disk) = (&self.parameters, &mut self.disk);
        match &mut self.users {
            Users::Flows(living) => living.go_on(disk, bytes)?,
            Users::Tables(tables) => tables.go_on(parameters, disk, bytes)?,
        };
        self.clean()?;
        self.rest();
        Ok(Bytes(
            self.disk.device().stats().host_written_bytes - before,
        ))
    }

    /// Has F2FS clean what it does in the quiet of a day.
    fn clean(&mut self) -> Result<()> {
        self.left_to_clean += self.cleaned;
        let sections = self.left_to_clean as u32;
        if sections == 0 {
            return Ok(());
        }
        self.left_to_clean -= f64::from(sections);
        self.disk.idle(HOUR);
        let (parameters, disk) = (&self.parameters, &mut self.disk);
        match &mut self.users {
            Users::Flows(living) => living.clean(disk, sections)?,
            Users::Tables(tables) => tables.clean(parameters, disk, sections)?,
        };
        Ok(())
    }

    /// Lets the drive end what it writes. Reads are timed at rest, those right after a move as those of another day: behind
    /// programs that are still queued they would be slow, whatever the layout is. What was timed before lies elsewhere by
    /// now, as the drive may have moved it, too.
    fn rest(&mut self) {
        self.disk.idle(HOUR);
        self.times.clear();
    }

    /// `fstrim`, as distributions do it every week.
    ///
    /// # Errors
    ///
    /// The simulation failed.
    pub fn trim(&mut self) -> Result<()> {
        let volume = match &self.users {
            Users::Flows(living) => living.volume(),
            Users::Tables(tables) => tables.volume(),
        };
        trim(volume, &mut self.disk)?;
        Ok(())
    }

    /// Its volume.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        match &self.users {
            Users::Flows(living) => living.volume(),
            Users::Tables(tables) => tables.volume(),
        }
    }

    /// Its files.
    #[must_use]
    pub fn files(&self) -> Vec<FileId> {
        match &self.users {
            Users::Flows(living) => living.files(),
            Users::Tables(tables) => tables.files().to_vec(),
        }
    }

    /// Carries plans out as far as new places are better, as engines do.
    ///
    /// # Errors
    ///
    /// The simulation failed.
    pub fn migrate(&mut self, mut plans: Vec<(FileId, FilePlan)>) -> Result<Moves> {
        let volume = self.volume();
        let reserve = self.parameters.log.reserved_sections;
        plans.retain(|(file, plan)| {
            let blocks = plan.cost().div_ceil(BLOCK) as u32;
            is_better(volume, *file, plan) && !volume.refuses_to_move(blocks, reserve)
        });
        if plans.is_empty() {
            return Ok(Moves::default());
        }
        let before: Vec<(FileId, Layout)> = (plans.iter())
            .map(|(file, _)| (*file, volume.layout(*file)))
            .collect();
        let carrier = Carrier::Host(COPYING);
        let (parameters, disk) = (&self.parameters, &mut self.disk);
        let (bytes, elapsed) = match &mut self.users {
            Users::Flows(living) => living.migrate(disk, &plans, carrier)?,
            Users::Tables(tables) => tables.migrate(parameters, disk, &plans, carrier)?,
        };
        self.rest();
        let volume = self.volume();
        let has_moved =
            |(file, layout): (FileId, Layout)| (volume.layout(file) != layout).then_some(file);
        Ok(Moves {
            bytes,
            time: elapsed.time,
            files: before.into_iter().filter_map(has_moved).collect(),
        })
    }

    /// The time of a read of these blocks as they lie, the drive at rest, and their pieces.
    ///
    /// # Errors
    ///
    /// The simulation failed.
    pub fn time(&mut self, file: FileId, blocks: Range<u32>) -> Result<(Nanos, u64)> {
        let layout = self.volume().files().layout_of(file, blocks.clone());
        let pieces = layout.fragments();
        let key = (file, blocks.start);
        if let Some((known, time)) = self.times.get(&key)
            && *known == layout
        {
            return Ok((*time, pieces));
        }
        let time = self.read(layout.clone())?;
        self.times.insert(key, (layout, time));
        Ok((time, pieces))
    }

    fn read(&mut self, layout: Layout) -> Result<Nanos> {
        let (parameters, disk) = (&self.parameters, &mut self.disk);
        Ok(perform(parameters, disk, [layout], Direction::Read, PLUG)?.time)
    }

    /// The time of a read of so many blocks in one piece, on the same drive, written from its beginning to its end: the mean of
    /// some places.
    ///
    /// # Errors
    ///
    /// The simulation failed.
    pub fn contiguous(&mut self, blocks: u32) -> Result<Nanos> {
        const PLACES: u64 = 16;
        if let Some(time) = self.contiguous.get(&blocks) {
            return Ok(*time);
        }
        let mut disk = Disk::clone(&self.written);
        let mut sum = 0;
        for place in 0..PLACES {
            let step = VOLUME.0 / (PLACES + 1) / BLOCK.0;
            let extent = indef_core::layout::Extent {
                file: units::FileOffset(0),
                phys: units::PhysOffset(place * step * BLOCK.0),
                len: BLOCK * u64::from(blocks),
                flags: indef_core::layout::ExtentFlags::empty(),
            };
            let layout = Layout::new(vec![extent]);
            sum += perform(&self.parameters, &mut disk, [layout], Direction::Read, PLUG)?
                .time
                .0;
        }
        let time = Nanos(sum / PLACES);
        self.contiguous.insert(blocks, time);
        Ok(time)
    }

    /// Bytes that flash cells took so far.
    #[must_use]
    pub fn programmed(&self) -> Bytes {
        let stats = self.disk.device().stats();
        Bytes(stats.programmed_bytes.total() + stats.copied_back_bytes.total())
    }

    /// Times that a flash block of its drive may be erased; none where that is not what wears it.
    #[must_use]
    pub const fn endurance(&self) -> Option<u32> {
        self.profile.endurance()
    }
}

/// Whether a file has fewer pieces after this plan.
fn is_better(volume: &Volume, file: FileId, plan: &FilePlan) -> bool {
    if !volume.files().has(file) {
        return false;
    }
    let layout = volume.layout(file);
    let (mut now, mut then) = (0, 0);
    for run in plan.runs() {
        now += layout.fragments_in(run);
        let (start, end) = (run.start.0 / BLOCK.0, run.end().0.div_ceil(BLOCK.0));
        then += u64::from(volume.pieces_after(file, start as u32, (end - start) as u32));
    }
    then < now
}
