//! Common to the figures of InDeF: its system, aged.

use std::sync::Arc;

use flash_model::Profile;
use indef_core::{
    access::AccessRange,
    layout::{Geometry, Layout},
    plan::{FilePlan, PlanOptions, Policy},
};
use lfs_sim::{
    FileId,
    ageing::{Aged, age},
    device,
    disk::{Disk, Elapsed},
    host::{Access, Carrier, Counters, Writes},
    log::{LogMode, Shape},
    migration::{Migrated, migrate},
    planning,
    readers::{Read, read},
    volume::{LogVolume, Volume},
};
use units::{Bytes, FileRange};
use workloads::filebench::{Ageing, Personality};

use super::{error::FigureError, measured::change, memo::Memo, parameters::Parameters};
use crate::image::scaled;

/// The workloads, and how their flows write: fileserver past the page cache, as FragPicker's (§5.4), whose experiment
/// with grep InDeF repeats; varmail into it, as filebench does unless told otherwise.
pub(super) const WORKLOADS: [(Personality, Writes); 2] = [
    (Personality::Fileserver, Writes::Direct),
    (Personality::Varmail, Writes::Cached),
];

/// The zones of the paper's device: 16 GiB of 32 MiB.
pub(super) const ZONES: u64 = 512;

/// InDeF's system: its device, its host, and how it reads.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct System {
    profile: Profile,
    pub(super) simulated: lfs_sim::Parameters,
    /// The length of a read, for which fragmentation is counted, too.
    pub(super) io_size: Bytes,
    access: Access,
    /// How a tool reads what it copies through the host.
    copying: Access,
    geometry: Geometry,
    /// The paper's device and its number of files are divided by this.
    pub(super) factor: u64,
}

impl System {
    /// The system that the parameters `device`, `io_size`, `request_time` and `reader` describe.
    pub(super) fn new(parameters: &Parameters) -> Result<Self, FigureError> {
        Self::scaled(parameters, Bytes(parameters.bytes("io_size")?), 1)
    }

    /// The same, with the device, its zones, and the host's memory divided by the parameter `factor`.
    pub(super) fn small(parameters: &Parameters) -> Result<Self, FigureError> {
        let io_size = Bytes(parameters.bytes("io_size")?);
        Self::scaled(parameters, io_size, parameters.count("factor")?)
    }

    /// The whole system with reads of this length.
    pub(super) fn with_io_size(parameters: &Parameters, io_size: u64) -> Result<Self, FigureError> {
        Self::scaled(parameters, Bytes(io_size), 1)
    }

    fn scaled(parameters: &Parameters, io_size: Bytes, factor: u64) -> Result<Self, FigureError> {
        let name = parameters.text("device")?;
        let text = Profile::builtin_text(name)
            .ok_or_else(|| FigureError::simulation(format!("there is no profile '{name}'")))?;
        let text = scaled(text, factor).map_err(FigureError::simulation)?;
        let profile = Profile::parse(name, &text).map_err(FigureError::simulation)?;
        let mut simulated = lfs_sim::Parameters::default();
        let (cache, log) = (&mut simulated.cache, &mut simulated.log);
        let limits = [
            &mut cache.pages,
            &mut cache.dirty_background,
            &mut cache.dirty_limit,
        ];
        for size in limits.into_iter().chain([&mut log.section]) {
            size.0 /= factor;
        }
        simulated.host.request = parameters.time("request_time")?;
        let access = match parameters.text("reader")? {
            "direct" => Access::Direct { call: io_size },
            "buffered" => Access::Buffered {
                call: io_size,
                readahead: io_size,
            },
            other => {
                let text = format!("a reader is 'direct' or 'buffered', not '{other}'");
                return Err(FigureError::simulation(text));
            }
        };
        let copying = access;
        let interleave = profile.geometry().zone.interleave;
        let chips = profile.geometry().zone.dies;
        Ok(Self {
            simulated,
            io_size,
            access,
            copying,
            factor,
            geometry: Geometry::Zoned {
                chips,
                block: interleave,
                segment: Bytes::mib(2),
                segment_chips: chips,
                offset: Bytes::ZERO,
            },
            profile,
        })
    }

