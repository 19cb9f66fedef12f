//! indef and the tool that each file system brings along, on the same states.

use std::ffi::OsString;

use anyhow::{Result, ensure};
use clap::Args;
use scratch_fs::ScratchFs;
use stage::Fs;
use units::Bytes;

use super::{
    common::Common,
    limit, measure,
    report::{ContenderRuns, Report, Sample, Verdict},
    state::{FOLDER, Files, StartState},
};

/// The part of the comparison.
#[derive(Args)]
pub struct PeersArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Only this file system
    #[arg(long)]
    fs: Option<Fs>,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
}

/// The target for indef, compared with the peer.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    /// This many times as fast.
    Faster(f64),
    /// This share fewer bytes written, in percent.
    FewerBytes(f64),
    /// Only for information.
    Nothing,
}

pub(super) struct PeerCase {
    pub(super) name: &'static str,
    pub(super) fs: Fs,
    pub(super) size: Bytes,
    pub(super) files: Files,
    /// Whether the files are in the page cache when the run starts.
    pub(super) cached: bool,
    pub(super) options: &'static [&'static str],
    pub(super) wanted: Wanted,
}

const SINGLE: Files = Files::Single(Bytes::mib(256));
const HALF: Files = Files::HalfContiguous(Bytes::mib(128));
const SEQUENTIAL: &[&str] = &["--policy", "sequential"];

const fn case(name: &'static str, fs: Fs, files: Files, wanted: Wanted) -> PeerCase {
    let size = Bytes::gib(2);
    PeerCase {
        name,
        fs,
        size,
        files,
        cached: false,
        options: &[],
        wanted,
    }
}

fn cases() -> Vec<PeerCase> {
    let ext4_many = case(
        "ext4 2,000 × 1 MiB",
        Fs::Ext4,
        Files::Many(2000),
        Wanted::Faster(3.0),
    );
    let xfs_many = case(
        "xfs 2,000 × 1 MiB",
        Fs::Xfs,
        Files::Many(2000),
        Wanted::Faster(1.5),
    );
    let ext4_cached = case(
        "ext4 256 MiB cached",
        Fs::Ext4,
        SINGLE,
        Wanted::Faster(15.0),
    );
    let half = [
        case("ext4 half-contiguous", Fs::Ext4, HALF, Wanted::Nothing),
        case(
            "xfs half-contiguous",
            Fs::Xfs,
            HALF,
            Wanted::FewerBytes(45.0),
        ),
        case(
            "btrfs half-contiguous",
            Fs::Btrfs,
            HALF,
            Wanted::FewerBytes(45.0),
        ),
    ]
    .map(|case| PeerCase {
        options: SEQUENTIAL,
        ..case
    });
    let mut cases = vec![
        case("ext4 256 MiB", Fs::Ext4, SINGLE, Wanted::Faster(4.0)),
        PeerCase {
            cached: true,
            ..ext4_cached
        },
        PeerCase {
            size: Bytes::gib(6),
            ..ext4_many
        },
        case("xfs 256 MiB", Fs::Xfs, SINGLE, Wanted::Faster(1.5)),
        case(
            "xfs 256 MiB in 16 KiB",
            Fs::Xfs,
            Files::Pieces(Bytes::mib(256), Bytes::kib(16)),
            Wanted::Faster(1.5),
        ),
        case(
            "xfs 256 MiB in 64 KiB",
            Fs::Xfs,
            Files::Pieces(Bytes::mib(256), Bytes::kib(64)),
            Wanted::Faster(1.5),
        ),
        PeerCase {
            size: Bytes::gib(6),
            ..xfs_many
        },
        case(
            "xfs 16 folders × 32 × 1 MiB",
            Fs::Xfs,
            Files::Folders(16, 32),
            Wanted::Faster(1.5),
        ),
        case("btrfs 256 MiB", Fs::Btrfs, SINGLE, Wanted::Faster(1.0)),
    ];
    cases.extend(half);
    cases
}

/// Measure all requested cases.
pub(super) fn measure(args: &PeersArgs, report: &mut Report) -> Result<()> {
    let cases: Vec<PeerCase> = cases()
        .into_iter()
        .filter(|case| args.fs.is_none_or(|fs| fs == case.fs))
        .filter(|case| {
            args.case
                .as_ref()
                .is_none_or(|text| case.name.contains(text.as_str()))
        })
        .collect();
    ensure!(!cases.is_empty(), "no case has this file system and name");
    measure_cases(&args.common, &cases, report)
}

