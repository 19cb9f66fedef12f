//! Files whose blocks on the device are ciphertext.

use std::path::Path;

use anyhow::{Result, ensure};
use linux_abi::f2fs::offload::Flags;

use crate::file::{BLOCK, Known};

const BLOCKS: u64 = 256;

/// In a folder with an encryption policy: move files that are clean, and files
/// with some dirty blocks.
pub(crate) fn run(folder: &Path) -> Result<()> {
    let [clean, mut dirty] = Known::fragmented(folder, [1, 2], BLOCKS, 8)?;
    clean.drop_cache()?;
    let report = clean.relocate_all(Flags::empty(), BLOCKS)?;
    println!("  clean: {report:?}");
    ensure!(report.bytes_host == 0 && report.bytes_from_memory == 0);

    for (block, count) in [(3, 1), (100, 20), (250, 10)] {
        dirty.write(block, count, 2)?;
    }
    // Dirty blocks are written as ciphertext first, and then moved like the rest.
    let report = dirty.relocate_all(Flags::empty(), BLOCKS + 4)?;
    println!("  dirty: {report:?}");
    ensure!(report.bytes_in_device + report.bytes_copied == (BLOCKS + 4) * BLOCK);

    for file in [&clean, &dirty] {
        ensure!(file.fragments()? == 1, "{} fragments", file.fragments()?);
        file.check_on_device()?;
    }
    Ok(())
}
