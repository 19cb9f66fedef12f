//! A guest with the kernel that gives die hints, and its device.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use flash_model::{HintStats, NamespaceKind, Profile, Span};
use flashd::{
    device::{Device, DeviceOptions, NamespaceOptions, Request},
    serve::{Target, TargetOptions},
};
use guest::{Guest, KERNEL_FAULTS, standing::Session};
use units::{Bytes, Nanos};
use workloads::Numbers;

use crate::{
    age::{Aged, overwrite_others},
    inside::{GRANULE, Written},
    model::NAMESPACE,
    place::Place,
    read::Reading,
    replay::again,
    system::FileSystem,
};

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

/// Files that the guest has written.
#[derive(Clone, Debug)]
pub struct Files {
    /// Bytes of all.
    pub bytes: u64,
    /// The extents of each, in order.
    pub extents: Vec<Vec<Span>>,
    /// Hints of the writes.
    pub hints: HintStats,
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
    /// crate's program. All ends when `stop` is set.
    ///
    /// # Errors
    ///
    /// The guest does not come up, or finds no device.
    pub fn start(guest: Guest, program: &Path, size: Bytes, stop: Arc<AtomicBool>) -> Result<Self> {
        let device = Device::open(&options(size)?)?;
        let program = std::path::absolute(program)?;
        let guest = (guest.with_tools().with_network()).copy_if_there("sqlite3");
        let lab = Self {
            session: Session::start(guest, stop)?.copy(&program),
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
        let granules = self.device.namespaces()[NAMESPACE].size_bytes / GRANULE;
        let mut numbers = Numbers::new(granules);
        let again = (0..granules * times).map(|_| numbers.below(granules));
        for granule in (0..granules).chain(again) {
            // Zeroes: they take no memory here, and in the model they are data like all other.
            let zeroes = Request::WriteZeroes {
                offset: granule * GRANULE,
                len: GRANULE,
                fua: false,
            };
            self.device.account(NAMESPACE, &zeroes)?;
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

    /// Have the guest write files. `words` are those of [`crate::inside::run`], without the folder.
    ///
    /// # Errors
    ///
    /// The guest failed, or found other content than it had written.
    pub fn write(&self, words: &[String]) -> Result<Files> {
        let before = self.device.stats().model;
        let said = self.program(words)?;
        let written: Vec<Written> = serde_json::from_str(&said).with_context(|| said.clone())?;
        let spans = |file: &Written| {
            let spans = file.extents.iter();
            spans.map(|&(offset, len)| Span { offset, len }).collect()
        };
        Ok(Files {
            bytes: written.iter().map(|file| file.bytes).sum(),
            extents: written.iter().map(spans).collect(),
            hints: self.device.stats().model.since(&before).hints,
        })
    }

    /// Make a file system, have the guest write files there, and do all commands of that again in models of
    /// their own: as they were, and with the hints of a kernel that gives them. Returns the files, and the
    /// times of reading them in the device's own model and in these two.
    ///
    /// # Errors
    ///
    /// As of [`make`](Self::make) and [`write`](Self::write).
    pub fn foresee(
        &self,
        system: FileSystem,
        words: &[String],
        reading: Reading,
    ) -> Result<(Files, [Nanos; 3])> {
        self.device.begin_command_log();
        self.make(system, "defaults")?;
        let files = self.write(words)?;
        let own = self.read(&files, reading);
        self.unmount(system)?;
        let commands = self.device.take_command_log();
        let sizes: Vec<Bytes> = { self.device.namespaces().iter() }
            .map(|namespace| Bytes(namespace.size_bytes))
            .collect();
        let profile = Profile::builtin(PROFILE).context("the profile is built in")?;
        let mut times = [own; 3];
        let hints = [None, Some(files.extents.as_slice())];
        for (time, hints) in times[1..].iter_mut().zip(hints) {
            let mut device = again(&profile, &sizes, &commands, hints)?;
            *time = reading.time(&mut device, &files.extents);
        }
        Ok((files, times))
    }

    /// The time in which the model of the device, idle, reads these files.
    #[must_use]
    pub fn read(&self, files: &Files, reading: Reading) -> Nanos {
        reading.time(&mut self.device.model(), &files.extents)
    }

    /// The same after all else on the device was overwritten `times` times, which happens in the model
    /// alone.
    #[must_use]
    pub fn read_aged(&self, files: &Files, reading: Reading, times: u64) -> (Nanos, Aged) {
        let mut model = self.device.model();
        let aged = overwrite_others(&mut model, &files.extents, times);
        (reading.time(&mut model, &files.extents), aged)
    }

    /// Where these files lie on the flash.
    #[must_use]
    pub fn place(&self, files: &Files) -> Place {
        Place::of(&self.device.model(), &files.extents)
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
        let errors = ["EXT4-fs error", "F2FS-fs error"];
        for fault in KERNEL_FAULTS.split('|').chain(errors) {
            ensure!(!log.contains(fault), "the guest's kernel said:\n{log}");
        }
        Ok(self.session.end()?)
    }
}