/// Measure these cases.
pub(super) fn measure_cases(
    common: &Common,
    cases: &[PeerCase],
    report: &mut Report,
) -> Result<()> {
    let indef = common.indef()?;
    let images = common.images()?;
    for case in cases {
        let state = StartState {
            fs: case.fs.name(),
            size: case.size,
            files: case.files,
        };
        let image = state.prepare(&images)?;
        let mut contenders = contenders(case, &indef);
        for run in 1..=common.runs {
            for contender in &mut contenders {
                eprintln!(
                    "{}: run {run} of {}: {}",
                    case.name,
                    common.runs,
                    contender.name()
                );
                let scratch = state.restore(&image)?;
                let (before, sample) = contender.run(case, &scratch)?;
                contender.row.extents_before = Some(before);
                contender.row.samples.push(sample);
            }
        }
        let rows = contenders.map(|contender| contender.row);
        report.verdicts.extend(judge(case.name, case.wanted, &rows));
        report.rows.extend(rows);
    }
    Ok(())
}

struct Contender {
    /// Without the path that is appended; empty for the limit, which runs in this process.
    command: Vec<OsString>,
    row: ContenderRuns,
}

fn contenders(case: &PeerCase, indef: &std::path::Path) -> [Contender; 3] {
    let mut run: Vec<OsString> = vec![indef.into(), "run".into(), "--quiet".into()];
    run.extend(case.options.iter().map(OsString::from));
    let peer: Vec<OsString> = case.fs.peer().iter().map(OsString::from).collect();
    let contender = |name: &str, command: Vec<OsString>| Contender {
        row: ContenderRuns {
            case: case.name.to_owned(),
            contender: name.to_owned(),
            command: measure::describe(&command),
            extents_before: None,
            samples: Vec::new(),
        },
        command,
    };
    let peer_name = case.fs.peer().join(" ").replace("filesystem ", "");
    [
        contender("indef", run),
        contender(&peer_name, peer),
        contender("limit", Vec::new()),
    ]
}

impl Contender {
    fn name(&self) -> &str {
        &self.row.contender
    }

    /// Do one run. Returns the extents before it and the sample.
    fn run(&self, case: &PeerCase, scratch: &ScratchFs) -> Result<(u64, Sample)> {
        let folder = scratch.path().join(FOLDER);
        let files = measure::files_below(&folder)?;
        let before = measure::extents(&files)?;
        let hash = measure::hash(&files)?;
        measure::drop_caches(scratch)?;
        if case.cached {
            measure::read_all(&files)?;
        }
        if self.command.is_empty() {
            let to = scratch.path().join("limit");
            let sample = measure::timed(scratch, || {
                limit::copy(&files, &to, case.cached)?;
                Ok(None)
            })?;
            let after = measure::extents(&[to])?;
            return Ok((
                before,
                Sample {
                    extents_after: Some(after),
                    ..sample
                },
            ));
        }
        let mut command = self.command.clone();
        match files.as_slice() {
            [only] => command.push(only.into()),
            // It takes a file system or files, not folders.
            _ if command[0] == "xfs_fsr" => command.extend(files.iter().map(OsString::from)),
            _ => command.push(folder.into()),
        }
        let sample = measure::timed(scratch, || Ok(Some(measure::run(&command)?)))?;
        // Read from the device, not from data that the run left in memory.
        measure::drop_caches(scratch)?;
        ensure!(
            measure::hash(&files)? == hash,
            "{}: {} has changed contents",
            case.name,
            self.name()
        );
        let after = measure::extents(&files)?;
        Ok((
            before,
            Sample {
                extents_after: Some(after),
                ..sample
            },
        ))
    }
}

/// Compare the contenders of a case with what is wanted of it. `rows`: those of indef, of the peer and of the limit.
pub(super) fn judge(name: &str, wanted: Wanted, rows: &[ContenderRuns]) -> Option<Verdict> {
    let [indef, peer, limit] = rows else {
        return None;
    };
    let (ours, theirs, bound) = (indef.duration(), peer.duration(), limit.duration());
    eprintln!(
        "{name}: indef {ours:.3?}, {} {theirs:.3?}, limit {bound:.3?}",
        peer.contender
    );
    match wanted {
        Wanted::Faster(times) => Some(Verdict::at_least(
            format!("{name}, {} / indef", peer.contender),
            theirs.as_secs_f64() / ours.as_secs_f64(),
            times,
            "×",
        )),
        Wanted::FewerBytes(percent) => Some(Verdict::at_least(
            format!("{name}, bytes written, fewer than {}", peer.contender),
            100.0 * (1.0 - indef.written().get() as f64 / peer.written().get() as f64),
            percent,
            " %",
        )),
        Wanted::Nothing => None,
    }
}
