//! Mounted volumes on loop devices, and their states after a power cut.
//!
//! All media lie on an outer XFS, where a clone of a file takes no time and no room.

use std::{
    fs,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use scratch_fs::{ScratchError, ScratchFs, fsck_f2fs_found};
use units::Bytes;

use crate::{
    checker::{is_odd_checksums_only, let_end_after_blocks, past_an_end},
    medium::{Medium, MediumKind, Workshop},
    program::run,
    volume::{Volume, VolumeKind},
};

/// A file system whose files can be cloned at an instant.
#[derive(Debug)]
enum Outer {
    /// Made for this purpose.
    Made(ScratchFs),
    /// A folder of an existing one.
    There(tempfile::TempDir),
}

impl Outer {
    fn in_folder(folder: &Path) -> Result<Self, ScratchError> {
        if is_xfs_with_clones(folder)? {
            let mut made = tempfile::Builder::new();
            return Ok(Self::There(made.prefix("hammer-").tempdir_in(folder)?));
        }
        let builder = ScratchFs::builder("xfs", Bytes::gib(8)).folder(folder);
        Ok(Self::Made(builder.mkfs_args(["-m", "reflink=1"]).build()?))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Made(fs) => fs.path(),
            Self::There(folder) => folder.path(),
        }
    }
}

fn is_xfs_with_clones(folder: &Path) -> std::io::Result<bool> {
    // XFS_SUPER_MAGIC (linux/magic.h)
    const XFS: i64 = 0x5846_5342;
    if rustix::fs::statfs(folder)?.f_type != XFS {
        return Ok(false);
    }
    let (one, other) = (
        tempfile::tempfile_in(folder)?,
        tempfile::tempfile_in(folder)?,
    );
    Ok(rustix::fs::ioctl_ficlone(&other, &one).is_ok())
}

/// The place of all media.
#[derive(Debug)]
pub(crate) struct Host {
    outer: Outer,
    tools: Option<PathBuf>,
    program: PathBuf,
}

impl Host {
    /// An outer file system below `folder`, or a folder in it if it is on one; `tools` has newer tools
    /// for XFS, if needed; `program` is this one.
    pub(crate) fn new(
        folder: &Path,
        tools: Option<PathBuf>,
        program: PathBuf,
    ) -> Result<Self, ScratchError> {
        let outer = Outer::in_folder(folder)?;
        Ok(Self {
            outer,
            tools,
            program,
        })
    }

    /// Where media are made.
    pub(crate) fn workshop(&self) -> Workshop<'_> {
        Workshop {
            folder: self.outer.path(),
            program: &self.program,
        }
    }

    fn tool(&self, volume: &Volume, name: &str) -> PathBuf {
        match &self.tools {
            Some(folder) if volume.new_tools => folder.join(name),
            _ => name.into(),
        }
    }

    /// A device for a volume.
    pub(crate) fn medium(&self, kind: MediumKind, volume: &Volume) -> Result<Medium> {
        self.workshop().device(kind, volume.size)
    }

    /// A new volume, mounted.
    pub(crate) fn volume(&self, volume: &'static Volume, medium: &Medium) -> Result<Disk<'_>> {
        let mut disk = Disk::attach(self, volume, medium, true)?;
        disk.tell_of_cache(medium.has_volatile_cache())?;
        let mut mkfs = Command::new(self.tool(volume, &format!("mkfs.{}", volume.kind.as_str())));
        mkfs.args(match volume.kind {
            VolumeKind::Ext4 => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"][..],
            VolumeKind::Xfs | VolumeKind::Btrfs | VolumeKind::F2fs => &["-q", "-f"],
        });
        mkfs.args(volume.mkfs);
        match (volume.kind, &disk.devices[..]) {
            // The disk that is named last is the main one of F2FS; it uses the others, too.
            (VolumeKind::F2fs, [first, others @ ..]) => {
                for other in others {
                    mkfs.args(["-c", other]);
                }
                mkfs.arg(first)
            }
            (_, all) => mkfs.args(all),
        };
        run(&mut mkfs)?;
        disk.mount()?;
        Ok(disk)
    }

    /// Mount a state: the file system itself recovers from the power cut.
    pub(crate) fn examine(&self, volume: &'static Volume, medium: &Medium) -> Result<Disk<'_>> {
        // A file with shared blocks takes only direct requests of whole blocks.
        let mut disk = Disk::attach(self, volume, medium, false)?;
        disk.mount()?;
        Ok(disk)
    }
}

/// The loop devices of a medium, or its disks.
#[derive(Debug)]
pub(crate) struct Disk<'a> {
    host: &'a Host,
    volume: &'static Volume,
    root: PathBuf,
    devices: Vec<String>,
    attached: bool,
    mounted: bool,
}

