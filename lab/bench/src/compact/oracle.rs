//! The longest free run, as the tools of a file system tell it of the device while that is not mounted: e2freefrag
//! (e2fsprogs), xfs_db, and the trees of Btrfs as `btrfs inspect-internal dump-tree` prints them.

use std::process::Command;

use anyhow::{Context, Result};
use scratch_fs::ScratchFs;
use units::Bytes;

use stage::Fs;

use crate::measure::text;

/// The blocks that all of these file systems have here.
const BLOCK: u64 = 4096;
/// Btrfs leaves the beginning of a device alone.
const FIRST_CHUNK: u64 = 1 << 20;

/// Unmounts the file system meanwhile.
pub(super) fn longest_run(fs: Fs, scratch: &mut ScratchFs) -> Result<Bytes> {
    scratch.unmount()?;
    let longest = of_unmounted(fs, scratch.device())?;
    scratch.mount()?;
    Ok(longest)
}

fn of_unmounted(fs: Fs, device: &str) -> Result<Bytes> {
    let tree = |tree: &str| {
        let dump = ["inspect-internal", "dump-tree", "-t", tree, device];
        text(Command::new("btrfs").args(dump))
    };
    let longest = match fs {
        Fs::Ext4 => of_e2freefrag(&text(Command::new("e2freefrag").arg(device))?),
        Fs::Xfs => {
            let said = text(Command::new("xfs_db").args(["-r", "-c", "freesp -d", device]))?;
            of_freesp(&said)
        }
        Fs::Btrfs => {
            let size = text(Command::new("blockdev").args(["--getsize64", device]))?;
            let chunks = in_chunks(&tree("extent")?);
            Some(chunks.max(between_chunks(&tree("dev")?, size.trim().parse()?)))
        }
    };
    let longest =
        longest.with_context(|| format!("{device}: what its tool prints is not known"))?;
    Ok(Bytes(longest))
}

/// `Max. free extent: 16180 KB`
fn of_e2freefrag(said: &str) -> Option<u64> {
    let line = said
        .lines()
        .find_map(|line| line.strip_prefix("Max. free extent:"))?;
    let kib: u64 = line.trim().strip_suffix("KB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Lines of three numbers: group, first block, length.
fn of_freesp(said: &str) -> Option<u64> {
    let run = |line: &str| {
        let numbers: Option<Vec<u64>> = line
            .split_whitespace()
            .map(|word| word.parse().ok())
            .collect();
        numbers
            .filter(|numbers| numbers.len() == 3)
            .map(|numbers| numbers[2])
    };
    said.lines()
        .filter_map(run)
        .max()
        .map(|blocks| blocks * BLOCK)
}

/// The longest gap between the extents of a block group for data.
fn in_chunks(dump: &str) -> u64 {
    let (mut data, mut extents) = (Vec::new(), Vec::new());
    let mut lines = dump.lines().peekable();
    while let Some(line) = lines.next() {
        match key(line) {
            Some((start, "BLOCK_GROUP_ITEM", len)) => {
                let kind = lines.peek().and_then(|line| line.split(" flags ").nth(1));
                if kind.is_some_and(|kind| kind.starts_with("DATA")) {
                    data.push((start, start + len));
                }
            }
            Some((start, "EXTENT_ITEM", len)) => extents.push((start, start + len)),
            _ => {}
        }
    }
    let longest = data.into_iter().map(|(start, end)| {
        let from = extents.partition_point(|extent| extent.0 < start);
        let inside = extents[from..].iter().take_while(|extent| extent.0 < end);
        longest_gap(inside.copied(), start, end)
    });
    longest.max().unwrap_or(0)
}

/// The longest part of the device that no chunk has.
fn between_chunks(dump: &str, size: u64) -> u64 {
    let mut lines = dump.lines().peekable();
    let mut chunks = Vec::new();
    while let Some(line) = lines.next() {
        if let Some((_, "DEV_EXTENT", start)) = key(line) {
            // Two lines, of which the second has the length.
            let rest = [lines.next(), lines.next()];
            let length = rest
                .into_iter()
                .flatten()
                .find_map(|line| line.split(" length ").nth(1));
            let length: u64 = length
                .and_then(|word| word.trim().parse().ok())
                .unwrap_or(0);
            chunks.push((start, start + length));
        }
    }
    longest_gap(chunks.into_iter(), FIRST_CHUNK, size)
}

/// The longest gap between ranges, in order, of what lies in `start..end`.
fn longest_gap(ranges: impl Iterator<Item = (u64, u64)>, start: u64, end: u64) -> u64 {
    let (mut at, mut longest) = (start, 0);
    for range in ranges.chain([(end, end)]) {
        longest = longest.max(range.0.saturating_sub(at));
        at = at.max(range.1);
    }
    longest
}

/// The key of an item: object, type, offset.
fn key(line: &str) -> Option<(u64, &str, u64)> {
    let (_, key) = line.split_once(" key (")?;
    let mut words = key.split_once(')')?.0.split(' ');
    let object = words.next()?.parse().ok()?;
    Some((object, words.next()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tools_print_is_read() {
        let said = "Free blocks: 9\n\nMin. free extent: 4 KB \nMax. free extent: 16180 KB\nAvg. free extent: 8 KB\n";
        assert_eq!(of_e2freefrag(said), Some(16180 << 10));
        assert_eq!(of_e2freefrag("e2freefrag: no"), None);
        let said = "    agno    agbno      len\n       0        6        1\n       1       24      300\n\
                       from      to extents  blocks    pct\n      1       1     900  900   7.5\n";
        assert_eq!(of_freesp(said), Some(300 * 4096));
        assert_eq!(of_freesp("nothing"), None);
    }

    #[test]
    fn gaps_of_btrfs_are_found() {
        let extents = "\titem 0 key (1000 BLOCK_GROUP_ITEM 100) itemoff 1 itemsize 2\n\
             \t\tblock group used 30 chunk_objectid 256 flags DATA|single\n\
             \titem 1 key (1010 EXTENT_ITEM 20) itemoff 1 itemsize 2\n\
             \t\trefs 1 gen 8 flags DATA\n\
             \titem 2 key (1060 EXTENT_ITEM 10) itemoff 1 itemsize 2\n\
             \titem 3 key (2000 BLOCK_GROUP_ITEM 900) itemoff 1 itemsize 2\n\
             \t\tblock group used 0 chunk_objectid 256 flags METADATA|DUP\n\
             \titem 4 key (2100 METADATA_ITEM 0) itemoff 1 itemsize 2\n";
        assert_eq!(in_chunks(extents), 30);
        let chunks = "\titem 0 key (1 DEV_EXTENT 1048576) itemoff 1 itemsize 2\n\
             \t\tdev extent chunk_tree 3\n\
             \t\tchunk_objectid 256 chunk_offset 1 length 1000\n\
             \titem 1 key (1 DEV_EXTENT 1050000) itemoff 1 itemsize 2\n\
             \t\tdev extent chunk_tree 3\n\
             \t\tchunk_objectid 256 chunk_offset 1 length 500\n";
        assert_eq!(between_chunks(chunks, 1_050_600), 424);
        assert_eq!(between_chunks(chunks, 1_060_500), 10_000);
    }
}
