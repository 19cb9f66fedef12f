//! Maps the blocks of a device to files, for traces of devices.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use anyhow::{Result, bail};
use indef_core::{SkipReason, layout::ExtentFlags};
use indef_engine::{
    Cancel,
    collect::{CollectOptions, FoundFile, Seen, collect_beneath},
};
use indef_fs::{Mapper, Mounts, Refusal, Roots};
use indef_trace::import::BlockMap;
use rustix::fs::{major, minor};
use units::{FileRange, PhysOffset};

use super::tell::failed;
use crate::{
    output::{Console, Name},
    refusal::tell,
};

/// The type of Btrfs in `statfs`: its maps show places in an address space of its own.
const BTRFS: u64 = 0x9123_683E;

/// Map all files below the paths, without leaving the file system of each.
pub(super) fn map(paths: &[PathBuf], console: &Console) -> Result<BlockMap> {
    let mut blocks = BlockMap::default();
    for path in paths {
        let status = fs::metadata(path).map_err(|error| failed(path, &error))?;
        let kind = rustix::fs::statfs(path).map_err(|error| failed(path, &error.into()))?;
        if kind.f_type.cast_unsigned() == BTRFS {
            bail!(
                "{}: Btrfs does not tell which blocks of the device a file has; trace files instead \
                 (indef trace, strace)",
                Name(path)
            );
        }
        let Some(device) = DiskBelow::of(status.dev()) else {
            bail!(
                "{}: does not lie on a disk of its own, so its blocks cannot be found in a trace of one",
                Name(path)
            );
        };
        let roots = Roots::new();
        // The walk examines files; places are determined here, also of the smallest
        // files.
        let found = Mutex::new((&mut blocks, Mapper::default()));
        let visit = |seen: Seen| {
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            let (blocks, mapper) = &mut *found;
            let (path, added) = match seen {
                Seen::File(file) => {
                    let added = add(blocks, mapper, &device, &roots, &file);
                    (file.path, added)
                }
                Seen::Problem(problem) => (problem.path, Err(problem.refusal)),
            };
            if let Err(refusal) = added {
                tell(console, &path, &refusal);
            }
        };
        let options = CollectOptions {
            jobs: 1,
            ..CollectOptions::default()
        };
        let path = std::slice::from_ref(path);
        collect_beneath(&roots, path, &options, &Cancel::new(), &visit);
    }
    Ok(blocks)
}

/// The disk that a file system lies on, and where on it.
struct DiskBelow {
    number: (u32, u32),
    start: u64,
}

impl DiskBelow {
    /// The device of an `st_dev`. `None` if it is no disk or partition of one.
    fn of(dev: u64) -> Option<Self> {
        let system = PathBuf::from(format!("/sys/dev/block/{}:{}", major(dev), minor(dev)));
        let system = fs::canonicalize(system).ok()?;
        if system.join("dm").exists() || system.join("md").exists() {
            return None;
        }
        let number =
            |path: &Path| -> Option<u64> { fs::read_to_string(path).ok()?.trim().parse().ok() };
        if number(&system.join("partition")).is_none() {
            let number = (major(dev), minor(dev));
            return Some(Self { number, start: 0 });
        }
        // Requests name the disk, and sectors on it.
        let start = number(&system.join("start"))?.checked_mul(512)?;
        let disk = fs::read_to_string(system.parent()?.join("dev")).ok()?;
        let (major, minor) = disk.trim().split_once(':')?;
        let number = (major.parse().ok()?, minor.parse().ok()?);
        Some(Self { number, start })
    }
}

fn add(
    blocks: &mut BlockMap,
    mapper: &mut Mapper,
    device: &DiskBelow,
    roots: &Roots,
    file: &FoundFile,
) -> Result<(), Refusal> {
    let (root, below) = file.place().ok_or(SkipReason::Changed)?;
    let entry = roots.get(root, Mounts::Stay)?.find(below)?;
    if entry.id() != file.id {
        return Err(SkipReason::Changed.into());
    }
    let opened = File::from(entry.open_to_map()?);
    let all = FileRange::new(0, i64::MAX.unsigned_abs());
    let layout = indef_fs::map(&opened, &file.path, all, true, mapper)?;
    let path = std::path::absolute(&file.path).unwrap_or_else(|_| file.path.clone());
    let number = blocks.file(path);
    for extent in layout.extents() {
        let odd = ExtentFlags::INLINE | ExtentFlags::UNPLACED;
        if !extent.flags.intersects(odd) {
            let place = PhysOffset(device.start.saturating_add(extent.phys.0));
            blocks.extent(number, device.number, place, extent.range());
        }
    }
    Ok(())
}
