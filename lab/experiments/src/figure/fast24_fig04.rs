//! FAST'24, Figure 4: a file in more and more fragments on a ramdisk, so that what fragments cost is the kernel's own time.
//!
//! The ramdisk is a loop device on a file in a tmpfs: a request is a copy in memory there. Linux' own one (brd) has no
//! requests, nor a queue of them.

use std::{
    fs::{self, File},
    path::Path,
    time::Duration,
};

use scratch_fs::{FragmentOptions, ScratchFs, fragment, fragments};
use units::{Bytes, FileRange};

use super::{
    error::{Failed, FigureError},
    measured::{Measured, Unit, multiples},
    parameters::Parameters,
    turn::Turn,
};
use crate::{calls, pieces};

/// A tmpfs.
const MEMORY: &str = "/dev/shm";
/// Linux (include/uapi/linux/magic.h)
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// A ramdisk with one file.
struct Ramdisk {
    // Closed before it is unmounted.
    file: File,
    fs: ScratchFs,
}

/// See the module.
pub(super) fn measure(parameters: &Parameters, turn: &Turn<'_>) -> Result<Measured, FigureError> {
    let size = Bytes(parameters.bytes("file")?);
    let (depths, dof) = (parameters.counts("depths")?, parameters.counts("dof")?);
    let (runs, passes) = (parameters.count("runs")?, parameters.count("passes")?);
    let mut disks = Vec::new();
    for &fragments in &dof {
        let what = format!("a ramdisk with a file in {fragments} fragments");
        turn.begin(&what)?;
        disks.push(Ramdisk::with(size, fragments).map_err(FigureError::machine(what))?);
    }
    // By depth, by number of fragments, the time of each run.
    let mut times = vec![vec![Vec::new(); dof.len()]; depths.len()];
    for run in 1..=runs {
        for (depth, times) in depths.iter().zip(&mut times) {
            let what = format!("run {run} of {runs}: requests in the queue: {depth}");
            turn.begin(&what)?;
            for (disk, times) in disks.iter().zip(times) {
                let time = disk.read(size, *depth, passes);
                let time = time.map_err(FigureError::machine(what.as_str()))?;
                times.push(time.as_secs_f64());
            }
        }
    }
    let mut measured = Measured::default();
    for (depth, times) in depths.iter().zip(&times) {
        let series = format!("depth {depth}");
        for (fragments, of_dof) in dof.iter().zip(times) {
            let ratios = multiples(of_dof, &times[0]);
            measured.push_runs(&series, *fragments as f64, &ratios, Unit::Times);
        }
    }
    Ok(measured)
}

impl Ramdisk {
    fn with(size: Bytes, wanted: u64) -> Result<Self, Failed> {
        let memory = Path::new(MEMORY);
        if rustix::fs::statfs(memory)?.f_type != TMPFS_MAGIC {
            return Err(format!("{MEMORY} is no tmpfs").into());
        }
        let fs = ScratchFs::builder("ext4", size * 8)
            .folder(memory)
            .build()?;
        let path = fs.path().join("file");
        let options = FragmentOptions {
            size,
            piece: Bytes(size.0 / wanted),
            seed: 1,
        };
        fragment(&path, options)?;
        fs.sync()?;
        let file = pieces::open(&path)?;
        match fragments(&file)? {
            found if found == wanted => Ok(Self { file, fs }),
            found => Err(format!("ext4 made {found} fragments").into()),
        }
    }

    /// The time to read the file `passes` times, in one call each, with so many requests in the queue. What the file system
    /// has to look up for that, it has looked up before.
    fn read(&self, size: Bytes, depth: u64, passes: u64) -> Result<Duration, Failed> {
        let device = Path::new(self.fs.device()).file_name();
        let device = device.ok_or("a device without a name")?;
        let queue = Path::new("/sys/block")
            .join(device)
            .join("queue/nr_requests");
        fs::write(&queue, depth.to_string())?;
        let there = fs::read_to_string(&queue)?;
        if there.trim() != depth.to_string() {
            return Err(format!("a queue of {depth} is not to be had, but of {there}").into());
        }
        let whole = [FileRange::new(0, size.0)];
        calls::read(&self.file, &whole, 1)?;
        Ok(calls::read(&self.file, &whole, passes)?)
    }
}