impl<'a> Disk<'a> {
    fn attach(
        host: &'a Host,
        volume: &'static Volume,
        medium: &Medium,
        direct: bool,
    ) -> Result<Self> {
        let root = host.outer.path().join("volume.mnt");
        fs::create_dir_all(&root)?;
        let mut disk = Self {
            host,
            volume,
            root,
            devices: Vec::new(),
            attached: !medium.is_disk(),
            mounted: false,
        };
        let files = medium.files();
        if medium.is_disk() {
            let (wanted, there) = (volume.devices, files.len() as u64);
            let name = volume.name;
            ensure!(wanted == there, "{name}: disks: {there}, not {wanted}");
            disk.devices = files
                .iter()
                .map(|disk| disk.display().to_string())
                .collect();
            return Ok(disk);
        }
        let size = volume.size / volume.devices;
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
            let name = run(losetup.args(files))?;
            disk.devices.push(name.trim().to_owned());
        }
        Ok(disk)
    }

    /// Set whether file systems see a volatile cache, and so flush it: a reused loop device keeps its
    /// last setting. There is no FUA; the kernel flushes instead.
    pub(crate) fn tell_of_cache(&self, told: bool) -> Result<()> {
        let wanted = if told { "write back" } else { "write through" };
        for device in &self.devices {
            // It may be a link.
            let device = fs::canonicalize(device).with_context(|| device.clone())?;
            let name = device.file_name().unwrap_or_default().display();
            let path = format!("/sys/block/{name}/queue/write_cache");
            fs::write(&path, wanted).with_context(|| path.clone())?;
            let is = fs::read_to_string(&path)?;
            ensure!(is.trim() == wanted, "{path} is {is:?}, not {wanted:?}");
        }
        Ok(())
    }

    /// Its mount point.
    pub(crate) fn path(&self) -> &Path {
        &self.root
    }

    pub(crate) fn mount(&mut self) -> Result<()> {
        let mut options = vec![self.volume.mount.to_owned()];
        if self.volume.kind == VolumeKind::Btrfs {
            let others = self.devices.iter().skip(1);
            options.extend(others.map(|device| format!("device={device}")));
        }
        options.retain(|option| !option.is_empty());
        let mut mount = Command::new("mount");
        mount.args(["-t", self.volume.kind.as_str()]);
        if !options.is_empty() {
            mount.args(["-o", &options.join(",")]);
        }
        run(mount.arg(&self.devices[0]).arg(&self.root))?;
        self.mounted = true;
        Ok(())
    }

    /// Unmount; the mover may need a moment to close its last file.
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

    /// Wait until the file system has released its devices: Btrfs closes them a moment later, and a
    /// process that has just made its own mount namespace holds a copy of this mount.
    fn wait_until_free(&self) -> Result<()> {
        let exclusive = rustix::fs::OFlags::EXCL.bits().cast_signed();
        for device in &self.devices {
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

    /// Run the file system's own checker, which changes nothing. Not while it is mounted, and when the
    /// content was examined: for an alarm that may be false, files are made longer and checked again.
    pub(crate) fn fsck(&mut self) -> Result<()> {
        let checked = self.checked();
        let (VolumeKind::Ext4, Err(error)) = (self.volume.kind, &checked) else {
            return checked;
        };
        let inodes = past_an_end(&format!("{error:#}"));
        if inodes.is_empty() {
            return checked;
        }
        self.mount()?;
        let_end_after_blocks(&self.root, &inodes)?;
        self.unmount()?;
        self.checked()
    }

    fn checked(&self) -> Result<()> {
        let mut command = match self.volume.kind {
            VolumeKind::Ext4 => Command::new("e2fsck"),
            VolumeKind::Xfs => Command::new(self.host.tool(self.volume, "xfs_repair")),
            VolumeKind::Btrfs => Command::new("btrfs"),
            VolumeKind::F2fs => Command::new("fsck.f2fs"),
        };
        command.args(match self.volume.kind {
            VolumeKind::Ext4 => &["-fn"][..],
            VolumeKind::Xfs => &["-n"],
            VolumeKind::Btrfs => &["check", "--readonly", "--check-data-csum"],
            VolumeKind::F2fs => &["--dry-run"],
        });
        let said = run(command.arg(&self.devices[0]))?;
        let found = self.volume.kind == VolumeKind::F2fs && fsck_f2fs_found(&said);
        ensure!(!found, "fsck.f2fs: {said}");
        Ok(())
    }

    /// The same after the replay of a cut's log. On Btrfs an unwritten extent may then have checksums
    /// (seen on 6.18 without a mover): nothing reads them, and data that is written there gets new ones.
    pub(crate) fn fsck_after_cut(&mut self) -> Result<()> {
        match self.fsck() {
            Err(error) if is_odd_checksums_only(&format!("{error:#}")) => Ok(()),
            checked => checked,
        }
    }

    /// Run a program with the mount point.
    pub(crate) fn program(&self, words: &[&str]) -> Result<()> {
        run(Command::new(words[0]).args(&words[1..]).arg(&self.root)).map(drop)
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        // Restore the setting of a new loop device.
        let _ = self.tell_of_cache(true);
        if self.mounted && self.unmount().is_err() {
            let _ = run(Command::new("umount").arg("--lazy").arg(&self.root));
        }
        for device in &self.devices {
            if self.volume.kind == VolumeKind::Btrfs {
                let _ = run(Command::new("btrfs").args(["device", "scan", "--forget", device]));
            }
            if self.attached {
                let _ = run(Command::new("losetup").args(["-d", device]));
            }
        }
        let _ = fs::remove_dir(&self.root);
    }
}
