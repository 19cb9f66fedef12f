//! Files of all kinds become contiguous, by the requested way, and keep their content.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use linux_abi::{
    f2fs::offload::{Flags, Range, Report, Status, Way, offload, query},
    mapping::SharedBytes,
};

use crate::file::{BLOCK, Known};

/// The way of this name, and the flags that leave no better one.
pub(crate) fn way(name: &str) -> Result<(Way, Flags)> {
    Ok(match name {
        "in-device" => (Way::InDevice, Flags::empty()),
        "copy" => (Way::Copy, Flags::NO_IN_DEVICE),
        "host" => (Way::Host, Flags::NO_IN_DEVICE | Flags::NO_COPY),
        // The device copies, but not blocks that have metadata.
        "metadata" => (Way::Host, Flags::empty()),
        _ => bail!("there is no way {name}"),
    })
}

/// Run all of it, in a folder of its own.
pub(crate) fn run(folder: &Path, name: &str) -> Result<()> {
    let (way, flags) = way(name)?;
    let folder = &folder.join(name);
    std::fs::create_dir(folder)?;
    let root = std::fs::File::open(folder)?;
    let capability = query(&root, flags)?;
    println!("{name}: {capability:?}");
    ensure!(capability.way == way, "{capability:?} for {flags:?}");
    ensure!(capability.max_blocks > 0);
    if name == "metadata" {
        let without = query(&root, flags | Flags::NO_HOST)?;
        ensure!(without.way == Way::None, "{without:?} without the host");
    }

    fragmented(folder, way, flags).context("a fragmented file")?;
    dirty(folder, flags).context("a file that is dirty here and there")?;
    mapped(folder, flags).context("a file that is written through a mapping")?;
    holes(folder, flags).context("a file with holes")?;
    tail(folder, flags).context("a file that ends within a block")?;
    if way != Way::Host {
        larger_than_a_section(folder, flags).context("a file larger than a section")?;
    }
    many_ranges(folder, flags).context("many ranges")?;
    Ok(())
}

/// Bytes that were moved in this way.
fn bytes(report: &Report, way: Way) -> u64 {
    match way {
        Way::InDevice => report.bytes_in_device,
        Way::Copy => report.bytes_copied,
        Way::Host => report.bytes_host,
        Way::None => 0,
    }
}

fn fragmented(folder: &Path, way: Way, flags: Flags) -> Result<()> {
    const BLOCKS: u64 = 1024;
    let [one, other] = Known::fragmented(folder, [1, 2], BLOCKS, 8)?;
    for file in [&one, &other] {
        file.drop_cache()?;
        let before = file.fragments()?;
        ensure!(before > BLOCKS / 16, "{before} fragments");
        let report = file.relocate_all(flags, BLOCKS)?;
        println!("  {before} fragments: {report:?}");
        ensure!(bytes(&report, way) == BLOCKS * BLOCK, "{report:?}");
        ensure!(report.commands > 0 && report.bus_bytes > 0);
        if way != Way::Host {
            ensure!(report.bus_bytes < BLOCKS * BLOCK / 64, "{report:?}");
        }
        ensure!(file.fragments()? == 1, "{} fragments", file.fragments()?);
        file.check_on_device()?;
        let again = file.relocate(flags)?;
        ensure!(again.ranges[0].status == Status::Contiguous && again.ranges[0].moved == 0);
        ensure!(again.commands == 0, "{again:?}");
    }
    Ok(())
}

fn dirty(folder: &Path, flags: Flags) -> Result<()> {
    const BLOCKS: u64 = 512;
    let [mut file, _] = Known::fragmented(folder, [3, 4], BLOCKS, 16)?;
    file.drop_cache()?;
    // Some cached, some not; some of either dirty, and a piece that has no blocks yet.
    file.check()?;
    rustix::fs::fadvise(
        &file.file,
        64 * BLOCK,
        std::num::NonZero::new(128 * BLOCK),
        rustix::fs::Advice::DontNeed,
    )?;
    let mut dirty = 0;
    for (block, count) in [(0, 1), (7, 2), (60, 8), (100, 5), (300, 1), (511, 40)] {
        file.write(block, count, 2)?;
        dirty += count;
    }
    let report = file.relocate_all(flags, BLOCKS + 39)?;
    println!("  dirty: {report:?}");
    ensure!(
        report.bytes_from_memory == dirty * BLOCK,
        "{dirty} blocks were dirty: {report:?}"
    );
    // Blocks that were written from memory are clean now.
    match linux_abi::cache::cachestat(&file.file, 0, 0) {
        Ok(state) => ensure!(state.nr_dirty + state.nr_writeback == 0, "{state:?}"),
        // Before 6.5.
        Err(error) => ensure!(error.kind() == std::io::ErrorKind::Unsupported, "{error}"),
    }
    ensure!(file.fragments()? == 1, "{} fragments", file.fragments()?);
    file.check_on_device()?;
    // They can become dirty again.
    file.write(7, 1, 3)?;
    file.check_on_device()
}

