//! The process that a device with a volatile cache is.
//!
//! It is not the hammer's own: whoever waits for a device that has ended with its process, and is part of
//! that process, waits forever. It is told what to do by lines on its standard input, answers each with
//! one, and ends with that input, so that nothing is left of it whatever becomes of the hammer.

use std::{
    fs,
    io::{self, BufRead, Write},
    path::Path,
    sync::Arc,
};

use anyhow::{Context, Result};
use flash_model::{NamespaceKind, Profile};
use flashd::{
    device::{Device, DeviceOptions, NamespaceOptions},
    mount::{self, Mounted},
    serve::{Target, TargetOptions},
};
use units::Bytes;

/// How often it asks, five times a second, whether its file is still in use before it lets go of it
/// by force.
const PATIENCE: u32 = 25;

/// What it can be told.
pub(super) const MARK: &str = "mark ";
pub(super) const END: &str = "end";
/// How an answer begins; any other one is an error.
pub(super) const DONE: &str = "done";

/// How the device is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Attach {
    /// As a file
    Fuse,
    /// Over NVMe/TCP
    Nvme,
}

impl Attach {
    /// As on the command line.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Fuse => "fuse",
            Self::Nvme => "nvme",
        }
    }
}

/// Be that process: a device of `size` bytes, mounted in `folder`/ssd or served on a port of this machine,
/// recorded from its beginning to `folder`/recording.
///
/// # Errors
///
/// There can be no such device here.
pub fn serve(folder: &Path, size: u64, attach: Attach) -> Result<()> {
    mount::become_io_path();
    // Nothing takes any time: the hammer is as fast as without it.
    let profile = Profile::builtin("zero").context("no profile without latencies")?;
    let namespace = NamespaceOptions {
        kind: NamespaceKind::Conventional,
        size: Bytes(size),
    };
    let mut options = DeviceOptions::in_memory(profile, &[namespace]);
    options.record = Some(folder.join("recording"));
    let device = Device::open(&options)?;
    // Writeback goes through this process, and somebody may swap to it.
    mount::lock_memory();
    if attach == Attach::Nvme {
        let address = "127.0.0.1:0".parse()?;
        let target = Target::listen(Arc::clone(&device), address, TargetOptions::default())?;
        println!("{DONE} {} {}", target.address().port(), target.nqn());
        answer(&device)?;
        return Ok(());
    }
    let point = folder.join("ssd");
    fs::create_dir_all(&point)?;
    let mut mounted = Mounted::start(&device, &point, || {})?;
    println!("{DONE} {}", mounted.disk().display());
    answer(&device)?;
    let mut asked = 0;
    mounted.unmount_when_unused(&mut || {
        asked += 1;
        asked > PATIENCE
    });
    drop(mounted);
    Ok(())
}

/// Until there are no more questions.
fn answer(device: &Arc<Device>) -> io::Result<()> {
    let mut output = io::stdout();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let result = if let Some(name) = line.strip_prefix(MARK) {
            device.recording().mark(name)
        } else if line == END {
            device.recording().end().map(drop)
        } else {
            break;
        };
        match result {
            Ok(()) => writeln!(output, "{DONE}")?,
            Err(error) => writeln!(output, "{error}: {:?}", device.recording().state().failed)?,
        }
    }
    Ok(())
}
