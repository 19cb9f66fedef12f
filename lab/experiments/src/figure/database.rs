//! The common part of figures with RocksDB: an aged ext4, a database on it, YCSB's reads, and defragmenters beside them.

use indef_core::access::AccessRange;
use lfs_sim::{
    BLOCK, FileId,
    beside::{Call, Load, Served, migrate_beside, serve},
    calls::Direction,
    device,
    disk::Disk,
    host::{Access, Carrier},
    migration::Migrated,
    volume::{InPlaceVolume, Volume},
};
use units::{Bytes, FileRange};
use workloads::{Numbers, zipf::Zipf};

use super::{
    error::FigureError,
    fragpicker::{Contender, System, blocks},
    parameters::Parameters,
};

/// The share of the aged part of a volume that is free when the files that are read come: a third.
const AGED_FOR_EACH: u32 = 3;

/// An ext4 that was filled with small files, of which some were deleted: what was written after that lies in the
/// holes, and after it there is room in one piece.
#[derive(Clone, Debug)]
pub(super) struct Aged {
    pub(super) volume: Volume,
    pub(super) disk: Disk,
    /// The files in the holes.
    pub(super) files: Vec<FileId>,
}

/// Ages a volume, and writes files of so many blocks; the small ones have from one block to twice the parameter
/// `hole`. `room`: blocks that are free at last.
pub(super) fn age(
    parameters: &Parameters,
    system: &System,
    sizes: &[u32],
    room: u32,
) -> Result<Aged, FigureError> {
    let hole = blocks(Bytes(parameters.bytes("hole")?));
    let mut numbers = Numbers::new(parameters.count("seed")?);
    let wanted: u32 = sizes.iter().sum();
    let aged = AGED_FOR_EACH * wanted;
    let group = blocks(system.simulated.groups.group);
    let mut volume = Volume::from(InPlaceVolume::new(aged + room, group, false));
    let mut fill = |volume: &mut Volume, mut left: u32| {
        let mut small = Vec::new();
        while left > 0 {
            let size = numbers.between(1, 2 * hole + 1).min(left);
            small.push((written(volume, size)?, size));
            left -= size;
        }
        numbers.shuffle(&mut small);
        Ok::<_, FigureError>(small)
    };
    let first = fill(&mut volume, aged)?;
    let last = fill(&mut volume, room)?;
    let mut freed = 0;
    for (file, size) in first {
        if freed >= wanted {
            break;
        }
        volume.delete(file);
        freed += size;
    }
    let files: Vec<FileId> = (sizes.iter())
        .map(|size| written(&mut volume, *size))
        .collect::<Result<_, _>>()?;
    for (file, _) in last {
        volume.delete(file);
    }
    let size = BLOCK * u64::from(aged + room);
    let device = device::written(&system.profile, size).map_err(FigureError::simulation)?;
    Ok(Aged {
        volume,
        disk: Disk::new(device, system.simulated.host.queue_depth),
        files,
    })
}

/// A file with the blocks that `fallocate` gives it at once.
pub(super) fn written(volume: &mut Volume, size: u32) -> Result<FileId, FigureError> {
    let file = volume.create();
    volume
        .place(file, 0, size, &mut Vec::new())
        .map_err(FigureError::simulation)?;
    Ok(file)
}

/// The length of each file of so many bytes in all, in blocks.
pub(super) fn files_of(all: Bytes, each: Bytes) -> Vec<u32> {
    let starts = (0..all.0).step_by(each.0 as usize);
    starts
        .map(|start| blocks(Bytes(each.0.min(all.0 - start))))
        .collect()
}

/// The blocks of the database that a client of YCSB reads.
pub(super) struct Reads {
    /// A RocksDB block, in blocks of the file system.
    block: u32,
    /// These blocks in each file.
    in_file: u32,
    /// The numbers of the blocks of all files, in the order of the reads.
    sequence: Vec<u32>,
    /// All blocks.
    count: u32,
}

