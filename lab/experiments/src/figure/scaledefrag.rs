//! Common to the figures of ScaleDefrag: its host and drives, its four workloads on ext4, and the ways to defragment.
//!
//! Of the paper only the captions are at hand. What they tell of the ways: `e4defrag` takes one file after the other and
//! reads page by page, each read waiting for its data (Fig 2, 3, 9a); ScaleDefrag has many defraggers with a file each
//! (*PD*), and each submits the reads of many pages before it waits (*Async*, Fig 9b).

use std::sync::Arc;

use flash_model::Profile;
use indef_core::{
    layout::Layout,
    plan::{FilePlan, PlanOptions, Policy},
};
use lfs_sim::{
    BLOCK, FileId,
    ageing::{age, age_by},
    device,
    disk::Disk,
    host::{Access, Carrier, Writes},
    migration::migrate_by,
    planning,
    volume::{InPlaceVolume, Volume},
};
use units::Bytes;
use workloads::{
    ffsb::Ffsb,
    filebench::{Ageing, Oltp, Personality},
};

use super::{error::FigureError, memo::Memo, parameters::Parameters};

/// The free parameters that all of the figures have.
pub(super) const FREE: [&str; 5] = [
    "dirty",
    "file_time",
    "request_time",
    "together",
    "varmail_file",
];

/// Threads of FFSB: as many as the ageing has.
pub(super) const FFSB_THREADS: usize = workloads::filebench::FLOWS;
/// Files of filebench's `oltp`: ten with data, and a log.
pub(super) const OLTP_FILES: u64 = 11;

/// A workload whose files are defragmented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Workload {
    Varmail,
    Ffsb,
    Fileserver,
    Oltp,
}

impl Workload {
    pub(super) const ALL: [Self; 4] = [Self::Varmail, Self::Ffsb, Self::Fileserver, Self::Oltp];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Varmail => "varmail",
            Self::Ffsb => "FFSB",
            Self::Fileserver => "fileserver",
            Self::Oltp => "OLTP",
        }
    }

    /// The one with this name.
    pub(super) fn named(name: &str) -> Result<Self, FigureError> {
        let found = Self::ALL.into_iter().find(|it| it.name() == name);
        found.ok_or_else(|| FigureError::simulation(format!("there is no workload '{name}'")))
    }
}

/// How a tool works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// Files that are moved at the same time.
    pub(super) defraggers: usize,
    /// Whether the reads of many pages are submitted together.
    pub(super) is_async: bool,
}

impl Way {
    pub(super) const E4DEFRAG: Self = Self {
        defraggers: 1,
        is_async: false,
    };
    pub(super) const ASYNC: Self = Self {
        defraggers: 1,
        is_async: true,
    };

    /// Parallel alone.
    pub(super) const fn parallel(defraggers: usize) -> Self {
        Self {
            defraggers,
            is_async: false,
        }
    }

    /// Parallel and asynchronous.
    pub(super) const fn scaledefrag(defraggers: usize) -> Self {
        Self {
            defraggers,
            is_async: true,
        }
    }
}

/// The system, and the size and age of its files.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct System {
    profile: Profile,
    pub(super) simulated: lfs_sim::Parameters,
    /// Bytes of reads that are submitted together.
    together: Bytes,
    data: Bytes,
    /// Bytes of the volume, beside those for others.
    volume: Bytes,
    /// Bytes of the volume that others have.
    others: Bytes,
    varmail_file: u64,
    fileserver_file: u64,
    ffsb_append: u64,
    rounds: f64,
    seed: u64,
}

/// A volume with a workload's files, and what is to be moved.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    pub(super) disk: Disk,
    pub(super) volume: Volume,
    pub(super) plans: Vec<(FileId, FilePlan)>,
    /// Extents for each MiB of the files.
    pub(super) fragments: f64,
}

/// The work of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Seconds.
    pub(super) time: f64,
    /// Bytes that were moved.
    pub(super) bytes: f64,
}

impl Work {
    /// In MB/s.
    pub(super) fn throughput(self) -> f64 {
        self.bytes / self.time / 1e6
    }
}

impl System {
    pub(super) fn new(parameters: &Parameters) -> Result<Self, FigureError> {
        let drive = parameters.text("device")?;
        let unknown = || FigureError::simulation(format!("there is no profile '{drive}'"));
        let data = parameters.bytes("data")?;
        let part = |percent: f64| Bytes((data as f64 * percent / 100.0) as u64);
        let dirty = parameters.number("dirty")?;
        let mut simulated = lfs_sim::Parameters::default();
        simulated.cache.dirty_background = part(dirty);
        simulated.cache.dirty_limit = part(2.0 * dirty);
        simulated.host.cpus = parameters.count("cpus")? as usize;
        simulated.host.request = parameters.time("request_time")?;
        simulated.host.file = parameters.time("file_time")?;
        simulated.host.max_request = Bytes(parameters.bytes("max_request")?);
        Ok(Self {
            profile: Profile::builtin(drive).ok_or_else(unknown)?,
            simulated,
            together: Bytes(parameters.bytes("together")?),
            data: Bytes(data),
            volume: Bytes((data as f64 * 100.0 / parameters.number("fill")?) as u64),
            others: Bytes(0),
            varmail_file: parameters.bytes("varmail_file")?,
            fileserver_file: parameters.bytes("fileserver_file")?,
            ffsb_append: parameters.bytes("ffsb_append")?,
            rounds: parameters.number("rounds")? / 100.0,
            seed: parameters.count("seed")?,
        })
    }

