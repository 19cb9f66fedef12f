//! The commands of reads, call by call.
//!
//! The log has whatever the kernel read meanwhile. What belongs to a call is told by the places of the file's blocks: a call
//! is over when all of its bytes were read, and the next one begins with the first byte of its own.

use std::collections::{HashMap, HashSet};

use anyhow::{Result, bail, ensure};
use flash_model::Command;
use flashd::device::LoggedCommand;
use units::FileRange;

use crate::{
    layout::{BLOCK, Extent, FileLayout},
    virtual_time::ZONED,
};

/// The reads that the device got for these calls of a file that lies so, in their order.
pub(super) fn of_calls(
    log: &[LoggedCommand],
    file: &FileLayout,
    calls: &[FileRange],
) -> Result<Vec<Vec<Extent>>> {
    let blocks = file.extents.iter().flat_map(|extent| {
        let blocks = (0..extent.bytes).step_by(BLOCK as usize);
        blocks.map(|at| (extent.place + at, extent.at + at))
    });
    let at_place: HashMap<u64, u64> = blocks.collect();
    let mut left = calls.iter();
    let (mut found, mut call, mut read) = (Vec::new(), Vec::new(), HashSet::new());
    let mut current = left.next();
    for logged in log.iter().filter(|logged| logged.namespace == ZONED) {
        let Command::Read { offset, len } = logged.command.as_command() else {
            continue;
        };
        let places = (offset..offset + len).step_by(BLOCK as usize);
        let of_file: Vec<Option<&u64>> = places.map(|place| at_place.get(&place)).collect();
        let Some(&at) = of_file.first().copied().flatten() else {
            ensure!(
                of_file.iter().all(Option::is_none),
                "a read of {len} bytes at {offset} begins beside the file, and ends in it"
            );
            // A node of F2FS.
            continue;
        };
        let Some(range) = current else {
            bail!("the file is read at {at} after the last call");
        };
        let of_call = range.start.0..range.end().0;
        let is_of_call = |at: &Option<&u64>| at.is_some_and(|at| of_call.contains(at));
        ensure!(
            of_file.iter().all(is_of_call),
            "a read of {len} bytes at {at} of the file is not of the call for {range}"
        );
        ensure!(
            of_file.iter().flatten().all(|at| read.insert(**at)),
            "{len} bytes at {at} of the file are read twice by a call"
        );
        call.push(Extent {
            at,
            place: offset,
            bytes: len,
        });
        if read.len() as u64 * BLOCK >= range.len.get() {
            found.push(std::mem::take(&mut call));
            read.clear();
            current = left.next();
        }
    }
    ensure!(
        found.len() == calls.len() && call.is_empty(),
        "the device was asked for the data of {} calls instead of {}",
        found.len(),
        calls.len()
    );
    Ok(found)
}

#[cfg(test)]
mod tests {
    use units::Nanos;

    use super::*;

    fn read(block: u64, blocks: u64) -> LoggedCommand {
        let command = Command::Read {
            offset: block * BLOCK,
            len: blocks * BLOCK,
        };
        LoggedCommand {
            namespace: ZONED,
            command: command.into(),
            submitted: Nanos(0),
            done: Some(Nanos(1)),
        }
    }

    /// Two blocks at 10 and 11, two at 20 and 21, four at 30.
    fn file() -> FileLayout {
        let extent = |at: u64, place: u64, blocks: u64| Extent {
            at: at * BLOCK,
            place: place * BLOCK,
            bytes: blocks * BLOCK,
        };
        FileLayout {
            name: "file".into(),
            bytes: 8 * BLOCK,
            extents: vec![extent(0, 10, 2), extent(2, 20, 2), extent(4, 30, 4)],
        }
    }

    fn call(block: u64, blocks: u64) -> FileRange {
        FileRange::new(block * BLOCK, blocks * BLOCK)
    }

    #[test]
    fn commands_are_told_apart_by_the_places_of_calls() {
        let calls = [call(0, 4), call(4, 4)];
        let node = read(99, 1);
        let mut metadata = read(10, 1);
        metadata.namespace = ZONED + 1;
        let log = [
            node,
            read(10, 2),
            metadata,
            read(20, 1),
            read(21, 1),
            read(30, 4),
        ];
        let found = of_calls(&log, &file(), &calls).unwrap();
        let blocks: Vec<Vec<(u64, u64, u64)>> = found
            .iter()
            .map(|call| {
                let pieces = call.iter();
                let blocks = |it: &Extent| (it.at / BLOCK, it.place / BLOCK, it.bytes / BLOCK);
                pieces.map(blocks).collect()
            })
            .collect();
        assert_eq!(
            blocks,
            [vec![(0, 10, 2), (2, 20, 1), (3, 21, 1)], vec![(4, 30, 4)]]
        );
    }

    #[test]
    fn what_is_no_read_of_the_calls_is_an_error() {
        let calls = [call(0, 4), call(4, 4)];
        let error = |log: &[LoggedCommand]| of_calls(log, &file(), &calls).unwrap_err().to_string();
        // A call that the page cache answered, in part.
        assert!(error(&[read(10, 2), read(30, 4)]).contains("not of the call for 0+16384"));
        assert!(error(&[read(10, 2), read(20, 2)]).contains("1 calls instead of 2"));
        // Read-ahead, or another reader.
        let more = [read(10, 2), read(20, 2), read(30, 4), read(10, 1)];
        assert!(error(&more).contains("after the last call"));
        assert!(error(&[read(10, 2), read(10, 2)]).contains("twice"));
        assert!(error(&[read(9, 2)]).contains("begins beside the file"));
        assert!(error(&[read(11, 2)]).contains("not of the call"));
    }
}