    /// DoPF of a range in blocks of 4 KiB, as the paper counts it: from 0 to 240.
    pub(super) fn dopf(&self, layout: &Layout, range: FileRange) -> f64 {
        self.beta() * layout.measure(range, &self.geometry, self.io_size).dopf
    }

    /// β of eq. 2, 1 for DoPF in blocks of 4 KiB. Where more go to a chip at once, DoPF counts these larger blocks, and
    /// is smaller by the square of their size.
    fn beta(&self) -> f64 {
        let blocks = self
            .profile
            .geometry()
            .zone
            .interleave
            .div_ceil(lfs_sim::BLOCK) as f64;
        blocks * blocks
    }

    /// The same system, with tools that read with calls of this length, one after the other.
    pub(super) fn copying_by(mut self, call: u64) -> Self {
        self.copying = Access::Direct { call: Bytes(call) };
        self
    }

    /// Pages of a chip, and chips.
    pub(super) fn page_and_chips(&self) -> (Bytes, u32) {
        let geometry = self.profile.geometry();
        (geometry.program_unit(), geometry.zone.dies)
    }

    /// A device of so many zones, that are empty.
    pub(super) fn empty_disk(&self, zones: u64) -> Result<Disk, FigureError> {
        let size = self.simulated.log.section * zones;
        let device = device::zoned(&self.profile, size).map_err(FigureError::simulation)?;
        Ok(Disk::new(device, self.simulated.host.queue_depth))
    }

    /// A device of so many bytes, that are all written.
    fn full_disk(&self, size: Bytes) -> Result<Disk, FigureError> {
        let section = self.simulated.log.section;
        let size = section * size.div_ceil(section).max(1);
        let device = device::full_zones(&self.profile, size).map_err(FigureError::simulation)?;
        Ok(Disk::new(device, self.simulated.host.queue_depth))
    }

    /// A volume of so many zones.
    pub(super) fn volume(&self, zones: u64) -> Volume {
        let log = &self.simulated.log;
        let blocks = |bytes: Bytes| bytes.div_ceil(lfs_sim::BLOCK) as u32;
        let shape = Shape {
            segment_blocks: blocks(log.segment),
            segments_per_section: log.section.div_ceil(log.segment) as u32,
            sections: zones as u32,
        };
        Volume::from(LogVolume::new(shape, LogMode::Lfs))
    }

    /// Reads files that lie by hand on a device that is full.
    pub(super) fn read_by_hand(&self, layout: Layout) -> Result<Read, FigureError> {
        let ends = layout.extents().iter().map(|it| it.phys.0 + it.len.0);
        let mut disk = self.full_disk(Bytes(ends.max().unwrap_or_default()))?;
        self.read(&mut disk, vec![layout])
    }

    /// Reads files one after the other, as `grep -r` does.
    fn read(&self, disk: &mut Disk, files: Vec<Layout>) -> Result<Read, FigureError> {
        read(&self.simulated, disk, files, self.access, 1).map_err(FigureError::simulation)
    }

    /// Reads files of these sizes that are contiguous, each after the one before it: as written by one thread.
    fn read_contiguous(&self, files: &[Layout]) -> Result<Read, FigureError> {
        let mut phys = units::PhysOffset(0);
        let contiguous: Vec<Layout> = files
            .iter()
            .map(|file| {
                let extent = indef_core::layout::Extent {
                    file: units::FileOffset(0),
                    phys,
                    len: file.allocated(),
                    flags: indef_core::layout::ExtentFlags::empty(),
                };
                phys = phys + extent.len;
                Layout::new(vec![extent])
            })
            .collect();
        let mut disk = self.full_disk(Bytes(phys.0))?;
        self.read(&mut disk, contiguous)
    }

    /// Reads the files as they lie.
    pub(super) fn read_ground(&self, ground: &Ground) -> Result<Read, FigureError> {
        self.read(&mut ground.disk.clone(), ground.layouts())
    }

    /// How fast files are in comparison to the same ones in one piece each, in percent.
    pub(super) fn loss(&self, ground: &Ground) -> Result<f64, FigureError> {
        let whole = self.read_contiguous(&ground.layouts())?;
        Ok(change_of_speed(&self.read_ground(ground)?, &whole))
    }

