//! FAST'24's experiments with a file system: ext4 in a guest, whose kernel (`kernel/die-hints`) tells
//! flashd with each write where it lies in its file.
//!
//! The guest writes a file in pieces, with other writes between them ([`inside`]). The reads are the
//! model's own: a copy of the device's model, idle, is asked how long it takes to read the file's
//! extents ([`read`]). So times are virtual, the guest's clock plays no part, and the device runs as
//! fast as it can while it is written.
//!
//! As published (FAST'24 §5.1), the journal is on a device of its own, so that metadata is not written
//! between the pieces: flashd's second namespace, which has a mapping of its own. [`FileSystem::Ext4`] is
//! the usual file system.

#![forbid(unsafe_code)]

mod compare;
pub mod inside;
pub mod read;

use std::{fmt, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use flash_model::{HintStats, NamespaceKind, Profile, Span};
use flashd::{
    device::{Device, DeviceOptions, NamespaceOptions, Request},
    serve::{Target, TargetOptions},
};
use guest::{Guest, standing::Session};
use units::{Bytes, Nanos};
use workloads::Numbers;

pub use compare::{Case, Comparison, words};
use inside::{GRANULE, Written};
use read::Reading;

/// The device of the paper.
const PROFILE: &str = "fast24";
/// Practically no time: what is measured happens in the model alone.
const FAST: f64 = 0.001;
const PATIENCE: Duration = Duration::from_secs(600);
const NETWORK: &str = "ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
# As published (FAST'24 §5.1): metadata is not written between the files' pieces. It is in the journal.
echo 0 >/proc/sys/vm/dirty_writeback_centisecs";
const CONNECT: &str = include_str!("connect.sh");
/// Where the file system is mounted in the guest.
pub const FOLDER: &str = "/mnt/ssd";

/// A file system of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4 with its journal on a device of its own, as in the paper.
    Ext4JournalApart,
    /// ext4 as usual: the journal is in it.
    Ext4,
    /// F2FS.
    F2fs,
}

impl FileSystem {
    /// Shell commands that make it. Where the device is to stay full, nothing is discarded.
    fn make(self, full: bool) -> String {
        let [keep_ext4, keep_f2fs] = match full {
            true => [",nodiscard", "-t 0"],
            false => ["", ""],
        };
        // Nothing is initialized later on, between the writes.
        let ext4 = format!(
            "mkfs.ext4 -q -F -b 4096 -N 4096 -E lazy_itable_init=0,lazy_journal_init=0{keep_ext4}"
        );
        match self {
            Self::Ext4JournalApart => format!(
                "mkfs.ext4 -q -F -b 4096 -O journal_dev /dev/ssd2
                 {ext4} -J device=/dev/ssd2 /dev/ssd1"
            ),
            Self::Ext4 => format!("{ext4} /dev/ssd1"),
            Self::F2fs => format!("mkfs.f2fs -q -f {keep_f2fs} /dev/ssd1"),
        }
    }

    /// A shell command that fails if it is not clean.
    fn check(self) -> &'static str {
        match self {
            Self::Ext4JournalApart => "e2fsck -fn -j /dev/ssd2 /dev/ssd1",
            Self::Ext4 => "e2fsck -fn /dev/ssd1",
            Self::F2fs => "fsck.f2fs --dry-run /dev/ssd1",
        }
    }

    /// The kernel's name of it.
    fn kind(self) -> &'static str {
        match self {
            Self::Ext4JournalApart | Self::Ext4 => "ext4",
            Self::F2fs => "f2fs",
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext4JournalApart => "journal apart",
            Self::Ext4 => "journal within",
            Self::F2fs => "F2FS",
        })
    }
}

/// A guest with the kernel that gives die hints, and flashd.
#[derive(Debug)]
pub struct Lab {
    // Ends before the device that it has mounted.
    session: Session,
    target: Target,
    device: Arc<Device>,
    program: String,
    full: bool,
}

/// Files that were written, and what the model says about them.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Bytes of all.
    pub bytes: u64,
    /// Extents of all.
    pub extents: usize,
    /// Time of reading them on the idle device, in device time.
    pub read_ns: Nanos,
    /// Hints of the writes.
    pub hints: HintStats,
}

impl Outcome {
    /// MiB a second.
    #[must_use]
    pub fn speed(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / (self.read_ns.0 as f64 / 1e9)
    }
}

/// The options of a device of this size, with a small namespace beside it.
///
/// # Errors
///
/// The profile is not there.
pub fn options(size: Bytes) -> Result<DeviceOptions> {
    let profile = Profile::builtin(PROFILE).context("the profile is built in")?;
    let conventional = |size| NamespaceOptions {
        kind: NamespaceKind::Conventional,
        size,
    };
    Ok(DeviceOptions {
        time_scale: FAST,
        ..DeviceOptions::in_memory(profile, &[size, Bytes::mib(32)].map(conventional))
    })
}

fn serve(device: &Arc<Device>) -> Result<Target> {
    let anywhere = "127.0.0.1:0".parse()?;
    Ok(Target::listen(
        Arc::clone(device),
        anywhere,
        TargetOptions::default(),
    )?)
}

