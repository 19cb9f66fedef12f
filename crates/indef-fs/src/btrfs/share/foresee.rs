//! What a relocation would do, found by the same look, for plans.

use std::os::fd::AsRawFd;

use indef_core::{
    SkipReason,
    layout::{ExtentFlags, Layout},
    plan::SharedWindow,
};
use rustix::{
    fs::{Access, access},
    io::Errno,
};
use units::FileRange;

use super::{look::Look, metadata::Ledger};
use crate::{
    Refusal, Target,
    btrfs::pieces::movable,
    share::{relocation::Looked, window::LEAST_UNIT},
};

/// Look at ranges of a file, and note in `ledger` what moving them costs.
pub(super) fn foresee(
    ledger: &Ledger,
    target: &Target,
    subvolume: u64,
    ranges: &[FileRange],
    takes_unshared: bool,
    is_stopping: &dyn Fn() -> bool,
) -> Result<Vec<SharedWindow>, Refusal> {
    may_write(target)?;
    let mut look = Look::at(
        ledger,
        target,
        subvolume,
        ranges.iter().copied(),
        takes_unshared,
    )?;
    let mut windows = Vec::new();
    while let Some(looked) = look.next(is_stopping)? {
        windows.push(window(&mut look, looked)?);
    }
    Ok(windows)
}

/// A file of a snapshot that is read-only moves with others, but not as the one that is asked for.
fn may_write(target: &Target) -> Result<(), Refusal> {
    let path = format!("/proc/self/fd/{}", target.file.as_raw_fd());
    match access(path, Access::WRITE_OK) {
        Err(Errno::ROFS) => Err(SkipReason::ReadOnlyMount.into()),
        // A run sees to the rest.
        _ => Ok(()),
    }
}

fn window(look: &mut Look<'_>, mut looked: Looked) -> Result<SharedWindow, Refusal> {
    let mut found = SharedWindow::default();
    if let Some(window) = looked.window.take() {
        // Units are as short as they get, so that there are no more items than reckoned.
        match look.price(&window, LEAST_UNIT)? {
            Ok(price) => {
                found.metadata = price.bytes();
                found.holders = window.items(LEAST_UNIT).count() as u64;
                found.together = looked.runs.clone();
                look.charge(&window, LEAST_UNIT, price);
            }
            Err(reason) => {
                let runs = looked.runs.drain(..).map(|run| (run, reason));
                looked.staying.extend(runs);
                looked.staying.sort_by_key(|(range, _)| range.start);
            }
        }
    }
    for range in looked.rest() {
        let alone = movable(&looked.layout, range, false, true);
        found.alone.extend(alone.pieces.iter().map(|one| one.range));
    }
    let stays = |(range, _): &(FileRange, SkipReason)| is_shared(&looked.layout, *range);
    found.staying = looked.staying.iter().copied().filter(stays).collect();
    found.asked = looked.asked;
    Ok(found)
}

/// Whether anybody else has a part of it.
fn is_shared(layout: &Layout, range: FileRange) -> bool {
    let is_shared = |flags: ExtentFlags| flags.contains(ExtentFlags::SHARED);
    layout.clipped(range).any(|extent| is_shared(extent.flags))
}
