//! One contender and its file: the reads before and after, and its work between.

use std::{fs, path::Path};

use anyhow::{Result, ensure};

use super::{
    super::{told, workload::Pattern},
    commands,
    contender::Contender,
    dump::Dump,
    rig::Rig,
    times::Times,
};
use crate::{
    layout::FileLayout,
    room::{Recording, Room, path},
    virtual_time::{Machine, Recorded},
    way::Commands,
};

/// Where F2FS is.
const MOUNT: &str = "/mnt/f2fs";

/// See the module.
#[derive(Debug)]
pub(super) struct State {
    /// For each pattern that is the contender's: before, and after.
    pub(super) reads: Vec<(Pattern, [Times; 2])>,
    /// Extents of the file, before and after.
    pub(super) extents: [f64; 2],
    pub(super) work: Work,
}

/// The work of a defragmenter, until all was written back: of the file and of F2FS itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// Bytes that the host wrote.
    pub(super) by_host: f64,
    /// Bytes that the device moved by itself.
    pub(super) inside: f64,
    /// Time of its commands, in nanoseconds.
    pub(super) time: f64,
}

impl State {
    /// Make a file, and let the contender have it.
    pub(super) fn measure(rig: &Rig, room: &Room, contender: Contender) -> Result<Self> {
        let file = format!("{}/file", dir_of(contender));
        let others = format!("{MOUNT}/others/{}", contender.folder());
        room.inside(&["lay", "/share/pieces", &file, &others])?;
        let before = look(rig, room, contender, "before")?;
        let (found, wanted) = (before.file.extents.len(), rig.workload.pieces.len());
        // An easier file would be another figure.
        ensure!(
            found.abs_diff(wanted) * 20 <= wanted,
            "the file has {found} extents instead of {wanted}"
        );
        let work = migrate(rig, room, contender)?;
        let after = look(rig, room, contender, "afterwards")?;
        room.inside(&["verify", &file])?;
        let reads = before.reads.into_iter().zip(after.reads);
        Ok(Self {
            reads: reads
                .map(|((pattern, before), (_, after))| (pattern, [before, after]))
                .collect(),
            extents: [before.file, after.file].map(|file| file.extents.len() as f64),
            work,
        })
    }

    /// The times of a pattern's reads, before and after.
    pub(super) fn reads(&self, pattern: Pattern) -> Option<[Times; 2]> {
        let mut reads = self.reads.iter();
        reads
            .find(|(of, _)| *of == pattern)
            .map(|(_, times)| *times)
    }
}

/// A file as it lies.
struct Look {
    file: FileLayout,
    reads: Vec<(Pattern, Times)>,
}

/// The directory of a contender's file.
fn dir_of(contender: Contender) -> String {
    format!("{MOUNT}/{}", contender.folder())
}

/// Read a contender's file in its patterns, and dump what was seen `when`.
fn look(rig: &Rig, room: &Room, contender: Contender, when: &str) -> Result<Look> {
    let dir = dir_of(contender);
    let mut layout = room.layout(&dir)?;
    let one = layout.files.pop().filter(|_| layout.files.is_empty());
    let file = one.ok_or_else(|| anyhow::anyhow!("{dir} has not one file"))?;
    let size = rig.workload.size.get();
    ensure!(
        file.bytes == size,
        "{dir}: {} bytes instead of {size}",
        file.bytes
    );
    let mut dump = Dump::new(&room.kernel, &file.extents);
    let mut reads = Vec::new();
    for pattern in contender.patterns() {
        let ranges = rig.workload.ranges(*pattern);
        let told = format!("/share/{}", pattern.name());
        let log = room.record(&["read", &told, &format!("{dir}/{}", file.name)])?;
        let commands = commands::of_calls(&log, &file, ranges)?;
        dump.add(*pattern, &commands);
        let times = Times::of(&rig.drives, &file.extents, ranges, &commands)?;
        reads.push((*pattern, times));
    }
    dump.write(
        &rig.dumps
            .join(format!("{}-{when}.json", contender.folder())),
    )?;
    Ok(Look { file, reads })
}

/// Let a contender defragment its file.
fn migrate(rig: &Rig, room: &Room, contender: Contender) -> Result<Work> {
    let dir = dir_of(contender);
    if let Some(pattern) = contender.told() {
        let file = format!("{dir}/file");
        let lines = told::lines(Path::new(&file), rig.workload.ranges(pattern))?;
        fs::write(rig.share("told"), lines)?;
        room.shell("cp /share/told /tmp/told")?;
    }
    room.shell("sync; echo 3 >/proc/sys/vm/drop_caches")?;
    let commands = Commands {
        indef: &path(&rig.indef)?,
        dir: &dir,
        profile: "/tmp/told",
        io_size: rig.workload.io_size,
        time_scale: rig.time_scale,
    };
    let way = contender.way(rig.truncate);
    let mut words = ["sh", "-c", "\"$@\" && sync", "sh"]
        .map(str::to_owned)
        .to_vec();
    words.extend(commands.of(way));
    let recording = room.migrate(&words, rig.time_scale)?;
    way.check(&recording.watched.stdout)?;
    work(rig, &recording)
}

/// The commands of a migration, done again.
fn work(rig: &Rig, recording: &Recording) -> Result<Work> {
    let drives = &rig.drives;
    let profile = &drives.system.profile;
    let mut machine = Machine::new(profile, &recording.zones, drives.conventional)?;
    let mut host = Recorded::new(&recording.commands);
    let elapsed = machine.run(&mut [&mut host])?;
    Ok(Work {
        by_host: elapsed.stats.host_written_bytes as f64,
        inside: elapsed.stats.migrated_bytes as f64,
        time: elapsed.ns as f64,
    })
}
