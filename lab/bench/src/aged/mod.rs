//! File systems that are aged by what people do with them: how fragmented files become, what indef moves, and how fast they
//! fragment again.
//!
//! A life of a year passes on a loop device in some minutes, day by day; at the end of a day everything is written
//! back, as it would be long before the end of a real one. What is counted follows from places alone, not from times: extents,
//! and the requests that reading every file once takes, 128 KiB at a time, as Linux reads ahead. Then `indef run` moves what it
//! chooses (nobody was traced, so each range counts as read once), all contents are compared, and the same life goes on for a month.

mod files;
mod life;
mod machine;
mod mail;
mod perform;
mod pulls;
mod state;

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use indef_fs::{Mapper, map};
use scratch_fs::ScratchFs;
use stage::Fs;
use units::{Bytes, FileRange};

use super::{
    common::Common,
    measure,
    report::{Report, Verdict},
};
use life::Setting;
use state::State;

/// What a request reads (`read_ahead_kb`, Linux's default).
const REQUEST: u64 = 128 << 10;
/// Days that go by after a repair.
const MONTH: u32 = 30;

/// Options of `bench aged`.
#[derive(Args, Clone)]
pub struct AgedArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// What makes files old
    #[arg(long, value_delimiter = ',', default_values = ["files", "pulls", "mail", "machine"])]
    states: Vec<State>,
    /// File systems
    #[arg(long, value_delimiter = ',', default_values = ["ext4", "xfs", "btrfs"])]
    fs: Vec<Fs>,
    /// Days of a life before anything is repaired
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..))]
    days: u32,
    /// Git repository whose history is pulled [default: this project's]
    #[arg(long, value_name = "FOLDER")]
    repository: Option<PathBuf>,
}

/// How the files of a folder lie.
#[derive(Clone, Copy, Debug, Default)]
struct Places {
    files: u64,
    fragmented: u64,
    bytes: u64,
    extents: u64,
    requests: u64,
    /// Requests if each file were in one piece.
    fewest: u64,
}

impl Places {
    fn of(folder: &Path) -> Result<Self> {
        let mut places = Self::default();
        let mut mapper = Mapper::default();
        for path in measure::files_below(folder)? {
            let file = File::open(&path)?;
            let size = file.metadata()?.len();
            let whole = FileRange::new(0, size);
            let layout = map(&file, &path, whole, true, &mut mapper)
                .map_err(|error| io::Error::other(error.to_string()))
                .with_context(|| format!("cannot map {}", path.display()))?;
            let allocated = layout.allocated().get();
            if allocated == 0 {
                continue;
            }
            let extents = layout.fragments();
            places.files += 1;
            places.fragmented += u64::from(extents > 1);
            places.bytes += allocated;
            places.extents += extents;
            for at in (0..size).step_by(REQUEST as usize) {
                let window = FileRange::new(at, REQUEST.min(size - at));
                let pieces = layout.clipped(window).count() as u64;
                places.requests += pieces;
                places.fewest += pieces.min(1);
            }
        }
        Ok(places)
    }

    /// Requests beyond the fewest, in percent of these.
    fn more_pct(&self) -> f64 {
        100.0 * (self.requests as f64 / self.fewest.max(1) as f64 - 1.0)
    }

    fn fragmented_pct(&self) -> f64 {
        100.0 * self.fragmented as f64 / self.files.max(1) as f64
    }
}

/// What one life gave.
struct Lived {
    aged: Places,
    /// Bytes that `indef run` moved, and those that moving all fragmented files would move.
    moved: u64,
    whole: u64,
    repaired: Places,
    later: Places,
}

/// Measure each state on each file system.
pub(super) fn measure(args: &AgedArgs, report: &mut Report) -> Result<()> {
    let indef = args.common.indef()?;
    report.heading("requests beyond the fewest to read each file once: aged, repaired, a month later; moved of all data");
    for state in &args.states {
        for fs in args.fs.iter().copied() {
            let case = format!("{} on {}", state.name(), fs.name());
            let lived: Vec<Lived> = (0..args.common.runs)
                .map(|run| {
                    eprintln!("{case}: run {} of {}", run + 1, args.common.runs);
                    live(args, *state, fs, run as u64, &indef)
                })
                .collect::<Result<_>>()?;
            tell(&case, &lived, report);
        }
    }
    Ok(())
}

