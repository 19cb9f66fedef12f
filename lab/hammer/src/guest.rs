//! `hammer run --kernel`: the same command in a guest of the lab with another kernel.
//!
//! The guest gets this program, indef and the tools at their paths on the host, and a disk with an XFS for
//! the images. It gets the same command line; an environment variable tells it that it is the guest.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::{Context, Result};
use guest::{Guest, Output, Release};
use units::Bytes;

use crate::args::{IN_GUEST, RunArgs};

/// Programs that every Debian system has.
const PROGRAMS: [&str; 7] = [
    "unshare",
    "fsfreeze",
    "swapon",
    "swapoff",
    "mkswap",
    "chattr",
    "fallocate",
];
/// Conventional defragmenters.
const DEFRAGMENTERS: [&str; 3] = ["e4defrag", "xfs_fsr", "f2fs_io"];
/// Kernel modules that volumes and media need.
const MODULES: [&str; 6] = ["ext4", "xfs", "btrfs", "f2fs", "fuse", "nvme_tcp"];

/// Size of the disk for images: they are sparse, and their copies share blocks.
const DISK: Bytes = Bytes::gib(8);
/// Memory of the guest. It holds flashd's device, much of which a log-structured file system writes.
const MEMORY_MIB: u32 = 3072;
/// Time allowed for each round, in addition to `--minutes`.
const ROUND: Duration = Duration::from_secs(900);

/// The guest's script. Files in the folder for logs appear in the host's folder (`/share`), with the kernel's log.
const SCRIPT: &str = r#"
ip link set lo up
mkfs.xfs -q -m reflink=1 /dev/vda && mount -t xfs /dev/vda /mnt || exit 2
if [ -n "$1" ]; then mkdir -p "$1" && mount -o bind /share "$1" || exit 2; fi
export "$2"=1 INDEF="$3" TMPDIR=/mnt
log=$1
shift 3
"$@"
status=$?
if [ -n "$log" ]; then dmesg >"$log/dmesg"; fi
exit $status
"#;

/// Whether a guest is asked for, and this is not that guest.
pub(crate) fn is_wanted(args: &RunArgs) -> bool {
    args.kernel.is_some() && !args.is_in_guest()
}

/// Run in the guest and return its hammer's exit status.
pub(crate) fn run(args: &RunArgs) -> ExitCode {
    match args.kernel.map(|release| in_guest(args, release)) {
        Some(Ok(status)) => u8::try_from(status).map_or(ExitCode::FAILURE, ExitCode::from),
        Some(Err(error)) => {
            eprintln!("hammer: {error:#}");
            ExitCode::from(2)
        }
        None => ExitCode::from(2),
    }
}

fn in_guest(args: &RunArgs, release: Release) -> Result<i32> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("signals")?;
    }
    let own = env::current_exe()?;
    let mut guest = Guest::with(release)?;
    for patched in args.patches() {
        guest = guest.with_patched(patched)?;
    }
    guest = guest
        .with_tools()
        .copy(&own)
        .disk(DISK)
        .memory_mib(MEMORY_MIB)
        .timeout(args.longest(ROUND))
        .load("loop")
        // With multipath a disk has no request queue of its own, which copying needs.
        .kernel_argument("nvme_core.multipath=N")
        .output(Output::Forwarded)
        .stop(stop);
    for module in MODULES {
        guest = guest.load(module);
    }
    for program in PROGRAMS {
        guest = guest.copy(program);
    }
    for program in DEFRAGMENTERS {
        guest = guest.copy_if_there(program);
    }
    let indef = args.program()?;
    if let Some(indef) = &indef {
        guest = guest.copy(indef);
    }
    if let Some(tools) = args.tools() {
        for file in files_below(&tools).with_context(|| tools.display().to_string())? {
            guest = guest.copy(file);
        }
    }
    let mut log = PathBuf::new();
    if let Some(folder) = &args.log {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        guest = guest.share(folder);
        log.clone_from(folder);
    }
    let mut command = ["sh", "-c", SCRIPT, "sh"].map(Into::into).to_vec();
    command.push(log.into_os_string());
    command.push(IN_GUEST.into());
    command.push(indef.unwrap_or_default().into_os_string());
    command.push(own.into_os_string());
    command.extend(env::args_os().skip(1));
    Ok(guest.run(command)?.status)
}

fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let list = if path.is_dir() {
                &mut folders
            } else {
                &mut files
            };
            list.push(path);
        }
    }
    Ok(files)
}
