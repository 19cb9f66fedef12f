//! Free space made whole: `indef compact` beside what there is on each file system, from states in which free space
//! lies in tiny pieces.
//!
//! Nothing else on ext4 and XFS has that aim: `e4defrag` and `xfs_fsr` move files so that *files* have fewer extents.
//! They run here because they are what people have. On Btrfs both `btrfs balance` and indef have the kernel empty chunks.
//!
//! The longest free run is read from the unmounted file system by the tools of its own kind ([`oracle`]), not by indef.
//! All that is shown is counts and bytes of the device, which a busy machine does not change.

mod holes;
mod oracle;

use std::{ffi::OsString, fs, io, path::PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::fs::{FallocateFlags, fallocate};
use scratch_fs::{ScratchFs, ScratchFsBuilder};
use stage::Fs;
use units::Bytes;

use super::{
    common::Common,
    measure,
    report::{ContenderRuns, Report, Sample, Verdict},
    state::{self, FOLDER},
};

/// The wanted run, and the length of the file that shall get it.
const WANTED: Bytes = Bytes::mib(64);
/// Free pieces that ext4 looks at, to see whether it could find the run if it looked at all of them.
const ALL_PIECES: &str = "1000000";

/// A file system in such a state.
struct Case {
    name: &'static str,
    fs: Fs,
    size: Bytes,
    mkfs: &'static [&'static str],
    /// Whether nothing that cannot move lies amid the data: then the wanted run can be had.
    is_free_of_metadata: bool,
}

const CASES: [Case; 4] = [
    Case {
        name: "ext4",
        fs: Fs::Ext4,
        size: Bytes::mib(400),
        mkfs: &["-N", "40000", "-m", "0"],
        is_free_of_metadata: true,
    },
    Case {
        name: "xfs",
        fs: Fs::Xfs,
        size: Bytes::mib(400),
        mkfs: &["-m", "rmapbt=0"],
        is_free_of_metadata: true,
    },
    Case {
        name: "xfs with rmapbt",
        fs: Fs::Xfs,
        size: Bytes::mib(400),
        mkfs: &["-m", "rmapbt=1"],
        is_free_of_metadata: false,
    },
    Case {
        name: "btrfs",
        fs: Fs::Btrfs,
        size: Bytes::gib(1),
        mkfs: &[],
        is_free_of_metadata: false,
    },
];

/// What of a file system is told by its free space.
struct Space {
    longest: Bytes,
    /// In how many extents a file of [`WANTED`] bytes is born.
    born: u64,
    /// The same where ext4 looks at all free pieces of a group.
    born_of_all: Option<u64>,
}

struct Contender {
    name: &'static str,
    /// Without the path that is appended.
    command: Vec<OsString>,
    /// It takes a folder; the others the mount point.
    is_for_folders: bool,
    row: ContenderRuns,
    after: Vec<Space>,
}

/// Measure each contender on each file system.
pub(super) fn measure(common: &Common, report: &mut Report) -> Result<()> {
    let (indef, images) = (common.indef()?, common.images()?);
    for case in &CASES {
        let image = case.prepare(&images)?;
        let restore = || case.builder().folder(&images).copy_of(&image).build();
        let before = Space::of(case.fs, &mut restore()?)?;
        let mut contenders = case.contenders(&indef);
        for run in 1..=common.runs {
            for contender in &mut contenders {
                eprintln!(
                    "{}: run {run} of {}: {}",
                    case.name, common.runs, contender.name
                );
                contender.run(case, restore()?)?;
            }
        }
        for contender in contenders {
            contender.tell(case, &before, report);
            report.rows.push(contender.row);
        }
    }
    report.heading("");
    Ok(())
}

impl Case {
    fn builder(&self) -> ScratchFsBuilder {
        ScratchFs::builder(self.fs.name(), self.size).mkfs_args(self.mkfs.iter().copied())
    }

    fn prepare(&self, images: &std::path::Path) -> Result<PathBuf> {
        let name = format!("holes-{}-{}", self.name.replace(' ', "-"), self.size.get());
        state::image(images, &name, self.builder(), |scratch| {
            holes::make(self.fs, scratch)
        })
    }

    fn contenders(&self, indef: &std::path::Path) -> Vec<Contender> {
        let contender = |name, command: &[&str], is_for_folders| {
            let command: Vec<OsString> = command.iter().map(OsString::from).collect();
            Contender {
                name,
                row: ContenderRuns {
                    case: self.name.to_owned(),
                    contender: name.to_owned(),
                    command: measure::describe(&command),
                    extents_before: None,
                    samples: Vec::new(),
                },
                command,
                is_for_folders,
                after: Vec::new(),
            }
        };
        let want = format!("{}MiB", WANTED.get() >> 20);
        let indef = indef.to_string_lossy();
        let compact = [&*indef, "compact", "--quiet", "--want", &want];
        let ours = contender("indef compact", &compact, false);
        match self.fs {
            Fs::Ext4 => vec![ours, contender("e4defrag", &["e4defrag"], true)],
            Fs::Xfs => vec![ours, contender("xfs_fsr", &["xfs_fsr"], false)],
            Fs::Btrfs => {
                let balance = ["btrfs", "balance", "start", "-dusage=75"];
                vec![ours, contender("btrfs balance", &balance, false)]
            }
        }
    }
}

