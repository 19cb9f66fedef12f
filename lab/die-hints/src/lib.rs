//! FAST'24's experiments with a file system: ext4 in a guest, whose kernel (`kernel/die-hints`) tells
//! flashd with each write where it lies in its file.
//!
//! The guest writes a file in pieces, with other writes between them ([`inside`]). The reads are the
//! model's own: a copy of the device's model, idle, is asked how long it takes to read the file's
//! extents ([`read`]). So times are virtual, the guest's clock plays no part, and the device runs as
//! fast as it can while it is written.
//!
//! As published (FAST'24 §5.1), the journal is on a device of its own, so that metadata is not written
//! between the pieces: flashd's second namespace, which has a mapping of its own. [`Journal::Within`] is
//! the usual file system.

#![forbid(unsafe_code)]

mod compare;
pub mod inside;
pub mod read;

use std::{fmt, path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use flash_model::{HintStats, NamespaceKind, Profile, Span};
use flashd::{
    device::{Device, DeviceOptions, NamespaceOptions},
    serve::{Target, TargetOptions},
};
use guest::{Guest, standing::Session};
use units::{Bytes, Nanos};

pub use compare::{Case, Comparison};
use inside::Written;
use read::Reading;

/// The device of the paper.
const PROFILE: &str = "fast24";
/// Practically no time: what is measured happens in the model alone.
const FAST: f64 = 0.001;
const PATIENCE: Duration = Duration::from_secs(600);
const CONNECT: &str = include_str!("connect.sh");
/// Where the file system is mounted in the guest.
pub const FOLDER: &str = "/mnt/ssd";

/// Where ext4 has its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Journal {
    /// On a device of its own, as in the paper.
    Apart,
    /// In the file system, as usual.
    Within,
}

impl fmt::Display for Journal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Apart => "journal apart",
            Self::Within => "journal within",
        })
    }
}

/// A guest with the kernel that gives die hints, and flashd.
#[derive(Debug)]
pub struct Lab {
    // Ends before the device that it has mounted.
    session: Session,
    _target: Target,
    device: Arc<Device>,
    program: String,
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

impl Lab {
    /// Serve a device of this size, boot the guest and connect it. `program` is the path of this
    /// crate's program.
    ///
    /// # Errors
    ///
    /// The guest does not come up, or finds no device.
    pub fn start(guest: Guest, program: &Path, size: Bytes) -> Result<Self> {
        let profile = Profile::builtin(PROFILE).context("the profile is built in")?;
        let conventional = |size| NamespaceOptions {
            kind: NamespaceKind::Conventional,
            size,
        };
        let device = Device::open(&DeviceOptions {
            time_scale: FAST,
            ..DeviceOptions::in_memory(profile, &[size, Bytes::mib(32)].map(conventional))
        })?;
        let anywhere = "127.0.0.1:0".parse()?;
        let target = Target::listen(Arc::clone(&device), anywhere, TargetOptions::default())?;
        let program = std::path::absolute(program)?;
        let mut guest = guest
            .with_tools()
            .load("virtio_net")
            .load("nvme_tcp")
            .qemu("-netdev")
            .qemu("user,id=ssd")
            .qemu("-device")
            .qemu("virtio-net-pci,netdev=ssd");
        guest = guest.copy_if_there("sqlite3");
        let session = Session::start(guest, Arc::default())?.copy(&program);
        let lab = Self {
            session,
            device,
            program: program
                .to_str()
                .context("the program's path is UTF-8")?
                .to_owned(),
            _target: target,
        };
        let (port, nqn) = (lab._target.address().port(), lab._target.nqn());
        lab.shell(&format!("port={port} nqn={nqn}\n{CONNECT}"))?;
        Ok(lab)
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Make ext4 and mount it, with these further options.
    ///
    /// # Errors
    ///
    /// It cannot be made or mounted.
    pub fn mount(&self, journal: Journal, options: &str) -> Result<()> {
        let (make, apart) = match journal {
            Journal::Apart => (
                "mkfs.ext4 -q -F -b 4096 -O journal_dev /dev/ssd2\n",
                "-J device=/dev/ssd2",
            ),
            Journal::Within => ("", ""),
        };
        // Nothing is initialized later on, between the writes.
        self.shell(&format!(
            "{make}mkfs.ext4 -q -F -b 4096 -N 4096 -E lazy_itable_init=0,lazy_journal_init=0 {apart} /dev/ssd1
             mkdir -p {FOLDER}
             mount -t ext4 -o noatime,{options} /dev/ssd1 {FOLDER}"
        ))?;
        Ok(())
    }

    /// Unmount it and check it.
    ///
    /// # Errors
    ///
    /// It is not clean.
    pub fn unmount(&self, journal: Journal) -> Result<()> {
        let apart = match journal {
            Journal::Apart => "-j /dev/ssd2",
            Journal::Within => "",
        };
        self.shell(&format!("umount {FOLDER} && e2fsck -fn {apart} /dev/ssd1"))?;
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
        let words = words.iter().map(String::as_str);
        let all: Vec<&str> = [self.program.as_str(), FOLDER]
            .into_iter()
            .chain(words)
            .collect();
        let said = self.run(&all)?;
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

    /// Run shell commands in the guest; returns their output.
    ///
    /// # Errors
    ///
    /// One of them failed.
    pub fn shell(&self, script: &str) -> Result<String> {
        self.run(&["sh", "-e", "-c", script])
    }

    fn run(&self, words: &[&str]) -> Result<String> {
        let said = self.session.run(words, PATIENCE)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if said.status != 0 {
            bail!(
                "in the guest, {words:?} ended with status {}: {}{}",
                said.status,
                text(&said.stderr),
                text(&said.stdout)
            );
        }
        Ok(text(&said.stdout))
    }

    /// End the guest, and report whether it was well until then.
    ///
    /// # Errors
    ///
    /// It had an oops or a panic.
    pub fn end(self) -> Result<()> {
        let log = self.shell("dmesg")?;
        for complaint in ["WARNING:", "BUG:", "Oops", "INFO: task", "EXT4-fs error"] {
            ensure!(!log.contains(complaint), "the guest's kernel said:\n{log}");
        }
        Ok(self.session.end()?)
    }
}
