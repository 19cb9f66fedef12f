//! Commands that fail: the device's zones are changed without the file system's knowledge.

use std::{
    fs::File,
    io::{Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use anyhow::{Context, Result, ensure};
use linux_abi::{
    f2fs::offload::{Flags, Status},
    fiemap::Mapper,
};

use crate::file::{BLOCK, Known};

/// Size of the conventional disk, which comes first in F2FS's addresses.
pub(crate) const CONVENTIONAL: u64 = 64 << 20;

/// `zoned` is the disk with the zones that `folder` is on.
pub(crate) fn run(folder: &Path, zoned: &Path, flags: Flags) -> Result<()> {
    moved_write_pointer(folder, zoned, flags)
}

/// The file's first byte in F2FS's addresses.
fn place(file: &Known) -> Result<u64> {
    let mut mapper = Mapper::default();
    let first = mapper.batch(&file.file, 0, BLOCK, 0)?.first().copied();
    Ok(first.context("it has no blocks")?.physical)
}

/// Write to the place of the next copy. (Once: the block layer of newer kernels, which knows
/// nothing of copies, would refuse a second write to the same zone.)
fn moved_write_pointer(folder: &Path, zoned: &Path, flags: Flags) -> Result<()> {
    const BLOCKS: u64 = 64;
    let [one, mut other] = Known::fragmented(folder, [20, 21], BLOCKS, 4)?;
    one.relocate_all(flags, BLOCKS)?;
    let end = place(&one)? + BLOCKS * BLOCK;
    write_directly(zoned, end - CONVENTIONAL, 3 * BLOCK).context("writing to the zone")?;

    other.write(0, 2, 2)?;
    other.write(33, 1, 2)?;
    let before = (other.fragments()?, place(&other)?);
    let report = other.relocate(flags)?;
    ensure!(
        matches!(report.ranges[0].status, Status::Device(_)) && report.ranges[0].moved == 0,
        "{report:?}"
    );
    ensure!((other.fragments()?, place(&other)?) == before, "it moved");
    other.check()?;

    // The zone is used further, past the written part.
    let report = other.relocate_all(flags, BLOCKS)?;
    ensure!(report.bytes_from_memory == 3 * BLOCK, "{report:?}");
    ensure!(other.fragments()? == 1);
    let now = place(&other)?;
    ensure!(
        now == end + 3 * BLOCK,
        "{now} instead of {end} and 3 blocks"
    );
    other.check_on_device()?;
    one.check_on_device()
}

fn write_directly(zoned: &Path, at: u64, len: u64) -> Result<()> {
    // Direct writes need aligned memory: an aligned page inside a larger buffer.
    let mut disk = File::options()
        .write(true)
        .custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32)
        .open(zoned)?;
    disk.seek(SeekFrom::Start(at))?;
    let buffer = vec![0xA5; (len + BLOCK) as usize];
    let skip = buffer.as_ptr().align_offset(BLOCK as usize);
    disk.write_all(&buffer[skip..skip + len as usize])?;
    Ok(())
}