    /// The same with room for others on the volume.
    pub(super) const fn with_room_for(mut self, others: Bytes) -> Self {
        self.others = others;
        self
    }

    /// How a way reads and writes.
    pub(super) const fn carrier(&self, way: Way) -> Carrier {
        let call = if way.is_async { self.together } else { BLOCK };
        Carrier::Host(Access::Direct { call })
    }

    /// The volume of a workload, aged once for all.
    pub(super) fn aged(&self, workload: Workload) -> Result<Arc<Ground>, FigureError> {
        static AGED: Memo<(System, Workload), Ground> = Memo::new();
        AGED.get((self.clone(), workload), || self.age(workload))
    }

    fn age(&self, workload: Workload) -> Result<Ground, FigureError> {
        let simulated = &self.simulated;
        let group = simulated.groups.group.div_ceil(BLOCK) as u32;
        let size = BLOCK * (self.volume + self.others).div_ceil(BLOCK);
        let blocks = size.div_ceil(BLOCK) as u32;
        let volume = Volume::from(InPlaceVolume::new(blocks, group, true));
        let device = device::conventional(&self.profile, size).map_err(FigureError::simulation)?;
        let mut disk = Disk::new(device, simulated.host.queue_depth);
        let filebench = |personality, mean_bytes| Ageing {
            personality,
            files: (self.data.0 / mean_bytes) as usize,
            mean_bytes,
            rounds: self.rounds,
            // They change no place.
            reads_percent: 0,
            seed: self.seed,
        };
        let data = self.data.0;
        let aged = match workload {
            Workload::Varmail => {
                let ageing = filebench(Personality::Varmail, self.varmail_file);
                age(simulated, volume, &mut disk, ageing, Writes::Cached)
            }
            Workload::Fileserver => {
                let ageing = filebench(Personality::Fileserver, self.fileserver_file);
                age(simulated, volume, &mut disk, ageing, Writes::Cached)
            }
            Workload::Ffsb => {
                let mut ffsb = Ffsb::new(FFSB_THREADS, data, self.ffsb_append, self.seed);
                let others = Box::new(move |thread| ffsb.next(thread));
                age_by(simulated, volume, &mut disk, others)
            }
            Workload::Oltp => {
                let mut oltp = Oltp::new(OLTP_FILES as usize, data / OLTP_FILES);
                let others = Box::new(move |thread| oltp.next(thread));
                age_by(simulated, volume, &mut disk, others)
            }
        };
        let aged = aged.map_err(FigureError::simulation)?;
        let layouts: Vec<Layout> = (aged.files.iter())
            .map(|file| aged.volume.layout(*file))
            .collect();
        let options = PlanOptions {
            policy: Policy::Whole,
            ..PlanOptions::default()
        };
        let plans = planning::plan(&options, layouts.iter().map(|layout| (layout, &[][..])));
        let fragments: u64 = layouts.iter().map(Layout::fragments).sum();
        let bytes: Bytes = layouts.iter().map(Layout::allocated).sum();
        Ok(Ground {
            fragments: fragments as f64 * f64::from(1 << 20) / bytes.0 as f64,
            plans: aged.files.into_iter().zip(plans).collect(),
            volume: aged.volume,
            disk,
        })
    }

    /// The work of a tool on a workload's files, done once for all.
    pub(super) fn work(&self, workload: Workload, way: Way) -> Result<Work, FigureError> {
        static WORKS: Memo<(System, Workload, Way), Work> = Memo::new();
        let key = (self.clone(), workload, way);
        let work = WORKS.get(key, || {
            let ground = self.aged(workload)?;
            let mut disk = ground.disk.clone();
            let migrated = migrate_by(
                &self.simulated,
                ground.volume.clone(),
                &mut disk,
                &ground.plans,
                self.carrier(way),
                way.defraggers,
            );
            let migrated = migrated.map_err(FigureError::simulation)?;
            Ok::<_, FigureError>(Work {
                time: migrated.elapsed.time.0 as f64 / 1e9,
                bytes: migrated.bytes.0 as f64,
            })
        })?;
        Ok(*work)
    }
}

/// Numbers of defraggers.
pub(super) fn defraggers(parameters: &Parameters) -> Result<Vec<usize>, FigureError> {
    let counts = parameters.counts("defraggers")?;
    Ok(counts.into_iter().map(|count| count as usize).collect())
}
