//! Writes that are durable one after the other, and the look after a power cut: everything that was
//! durable is there.
//!
//! The number of the last durable write is on a device beside the file system, whose power is cut at the
//! same time.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, OFlags, fallocate};
use workloads::Numbers;

use super::{
    extents::Written,
    writer::{Way, Writer, fill},
};

const BLOCK: u64 = 4096;
/// Blocks of the files that do not grow.
const BLOCKS: u64 = 256;
/// The longest write, in blocks.
const MOST: u64 = 16;
/// Appended to, overwritten, and allocated before it is written to.
const FILES: [&str; 3] = ["appended", "overwritten", "prepared"];

/// A write; its number is the version of its content.
struct Step {
    file: usize,
    first: u64,
    blocks: u64,
}

/// The writes in order, the same ones each time; the first one writes the whole file "overwritten".
fn steps(writes: u64) -> Vec<Step> {
    let mut numbers = Numbers::stream(3, 0);
    let mut end = 0;
    let whole = Step {
        file: 1,
        first: 0,
        blocks: BLOCKS,
    };
    let further = (1..writes).map(|_| {
        let file = numbers.below(FILES.len());
        let blocks = numbers.below(MOST) + 1;
        let first = match file {
            0 => end,
            _ => numbers.below(BLOCKS - blocks),
        };
        if file == 0 {
            end += blocks;
        }
        Step {
            file,
            first,
            blocks,
        }
    });
    [whole].into_iter().chain(further).collect()
}

pub(super) fn run(folder: &Path, writes: u64, log: &Path) -> Result<Vec<Written>> {
    let log = OpenOptions::new()
        .write(true)
        .custom_flags((OFlags::DIRECT | OFlags::SYNC).bits() as i32)
        .open(log)
        .with_context(|| log.display().to_string())?;
    let ways = [Way::Fdatasync, Way::Direct, Way::Fdatasync];
    let mut writers = Vec::new();
    for (name, way) in FILES.into_iter().zip(ways) {
        writers.push(Writer::create(&folder.join(name), way)?);
    }
    fallocate(
        writers[2].file(),
        FallocateFlags::empty(),
        0,
        BLOCKS * BLOCK,
    )?;
    rustix::fs::sync();
    for (version, step) in (1..).zip(steps(writes)) {
        let writer = &mut writers[step.file];
        writer.write_blocks(step.first * BLOCK, step.blocks, BLOCK, version)?;
        writer.file().sync_data()?;
        note(&log, version)?;
    }
    Ok(Vec::new())
}

/// Write the number of the last durable write.
fn note(log: &File, version: u64) -> Result<()> {
    let mut memory = [0; 2 * BLOCK as usize];
    let at = memory.as_ptr().align_offset(BLOCK as usize);
    let aligned = &mut memory[at..][..BLOCK as usize];
    aligned[..8].copy_from_slice(&version.to_le_bytes());
    log.write_all_at(aligned, 0)?;
    Ok(())
}

/// Each block has the content of its last durable write, or of the write after that, during which the
/// power was cut.
pub(super) fn examine(folder: &Path, writes: u64, log: &Path) -> Result<Vec<Written>> {
    let mut durable = [0; 8];
    File::open(log)?.read_exact_at(&mut durable, 0)?;
    let durable = u64::from_le_bytes(durable);
    ensure!(durable <= writes, "the log has {durable} of {writes}");
    println!("{durable} of {writes} writes were durable");
    // The versions that each block of each file has to have, and the one that it may have.
    let mut wanted = FILES.map(|_| vec![0; BLOCKS as usize]);
    let mut open = wanted.clone();
    for (version, step) in (1..=durable + 1).zip(steps(writes)) {
        let last = if version <= durable {
            &mut wanted
        } else {
            &mut open
        };
        let versions = &mut last[step.file];
        let end = (step.first + step.blocks) as usize;
        versions.resize(versions.len().max(end), 0);
        versions[step.first as usize..end].fill(version);
    }
    for ((name, wanted), mut open) in FILES.into_iter().zip(wanted).zip(open) {
        open.resize(open.len().max(wanted.len()), 0);
        let found = fs::read(folder.join(name));
        let found = match durable {
            0 => found.unwrap_or_default(),
            _ => found.with_context(|| name.to_owned())?,
        };
        let durable_end = wanted.iter().rposition(|version| *version > 0);
        let bytes = durable_end.map_or(0, |last| (last + 1) * BLOCK as usize);
        ensure!(
            found.len() >= bytes,
            "{name}: {} of {bytes} bytes",
            found.len()
        );
        let mut block = [0; BLOCK as usize];
        for (nth, found) in found.chunks(BLOCK as usize).enumerate() {
            let [last, cut] =
                [&wanted, &open].map(|versions| versions.get(nth).copied().unwrap_or(0));
            let is = [last, cut].into_iter().any(|version| {
                match version {
                    // Never written, or allocated by the write that was cut.
                    0 if last == 0 => block.fill(0),
                    0 => return false,
                    _ => fill(&mut block, nth as u64 * BLOCK, version),
                }
                found == block
            });
            ensure!(
                is,
                "{name}: block {nth} has neither version {last} nor {cut}"
            );
        }
    }
    Ok(Vec::new())
}
