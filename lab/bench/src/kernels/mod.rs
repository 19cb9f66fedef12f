//! ext4 on several kernels: indef beside e4defrag, in guests with Debian's kernels and on the kernel that runs here.
//!
//! How `EXT4_IOC_MOVE_EXT` treats the page cache differs from kernel to kernel. All kernels get the same cases, in
//! turns within one guest ([`peers`]), so that ratios are comparable. Times are not: a guest without KVM executes the
//! kernel's code many times slower than a processor does. A disk that is as fast as ever would then hide what a
//! tool's waiting for it costs, so the guest's disk is slower, too ([`inside`]).

mod cases;
mod inside;

use std::{path::Path, str::FromStr, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::Args;
use guest::{Accelerator, Guest, Output, Release};

use self::cases::cases;
pub(super) use self::inside::{InsideArgs, inside};
use super::{
    common::Common,
    measure,
    peers::{self, PeerCase},
    report::{ContenderRuns, Report},
};

/// The kernels, and how to measure.
#[derive(Args)]
pub struct KernelsArgs {
    #[command(flatten)]
    pub(super) common: Common,
    /// Kernels, separated by commas: 6.1, 6.12 and newest in a guest, `here` for the one that runs
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "6.1,6.12,here,newest"
    )]
    kernel: Vec<Place>,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT")]
    case: Option<String>,
}

/// Where a kernel is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Here,
    Guest(Release),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "here" => Ok(Self::Here),
            name => (name.parse())
                .map(Self::Guest)
                .map_err(|error: guest::LabError| error.to_string()),
        }
    }
}

impl Place {
    /// The name of its cases: it stays the same when Debian's newest kernel is another one.
    fn name(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Guest(release) => release.name(),
        }
    }
}

/// The guest's programs, beside makers and checkers of file systems.
const PROGRAMS: [&str; 2] = ["e4defrag", "cp"];
/// Where the guest's disk is mounted, and where this folder of the host is.
const DISK: &str = "/disk";
const RESULT: &str = "result.json";
/// The disk is in the guest's memory.
const MEMORY_MIB: u32 = 3072;

/// The rows of one kernel, and what there is to say of it.
struct Measured {
    rows: Vec<ContenderRuns>,
    note: String,
}

/// Measure.
pub(super) fn measure(args: &KernelsArgs, report: &mut Report) -> Result<()> {
    let cases = cases(args.case.as_deref(), &[])?;
    let mut notes = Vec::new();
    for place in &args.kernel {
        measure::ensure_not_stopped()?;
        eprintln!("kernel: {}", place.name());
        let Measured { rows, note } = match place {
            Place::Here => here(args, &cases)?,
            Place::Guest(release) => in_guest(args, *release)?,
        };
        notes.push(note);
        let rows = rows.into_iter().map(|row| ContenderRuns {
            case: name(*place, &row.case),
            ..row
        });
        let rows: Vec<_> = rows.collect();
        for case in &cases {
            let name = name(*place, case.name);
            let of_case: Vec<_> = (rows.iter())
                .filter(|row| row.case == name)
                .cloned()
                .collect();
            let verdict = peers::judge(&name, case.wanted, &of_case);
            (report.verdicts).push(verdict.with_context(|| format!("{name}: no result"))?);
        }
        report.rows.extend(rows);
    }
    report.note = Some(notes.join(" "));
    Ok(())
}

fn name(place: Place, case: &str) -> String {
    format!("{}: {case}", place.name())
}

fn here(args: &KernelsArgs, cases: &[PeerCase]) -> Result<Measured> {
    let mut report = Report::new("kernels", &args.common.images()?, args.common.runs);
    peers::measure_cases(&args.common, cases, &mut report)?;
    let kernel = report.kernel().unwrap_or("an unknown version").to_owned();
    Ok(Measured {
        rows: report.rows,
        note: format!("Here: Linux {kernel}, on a loop file."),
    })
}

fn in_guest(args: &KernelsArgs, release: Release) -> Result<Measured> {
    let Common { runs, .. } = args.common;
    let (program, indef) = (args.common.own_program()?, args.common.indef()?);
    let folder = tempfile::tempdir()?;
    let mut command: Vec<String> = [
        &program.display().to_string(),
        "bench",
        "kernels-inside",
        "--images",
        DISK,
        "--indef",
        &indef.display().to_string(),
        "--json",
        &format!("/share/{RESULT}"),
        "--host-processor",
        &inside::processor()?,
        "--runs",
        &runs.to_string(),
    ]
    .map(str::to_owned)
    .to_vec();
    if let Some(case) = &args.case {
        command.extend(["--case".to_owned(), case.clone()]);
    }
    let mut guest = Guest::with(release)?
        .with_tools()
        .load("loop")
        .load("null_blk")
        .load("ext4")
        .memory_mib(MEMORY_MIB)
        .share(folder.path())
        .copy(&program)
        .copy(&indef)
        .output(Output::Forwarded)
        .stop(measure::stop())
        .timeout(Duration::from_secs(600 + 900 * runs as u64));
    for program in PROGRAMS {
        guest = guest.copy(program);
    }
    let version = guest.kernel().version().to_owned();
    let outcome = guest.run(command)?;
    ensure!(
        outcome.status == 0,
        "the guest ended with {}:\n{}",
        outcome.status,
        outcome.console
    );
    let (rows, device) = read(&folder.path().join(RESULT))?;
    let accelerator = match outcome.accelerator {
        Accelerator::Kvm => "with KVM",
        Accelerator::Tcg => "without KVM",
    };
    Ok(Measured {
        rows,
        note: format!("{release}: Linux {version} in a guest {accelerator}, {device}."),
    })
}

/// The rows and the note of the part in a guest.
fn read(path: &Path) -> Result<(Vec<ContenderRuns>, String)> {
    let text = std::fs::read(path).context("the guest has left no result")?;
    let mut result: serde_json::Value = serde_json::from_slice(&text)?;
    let rows = serde_json::from_value(result["rows"].take())?;
    let note = serde_json::from_value(result["note"].take())?;
    Ok((rows, note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_named() {
        assert_eq!("here".parse(), Ok(Place::Here));
        assert_eq!("newest".parse(), Ok(Place::Guest(Release::Newest)));
        assert!("5.10".parse::<Place>().is_err());
    }

    #[test]
    fn the_result_of_a_guest_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(RESULT);
        let mut report = Report::new("kernels", folder.path(), 1);
        report.note = Some("a disk".into());
        report.rows.push(ContenderRuns {
            case: "case".into(),
            contender: "indef".into(),
            command: "indef run".into(),
            extents_before: Some(7),
            samples: Vec::new(),
        });
        std::fs::write(&path, serde_json::to_vec(&report).unwrap()).unwrap();
        let (rows, note) = read(&path).unwrap();
        assert_eq!((rows[0].extents_before, note.as_str()), (Some(7), "a disk"));
        assert!(cases(Some("no such case"), &[]).is_err());
    }
}