    /// The plans of a contender. All files were read once, from end to end.
    fn plan(&self, ground: &Ground, contender: Contender) -> Vec<FilePlan> {
        let files = ground.layouts();
        let reads = |file: &Layout| planning::sequential_reads(file.allocated(), self.io_size);
        let accesses: Vec<Vec<AccessRange>> = files.iter().map(reads).collect();
        self.plan_read(&files, &accesses, contender)
    }

    /// The plans of a contender for files that were read so.
    pub(super) fn plan_read(
        &self,
        files: &[Layout],
        accesses: &[Vec<AccessRange>],
        contender: Contender,
    ) -> Vec<FilePlan> {
        let (policy, truncate) = match contender {
            Contender::Conventional => (Policy::Whole, 0.0),
            Contender::FragPicker => (Policy::Fragpicker, 0.0),
            Contender::Indef { truncate } => (Policy::Indef, truncate),
        };
        let options = PlanOptions {
            policy,
            truncate_pct: truncate,
            beta: self.beta(),
            io_size: self.io_size,
            max_request: self.io_size,
            geometry: self.geometry,
            ..PlanOptions::default()
        };
        let files = files.iter().zip(accesses.iter().map(Vec::as_slice));
        planning::plan(&options, files)
    }

    /// Lets a defragmenter work on a copy of the device, and reads the files afterwards.
    pub(super) fn defragment(
        &self,
        ground: &Ground,
        contender: Contender,
    ) -> Result<Defragmented, FigureError> {
        let carrier = self.carrier(contender);
        let plans = self.plan(ground, contender);
        let plans: Vec<(FileId, FilePlan)> = ground.files.iter().copied().zip(plans).collect();
        let mut disk = ground.disk.clone();
        let volume = ground.volume.clone();
        let Migrated {
            volume,
            bytes,
            elapsed,
            counters,
        } = migrate(&self.simulated, volume, &mut disk, &plans, carrier)
            .map_err(FigureError::simulation)?;
        let mut after = Ground {
            disk,
            volume,
            files: ground.files.clone(),
        };
        let layouts = after.layouts();
        Ok(Defragmented {
            bytes,
            elapsed,
            counters,
            read: self.read(&mut after.disk, layouts)?,
        })
    }

    /// Who carries the data of a contender.
    pub(super) const fn carrier(&self, contender: Contender) -> Carrier {
        match contender {
            Contender::Indef { .. } => Carrier::Device,
            Contender::Conventional | Contender::FragPicker => Carrier::Host(self.copying),
        }
    }

    /// Bytes that a contender would move.
    pub(super) fn planned(&self, ground: &Ground, contender: Contender) -> u64 {
        let plans = self.plan(ground, contender);
        plans.iter().map(|plan| plan.cost().0).sum()
    }
}

/// Who defragments (§IV): each with its choice of ranges, and the way in which its data goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Contender {
    /// Conv.f2fs: whole files, through the host.
    Conventional,
    /// Every fragmented read, through the host.
    FragPicker,
    /// Reads by IODP, inside of the device.
    Indef {
        /// Percentage of each file's entries that are left.
        truncate: f64,
    },
}

/// The work of a contender.
pub(super) struct Defragmented {
    /// Moved bytes.
    pub(super) bytes: Bytes,
    /// Time and counters of the work.
    pub(super) elapsed: Elapsed,
    pub(super) counters: Counters,
    /// The same files, read afterwards.
    pub(super) read: Read,
}

/// A device with files on it.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    pub(super) disk: Disk,
    pub(super) volume: Volume,
    pub(super) files: Vec<FileId>,
}

impl Ground {
    /// The files' layouts, in the order in which they are read.
    pub(super) fn layouts(&self) -> Vec<Layout> {
        self.files
            .iter()
            .map(|file| self.volume.layout(*file))
            .collect()
    }
}

/// All that a device's ageing depends on.
#[derive(Clone, Debug, PartialEq)]
struct History {
    profile: Profile,
    simulated: lfs_sim::Parameters,
    ageing: Ageing,
    writes: Writes,
}