fn live(args: &AgedArgs, state: State, fs: Fs, seed: u64, indef: &Path) -> Result<Lived> {
    let images = args.common.images()?;
    let scratch = ScratchFs::builder(fs.name(), state.volume())
        .folder(&images)
        .build()?;
    let folder = scratch.path().join("data");
    let mut life = state.begin(&Setting {
        folder: &folder,
        images: &images,
        days: args.days,
        days_after: MONTH,
        repository: args.repository.as_deref(),
        seed,
    })?;
    let mut pass = |days| {
        for _ in 0..days {
            measure::ensure_not_stopped()?;
            life.day()?;
            scratch.sync()?;
        }
        anyhow::Ok(())
    };
    pass(args.days)?;
    let aged = Places::of(&folder)?;
    let contents = measure::hash(&measure::files_below(&folder)?)?;
    let whole = total(indef, &["plan", "--policy", "whole"], &folder, "cost_bytes")?;
    let moved = total(indef, &["run"], &folder, "bytes_relocated")?;
    scratch.sync()?;
    measure::drop_caches(&scratch)?;
    let is_same = measure::hash(&measure::files_below(&folder)?)? == contents;
    ensure!(is_same, "contents have changed below {}", folder.display());
    let repaired = Places::of(&folder)?;
    pass(MONTH)?;
    Ok(Lived {
        aged,
        moved,
        whole,
        repaired,
        later: Places::of(&folder)?,
    })
}

/// A number of the totals of what indef says.
fn total(indef: &Path, verb: &[&str], folder: &Path, number: &str) -> Result<u64> {
    let said = measure::text(Command::new(indef).args(verb).arg("--json").arg(folder))?;
    let document: serde_json::Value = serde_json::from_str(&said)?;
    document["totals"][number]
        .as_u64()
        .with_context(|| format!("indef {} tells no {number}", verb.join(" ")))
}

fn tell(case: &str, lived: &[Lived], report: &mut Report) {
    let mut figure = |contender: &str, quantity: &str, of: &dyn Fn(&Lived) -> f64| {
        let samples: Vec<f64> = lived.iter().map(of).collect();
        report.figure(case, contender, quantity, &samples);
    };
    for (contender, of) in MOMENTS {
        figure(contender, "files", &|lived| of(lived).files as f64);
        figure(contender, "data_bytes", &|lived| of(lived).bytes as f64);
        figure(contender, "extents", &|lived| of(lived).extents as f64);
        figure(contender, "fragmented_pct", &|lived| {
            of(lived).fragmented_pct()
        });
        figure(contender, "more_requests_pct", &|lived| {
            of(lived).more_pct()
        });
    }
    let moved_pct = |lived: &Lived| 100.0 * lived.moved as f64 / lived.aged.bytes.max(1) as f64;
    figure("indef", "moved_bytes", &|lived| lived.moved as f64);
    figure("indef", "moved_pct", &moved_pct);
    figure("whole files", "moved_bytes", &|lived| lived.whole as f64);
    for lived in lived {
        let [aged, repaired, later] =
            [&lived.aged, &lived.repaired, &lived.later].map(Places::more_pct);
        report.heading(&format!(
            "  {case}: {aged:.1} %, {repaired:.1} %, {later:.1} %; {} of {}",
            Bytes(lived.moved),
            Bytes(lived.aged.bytes)
        ));
        // A part of next to nothing says nothing.
        if aged >= 1.0 {
            report.verdicts.push(Verdict::at_most(
                format!("{case}: requests beyond the fewest after a repair, of those before"),
                100.0 * repaired / aged,
                50.0,
                " %",
            ));
        }
    }
}

/// A moment of a life, by the name of its row.
type Moment = (&'static str, fn(&Lived) -> &Places);
const MOMENTS: [Moment; 3] = [
    ("aged", |lived| &lived.aged),
    ("indef", |lived| &lived.repaired),
    ("a month later", |lived| &lived.later),
];
