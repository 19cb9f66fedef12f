//! Which file lies where on its device, for traces of devices.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use indef_core::layout::ExtentFlags;
use indef_fs::Mapper;
use indef_trace::import::BlockMap;
use rustix::fs::{major, minor};
use units::{FileRange, PhysOffset};

use super::failed;
use crate::{
    output::{Console, Name},
    refusal::tell,
};

/// `statfs`'s type of Btrfs, whose maps show places in an address space of its own.
const BTRFS: u64 = 0x9123_683E;

/// Map all files below the paths, without leaving the file system of each.
pub(super) fn map(paths: &[PathBuf], console: &Console) -> Result<BlockMap> {
    let mut blocks = BlockMap::default();
    let mut mapper = Mapper::default();
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
        let Some(device) = Device::of(status.dev()) else {
            bail!(
                "{}: does not lie on a disk of its own, so its blocks cannot be found in a trace of one",
                Name(path)
            );
        };
        let mut left = vec![path.clone()];
        while let Some(path) = left.pop() {
            let Ok(found) = fs::symlink_metadata(&path) else {
                continue;
            };
            if found.dev() != status.dev() {
                continue;
            }
            if found.is_dir() {
                match fs::read_dir(&path) {
                    Ok(entries) => left.extend(entries.flatten().map(|entry| entry.path())),
                    Err(error) => console.error(failed(&path, &error), ""),
                }
            } else if found.is_file() {
                add(&mut blocks, &mut mapper, &device, &path, console);
            }
        }
    }
    Ok(blocks)
}

/// The disk that a file system lies on, and where on it.
struct Device {
    number: (u32, u32),
    start: u64,
}

impl Device {
    /// From `st_dev`. `None` for what is no disk or partition of one.
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
    device: &Device,
    path: &Path,
    console: &Console,
) {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return console.error(failed(path, &error), ""),
    };
    let all = FileRange::new(0, i64::MAX.unsigned_abs());
    match indef_fs::map(&file, path, all, true, mapper) {
        Err(refusal) => drop(tell(console, path, &refusal)),
        Ok(layout) => {
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            let number = blocks.file(path);
            for extent in layout.extents() {
                let odd = ExtentFlags::INLINE | ExtentFlags::UNPLACED;
                if !extent.flags.intersects(odd) {
                    let place = PhysOffset(device.start.saturating_add(extent.phys.0));
                    blocks.extent(number, device.number, place, extent.range());
                }
            }
        }
    }
}
