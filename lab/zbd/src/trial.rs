//! A disk of flashd, and a guest that runs cases of the suite on it.

use std::{fs, path::Path, time::Duration};

use flashd::{
    device::Device,
    serve::{Target, TargetOptions},
};
use guest::{Accelerator, Guest, LabError, Release};

use crate::{Case, Disk, Suite, is_expected, suite::at};

/// Connects a guest to a target whose first namespace has zones and whose second has none: to be sourced.
pub const CONNECT: &str = include_str!("connect.sh");
const SCRIPT: &str = include_str!("run.sh");

/// The kernel of the guest.
pub const HOST: Release = Release::Linux6_12;

/// Programs that the suite calls. Those of GNU, as busybox's lack options that it uses.
pub const PROGRAMS: [&str; 17] = [
    "fio", "blkzone", "nvme", "ip", "timeout", "grep", "sed", "stat", "readlink", "realpath",
    "basename", "dirname", "tail", "head", "sort", "tr", "tee",
];

/// A guest with several processors runs no more cases than that: QEMU 7.2 (TCG) has returned wrong flags after a
/// cmpxchg16b there, and the guest's kernel has died of it: once in half an hour of this suite.
const FEW: usize = 8;

/// Cases that were run on a disk.
#[derive(Clone, Debug)]
pub struct Ran {
    /// In their order, each case that was asked for.
    pub cases: Vec<Case>,
    /// Of each that was not [expected](is_expected): what it said, and its log.
    pub unexpected: Vec<String>,
    /// The version of the guest's kernel.
    pub kernel: String,
    /// What the guest ran on.
    pub accelerator: Accelerator,
    /// From the guest's start to the first case's.
    pub boot: Duration,
    /// The time of all cases.
    pub elapsed: Duration,
}

/// Run these cases of the suite on a new disk, as this guest sees it.
///
/// # Errors
///
/// The disk or the guest could not be made, the disk is another one than was made, or not every case has a result. A
/// case that fails is no error.
pub fn run(disk: Disk, suite: &Suite, cases: &[u32], guest: Guest) -> Result<Ran, LabError> {
    let wrong = |error: std::io::Error| LabError::Device(error.to_string());
    let device = Device::open(&disk.device()?).map_err(|it| LabError::Device(it.to_string()))?;
    let options = TargetOptions {
        private: true,
        ..TargetOptions::default()
    };
    let target = Target::listen(device, ([127, 0, 0, 1], 0).into(), options).map_err(wrong)?;

    let folder = tempfile::tempdir().map_err(wrong)?;
    let share = folder.path();
    suite.copy_to(&share.join("zbd"))?;
    for (name, script) in [("connect.sh", CONNECT), ("run.sh", SCRIPT)] {
        let path = share.join(name);
        fs::write(&path, script).map_err(at(&path))?;
    }
    let kernel = guest.kernel().version().to_owned();
    let mut guest = guest
        .with_tools()
        .with_network()
        .share(share)
        .timeout(Duration::from_secs(600 + 120 * cases.len() as u64));
    if cases.len() > FEW {
        guest = guest.cpus(1);
    }
    for program in PROGRAMS {
        guest = guest.copy(program);
    }
    let mut command = vec!["bash".to_owned(), "/share/run.sh".to_owned()];
    command.push(target.address().port().to_string());
    command.push(target.nqn().to_owned());
    command.push(disk.nsid().to_string());
    command.push(disk.null_blk());
    command.extend(cases.iter().map(u32::to_string));
    let outcome = guest.run(&command)?;
    let said = String::from_utf8_lossy(&outcome.stdout);
    let failed = |why: &str| LabError::Command {
        command: format!("run.sh on {disk}"),
        output: format!(
            "{why}\n{said}{}\n{}",
            String::from_utf8_lossy(&outcome.stderr),
            outcome.console
        ),
    };
    if outcome.status != 0 || !said.contains("step: done") {
        return Err(failed("it ended too early"));
    }
    if let Some(line) = disk.missing_in(&read(&share.join("disk"))?) {
        return Err(failed(&format!("the disk has no '{line}'")));
    }
    let results = read(&share.join("results"))?;
    let results: Result<Vec<Case>, String> = results.lines().map(str::parse).collect();
    let results = results.map_err(|why| failed(&why))?;
    if !results.iter().map(|case| &case.number).eq(cases) {
        return Err(failed("not every case has a result"));
    }
    let unexpected = results.iter().filter(|case| !is_expected(disk, case));
    let unexpected = unexpected.map(|case| {
        let log = fs::read(share.join("logs").join(case.number.to_string()));
        format!(
            "{case}\n{}",
            String::from_utf8_lossy(&log.unwrap_or_default())
        )
    });
    Ok(Ran {
        unexpected: unexpected.collect(),
        cases: results,
        kernel,
        accelerator: outcome.accelerator,
        boot: outcome.boot,
        elapsed: outcome.elapsed,
    })
}

fn read(path: &Path) -> Result<String, LabError> {
    fs::read_to_string(path).map_err(at(path))
}
