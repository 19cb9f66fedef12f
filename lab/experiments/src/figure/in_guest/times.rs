//! The time of reads, by the model: for the commands of a real kernel, and for those that `lfs-sim` makes of a layout.

use anyhow::Result;
use flash_model::Profile;
use indef_core::layout::{Extent as Placed, ExtentFlags, Layout};
use lfs_sim::{
    Parameters,
    calls::{self, Direction},
};
use units::{Bytes, FileOffset, FileRange, Nanos, PhysOffset};

use super::{super::fragpicker::calls_of, drives::Drives};
use crate::{layout::Extent, virtual_time::Reader};

/// Times of a drive alone, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alone {
    /// For the commands that the guest's kernel made.
    pub(super) guest: f64,
    /// For those that `lfs-sim` makes of the places of the file's blocks.
    pub(super) simulated: f64,
}

/// Times of the calls for a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// On the drive that the guest had.
    pub(super) alone: Alone,
    /// There, with a host that takes its time for each command of the guest's kernel; in nanoseconds.
    pub(super) with_host: f64,
    /// On the other drive.
    pub(super) elsewhere: Alone,
}

impl Times {
    /// Of the calls for these ranges of a file that lies so, and their commands.
    pub(super) fn of(
        drives: &Drives,
        extents: &[Extent],
        ranges: &[FileRange],
        commands: &[Vec<Extent>],
    ) -> Result<Self> {
        let system = &drives.system;
        let simulate = |profile: &Profile, parameters: &Parameters, calls: Vec<Layout>| {
            let mut disk = drives.disk(profile)?;
            let read = Direction::Read;
            let elapsed = calls::perform(parameters, &mut disk, calls, read, system.plug)?;
            anyhow::Ok(elapsed.time.0 as f64)
        };
        let mut no_host = system.simulated.clone();
        (no_host.host.request, no_host.host.call) = (Nanos(0), Nanos(0));
        let places = calls_of(&layout_of(extents), ranges);
        let alone = |profile: &Profile| {
            let mut reader = Reader::of_calls(commands.iter().cloned());
            let elapsed = drives.machine(profile)?.run(&mut [&mut reader])?;
            anyhow::Ok(Alone {
                guest: elapsed.ns as f64,
                simulated: simulate(profile, &no_host, places.clone())?,
            })
        };
        let made = commands
            .iter()
            .map(|call| one_after_another(call))
            .collect();
        Ok(Self {
            alone: alone(&system.profile)?,
            with_host: simulate(&system.profile, &system.simulated, made)?,
            elsewhere: alone(&drives.other)?,
        })
    }
}

/// A file that lies so.
pub(in super::super) fn layout_of(extents: &[Extent]) -> Layout {
    let placed = |extent: &Extent| Placed {
        file: FileOffset(extent.at),
        phys: PhysOffset(extent.place),
        len: Bytes(extent.bytes),
        flags: ExtentFlags::empty(),
    };
    Layout::new(extents.iter().map(placed).collect())
}

/// The commands of a call as a file of its own.
fn one_after_another(commands: &[Extent]) -> Layout {
    let mut at = 0;
    let extents = commands.iter().map(|command| {
        let extent = Extent { at, ..*command };
        at += command.bytes;
        extent
    });
    layout_of(&extents.collect::<Vec<_>>())
}
