//! One way of migrating, on a copy of an aged SSD.

use std::fs;

use anyhow::{Result, ensure};
use guest::ZnsSetup;
use serde::Serialize;

use super::{
    aged::AgedSsd,
    bench::{Bench, DIR, State},
    cost::Cost,
    image::{self, FAST},
    layout::{BLOCK, Layout},
    room::path,
    virtual_time::ZONED,
    way::{Commands, Way},
};

/// A way, and what it came to.
#[derive(Debug, Serialize)]
pub(super) struct Migration {
    pub(super) way: Way,
    /// The engine that has moved the data.
    pub(super) engine: &'static str,
    /// Bytes of files that lie elsewhere afterwards.
    pub(super) moved_bytes: u64,
    pub(super) after: State,
    /// Where the files lie afterwards.
    #[serde(skip)]
    pub(super) layout: Layout,
    /// The migration itself, where it was recorded.
    pub(super) cost: Option<Cost>,
}

impl Migration {
    /// Migrate, in a guest of its own; compare all contents, and have F2FS checked.
    pub(super) fn measure(
        bench: &Bench,
        ssd: &AgedSsd,
        way: Way,
        is_recorded: bool,
    ) -> Result<Self> {
        let setup = &bench.setup;
        let image = image::copy(&ssd.image, bench.folder.path().join("copy"))?;
        let standard_only = matches!(way, Way::Copy { .. });
        let room = bench.enter(&image, ZnsSetup::Kept, standard_only)?;
        room.shell("cp /share/aged.profile /tmp/; sync; echo 3 >/proc/sys/vm/drop_caches")?;
        let commands = Commands {
            indef: &path(&setup.indef)?,
            dir: DIR,
            profile: "/tmp/aged.profile",
            io_size: setup.io_size,
            time_scale: setup.time_scale,
        };
        let time_scale = if is_recorded { setup.time_scale } else { FAST };
        let recording = room.migrate(&commands.of(way), time_scale)?;
        way.check(&recording.watched.stdout)?;
        let layout = room.layout(DIR)?;
        room.leave()?;
        let device = setup.ssd.open(&image)?;
        ensure!(
            image::hash(&device, &layout)? == ssd.hash,
            "the contents have changed"
        );
        let zones = device.zones(ZONED);
        drop(device);
        fs::remove_file(&image)?;
        let before = &ssd.notes.layout;
        let moved_bytes = moved(before, &layout);
        let cost = || Cost::of(bench, &recording, before, moved_bytes);
        Ok(Self {
            way,
            engine: way.engine(),
            moved_bytes,
            after: bench.state(&layout, &zones)?,
            cost: is_recorded.then(cost).transpose()?,
            layout,
        })
    }

    /// How much faster reads are afterwards, in percent.
    pub(super) fn read_gain_pct(&self, before: &State) -> f64 {
        100.0 * (before.read_ns as f64 / self.after.read_ns as f64 - 1.0)
    }
}

/// Bytes of files that lie elsewhere.
fn moved(before: &Layout, after: &Layout) -> u64 {
    let places = |layout: &Layout| -> Vec<u64> {
        let files = layout.files.iter().flat_map(|file| &file.extents);
        files
            .flat_map(|extent| (0..extent.bytes / BLOCK).map(|block| extent.place + block * BLOCK))
            .collect()
    };
    let (before, after) = (places(before), places(after));
    let elsewhere = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| before != after);
    elsewhere.count() as u64 * BLOCK
}