impl Reads {
    /// Draws records by Zipf's law, scattered over the database as YCSB scatters them, by the parameters `block`,
    /// `record`, `skew` and `seed`; `rounds`: reads, of all blocks.
    pub(super) fn drawn(
        parameters: &Parameters,
        database: Bytes,
        file: Bytes,
        rounds: f64,
    ) -> Result<Self, FigureError> {
        let block = Bytes(parameters.bytes("block")?);
        let in_block = (block.0 / parameters.bytes("record")?).max(1);
        let count = database.0 / block.0;
        let law = Zipf {
            skew: parameters.number("skew")? / 100.0,
            ranges: count * in_block,
            reads: (count as f64 * rounds) as u64,
            seed: parameters.count("seed")?,
        };
        let block_of = |record| record / in_block as u32;
        Ok(Self {
            block: blocks(block),
            in_file: (file.0 / block.0) as u32,
            sequence: law.sequence().into_iter().map(block_of).collect(),
            count: count as u32,
        })
    }

    /// The calls of the first part of the reads, and of the rest of them: of one client, whose favourites stay the
    /// same.
    pub(super) fn split(mut self, first: f64) -> (Self, Self) {
        let at = (f64::from(self.count) * first) as usize;
        let rest = Self {
            sequence: self.sequence.split_off(at.min(self.sequence.len())),
            ..self
        };
        (
            Self {
                sequence: self.sequence,
                ..rest
            },
            rest,
        )
    }

    /// One call for each read.
    pub(super) fn calls(&self, files: &[FileId]) -> Vec<Call> {
        let call = |number: &u32| {
            let start = number % self.in_file * self.block;
            Call {
                file: files[(number / self.in_file) as usize],
                blocks: start..start + self.block,
                direction: Direction::Read,
            }
        };
        self.sequence.iter().map(call).collect()
    }

    /// For each file, what a trace of the reads has counted.
    pub(super) fn accesses(&self) -> Vec<Vec<AccessRange>> {
        let mut counts = vec![0_u64; self.count as usize];
        for number in &self.sequence {
            counts[*number as usize] += 1;
        }
        let bytes = BLOCK * u64::from(self.block);
        let of_file = |counts: &[u64]| {
            let read = (0_u64..).zip(counts).filter(|(_, reads)| **reads > 0);
            read.map(|(number, reads)| AccessRange {
                range: FileRange::new(number * bytes.0, bytes.0),
                reads: *reads,
                ..AccessRange::default()
            })
            .collect::<Vec<_>>()
        };
        counts.chunks(self.in_file as usize).map(of_file).collect()
    }
}

/// The program that makes these calls.
pub(super) fn load<'a>(system: &System, calls: &'a [Call], threads: u64) -> Load<'a> {
    Load {
        calls,
        threads: threads as usize,
        plug: system.plug,
    }
}

impl Aged {
    /// Calls in a second, of so many.
    pub(super) fn speed(
        &self,
        system: &System,
        load: Load<'_>,
        calls: u64,
    ) -> Result<f64, FigureError> {
        let mut disk = self.disk.clone();
        let served = serve(&system.simulated, &self.volume, &mut disk, load, calls);
        Ok(served.map_err(FigureError::simulation)?.per_second())
    }

    /// Defragments the files beside a program, on a copy; `contender`: of the file with this number; `copying`: bytes
    /// of a read of the tool.
    pub(super) fn defragment_beside<'a>(
        &self,
        system: &System,
        contender: impl Fn(usize) -> Contender<'a>,
        copying: Bytes,
        load: Load<'_>,
    ) -> Result<Beside, FigureError> {
        let plan = |(number, file): (usize, &FileId)| {
            let layout = self.volume.layout(*file);
            (*file, system.plan(&layout, contender(number)))
        };
        let plans: Vec<_> = self.files.iter().enumerate().map(plan).collect();
        let carrier = Carrier::Host(Access::Direct { call: copying });
        let (volume, mut disk) = (self.volume.clone(), self.disk.clone());
        let simulated = &system.simulated;
        let (migrated, served) =
            migrate_beside(simulated, volume, &mut disk, &plans, carrier, load)
                .map_err(FigureError::simulation)?;
        let Migrated { volume, bytes, .. } = migrated;
        Ok(Beside {
            after: Self {
                volume,
                disk,
                files: self.files.clone(),
            },
            bytes: bytes.0 as f64,
            served,
        })
    }
}

/// The work of a defragmenter beside a program.
pub(super) struct Beside {
    /// The volume afterwards.
    pub(super) after: Aged,
    /// Bytes that were moved.
    pub(super) bytes: f64,
    /// The program's calls meanwhile, and the time.
    pub(super) served: Served,
}

impl Beside {
    /// Seconds.
    pub(super) fn seconds(&self) -> f64 {
        self.served.elapsed.time.0 as f64 / 1e9
    }
}