fn mapped(folder: &Path, flags: Flags) -> Result<()> {
    const BLOCKS: u64 = 64;
    let [mut file, _] = Known::fragmented(folder, [5, 6], BLOCKS, 4)?;
    let mapping = SharedBytes::map(&file.file, (BLOCKS * BLOCK) as usize)?;
    let write = |block: u64, version| {
        let bytes = crate::file::content(5, block, version);
        for (at, byte) in ((block * BLOCK) as usize..).zip(bytes) {
            mapping.store(at, byte);
        }
    };
    write(9, 2);
    file.note(9, 2);
    let report = file.relocate_all(flags, BLOCKS)?;
    ensure!(report.bytes_from_memory == BLOCK, "{report:?}");
    // The mapping works as before the move.
    for (block, version) in [(9, 3), (10, 2)] {
        write(block, version);
        file.note(block, version);
    }
    file.check_on_device()
}

fn holes(folder: &Path, flags: Flags) -> Result<()> {
    let [mut file, _] = Known::fragmented(folder, [7, 8], 64, 4)?;
    // More blocks than one node has; then blocks that are reserved only.
    file.set_blocks(4000)?;
    file.write(3000, 8, 1)?;
    file.write_back()?;
    file.write(2000, 8, 1)?;
    file.write_back()?;
    rustix::fs::fallocate(
        &file.file,
        rustix::fs::FallocateFlags::KEEP_SIZE,
        100 * BLOCK,
        50 * BLOCK,
    )?;
    let blocks = |file: &Known| Ok::<_, std::io::Error>(rustix::fs::fstat(&file.file)?.st_blocks);
    file.file.sync_all()?;
    let before = blocks(&file)?;
    file.relocate_all(flags, 80)?;
    ensure!(file.fragments()? == 1, "{} fragments", file.fragments()?);
    file.check_on_device()?;
    ensure!(blocks(&file)? == before, "it has another number of blocks");
    let ranges = [
        file.range(500, 1000),
        file.range(100, 50),
        file.range(60, 41),
    ];
    let report = offload(&file.file, &ranges, flags)?;
    let statuses: Vec<Status> = report.ranges.iter().map(|range| range.status).collect();
    ensure!(
        statuses == [Status::Hole, Status::Hole, Status::Contiguous],
        "{report:?}"
    );
    Ok(())
}

fn tail(folder: &Path, flags: Flags) -> Result<()> {
    use std::os::unix::fs::FileExt;
    let [file, _] = Known::fragmented(folder, [9, 10], 16, 2)?;
    let len = 15 * BLOCK + 100;
    file.file.set_len(len)?;
    file.file.write_all_at(b"the end", len - 7)?;
    let expected = std::fs::read(&file.path)?;
    let report = file.relocate_all(flags, 16)?;
    ensure!(report.bytes_from_memory == BLOCK, "{report:?}");
    file.write_back()?;
    file.drop_cache()?;
    ensure!(std::fs::read(&file.path)? == expected);
    // Data past the end does not reappear.
    file.file.set_len(16 * BLOCK)?;
    ensure!(
        std::fs::read(&file.path)?[len as usize..]
            .iter()
            .all(|&byte| byte == 0)
    );
    Ok(())
}

fn larger_than_a_section(folder: &Path, flags: Flags) -> Result<()> {
    const BLOCKS: u64 = 10_000;
    let [file, other] = Known::fragmented(folder, [11, 12], BLOCKS, 1000)?;
    std::fs::remove_file(&other.path)?;
    drop(other);
    let report = file.relocate_all(flags, BLOCKS)?;
    println!("  {} MiB: {report:?}", (BLOCKS * BLOCK) >> 20);
    // A section has 8192; it may begin anywhere in the second.
    let fragments = file.fragments()?;
    ensure!(fragments <= 2, "{fragments} fragments");
    file.check_on_device()?;
    std::fs::remove_file(&file.path)?;
    Ok(())
}

fn many_ranges(folder: &Path, flags: Flags) -> Result<()> {
    let [one, other] = Known::fragmented(folder, [13, 14], 512, 2)?;
    let ranges: Vec<Range<'_>> = (0..32)
        .flat_map(|n| [one.range(n * 16, 16), other.range(n * 16, 16)])
        .collect();
    let report = offload(&one.file, &ranges, flags | Flags::CHECKPOINT)?;
    ensure!(
        report
            .ranges
            .iter()
            .all(|range| range.status == Status::Done && range.moved == 16 * BLOCK),
        "{report:?}"
    );
    for file in [&one, &other] {
        // 32 ranges, each in one piece.
        let fragments = file.fragments()?;
        ensure!(fragments <= 32, "{fragments} fragments");
        file.check_on_device()?;
    }
    Ok(())
}
