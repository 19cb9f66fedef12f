//! Files of Btrfs that snapshots share: indef, which keeps the sharing, and `btrfs filesystem defragment -r`, which
//! gives it up.

use std::ffi::OsString;

use anyhow::{Result, ensure};
use scratch_fs::ScratchFs;
use units::Bytes;

use super::{
    common::Common,
    measure,
    report::{ContenderRuns, Report, Sample, Verdict},
    state::{FOLDER, Files, SNAPSHOT, StartState},
};

const SIZE: Bytes = Bytes::mib(64);
const SNAPSHOTS: [u32; 3] = [1, 10, 50];

struct Contender {
    name: &'static str,
    /// Without the path that is appended.
    command: Vec<OsString>,
    row: ContenderRuns,
    /// Bytes by which the used space grew, and extents of a snapshot's file afterwards.
    grown: Vec<f64>,
    of_snapshot: Vec<f64>,
}

/// Measure both, with each number of snapshots.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    let (indef, images) = (common.indef()?, common.images()?);
    report.heading("space used beyond before, and extents of the file in a snapshot");
    for snapshots in SNAPSHOTS {
        let case = format!("btrfs {SIZE}, {snapshots} snapshots");
        let state = StartState {
            fs: "btrfs",
            size: Bytes::gib(2),
            files: Files::Snapshots(SIZE, snapshots),
        };
        let image = state.prepare(&images)?;
        let ours: Vec<OsString> = vec![indef.clone().into(), "run".into(), "--quiet".into()];
        let theirs = ["btrfs", "filesystem", "defragment", "-r"];
        let mut contenders = [
            Contender::new(&case, "indef", ours),
            Contender::new(&case, "btrfs defragment -r", theirs.map(Into::into).into()),
        ];
        for run in 1..=common.runs {
            for contender in &mut contenders {
                eprintln!("{case}: run {run} of {}: {}", common.runs, contender.name);
                contender.run(state.restore(&image)?)?;
            }
        }
        let grown = contenders.each_ref().map(Contender::grown);
        for contender in contenders {
            let Contender { name, grown, .. } = &contender;
            report.figure(&case, name, "grown_bytes", grown);
            report.figure(
                &case,
                name,
                "snapshot_extents_after",
                &contender.of_snapshot,
            );
            report.heading(&contender.line(&case));
            report.rows.push(contender.row);
        }
        let share = 100.0 * (1.0 - grown[0] / grown[1]);
        let what = format!("{case}, space taken, less than btrfs defragment -r");
        report
            .verdicts
            .push(Verdict::at_least(what, share, 90.0, " %"));
    }
    report.heading("");
    Ok(())
}

impl Contender {
    fn new(case: &str, name: &'static str, command: Vec<OsString>) -> Self {
        Self {
            name,
            row: ContenderRuns {
                case: case.to_owned(),
                contender: name.to_owned(),
                command: measure::describe(&command),
                extents_before: None,
                samples: Vec::new(),
            },
            command,
            grown: Vec::new(),
            of_snapshot: Vec::new(),
        }
    }

    fn run(&mut self, mut scratch: ScratchFs) -> Result<()> {
        let folder = scratch.path().join(FOLDER);
        let file = [folder.join("file")];
        let of_snapshot = [scratch.path().join(format!("{SNAPSHOT}0/file"))];
        let (hash, used) = (measure::hash(&file)?, used(&mut scratch)?);
        self.row.extents_before = Some(measure::extents(&file)?);
        measure::drop_caches(&scratch)?;
        let mut command = self.command.clone();
        command.push(folder.into());
        let sample = measure::timed(&scratch, || Ok(Some(measure::run(&command)?)))?;
        self.grown.push(self::used(&mut scratch)? - used);
        measure::drop_caches(&scratch)?;
        for files in [&file, &of_snapshot] {
            let is_same = measure::hash(files)? == hash;
            ensure!(
                is_same,
                "{}: {} has changed contents",
                self.name,
                files[0].display()
            );
        }
        self.of_snapshot
            .push(measure::extents(&of_snapshot)? as f64);
        self.row.samples.push(Sample {
            extents_after: Some(measure::extents(&file)?),
            ..sample
        });
        Ok(())
    }

    /// The least growth, as a number by which one may divide.
    fn grown(&self) -> f64 {
        self.grown
            .iter()
            .copied()
            .fold(f64::INFINITY, f64::min)
            .max(1.0)
    }

    fn line(&self, case: &str) -> String {
        let mib = |bytes: &f64| format!("{:+.1} MiB", bytes / f64::from(1 << 20));
        let grown: Vec<String> = self.grown.iter().map(mib).collect();
        let extents: Vec<String> = self.of_snapshot.iter().map(ToString::to_string).collect();
        let (grown, extents) = (grown.join(", "), extents.join(", "));
        format!("  {case}, {}: {grown}; {extents}", self.name)
    }
}

/// Used bytes, once old blocks are free.
fn used(scratch: &mut ScratchFs) -> Result<f64> {
    scratch.remount()?;
    scratch.sync()?;
    let space = rustix::fs::statvfs(scratch.path())?;
    Ok(((space.f_blocks - space.f_bfree) * space.f_frsize) as f64)
}