impl Lab {
    /// Serve a device of this size, boot the guest and connect it. `program` is the path of this
    /// crate's program.
    ///
    /// # Errors
    ///
    /// The guest does not come up, or finds no device.
    pub fn start(guest: Guest, program: &Path, size: Bytes) -> Result<Self> {
        let device = Device::open(&options(size)?)?;
        let program = std::path::absolute(program)?;
        let guest = (guest.with_tools().with_network()).copy_if_there("sqlite3");
        let lab = Self {
            session: Session::start(guest, Arc::default())?.copy(&program),
            target: serve(&device)?,
            device,
            program: program
                .to_str()
                .context("the program's path is UTF-8")?
                .to_owned(),
            full: false,
        };
        lab.shell(NETWORK)?;
        lab.connect(&lab.target)?;
        Ok(lab)
    }

    /// Give the guest another device in the place of this one, which is not mounted.
    ///
    /// # Errors
    ///
    /// The guest does not find it.
    pub fn exchange(&mut self, device: Arc<Device>) -> Result<()> {
        let target = serve(&device)?;
        self.connect(&target)?;
        (self.target, self.device) = (target, device);
        Ok(())
    }

    fn connect(&self, target: &Target) -> Result<()> {
        let (port, nqn) = (target.address().port(), target.nqn());
        self.shell(&format!("port={port} nqn={nqn}\n{CONNECT}"))?;
        Ok(())
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Write the whole device, and all of it again `times` times, in granules at random: from then on it
    /// has to collect garbage. File systems that are made afterwards discard nothing.
    ///
    /// # Errors
    ///
    /// The device does not do it.
    pub fn fill(&mut self, times: u64) -> Result<()> {
        let granules = self.device.namespaces()[0].size_bytes / GRANULE;
        let mut numbers = Numbers::new(granules);
        let again = (0..granules * times).map(|_| numbers.below(granules));
        for granule in (0..granules).chain(again) {
            // Zeroes: they take no memory here, and in the model they are data like all other.
            let zeroes = Request::WriteZeroes {
                offset: granule * GRANULE,
                len: GRANULE,
                fua: false,
            };
            self.device.account(0, &zeroes)?;
        }
        self.full = true;
        Ok(())
    }

    /// Make a file system and mount it, with these further options.
    ///
    /// # Errors
    ///
    /// It cannot be made or mounted.
    pub fn make(&self, system: FileSystem, options: &str) -> Result<()> {
        self.shell(&system.make(self.full))?;
        self.mount(system, options)
    }

    /// Mount a file system that is there, with these further options.
    ///
    /// # Errors
    ///
    /// It cannot be mounted.
    pub fn mount(&self, system: FileSystem, options: &str) -> Result<()> {
        let kind = system.kind();
        self.shell(&format!(
            "mkdir -p {FOLDER} && mount -t {kind} -o noatime,{options} /dev/ssd1 {FOLDER}"
        ))?;
        Ok(())
    }

    /// Unmount it and check it.
    ///
    /// # Errors
    ///
    /// It is not clean.
    pub fn unmount(&self, system: FileSystem) -> Result<()> {
        self.shell(&format!("umount {FOLDER} && {}", system.check()))?;
        Ok(())
    }

    /// Have the guest write files, and ask the model how long they take to read: one after the other
    /// by each of `readers` threads, with calls of `call` bytes. `words` are those of
    /// [`inside::run`], without the folder.
    ///
    /// # Errors
    ///
    /// The guest failed, or found other content than it had written.
    pub fn write(&self, words: &[String], reading: Reading) -> Result<Outcome> {
        let before = self.device.stats().model;
        let said = self.program(words)?;
        let written: Vec<Written> = serde_json::from_str(&said).with_context(|| said.clone())?;
        let hints = self.device.stats().model.since(&before).hints;
        let files: Vec<Vec<Span>> = { written.iter() }
            .map(|file| {
                let spans = file.extents.iter();
                spans.map(|&(offset, len)| Span { offset, len }).collect()
            })
            .collect();
        Ok(Outcome {
            bytes: written.iter().map(|file| file.bytes).sum(),
            extents: files.iter().map(Vec::len).sum(),
            read_ns: reading.time(&mut self.device.model(), &files),
            hints,
        })
    }

    /// Run this crate's program in the guest with these words, without the folder; returns its output.
    ///
    /// # Errors
    ///
    /// It failed.
    pub fn program(&self, words: &[String]) -> Result<String> {
        let words = words.iter().map(String::as_str);
        let all: Vec<&str> = [self.program.as_str(), FOLDER]
            .into_iter()
            .chain(words)
            .collect();
        self.run(&all)
    }

    /// Run shell commands in the guest; returns their output.
    ///
    /// # Errors
    ///
    /// One of them failed.
    pub fn shell(&self, script: &str) -> Result<String> {
        self.run(&["sh", "-e", "-c", script])
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        Ok(self.session.output(words, PATIENCE)?)
    }

    /// End the guest, and report whether it was well until then.
    ///
    /// # Errors
    ///
    /// It had an oops or a panic.
    pub fn end(self) -> Result<()> {
        let log = self.shell("dmesg")?;
        for complaint in [
            "WARNING:",
            "BUG:",
            "Oops",
            "INFO: task",
            "EXT4-fs error",
            "F2FS-fs error",
        ] {
            ensure!(!log.contains(complaint), "the guest's kernel said:\n{log}");
        }
        Ok(self.session.end()?)
    }
}
