//! Files that snapshots of Btrfs or reflink copies on XFS share: indef, which keeps the sharing, and
//! `btrfs filesystem defragment -r` and `xfs_fsr`, which do not.

use std::{ffi::OsString, path::PathBuf};

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
const HOLDERS: [u32; 3] = [1, 10, 50];

/// A file system that shares, and who else defragments there.
struct Sharing {
    fs: &'static str,
    holders: &'static str,
    files: fn(Bytes, u32) -> Files,
    other: &'static str,
    /// Without the path of the folder or the file.
    command: &'static [&'static str],
    /// It takes the file, no folder.
    takes_file: bool,
}

const SHARING: [Sharing; 2] = [
    Sharing {
        fs: "btrfs",
        holders: "snapshots",
        files: Files::Snapshots,
        other: "btrfs defragment -r",
        command: &["btrfs", "filesystem", "defragment", "-r"],
        takes_file: false,
    },
    Sharing {
        fs: "xfs",
        holders: "reflink copies",
        files: Files::Reflinks,
        other: "xfs_fsr",
        command: &["xfs_fsr"],
        takes_file: true,
    },
];

struct Contender {
    name: &'static str,
    /// Without the path that is appended: of the file, or of its folder.
    command: Vec<OsString>,
    takes_file: bool,
    row: ContenderRuns,
    /// Bytes by which the used space grew, and extents of a snapshot's file afterwards.
    grown: Vec<f64>,
    of_snapshot: Vec<f64>,
}

/// Measure both on each file system, with each number of holders.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    report
        .heading("space used beyond before, and extents of the file in a snapshot or reflink copy");
    let programs = (common.indef()?, common.images()?);
    for sharing in &SHARING {
        for holders in HOLDERS {
            sharing.measure(holders, &programs, common.runs, report)?;
        }
    }
    report.heading("");
    Ok(())
}

impl Sharing {
    /// With the program, and the folder of images.
    fn measure(
        &self,
        holders: u32,
        (indef, images): &(PathBuf, PathBuf),
        runs: usize,
        report: &mut Report,
    ) -> Result<()> {
        let case = format!("{} {SIZE}, {holders} {}", self.fs, self.holders);
        let state = StartState {
            fs: self.fs,
            size: Bytes::gib(2),
            files: (self.files)(SIZE, holders),
        };
        let image = state.prepare(images)?;
        let ours = vec![indef.into(), "run".into(), "--quiet".into()];
        let theirs = self.command.iter().map(Into::into).collect();
        let mut contenders = [
            Contender::new(&case, "indef", ours, false),
            Contender::new(&case, self.other, theirs, self.takes_file),
        ];
        for run in 1..=runs {
            for contender in &mut contenders {
                eprintln!("{case}: run {run} of {runs}: {}", contender.name);
                contender.run(state.restore(&image)?)?;
            }
        }
        let grown = contenders.each_ref().map(Contender::grown);
        for contender in contenders {
            let Contender { name, grown, .. } = &contender;
            report.figure(&case, name, "grown_bytes", grown);
            let extents = { contender.row.samples.iter() }
                .filter_map(|sample| Some(sample.extents_after? as f64));
            report.figure(&case, name, "extents_after", &extents.collect::<Vec<_>>());
            let of_holder = &contender.of_snapshot;
            report.figure(&case, name, "snapshot_extents_after", of_holder);
            report.heading(&contender.line(&case));
            report.rows.push(contender.row);
        }
        let share = 100.0 * (1.0 - grown[0] / grown[1]);
        let what = format!("{case}, space taken, less than {}", self.other);
        report
            .verdicts
            .push(Verdict::at_least(what, share, 90.0, " %"));
        Ok(())
    }
}

impl Contender {
    fn new(case: &str, name: &'static str, command: Vec<OsString>, takes_file: bool) -> Self {
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
            takes_file,
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
        let [path] = &file;
        command.push(match self.takes_file {
            true => path.into(),
            false => folder.into(),
        });
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
    Ok(scratch.used()?.get() as f64)
}
