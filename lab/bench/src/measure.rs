//! One timed run.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use scratch_fs::ScratchFs;
use sha2::{Digest, Sha256};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use units::Bytes;

use super::report::Sample;

/// Set by the signals that stop, like Ctrl-C.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Make a signal end the measurement at the next run, with everything unmounted.
pub(super) fn stop_cleanly() -> Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop())?;
    }
    Ok(())
}

/// The flag that these signals set, for whatever waits in one call for long.
pub(super) fn stop() -> Arc<AtomicBool> {
    Arc::clone(STOP.get_or_init(Arc::default))
}

/// The resources that a command used.
pub(super) struct Used {
    pub(super) max_resident: Bytes,
}

/// Run `command` to its end; its output is discarded unless it fails.
pub(super) fn run(command: &[OsString]) -> Result<Used> {
    let text = describe(command);
    let errors = tempfile::tempfile()?;
    let child = Command::new(&command[0])
        .args(&command[1..])
        .env("PATH", stage::path_with_sbin())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors.try_clone()?)
        .spawn()
        .with_context(|| format!("cannot run {text}"))?;
    let (status, usage) = linux_abi::usage::wait(child)?;
    if !status.success() {
        let mut message = String::new();
        io::Seek::rewind(&mut &errors)?;
        (&errors).take(4096).read_to_string(&mut message)?;
        anyhow::bail!("{text}: {status}\n{message}");
    }
    Ok(Used {
        max_resident: usage.max_resident,
    })
}

/// Return an error once a signal has arrived.
pub(super) fn ensure_not_stopped() -> Result<()> {
    ensure!(!stop().load(Ordering::Relaxed), "stopped by a signal");
    Ok(())
}

/// Time `action` on `scratch`, with the write-back of everything that it leaves dirty.
pub(super) fn timed(
    scratch: &ScratchFs,
    action: impl FnOnce() -> Result<Option<Used>>,
) -> Result<Sample> {
    ensure_not_stopped()?;
    let before = scratch.device_bytes()?;
    let started = Instant::now();
    let used = action()?;
    scratch.sync()?;
    let duration = started.elapsed();
    let moved = scratch.device_bytes()? - before;
    Ok(Sample {
        duration_ns: duration.as_nanos() as u64,
        device_read_bytes: moved.read.get(),
        device_written_bytes: moved.written.get(),
        max_resident_bytes: used.map(|used| used.max_resident.get()),
        extents_after: None,
    })
}

/// Write back the dirty data of `scratch`, and drop everything that is cached. The rest of the
/// machine's dirty data does not matter here, and may be much.
pub(super) fn drop_caches(scratch: &ScratchFs) -> Result<()> {
    scratch.sync()?;
    File::open(scratch.image())?.sync_all()?;
    fs::write("/proc/sys/vm/drop_caches", "3").context("cannot drop caches")
}

/// Read all files once, front to back, as any application would: that leaves them in the page
/// cache.
pub(super) fn read_all(files: &[PathBuf]) -> io::Result<()> {
    for path in files {
        io::copy(&mut File::open(path)?, &mut io::sink())?;
    }
    Ok(())
}

/// Extents of all files together.
pub(super) fn extents(files: &[PathBuf]) -> io::Result<u64> {
    files
        .iter()
        .map(|path| scratch_fs::fragments(&File::open(path)?))
        .sum()
}

/// One hash over the contents of all files, in order.
pub(super) fn hash(files: &[PathBuf]) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 128 << 10];
    for path in files {
        let mut file = File::open(path)?;
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                length => hasher.update(&buffer[..length]),
            }
        }
    }
    let digest = hasher.finalize();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A command line for display.
pub(super) fn describe(command: &[OsString]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// All regular files below `folder`, in the order of their names; what is mounted there is left out.
pub(super) fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    let device = fs::metadata(folder)?.dev();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() && entry.file_name() != "lost+found" {
                if fs::metadata(entry.path())?.dev() == device {
                    folders.push(entry.path());
                }
            } else if kind.is_file() {
                files.push(entry.path());
            }
        }
    }
    files.sort_unstable();
    ensure!(!files.is_empty(), "{} has no files", folder.display());
    Ok(files)
}

/// The output of a command that succeeds.
pub(super) fn text(command: &mut Command) -> Result<String> {
    Ok(stage::text(command)?)
}

/// Processor time of a process that still runs, with its threads that have ended.
pub(super) fn processor_time(process: u32) -> Duration {
    let path = format!("/proc/{process}/stat");
    let text = fs::read_to_string(path).unwrap_or_default();
    // The name of the program may hold anything.
    let after = text.rsplit_once(')').map_or("", |(_, after)| after);
    let fields: Vec<u64> = after
        .split_whitespace()
        .map(|field| field.parse().unwrap_or(0))
        .collect();
    // utime and stime, in hundredths of a second (proc(5)).
    let ticks = fields.get(11).unwrap_or(&0) + fields.get(12).unwrap_or(&0);
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}