impl Contender {
    fn run(&mut self, case: &Case, mut scratch: ScratchFs) -> Result<()> {
        let folder = scratch.path().join(FOLDER);
        let files = measure::files_below(&folder)?;
        let hash = measure::hash(&files)?;
        measure::drop_caches(&scratch)?;
        let mut command = self.command.clone();
        command.push(match self.is_for_folders {
            true => folder.into(),
            false => scratch.path().into(),
        });
        let sample: Sample = measure::timed(&scratch, || Ok(Some(measure::run(&command)?)))?;
        measure::drop_caches(&scratch)?;
        let is_same = measure::hash(&files)? == hash;
        ensure!(is_same, "{}: {} has changed contents", case.name, self.name);
        self.after.push(Space::of(case.fs, &mut scratch)?);
        scratch.fsck()?;
        self.row.samples.push(sample);
        Ok(())
    }

    /// Figures and verdicts.
    fn tell(&self, case: &Case, before: &Space, report: &mut Report) {
        let samples = |of: &dyn Fn(&Space) -> Option<u64>| -> Vec<f64> {
            let after = self.after.iter().filter_map(of);
            after.map(|value| value as f64).collect()
        };
        // Bytes written in each run for each byte by which the longest free run grew, where it did.
        let gained = |space: &Space| space.longest.saturating_sub(before.longest).get() as f64;
        let runs = self.row.samples.iter().zip(&self.after);
        let price: Vec<f64> = runs
            .map(|(sample, space)| sample.device_written_bytes as f64 / gained(space))
            .filter(|price| price.is_finite())
            .collect();
        let longest = samples(&|space| Some(space.longest.get()));
        let born = samples(&|space| Some(space.born));
        let born_of_all = samples(&|space| space.born_of_all);
        let once = |value: u64| vec![value as f64];
        let quantities = [
            ("longest_before_bytes", once(before.longest.get())),
            ("longest_after_bytes", longest.clone()),
            ("born_before", once(before.born)),
            ("born_after", born.clone()),
            (
                "born_of_all_before",
                before.born_of_all.map_or(Vec::new(), once),
            ),
            ("born_of_all_after", born_of_all.clone()),
            ("written_per_byte", price.clone()),
        ];
        for (quantity, samples) in &quantities {
            if !samples.is_empty() {
                report.figure(case.name, self.name, quantity, samples);
            }
        }
        report.heading(&format!(
            "  {}, {}: longest {} -> {longest:?}, born in {} -> {born:?} (of all {:?} -> {born_of_all:?}), {price:.2?} \
             written per byte",
            case.name, self.name, before.longest, before.born, before.born_of_all
        ));
        if self.name != "indef compact" {
            return;
        }
        let what = |text: &str| format!("{}, {}: {text}", case.name, self.name);
        let least = longest.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |samples: &[f64]| samples.iter().copied().fold(0.0, f64::max);
        let grown = least / before.longest.get().max(1) as f64;
        report.verdicts.extend([
            Verdict::at_least(what("the longest free run grows"), grown, 10.0, "×"),
            Verdict::at_most(
                what("written for each byte gained"),
                most(&price),
                2.0,
                " B",
            ),
        ]);
        if case.is_free_of_metadata {
            let found = if born_of_all.is_empty() {
                &born
            } else {
                &born_of_all
            };
            let found = most(found);
            let verdict = Verdict::at_most(what("extents of a file of 64 MiB"), found, 4.0, "");
            report.verdicts.push(verdict);
        }
    }
}

impl Space {
    fn of(fs: Fs, scratch: &mut ScratchFs) -> Result<Self> {
        let longest = oracle::longest_run(fs, scratch)?;
        let born = born_in(scratch)?;
        let born_of_all = match fs {
            Fs::Ext4 => Some(born_of_all(scratch)?),
            Fs::Xfs | Fs::Btrfs => None,
        };
        Ok(Self {
            longest,
            born,
            born_of_all,
        })
    }
}

/// In how many extents a file of [`WANTED`] bytes is born. It does not stay.
fn born_in(scratch: &mut ScratchFs) -> Result<u64> {
    let path = scratch.path().join("large");
    let extents = extents_of_new(&path).with_context(|| format!("{}", path.display()))?;
    fs::remove_file(&path)?;
    // XFS and Btrfs free its blocks later, but not later than that.
    scratch.remount()?;
    Ok(extents)
}

fn extents_of_new(path: &std::path::Path) -> io::Result<u64> {
    let file = fs::File::create(path)?;
    fallocate(&file, FallocateFlags::empty(), 0, WANTED.get())?;
    scratch_fs::fragments(&file)
}

/// The same where ext4 looks at all free pieces of a group, and not at some 200 as it does by itself.
fn born_of_all(scratch: &mut ScratchFs) -> Result<u64> {
    let device = scratch.device().trim_start_matches("/dev/");
    let setting = PathBuf::from(format!("/sys/fs/ext4/{device}/mb_max_to_scan"));
    // The remount after it brings the default back.
    fs::write(&setting, ALL_PIECES).with_context(|| format!("{}", setting.display()))?;
    born_in(scratch)
}
