//! Files to move while the power is cut: made beforehand, moved, and looked at afterwards.

use std::path::Path;

use anyhow::{Result, ensure};
use linux_abi::f2fs::offload::{Flags, Status, offload};

use crate::file::{BLOCK, Known, content};

const BLOCKS: u64 = 256;
const FILES: [u64; 4] = [1, 2, 3, 4];
/// How often each file is moved; what is rewritten in a round has that version.
const ROUNDS: u64 = 3;

/// Blocks that are rewritten while they are moved.
const fn is_rewritten(block: u64) -> bool {
    block % 9 == 4
}

/// Make the files.
pub(crate) fn prepare(folder: &Path) -> Result<()> {
    Known::fragmented(folder, [FILES[0], FILES[1]], BLOCKS, 4)?;
    Known::fragmented(folder, [FILES[2], FILES[3]], BLOCKS, 16)?;
    Ok(())
}

/// Move them, with some blocks dirty; some are synced in between, some things are made durable by a
/// checkpoint, and new files by roll-forward.
pub(crate) fn migrate(folder: &Path) -> Result<()> {
    for round in 2..2 + ROUNDS {
        for number in FILES {
            let mut file = Known::existing(folder, number, BLOCKS)?;
            if number % 2 == 1 {
                file.drop_cache()?;
            }
            for block in (0..BLOCKS).filter(|&block| is_rewritten(block)) {
                file.write(block, 1, round)?;
            }
            let middle = BLOCKS / 2 + number * 8 + round;
            let ranges = [file.range(middle, BLOCKS - middle), file.range(0, middle)];
            let flags = match number {
                2 => Flags::CHECKPOINT,
                _ => Flags::empty(),
            };
            let report = offload(&file.file, &ranges, flags)?;
            ensure!(
                report
                    .ranges
                    .iter()
                    .all(|range| range.status == Status::Done),
                "{report:?}"
            );
            if number == 3 {
                file.file.sync_all()?;
            }
            let mut new = Known::create(folder, 100 * round + number)?;
            new.write(0, 3, 1)?;
            new.file.sync_data()?;
        }
    }
    Ok(())
}

/// Every block is what it was before or what was written meanwhile; and all can be moved again.
pub(crate) fn after(folder: &Path) -> Result<()> {
    for number in FILES {
        let file = Known::existing(folder, number, BLOCKS)?;
        ensure!(file.file.metadata()?.len() == BLOCKS * BLOCK);
        let before = std::fs::read(&file.path)?;
        for (block, bytes) in (0..).zip(before.chunks_exact(BLOCK as usize)) {
            let newest = if is_rewritten(block) { 1 + ROUNDS } else { 1 };
            ensure!(
                (1..=newest).any(|version| bytes == content(number, block, version)),
                "file {number}: block {block} is neither what it was nor what it became: {:?}",
                &bytes[..16]
            );
        }
        let middle = BLOCKS / 2 + 77;
        let ranges = [file.range(middle, BLOCKS - middle), file.range(0, middle)];
        let report = offload(&file.file, &ranges, Flags::empty())?;
        ensure!(
            report
                .ranges
                .iter()
                .all(|range| matches!(range.status, Status::Done | Status::Contiguous)),
            "{report:?}"
        );
        file.write_back()?;
        file.drop_cache()?;
        ensure!(
            std::fs::read(&file.path)? == before,
            "file {number} is another one"
        );
    }
    Ok(())
}
