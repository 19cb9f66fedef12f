//! Common to the figures of FragPicker: its host and drives, its files, and its defragmenters.

use std::ops::Range;

use flash_model::{ConfigError, Profile};
use indef_core::{
    access::AccessRange,
    layout::{Extent, Layout},
    plan::{FilePlan, PlanOptions, Policy},
};
use lfs_sim::{
    BLOCK, FileId,
    calls::{self, Direction},
    device,
    disk::Disk,
    host::{Access, Carrier},
    log::{LogMode, Shape},
    migration::migrate,
    planning, script,
    volume::{InPlaceVolume, LogVolume, Volume},
};
use units::{Bytes, FileOffset, FileRange, Nanos};

use super::{error::FigureError, parameters::Parameters};

/// The processors of the paper's host (Table 2).
const CPUS: usize = 8;

/// A system of the paper: its host, with one of its drives.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct System {
    pub(super) profile: Profile,
    pub(super) simulated: lfs_sim::Parameters,
    /// The length of a read or write.
    pub(super) io_size: Bytes,
    /// Requests of a call that the kernel collects.
    pub(super) plug: usize,
}

/// The file system: where what is written finds its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileSystem {
    /// In place, with blocks that `fallocate` has given to the file before.
    Ext4,
    /// At the head of a log; what has a place is overwritten there.
    F2fs,
    /// Where the free space begins, always. Alone on a new volume that is a log, too; checksums and trees are left out.
    Btrfs,
}

/// A device with a file on it.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    pub(super) disk: Disk,
    pub(super) volume: Volume,
    pub(super) file: FileId,
}

/// The work of a defragmenter.
pub(super) struct Defragmented {
    pub(super) ground: Ground,
    /// Bytes of the file.
    pub(super) written: f64,
    /// Seconds.
    pub(super) time: f64,
}

/// A way to choose what moves.
#[derive(Clone, Copy, Debug)]
pub(super) enum Contender<'a> {
    /// The whole file (`e4defrag`; for F2FS the paper has a program that does the same).
    Conventional,
    /// Data in pieces of these accesses; of them the hottest share, in percent.
    FragPicker {
        accesses: &'a [AccessRange],
        hot: f64,
    },
    /// The same of accesses from the file's beginning to its end, without having seen any.
    Bypass,
}

impl System {
    /// The host that the parameters `io_size`, `plug` and `request_time` describe, with a drive.
    pub(super) fn new(parameters: &Parameters, drive: &str) -> Result<Self, FigureError> {
        let io_size = Bytes(parameters.bytes("io_size")?);
        let mut simulated = lfs_sim::Parameters::default();
        simulated.log.section = simulated.log.segment;
        // Direct I/O copies nothing.
        simulated.host.block = Nanos(0);
        simulated.host.cpus = CPUS;
        simulated.host.request = parameters.time("request_time")?;
        simulated.host.max_request = io_size;
        let unknown = || FigureError::simulation(format!("there is no profile '{drive}'"));
        Ok(Self {
            profile: Profile::builtin(drive).ok_or_else(unknown)?,
            simulated,
            io_size,
            plug: parameters.count("plug")? as usize,
        })
    }

    /// A file that is written in these pieces, each with so many blocks of another file before it.
    pub(super) fn written(
        &self,
        file_system: FileSystem,
        pieces: &[(u32, u32)],
    ) -> Result<Ground, FigureError> {
        let sum = |part: fn(&(u32, u32)) -> u32| pieces.iter().map(part).sum::<u32>();
        let (gaps, data) = (sum(|it| it.0), sum(|it| it.1));
        // With room for all of it once more.
        let mut volume = self.volume(file_system, BLOCK * u64::from(gaps + 2 * data));
        let size = Self::size_of(&volume);
        let (file, other) = (volume.create(), volume.create());
        let mut ends = (0, 0);
        let mut writes: Vec<(FileId, Range<u32>)> = Vec::new();
        for (gap, piece) in pieces {
            let begins = ends;
            ends = (begins.0 + gap, begins.1 + piece);
            writes.push((other, begins.0..ends.0));
            writes.push((file, begins.1..ends.1));
        }
        writes.retain(|(_, blocks)| !blocks.is_empty());
        if let Volume::InPlace(volume) = &mut volume {
            for (file, blocks) in &writes {
                volume
                    .reserve(*file, blocks.start, blocks.len() as u32)
                    .map_err(FigureError::simulation)?;
            }
        }
        let device = device::conventional(&self.profile, size).map_err(FigureError::simulation)?;
        let mut disk = Disk::new(device, self.simulated.host.queue_depth);
        let (volume, _) = script::write(&self.simulated, volume, &mut disk, writes)
            .map_err(FigureError::simulation)?;
        Ok(Ground { disk, volume, file })
    }

    /// A drive with zones that are all full, of this profile: whatever is read comes from flash.
    pub(super) fn full_zones(&self, profile: &Profile, size: Bytes) -> Result<Disk, ConfigError> {
        let device = device::full_zones(profile, size)?;
        Ok(Disk::new(device, self.simulated.host.queue_depth))
    }

    /// An empty volume with room for so many bytes.
    pub(super) fn volume(&self, file_system: FileSystem, bytes: Bytes) -> Volume {
        let log = &self.simulated.log;
        match file_system {
            FileSystem::Ext4 => {
                let group = self.simulated.groups.group;
                let size = group * bytes.div_ceil(group);
                // fallocate asks for what is wanted, and no more (ext4: EXT4_GET_BLOCKS_NO_NORMALIZE).
                Volume::from(InPlaceVolume::new(blocks(size), blocks(group), false))
            }
            FileSystem::F2fs | FileSystem::Btrfs => {
                // Nodes are few, and each of the heads has a section of its own.
                let sections = bytes.div_ceil(log.section) as u32;
                let shape = Shape {
                    segment_blocks: blocks(log.segment),
                    segments_per_section: 1,
                    sections: sections + sections / 64 + log.reserved_sections + 16,
                };
                Volume::from(LogVolume::new(shape, LogMode::Lfs))
            }
        }
    }

