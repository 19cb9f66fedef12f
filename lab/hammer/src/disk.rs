//! Volumes in image files, mounted; and copies of them as a power cut would leave them.
//!
//! All images lie on an outer XFS, where a clone of a file is atomic: it waits for the requests under
//! way and holds off further ones (`xfs_reflink_remap_prep`, fs/xfs/xfs_reflink.c, v6.18). The loop
//! devices say that they have no volatile cache, so that flushes, which mean nothing here, cost
//! nothing.

use std::{
    fs::{self, File},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
};

use anyhow::{Context, Result, bail, ensure};
use scratch_fs::{ScratchError, ScratchFs};
use units::Bytes;

use crate::volume::{Kind, Volume};

/// Bytes of a volume's image.
const SIZE: u64 = 512 << 20;

/// Where images lie.
#[derive(Debug)]
pub(crate) struct Host {
    outer: ScratchFs,
    tools: Option<PathBuf>,
}

impl Host {
    /// An outer file system below `folder`; `tools` has newer tools for XFS, if needed.
    pub(crate) fn new(folder: &Path, tools: Option<PathBuf>) -> Result<Self, ScratchError> {
        let builder = ScratchFs::builder("xfs", Bytes::gib(8)).folder(folder);
        let outer = builder.mkfs_args(["-m", "reflink=1"]).build()?;
        Ok(Self { outer, tools })
    }

    fn tool(&self, volume: &Volume, name: &str) -> PathBuf {
        match &self.tools {
            Some(folder) if volume.new_tools => folder.join(name),
            _ => name.into(),
        }
    }

    /// A new volume, mounted.
    pub(crate) fn volume(&self, volume: &'static Volume) -> Result<Disk<'_>> {
        let image = self.outer.path().join("volume");
        let file = File::create(&image)?;
        file.set_len(SIZE)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, SIZE)?;
        drop(file);
        let mut disk = Disk::attach(self, volume, image, true)?;
        let mut mkfs = Command::new(self.tool(volume, &format!("mkfs.{}", volume.kind.as_str())));
        mkfs.args(match volume.kind {
            Kind::Ext4 => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"][..],
            Kind::Xfs | Kind::Btrfs => &["-q", "-f"],
        });
        run(mkfs.args(volume.mkfs).args(&disk.loops))?;
        disk.mount()?;
        Ok(disk)
    }

    /// A copy, mounted: what a power cut left is put in order by the file system itself.
    pub(crate) fn examine(&self, volume: &'static Volume, image: PathBuf) -> Result<Disk<'_>> {
        // A file that shares blocks takes direct requests of whole blocks only.
        let mut disk = Disk::attach(self, volume, image, false)?;
        disk.mount()?;
        Ok(disk)
    }
}

/// An image with its loop devices.
#[derive(Debug)]
pub(crate) struct Disk<'a> {
    host: &'a Host,
    volume: &'static Volume,
    image: PathBuf,
    root: PathBuf,
    loops: Vec<String>,
    mounted: bool,
    copies: AtomicU32,
}

impl<'a> Disk<'a> {
    fn attach(
        host: &'a Host,
        volume: &'static Volume,
        image: PathBuf,
        direct: bool,
    ) -> Result<Self> {
        let root = image.with_extension("mnt");
        fs::create_dir_all(&root)?;
        let mut disk = Self {
            host,
            volume,
            image,
            root,
            loops: Vec::new(),
            mounted: false,
            copies: 0.into(),
        };
        let size = SIZE / volume.devices;
        for device in 0..volume.devices {
            let mut losetup = Command::new("losetup");
            losetup.args(["--show", "-f"]);
            losetup.arg(if direct {
                "--direct-io=on"
            } else {
                "--direct-io=off"
            });
            losetup.args(["-o", &(device * size).to_string()]);
            losetup.args(["--sizelimit", &size.to_string()]);
            let name = run(losetup.arg(&disk.image))?;
            disk.loops.push(name.trim().to_owned());
        }
        Ok(disk)
    }

