//! The process of a device with a volatile cache.
//!
//! It is not the hammer's own process: a process that waits for a device which has ended with it waits
//! forever. It reads commands as lines on its standard input and answers each with one line. It ends with
//! that input, so that nothing is left of it whatever happens to the hammer.

use std::{
    fmt, fs,
    io::{self, BufRead, Write},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

use anyhow::{Context, Result};
use flash_model::{NamespaceKind, Profile};
use flashd::{
    device::{Access, Device, DeviceOptions, ErrorFault, NamespaceOptions, StoreOptions},
    mount::{self, Mounted},
    record::Form,
    serve::{Target, TargetOptions},
    store::FileOptions,
};
use units::Bytes;

use crate::stamp::BLOCK;

/// How often it checks, five times a second, whether its file is still in use before it unmounts by
/// force.
const PATIENCE: u32 = 25;

/// The commands.
pub(super) const MARK: &str = "mark ";
pub(super) const END: &str = "end";
/// With a namespace, the offset of a block in it, and a delay in nanoseconds.
pub(super) const UNREADABLE: &str = "unreadable ";
/// Everything can be read again. It is answered with the number of commands that failed.
pub(super) const READABLE: &str = "readable";
/// The beginning of an answer; any other answer is an error.
pub(super) const DONE: &str = "done";

/// How the device is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Attach {
    /// As a file
    Fuse,
    /// Over NVMe/TCP
    Nvme,
}

impl Attach {
    /// The name on the command line.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Fuse => "fuse",
            Self::Nvme => "nvme",
        }
    }
}

/// A namespace of a new device: `conventional:BYTES` or `zoned:BYTES`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Namespace {
    pub(super) kind: NamespaceKind,
    pub(super) bytes: u64,
}

const CONVENTIONAL: &str = "conventional";
const ZONED: &str = "zoned";

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            NamespaceKind::Conventional => CONVENTIONAL,
            NamespaceKind::Zoned => ZONED,
        };
        write!(f, "{kind}:{}", self.bytes)
    }
}

impl FromStr for Namespace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once(':').and_then(|(kind, bytes)| {
            let kind = match kind {
                CONVENTIONAL => NamespaceKind::Conventional,
                ZONED => NamespaceKind::Zoned,
                _ => return None,
            };
            let bytes = bytes.parse().ok()?;
            Some(Self { kind, bytes })
        });
        parsed.ok_or_else(|| format!("'{text}' is no namespace"))
    }
}

/// The initial content of a device.
#[derive(Clone, Debug, clap::Args)]
pub struct Beginning {
    /// A state of an earlier device, to examine: its backing file
    #[arg(long)]
    pub(super) store: Option<PathBuf>,
    /// Otherwise these empty namespaces
    pub(super) namespaces: Vec<Namespace>,
}

impl Beginning {
    /// New, with these namespaces.
    pub(super) fn new(namespaces: Vec<Namespace>) -> Self {
        let store = None;
        Self { store, namespaces }
    }

    /// The state in this backing file.
    pub(super) fn of_store(store: PathBuf) -> Self {
        Self {
            store: Some(store),
            namespaces: Vec::new(),
        }
    }

    /// The form of its states: the bytes of the disk if there is only one, for a loop device.
    pub(super) fn form(&self) -> Form {
        match &self.namespaces[..] {
            [only] if only.kind == NamespaceKind::Conventional => Form::Image,
            _ => Form::Store,
        }
    }

    /// Options of the device. A new one is recorded to `folder`/recording.
    fn options(self, folder: &Path) -> Result<DeviceOptions> {
        // The device takes no time, so that it does not slow the hammer down.
        let profile = Profile::builtin("zero").context("no profile without latencies")?;
        let namespaces: Vec<NamespaceOptions> = { self.namespaces.iter() }
            .map(|namespace| NamespaceOptions {
                kind: namespace.kind,
                size: Bytes(namespace.bytes),
            })
            .collect();
        let mut options = DeviceOptions::in_memory(profile, &namespaces);
        match self.store {
            None => options.record = Some(folder.join("recording")),
            Some(path) => {
                options.store = StoreOptions::File(FileOptions {
                    path,
                    sparse: true,
                    host_sync: false,
                });
            }
        }
        Ok(options)
    }
}

/// Run as that process: a device, mounted in `folder`/ssd or served on a port of this machine.
///
/// # Errors
///
/// The device cannot be made here.
pub fn serve(folder: &Path, attach: Attach, beginning: Beginning) -> Result<()> {
    mount::become_io_path();
    let device = Device::open(&beginning.options(folder)?)?;
    // Writeback goes through this process, and a volume may swap to it.
    mount::lock_memory();
    if attach == Attach::Nvme {
        let address = "127.0.0.1:0".parse()?;
        let target = Target::listen(Arc::clone(&device), address, TargetOptions::default())?;
        let (port, disks) = (target.address().port(), device.namespaces().len());
        println!("{DONE} {port} {} {disks}", target.nqn());
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

/// Answer commands until the input ends.
fn answer(device: &Arc<Device>) -> io::Result<()> {
    let mut output = io::stdout();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let recorded = |error| format!("{error}: {:?}", device.recording().state().failed);
        let result = if let Some(name) = line.strip_prefix(MARK) {
            let marked = device.recording().mark(name).map_err(recorded);
            marked.map(|()| String::new())
        } else if line == END {
            let ended = device.recording().end().map_err(recorded);
            ended.map(|_| String::new())
        } else if let Some(place) = line.strip_prefix(UNREADABLE) {
            make_unreadable(device, place).map(|()| String::new())
        } else if line == READABLE {
            let faults = device.faults().errors;
            device.clear_faults();
            let failed: u64 = faults.iter().map(|fault| fault.failed).sum();
            Ok(failed.to_string())
        } else {
            break;
        };
        match result {
            Ok(said) => writeln!(output, "{DONE} {said}")?,
            Err(error) => writeln!(output, "{error}")?,
        }
    }
    Ok(())
}

fn make_unreadable(device: &Device, place: &str) -> Result<(), String> {
    let numbers: Vec<u64> = { place.split(' ') }
        .map(|number| number.parse().map_err(|_| format!("'{place}' is no place")))
        .collect::<Result<_, _>>()?;
    let [namespace, offset_bytes, delay_ns] = numbers[..] else {
        return Err(format!("'{place}' is no place"));
    };
    let fault = ErrorFault {
        namespace: u32::try_from(namespace).unwrap_or(u32::MAX),
        offset_bytes,
        length_bytes: BLOCK as u64,
        access: Some(Access::Read),
        left: None,
        delay_ns,
        failed: 0,
    };
    device
        .inject_error(fault)
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_written_as_it_is_read() {
        for text in ["conventional:67108864", "zoned:2147483648"] {
            assert_eq!(text.parse::<Namespace>().unwrap().to_string(), text);
        }
        for wrong in ["zoned", "zoned:", "zones:1", "zoned:-1"] {
            assert!(wrong.parse::<Namespace>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_has_zones_cannot_be_an_image() {
        let beginning = |texts: &[&str]| {
            let namespaces = texts.iter().map(|text| text.parse().unwrap());
            Beginning::new(namespaces.collect()).form()
        };
        assert_eq!(beginning(&["conventional:4096"]), Form::Image);
        assert_eq!(beginning(&["zoned:4096"]), Form::Store);
        let both = ["conventional:4096", "zoned:4096"];
        assert_eq!(beginning(&both), Form::Store);
    }
}