    /// The device of an empty volume.
    pub(super) fn size_of(volume: &Volume) -> Bytes {
        let blocks = match volume {
            Volume::InPlace(volume) => volume.space().free_blocks(),
            Volume::Log(volume) => volume.space().shape().blocks(),
        };
        BLOCK * u64::from(blocks)
    }

    /// Lets a defragmenter work on a copy of the device.
    pub(super) fn defragment(
        &self,
        ground: &Ground,
        contender: Contender<'_>,
    ) -> Result<Defragmented, FigureError> {
        let carrier = Carrier::Host(Access::Direct { call: self.io_size });
        let plans = [(ground.file, self.plan(&ground.layout(), contender))];
        let (volume, mut disk) = (ground.volume.clone(), ground.disk.clone());
        let migrated = migrate(&self.simulated, volume, &mut disk, &plans, carrier)
            .map_err(FigureError::simulation)?;
        Ok(Defragmented {
            ground: Ground {
                disk,
                volume: migrated.volume,
                file: ground.file,
            },
            written: migrated.bytes.0 as f64,
            time: migrated.elapsed.time.0 as f64 / 1e9,
        })
    }

    /// The plan of a contender for a file that lies so.
    pub(super) fn plan(&self, layout: &Layout, contender: Contender<'_>) -> FilePlan {
        let (policy, accesses, hot_pct) = match contender {
            Contender::Conventional => (Policy::Whole, &[][..], 100.0),
            Contender::FragPicker { accesses, hot } => (Policy::Fragpicker, accesses, hot),
            Contender::Bypass => (Policy::Sequential, &[][..], 100.0),
        };
        let options = PlanOptions {
            policy,
            hot_pct,
            truncate_pct: 0.0,
            io_size: self.io_size,
            max_request: self.io_size,
            ..PlanOptions::default()
        };
        let mut plans = planning::plan(&options, [(layout, accesses)]);
        plans.remove(0)
    }

    /// The same by FragPicker, which has seen one read of each of these ranges.
    pub(super) fn defragment_read(
        &self,
        ground: &Ground,
        ranges: &[FileRange],
    ) -> Result<Defragmented, FigureError> {
        let access = |range: &FileRange| AccessRange {
            range: *range,
            reads: 1,
            ..AccessRange::default()
        };
        let accesses: Vec<AccessRange> = ranges.iter().map(access).collect();
        let contender = Contender::FragPicker {
            accesses: &accesses,
            hot: 100.0,
        };
        self.defragment(ground, contender)
    }

    /// Speed of calls for these ranges, one after the other, in MB/s.
    pub(super) fn speed(
        &self,
        ground: &Ground,
        ranges: &[FileRange],
        direction: Direction,
    ) -> Result<f64, FigureError> {
        let calls = calls_of(&ground.layout(), ranges);
        let bytes: Bytes = calls.iter().map(Layout::allocated).sum();
        let mut disk = ground.disk.clone();
        let elapsed = calls::perform(&self.simulated, &mut disk, calls, direction, self.plug)
            .map_err(FigureError::simulation)?;
        Ok(elapsed.megabytes_per_second(bytes.0))
    }

    /// Speed of updates of these ranges that give them new places, in MB/s, with a sync at the end.
    pub(super) fn update_elsewhere(
        &self,
        ground: &Ground,
        ranges: &[FileRange],
    ) -> Result<f64, FigureError> {
        let block = |offset: FileOffset| (offset.0 / BLOCK.0) as u32;
        let call = |range: &FileRange| (ground.file, block(range.start)..block(range.end()));
        let bytes: Bytes = ranges.iter().map(|range| range.len).sum();
        let (volume, mut disk) = (ground.volume.clone(), ground.disk.clone());
        let calls = ranges.iter().map(call);
        let (_, elapsed) = script::write(&self.simulated, volume, &mut disk, calls)
            .map_err(FigureError::simulation)?;
        Ok(elapsed.megabytes_per_second(bytes.0))
    }
}

impl Ground {
    /// How the file lies.
    pub(super) fn layout(&self) -> Layout {
        self.volume.layout(self.file)
    }
}

/// The data of each call for a file that lies so, as a file of its own.
pub(super) fn calls_of(layout: &Layout, ranges: &[FileRange]) -> Vec<Layout> {
    let call = |range: &FileRange| {
        let moved = |extent: Extent| Extent {
            file: FileOffset(extent.file.0 - range.start.0),
            ..extent
        };
        Layout::new(layout.clipped(*range).map(moved).collect())
    };
    ranges.iter().map(call).collect()
}

/// Ranges of a file of this size, each `step` bytes after the one before it; the last one is whole.
pub(super) fn every(step: Bytes, io_size: Bytes, size: Bytes) -> Vec<FileRange> {
    let starts = (0..size.0).step_by(step.0 as usize);
    let ranges = starts.map(|start| FileRange::new(start, io_size.0));
    ranges.filter(|range| range.end().0 <= size.0).collect()
}

/// Blocks of so many bytes.
pub(super) fn blocks(bytes: Bytes) -> u32 {
    bytes.div_ceil(BLOCK) as u32
}