    /// Where it is mounted.
    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    pub(crate) fn mount(&mut self) -> Result<()> {
        let mut options = vec![self.volume.mount.to_owned()];
        if self.volume.kind == Kind::Btrfs {
            let others = self.loops.iter().skip(1);
            options.extend(others.map(|device| format!("device={device}")));
        }
        options.retain(|option| !option.is_empty());
        let mut mount = Command::new("mount");
        mount.args(["-t", self.volume.kind.as_str()]);
        if !options.is_empty() {
            mount.args(["-o", &options.join(",")]);
        }
        run(mount.arg(&self.loops[0]).arg(&self.root))?;
        self.mounted = true;
        Ok(())
    }

    /// Unmount; a file that a mover just lets go of may take a moment.
    pub(crate) fn unmount(&mut self) -> Result<()> {
        let mut tries = 0;
        while let Err(error) = run(Command::new("umount").arg(&self.root)) {
            tries += 1;
            ensure!(tries < 100, error);
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        self.mounted = false;
        self.wait_until_free()
    }

    /// Until the file system has really let go of its devices: Btrfs closes them a moment later, and
    /// a process that just made a mount namespace of its own has a copy of this mount in it.
    fn wait_until_free(&self) -> Result<()> {
        let exclusive = rustix::fs::OFlags::EXCL.bits().cast_signed();
        for device in &self.loops {
            let mut tries = 0;
            let open = || {
                let mut options = fs::OpenOptions::new();
                options.read(true).custom_flags(exclusive).open(device)
            };
            while let Err(error) = open() {
                tries += 1;
                ensure!(
                    tries < 1000,
                    "{device} is still in use, by another mount namespace? {error}"
                );
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// The file system's own checker, changing nothing. Not while it is mounted.
    pub(crate) fn fsck(&self) -> Result<()> {
        let mut command = match self.volume.kind {
            Kind::Ext4 => Command::new("e2fsck"),
            Kind::Xfs => Command::new(self.host.tool(self.volume, "xfs_repair")),
            Kind::Btrfs => Command::new("btrfs"),
        };
        command.args(match self.volume.kind {
            Kind::Ext4 => &["-fn"][..],
            Kind::Xfs => &["-n"],
            Kind::Btrfs => &["check", "--readonly", "--check-data-csum"],
        });
        run(command.arg(&self.loops[0])).map(drop)
    }

    /// What is on the device at this instant, in a new image.
    pub(crate) fn copy(&self) -> Result<PathBuf> {
        let number = self.copies.fetch_add(1, Ordering::Relaxed);
        let path = self.image.with_extension(format!("cut{number}"));
        let copy = File::create(&path)?;
        rustix::fs::ioctl_ficlone(&copy, File::open(&self.image)?).context("clone the image")?;
        Ok(path)
    }

    /// Run a program on the mount point.
    pub(crate) fn program(&self, words: &[&str]) -> Result<()> {
        run(Command::new(words[0]).args(&words[1..]).arg(&self.root)).map(drop)
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        if self.mounted && self.unmount().is_err() {
            let _ = run(Command::new("umount").arg("--lazy").arg(&self.root));
        }
        for device in &self.loops {
            if self.volume.kind == Kind::Btrfs {
                let _ = run(Command::new("btrfs").args(["device", "scan", "--forget", device]));
            }
            let _ = run(Command::new("losetup").args(["-d", device]));
        }
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_dir(&self.root);
    }
}

/// Run a program of the system; what it printed comes back.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let mut text = command.get_program().to_string_lossy().into_owned();
    for word in command.get_args() {
        text.push(' ');
        text.push_str(&word.to_string_lossy());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.env("LC_ALL", "C");
    let output = command.output().with_context(|| text.clone())?;
    if !output.status.success() {
        bail!(
            "{text}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