/// The paper's device, aged by one of its workloads.
pub(super) struct AgedDevice {
    history: History,
    pub(super) ground: Ground,
    /// Of files that were there before the flows began.
    pub(super) first_bytes: Bytes,
}

impl AgedDevice {
    /// The work of a contender on it ([`System::defragment`]), once for all figures.
    pub(super) fn defragmented(
        &self,
        system: &System,
        contender: Contender,
    ) -> Result<Arc<Defragmented>, FigureError> {
        static WORKS: Memo<(History, System, Contender), Defragmented> = Memo::new();
        let mut used = system.clone();
        if let Contender::Indef { .. } = contender {
            // Its data does not go through the host.
            used.copying = used.access;
        }
        WORKS.get((self.history.clone(), used, contender), || {
            system.defragment(&self.ground, contender)
        })
    }
}

/// The device, aged as the parameters `turn_blocks`, `queue_depth`, `rounds`, `reads` and `seed` say; once for all
/// figures.
pub(super) fn aged(
    system: &System,
    parameters: &Parameters,
    personality: Personality,
    writes: Writes,
) -> Result<Arc<AgedDevice>, FigureError> {
    static DEVICES: Memo<History, AgedDevice> = Memo::new();
    let (simulated, ageing) = ageing(system, parameters, personality)?;
    let history = History {
        profile: system.profile.clone(),
        simulated,
        ageing,
        writes,
    };
    DEVICES.get(history.clone(), || age_device(system, history))
}

/// How a workload ages the device, by the same parameters.
pub(super) fn ageing(
    system: &System,
    parameters: &Parameters,
    personality: Personality,
) -> Result<(lfs_sim::Parameters, Ageing), FigureError> {
    let ageing = ageing_of_files(parameters, personality, system.factor)?;
    let mut simulated = system.simulated.clone();
    simulated.host.queue_depth = parameters.count("queue_depth")? as usize;
    simulated.log.turn_blocks = parameters.count("turn_blocks")? as u32;
    Ok((simulated, ageing))
}

/// How a workload ages its files, whose number is divided by a factor, by the parameters `rounds`, `reads` and `seed`.
pub(super) fn ageing_of_files(
    parameters: &Parameters,
    personality: Personality,
    factor: u64,
) -> Result<Ageing, FigureError> {
    let (files, mean_bytes) = personality.files_of_indef();
    Ok(Ageing {
        personality,
        files: files / factor as usize,
        mean_bytes,
        rounds: parameters.number("rounds")? / 100.0,
        reads_percent: parameters.number("reads")? as u32,
        seed: parameters.count("seed")?,
    })
}

fn age_device(system: &System, history: History) -> Result<AgedDevice, FigureError> {
    let simulated = &history.simulated;
    let mut disk = system
        .empty_disk(ZONES)?
        .with_queue_depth(simulated.host.queue_depth);
    let Aged {
        volume,
        files,
        first_bytes,
        ..
    } = age(
        simulated,
        system.volume(ZONES),
        &mut disk,
        history.ageing,
        history.writes,
    )
    .map_err(FigureError::simulation)?;
    Ok(AgedDevice {
        history,
        ground: Ground {
            disk,
            volume,
            files,
        },
        first_bytes,
    })
}

/// The change of speed from one read to another, in percent.
pub(super) fn change_of_speed(now: &Read, before: &Read) -> f64 {
    change(now.megabytes_per_second(), before.megabytes_per_second())
}

/// The share of the data that lies in reads of one fragment: what FragPicker leaves alone.
pub(super) fn contiguous_percent(files: &[Layout], io_size: Bytes) -> f64 {
    let (mut whole, mut all) = (0, 0);
    for file in files {
        for access in planning::sequential_reads(file.allocated(), io_size) {
            all += access.range.len.0;
            if file.fragments_in(access.range) == 1 {
                whole += access.range.len.0;
            }
        }
    }
    100.0 * whole as f64 / (all as f64).max(1.0)
}

/// The change from one number of bytes to another, in percent.
pub(super) fn change_of_bytes(now: u64, before: u64) -> f64 {
    change(now as f64, before as f64)
}
